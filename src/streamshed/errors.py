"""The errors that Streamshed raises, by what the user has to change.

Every message names the stream, the column and the value as far as they are known, and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable


class StreamshedError(ValueError):
    """The base of all errors that Streamshed raises on purpose.

    Example:
        >>> from streamshed import StreamshedError, join
        >>> try:
        ...     join("clicks", "clicks")
        ... except StreamshedError as error:
        ...     print(error)
        join(): the stream 'clicks' was named twice; give every stream its own name
    """


class SpecError(StreamshedError):
    """The join is invalid: change the join."""


class InputError(StreamshedError):
    """The data does not fit the join: change the data, or name other columns."""


class StateError(StreamshedError):
    """A snapshot does not fit the join: start without it, or use the join that made it."""


class SpillError(StreamshedError):
    """Rows cannot be spilled to disk: free space there, or name another folder."""


def listed(names: Iterable[str]) -> str:
    """The names as they stand in a message.

    Example:
        >>> listed(["a", "b"])
        "'a', 'b'"
        >>> listed([])
        'none'
    """
    return ", ".join(repr(name) for name in names) or "none"


def suggestion(name: object, known: Iterable[str]) -> str:
    """A question naming the closest of the known names, or nothing if none is close.

    Example:
        >>> suggestion("clik", ["clicks", "orders"])
        " Did you mean 'clicks'?"
        >>> suggestion("x", ["clicks"])
        ''
    """
    # Only needed once something went wrong, so the import waits until then.
    from difflib import get_close_matches

    close = get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
