"""Which columns results are to have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamshed.arguments import Names, PerStream
from streamshed.errors import SpecError, listed, suggestion

MEMBERS = "members"
"""The column of the result that holds the members where a column names the streams."""
TIME = "time"
"""The column of the result that holds the time of completion."""

KEY, UPDATE, EXTENDS = "key", "update", "extends"
BESIDES = (KEY, UPDATE, EXTENDS)
"""The columns of the result that there are besides, where a column names the streams."""

_METHOD = ".select()"
_ALL = "*"


@dataclass(frozen=True, slots=True)
class Selection:
    """For each stream of which anything was chosen its columns, in the order that was said.

    Example:
        >>> chosen = Selection.of(("b.y", "a.x", "b.x"), Names(("a", "b", "c"), None))
        >>> chosen.said()
        ('a.x', 'b.y', 'b.x')
        >>> chosen.columns_for("b", ["k", "x", "y"]), chosen.columns_for("c", ["k"])
        (('y', 'x'), ())
    """

    columns: PerStream[tuple[str, ...]]

    @classmethod
    def of(cls, said: tuple[object, ...], names: Names) -> Selection:
        """Read the arguments of `.select`.

        Args:
            said: What was chosen: columns as `stream.column`, whole streams, or `time`.
            names: The streams of the join.
        """
        if not said:
            raise SpecError(
                f"{_METHOD}: nothing was chosen; name columns, as in .select('a.x', 'b.y'), or "
                ".select('time') for the time of completion alone"
            )
        streams = names.streams or (MEMBERS, *BESIDES)
        # In the order of the streams, so that selections that mean the same are equal.
        columns: dict[str, list[str]] = {stream: [] for stream in (*streams, TIME)}
        for path in said:
            stream, column = _read(path, names)
            _check_new(stream, column, columns[stream])
            columns[stream].append(column)
        named = [(stream, tuple(columns[stream])) for stream in streams if columns[stream]]
        return cls(PerStream(named=tuple(named)))

    def columns_for(self, stream: str, known: Sequence[str]) -> tuple[str, ...]:
        """What was chosen of a stream that has the known columns."""
        chosen = self.columns.get(stream) or ()
        return tuple(known) if chosen == (_ALL,) else chosen

    def besides(self) -> tuple[str, ...]:
        """Those of `BESIDES` that were chosen."""
        return tuple(name for name in BESIDES if self.columns.get(name))

    def said(self) -> tuple[str, ...]:
        """The selection as a caller would give it."""
        paths = [
            stream if column == _ALL else f"{stream}.{column}"
            for stream, columns in self.columns.named
            for column in columns
        ]
        return tuple(paths) or (TIME,)


def _read(path: object, names: Names) -> tuple[str, str]:
    """The stream and the column of a path, as a selection has them."""
    if path == TIME or (names.by is not None and path in BESIDES):
        return str(path), _ALL
    stream, column = read_path(path, names, _METHOD)
    return stream, _ALL if column is None else column


def read_path(path: object, names: Names, method: str) -> tuple[str, str | None]:
    """The stream and the column of a path such as `"clicks.price"`; None for the whole stream.

    The path is cut at the first dot before which it names a stream.

    Args:
        path: What the caller gave.
        names: The streams of the join.
        method: The method called, as it shall stand in a message.
    """
    if not isinstance(path, str):
        raise SpecError(
            f"{method}: {path!r} is no column of the results; give strings, as in 'a.x'"
        )
    streams = names.streams or (MEMBERS,)
    cuts = [place for place, letter in enumerate(path) if letter == "."]
    for cut in [*cuts, len(path)]:
        if path[:cut] in streams:
            if cut == len(path):
                return path, None
            if not path[cut + 1 :]:
                raise SpecError(
                    f"{method}: {path!r} names no column of {path[:cut]!r}; write {path[:cut]!r} "
                    "for all of them"
                )
            return path[:cut], path[cut + 1 :]
    if names.by is not None:
        raise SpecError(
            f"{method}: {path!r} is no column of the results; the members of streams named by the "
            f"column {names.by!r} are in {MEMBERS!r}: write '{MEMBERS}.{path}'"
        )
    stream = path.partition(".")[0]
    raise SpecError(
        f"{method}: there is no stream {stream!r} in {path!r}; the streams are {listed(streams)}, "
        f"and a column is named after its stream, as in '{streams[0]}.x'."
        f"{suggestion(stream, streams)}"
    )


def _check_new(stream: str, column: str, chosen: Sequence[str]) -> None:
    if column in chosen:
        what = f"{stream!r}" if column == _ALL else f"the column {column!r} of {stream!r}"
        raise SpecError(f"{_METHOD}: {what} was named twice; name it once")
    if chosen and _ALL in (column, *chosen):
        other = column if column != _ALL else chosen[0]
        raise SpecError(
            f"{_METHOD}: all columns of {stream!r} are chosen, and its column {other!r} besides; "
            "choose either"
        )
