"""Windows of numbers cut into basic windows, each in order of value: the index of an ε-join.

A basic window holds the rows of one lane that came in a part of its window's time (sections IV-A
and VII of the GrubJoin paper), up to a number; while there are few, a basic window goes on over
several such parts. Rows that come out of order go into the newest. Their values stand in order, so
that those near a value are found by two searches, and their times do too, so that it is known how
many are within a span of time. Basic windows of a lane are a list, from the oldest to the newest,
and go with their last row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.gate.hooks import (
    count_probed,
    count_sampled,
    is_probed,
    is_span_probed,
)
from streamshed.engine.match.pairs import (
    agree,
    enter,
    mine,
    seek,
    stage,
    take_out,
)
from streamshed.kernels.bounds import partner_times
from streamshed.kernels.compiling import cold_kernel, implements, kernel
from streamshed.kernels.core import NONE, Field

WINDOW_ROWS = 1024
"""Rows of a basic window."""
FEW = 64
"""With fewer a basic window goes on when its part of time is over."""
SPARSE = 32
"""Two neighbours with no more rows together become one."""

BASIC = np.dtype(
    [
        ("size", np.int32),
        ("before", np.int32),  # the next older one
        ("after", np.int32),
        ("part", np.int64),  # the part of time in which it was opened
    ],
    align=True,
)

SIDE = np.dtype([("oldest", np.int32), ("newest", np.int32), ("part", np.int64)], align=True)
"""Of a lane: its basic windows, and how much time belongs to one."""


class SortedWindows(NamedTuple):
    """The basic windows of all lanes; unused ones hang together by `after`."""

    values: npt.NDArray[np.float64]  # by (basic window, place): in order
    rows: npt.NDArray[np.int32]  # beside them
    times: npt.NDArray[np.int64]  # by (basic window, place): in order of their own
    basic: npt.NDArray[Any]
    sides: npt.NDArray[Any]  # by lane
    free: npt.NDArray[np.int64]  # the first unused basic window, and how many were ever used
    value_of: npt.NDArray[np.float64]  # by row, and last the newcomer's
    basic_of: npt.NDArray[np.int32]  # by row
    distance: float


def sorted_layout(basic: int, dtype: npt.DTypeLike = np.float64) -> dict[str, Field]:
    """The arrays, with room for so many basic windows in order of values of a type."""
    return {
        "values": Field("once", dtype, None, basic * WINDOW_ROWS),
        "rows": Field("once", np.int32, None, basic * WINDOW_ROWS),
        "times": Field("once", np.int64, None, basic * WINDOW_ROWS),
        "basic": Field("once", BASIC, None, basic),
        "sides": Field("lane", SIDE, NONE),
        "free": Field("once", np.int64, 0, 2),
        "value_of": Field("key", dtype, None),
        "basic_of": Field("key", np.int32, None),
    }


def more_room(rows: int, lanes: int) -> int:
    """The basic windows that so many rows may open: each but the first of a lane follows FEW."""
    return rows // FEW + lanes + 1


@implements(mine, SortedWindows)
def _mine(index):  # type: ignore[no-untyped-def]
    return index.value_of.size - 1


@implements(stage, SortedWindows)
def _stage(index, batch, i):  # type: ignore[no-untyped-def]
    index.value_of[index.value_of.size - 1] = batch.values[i]


@implements(agree, SortedWindows)
def _agree(index, one, other):  # type: ignore[no-untyped-def]
    return abs(index.value_of[one] - index.value_of[other]) <= index.distance


@implements(enter, SortedWindows)
@cold_kernel
def enter_row(index, core, row):  # type: ignore[no-untyped-def]
    """Put the newcomer's row into the newest basic window of its lane, or begin one with it."""
    index.value_of[row] = index.value_of[index.value_of.size - 1]
    lane, time = core.rows[row].stream, core.rows[row].time
    part = time // index.sides[lane].part
    newest = np.int64(index.sides[lane].newest)
    if newest == NONE:
        newest = _open(index, lane, part)
    else:
        full = index.basic[newest].size == WINDOW_ROWS
        if full or (index.basic[newest].size >= FEW and index.basic[newest].part != part):
            newest = _open(index, lane, part)
    _put(index, newest, row, time)


@kernel
def _open(index, lane, part):  # type: ignore[no-untyped-def]
    """Begin a basic window."""
    basic = index.basic
    place = index.free[0] - 1
    if place >= 0:
        index.free[0] = np.int64(basic[place].after) + 1
    else:
        place = index.free[1]
        index.free[1] += 1
    basic[place].size = 0
    basic[place].part = part
    basic[place].after = NONE
    before = index.sides[lane].newest
    basic[place].before = before
    if before == NONE:
        index.sides[lane].oldest = place
    else:
        basic[before].after = place
    index.sides[lane].newest = place
    return place


@kernel
def _close(index, lane, place):  # type: ignore[no-untyped-def]
    """Let go of a basic window that is empty."""
    basic = index.basic
    before, after = basic[place].before, basic[place].after
    if before == NONE:
        index.sides[lane].oldest = after
    else:
        basic[before].after = after
    if after == NONE:
        index.sides[lane].newest = before
    else:
        basic[after].before = before
    basic[place].after = index.free[0] - 1
    index.free[0] = place + 1


@cold_kernel
def _put(index, place, row, time):  # type: ignore[no-untyped-def]
    """Put a row into a basic window, where its value and its time belong."""
    values, rows, times = index.values, index.rows, index.times
    value = index.value_of[row]
    start = place * WINDOW_ROWS
    end = start + index.basic[place].size
    at = end
    if end > start and values[end - 1] > value:
        at = first_above(values, start, end, value)
        for k in range(end, at, -1):
            values[k] = values[k - 1]
        for k in range(end, at, -1):
            rows[k] = rows[k - 1]
    values[at] = value
    rows[at] = row
    at = end
    while at > start and times[at - 1] > time:
        times[at] = times[at - 1]
        at -= 1
    times[at] = time
    index.basic[place].size += 1
    index.basic_of[row] = place


@implements(take_out, SortedWindows)
@cold_kernel
def take_out_row(index, core, row):  # type: ignore[no-untyped-def]
    """Take a row out of its basic window, which goes if it was the last."""
    values, rows, times, basic = index.values, index.rows, index.times, index.basic
    place = np.int64(index.basic_of[row])
    lane = core.rows[row].stream
    start = place * WINDOW_ROWS
    last = start + basic[place].size - 1
    basic[place].size -= 1
    if last == start:
        _close(index, lane, place)
        return
    at = first_above(values, start, last + 1, index.value_of[row]) - 1
    while rows[at] != row:
        at -= 1
    for k in range(at, last):
        values[k] = values[k + 1]
    for k in range(at, last):
        rows[k] = rows[k + 1]
    at = first_above(times, start, last + 1, core.rows[row].time) - 1
    for k in range(at, last):
        times[k] = times[k + 1]
    after = np.int64(basic[place].after)
    if after != NONE and basic[place].size + basic[after].size <= SPARSE:
        _join(index, core, lane, place, after)
        place = after
    before = np.int64(basic[place].before)
    if before != NONE and basic[before].size + basic[place].size <= SPARSE:
        _join(index, core, lane, before, place)


@cold_kernel
def _join(index, core, lane, place, other):  # type: ignore[no-untyped-def]
    """Move the few rows of a basic window to another."""
    start = place * WINDOW_ROWS
    for k in range(start, start + index.basic[place].size):
        row = np.int64(index.rows[k])
        _put(index, other, row, core.rows[row].time)
    _close(index, lane, place)


@kernel
def first_above(values, start, end, value):  # type: ignore[no-untyped-def]
    """Where the first of some values in order stands that is above a value; the end if none is."""
    while start < end:
        middle = (start + end) >> 1
        if values[middle] > value:
            end = middle
        else:
            start = middle + 1
    return start


@kernel
def _first_near(values, start, end, value, distance):  # type: ignore[no-untyped-def]
    """Where the first of some values in order stands that is no farther below a value."""
    while start < end:
        middle = (start + end) >> 1
        if value - values[middle] > distance:
            start = middle + 1
        else:
            end = middle
    return start


@kernel
def next_probed(index, throttle, stream, lane, time, earliest, latest, place):  # type: ignore[no-untyped-def]
    """The newest basic window, from one on, that may hold partners of a newcomer, or NONE.

    Args:
        index: the basic windows.
        throttle: says which parts of the window are probed.
        stream: of the newcomer.
        lane: whose basic windows they are.
        time: of the newcomer.
        earliest: the least time of a partner.
        latest: the largest.
        place: the basic window to begin with, or NONE.
    """
    while place != NONE:
        start = place * WINDOW_ROWS
        oldest, newest = index.times[start], index.times[start + index.basic[place].size - 1]
        in_reach = newest >= earliest and oldest <= latest
        if in_reach and is_span_probed(throttle, stream, lane, time - newest, time - oldest):
            return place
        place = np.int64(index.basic[place].before)
    return np.int64(NONE)


@kernel
def places_within(index, place, earliest, latest):  # type: ignore[no-untyped-def]
    """From where, and up to where, the times of a basic window are within two."""
    first = place * WINDOW_ROWS
    end = first + index.basic[place].size
    if index.times[first] < earliest:
        first = first_above(index.times, first, end, earliest - 1)
    if index.times[end - 1] > latest:
        end = first_above(index.times, first, end, latest)
    return first, end


@implements(seek, SortedWindows)
def _seek(index, core, throttle, selectivity, batch, work, i, key, lane, step, filled):  # type: ignore[no-untyped-def]
    time, stream = batch.time[i], batch.stream[i]
    earliest, latest = partner_times(core, stream, time, lane)
    value, distance = index.value_of[index.value_of.size - 1], index.distance
    values = index.values
    looked = 0
    place = np.int64(index.sides[lane].newest)
    while True:
        place = next_probed(index, throttle, stream, lane, time, earliest, latest, place)
        if place == NONE:
            break
        first, last = places_within(index, place, earliest, latest)
        looked += count_probed(throttle, stream, lane, time, index.times, first, last)
        start = place * WINDOW_ROWS
        end = start + index.basic[place].size
        k = _first_near(values, start, end, value, distance)
        while k < end and values[k] - value <= distance:
            row = np.int64(index.rows[k])
            met = core.rows[row].time
            if earliest <= met <= latest and is_probed(
                throttle, core, stream, lane, time - met, row
            ):
                work.partners[filled] = row
                filled += 1
            k += 1
        place = np.int64(index.basic[place].before)
    selectivity.looked[step] = count_sampled(throttle, stream, lane, looked)
    return filled
