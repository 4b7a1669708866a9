"""The charts of docs/policies.md: the share of results each policy keeps, budget by budget.

`python -m streamshed_lab.experiments.policy_charts docs` runs four small workloads under every
policy, draws a chart for each policy (`images/policy-NAME.svg`), and writes the table of the page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import pyarrow as pa

import streamshed as ss
from streamshed.charts import write_svg
from streamshed.demo import funnel
from streamshed.policies import NAMED
from streamshed_lab.experiments.joining import key_join
from streamshed_lab.marks import put
from streamshed_lab.workloads import (
    ExistenceWorkload,
    FunnelWorkload,
    StarWorkload,
    ZipfWorkload,
)

PARTS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
"""Budgets, as parts of the rows that the exact join holds."""
SHOWN = 0.2
"""The budget of the table."""
RELATION = "relation: importance"


@dataclass(frozen=True)
class Panel:
    """A workload, the exact join of it, and what its results are counted by.

    Attributes:
        join: without a budget.
        streams: its inputs.
        policies: those that have a meaning for it.
        figure: what is compared with the exact join's, from a ledger.
    """

    join: ss.Join
    streams: Mapping[str, pa.Table]
    policies: tuple[str, ...]
    figure: Callable[[ss.Ledger], float] = lambda ledger: ledger.results


def panels(scale: float = 1.0) -> dict[str, Panel]:
    """The workloads by name.

    Args:
        scale: of their sizes.
    """
    by_key = tuple(name for name in NAMED if name != "importance")
    rows = round(8_000 * scale)
    orders = ExistenceWorkload(3, rows, 20.0, alpha=1.0, spread=60.0, repertoire=6, seed=1)
    recurring = ZipfWorkload(3, rows, 20.0, keys=2_000, skew=0.8, seed=1)
    star = StarWorkload(tuples=round(4_000 * scale), seed=1)
    through = (
        ss.join("r", "s")
        .within(200, time="time")
        .through(star.relation().select(["a", "b"]), r="a", s="b")
        .weigh(column="importance")
    )
    return {
        "funnel": Panel(funnel(), FunnelWorkload(round(150 * scale), 36, seed=1).tables(), by_key),
        "unique keys": Panel(key_join(orders.names, 100.0), orders.tables(), by_key),
        "recurring keys": Panel(key_join(recurring.names, 100.0), recurring.tables(), by_key),
        RELATION: Panel(
            through,
            star.tables(),
            ("density", "importance", "random", "oldest"),
            lambda ledger: float(ledger.importance or 0),
        ),
    }


def arrived(ledger: ss.Ledger) -> int:
    """All rows that came."""
    return sum(stream.arrived for stream in ledger.streams.values())


def measure(panels: Mapping[str, Panel], parts: tuple[float, ...] = PARTS) -> list[dict[str, Any]]:
    """The share of the exact result that each policy keeps, one row for each budget."""
    rows = []
    for title, panel in panels.items():
        exact = panel.join.count(panel.streams)
        # Under a budget, however large, rows leave with their windows, and not with their batch.
        roomy = panel.join.keep(total=arrived(exact)).shed("oldest").count(panel.streams)
        held = sum(stream.peak for stream in roomy.streams.values())
        for policy in panel.policies:
            for part in parts:
                bounded = panel.join.keep(total=max(1, round(part * held))).shed(policy)
                kept = panel.figure(bounded.count(panel.streams))
                share = kept / panel.figure(exact)
                rows.append({"panel": title, "policy": policy, "budget": part, "kept": share})
    return rows


def chart(rows: list[dict[str, Any]], policy: str) -> alt.TopLevelMixin:
    """Draw one policy in colour over all others in grey, a panel for each workload it can run."""
    titles = dict.fromkeys(row["panel"] for row in rows if row["policy"] == policy)
    if policy == "importance":
        titles = {RELATION: None}

    def panel(title: str) -> alt.LayerChart | alt.FacetChart:
        here = [row for row in rows if row["panel"] == title]
        axes = {
            "x": alt.X("budget:Q", title="budget / rows needed", axis=alt.Axis(format="%")),
            "y": alt.Y(
                "kept:Q", title="kept", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])
            ),
        }
        others = alt.Chart(
            alt.InlineData(values=[row for row in here if row["policy"] != policy]), title=title
        )
        own = alt.Chart(alt.InlineData(values=[row for row in here if row["policy"] == policy]))
        return alt.layer(
            others.mark_line(color="#999", strokeWidth=1, opacity=0.7).encode(
                **axes, detail="policy:N"
            ),
            own.mark_line(color="#1f77b4", strokeWidth=3, point=True).encode(**axes),
        )

    drawn = alt.hconcat(*(panel(title).properties(width=150, height=130) for title in titles))
    small: alt.TopLevelMixin = drawn.configure(background="white", aria=False)
    return small


def table(rows: list[dict[str, Any]], part: float = SHOWN) -> str:
    """The shares at one budget as Markdown: a line for each policy, a column for each workload."""
    titles = list(dict.fromkeys(row["panel"] for row in rows))
    kept = {
        (row["policy"], row["panel"]): f"{row['kept']:.0%}" for row in rows if row["budget"] == part
    }
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for policy in NAMED:
        cells = [kept.get((policy, title), "–") for title in titles]
        lines.append(f"| `{policy}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(docs: Path) -> None:
    """Draw the charts and write the table of the page."""
    rows = measure(panels())
    for policy in NAMED:
        write_svg(docs / "images" / f"policy-{policy}.svg", chart(rows, policy))
    put(docs / "policies.md", {"written by policy_charts": table(rows)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
