"""The application to which each module of this package adds its commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from streamshed import __version__
from streamshed.errors import StreamshedError

ERROR = 2
"""The exit code of errors that the user can mend, as of wrong options."""


class _Commands(TyperGroup):
    """Prints errors of Streamshed as one line each, without a traceback."""

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
    help="Join many event streams within windows and a budget, and report what the budget cost.",
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
