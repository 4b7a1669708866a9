"""The commands `tune` and `sample`."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from streamshed.cli.app import app
from streamshed.cli.archives import archive_of, check_folders, named_values
from streamshed.cli.run import SETTINGS


@app.command()
def tune(
    file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")],
    streams: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=PATH… | FOLDER]",
            help="The archive: Parquet files, folders or patterns for each stream, or what"
            " streamshed sample has written; the files of the job by default.",
        ),
    ] = None,
    recall: Annotated[float, typer.Option(help="The share of all results that you want.")] = 0.95,
    policy: Annotated[
        list[str] | None, typer.Option(help="A policy to try. Repeat it for several.")
    ] = None,
    budget: Annotated[
        list[int] | None,
        typer.Option(help="A budget in rows to try. Repeat it for several.", min=1),
    ] = None,
    sample: Annotated[
        float | None, typer.Option(help="The share of all keys to run the trials on.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a chart to this HTML file.")] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="Write the job with the recommended policy and budget to this file."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Try policies and budgets on an archive, and recommend the smallest budget for a recall.

    Every policy runs with every budget, on all cores. Recall compares its results with those of the
    join without a budget.

    Example: streamshed tune job.toml --recall 0.9 --html recall.html --write tuned.toml
    """
    from streamshed.jobs import Job
    from streamshed.jobs.rewriting import rewrite_file

    check_folders(html=html, write=write)
    job = Job.load(file)
    given, sampled = archive_of(job, streams or [])
    found = job.joined.tune(
        given,
        recall=recall,
        policies=policy or None,
        budgets=budget or None,
        sample=sample,
        sampled=sampled,
    )
    typer.echo(json_.dumps(found.to_dict()) if json else str(found))
    if html is not None:
        found.save(html)
    if write is not None:
        rows = found.rows if found.best is None else found.best.rows
        name = None if found.best is None else found.best.policy
        rewrite_file(file, write, found.join, rows, name)
        typer.echo(f"written: {write}", err=True)


@app.command("sample")
def sample_(
    file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder for the archive.")],
    keys: Annotated[float, typer.Option(help="The share of all keys to record.")] = 1.0,
    lasting: Annotated[
        str | None,
        typer.Option(
            "--for", help="How long to read, such as '10 minutes'. Default: what is there now."
        ),
    ] = None,
    settings: Annotated[list[str] | None, SETTINGS] = None,
) -> None:
    """Record a sample of a job's streams as an archive for `tune`; the job may keep running.

    Reads the sources with queries of its own, and touches neither the job's checkpoint nor its
    sink.

    Example: streamshed sample job.toml archive --keys 0.1 --for "10 minutes"
    """
    from streamshed.jobs import Job
    from streamshed.jobs.sampling import check, sample

    beyond = named_values(settings or (), "a setting", "spark.executor.memory=4g")
    job = Job.load(file)
    check(job, folder, keys, lasting)
    session = job.session(**beyond)
    try:
        rows = sample(job, folder, session, keys, lasting)
    finally:
        session.stop()
    for stream, number in rows.items():
        typer.echo(f"{stream}: {number:,} rows")
    typer.echo(f"next: streamshed tune {file} {folder}", err=True)
