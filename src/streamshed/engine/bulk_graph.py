"""Exact joins by equalities between pairs of streams, of rows that are all at hand.

As in `streamshed.engine.bulk` nothing is removed. The values of each attribute are numbered first,
attribute by attribute; then spans of time are joined side by side, each with the rows before it
that its own can meet. Results of a span are in the order of arrival, and spans follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import NO_NUMBERS, Batch
from streamshed.engine.bulk import BLOCK, Bulk, Group
from streamshed.engine.ingest import InputRows, merged
from streamshed.engine.match.probe_order import own_attributes
from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import RESULTS
from streamshed.kernels.intrinsics import prefetch

if TYPE_CHECKING:
    from streamshed.engine.operator import Block

SMALLEST_TABLE = 1 << 12
AHEAD = 8
"""So many rows before one is looked up its place in the table is asked for."""

LANE, SOURCE, SOURCE_PLACE, ATTRIBUTE, PLACE = range(5)
"""A level of the search: whose rows are sought, by the value that a row of which stream has at
which place among its attributes, by which attribute, and where among those of the sought it is."""


Made = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Results: their times, and the places of their members."""


class Values(NamedTuple):
    """The numbers of an attribute's values; open addressing."""

    hashes: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.int32]  # plus 1; 0: no value is here
    used: npt.NDArray[np.int64]  # how many values there are


class Search(NamedTuple):
    """In which order partners are sought."""

    levels: npt.NDArray[np.int64]  # by (stream of the newcomer, level, see LANE)
    compared: npt.NDArray[np.int64]  # what else is equal: (…, which, (source, its place, place))
    places: npt.NDArray[np.int64]  # by (stream, place): the attribute, or -1
    bases: npt.NDArray[np.int64]  # by attribute: where its heads begin


class Span(NamedTuple):
    """The rows of a span, and how they hang together; rows are numbered from the first."""

    heads: npt.NDArray[np.int32]  # by (attribute and value, stream): the newest row, plus 1
    before: npt.NDArray[np.int32]  # by (row, place): the row before it of the same, plus 1
    first: npt.NDArray[np.int64]  # by window: the oldest row within it
    candidate: npt.NDArray[np.int64]  # by level: the row that is tried, plus 1
    chosen: npt.NDArray[np.int64]  # by stream


class GraphBulk(Bulk):
    """Joins rows by a graph of equalities, many at once."""

    def _arrange(self, groups: list[Group]) -> Batch:
        ordered = [self._in_order(group) for group in groups if group]
        if len(ordered) == 1:
            return ordered[0]
        parts = [self.operator.ingest.empty_batch(), *ordered]
        return Batch._make(np.concatenate(columns) for columns in zip(*parts, strict=True))

    def _in_order(self, group: Group) -> Batch:
        """The rows of a group in the order of time."""
        runs = [run for run in group if isinstance(run, InputRows)]
        one = group[0] if isinstance(group[0], Batch) else merged(runs, self.workers, self.map)
        return one.part(0, one.time.size)

    def _results(self, rows: Batch, known: int) -> Iterator[Block]:
        from streamshed.engine.operator import Block

        numbers, values = self._number(rows)
        search = self._search(rows, values)
        windows = self.windows.lengths.max()
        fresh = rows.time.size - known
        overlap = self._overlap(rows.time, known, windows)
        size = max(1, fresh // self.threads, 2 * overlap, self.part)
        starts = range(known, rows.time.size, size)
        lanes = len(self.operator.plan.streams)
        for group in range(0, len(starts), self.threads):

            def join(start: int) -> list[Made]:
                before = int(np.searchsorted(rows.time, rows.time[start] - windows))
                end = min(start + size, rows.time.size)
                return self._join_span(rows, numbers, search, before, start, end)

            for found in self.map(join, starts[group : group + self.threads]):
                for time, members in found:
                    self.operator.core.numbers[RESULTS] += len(time)
                    if not self.operator.counting:
                        ends = np.arange(1, len(time) + 1) * lanes
                        yield Block(time, members, ends, self.operator.payload)

    def _overlap(self, time: npt.NDArray[np.int64], known: int, window: int) -> int:
        """About how many rows a window holds: the newest has as many behind it."""
        if known == time.size:
            return 0
        middle = (known + time.size) // 2
        return int(middle - np.searchsorted(time, time[middle] - window))

    def _number(self, rows: Batch) -> tuple[npt.NDArray[np.int32], list[int]]:
        """The number of each row's value of each of its attributes, and how many values are."""
        streams = self.operator.plan.streams
        own = [own_attributes(stream) for stream in streams]
        attributes = 1 + max(number for numbers in own for number in numbers)
        found = np.empty((rows.time.size, rows.hashes.shape[1]), np.int32)

        def number(attribute: int) -> int:
            places = np.array(
                [of.index(attribute) if attribute in of else -1 for of in own], np.int64
            )
            values, done = _room_for_values(SMALLEST_TABLE, 0), 0
            while True:
                done = number_values(rows, places, done, values, found)
                if done == rows.time.size:
                    return int(values.used[0])
                larger = _room_for_values(4 * values.hashes.size, int(values.used[0]))
                enter_again(values, larger)
                values = larger

        return found, self.map(number, range(attributes))

    def _search(self, rows: Batch, values: list[int]) -> Search:
        """For newcomers of each stream, next the stream of which the fewest rows are expected."""
        streams = self.operator.plan.streams
        own = [own_attributes(stream) for stream in streams]
        arrived = np.bincount(rows.stream, minlength=len(streams))
        lanes, width = len(streams), rows.hashes.shape[1]
        levels = np.zeros((lanes, lanes - 1, 5), np.int64)
        compared = np.full((lanes, lanes - 1, max(1, width), 3), -1, np.int64)
        for newcomer in range(lanes):
            reached = [newcomer]
            for level in range(lanes - 1):
                _, lane, attribute = min(
                    (arrived[lane] / max(1, values[number]), lane, number)
                    for lane in range(lanes)
                    if lane not in reached
                    for number in own[lane]
                    if any(number in own[other] for other in reached)
                )
                by = {n: next((r for r in reached if n in own[r]), -1) for n in own[lane]}
                at = {number: own[lane].index(number) for number in own[lane]}
                source = by[attribute]
                place = own[source].index(attribute)
                levels[newcomer, level] = lane, source, place, attribute, at[attribute]
                others = [n for n, where in by.items() if where >= 0 and n != attribute]
                for which, n in enumerate(others):
                    compared[newcomer, level, which] = by[n], own[by[n]].index(n), at[n]
                reached.append(lane)
        places = np.full((lanes, width), -1, np.int64)
        for lane, numbers in enumerate(own):
            places[lane, : len(numbers)] = numbers
        bases = np.concatenate([[0], np.cumsum(values)]) * lanes
        return Search(levels, compared, places, bases)

    def _join_span(
        self,
        rows: Batch,
        numbers: npt.NDArray[np.int32],
        search: Search,
        before: int,
        start: int,
        end: int,
    ) -> list[Made]:
        """The results that the rows of a span complete."""
        lanes, width = search.places.shape
        span = Span(
            np.zeros(int(search.bases[-1]), np.int32),
            np.empty((end - before, width), np.int32),
            np.zeros(self.windows.lengths.size, np.int64),
            np.zeros(lanes, np.int64),
            np.zeros(lanes, np.int64),
        )
        part = Batch._make(column[before:end] if column.size else column for column in rows)
        self.bytes_used = sum(array.nbytes for array in (*span, *rows, numbers))
        found: list[Made] = []
        done, room = 0, BLOCK
        cursor = np.zeros(2, np.int64)
        time, members = NO_NUMBERS, NO_NUMBERS
        while done < end - before:
            if not self.operator.counting or time.size < room:
                time, members = np.empty(room, np.int64), np.empty(room * lanes, np.int64)
            join_rows(
                part,
                numbers[before:end],
                start - before,
                search,
                self.windows,
                span,
                cursor,
                time,
                members,
            )
            done, made = cursor.tolist()
            if made:
                found.append((time[:made], members[: made * lanes]))
            elif done < end - before:
                room *= 4  # a single row completes more results than there is room for
        return found


def _room_for_values(size: int, used: int) -> Values:
    return Values(np.empty(size, np.uint64), np.zeros(size, np.int32), np.array([used]))


@kernel
def _home(table, hashed):  # type: ignore[no-untyped-def]
    """Where a hash is sought first."""
    return np.int64(hashed & np.uint64(table.size - 1))


@loop
def enter_again(values, larger):  # type: ignore[no-untyped-def]
    """Enter the values of a table into a larger one."""
    last = larger.hashes.size - 1
    for i in range(values.hashes.size):
        if values.numbers[i] != 0:
            place = _home(larger.hashes, values.hashes[i])
            while larger.numbers[place] != 0:
                place = (place + 1) & last
            larger.hashes[place] = values.hashes[i]
            larger.numbers[place] = values.numbers[i]


@loop
def number_values(batch, places, start, values, found):  # type: ignore[no-untyped-def]
    """Number the values of an attribute, in the order in which they come.

    Args:
        batch: the rows.
        places: by stream, where among its attributes this one is, or -1.
        start: the row to begin with.
        values: those that have a number.
        found: by (row, place), where to write the numbers.

    Returns:
        The row at which the table is too full to go on, or the number of rows.
    """
    last = values.hashes.size - 1
    size = batch.time.size
    for i in range(start, size):
        if 2 * values.used[0] > last:
            return i
        if i + AHEAD < size:
            later = places[batch.stream[i + AHEAD]]
            if later >= 0:
                prefetch(values.hashes, _home(values.hashes, batch.hashes[i + AHEAD, later]))
                prefetch(values.numbers, _home(values.hashes, batch.hashes[i + AHEAD, later]))
        place = places[batch.stream[i]]
        if place < 0:
            continue
        hashed = batch.hashes[i, place]
        home = _home(values.hashes, hashed)
        while values.numbers[home] != 0 and values.hashes[home] != hashed:
            home = (home + 1) & last
        if values.numbers[home] == 0:
            values.used[0] += 1
            values.numbers[home] = values.used[0]
            values.hashes[home] = hashed
        found[i, place] = values.numbers[home] - 1
    return size


@loop
def join_rows(batch, numbers, fresh, search, windows, span, cursor, time, members):  # type: ignore[no-untyped-def]
    """Join rows with those before them until all are done, or there is no room for results.

    Args:
        batch: the rows in the order of time.
        numbers: by (row, place) the number of an attribute's value.
        fresh: the first row that completes results; those before it are only met.
        search: in which order partners are sought.
        windows: of the streams.
        span: how the rows so far hang together.
        cursor: the next row, and how many results there are.
        time: of the results.
        members: of the results.
    """
    lanes = windows.of.size
    made = np.int64(0)
    i = cursor[0]
    while i < batch.time.size:
        stream = np.int64(batch.stream[i])
        if i + AHEAD < batch.time.size:
            later = np.int64(batch.stream[i + AHEAD])
            for place in range(search.places.shape[1]):
                attribute = search.places[later, place]
                if attribute >= 0:
                    value = numbers[i + AHEAD, place]
                    prefetch(span.heads, search.bases[attribute] + value * lanes)
        for window in range(windows.lengths.size):
            oldest = batch.time[i] - windows.lengths[window]
            while batch.time[span.first[window]] < oldest:
                span.first[window] += 1
        if i >= fresh and _may_match(numbers, i, stream, search, windows, span):
            more = _search_partners(batch, numbers, i, search, windows, span, made, time, members)
            if more < 0:
                break
            made = more
        for place in range(search.places.shape[1]):
            attribute = search.places[stream, place]
            if attribute >= 0:
                head = search.bases[attribute] + numbers[i, place] * lanes + stream
                span.before[i, place] = span.heads[head]
                span.heads[head] = i + 1
        i += 1
    cursor[0] = i
    cursor[1] = made


@kernel
def _head(numbers, row, level, search, lanes, heads):  # type: ignore[no-untyped-def]
    """The newest row of a level's stream that has the value of a row, plus 1."""
    value = numbers[row, level[SOURCE_PLACE]]
    return np.int64(heads[search.bases[level[ATTRIBUTE]] + value * lanes + level[LANE]])


@kernel
def _may_match(numbers, i, stream, search, windows, span):  # type: ignore[no-untyped-def]
    """Whether every stream that shares an attribute with a newcomer has a row for its value."""
    lanes = windows.of.size
    for depth in range(lanes - 1):
        level = search.levels[stream, depth]
        if level[SOURCE] == stream:
            head = _head(numbers, i, level, search, lanes, span.heads)
            if head <= span.first[windows.of[level[LANE]]]:
                return False
    return True


@kernel
def _search_partners(batch, numbers, i, search, windows, span, made, time, members):  # type: ignore[no-untyped-def]
    """Write the results that a row completes; how many there are then, -1 if there is no room."""
    lanes = windows.of.size
    stream = np.int64(batch.stream[i])
    chosen, candidate = span.chosen, span.candidate
    chosen[stream] = i
    depth = 0
    level = search.levels[stream, 0]
    candidate[0] = _head(numbers, chosen[level[SOURCE]], level, search, lanes, span.heads)
    while depth >= 0:
        level = search.levels[stream, depth]
        row = candidate[depth] - 1
        if row < span.first[windows.of[level[LANE]]]:
            depth -= 1
            continue
        candidate[depth] = span.before[row, level[PLACE]]
        if not _agrees(numbers, chosen, row, search.compared[stream, depth]):
            continue
        chosen[level[LANE]] = row
        if depth < lanes - 2:
            depth += 1
            level = search.levels[stream, depth]
            candidate[depth] = _head(
                numbers, chosen[level[SOURCE]], level, search, lanes, span.heads
            )
            continue
        if made == time.size:
            return np.int64(-1)
        time[made] = batch.time[i]
        for lane in range(lanes):
            members[made * lanes + lane] = batch.payload[chosen[lane]]
        made += 1
    return made


@kernel
def _agrees(numbers, chosen, row, compared):  # type: ignore[no-untyped-def]
    """Whether a row has the values of those chosen, of attributes that were not looked up."""
    for which in range(compared.shape[0]):
        source = compared[which, 0]
        if source < 0:
            break
        if numbers[chosen[source], compared[which, 1]] != numbers[row, compared[which, 2]]:
            return False
    return True
