"""The sink that takes all partners of a row at once (SNJoin, figure 2, step 5).

Such an *output* stands for all results that a row makes: the choices of one of its partners from
each stream. So what is written grows with the partners, and not with their combinations. What an
output stands for is counted, estimated and learned from as ever.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import GROUPS, MIXED
from streamshed.engine.match.hooks import next_match
from streamshed.engine.sink import (
    ALL,
    EACH,
    MADE,
    MEMBERS,
    NO_ROOM,
    allocate_buffer,
    emit_product,
    extended,
    is_full,
    write,
)
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import ARRIVALS, NONE, PINNED, RESULTS
from streamshed.kernels.hooks import hears_results, on_result
from streamshed.kernels.table import ONE, key_lanes, lane_of, sweep_of

MOST_RESULTS = 1 << 62
"""Results are counted up to here: 20 streams with a thousand partners each make more of them than
an integer can say."""


class Factorised(NamedTuple):
    """The arrays of `Buffer`, with outputs in place of results.

    An output takes as many places as it has members: the newcomer first, then its partners, stream
    by stream. What is known of members says of which stream they are.
    """

    payload: npt.NDArray[np.int64]
    results: npt.NDArray[Any]
    late: npt.NDArray[Any]
    filled: npt.NDArray[np.int64]
    importance: npt.NDArray[np.float64]
    members: npt.NDArray[Any]


def allocate_factorised(results: int, width: int, rows: int) -> Factorised:
    """A buffer for so many outputs, if they have a width each, and the latecomers of some rows.

    Without room for outputs the results are only counted.
    """
    return Factorised(*allocate_buffer(results, width, rows, weighted=False, members=True))


@implements(emit_product, Factorised)
def _emit_product(out, core, matcher, policy, throttle, batch, work, i, shift):  # type: ignore[no-untyped-def]
    latest = _latest(core, batch, work, i)
    if not _is_product(core, batch, work, i, latest):
        return EACH
    partners = _partners(work)
    if is_full(out, partners + 1):
        return NO_ROOM
    if out.results.size > 0:
        place = _begin(out, batch, i)
        for partner in range(partners):
            place = _add(out, core, work.partners[partner], place)
        _end(out, core, place, latest, _extended(core, work))
    _count(core, work)
    if hears_results(throttle) or hears_results(policy):
        _tell_each(core, matcher, policy, throttle, batch, work, i, shift)
    return ALL


@implements(write, Factorised)
def _write(out, core, matcher, batch, work, i, latest, importance):  # type: ignore[no-untyped-def]
    """Take a result as an output with one partner of each stream."""
    if out.results.size > 0:
        place = _begin(out, batch, i)
        for group in range(work.cursor[GROUPS]):
            place = _add(out, core, work.groups[group].row, place)
        extends = extended(core, work, work.cursor[GROUPS]) if core.settings.by else NONE
        _end(out, core, place, latest, extends)


@kernel
def _begin(out, batch, i):  # type: ignore[no-untyped-def]
    """Take the newcomer of an output; returns the place of the next member."""
    place = out.filled[MEMBERS]
    out.payload[place] = batch.payload[i]
    out.members[place].time = batch.time[i]
    out.members[place].stream = batch.stream[i]
    return place + 1


@kernel
def _add(out, core, row, place):  # type: ignore[no-untyped-def]
    """Take a partner; returns the place of the next member."""
    out.payload[place] = core.rows[row].payload
    out.members[place].time = core.rows[row].time
    out.members[place].stream = core.rows[row].stream
    return place + 1


@kernel
def _end(out, core, place, latest, extends):  # type: ignore[no-untyped-def]
    made = out.filled[MADE]
    out.filled[MEMBERS] = place
    out.results[made].end = place
    out.results[made].time = latest
    out.results[made].update = core.numbers[ARRIVALS] - 1
    out.results[made].extends = extends
    out.filled[MADE] = made + 1


@kernel
def _partners(work):  # type: ignore[no-untyped-def]
    """How many partners of the row at hand were collected."""
    return work.groups[work.cursor[GROUPS]].start


@kernel
def _count(core, work):  # type: ignore[no-untyped-def]
    """Count the results of all choices of partners."""
    number = 1
    for group in range(work.cursor[GROUPS]):
        size = work.groups[group + 1].start - work.groups[group].start
        number = MOST_RESULTS if number > MOST_RESULTS // size else number * size
    core.numbers[RESULTS] += min(number, MOST_RESULTS - core.numbers[RESULTS])


@kernel
def _tell_each(core, matcher, policy, throttle, batch, work, i, shift):  # type: ignore[no-untyped-def]
    """Tell of each result those who learn from them one by one."""
    key, stream, time = core.numbers[PINNED], batch.stream[i], batch.time[i]
    pattern = key_lanes(core, key) | (ONE << np.uint64(lane_of(core, stream)))
    groups = work.cursor[GROUPS]
    while next_match(matcher, throttle, core, batch, work, i, shift):
        on_result(throttle, core, key, stream, time, pattern, work.groups, groups)
        on_result(policy, core, key, stream, time, pattern, work.groups, groups)


@kernel
def _latest(core, batch, work, i):  # type: ignore[no-untyped-def]
    """The time of the latest of the row at hand and all its partners."""
    latest = batch.time[i]
    if work.cursor[MIXED] != 0:
        for partner in range(_partners(work)):
            latest = max(latest, core.rows[work.partners[partner]].time)
    return latest


@kernel
def _is_product(core, batch, work, i, latest):  # type: ignore[no-untyped-def]
    """Whether every choice of partners is a result: all are within their windows together.

    Where some are newer than the row at hand, not all need be so with each other.
    """
    if work.cursor[MIXED] == 0 or not core.settings.complete:
        return True
    if latest - batch.time[i] > core.lanes[batch.stream[i]].window:
        return False
    for partner in range(_partners(work)):
        row = work.partners[partner]
        if latest - core.rows[row].time > core.lanes[core.rows[row].stream].window:
            return False
    return True


@kernel
def _extended(core, work):  # type: ignore[no-untyped-def]
    """The arrival whose output had all partners but those of its own stream, or NONE.

    It is that of the youngest partner, if there are enough and all others were its partners.
    """
    if not core.settings.by or work.cursor[GROUPS] < core.settings.at_least:
        return NONE
    rows = core.rows
    youngest = work.partners[0]
    for partner in range(1, _partners(work)):
        if rows[work.partners[partner]].arrival > rows[youngest].arrival:
            youngest = work.partners[partner]
    time = rows[youngest].time
    reach = core.lanes[sweep_of(core, rows[youngest].stream)].window
    for partner in range(_partners(work)):
        row = work.partners[partner]
        if rows[row].stream != rows[youngest].stream:
            ahead = rows[row].time - time
            if ahead > reach or -ahead > core.lanes[sweep_of(core, rows[row].stream)].window:
                return NONE
    return rows[youngest].arrival
