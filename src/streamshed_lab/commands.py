"""The commands that the laboratory adds to the command line, by entry points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from streamshed.errors import StreamshedError, listed, suggestion
from streamshed.terminal import prepare_spark, print_table, telling
from streamshed_lab.bench import run as run_benchmark
from streamshed_lab.bench import shown
from streamshed_lab.modules import lab_module

PAPERS = {
    "existence": "streamshed_lab.experiments.existence",
    "grubjoin": "streamshed_lab.experiments.grubjoin",
    "msketch": "streamshed_lab.experiments.msketch",
    "policies": "streamshed_lab.experiments.policies",
    "snjoin": "streamshed_lab.experiments.snjoin",
    "star": "streamshed_lab.experiments.star",
}


def reproduce(
    paper: Annotated[str, typer.Argument(help=f"One of: {', '.join(PAPERS)}.")],
    out: Annotated[
        Path | None, typer.Option(help="A folder for tables and charts; results/PAPER if not said.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds and settings.")] = False,
    figure: Annotated[
        list[str] | None,
        typer.Option(help="A figure, or family, to run; may be given several times."),
    ] = None,
) -> None:
    """Run the experiments of a paper, or all policies on all workloads; say which claims hold."""
    if paper not in PAPERS:
        raise StreamshedError(
            f"there are no experiments of {paper!r}; there are those of {listed(PAPERS)}."
            f"{suggestion(paper, PAPERS)}"
        )
    folder = out or Path("results") / paper
    with telling() as tell:
        run = lab_module(PAPERS[paper]).run
        claims = run(folder, quick=quick, figures=figure or None, progress=tell)
    table = Table("figure", "claim", "holds")
    for claim in claims:
        table.add_row(claim.figure, claim.paper_says, _outcome(claim))
    held = sum(claim.holds for claim in claims)
    print_table(table, f"{held} of {len(claims)} claims hold in every setting tried; see {folder}")


def _outcome(claim: Any) -> str:
    if claim.holds or not claim.holds_for:
        return "yes" if claim.holds else "no"
    return f"in {len(claim.holds_for)} of {len(claim.holds_for) + len(claim.fails_for)} settings"


def bench(
    name: Annotated[
        str, typer.Argument(help="Which: graph, keyed, nested, policies, snjoin, spark or star.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, as they are measured.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Measure less.")] = False,
) -> None:
    """Measure speed, memory and results kept, beside the bars that are to be reached."""
    if name == "spark":
        prepare_spark()

    table = Table("what")
    table.add_column("measured", justify="right")
    for head in ("unit", "bar", "holds"):
        table.add_column(head)
    with telling() as tell:
        for measured in run_benchmark(name, quick, tell):
            if as_json:
                typer.echo(measured.to_json())
            holds = {None: "", True: "yes", False: "no"}[measured.holds]
            where = f" (worst: {measured.cell})" if measured.cell is not None else ""
            table.add_row(
                measured.name + where, shown(measured.value), measured.unit, measured.wanted, holds
            )
    if not as_json:
        print_table(table)
