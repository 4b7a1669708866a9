"""Reading what a caller said: names, numbers, and one value for all streams or one for each."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Generic, SupportsIndex, TypeVar

from streamshed.errors import SpecError, listed, suggestion

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PerStream(Generic[T]):
    """One value for every stream, or one for each of those named.

    Example:
        >>> PerStream(everywhere=5).get("a")
        5
        >>> PerStream(named=(("a", 1),)).get("b") is None
        True
    """

    everywhere: T | None = None
    named: tuple[tuple[str, T], ...] = ()

    def get(self, stream: str) -> T | None:
        """The value for a stream, or None where nothing was said of it."""
        if self.everywhere is not None:
            return self.everywhere
        return dict(self.named).get(stream)

    def among(self, streams: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the streams of which something was said."""
        return tuple(stream for stream in streams if self.get(stream) is not None)

    def said(self) -> T | dict[str, T]:
        """The value as a caller would give it."""
        return dict(self.named) if self.everywhere is None else self.everywhere


@dataclass(frozen=True, slots=True)
class Names:
    """The streams of a join: by name, or by the values of a column."""

    streams: tuple[str, ...]
    by: str | None

    def check(self, stream: object, method: str) -> str:
        """Refuse a stream that the join does not have."""
        if stream in self.streams:
            return str(stream)
        raise SpecError(
            f"{method}: there is no stream {stream!r}; the streams are {listed(self.streams)}."
            f"{suggestion(stream, self.streams)}"
        )

    def read(
        self, said: object, method: str, what: str, read: Callable[[object, str], T]
    ) -> PerStream[T]:
        """Read one value for all streams, or a mapping from streams to values.

        Args:
            said: What the caller gave.
            method: The method called, as it shall stand in a message: `.within()`.
            what: What the value is, as it shall stand in a message: `window`.
            read: Checks one value, given the value and what it is.
        """
        if not isinstance(said, Mapping):
            return PerStream(everywhere=read(said, f"{method}: the {what}"))
        if self.by is not None:
            raise SpecError(
                f"{method}: the {what} is given per stream, but the streams are named by the "
                f"column {self.by!r} and come through one input; give one value for all"
            )
        for stream in said:
            self.check(stream, method)
        if not said:
            raise SpecError(
                f"{method}: the mapping for the {what} is empty; name at least one of the streams "
                f"{listed(self.streams)}"
            )
        # In the order of the streams, so that equal mappings make equal joins.
        return PerStream(
            named=tuple(
                (stream, read(said[stream], f"{method}: the {what} of stream {stream!r}"))
                for stream in self.streams
                if stream in said
            )
        )


def read_own(
    said: object,
    otherwise: object,
    names: Names,
    method: str,
    what: str,
    read: Callable[[object, str], T],
) -> tuple[tuple[object, T], ...]:
    """Read a mapping from values of the column that names streams; empty if there is none.

    Args:
        said: What the caller gave: one value for all streams, or a mapping.
        otherwise: What is to hold for all that the mapping does not name.
        names: The streams.
        method: The method called, as it shall stand in a message.
        what: What the value is, as it shall stand in a message.
        read: Checks one value, given the value and what it is.
    """
    if names.by is None or not isinstance(said, Mapping):
        if otherwise is not None:
            raise SpecError(
                f"{method}: `otherwise` is {otherwise!r}, which is for streams named by a "
                f"column that a mapping does not name; leave it out"
            )
        return ()
    if not said or otherwise is None:
        raise SpecError(
            f"{method}: the {what} is given for {listed(map(str, said))} by the column "
            f"{names.by!r}, and for all others `otherwise` is {otherwise!r}; name at least one "
            "stream in the mapping, and say `otherwise`"
        )
    # In an order of no meaning, so that equal mappings make equal joins.
    return tuple(
        (stream, read(said[stream], f"{method}: the {what} of stream {stream!r}"))
        for stream in sorted(said, key=repr)
    )


def check_covered(columns: PerStream[str], streams: tuple[str, ...], method: str) -> None:
    """Refuse columns named for some streams where others need one too."""
    covered = columns.among(streams)
    missing = [stream for stream in streams if stream not in covered]
    if missing:
        raise SpecError(
            f"{method}: columns are named for {listed(name for name, _ in columns.named)}, but not "
            f"for {listed(missing)}; name one for every stream"
        )


def column_name(said: object, what: str) -> str:
    """Read the name of a column."""
    if isinstance(said, str) and said:
        return said
    raise SpecError(f"{what} is {said!r}; give the name of a column, a string that is not empty")


def fraction(said: object, what: str) -> float:
    """Read a part of a whole: a number from 0 to 1."""
    number = real(said)
    if number is None or not 0 <= number <= 1:
        raise SpecError(f"{what} is {said!r}; give a number from 0 to 1")
    return number


def above(said: object, what: str, bound: float) -> float:
    """Read a finite number above a bound."""
    number = real(said)
    if number is None or not bound < number < float("inf"):
        raise SpecError(f"{what} is {said!r}; give a finite number above {bound}")
    return number


def real(said: object) -> float | None:
    """The number that was said, in any type of real numbers, or None if it is something else."""
    if isinstance(said, bool) or not isinstance(said, Real):
        return None
    return float(said)


def positive(said: object, what: str) -> int:
    """Read a whole number above zero."""
    return whole(said, what, at_least=1)


def whole(said: object, what: str, at_least: int, below: int = 2**62) -> int:
    """Read a whole number between bounds.

    Example:
        >>> whole(7, "the seed", at_least=0)
        7
        >>> whole(True, "the seed", at_least=0)
        Traceback (most recent call last):
        streamshed.errors.SpecError: the seed is True; give a whole number, 0 or more
    """
    number = integer(said)
    if number is None or number < at_least:
        raise SpecError(f"{what} is {said!r}; give a whole number, {at_least} or more")
    if number >= below:
        power = below.bit_length() - 1
        raise SpecError(f"{what} is {said!r}; give a whole number below 2**{power}")
    return number


def integer(said: object) -> int | None:
    """The whole number that was said, in any integer type, or None if it is something else."""
    # A bool is an index too, but nobody means a number by it.
    if isinstance(said, bool) or not isinstance(said, SupportsIndex):
        return None
    try:
        return operator.index(said)
    except TypeError:  # an array of several integers
        return None
