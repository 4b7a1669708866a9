"""The commands `run` and `schema`."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamshed.cli.app import app
from streamshed.cli.archives import named_values
from streamshed.terminal import print_ledger

if TYPE_CHECKING:
    from streamshed.jobs import Job

SETTINGS = typer.Option(
    "--set", metavar="NAME=VALUE", help="A setting of Spark beyond those of the file."
)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the job and print its plan; run nothing.")
    ] = False,
    page: Annotated[
        int | None,
        typer.Option(help="Serve a live page of the job on this port.", min=0, max=65535),
    ] = None,
    host: Annotated[str, typer.Option(help="The address of the page.")] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(help="The token that the page requires.", envvar="STREAMSHED_TOKEN"),
    ] = None,
    settings: Annotated[list[str] | None, SETTINGS] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the ledger as JSON.")] = False,
) -> None:
    """Run the job that a file describes (sources, a join and a sink) on Spark.

    SIGTERM or Ctrl-C stops it after the current batch, a second signal at once. When you start it
    again, it continues from its checkpoint.
    """
    from streamshed.jobs import Job

    beyond = named_values(settings or (), "a setting", "spark.executor.memory=4g")
    job = Job.load(file)
    if dry_run:
        typer.echo(job.hide(job.explain()))
        return
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    _run(job, beyond, page, host, token, json)


def _run(
    job: Job, settings: dict[str, str], page: int | None, host: str, token: str | None, json: bool
) -> None:
    from streamshed.jobs.stopping import wait

    session = job.session(**settings)
    from streamshed.spark import LedgerListener, ledgers

    try:
        session.streams.addListener(LedgerListener())  # it warns of late rows
        query = job.start(session)
        shown = None
        if page is not None:
            shown = importlib.import_module("streamshed.page").serve(query, page, host, token)
            # A token that was drawn is told here alone; one that was given is known, and a secret.
            at = shown.url if token is None else shown.url.partition("?")[0]
            typer.echo(f"live page: {at}", err=True)
        try:
            wait(query)
        finally:
            if shown is not None:
                shown.close()
        for ledger in ledgers(query).values():
            print_ledger(ledger, json)
    finally:
        session.stop()


@app.command()
def schema() -> None:
    """Print the JSON schema of job files, with which editors complete and check them."""
    from streamshed.jobs.schema import schema_text

    typer.echo(schema_text(), nl=False)
