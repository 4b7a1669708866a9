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
    """The rows of one input. A row's place is its segment's number and its offset there."""

    schema: pa.Schema
    segments: dict[int, pa.RecordBatch] = field(default_factory=dict)
    next_segment: int = 0
    rows: int = 0

    def add(self, rows: pa.RecordBatch) -> Places:
        """Keep rows; returns their places."""
        number = self.next_segment
        self.next_segment += 1
        if len(self.schema) == 0:  # nothing is asked back: nothing is kept
            return np.full(rows.num_rows, number << _BITS, np.int64)
        self.segments[number] = rows.select(self.schema.names)
        self.rows += rows.num_rows
        return np.arange(rows.num_rows, dtype=np.int64) + (number << _BITS)

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

    def compact(self, live: Places) -> Places:
        """Let go of all rows but the live ones; returns the places where those are now.

        Segments without a live row go, and those that are mostly dead are written anew.
        """
        number = live >> _BITS
        names, counts = np.unique(number, return_counts=True)
        kept = dict(zip(names.tolist(), counts.tolist(), strict=True))
        moved = live.copy()
        thin = [
            name
            for name, segment in self.segments.items()
            if name in kept and kept[name] * 2 < segment.num_rows
        ]
        for name in [name for name in self.segments if name not in kept]:
            self.rows -= self.segments.pop(name).num_rows
        if thin:
            chosen = np.flatnonzero(np.isin(number, thin))
            moved[chosen] = self.add(self.take(live[chosen]))
            for name in thin:
                self.rows -= self.segments.pop(name).num_rows
        return moved


def _nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, f.type) for f in schema], schema=schema)
