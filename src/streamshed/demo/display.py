"""The demonstrations in a terminal: what happens while it happens, then a table and a picture."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from streamshed.charts import Grid
from streamshed.demo import WINDOW, here
from streamshed.demo.story import Outcome, picture, write_page
from streamshed.demo.workload import FunnelWorkload
from streamshed.errors import StreamshedError

BURST = FunnelWorkload(sessions=2_400, minutes=36, burst=5)
"""About 11,000 rows a second, and 55,000 in the burst, where a minute takes a second."""

_TITLE = f"Impressions, clicks and orders of a session within {WINDOW}, with a burst"
_EVERY = 2.0
"""Seconds between lines, away from a terminal."""


def on_spark(seed: int, rows: int | None, policy: str, chart: Path) -> None:
    """Run the burst on Spark, and say how each join did."""
    from streamshed.demo import burst

    workload = FunnelWorkload(BURST.sessions, BURST.minutes, BURST.burst, seed=seed)
    with _stage() as (tell, show):
        outcomes, truth = burst.run(workload, rows, policy, tell, show)
    first, last = workload.bursting[0] * burst.PACE, (workload.bursting[-1] + 1) * burst.PACE
    columns: dict[str, Callable[[Outcome], str]] = {
        "join": lambda one: one.name + (f" ({one.note})" if one.note else ""),
        "fell behind by": lambda one: f"{one.most('lag'):.1f} s",
        "memory at most": lambda one: f"{one.most('memory') / 1e6:,.0f} MB",
        "rows held at most": lambda one: f"{one.most('held'):,}",
        "results at the burst's end": lambda one: f"{one.at(last).results:,}",
        "when all rows were in": lambda one: f"{one.at(workload.minutes * burst.PACE).results:,}",
        "in the end": lambda one: f"{one.last.results:,}",
        "of the exact result": lambda one: one.recall,
        "as the join says": lambda one: one.told,
    }
    due = truth.results[workload.bursting[-1]]
    said = [
        f"{truth.rows[-1]:,} rows in {workload.minutes * burst.PACE:.0f} s, five times as many in a"
        f" second from second {first:.0f} to {last:.0f}. The exact join makes {due:,} results of"
        f" the rows up to the burst's end, {truth.results[-1]:,} of all, and holds"
        f" {truth.peak:,} rows.",
        "Memory is that of all processes of a join, Java's among them. Rows held by Spark's own"
        " join include the pairs on their way to the second join.",
        *verdict(outcomes),
    ]
    figures = {
        "lag": "seconds behind",
        "waiting": "rows waiting",
        "memory": "MB of memory",
        "held": "rows held",
        "results": "results made",
    }
    _end(outcomes, columns, said, "lag", "{:.1f} s behind")
    _page(chart, outcomes, columns, said, figures, (first, last))


def in_process(
    policies: Sequence[str], seed: int, rows: int | None, minutes: int, chart: Path
) -> None:
    """Run the burst in this process, and say what each policy kept."""
    workload = FunnelWorkload(BURST.sessions // 2, minutes, BURST.burst, seed=seed)
    with _stage() as (tell, _):
        outcomes, truth = here.run(policies or here.POLICIES, rows, workload, seed, tell)
    budget = rows or truth.peak // 3
    columns: dict[str, Callable[[Outcome], str]] = {
        "policy": lambda one: one.name,
        "rows held at most": lambda one: f"{one.most('held'):,}",
        "memory at most": lambda one: f"{one.most('memory') / 1e6:,.1f} MB",
        "results": lambda one: f"{one.last.results:,}",
        "of the exact result": lambda one: one.recall,
        "as the join says": lambda one: one.told,
        "rows/s": lambda one: f"{truth.rows[-1] / one.busy:,.0f}",
    }
    said = [
        f"{truth.rows[-1]:,} rows in {minutes} minutes of the streams, five times as many in each"
        f" of the middle {len(workload.bursting)}. The exact join holds {truth.peak:,} rows;"
        f" the others may keep {budget:,}. Memory is what the join itself holds.",
        "A result needs an impression, a click and an order of one session. 'random' and 'oldest'"
        " drop each on its own, and 'density', the default, those of sessions that will hardly"
        " make results.",
    ]
    _end(outcomes, columns, said, "results", "{:,} results")
    figures = {"held": "rows held", "memory": "MB of memory", "results": "results made"}
    burst = 60.0 * workload.bursting[0], 60.0 * (workload.bursting[-1] + 1)
    _page(chart, outcomes, columns, said, figures, burst)


def verdict(outcomes: Sequence[Outcome]) -> list[str]:
    """Say who did better, whoever it was."""
    sparks, exact, ours = outcomes
    behind = [one.most("lag") for one in outcomes]
    lines = [
        "Spark's own join kept up with the rows as well as ours: this burst is no trouble for it"
        " on this machine."
        if behind[0] <= 1.25 * max(behind[1:])
        else f"Spark's own join fell behind by {behind[0]:.1f} s, ours by {behind[1]:.1f} s without"
        f" a budget and {behind[2]:.1f} s with one."
    ]
    if sparks.last.waiting:
        lines.append(f"{sparks.last.waiting:,} rows still waited for Spark's own join in the end.")
    less = sparks.most("memory") - ours.most("memory")
    if sparks.most("memory"):
        lines.append(
            f"With a budget ours took {abs(less) / 1e6:,.0f} MB {'less' if less > 0 else 'more'}"
            " than Spark's own, and held"
            f" {ours.most('held') / max(1, exact.most('held')):.0%} of the rows of the exact join."
        )
    lines.append(
        f"It made {ours.recall} of the results of the exact join, and says {ours.told} itself."
    )
    return lines


# -- on the screen --------------------------------------------------------------------------------


@contextmanager
def _stage() -> Iterator[tuple[Callable[[str], None], Callable[[Sequence[Outcome]], None]]]:
    """Give a function that says what is being done, and one that shows how far it is."""
    console = Console(stderr=True)
    if not console.is_terminal:
        shown = [0.0]

        def show(outcomes: Sequence[Outcome]) -> None:
            if time.monotonic() - shown[0] >= _EVERY:
                shown[0] = time.monotonic()
                print(_line(outcomes[-1]), file=sys.stderr, flush=True)

        yield (lambda line: print(line, file=sys.stderr, flush=True)), show
        return
    state: list[str] = ["starting"]
    with Live(state[0], console=console, refresh_per_second=4, transient=True) as live:

        def tell(line: str) -> None:
            state[0] = line
            live.update(line)

        yield tell, lambda outcomes: live.update(Group(_progress(outcomes), state[0]))


def _line(outcome: Outcome) -> str:
    sample = outcome.last
    told = f"   recall {outcome.told}, in truth {outcome.recall}" if outcome.told else ""
    return (
        f"{outcome.name:22} {sample.second:5.1f} s   waiting {sample.waiting:7,d}"
        f"   behind {sample.lag:4.1f} s   held {sample.held:7,d}"
        f"   memory {sample.memory / 1e6:5,.0f} MB   results {sample.results:8,d}{told}"
    )


def _progress(outcomes: Sequence[Outcome]) -> Table:
    heads = (
        "second",
        "rows waiting",
        "behind",
        "rows held",
        "memory",
        "results",
        "recall as it says",
        "in truth",
    )
    table = Table("join", title=_TITLE)
    for head in heads:
        table.add_column(head, justify="right")
    for one in outcomes:
        if one.samples:
            at = one.last
            table.add_row(
                one.name,
                f"{at.second:.0f}",
                f"{at.waiting:,}",
                f"{at.lag:.1f} s",
                f"{at.held:,}",
                f"{at.memory / 1e6:,.0f} MB",
                f"{at.results:,}",
                one.told,
                one.recall,
            )
    return table


def _end(
    outcomes: Sequence[Outcome],
    columns: dict[str, Callable[[Outcome], str]],
    said: Sequence[str],
    what: str,
    unit: str,
) -> None:
    """Print the table, the picture and the words."""
    # Away from a terminal there is no width to keep to.
    console = Console() if sys.stdout.isatty() else Console(width=180)
    table = Table(title=_TITLE)
    for place, head in enumerate(columns):
        table.add_column(head, justify="right" if place else "left")
    for outcome in outcomes:
        table.add_row(*(cell(outcome) for cell in columns.values()))
    console.print(table)
    for line in [*picture(outcomes, what, unit), "", *said]:
        console.print(line, highlight=False, soft_wrap=True)


def _page(
    chart: Path,
    outcomes: Sequence[Outcome],
    columns: dict[str, Callable[[Outcome], str]],
    said: Sequence[str],
    figures: dict[str, str],
    burst: tuple[float, float],
) -> None:
    grid = Grid(list(columns), [[cell(one) for cell in columns.values()] for one in outcomes])
    try:
        write_page(chart, _TITLE, outcomes, figures, burst, grid, said)
    except StreamshedError as error:
        print(f"no chart is written: {error}", file=sys.stderr)
    else:
        print(f"The chart is in {chart}")
