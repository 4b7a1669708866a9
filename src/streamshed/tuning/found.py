"""What tuning has found: cells of policies and budgets, and the one that is recommended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamshed.charts import Grid, imported, write_html
from streamshed.estimates import Share
from streamshed.join import Join
from streamshed.ledger import aligned
from streamshed.sizes import rounded
from streamshed.tuning.archive import PARTS

if TYPE_CHECKING:
    import altair as alt

_DRIFT = 0.04
"""Halves of an archive whose recalls differ by more are said to drift."""
_CLOSE = 0.02
"""Intervals of recall that reach farther to one side are said to be wide."""
_BURST = 0.5
"""A part of the archive that makes more of the results is said to."""


@dataclass(frozen=True)
class Cell:
    """A trial: one policy with one budget.

    Attributes:
        policy: the name of the policy.
        rows: the budget: rows of all streams together.
        nbytes: the memory of the join at that budget, with the columns of rows.
        recall: the share of the results that was made, with a 95 % interval over parts of the
            archive; near the wanted recall the mean of several runs.
        keys: of the keys with a result in the exact join, the share with a result; None if keys
            are not counted.
        seconds: the processor time of the trial.
        halves: the recall in an earlier and in a later part of the archive.
    """

    policy: str
    rows: int
    nbytes: int
    recall: Share
    keys: Share | None
    seconds: float
    halves: tuple[float, float] = (1.0, 1.0)

    @property
    def drifts(self) -> bool:
        """Whether recall differs more over the archive than its interval allows for."""
        allowed = max(_DRIFT, (self.recall.high - self.recall.low) / 2)
        return abs(self.halves[0] - self.halves[1]) > allowed


@dataclass(frozen=True)
class Tuning:
    """The trials of `Join.tune` and its recommendation; `print` shows them as a table.

    Attributes:
        join: the join with the recommended policy and budget.
        wanted: the recall that you asked for.
        best: the recommended trial; None if only the exact join reaches that recall.
        cells: all trials.
        rows: the most rows that the join stores without a budget.
        nbytes: the memory that it needs for them, with their columns.
        results: how many results it makes without a budget.
        sample: the share of the keys on which the trials ran.
        burst: the largest share of the results that one of the parts of the archive makes.
    """

    join: Join
    wanted: float
    best: Cell | None
    cells: Sequence[Cell]
    rows: int
    nbytes: int
    results: int
    sample: float = 1.0
    burst: float = 0.0

    def to_table(self) -> pa.Table:
        """One row for each trial."""

        def part(share: Share | None, name: str) -> float | None:
            return None if share is None else getattr(share, name)

        columns: dict[str, list[Any]] = {
            "policy": [cell.policy for cell in self.cells],
            "rows": [cell.rows for cell in self.cells],
            "bytes": [cell.nbytes for cell in self.cells],
        }
        for of in ("recall", "keys"):
            for name in ("value", "low", "high"):
                head = of if name == "value" else f"{of}_{name}"
                columns[head] = [part(getattr(cell, of), name) for cell in self.cells]
        return pa.table(columns)

    def to_dict(self) -> dict[str, Any]:
        """What was found, as JSON has it; `best` is a policy and a budget in rows."""
        return {
            "wanted": self.wanted,
            "best": None if self.best is None else [self.best.policy, self.best.rows],
            "recommendation": self.recommendation(),
            "rows": self.rows,
            "bytes": self.nbytes,
            "results": self.results,
            "sample": self.sample,
            "burst": self.burst,
            "cells": self.to_table().to_pylist(),
        }

    def _said(self) -> list[str]:
        """What the exact join needs, and how much of the archive was tried."""
        lines = [
            f"without a budget: {self.rows:,} rows at most, {rounded(self.nbytes)}; "
            f"{self.results:,} results"
        ]
        if self.sample < 1:
            lines.append(f"from {self.sample:.1%} of the keys, scaled to all of them")
        if self.burst > _BURST:
            lines.append(
                f"{self.burst:.1%} of the results come from one of {PARTS} parts of the archive: "
                "recall is that of this burst, and another burst may have another"
            )
        return lines

    def _grid(self) -> list[list[str]]:
        """The cells as words, with their heads."""
        rows = [
            [
                cell.policy,
                f"{cell.rows:,}",
                rounded(cell.nbytes),
                f"{cell.recall}",
                "" if cell.keys is None else f"{cell.keys}",
            ]
            for cell in sorted(self.cells, key=lambda cell: (cell.policy, cell.rows))
        ]
        return [["policy", "rows", "memory", "recall", "keys"], *rows]

    def __str__(self) -> str:
        return "\n".join([*self._said(), *aligned(self._grid()), self.recommendation()])

    def recommendation(self) -> str:
        """What is recommended, in a sentence."""
        if self.best is None:
            return (
                f"for a recall of {self.wanted:.1%} keep all {self.rows:,} rows: no policy reaches "
                "it with fewer that were tried"
            )
        best = self.best
        said = (
            f"for a recall of {self.wanted:.1%}: .keep(total={best.rows}).shed({best.policy!r}), "
            f"{rounded(best.nbytes)}, recall {best.recall}"
        )
        if best.drifts:
            early, late = best.halves
            said += (
                f". The data drift: recall was {early:.1%} earlier in the archive and {late:.1%}"
                " later, and may change as much in the future; allow for that, or tune on a longer"
                " archive"
            )
        elif best.recall.high - best.recall.low > 2 * _CLOSE:
            said += (
                ". Recall varies along the archive: over an equally long time in the future it may"
                f" be as low as {best.recall.low:.1%}; allow for that, or tune on a longer archive"
            )
        return said

    def plot(self) -> alt.HConcatChart:
        """Recall against memory for each policy, of results and of keys, as an Altair chart."""
        return _chart(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the chart and the table as an HTML page that needs no network to be seen."""
        head, *rows = self._grid()
        grid = Grid(head, rows, "What was tried")
        write_html(
            Path(path),
            "Recall against memory",
            *self._said(),
            self.recommendation(),
            self.plot(),
            grid,
        )


def _chart(tuning: Tuning) -> alt.HConcatChart:
    alt = imported("altair")
    rows = [
        {
            "policy": cell.policy,
            "rows": cell.rows,
            "MB": cell.nbytes / 1e6,
            "part": share.value,
            "low": share.low,
            "high": share.high,
            "of": of,
        }
        for cell in tuning.cells
        for of, share in (("results", cell.recall), ("keys", cell.keys))
        if share is not None
    ]
    kinds = [of for of in ("results", "keys") if any(row["of"] == of for row in rows)]

    def chart(of: str) -> Any:
        base = alt.Chart({"values": [row for row in rows if row["of"] == of]}).encode(
            x=alt.X("MB:Q", scale=alt.Scale(type="log"), title="memory in MB"),
            color=alt.Color("policy:N"),
            tooltip=["policy:N", "rows:Q", "MB:Q", "part:Q", "low:Q", "high:Q"],
        )
        recall = alt.Y("part:Q", axis=alt.Axis(format="%"), title=f"part of the {of} made")
        layers = [
            base.mark_area(opacity=0.15).encode(y="low:Q", y2="high:Q"),
            base.mark_line().encode(y=recall),
            base.mark_point(filled=True).encode(y=recall),
            alt.Chart({"values": [{"wanted": tuning.wanted}]})
            .mark_rule(strokeDash=[4, 4])
            .encode(y="wanted:Q"),
        ]
        if tuning.best is not None and of == "results":
            best = {"MB": tuning.best.nbytes / 1e6, "part": tuning.best.recall.value}
            layers.append(
                alt.Chart({"values": [best]})
                .mark_point(shape="diamond", size=200, strokeWidth=2)
                .encode(x="MB:Q", y="part:Q")
            )
        return alt.layer(*layers).properties(width=420, height=320)

    said = f"Recall against memory for each policy; {tuning.recommendation()}"
    return alt.hconcat(*(chart(of) for of in kinds), description=said)  # type: ignore[no-any-return]
