"""What both demonstrations share: the exact result, what each join did, and charts of it."""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamshed.charts import Grid, imported, write_html, write_svg
from streamshed.demo import funnel
from streamshed.demo.workload import FunnelWorkload, minutes_of
from streamshed.errors import StreamshedError, listed
from streamshed.estimates import Share

if TYPE_CHECKING:
    import altair as alt

IN_PICTURE = ("lag", "memory", "results")
"""The figures of a chart that is written as SVG, which is to be small."""
POINTS = 150
"""Points of a line in it, about."""
_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Sample:
    """Where a join stands at a moment."""

    second: float
    results: int
    """Made so far."""
    due: float
    """What the exact join makes of the rows taken so far."""
    held: int
    """Rows in the state."""
    memory: int
    """Bytes: of the process where there is one for each join, else of the join."""
    recall: tuple[float, float, float] | None = None
    """The part of the results that was made, as the join estimates it, and its interval."""
    waiting: int = 0
    """Rows that have come and are not joined yet."""
    lag: float = 0.0
    """Seconds for which the oldest of them has waited."""


@dataclass
class Outcome:
    """What a join did, from its beginning to its end."""

    name: str
    samples: list[Sample] = field(default_factory=list)
    note: str = ""
    """What went wrong."""
    busy: float = 0.0
    """Seconds of work, where that is measured."""

    @property
    def last(self) -> Sample:
        """The end."""
        return self.samples[-1]

    @property
    def recall(self) -> str:
        """The part of the results that was made, in truth.

        What is due of a part of a minute is interpolated, so that a little more may be made.
        """
        last = self.last
        return f"{min(100.0, 100 * last.results / last.due):.1f} %" if last.due else ""

    @property
    def told(self) -> str:
        """The part of the results that was made, as the join estimates it."""
        return "" if self.last.recall is None else str(Share(*self.last.recall))

    def most(self, what: str) -> float:
        """The largest value of a figure."""
        return max((getattr(sample, what) for sample in self.samples), default=0)

    def at(self, second: float) -> Sample:
        """The last sample up to a second."""
        place = bisect_right(self.samples, second, key=lambda sample: sample.second)
        return self.samples[max(0, place - 1)]


@dataclass(frozen=True)
class Truth:
    """What the exact join of a workload makes minute by minute, and the most rows it holds."""

    rows: npt.NDArray[np.int64]
    """Rows that have come by the end of each minute, of all streams."""
    results: npt.NDArray[np.int64]
    """Results that there are by then."""
    peak: int

    @classmethod
    def of(cls, workload: FunnelWorkload) -> Truth:
        """Count the results by the exact join, and the rows by their times."""
        tables = workload.tables()
        made = funnel().replay(tables).table["time"]
        minutes = range(workload.minutes)
        times = np.sort(np.concatenate([t["ts"].cast("int64").to_numpy() for t in tables.values()]))
        window = 10 * 60_000_000
        held = np.arange(1, len(times) + 1) - np.searchsorted(times, times - window)

        def by_minute(times: Any) -> npt.NDArray[np.int64]:
            counts = np.bincount(minutes_of(times).to_numpy(), minlength=len(minutes))
            return np.cumsum(counts)

        rows = sum(by_minute(table["ts"]) for table in tables.values())
        return cls(np.asarray(rows), by_minute(made), int(held.max()))

    def due(self, rows: int) -> float:
        """The results of the first so many rows."""
        return float(np.interp(rows, [0, *self.rows], [0, *self.results]))


@contextmanager
def compiling(policies: Sequence[str], tell: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Compile the joins of policies in two processes, while something else is done.

    What the joins of a process have in common is compiled once.

    Yields:
        A function that waits for it.
    """
    names = ["key" if policy == "exact" else f"key:{policy}" for policy in policies]
    code = "import sys, streamshed.precompile as p; p.compile_ahead(sys.argv[1:])"
    half = (len(names) + 1) // 2
    parts = [part for part in (names[:half], names[half:]) if part]
    workers = [subprocess.Popen([sys.executable, "-c", code, *part]) for part in parts]

    def wait() -> None:
        for worker, part in zip(workers, parts, strict=True):
            if worker.poll() is None:
                tell(f"loading the kernels of {listed(part)}; the first run compiles them")
            if worker.wait():
                raise StreamshedError(f"compiling the kernels of {listed(part)} failed")

    try:
        yield wait
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


# -- pictures -------------------------------------------------------------------------------------


def bars(values: Sequence[float], top: float, width: int = 60, height: int = 3) -> list[str]:
    """Draw values as bars of block characters; returns lines from top to bottom.

    Examples:
        >>> for line in bars([0.0, 1.0, 4.0, 2.0], top=4.0, width=4, height=2):
        ...     print(repr(line))
        '  █ '
        ' ▄██'
    """
    edges = np.linspace(0, len(values), width + 1)
    columns = [
        max(values[int(start) : max(int(end), int(start) + 1)]) for start, end in pairwise(edges)
    ]
    eighths = [round(8 * height * value / top) if top else 0 for value in columns]
    return [
        "".join(_BLOCKS[min(8, max(0, filled - 8 * row))] for filled in eighths)
        for row in reversed(range(height))
    ]


def picture(outcomes: Sequence[Outcome], what: str, unit: str) -> list[str]:
    """Draw a figure of every join over time, one above the other on one scale.

    Args:
        outcomes: what each join did.
        what: the field of `Sample`.
        unit: how the largest value is written: "{:.1f} s".
    """
    top = max(outcome.most(what) for outcome in outcomes)
    end = max(outcome.last.second for outcome in outcomes)
    lines = []
    for outcome in outcomes:
        values = [getattr(outcome.at(second), what) for second in np.linspace(0, end, 120)]
        *above, lowest = bars(values, top)
        most = unit.format(outcome.most(what))
        lines += [*(f"{line}│" for line in above), f"{lowest}│ {outcome.name}: up to {most}"]
    return lines


def write_page(
    path: Path,
    title: str,
    outcomes: Sequence[Outcome],
    figures: dict[str, str],
    burst: tuple[float, float],
    above: Sequence[str | Grid],
    below: Sequence[str],
) -> Path:
    """Write text, a table and a chart of figures over time as one HTML file, or the chart as SVG.

    Args:
        path: of the file; its suffix says which.
        title: of the page.
        outcomes: what each join did.
        figures: fields of `Sample`, and how their axes are called.
        burst: when it began and ended, in seconds.
        above: paragraphs and a table above the chart.
        below: paragraphs below it.
    """
    if path.suffix == ".svg":
        chosen = {name: figures[name] for name in IN_PICTURE if name in figures}
        thin = [
            replace(one, samples=one.samples[:: 1 + len(one.samples) // POINTS]) for one in outcomes
        ]
        return write_svg(
            path, _chart(title, thin, chosen, burst).configure(background="white", aria=False)
        )
    return write_html(path, title, *above, _chart(title, outcomes, figures, burst), *below)


def _chart(
    title: str,
    outcomes: Sequence[Outcome],
    figures: dict[str, str],
    burst: tuple[float, float],
) -> alt.VConcatChart:
    """Draw figures over time, one above the other, with the burst in grey."""
    alt = imported("altair")
    rows = [
        {"join": outcome.name, "second": sample.second}
        | {figure: getattr(sample, figure) for figure in figures}
        | {"memory": sample.memory / 1e6}
        for outcome in outcomes
        for sample in outcome.samples
    ]
    data = alt.InlineData(values=rows)
    span = {"from": burst[0], "to": burst[1], "middle": sum(burst) / 2, "label": "burst"}
    base = alt.Chart(alt.InlineData(values=[span]))
    band = base.mark_rect(opacity=0.15, color="gray").encode(x="from:Q", x2="to:Q")
    label = base.mark_text(color="gray", baseline="top").encode(
        x="middle:Q", y=alt.value(4), text="label:N"
    )
    names = [outcome.name for outcome in outcomes]
    first, last = next(iter(figures)), list(figures)[-1]
    charts = []
    for name, axis in figures.items():
        line = (
            alt.Chart(data)
            .mark_line(interpolate="step-after")
            .encode(
                x=alt.X("second:Q", title="seconds" if name == last else None),
                y=alt.Y(f"{name}:Q", title=axis),
                color=alt.Color("join:N", title=None, sort=names, legend=alt.Legend(orient="top")),
                strokeDash=alt.StrokeDash("join:N", sort=names, legend=None),
                tooltip=["join:N", "second:Q", f"{name}:Q"],
            )
        )
        layers = [band, label, line] if name == first else [band, line]
        charts.append(alt.layer(*layers).properties(width=640, height=140))
    described = f"{title}: {', '.join(figures.values())} over time. The table has the figures."
    return alt.vconcat(*charts).properties(description=described)  # type: ignore[no-any-return]
