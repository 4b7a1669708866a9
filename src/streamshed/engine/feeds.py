"""Whole inputs, read ahead: the rows of all that no row still unread can come before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from streamshed.columns import no_rows
from streamshed.engine.batch import NO_NUMBERS
from streamshed.engine.encoding import times_of
from streamshed.engine.ingest import InputRows, newest_time
from streamshed.engine.operator import Operator
from streamshed.kernels.core import NEVER
from streamshed.kernels.merge import running_maximum
from streamshed.plan.plan import Plan
from streamshed.sources import Source

Piece = tuple[pa.RecordBatch, int | None]
"""Rows of an input, and the place of the first of them if the payload keeps them already."""
Bound = tuple[int, int] | None
"""How far in time the slowest input is known, and its position; None if all are read."""
Ready = TypeVar("Ready")


def pieces(
    position: int,
    source: Source,
    chunk: int,
    keep: Callable[[int, pa.RecordBatch], int | None],
) -> Iterator[Piece]:
    """The rows of an input in pieces of a good size.

    Args:
        position: of the input.
        source: its rows.
        chunk: the rows of a piece at most.
        keep: is handed the rows that are read at once; returns the place of the first, if it
            keeps them.
    """
    for rows in source.batches():
        place = keep(position, rows)
        for start in range(0, rows.num_rows, chunk):
            yield rows.slice(start, chunk), None if place is None else place + start


class Feed(Generic[Ready]):
    """One input: the part of it that is read and waits for the other inputs.

    Args:
        position: of the input.
        schema: of its rows.
        pieces: the rows.
    """

    def __init__(self, position: int, schema: pa.Schema, pieces: Iterator[Piece]) -> None:
        self.position = position
        self.place: int | None = None
        self._pieces = pieces
        self._following = next(pieces, None)
        self.rows = no_rows(schema)
        self.arrival_times = NO_NUMBERS
        self.read()

    def read(self) -> None:
        """The rows are new: find their times of arrival."""
        raise NotImplementedError

    def take(self, size: int) -> Ready:
        """Take the first rows of those that wait."""
        raise NotImplementedError

    def fill(self) -> None:
        """Read on if nothing waits."""
        while self._following is not None and not self.arrival_times.size:
            self.rows, self.place = self._following
            self.read()
            self._following = next(self._pieces, None)

    @property
    def end(self) -> Bound:
        """How far it is known, and its position; None if it is read to its end."""
        if self._following is None:
            return None
        return int(self.arrival_times[-1]), self.position

    def ready(self, bound: Bound) -> tuple[int, Ready]:
        """Take the rows that no row still unread can come before; returns how many, and these."""
        size = self.arrival_times.size
        if bound is not None:
            reach, position = bound
            side: Literal["left", "right"] = "right" if self.position <= position else "left"
            size = int(np.searchsorted(self.arrival_times, reach, side))
        taken = self.take(size)
        self.rows = self.rows.slice(size)
        self.arrival_times = self.arrival_times[size:]
        self.place = None if self.place is None else self.place + size
        return size, taken


class EncodedFeed(Feed[InputRows]):
    """The input of a join that is not divided, whose rows are encoded as they are read.

    Rows that the payload does not keep yet are handed over as they are processed, so that it can
    forget those that have left.
    """

    def __init__(self, operator: Operator, *feed: Any) -> None:
        self._operator = operator
        super().__init__(*feed)

    def read(self) -> None:
        """Encode the rows."""
        places = NO_NUMBERS
        if self.place is not None:
            places = np.arange(self.place, self.place + self.rows.num_rows, dtype=np.int64)
        self._encoded = self._operator.ingest.read(self.position, self.rows, places)
        self.arrival_times = self._encoded.arrival_time

    def take(self, size: int) -> InputRows:
        """The first rows as the loop takes them."""
        taken = self._encoded.part(0, size)
        self._encoded = self._encoded.part(size, self._encoded.time.size)
        if size and self.place is None:
            payload = self._operator.payload[self.position]
            taken = taken._replace(payload=payload.add(self.rows.slice(0, size)))
        return taken


class Aligned(NamedTuple):
    """Rows of one input in a batch of a join in shards."""

    rows: pa.RecordBatch
    newest: int
    """The newest time of those of the rows that are not filtered, `NEVER` if there are none."""
    place: int | None
    """Where the payload keeps the first of them, if it does already."""


class PlainFeed(Feed[Aligned]):
    """The input of a join in shards, each of which takes its own of the rows."""

    def __init__(self, plan: Plan, *feed: Any) -> None:
        self._plan, self._newest = plan, NEVER
        super().__init__(*feed)

    def read(self) -> None:
        """Find when each row arrives: the newest time up to it."""
        stream = self._plan.streams[self.position]
        assert stream.time is not None
        where = f"stream {stream.name!r}, column {stream.time!r}"
        times, null = times_of(self.rows.column(stream.time), self._plan.time_type, where)
        self.arrival_times, _ = running_maximum(times, null, self._newest)
        if self.arrival_times.size:
            self._newest = int(self.arrival_times[-1])

    def take(self, size: int) -> Aligned:
        """The first rows."""
        rows = self.rows.slice(0, size)
        return Aligned(rows, newest_time(self._plan, self.position, rows), self.place)


def in_step(
    feeds: Sequence[Feed[Ready]],
    side_by_side: Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]] = map,
) -> Iterator[list[Ready]]:
    """Rows of all inputs that no row still unread can come before: the inputs advance together.

    Args:
        feeds: the inputs.
        side_by_side: does some work on each of several items, maybe at the same time.
    """
    while True:
        list(side_by_side(Feed.fill, feeds))
        # The input whose known part ends first bounds what can be merged now.
        bound = min((feed.end for feed in feeds if feed.end is not None), default=None)
        sizes, parts = zip(*(feed.ready(bound) for feed in feeds), strict=True)
        if bound is None and not any(sizes):
            return
        yield list(parts)
