"""Exact joins by equalities between pairs of streams in bulk: in spans of time.

The values of each attribute are numbered first, attribute by attribute (`values`); then spans of
time are joined side by side, each with the rows before it that its own can meet (`spans`). Results
of a span are in the order of arrival, and spans follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import NO_NUMBERS, Batch
from streamshed.engine.blocks import Block
from streamshed.engine.bulk.bulk import BLOCK, Bulk
from streamshed.engine.bulk.runs import Group
from streamshed.engine.bulk.spans import (
    DONE,
    MADE,
    NEXT,
    WAITING,
    Numbered,
    Search,
    empty_span,
    join_rows,
    search_by,
)
from streamshed.engine.bulk.values import enter_again, number_values, room_for_values
from streamshed.engine.ingest import InputRows, merged
from streamshed.engine.match.probe_order import own_attributes
from streamshed.kernels.core import RESULTS

SMALLEST_TABLE = 1 << 12
PROBE, CLOCK = 2.0, 0.5
"""What it takes to join a row, and to let the clock go on by it, beside entering it only."""

Made = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Results: their times, and the places of their members."""


class Arranged(NamedTuple):
    """Rows in the order of time, whose values are numbered."""

    rows: Numbered
    values: list[int]
    """How many there are of each attribute."""

    @property
    def time(self) -> npt.NDArray[np.int64]:
        """When the rows came."""
        return self.rows.time

    @property
    def stream(self) -> npt.NDArray[np.int32]:
        """Where they belong."""
        return self.rows.stream


class GraphBulk(Bulk):
    """Joins rows by a graph of equalities, many at once."""

    @property
    def own(self) -> list[list[int]]:
        """The attributes of each stream."""
        return [own_attributes(stream) for stream in self.operator.plan.streams]

    def arrange(self, groups: list[Group]) -> Arranged:
        """Put the rows in the order of time, and number the values of their attributes."""
        ordered = [self._in_order(group) for group in groups if group]
        if len(ordered) == 1:
            return self._number(ordered[0])
        parts = [self.operator.ingest.empty_batch(), *ordered]
        return self._number(
            Batch._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
        )

    def _in_order(self, group: Group) -> Batch:
        """The rows of a group in the order of time."""
        runs = [run for run in group if isinstance(run, InputRows)]
        one = group[0] if isinstance(group[0], Batch) else merged(runs, self.workers, self.map)
        return one.part(0, one.time.size)

    def _number(self, batch: Batch) -> Arranged:
        own = self.own
        attributes = 1 + max(number for numbers in own for number in numbers)
        found = np.empty((batch.time.size, batch.hashes.shape[1]), np.int32)

        def number(attribute: int) -> int:
            places = np.array(
                [of.index(attribute) if attribute in of else -1 for of in own], np.int64
            )
            values, done = room_for_values(SMALLEST_TABLE, 0), 0
            while True:
                done = number_values(batch, places, done, values, found)
                if done == batch.time.size:
                    return int(values.used[0])
                larger = room_for_values(4 * values.hashes.size, int(values.used[0]))
                enter_again(values, larger)
                values = larger

        values = self.map(number, range(attributes))
        return Arranged(Numbered(batch.time, batch.stream, batch.payload, found), values)

    def results(self, rows: Arranged, known: int) -> Iterator[Block]:
        """The results of rows that begin with those that are known."""
        arrived = [int(np.count_nonzero(rows.stream == lane)) for lane in range(self.lanes)]
        search = search_by(self.own, arrived, rows.values)
        spans = self._spans(rows.time, known)
        for first in range(0, len(spans), self.threads):

            def join(span: tuple[int, int]) -> list[Made]:
                return self._join_span(rows.rows, search, *span)

            for found in self.map(join, spans[first : first + self.threads]):
                for time, members in found:
                    self.operator.core.numbers[RESULTS] += len(time)
                    if not self.operator.counting:
                        ends = np.arange(1, len(time) + 1) * self.lanes
                        yield Block(time, members, ends, self.operator.payload)

    def _spans(self, time: npt.NDArray[np.int64], known: int) -> list[tuple[int, int]]:
        """The rows that are new in spans, all of which take about as long."""
        fresh = time.size - known
        if fresh == 0:
            return []
        middle = (known + time.size) // 2  # about as many rows as it are in other windows
        within = int(middle - np.searchsorted(time, time[middle] - self.windows.lengths.max()))
        count = min(self.threads, max(1, fresh // max(1, 2 * within, self.part)))
        # Rows before a span are entered again; and who joins the last one has the clock to move.
        others = np.full(count, within, np.float64)
        others[0] = min(known, within)
        others[-1] += min(CLOCK * fresh, PROBE * fresh / count / 2)
        sizes = ((PROBE * fresh + others.sum()) / count - others) / PROBE
        ends = known + np.cumsum(sizes).astype(np.int64)
        ends[-1] = time.size
        starts = [known, *ends[:-1].tolist()]
        return [*zip(starts, ends.tolist(), strict=True)]

    def _join_span(self, rows: Numbered, search: Search, start: int, end: int) -> list[Made]:
        """The results that the rows of a span complete."""
        window = self.windows.lengths.max()
        before = int(np.searchsorted(rows.time, rows.time[start] - window))
        lanes, width = self.lanes, rows.numbers.shape[1]
        span = empty_span(search, end - before, width, lanes, self.windows.lengths.size)
        part = Numbered._make(column[before:end] for column in rows)
        self.bytes_used = sum(array.nbytes for array in (*span, *rows))
        found: list[Made] = []
        room = BLOCK
        time, members = NO_NUMBERS, NO_NUMBERS
        while span.cursor[NEXT] < end - before or span.cursor[DONE] < span.cursor[WAITING]:
            if not self.operator.counting or time.size < room:
                time, members = np.empty(room, np.int64), np.empty(room * lanes, np.int64)
            join_rows(part, start - before, search, self.windows, span, time, members)
            made = int(span.cursor[MADE])
            if made:
                found.append((time[:made], members[: made * lanes]))
            elif span.cursor[DONE] < span.cursor[WAITING]:
                room *= 4  # a single row completes more results than there is room for
        return found
