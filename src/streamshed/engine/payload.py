"""Where the users' rows wait: Arrow segments, named by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.columns import no_rows

PLACE_BITS = 32
PLACE_OFFSET = (1 << PLACE_BITS) - 1
"""A place is a segment's number, and below it the offset there."""

Places = npt.NDArray[np.int64]


@dataclass
class Payload:
    """The rows of one input. A row's place is its segment's number and its offset there.

    Rows come in as *open* segments, as they arrived. Now and then they are *sealed*: those that
    are still wanted are put together in a new segment, which does not change any more.
    """

    schema: pa.Schema
    segments: dict[int, pa.RecordBatch] = field(default_factory=dict)
    sealed: dict[int, int] = field(default_factory=dict)
    """For each sealed segment how many of its rows were wanted when it was last looked at."""
    next_segment: int = 0
    rows: int = 0
    sharers: int = 1
    """How many joins hold the same segments: each counts its part of their bytes."""

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

    def take(self, places: Places, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows at the given places, which may be negative for no row (all null).

        Args:
            places: where the rows are.
            columns: the columns that are asked for; all of them by default.
        """
        schema = self.schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        if len(places) == 0 or len(schema) == 0:
            return no_rows(schema)
        absent = places < 0
        missing = absent.any()
        number = places >> PLACE_BITS
        present = number[~absent] if missing else number
        if len(present) == 0:
            return _nulls(schema, len(places))
        offset = places & PLACE_OFFSET
        first = present[0]
        if (present == first).all():
            mask = absent if missing else None
            rows = self.segments[int(first)].select(schema.names)
            return rows.take(pa.array(offset, mask=mask))
        # Rows are taken segment by segment, then put in order: only rows of results are copied.
        ordered = bool((number[1:] >= number[:-1]).all())
        order = np.arange(len(number)) if ordered else np.argsort(number, kind="stable")
        names, starts = np.unique(number[order], return_index=True)
        ends = np.append(starts[1:], len(order))
        parts = [
            _nulls(schema, int(end - start))
            if name < 0
            else self.segments[int(name)]
            .select(schema.names)
            .take(pa.array(offset[order[start:end]]))
            for name, start, end in zip(names, starts, ends, strict=True)
        ]
        rows = pa.concat_batches(parts)
        if ordered:
            return rows
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return rows.take(pa.array(back))

    def nbytes(self) -> int:
        """The bytes of all rows kept."""
        return int(sum(segment.nbytes for segment in self.segments.values())) // self.sharers

    def moves(self, number: int, wanted: int, whole: bool) -> bool:
        """Whether the rows of a segment, of which so many are wanted, move to a new one."""
        return whole or number not in self.sealed or 2 * wanted < self.segments[number].num_rows

    def gather(self, numbers: list[int], wanted: npt.NDArray[np.bool_], size: int) -> int | None:
        """Put the wanted rows of some segments together, in their order; None if there are none."""
        if size == 0:
            return None
        parts = [self.segments[number] for number in numbers]
        if size < len(wanted):
            ends = np.cumsum([part.num_rows for part in parts])
            parts = [
                part.filter(pa.array(flags))
                for part, flags in zip(parts, np.split(wanted, ends[:-1]), strict=True)
            ]
        return self.put(parts[0] if len(parts) == 1 else pa.concat_batches(parts))

    def drop(self, number: int) -> bool:
        """Let go of a segment; whether it was sealed."""
        self.rows -= self.segments.pop(number).num_rows
        return self.sealed.pop(number, None) is not None

    def unseal(self, number: int, rows: pa.RecordBatch, wanted: int) -> None:
        """Take back a sealed segment of which so many rows are wanted."""
        self.segments[number] = rows
        self.sealed[number] = wanted
        self.rows += rows.num_rows


def places_in(number: int, offsets: npt.NDArray[np.int64]) -> Places:
    """The places of rows of a segment."""
    return offsets + (number << PLACE_BITS)


def _nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, f.type) for f in schema], schema=schema)
