"""The command `inspect`."""

from __future__ import annotations

import json as json_
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from streamshed.cli.app import app
from streamshed.cli.archives import check_checkpoint
from streamshed.terminal import spark_session

if TYPE_CHECKING:
    from streamshed.spark.inspection import Inspection


@app.command()
def inspect(
    checkpoint: Annotated[str, typer.Argument(help="The folder of the checkpoint.")],
    budget: Annotated[
        int | None, typer.Option(help="Also report how many rows this budget would evict.", min=1)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a running or stopped job stores, from its checkpoint.

    Prints rows, bytes and the oldest row by stream and shard, the heaviest keys by hash, and the
    ledger. It never prints the contents of rows.
    """
    check_checkpoint(checkpoint)
    with spark_session("inspect") as spark:
        from streamshed.spark.inspection import inspect as look

        spark.conf.set("spark.sql.shuffle.partitions", "4")
        found = look(spark, checkpoint)
    if json:
        told = [one.to_dict() for one in found]
        if budget is not None:
            told = [
                {**plain, "evicted": one.evicted_by(budget)}
                for plain, one in zip(told, found, strict=True)
            ]
        typer.echo(json_.dumps(told))
        return
    for one in found:
        typer.echo(str(one))
        if budget is not None:
            typer.echo("\n".join(_under(one, budget)))


def _under(found: Inspection, budget: int) -> Iterator[str]:
    """What another budget would change."""
    evicted = found.evicted_by(budget)
    yield (
        f"under a budget of {budget:,} rows {sum(evicted.values()):,} of the {found.rows:,} rows "
        "would be evicted with the next batch"
    )
    if len(evicted) > 1:
        for shard, rows in evicted.items():
            yield f"  shard {shard}: {rows:,}"
