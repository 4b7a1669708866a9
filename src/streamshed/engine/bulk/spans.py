"""Joining the rows of a span of time by equalities between pairs of streams.

For each value of an attribute the newest row of each stream that has it is known, and each row is
linked to the one before it. Nothing is removed: what is older than a window is not met.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.intrinsics import prefetch

AHEAD, NEARER = 12, 6
"""So many rows before one is joined the newest rows of its values are asked for; then the values
of the first of these."""

LANE, SOURCE, SOURCE_PLACE, HEAD, STRIDE, PLACE = range(6)
"""A level of the search: whose rows are sought, by the value that a row of which stream has at
which place among its attributes; where the newest row for the first value is, and how far it is
from one value to the next; and where the attribute is among those of the sought."""
LEVEL = 6


class Numbered(NamedTuple):
    """Rows in the order of time."""

    time: npt.NDArray[np.int64]
    stream: npt.NDArray[np.int32]
    payload: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int32]  # by (row, place): the number of an attribute's value


class Search(NamedTuple):
    """In which order partners are sought."""

    levels: npt.NDArray[np.int64]  # by (stream of the newcomer, level, see LANE)
    compared: npt.NDArray[np.int64]  # what else is equal: (…, which, (source, its place, place))
    direct: npt.NDArray[np.int64]  # by (stream, which): the levels sought by its own values
    own: npt.NDArray[np.int64]  # by (stream, place, (head, stride)): where its own rows are entered
    heads: int


class Span(NamedTuple):
    """How the rows of a span hang together; they are numbered from the first."""

    heads: npt.NDArray[np.int32]  # by (attribute and value, stream): the newest row, plus 1
    before: npt.NDArray[np.int32]  # by (row, place): the row before it of the same, plus 1
    first: npt.NDArray[np.int64]  # by window: the oldest row within it
    candidate: npt.NDArray[np.int64]  # by level: the row that is tried, plus 1
    chosen: npt.NDArray[np.int64]  # by stream


def search_by(own: list[list[int]], arrived: list[int], values: list[int]) -> Search:
    """For newcomers of each stream, next the stream of which the fewest rows are expected.

    Args:
        own: the attributes of each stream.
        arrived: the rows of each stream.
        values: how many values each attribute has.
    """
    lanes, width = len(own), max(map(len, own))
    having = [[lane for lane in range(lanes) if n in own[lane]] for n in range(len(values))]
    sizes = [len(those) * count for those, count in zip(having, values, strict=True)]
    bases = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    levels = np.zeros((lanes, lanes - 1, LEVEL), np.int64)
    compared = np.full((lanes, lanes - 1, max(1, width), 3), -1, np.int64)
    direct = np.zeros((lanes, lanes - 1, LEVEL), np.int64)
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
            source, those = by[attribute], having[attribute]
            head, stride = bases[attribute] + those.index(lane), len(those)
            place = own[source].index(attribute)
            levels[newcomer, level] = lane, source, place, head, stride, at[attribute]
            others = [n for n, where in by.items() if where >= 0 and n != attribute]
            for which, n in enumerate(others):
                compared[newcomer, level, which] = by[n], own[by[n]].index(n), at[n]
            reached.append(lane)
        # As many of all, whichever stream comes: a branch could not be foretold.
        found = levels[newcomer][levels[newcomer, :, SOURCE] == newcomer]
        direct[newcomer] = found[np.arange(lanes - 1) % len(found)]
    entered = np.zeros((lanes, width, 2), np.int64)
    entered[:, :, 0] = bases[-1]  # who has fewer attributes is entered where nobody looks
    for lane, attributes in enumerate(own):
        for place, n in enumerate(attributes):
            entered[lane, place] = bases[n] + having[n].index(lane), len(having[n])
    return Search(levels, compared, direct, entered, bases[-1] + 1)


@loop
def join_rows(rows, fresh, search, windows, span, cursor, time, members):  # type: ignore[no-untyped-def]
    """Join rows with those before them until all are done, or there is no room for results.

    Args:
        rows: in the order of time.
        fresh: the first row that completes results; those before it are only met.
        search: in which order partners are sought.
        windows: of the streams.
        span: how the rows so far hang together.
        cursor: the next row, and how many results there are.
        time: of the results.
        members: of the results.
    """
    made = np.int64(0)
    i = cursor[0]
    while i < rows.time.size:
        _prefetch(rows, i, search, span)
        for window in range(windows.lengths.size):
            _advance(rows.time, rows.time[i] - windows.lengths[window], span.first, window)
        stream = np.int64(rows.stream[i])
        if i >= fresh and _may_match(rows.numbers, i, stream, search, windows, span):
            more = _search_partners(rows, i, search, windows, span, made, time, members)
            if more < 0:
                break
            made = more
        for place in range(search.own.shape[1]):
            own = search.own[stream, place]
            head = own[0] + rows.numbers[i, place] * own[1]
            span.before[i, place] = span.heads[head]
            span.heads[head] = i + 1
        i += 1
    cursor[0] = i
    cursor[1] = made


@kernel
def _prefetch(rows, i, search, span):  # type: ignore[no-untyped-def]
    """Ask for what is known of the values of rows that come soon."""
    if i + AHEAD < rows.time.size:
        later = np.int64(rows.stream[i + AHEAD])
        for place in range(search.own.shape[1]):
            own = search.own[later, place]
            prefetch(span.heads, own[0] + rows.numbers[i + AHEAD, place] * own[1])
        nearer = i + NEARER
        head = _head(rows.numbers, nearer, search.direct[np.int64(rows.stream[nearer]), 0], span)
        prefetch(rows.numbers, max(0, head - 1) * rows.numbers.shape[1])


@kernel
def _advance(time, oldest, first, window):  # type: ignore[no-untyped-def]
    """Let a window begin with its oldest row."""
    place = first[window]
    # Mostly a row or two leave; how many cannot be foretold, so that these are no branches.
    place += np.int64(time[place] < oldest)
    place += np.int64(time[place] < oldest)
    while time[place] < oldest:
        place += 1
    first[window] = place


@kernel
def _head(numbers, row, level, span):  # type: ignore[no-untyped-def]
    """The newest row of a level's stream that has the value of a row, plus 1."""
    return np.int64(span.heads[level[HEAD] + numbers[row, level[SOURCE_PLACE]] * level[STRIDE]])


@kernel
def _may_match(numbers, i, stream, search, windows, span):  # type: ignore[no-untyped-def]
    """Whether every stream that shares an attribute with a newcomer has a row for its value."""
    may = True
    for which in range(search.direct.shape[1]):
        level = search.direct[stream, which]
        may &= _head(numbers, i, level, span) > span.first[windows.of[level[LANE]]]
    return may


@kernel
def _search_partners(rows, i, search, windows, span, made, time, members):  # type: ignore[no-untyped-def]
    """Write the results that a row completes; how many there are then, -1 if there is no room."""
    lanes, numbers = windows.of.size, rows.numbers
    stream = np.int64(rows.stream[i])
    chosen, candidate = span.chosen, span.candidate
    chosen[stream] = i
    depth = 0
    level = search.levels[stream, 0]
    candidate[0] = _head(numbers, chosen[level[SOURCE]], level, span)
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
            candidate[depth] = _head(numbers, chosen[level[SOURCE]], level, span)
            continue
        if made == time.size:
            return np.int64(-1)
        time[made] = rows.time[i]
        for lane in range(lanes):
            members[made * lanes + lane] = rows.payload[chosen[lane]]
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
