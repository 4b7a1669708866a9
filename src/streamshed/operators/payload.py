"""Where the users' rows wait: Arrow segments, named by number."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_BITS = 32
_OFFSET = (1 << _BITS) - 1

Places = npt.NDArray[np.int64]


@dataclass
class Payload:
    """The rows of one input. A row's place is its segment's number and its offset there.

    Rows come in as *open* segments, as they arrived. Now and then they are *sealed*: those that
    are still wanted are put together in a new segment, which does not change any more; rows that
    leave it are only struck off.
    """

    schema: pa.Schema
    segments: dict[int, pa.RecordBatch] = field(default_factory=dict)
    sealed: dict[int, int] = field(default_factory=dict)
    """For each sealed segment how many of its rows were wanted when it was last looked at."""
    next_segment: int = 0
    rows: int = 0

    def add(self, rows: pa.RecordBatch) -> Places:
        """Keep rows; returns their places."""
        return places_in(self.put(rows), np.arange(rows.num_rows, dtype=np.int64))

    def put(self, rows: pa.RecordBatch) -> int:
        """Keep rows as a segment; returns its number."""
        number = self.next_segment
        self.next_segment += 1
        if len(self.schema) > 0:  # otherwise nothing is ever asked back
            self.segments[number] = rows.select(self.schema.names)
            self.rows += rows.num_rows
        return number

    def take(self, places: Places) -> pa.RecordBatch:
        """The rows at the given places, which may be negative for no row (all null)."""
        if len(places) == 0 or len(self.schema) == 0:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        absent = places < 0
        missing = absent.any()
        number = places >> _BITS
        present = number[~absent] if missing else number
        if len(present) == 0:
            return _nulls(self.schema, len(places))
        offset = places & _OFFSET
        first = present[0]
        if (present == first).all():
            mask = absent if missing else None
            return self.segments[int(first)].take(pa.array(offset, mask=mask))
        # Rows are taken segment by segment, then put in order: only rows of results are copied.
        order = np.argsort(number, kind="stable")
        names, starts = np.unique(number[order], return_index=True)
        ends = np.append(starts[1:], len(order))
        parts = [
            _nulls(self.schema, int(end - start))
            if name < 0
            else self.segments[int(name)].take(pa.array(offset[order[start:end]]))
            for name, start, end in zip(names, starts, ends, strict=True)
        ]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_batches(parts).take(pa.array(back))

    def nbytes(self) -> int:
        """The bytes of all rows kept."""
        return sum(segment.nbytes for segment in self.segments.values())

    def seal(self, wanted: Places, whole: bool = False) -> Sealing:
        """Let go of all rows but the wanted ones, given in the order of their arrival.

        Open segments, and sealed ones of which less than half is wanted, become one new segment
        (all of them do if the whole is asked for); those of which nothing is wanted go.
        """
        if not self.segments:
            return Sealing(wanted, None, np.empty(0, np.int64), [], {})
        number = wanted >> _BITS
        counts = np.bincount(number, minlength=self.next_segment)
        rewritten = np.zeros(len(counts), np.bool_)
        for name, segment in self.segments.items():
            thin = counts[name] * 2 < segment.num_rows
            rewritten[name] = whole or thin or name not in self.sealed
        moving = np.flatnonzero(rewritten[number])
        gone = [name for name in self.segments if rewritten[name]]
        places = wanted.copy()
        new = None
        if len(moving):
            new = self.next_segment
            places[moving] = self.add(self.take(wanted[moving]))
            self.sealed[new] = len(moving)
        removed = [name for name in gone if self.sealed.pop(name, None) is not None]
        for name in gone:
            self.rows -= self.segments.pop(name).num_rows
        thinned = [
            name for name, count in self.sealed.items() if name != new and counts[name] != count
        ]
        live = {}
        for name in thinned:
            self.sealed[name] = int(counts[name])
            flags = np.zeros(self.segments[name].num_rows, np.bool_)
            flags[wanted[number == name] & _OFFSET] = True
            live[name] = np.packbits(flags)
        return Sealing(places, new, moving, removed, live)

    def unseal(self, number: int, rows: pa.RecordBatch, wanted: int) -> None:
        """Take back a sealed segment of which so many rows are wanted."""
        self.segments[number] = rows
        self.sealed[number] = wanted
        self.rows += rows.num_rows


@dataclass(frozen=True)
class Sealing:
    """What a sealing has changed."""

    places: Places
    """Where the wanted rows are now."""
    new: int | None
    """The segment that was made, if any."""
    moved: npt.NDArray[np.int64]
    """Which of the wanted rows it holds, in its order."""
    removed: list[int]
    """Sealed segments that are gone."""
    live: dict[int, npt.NDArray[np.uint8]]
    """For each sealed segment that lost rows a bitmap of those that are still wanted."""


def live_offsets(rows: int, bitmap: npt.NDArray[np.uint8] | None) -> npt.NDArray[np.int64]:
    """The offsets of the wanted rows of a segment; all of them if there is no bitmap."""
    if bitmap is None:
        return np.arange(rows, dtype=np.int64)
    return np.flatnonzero(np.unpackbits(bitmap, count=rows))


def places_in(number: int, offsets: npt.NDArray[np.int64]) -> Places:
    """The places of rows of a segment."""
    return offsets + (number << _BITS)


def _nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, f.type) for f in schema], schema=schema)
