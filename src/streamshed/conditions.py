"""What makes rows of different streams belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamshed.arguments import Names, PerStream, column_name
from streamshed.errors import SpecError, listed

_METHOD = ".on()"


@dataclass(frozen=True, slots=True)
class SharedKey:
    """One key, of one or more columns, that all members of a result have in common.

    Example:
        >>> SharedKey.of(("k", "l"), {}, Names(("a", "b"), None)).columns_for("b")
        ('k', 'l')
        >>> SharedKey.of((), {"a": "x", "b": "y"}, Names(("a", "b"), None)).columns_for("b")
        ('y',)
    """

    columns: PerStream[tuple[str, ...]]

    @classmethod
    def of(
        cls, shared: tuple[object, ...], by_stream: Mapping[str, object], names: Names
    ) -> SharedKey:
        """Read the arguments of `.on`: names for all streams, or names for each.

        Args:
            shared: The names of the key columns, the same in every stream.
            by_stream: For each stream the name of its key column, or a list of names.
            names: The streams of the join.
        """
        if shared and by_stream:
            raise SpecError(
                f"{_METHOD}: the columns {listed(map(str, shared))} are for all streams, but "
                f"{listed(by_stream)} have their own; say either, as in .on('k') or "
                ".on(a='x', b='y')"
            )
        if by_stream:
            return cls(_read_by_stream(by_stream, names))
        return cls(PerStream(everywhere=_read_shared(shared)))

    def columns_for(self, stream: str) -> tuple[str, ...]:
        """The key columns of a stream, in the order in which they are compared."""
        return self.columns.get(stream) or ()


def _read_shared(shared: tuple[object, ...]) -> tuple[str, ...]:
    if not shared:
        raise SpecError(f"{_METHOD}: no key column was named; name one, as in .on('k')")
    columns = tuple(_key_column(column, f"{_METHOD}: the key column") for column in shared)
    for position, column in enumerate(columns):
        if column in columns[:position]:
            raise SpecError(f"{_METHOD}: the key column {column!r} was named twice; name it once")
    return columns


def _read_by_stream(by_stream: Mapping[str, object], names: Names) -> PerStream[tuple[str, ...]]:
    columns = names.read(by_stream, _METHOD, "key column", _key_columns)
    covered = columns.among(names.streams)
    missing = [stream for stream in names.streams if stream not in covered]
    if missing:
        raise SpecError(
            f"{_METHOD}: no key column was named for {listed(missing)}; name one for every stream"
        )
    (first, expected), *others = columns.named
    for stream, found in others:
        if len(found) != len(expected):
            raise SpecError(
                f"{_METHOD}: stream {first!r} has {len(expected)} key columns "
                f"({listed(expected)}), but stream {stream!r} has {len(found)} "
                f"({listed(found)}); name equally many for every stream"
            )
    return columns


def read_met(by_stream: Mapping[str, object], names: Names) -> PerStream[tuple[str, ...]]:
    """Read the arguments of `.through`: for every stream the columns of the relation it meets."""
    method = ".through()"
    if names.by is not None:
        raise SpecError(
            f"{method}: the streams are told apart by the column {names.by!r}; only streams with "
            "names can be joined through a relation"
        )
    if not by_stream:
        raise SpecError(
            f"{method}: no column of the relation was named; name one for every stream, as in "
            f".through(relation, {names.streams[0]}='a')"
        )
    columns = names.read(by_stream, method, "column of the relation", _key_columns)
    missing = [stream for stream in names.streams if columns.get(stream) is None]
    if missing:
        raise SpecError(
            f"{method}: no column of the relation was named for {listed(missing)}; name one for "
            "every stream"
        )
    return columns


def _key_columns(said: object, what: str) -> tuple[str, ...]:
    if isinstance(said, list | tuple) and said:
        return tuple(_key_column(column, what) for column in said)
    return (_key_column(said, what),)


def _key_column(said: object, what: str) -> str:
    if isinstance(said, str) and "=" in said:
        raise SpecError(
            f"{what} is {said!r}: a condition between two streams stands for itself; say "
            ".on('a.x = b.x', 'b.y = c.z'), or name columns, as in .on(a='x', b='y')"
        )
    return column_name(said, what)
