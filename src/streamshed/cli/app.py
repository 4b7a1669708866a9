"""The application to which each module of this package adds its commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from streamshed import __version__
from streamshed.errors import StreamshedError

ERROR = 2
"""The exit code of what Streamshed refuses to do, as of wrong options."""


class _Commands(TyperGroup):
    """Says what Streamshed refuses, a line for each thing, without the way there."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except StreamshedError as error:
            for line in getattr(error, "problems", [str(error)]):
                typer.echo(f"error: {' '.join(line.split())}", err=True)
            raise typer.Exit(ERROR) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Window joins of many event streams that shed what they cannot hold, and say so.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streamshed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Options of the command line as a whole."""
