"""The command `savepoint`."""

from __future__ import annotations

from typing import Annotated

import typer

from streamshed.cli.app import app
from streamshed.cli.archives import check_checkpoint
from streamshed.terminal import spark_session


@app.command()
def savepoint(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint of a stopped query.")],
    to: Annotated[str, typer.Argument(help="The folder to write to: a path, or a URI.")],
    operator: Annotated[
        int | None,
        typer.Option(help="The number of the join's stateful operator, if the query has several."),
    ] = None,
) -> None:
    """Write the stored rows of a stopped query to a folder, to continue with other shards.

    joined.stream(…, resume=TO) starts a query that begins with these rows. It needs a new
    checkpoint, and sources that begin where those of the old query stopped: see savepoint.json.
    """
    check_checkpoint(checkpoint)
    with spark_session("savepoint") as session:
        from streamshed.spark.savepoint import write_savepoint

        held = write_savepoint(session, checkpoint, to, operator)
    typer.echo(f"{sum(held.rows.values()):,} rows of {held.shards} shards in {to}")
