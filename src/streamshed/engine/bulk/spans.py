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

AHEAD = 12
"""So many rows before one is entered the newest rows of its values are asked for."""
FAR, NEAR = 6, 3
"""So many newcomers before one is joined its first partner is asked for, then who that leads to."""
AT_ONCE = 128
"""So many rows are entered before those of them that may match are joined. Mostly a third may, and
which cannot be foretold."""

NEXT, MADE, WAITING, DONE = range(4)
"""The cursor of a span: the next row, the results made, the newcomers that may match of those
entered last, and how many of these are joined."""
CURSOR = 4

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
    links: npt.NDArray[np.int32]  # by row: its values, then for each the row before it, plus 1
    first: npt.NDArray[np.int64]  # by window: the oldest row within it
    candidate: npt.NDArray[np.int64]  # by level: the row that is tried, plus 1
    chosen: npt.NDArray[np.int64]  # by stream
    newcomer: npt.NDArray[np.int64]  # of those that may match: the row, and its first partner
    oldest: npt.NDArray[np.int64]  # by (newcomer, window): the oldest row that it may meet
    cursor: npt.NDArray[np.int64]


def empty_span(search: Search, rows: int, width: int, lanes: int, windows: int) -> Span:
    """A span of so many rows, none of which is entered."""
    return Span(
        np.zeros(search.heads, np.int32),
        np.empty((rows, 2 * width), np.int32),
        np.zeros(windows, np.int64),
        np.zeros(lanes, np.int64),
        np.zeros(lanes, np.int64),
        np.zeros((AT_ONCE, 2), np.int64),
        np.zeros((AT_ONCE, windows), np.int64),
        np.zeros(CURSOR, np.int64),
    )


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
def join_rows(rows, fresh, search, windows, span, time, members):  # type: ignore[no-untyped-def]
    """Join rows with those before them until all are done, or there is no room for results.

    Args:
        rows: in the order of time.
        fresh: the first row that completes results; those before it are only met.
        search: in which order partners are sought.
        windows: of the streams.
        span: how the rows so far hang together, and how many are done.
        time: of the results.
        members: of the results.
    """
    cursor = span.cursor
    cursor[MADE] = 0
    while True:
        if not _join_newcomers(rows, search, windows, span, time, members):
            return
        if cursor[NEXT] == rows.time.size:
            return
        _enter_some(rows, fresh, search, windows, span)


@kernel
def _enter_some(rows, fresh, search, windows, span):  # type: ignore[no-untyped-def]
    """Enter the next rows, and note which of them may match."""
    width = rows.numbers.shape[1]
    waiting = np.int64(0)
    begin = span.cursor[NEXT]
    end = min(begin + span.newcomer.shape[0], rows.time.size)
    for i in range(begin, end):
        _prefetch_heads(rows, i, search, span)
        for window in range(windows.lengths.size):
            _advance(rows.time, rows.time[i] - windows.lengths[window], span.first, window)
            span.oldest[waiting, window] = span.first[window]
        stream = np.int64(rows.stream[i])
        may = i >= fresh
        for which in range(search.direct.shape[1]):
            level = search.direct[stream, which]
            head = _head(span.heads, rows.numbers[i, level[SOURCE_PLACE]], level)
            may &= head > span.first[windows.of[level[LANE]]]
            if which == 0:
                span.newcomer[waiting, 1] = head
        span.newcomer[waiting, 0] = i
        waiting += np.int64(may)
        for place in range(width):
            own, number = search.own[stream, place], rows.numbers[i, place]
            head = own[0] + number * own[1]
            span.links[i, place] = number
            span.links[i, width + place] = span.heads[head]
            span.heads[head] = i + 1
    span.cursor[NEXT] = end
    span.cursor[WAITING] = waiting
    span.cursor[DONE] = 0


@kernel
def _prefetch_heads(rows, i, search, span):  # type: ignore[no-untyped-def]
    """Ask for the newest rows of the values of a row that comes soon."""
    if i + AHEAD < rows.time.size:
        later = np.int64(rows.stream[i + AHEAD])
        for place in range(search.own.shape[1]):
            own = search.own[later, place]
            prefetch(span.heads, own[0] + rows.numbers[i + AHEAD, place] * own[1])


@kernel
def _join_newcomers(rows, search, windows, span, time, members):  # type: ignore[no-untyped-def]
    """Join the newcomers that wait; False if there is no room for the results of one."""
    cursor = span.cursor
    while cursor[DONE] < cursor[WAITING]:
        _prefetch_partners(rows, search, span, cursor[DONE])
        more = _search_partners(rows, cursor[DONE], search, windows, span, time, members)
        if more < 0:
            return False
        cursor[MADE] = more
        cursor[DONE] += 1
    return True


@kernel
def _prefetch_partners(rows, search, span, which):  # type: ignore[no-untyped-def]
    """Ask for the first partners of newcomers that are joined soon."""
    waiting, words = span.cursor[WAITING], span.links.shape[1]
    if which + FAR < waiting:
        prefetch(span.links, (span.newcomer[which + FAR, 1] - 1) * words)
    if which + NEAR < waiting and search.levels.shape[1] > 1:
        row, partner = span.newcomer[which + NEAR, 0], span.newcomer[which + NEAR, 1] - 1
        level = search.levels[np.int64(rows.stream[row]), 1]
        source = row if level[SOURCE] == np.int64(rows.stream[row]) else partner
        number = span.links[source, level[SOURCE_PLACE]]
        prefetch(span.heads, level[HEAD] + number * level[STRIDE])


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
def _head(heads, number, level):  # type: ignore[no-untyped-def]
    """The newest row of a level's stream that has a value, plus 1."""
    return np.int64(heads[level[HEAD] + number * level[STRIDE]])


@kernel
def _first_candidate(span, i, level):  # type: ignore[no-untyped-def]
    """The newest row before a newcomer that a level may try, plus 1."""
    source = span.chosen[level[SOURCE]]
    found = _head(span.heads, span.links[source, level[SOURCE_PLACE]], level)
    while found > i:  # it came after the newcomer
        found = np.int64(span.links[found - 1, span.links.shape[1] // 2 + level[PLACE]])
    return found


@kernel
def _search_partners(rows, which, search, windows, span, time, members):  # type: ignore[no-untyped-def]
    """Write the results that a newcomer completes; how many there are then, -1 if without room."""
    lanes, width = windows.of.size, rows.numbers.shape[1]
    made = span.cursor[MADE]
    i = span.newcomer[which, 0]
    stream = np.int64(rows.stream[i])
    chosen, candidate = span.chosen, span.candidate
    chosen[stream] = i
    depth = 0
    candidate[0] = span.newcomer[which, 1]
    while depth >= 0:
        level = search.levels[stream, depth]
        row = candidate[depth] - 1
        if row < span.oldest[which, windows.of[level[LANE]]]:
            depth -= 1
            continue
        candidate[depth] = span.links[row, width + level[PLACE]]
        if not _agrees(span.links, chosen, row, search.compared[stream, depth]):
            continue
        chosen[level[LANE]] = row
        if depth < lanes - 2:
            depth += 1
            candidate[depth] = _first_candidate(span, i, search.levels[stream, depth])
            continue
        if made == time.size:
            return np.int64(-1)
        time[made] = rows.time[i]
        for lane in range(lanes):
            members[made * lanes + lane] = rows.payload[chosen[lane]]
        made += 1
    return made


@kernel
def _agrees(links, chosen, row, compared):  # type: ignore[no-untyped-def]
    """Whether a row has the values of those chosen, of attributes that were not looked up."""
    for which in range(compared.shape[0]):
        source = compared[which, 0]
        if source < 0:
            break
        if links[chosen[source], compared[which, 1]] != links[row, compared[which, 2]]:
            return False
    return True
