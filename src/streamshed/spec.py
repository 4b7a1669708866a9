"""A join as plain data: what was said, checked in itself but not yet against any input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from streamshed.arguments import Names, PerStream
from streamshed.conditions import SharedKey
from streamshed.durations import Duration
from streamshed.errors import SpecError, listed
from streamshed.selection import MEMBERS, Selection

if TYPE_CHECKING:
    from streamshed.policies import Policy


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """What `.within` said."""

    lengths: PerStream[Duration]
    times: PerStream[str]
    late: Duration
    clock: Literal["min", "max"]
    idle: Duration | None


@dataclass(frozen=True, slots=True)
class RowWindows:
    """What `.last` said."""

    rows: PerStream[int]
    times: PerStream[str] | None


@dataclass(frozen=True, slots=True)
class Budget:
    """What `.keep` said: one of the two."""

    rows: PerStream[int] | None
    total: int | None


@dataclass(frozen=True, slots=True)
class Spec:
    """All that was said of a join."""

    streams: tuple[str, ...]
    """The names of the streams; empty where a column tells them apart."""
    by: str | None = None
    """The column that tells the streams apart, or None."""
    condition: SharedKey | None = None
    time_windows: TimeWindows | None = None
    row_windows: RowWindows | None = None
    budget: Budget | None = None
    policy: Policy | None = None
    at_least: int | None = None
    selection: Selection | None = None
    random_seed: int = 0
    sample_rate: float | None = None
    """The part of all keys that is followed, 0 for none, None for as many as seem fit."""

    def names(self) -> Names:
        """The streams, for reading arguments about them."""
        return Names(self.streams, self.by)

    def length_of(self, stream: str) -> Duration | None:
        """The length of a stream's time window, if it has one."""
        return self.time_windows.lengths.get(stream) if self.time_windows else None

    def rows_of(self, stream: str) -> int | None:
        """The number of rows of a stream's row window, if it has one."""
        return self.row_windows.rows.get(stream) if self.row_windows else None

    def time_of(self, stream: str) -> str | None:
        """The time column of a stream, if it has one."""
        time = None
        if self.row_windows and self.row_windows.times and self.rows_of(stream) is not None:
            time = self.row_windows.times.get(stream)
        if time is None and self.time_windows:
            time = self.time_windows.times.get(stream)
        return time

    def chosen_of(self, stream: str, known: Sequence[str]) -> tuple[str, ...]:
        """Those of the known columns of a stream that results have."""
        if self.selection is None:
            return tuple(known)
        return self.selection.columns_for(MEMBERS if self.by is not None else stream, known)

    def check_windows(self) -> None:
        """Refuse a stream with both kinds of window, or with two time columns."""
        twice = [
            stream
            # A join by a column has no names, but its one input must not have both either.
            for stream in self.streams or ("",)
            if self.length_of(stream) is not None and self.rows_of(stream) is not None
        ]
        if twice:
            who = listed(twice) if self.streams else "every stream"
            raise SpecError(
                f".within() and .last() both give a window to {who}; give each stream one, by "
                "mappings such as .within({'a': '10 minutes'}, time='ts').last({'b': 100})"
            )
        if not (self.time_windows and self.row_windows and self.row_windows.times):
            return
        for stream, column in self.time_windows.times.named:
            other = self.row_windows.times.get(stream)
            if self.rows_of(stream) is not None and other not in (None, column):
                raise SpecError(
                    f".within() says that the time of stream {stream!r} is in column {column!r}, "
                    f".last() says {other!r}; name it once"
                )
