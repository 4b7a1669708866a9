"""What every experiment hands in: runs, charts as data, and a verdict on each claim of its paper.

A figure's record is one JSON file. It is kept with a digest of the scale and of all sources that
can change what is measured, so that a run that was stopped goes on where it was, and a change of
how it is shown runs nothing anew; the page and the verdicts are made of the records alone
(`streamshed_lab.experiments.page`).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

import streamshed
from streamshed.errors import StreamshedError, listed
from streamshed_lab.experiments.verdicts import Claim

Row = dict[str, Any]
Progress = Callable[[str], None]
Scale = TypeVar("Scale")
Record = dict[str, Any]
"""A figure: what was tried, on which machine, what was found, and the charts."""


def summarise(runs: Sequence[Row], by: Sequence[str], value: str) -> list[Row]:
    """Reduce runs to the mean, the standard deviation and the number of runs of each setting.

    Args:
        runs: one mapping per run.
        by: the columns that make a setting.
        value: the measured column.

    Returns:
        One row per setting, in the order in which settings first appear: the columns of `by`,
        `{value}_mean`, `{value}_deviation` (0 for a single run) and `runs`.

    Examples:
        >>> summarise([{"m": 1, "y": 2}, {"m": 1, "y": 4}], ["m"], "y")
        [{'m': 1, 'y_mean': 3.0, 'y_deviation': 1.4142135623730951, 'runs': 2}]
    """
    values: dict[tuple[Any, ...], list[float]] = {}
    for run in runs:
        values.setdefault(tuple(run[name] for name in by), []).append(run[value])
    return [
        dict(zip(by, setting, strict=True))
        | {
            f"{value}_mean": statistics.fmean(measured),
            f"{value}_deviation": statistics.stdev(measured) if len(measured) > 1 else 0.0,
            "runs": len(measured),
        }
        for setting, measured in values.items()
    ]


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table as Markdown.

    Examples:
        >>> print(markdown_table(["setting", "a"], [["near", "3"]]))
        | setting | a |
        |---|---|
        | near | 3 |
    """
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def stem(figure: str, measure: str, **fixed: object) -> str:
    """Name a file after what made it.

    Examples:
        >>> stem("fig05", "results", streams=5, alpha=0.0, window="100 s")
        'fig05_results_streams=5_alpha=0_window=100s'
    """

    def said(value: object) -> str:
        text = f"{value:g}" if isinstance(value, float) else str(value)
        return "".join(c for c in text if c.isalnum() or c in ".+-")

    return "_".join([figure, measure, *(f"{name}={said(value)}" for name, value in fixed.items())])


@dataclass(frozen=True)
class Chart:
    """Small multiples of lines, as data.

    Attributes:
        rows: one for each point: `x`, `y`, `deviation`, `line`, `panel`, and `kind`, which is
            "measured", "exact" (the join without a budget) or "paper" (what the paper says).
        x: what is along the bottom, with its unit.
        y: what is measured, with its unit.
        log: whether y is logarithmic.
    """

    rows: list[Row]
    x: str
    y: str
    log: bool = False


@dataclass
class Report:
    """What an experiment hands in, and where its runs are written.

    Attributes:
        out: the folder; it is made when first needed.
        progress: is told, in a line, what is being done.
        charts: that were handed in.
    """

    out: Path
    progress: Progress = lambda line: None
    charts: list[Chart] = field(default_factory=list)

    def runs(self, name: str, rows: Sequence[Row]) -> Path:
        """Write all runs as Parquet, and return the path."""
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / f"{name}_runs.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
        return path

    def chart(
        self,
        rows: Sequence[Row],
        x: str,
        y: str,
        lines: str,
        panels: Sequence[str] = (),
        *,
        exact: str | None = None,
        paper: Mapping[tuple[Any, str], float] | None = None,
        log: bool = False,
    ) -> None:
        """Hand in small multiples of line charts.

        Args:
            rows: a summary.
            x: the column along the bottom.
            y: the measured column: its mean is drawn, its deviation as error bars.
            lines: the column that tells lines apart; one named "exact" is of the exact join.
            panels: the columns that tell panels apart.
            exact: the column of what the exact join makes, drawn as a line of its own.
            paper: numbers that the paper's text gives, by the value of x and the line.
            log: whether y is logarithmic.
        """
        points: list[Row] = []
        for row in rows:
            panel = ", ".join(
                f"{name.replace('_', ' ')} {_shown(row[name])}{UNITS.get(name, '')}"
                for name in panels
            )
            place = {"x": row[x], "panel": panel}
            points.append(
                place
                | {
                    "y": row[f"{y}_mean"],
                    "deviation": row.get(f"{y}_deviation", 0.0),
                    "line": _named(lines, row[lines]),
                    "kind": "exact" if row[lines] == "exact" else "measured",
                }
            )
            of_exact = place | {"line": "exact", "kind": "exact", "deviation": 0.0}
            if exact is not None and (of_exact := of_exact | {"y": row[exact]}) not in points:
                points.append(of_exact)
        points += [
            {"x": at, "y": said, "deviation": 0.0, "line": line, "panel": panel, "kind": "paper"}
            for (at, line), said in (paper or {}).items()
            for panel in dict.fromkeys(point["panel"] for point in points)
        ]
        self.charts.append(Chart(points, label(x), label(y), log))


UNITS = {"spread": " s"}
"""Of columns that tell panels apart."""
LABELS = {
    "cost": "cost of a comparison (times)",
    "alpha": "skew of the orders, α",
    "churn": "part of the facts that is replaced",
    "gain": "gain over no disk",
    "average": "relative error of windowed averages",
    "quartiles": "difference of quartiles (values)",
    "deviation": "deviation κ₃ of the third stream",
    "dropped": "rows dropped (part)",
    "every": "adaptation interval Δ (s)",
    "facts": "rows of the relation",
    "improvement": "output over RandomDrop's, less 1",
    "importance": "importance made",
    "memory": "memory (rows)",
    "members": "members in a second",
    "nanoseconds": "processor time (ns per row)",
    "optimality": "output over the optimum's",
    "output": "results per second",
    "part": "length b of basic windows (s)",
    "percentage": "load shedding (%)",
    "milliseconds": "processor time (ms)",
    "reading": "values",
    "updates per second": "outputs per second (one for each arrival)",
    "members per second": "members of outputs per second",
    "probes": "probes per reading",
    "rate": "arrival rate (rows/s of each stream)",
    "reduction": "reduction (%; drop rate in points)",
    "results": "results",
    "rows": "memory (rows of each stream)",
    "seconds": "processor time (s)",
    "sensors": "sensors",
    "share": "share of the exact results",
    "skew": "skew, z-intra",
    "streams": "streams",
    "throttle": "throttle z",
    "time": "time (s)",
    "width": "variance, or standard deviation, of the values",
}
"""Columns in words, with units."""


def label(column: str) -> str:
    """A column in words, with its unit."""
    return LABELS.get(column, column.replace("_", " "))


@dataclass
class Paper(Generic[Scale]):
    """The experiments of a paper.

    Attributes:
        title: of the paper.
        figures: by name what makes each; the parts of a figure, such as 9a and 9b, are made as one.
        full: how much of everything to run.
        quick: the same with fewer seeds and settings.
        plain: how the paper was read at first: the answers to what it leaves open.
        about: what was decided where the paper is silent.
        timed: the figures that measure times, which are made while nothing is made beside them.
    """

    title: str
    figures: Mapping[str, Callable[[Scale, Report], list[Claim]]]
    full: Scale
    quick: Scale
    plain: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    timed: frozenset[str] = frozenset()

    def chosen(self, figures: Iterable[str | int] | None) -> list[str]:
        """The names of figures, each once; all of them if none are given.

        Raises:
            StreamshedError: if a figure is not among those that can be run.
        """
        return list(dict.fromkeys(_figure(name, self.figures) for name in figures or self.figures))

    def record(
        self,
        figure: str,
        out: Path,
        quick: bool = False,
        progress: Progress | None = None,
        again: bool = False,
    ) -> Record:
        """Run a figure and write its record, or read the record of an equal run.

        Args:
            figure: one of `figures`.
            out: the folder for runs and the record.
            quick: whether fewer seeds and settings are enough.
            progress: is told, line by line, what is being done.
            again: whether to run although there is a record.
        """
        if not again and (kept := self.kept(figure, out, quick)) is not None:
            return kept
        scale, make = self.quick if quick else self.full, self.figures[figure]
        told = asdict(scale) if is_dataclass(scale) and not isinstance(scale, type) else {}
        report = Report(out, progress or (lambda line: None))
        measured = commit()  # sources may change while it runs
        begin, worked = time.perf_counter(), time.process_time()
        claims = make(scale, report)
        seconds, processor = time.perf_counter() - begin, time.process_time() - worked
        record = {
            "figure": figure,
            "about": (make.__doc__ or "").partition("\n")[0],
            "quick": quick,
            "digest": self._digest(figure, quick),
            "commit": measured,
            "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "seconds": round(seconds, 1),
            "processor": round(processor, 1),
            "machine": machine(),
            "busy": figure in self.timed and processor < ALONE * seconds,
            "scale": told,
            "claims": [claim.to_json() for claim in claims],
            "charts": [asdict(chart) for chart in report.charts],
        }
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"figure_{figure}.json"
        path.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
        return json.loads(json.dumps(record))  # type: ignore[no-any-return]

    def kept(self, figure: str, out: Path, quick: bool = False) -> Record | None:
        """The record of an equal run in a folder, if there is one."""
        path = out / f"figure_{figure}.json"
        if not path.exists():
            return None
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        return record if record["digest"] == self._digest(figure, quick) else None

    def _digest(self, figure: str, quick: bool) -> str:
        """A digest of all that a figure depends on."""
        scale = self.quick if quick else self.full
        made_by = sources_digest(Path(inspect.getfile(self.figures[figure])).parent)
        return hashlib.sha256(f"{made_by} {figure} {scale!r}".encode()).hexdigest()

    def run(
        self,
        out: Path,
        quick: bool = False,
        figures: Iterable[str | int] | None = None,
        progress: Progress | None = None,
        again: bool = False,
    ) -> list[Claim]:
        """Run figures, or all of them, and return the claims."""
        records = [self.record(name, out, quick, progress, again) for name in self.chosen(figures)]
        return [Claim.from_json(claim) for record in records for claim in record["claims"]]


def _figure(figure: str | int, figures: Iterable[str]) -> str:
    name = str(figure)
    name = name if name in figures else name.removesuffix("a").removesuffix("b")
    if name not in figures:
        raise StreamshedError(f"no figure {figure!r} to reproduce; there are {listed(figures)}")
    return name


ALONE = 0.9
"""The part of the time that a figure has the processor at least, if nothing runs beside it."""
MEASURED = ("engine", "kernels", "policies", "plan")
"""Folders of the product that decide what a join makes, and how fast."""
MEASURING = ("baselines", "network", "offline", "workloads")
"""Folders of the laboratory that all papers share."""


@cache
def sources_digest(paper: Path) -> str:
    """A digest of all that a measurement depends on.

    Args:
        paper: the folder of its experiments.
    """
    product, laboratory = Path(streamshed.__file__).parent, Path(__file__).parents[1]
    folders = [product / name for name in MEASURED]
    folders += [laboratory / name for name in MEASURING]
    paths = [path for folder in folders for path in folder.glob("**/*.py")]
    found = hashlib.sha256()
    for path in sorted([*paths, *paper.glob("*.py")]):
        found.update(path.read_bytes())
    return found.hexdigest()


@cache
def commit() -> str:
    """The commit that is measured, with a + if there are changes to it; the version if unknown."""
    here = Path(streamshed.__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=10", "HEAD") + "+" * bool(git("status", "--short", "."))
    except (OSError, subprocess.CalledProcessError):
        return f"version {streamshed.__version__}"


def machine() -> str:
    """The machine and what runs on it, in a line."""
    import numba
    import numpy as np

    return (
        f"{os.cpu_count()} × {platform.machine()}, Python {platform.python_version()}, numba"
        f" {numba.__version__}, NumPy {np.__version__}, Arrow {pa.__version__}"
    )


def _named(column: str, value: object) -> str:
    """What a line is called: a number says what of."""
    number = isinstance(value, int | float)
    return f"{column.replace('_', ' ')} {_shown(value)}" if number else str(value)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
