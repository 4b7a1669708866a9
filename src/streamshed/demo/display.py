"""The demonstrations in a terminal: live figures, then a table, a picture and a chart."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from streamshed.charts import Grid
from streamshed.demo import WINDOW, here
from streamshed.demo.story import Outcome, Truth, compiling, picture, write_page
from streamshed.demo.workload import FunnelWorkload
from streamshed.errors import StreamshedError

BURST = FunnelWorkload(minutes=36, burst=5)
"""A minute takes a second on Spark."""
HERE = replace(BURST, sessions=1_200, wide=True)
"""About 27,000 rows of 230 bytes in a minute of the burst."""

_TITLE = f"A burst: impressions, clicks and orders of a session, joined within {WINDOW}"
_KEPT_UP = 5.0
"""Seconds behind, at most, of a join that keeps up: a batch begins every two."""
_EVERY = 2.0
"""Seconds between lines, away from a terminal."""


@dataclass(frozen=True)
class _Story:
    """What is told at the end."""

    grid: Grid
    said: Sequence[str]
    """Paragraphs with the outcome."""
    notes: Sequence[str]
    """Paragraphs that say what the figures are."""


def on_spark(seed: int, rows: int | None, policy: str, chart: Path) -> None:
    """Run the burst on Spark, and print how each join did."""
    from streamshed.demo import burst, contender

    with _stage() as (tell, show):
        with compiling(["exact", policy], tell) as compiled:
            compiled()
        tell("a trial: how many rows Spark's own join takes in a second on this machine")
        rate = burst.trial()
        workload = burst.loaded(replace(BURST, seed=seed), rate)
        outcomes, truth = burst.run(workload, rows, policy, tell, show)
    first, last = workload.bursting[0] * burst.PACE, (workload.bursting[-1] + 1) * burst.PACE
    figures: dict[str, Callable[[Outcome], str]] = {
        "furthest behind": lambda one: f"{one.most('lag'):.1f} s",
        "memory before the burst": lambda one: f"{one.at(first).memory / 1e6:,.0f} MB",
        "memory at its peak": lambda one: f"{one.most('memory') / 1e6:,.0f} MB",
        "rows held at most": lambda one: f"{one.most('held'):,}",
        "results when the burst ends": lambda one: f"{one.at(last).results:,}",
        "when the input ends": lambda one: f"{one.at(workload.minutes * burst.PACE).results:,}",
        "when the demo ends": lambda one: f"{one.last.results:,}",
        "true recall": lambda one: one.recall,
        "recall that it reports": lambda one: one.told,
    }
    came = np.diff(truth.rows, prepend=0) / burst.PACE
    story = _Story(
        _by_join(outcomes, figures),
        [
            f"In a trial, Spark's own join took {rate:,.0f} rows per second on this machine. The"
            f" burst is chosen to be more than that: {came[workload.bursting[0] - 1]:,.0f} rows per"
            f" second arrive before it, and {came.max():,.0f} at its height. From second"
            f" {first:.0f} to {last:.0f}, {workload.burst} times as many sessions begin; the rows"
            f" of a session follow within 8 s. {truth.rows[-1]:,} rows arrive in"
            f" {workload.minutes * burst.PACE:.0f} s, and make {truth.results[-1]:,} results; an"
            f" exact join has to hold {truth.peak:,} rows.",
            *verdict(outcomes, truth, last),
        ],
        [
            "Memory is that of all processes of a join, Java included, whose heap may grow to"
            f" {contender.HEAP}. What processes share counts once (PSS), and what ours keeps in"
            " shared memory counts. Spark's own join keeps its rows on disk (RocksDB); ours keeps"
            " them in memory, and needs Python workers. The rows held by Spark's own join include"
            " the pairs that its first join hands to its second. True recall compares with the"
            " exact results of the rows joined so far.",
            "These rows are narrow, so a budget saves little memory here: Java and the Python"
            " workers take most of it. The wider your rows and the longer your windows, the more"
            " it saves.",
        ],
    )
    axes = {
        "lag": "seconds behind",
        "waiting": "rows waiting",
        "memory": "memory in MB",
        "held": "rows held",
        "results": "results",
    }
    _end(outcomes, story, "lag", "{:.1f} s behind")
    _page(chart, outcomes, story, axes, (first, last))


def in_process(
    policies: Sequence[str], seed: int, rows: int | None, minutes: int, chart: Path
) -> None:
    """Run the burst in this process, and print what each policy kept."""
    workload = replace(HERE, minutes=minutes, seed=seed)
    with _stage() as (tell, _):
        outcomes, truth = here.run(policies or here.POLICIES, rows, workload, seed, tell)
    budget = rows or truth.peak // 3
    columns: dict[str, Callable[[Outcome], str]] = {
        "policy": lambda one: one.name,
        "peak rows held": lambda one: f"{one.most('held'):,}",
        "peak memory": lambda one: f"{one.most('memory') / 1e6:,.1f} MB",
        "results": lambda one: f"{one.last.results:,}",
        "true recall": lambda one: one.recall,
        "recall it reports": lambda one: one.told,
        "rows/s": lambda one: f"{truth.rows[-1] / one.busy:,.0f}",
    }
    story = _Story(
        Grid(list(columns), [[cell(one) for cell in columns.values()] for one in outcomes]),
        [
            f"{truth.rows[-1]:,} rows in {minutes} minutes of stream time, {workload.burst} times"
            f" as many per minute in the middle {len(workload.bursting)}. An exact join has to hold"
            f" {truth.peak:,} rows; the others have a budget of {budget:,}.",
            "A result needs an impression, a click and an order of one session. 'random' and"
            " 'oldest' evict rows one by one, so a result survives only if all its rows do."
            " 'density', the default, evicts whole sessions that are unlikely to end in an order.",
        ],
        [
            "Memory is what the join itself holds: rows of about 230 bytes, its tables, what a"
            " policy has learned, and the sample for the estimate. The narrower your rows, the less"
            " a budget of rows saves.",
        ],
    )
    _end(outcomes, story, "results", "{:,} results")
    axes = {"held": "rows held", "memory": "memory in MB", "results": "results"}
    burst = 60.0 * workload.bursting[0], 60.0 * (workload.bursting[-1] + 1)
    _page(chart, outcomes, story, axes, burst)


def verdict(outcomes: Sequence[Outcome], truth: Truth, second: float) -> list[str]:
    """Say in words which join did better.

    Args:
        outcomes: what Spark's own join did, ours without a budget, and ours with one.
        truth: what each should have done.
        second: when the burst ended.
    """
    sparks, _, ours = outcomes
    behind = [one.most("lag") for one in outcomes]
    lines = [
        f"Spark's own join fell {behind[0]:.1f} s behind, ours {behind[1]:.1f} s without a budget"
        f" and {behind[2]:.1f} s with one."
    ]
    if max(behind) <= _KEPT_UP:
        lines[0] += " All three kept up: this burst is no problem on this machine."
    elif behind[0] < max(behind[1:]):
        lines[0] += " Here Spark's own join did better."
    if min(behind) > _KEPT_UP:
        lines[0] += (
            " None kept up: if the machine was busy with something else, run the demo again."
        )
    sparks_made, exact_made, ours_made = (one.at(second).results for one in outcomes)
    lines.append(
        f"When the burst ended, Spark's own join had made {sparks_made:,} results, ours"
        f" {exact_made:,} without a budget and {ours_made:,} with one."
    )
    left = [f"{one.last.waiting:,} by {one.name}" for one in outcomes if one.last.waiting]
    if left:
        lines.append(
            f"When the demo ended, not all of the {truth.rows[-1]:,} rows were joined. Left were"
            f" {'; '.join(left)}. The memory and results above are those of the rows before."
        )
    less = sparks.most("memory") - ours.most("memory")
    if sparks.most("memory"):
        lines.append(
            f"With a budget, ours took {abs(less) / 1e6:,.0f} MB {'less' if less > 0 else 'more'}"
            f" memory than Spark's own join, and held {ours.most('held') / truth.peak:.0%} of the"
            " rows that an exact join has to hold."
        )
    joined = " of the rows that it joined" if ours.last.waiting else ""
    lines.append(
        f"It made {ours.recall} of the exact results{joined}. The join itself, which"
        f" does not know them, reported {ours.told}."
    )
    return lines


# -- on the screen --------------------------------------------------------------------------------


@contextmanager
def _stage() -> Iterator[tuple[Callable[[str], None], Callable[[Sequence[Outcome]], None]]]:
    """Yield a function that reports the current step, and one that shows live figures."""
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
    told = f"   recall {outcome.told}, true {outcome.recall}" if outcome.told else ""
    return (
        f"{outcome.name:22} {sample.second:5.1f} s   waiting {sample.waiting:7,d}"
        f"   behind {sample.lag:4.1f} s   held {sample.held:7,d}"
        f"   memory {sample.memory / 1e6:5,.0f} MB   results {sample.results:8,d}{told}"
    )


_LIVE: dict[str, Callable[[Outcome], str]] = {
    "second": lambda one: f"{one.last.second:.0f}",
    "rows waiting": lambda one: f"{one.last.waiting:,}",
    "behind": lambda one: f"{one.last.lag:.1f} s",
    "rows held": lambda one: f"{one.last.held:,}",
    "memory": lambda one: f"{one.last.memory / 1e6:,.0f} MB",
    "results": lambda one: f"{one.last.results:,}",
    "true recall": lambda one: one.recall,
    "recall that it reports": lambda one: one.told,
}


def _progress(outcomes: Sequence[Outcome]) -> Table:
    return _table(_by_join([one for one in outcomes if one.samples], _LIVE))


def _by_join(outcomes: Sequence[Outcome], figures: Mapping[str, Callable[[Outcome], str]]) -> Grid:
    """A column for each join: a row for each would be wider than a terminal."""
    names = [one.name + (f" ({one.note})" if one.note else "") for one in outcomes]
    return Grid(["", *names], [[name, *map(cell, outcomes)] for name, cell in figures.items()])


def _table(grid: Grid) -> Table:
    table = Table(title=_TITLE)
    for place, head in enumerate(grid.head):
        table.add_column(head, justify="right" if place else "left")
    for row in grid.rows:
        table.add_row(*row)
    return table


def _end(outcomes: Sequence[Outcome], story: _Story, what: str, unit: str) -> None:
    """Print the table, the picture and the text."""
    # Away from a terminal there is no width to keep to.
    console = Console() if sys.stdout.isatty() else Console(width=180)
    console.print(_table(story.grid))
    for line in [*picture(outcomes, what, unit), "", *story.said, "", *story.notes]:
        console.print(line, highlight=False, soft_wrap=True)


def _page(
    chart: Path,
    outcomes: Sequence[Outcome],
    story: _Story,
    figures: dict[str, str],
    burst: tuple[float, float],
) -> None:
    try:
        write_page(chart, _TITLE, outcomes, figures, burst, [*story.said, story.grid], story.notes)
    except StreamshedError as error:
        print(f"no chart was written: {error}", file=sys.stderr)
    else:
        print(f"Chart: {chart}")
