"""The command line, a module for each command.

Arrow and the compiler are imported by the commands that need them: help comes at once. Other
packages add commands by entry points of the group `streamshed.commands`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from streamshed.cli import (  # noqa: F401 - they add their commands
    demo,
    doctor,
    inspect,
    replay,
    run,
    savepoint,
    tune,
)
from streamshed.cli.app import app
from streamshed.errors import StreamshedError

PLUGINS = "streamshed.commands"
"""The group of entry points that name the commands of other packages."""


def main() -> None:
    """Run the command line."""
    app()


def _add(entry: EntryPoint) -> None:
    """Add the command of an entry point; if it cannot be loaded, it says so when it is used."""
    try:
        app.command(entry.name)(entry.load())
    except ImportError as error:
        reason = f"the command {entry.name!r} is not installed ({error})"

        def unavailable() -> None:
            raise StreamshedError(f"{reason}; get it with pip install 'streamshed[lab]'")

        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(entry.name, context_settings=anything, hidden=True)(unavailable)


for _entry in sorted(entry_points(group=PLUGINS), key=lambda entry: entry.name):
    _add(_entry)
