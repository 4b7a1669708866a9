"""The commands that the laboratory adds to the command line, by entry points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import progress
from rich.console import Console
from rich.table import Table

from streamshed.errors import StreamshedError, listed, suggestion
from streamshed.terminal import prepare_spark, print_table
from streamshed_lab.bench import BENCHMARKS, shown
from streamshed_lab.bench import run as run_benchmark
from streamshed_lab.bench.page import header_of
from streamshed_lab.modules import PAPERS, lab_module


def reproduce(
    paper: Annotated[
        str | None, typer.Argument(help=f"One of: {', '.join(PAPERS)}. Default: all papers.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for runs, verdicts and the report.")] = Path(
        "results"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer seeds and settings.")] = False,
    figure: Annotated[
        list[str] | None,
        typer.Option(help="A figure or family to run. Repeat it for several."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run figures again even if the folder has them.")
    ] = False,
    stored: Annotated[
        bool,
        typer.Option("--stored", help="Run nothing; print the stored verdicts."),
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many figures to run at a time. Default: one per processor. Figures that "
            "measure times run alone, after the others.",
        ),
    ] = None,
) -> None:
    """Run the experiments of the papers, check their claims, and write a report.

    A run that was stopped continues where it was. The report, report.html, shows all figures in the
    folder and needs no network.
    """
    page = lab_module("streamshed_lab.experiments.page")
    if stored:
        typer.echo(page.verdicts_markdown(page.stored_verdicts()), nl=False)
        return
    if paper is not None and paper not in PAPERS:
        raise StreamshedError(
            f"there are no experiments of {paper!r}; there are those of {listed(PAPERS)}."
            f"{suggestion(paper, PAPERS)}"
        )
    if figure and paper is None:
        raise StreamshedError("--figure needs the paper; as in: reproduce existence --figure 5")
    papers = {name: lab_module(module).PAPER for name, module in PAPERS.items()}
    side_by_side = lab_module("streamshed_lab.experiments.side_by_side")
    tasks = [
        side_by_side.Task(name, PAPERS[name], one)
        for name in ([paper] if paper else [n for n in PAPERS if n != "policies"])
        for one in papers[name].chosen(figure)
    ]
    table = Table("paper", "figure", "claim", "here")
    way = side_by_side.Way(out, quick, again)
    with counting(len(tasks)) as step:
        made = side_by_side.make_figures(tasks, way, step, processes)
    for task, record in zip(tasks, made, strict=True):
        for claim in record["claims"]:
            table.add_row(task.paper, claim["figure"], claim["says"], claim["outcome"])
    records = page.read_records(out, papers)
    page.write_verdicts(out / "verdicts.json", page.verdicts(records, papers))
    report = page.write_page(out / "report.html", records, papers)
    tallies = page.tallies(records, papers)
    lines = [f"{name}: {told}" for name, told in tallies.items() if paper in (None, name)]
    print_table(table, *lines, f"The report is {report}")


Step = tuple[Callable[[], None], Callable[[str], None]]


@contextmanager
def counting(steps: int) -> Iterator[Callable[[str], Step]]:
    """Give a function that begins a step, and returns how to end it and how to tell of it.

    On a terminal there is a bar with the time that is left; elsewhere lines.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        numbers = iter(range(1, steps + 1))

        def lines(name: str) -> Step:
            typer.echo(f"[{next(numbers)}/{steps}] {name}", err=True)
            return lambda: None, lambda line: typer.echo(f"  {name}: {line}", err=True)

        yield lines
        return
    with progress.Progress(
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}"),
        console=console,
    ) as bar:
        task = bar.add_task("", total=steps)

        def shown(name: str) -> Step:
            bar.update(task, description=name)
            return lambda: bar.advance(task), lambda line: bar.update(
                task, description=f"{name}: {line}"
            )

        yield shown


def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(BENCHMARKS)}.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, as it is measured.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use fewer rows and repetitions: under a minute.")
    ] = False,
    flame: Annotated[
        Path | None,
        typer.Option(help="Measure nothing; write a flame graph of a loop to this SVG file."),
    ] = None,
    loop: Annotated[
        str | None, typer.Option(help="With --flame: the loop, as in: --loop density.")
    ] = None,
) -> None:
    """Measure speed, memory or results kept, and compare them with their targets."""
    if loop is not None and flame is None:
        raise StreamshedError(f"--loop {loop} needs a file for its flame graph; give --flame FILE")
    if flame is not None:
        with _telling() as tell:
            tell("compiling the loop with counters, which takes a minute or two")
            drawn = lab_module("streamshed_lab.bench.flame").flame_graph(name, loop)
            flame.write_text(drawn)
        typer.echo(f"The flame graph is {flame}")
        return
    if name == "scale":
        prepare_spark()

    table = Table("what")
    table.add_column("measured", justify="right")
    for head in ("unit", "bar", "holds"):
        table.add_column(head)
    with _telling() as tell:
        measurements = run_benchmark(name, quick, tell)
        if as_json:
            typer.echo(header_of(name, quick).to_json())
        for measured in measurements:
            if as_json:
                typer.echo(measured.to_json())
            holds = {None: "", True: "yes", False: "no"}[measured.holds]
            where = f" (worst: {measured.cell})" if measured.cell is not None else ""
            table.add_row(
                measured.name + where, shown(measured.value), measured.unit, measured.wanted, holds
            )
    if not as_json:
        print_table(table)


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """Give a function that shows progress: on a terminal a line that changes, else line by line."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    with console.status("starting") as status:
        yield status.update
