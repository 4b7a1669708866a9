"""The rows of a lane in order of age, so that the oldest is always at hand.

Rows that come in order form a list; the few that come out of order wait in a heap beside it.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import ALL_STAY_UNTIL, BOUNDLESS, NEWEST, NONE, Core
from streamshed.kernels.heap import heap_push, heap_remove, heap_top
from streamshed.kernels.hooks import precedes

OUT_OF_ORDER = -2
"""Stands in a row's `before` when the row waits in the heap."""


@kernel
def older_row(core, row, other):  # type: ignore[no-untyped-def]
    """Whether a row is older than another: by time, then by arrival."""
    time, other_time = core.rows[row].time, core.rows[other].time
    if time != other_time:
        return time < other_time
    return core.rows[row].arrival < core.rows[other].arrival


@implements(precedes, Core)
def _(policy, core, item, other):  # type: ignore[no-untyped-def]
    return older_row(core, item, other)


@kernel
def oldest(core, lane):  # type: ignore[no-untyped-def]
    """The oldest row of a lane, or NONE."""
    first = core.lanes[lane].first
    if core.sizes[lane] == 0:
        return first
    waiting = heap_top(core, lane)
    if first == NONE or older_row(core, waiting, first):
        return waiting
    return first


@kernel
def oldest_of_pool(core, pool, outside=False):  # type: ignore[no-untyped-def]
    """The oldest row of all lanes that share a budget, or NONE.

    Args:
        core: the state of the join.
        pool: the lanes, by their budget.
        outside: whether to look only for rows that the newest time seen has left behind.
    """
    if core.settings.pools > 1 or core.settings.sweeps == 1:
        return _oldest_of_lane(core, pool, outside)
    found = NONE
    for lane in range(core.settings.sweeps):
        row = _oldest_of_lane(core, lane, outside)
        if row != NONE and (found == NONE or older_row(core, row, found)):
            found = row
    return found


@kernel
def _oldest_of_lane(core, lane, outside):  # type: ignore[no-untyped-def]
    row = oldest(core, lane)
    if not outside or row == NONE:
        return row
    is_inside = core.numbers[NEWEST] - core.rows[row].time <= core.lanes[lane].window
    return NONE if is_inside else row


@kernel
def stays_until(core, lane, row):  # type: ignore[no-untyped-def]
    """The last time of the clock at which a row of a lane has not expired."""
    longest = core.lanes[lane].window + core.settings.late
    return core.rows[row].time + longest if longest < BOUNDLESS else np.int64(BOUNDLESS)


@kernel
def _note_oldest(core, lane, row):  # type: ignore[no-untyped-def]
    """A row is new that may be the first of all to expire."""
    until = core.numbers[ALL_STAY_UNTIL]
    core.numbers[ALL_STAY_UNTIL] = min(until, stays_until(core, lane, row))


@kernel
def lane_append(core, lane, row):  # type: ignore[no-untyped-def]
    """Put a new row into its lane."""
    rows = core.rows
    end = core.lanes[lane].end
    if end != NONE and rows[row].time < rows[end].time:
        rows[row].before = OUT_OF_ORDER
        heap_push(core, core, lane, row)
        _note_oldest(core, lane, row)
        return
    rows[row].before = end
    rows[row].after = NONE
    if end == NONE:
        core.lanes[lane].first = row
        _note_oldest(core, lane, row)
    else:
        rows[end].after = row
    core.lanes[lane].end = row


@kernel
def lane_remove(core, lane, row):  # type: ignore[no-untyped-def]
    """Take a row out of its lane."""
    rows = core.rows
    before, after = rows[row].before, rows[row].after
    if before == OUT_OF_ORDER:
        heap_remove(core, core, lane, row)
        return
    if before == NONE:
        core.lanes[lane].first = after
    else:
        rows[before].after = after
    if after == NONE:
        core.lanes[lane].end = before
    else:
        rows[after].before = before
