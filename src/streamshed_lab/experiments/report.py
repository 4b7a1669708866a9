"""What every experiment hands in: tidy tables, charts, and a verdict on each claim of its paper.

An experiment is data: runs (one row each: what was set, what was measured), a summary of them over
seeds, and claims. Files are named after what made them, so that a table found alone explains
itself.
"""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from streamshed.errors import StreamshedError, listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
Progress = Callable[[str], None]
Scale = TypeVar("Scale")


@dataclass(frozen=True)
class Claim:
    """A statement, mostly of a paper, and what became of it here.

    Attributes:
        figure: where the paper makes it, or of what it is said.
        paper_says: the statement.
        measured: what was measured here, in numbers.
        holds: whether it holds in every setting that was tried.
        why: the explanation, where one is needed.
        holds_for: settings in which it holds, if it was tried in several.
        fails_for: settings in which it does not.
    """

    figure: str
    paper_says: str
    measured: str
    holds: bool
    why: str = ""
    holds_for: tuple[str, ...] = ()
    fails_for: tuple[str, ...] = ()


def judge(
    figure: str, paper_says: str, measured: str, settings: Mapping[str, bool], why: str = ""
) -> Claim:
    """Make a claim of what was found in each of several settings: it holds if it holds in all.

    Examples:
        >>> claim = judge("5", "A beats B", "A 3, B 2", {"near": True, "far": False})
        >>> claim.holds, claim.holds_for, claim.fails_for
        (False, ('near',), ('far',))
    """
    return Claim(
        figure,
        paper_says,
        measured,
        all(settings.values()),
        why,
        tuple(name for name, holds in settings.items() if holds),
        tuple(name for name, holds in settings.items() if not holds),
    )


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
class Report:
    """A folder that an experiment fills.

    Attributes:
        out: the folder; it is made when first needed.
        title: of the verdict.
        progress: is told, in a line, what was done.
    """

    out: Path
    title: str
    progress: Progress = lambda line: None

    def runs(self, name: str, rows: Sequence[Row]) -> Path:
        """Write all runs as Parquet, and return the path."""
        path = self._path(f"{name}_runs.parquet")
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
        return path

    def summary(self, name: str, rows: Sequence[Row]) -> Path:
        """Write a summary as CSV, and return the path."""
        path = self._path(f"{name}_summary.csv")
        pa.csv.write_csv(pa.Table.from_pylist(list(rows)), path)
        return path

    def chart(
        self,
        name: str,
        rows: Sequence[Row],
        x: str,
        y: str,
        lines: str,
        panels: Sequence[str] = (),
        *,
        y_label: str | None = None,
        log: bool = False,
    ) -> Path:
        """Draw small multiples of line charts as PNG, and return the path.

        Args:
            name: of the file, without its ending.
            rows: a summary.
            x: the column along the bottom.
            y: the measured column: its mean is drawn, its deviation as error bars.
            lines: the column that tells lines apart.
            panels: the columns that tell panels apart.
            y_label: what y is, if its name does not say it.
            log: whether y is logarithmic.
        """
        figure = _new_figure()
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            groups.setdefault(tuple(row[panel] for panel in panels), []).append(row)
        styles = {line: number for number, line in enumerate(dict.fromkeys(r[lines] for r in rows))}
        columns = min(4, len(groups))
        height = -(-len(groups) // columns)
        figure.set_size_inches(3.4 * columns + 1.2, 2.9 * height)
        axes = figure.subplots(height, columns, squeeze=False).ravel()
        for axis, (values, group) in zip(axes, groups.items(), strict=False):
            _draw_lines(axis, group, x, y, lines, styles)
            pairs = zip(panels, values, strict=True)
            axis.set_title(", ".join(f"{name} {_shown(value)}" for name, value in pairs), size=8)
            axis.set_xlabel(x, size=8)
            axis.tick_params(labelsize=7)
            if log:
                axis.set_yscale("symlog", linthresh=1)
            else:
                axis.set_ylim(bottom=0)
        for axis in axes[len(groups) :]:
            axis.set_axis_off()
        axes[0].set_ylabel(y_label or y, size=8)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
        path = self._path(f"{name}.png")
        figure.savefig(path, dpi=130)
        return path

    def verdict(self, claims: Sequence[Claim], name: str = "verdict") -> Path:
        """Write the claims as Markdown and JSON, and return the path of the Markdown."""
        environment = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "arrow": pa.__version__,
        }
        content = {
            "title": self.title,
            "environment": environment,
            "claims": [asdict(claim) for claim in claims],
        }
        self._path(f"{name}.json").write_text(
            json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        return self.page(name, verdict_markdown(self.title, claims))

    def page(self, name: str, text: str) -> Path:
        """Write a page of Markdown, and return the path."""
        path = self._path(f"{name}.md")
        path.write_text(text, encoding="utf-8")
        return path

    def _path(self, name: str) -> Path:
        self.out.mkdir(parents=True, exist_ok=True)
        self.progress(f"writing {name}")
        return self.out / name


@dataclass
class Paper(Generic[Scale]):
    """The experiments of a paper.

    Attributes:
        title: of the paper.
        figures: by name what makes each; the parts of a figure, such as 9a and 9b, are made as one.
        full: how much of everything to run.
        quick: the same with fewer seeds and settings, in a minute or two.
    """

    title: str
    figures: Mapping[str, Callable[[Scale, Report], list[Claim]]]
    full: Scale
    quick: Scale

    def run(
        self,
        out: Path,
        quick: bool = False,
        figures: Iterable[str | int] | None = None,
        progress: Progress | None = None,
    ) -> list[Claim]:
        """Run the experiments, write tables, charts and a verdict, and return the claims.

        Args:
            out: the folder to fill.
            quick: whether fewer seeds and settings are enough.
            figures: which of them to run; all of them if not given.
            progress: is told, line by line, what is being done.

        Raises:
            StreamshedError: if a figure is not among those that can be run.
        """
        report = Report(Path(out), self.title, progress or (lambda line: None))
        chosen = self.figures if figures is None else figures
        names = list(dict.fromkeys(_figure(figure, self.figures) for figure in chosen))
        claims = []
        for name in names:
            report.progress(f"figure {name}" if name.isdigit() else name)
            claims += self.figures[name](self.quick if quick else self.full, report)
        partial = "" if figures is None else "_" + "_".join(names)
        report.verdict(claims, f"verdict{partial}")
        return claims


def _figure(figure: str | int, figures: Iterable[str]) -> str:
    name = str(figure).removesuffix("a").removesuffix("b")
    if name not in figures:
        raise StreamshedError(f"no figure {figure!r} to reproduce; there are {listed(figures)}")
    return name


def verdict_markdown(title: str, claims: Sequence[Claim]) -> str:
    """Say which claims hold: a table, then what was measured for each, and why.

    Examples:
        >>> text = verdict_markdown("A paper", [Claim("5", "A beats B", "A 3, B 4", False)])
        >>> print(text.splitlines()[2])
        0 of 1 claims hold in every setting tried.
    """
    held = sum(claim.holds for claim in claims)
    parts = [f"# {title}", "", f"{held} of {len(claims)} claims hold in every setting tried.", ""]
    parts += ["| figure | claim | holds |", "|---|---|---|"]
    parts += [f"| {c.figure} | {_cell(c.paper_says)} | {_outcome(c)} |" for c in claims]
    measured = None
    for claim in claims:
        parts += [
            "",
            f"## {_place(claim.figure)}: {claim.paper_says}",
            "",
            f"**{_outcome(claim)}.**",
        ]
        parts += ["", "Measured as above." if claim.measured == measured else claim.measured]
        measured = claim.measured
        if claim.holds_for and claim.fails_for:
            parts += ["", f"- Holds for: {'; '.join(claim.holds_for)}."]
            parts += [f"- Fails for: {'; '.join(claim.fails_for)}."]
        if claim.why:
            parts += ["", claim.why]
    return "\n".join(parts) + "\n"


def _place(figure: str) -> str:
    """Where a claim is made: a number is that of a figure."""
    return f"Figure {figure}" if figure[0].isdigit() else figure.capitalize()


def _outcome(claim: Claim) -> str:
    tried = len(claim.holds_for) + len(claim.fails_for)
    if claim.holds:
        return "holds"
    return f"holds in {len(claim.holds_for)} of {tried} settings" if claim.holds_for else "fails"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _new_figure() -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StreamshedError("charts need matplotlib: install streamshed[lab]") from error
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_lines(
    axis: Axes, rows: Sequence[Row], x: str, y: str, lines: str, styles: Mapping[Any, int]
) -> None:
    """Draw each line in the style that it has in every panel."""
    for line, style in styles.items():
        points = sorted((row for row in rows if row[lines] == line), key=lambda row: row[x])
        axis.errorbar(
            [point[x] for point in points],
            [point[f"{y}_mean"] for point in points],
            yerr=[point[f"{y}_deviation"] for point in points],
            label=_shown(line),
            color=f"C{style}",
            marker="os^Dvx*"[style % 7],
            markersize=3,
            linewidth=1,
            capsize=2,
        )


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
