"""Where the users' rows wait: Arrow segments, named by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from streamshed.columns import no_rows
from streamshed.kernels.gather import find_values, gather

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
    flags: dict[int, int] = field(default_factory=dict)
    """For each sealed segment the block of flags in which those of its rows begin, if they have any
    in checkpoints."""
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
        if (present == present[0]).all():
            rows = self.segments[int(present[0])].select(schema.names)
            return rows.take(pa.array(places & PLACE_OFFSET, mask=absent if missing else None))
        taken = {} if missing else self._gathered(places, schema)
        others = pa.schema([column for column in schema if column.name not in taken])
        if len(others):
            rows = self._by_segment(places, others)
            taken |= dict(zip(others.names, rows.columns, strict=True))
        return pa.RecordBatch.from_arrays([taken[name] for name in schema.names], schema=schema)

    def _gathered(self, places: Places, schema: pa.Schema) -> dict[str, pa.Array]:
        """The columns of numbers and the like without nulls, at places of several segments."""
        names = sorted(self.segments)
        sizes = np.array([self.segments[name].num_rows for name in names], np.int64)
        pieces, offsets = np.empty(len(places), np.int32), np.empty(len(places), np.int64)
        met = np.zeros(len(names), np.bool_)
        numbers = np.array(names, np.int64)
        if not find_values(places, PLACE_BITS, numbers, sizes, pieces, offsets, met):
            raise IndexError("a place is outside its segment")
        chosen = np.flatnonzero(met).tolist()
        addresses = np.zeros(len(names), np.int64)
        columns = {}
        for kept in schema:
            width = _width(kept.type)
            if width == 0:
                continue
            parts = [self.segments[names[piece]].column(kept.name) for piece in chosen]
            if any(part.null_count for part in parts):
                continue
            addresses[chosen] = [part.buffers()[1].address + part.offset * width for part in parts]
            values = np.empty(len(places) * width, np.uint8)
            gather(pieces, offsets, addresses, width, values.ctypes.data)
            buffers = [None, pa.py_buffer(values)]
            columns[kept.name] = pa.Array.from_buffers(kept.type, len(places), buffers, 0)
        return columns

    def _by_segment(self, places: Places, schema: pa.Schema) -> pa.RecordBatch:
        """Rows taken segment by segment, and put in order: only rows of results are copied."""
        number, offset = np.maximum(places >> PLACE_BITS, -1), places & PLACE_OFFSET
        ordered = bool((number[1:] >= number[:-1]).all())
        order = np.arange(len(number)) if ordered else np.argsort(number, kind="stable")
        names, starts = np.unique(number[order], return_index=True)
        parts = [
            _nulls(schema, int(end - start))
            if name < 0
            else self.segments[int(name)]
            .select(schema.names)
            .take(pa.array(offset[order[start:end]]))
            for name, start, end in zip(names, starts, [*starts[1:], len(order)], strict=True)
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
        self.flags.pop(number, None)
        return self.sealed.pop(number, None) is not None

    def unseal(self, number: int, rows: pa.RecordBatch, wanted: int) -> None:
        """Take back a sealed segment of which so many rows are wanted."""
        self.segments[number] = rows
        self.sealed[number] = wanted
        self.rows += rows.num_rows


def warm_gathering() -> None:
    """Have compiled what takes rows from several segments, by taking some."""
    rows = pa.record_batch({"n": pa.array([0])})
    some = Payload(rows.schema)
    some.take(np.concatenate([some.add(rows), some.add(rows)]))


def places_in(number: int, offsets: npt.NDArray[np.int64]) -> Places:
    """The places of rows of a segment."""
    return offsets + (number << PLACE_BITS)


def _width(kind: pa.DataType) -> int:
    """The bytes of a value of a type that has as many as a machine word, or 0."""
    if not kinds.is_primitive(kind) or kind.bit_width not in (8, 16, 32, 64):
        return 0
    return int(kind.bit_width) // 8


def _nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, f.type) for f in schema], schema=schema)
