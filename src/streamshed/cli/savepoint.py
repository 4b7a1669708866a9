"""The command `savepoint`."""

from __future__ import annotations

from typing import Annotated

import typer

from streamshed.cli.app import app
from streamshed.terminal import spark_session


@app.command()
def savepoint(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint of a query that is stopped.")],
    to: Annotated[str, typer.Argument(help="The folder to write to: a path, or a URI.")],
    operator: Annotated[
        int | None,
        typer.Option(help="Which stateful operator is the join, if the query has several."),
    ] = None,
) -> None:
    """Write the rows that a stopped query holds to a folder, to go on with other shards.

    joined.stream(…, resume=TO) starts a query that begins with them. It needs a checkpoint of its
    own, and sources that begin where those of the old one stood: savepoint.json says where.
    """
    with spark_session("savepoint") as session:
        from streamshed.spark.savepoint import write_savepoint

        held = write_savepoint(session, checkpoint, to, operator)
    typer.echo(f"{sum(held.rows.values()):,} rows of {held.shards} shards in {to}")
