"""The command `tune`."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamshed.cli.app import app
from streamshed.cli.replay import named_values
from streamshed.errors import SpecError

if TYPE_CHECKING:
    from streamshed.jobs import Job


@app.command()
def tune(
    file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")],
    streams: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=PATH…]",
            help="The archive: Parquet files, folders or patterns; those of the job by default.",
        ),
    ] = None,
    recall: Annotated[float, typer.Option(help="The part of all results that is wanted.")] = 0.95,
    policy: Annotated[
        list[str] | None, typer.Option(help="A policy to try; several times for more.")
    ] = None,
    budget: Annotated[
        list[int] | None, typer.Option(help="Rows to keep, to try; several times for more.", min=1)
    ] = None,
    sample: Annotated[
        float | None, typer.Option(help="The part of all keys to try them on.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Draw a chart into this HTML file.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write the job with what is recommended to this file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Try policies and budgets on an archive, and recommend one for a wanted recall.

    Every policy runs with every budget, side by side on all cores, and its results are compared
    with those of the join without a budget.

    For example: streamshed tune job.toml --recall 0.9 --html recall.html --write tuned.toml
    """
    from streamshed.jobs import Job
    from streamshed.jobs.rewriting import rewrite_file

    job = Job.load(file)
    archive = named_values(streams or (), "a stream", "clicks=archive/clicks") or _archive(job)
    given = archive if "by" not in job.mapping()["join"] else next(iter(archive.values()))
    found = job.joined.tune(
        given, recall=recall, policies=policy or None, budgets=budget or None, sample=sample
    )
    if json:
        best = None if found.best is None else [found.best.policy, found.best.rows]
        cells = found.to_table().to_pylist()
        typer.echo(json_.dumps({"best": best, "rows": found.rows, "cells": cells}))
    else:
        typer.echo(str(found))
    if html is not None:
        found.save(html)
    if write is not None:
        rows = found.rows if found.best is None else found.best.rows
        name = None if found.best is None else found.best.policy
        rewrite_file(file, write, found.join, rows, name)
        typer.echo(f"written: {write}", err=True)


def _archive(job: Job) -> dict[str, str]:
    """The files that the sources of a job read."""
    for stream, source in job.sources.items():
        if source["format"] != "parquet" or "path" not in source or "columns" in source:
            raise SpecError(
                f"the source {stream!r} is not a folder of Parquet files as they are; name an "
                f"archive of the streams, as in streamshed tune job.toml {stream}=archive/{stream}"
            )
    return {stream: source["path"] for stream, source in job.sources.items()}
