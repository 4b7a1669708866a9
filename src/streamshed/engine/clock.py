"""The clock: the time seen of each stream, which rows are late, and which have expired."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamshed.engine.gate.hooks import useless_row
from streamshed.engine.match.hooks import expire_useless
from streamshed.engine.sink import write_late
from streamshed.engine.store import count, remove, remove_apart
from streamshed.engine.unmatched import on_filtered, on_leaving
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.core import (
    ALL_STAY_UNTIL,
    ARRIVALS,
    ARRIVED,
    BOUNDLESS,
    CLOCK,
    EXPIRED,
    FATES,
    FILTERED,
    FIRST_SEEN,
    LATE,
    NEVER,
    NEWEST,
    NONE,
    OVERDUE,
    RUN_ROWS,
    RUN_STREAM,
    RUN_TIME,
    SHED,
)
from streamshed.kernels.lanes import oldest, stays_until
from streamshed.kernels.table import lane_of

ENOUGH_ROWS = 64
"""So many rows ahead of all others, one after the other, move the clock even if all are of one
stream: there may be no other."""
FEW_STREAMS = 4
SWEEP_EVERY = 128
"""Where nothing is ever shed, one arrival in so many looks for rows to expire: those that should
have left never match. Looking at each arrival costs more, as the processor cannot foretell how many
rows leave. At the end of a batch all have left."""
FARTHEST = 1_024
"""For so many rows, the memory is asked that they need to leave, before they do."""


@kernel
def arrive(core, matcher, policy, batch, out, i, shift):  # type: ignore[no-untyped-def]
    """Count, filter, turn away what is late, advance the clock, expire; False if that was all."""
    stream = batch.stream[i]
    time = batch.time[i]
    numbers = core.numbers
    numbers[ARRIVALS] += 1
    at_home = not is_visitor(batch, i)
    if at_home:
        count(core, stream, ARRIVED, 1)
    if batch.null.size > 0 and batch.null[i]:
        if at_home:
            count(core, stream, FILTERED, 1)
            on_filtered(core, batch, i)
        return False
    if core.settings.timed:
        clock = numbers[CLOCK]
        if clock != NEVER and clock - time > core.settings.late:
            if at_home:
                count(core, stream, LATE, 1)
                write_late(out, batch, i)
            return False
        overdue = numbers[OVERDUE]
        lane, trusted = lane_of(core, stream), trusted_time(core, stream, time)
        moved = advance_stream(core, lane, trusted) or overdue != 0
        # Who lets the clock begin, by a time of another stream, may be behind it already.
        began = moved and clock == NEVER
        if moved:
            numbers[OVERDUE] = np.int64(began)
        if core.settings.lazy and not began:
            moved = numbers[ARRIVALS] % SWEEP_EVERY == 0
        if moved:
            expire(core, matcher, policy, shift)
    else:
        numbers[NEWEST] = max(numbers[NEWEST], time)  # for whoever bounds the work in time
    return True


@kernel
def is_visitor(batch, i):  # type: ignore[no-untyped-def]
    """Whether a row is stored and accounted for elsewhere, and only probes here."""
    return batch.visiting.size > 0 and batch.visiting[i]


@kernel
def trusted_time(core, stream, time):  # type: ignore[no-untyped-def]
    """The time to which a row moves the clock: its own, unless it is ahead of all others.

    Then it is one of a run, which moves the clock once two streams, or many rows, agree.
    """
    numbers, ahead = core.numbers, core.settings.ahead
    newest = numbers[NEWEST]
    if ahead == BOUNDLESS or newest == NEVER or time - newest <= ahead:
        numbers[RUN_ROWS] = 0
        return time
    if numbers[RUN_ROWS] == 0:
        _begin_run(core, stream, time)
        return newest
    numbers[RUN_ROWS] += 1
    numbers[RUN_TIME] = min(numbers[RUN_TIME], time)
    if stream == numbers[RUN_STREAM] and numbers[RUN_ROWS] < ENOUGH_ROWS:
        return newest
    agreed = numbers[RUN_TIME]
    numbers[RUN_ROWS] = 0
    if time - agreed <= ahead:
        return time
    _begin_run(core, stream, time)
    return agreed


@kernel
def _begin_run(core, stream, time):  # type: ignore[no-untyped-def]
    core.numbers[RUN_ROWS] = 1
    core.numbers[RUN_STREAM] = stream
    core.numbers[RUN_TIME] = time


def agreed_time(times: Sequence[int], newest: int, ahead: int | None) -> int:
    """The newest of times that several others have seen; if it is ahead, as far as two agree.

    Args:
        times: what each of them has seen, `NEVER` for nothing.
        newest: the newest time seen here.
        ahead: how far one of them may be ahead on its own.
    """
    known = sorted(int(time) for time in times if time != NEVER)
    if ahead is None:
        return known[-1] if known else NEVER
    for place, time in enumerate(known, 1):
        if place < len(known) or (newest != NEVER and time - newest <= ahead):
            newest = max(newest, time)
    return newest


@kernel
def advance_stream(core, lane, time):  # type: ignore[no-untyped-def]
    """Let a stream's time go on; True if the clock did."""
    numbers = core.numbers
    before = core.lanes[lane].newest
    if numbers[FIRST_SEEN] == NEVER:
        numbers[FIRST_SEEN] = time
    if time <= before:
        return False
    core.lanes[lane].newest = time
    numbers[NEWEST] = max(numbers[NEWEST], time)
    clock = numbers[CLOCK]
    if core.settings.clock_max or core.settings.lanes == 1:
        numbers[CLOCK] = numbers[NEWEST]
        return numbers[CLOCK] != clock
    slowest = np.int64(BOUNDLESS)
    if core.settings.idle == BOUNDLESS:
        # Only the slowest stream can hold the clock back. Of few streams it is faster to look for
        # it each time: whether it is this one cannot be foretold.
        if core.settings.lanes > FEW_STREAMS and before > clock != NEVER:
            return False
        for other in range(core.settings.lanes):
            slowest = min(slowest, core.lanes[other].newest)
        moved = slowest > clock
        numbers[CLOCK] = slowest if moved else clock
        return moved
    for other in range(core.settings.lanes):
        seen = core.lanes[other].newest
        since = numbers[FIRST_SEEN] if seen == NEVER else seen
        if numbers[NEWEST] - since <= core.settings.idle:
            if seen == NEVER:
                return False
            slowest = min(slowest, seen)
    if slowest > clock:
        numbers[CLOCK] = slowest
        return True
    return False


@kernel
def expire(core, matcher, policy, shift):  # type: ignore[no-untyped-def]
    """Remove every row that the clock has left behind."""
    lazy, numbers = core.settings.lazy, core.numbers
    if not lazy and numbers[CLOCK] <= numbers[ALL_STAY_UNTIL]:
        return
    until = np.int64(BOUNDLESS)
    for lane in range(core.settings.sweeps):
        until = min(until, _expire_lane(core, matcher, policy, lane, shift))
        if lazy:
            _look_ahead(core, lane)
    numbers[ALL_STAY_UNTIL] = until


@cold_kernel
def expire_apart(core, matcher, policy, shift):  # type: ignore[no-untyped-def]
    """The same where it is seldom done: the code for it is there once for all who call this."""
    expire(core, matcher, policy, shift)


@kernel
def _look_ahead(core, lane):  # type: ignore[no-untyped-def]
    """Begin anew with the oldest row if that whose memory is asked for next has left, or is far."""
    rows = core.rows
    first, ahead = np.int64(core.lanes[lane].first), np.int64(core.lanes[lane].ahead)
    near = min(first, ahead) != NONE and rows[ahead].arrival != NONE
    if not near or rows[ahead].arrival - rows[first].arrival > FARTHEST:
        core.lanes[lane].ahead = first


@kernel
def _expire_lane(core, matcher, policy, lane, shift):  # type: ignore[no-untyped-def]
    """Remove every row of a lane that the clock has left behind; returns until when all stay."""
    while True:
        row = oldest(core, lane)
        if row == NONE:
            return np.int64(BOUNDLESS)
        until = stays_until(core, lane, row)
        if core.numbers[CLOCK] <= until:
            return until
        count(core, core.rows[row].stream, EXPIRED, 1)
        on_leaving(core, row, False)
        remove(core, matcher, policy, row, shift)


@kernel
def drop_useless(core, matcher, policy, throttle, shift):  # type: ignore[no-untyped-def]
    """Remove stored rows that no fact, or no throttle, will ever let a newcomer meet."""
    expire_useless(matcher, policy, core, shift)
    for lane in range(core.settings.lanes):
        row = useless_row(throttle, core, lane)
        while row != NONE:
            count(core, lane, SHED, 1)
            remove_apart(core, matcher, policy, row, shift)
            row = useless_row(throttle, core, lane)


# -- row windows ----------------------------------------------------------------------------------


@kernel
def recent_place(core, stream):  # type: ignore[no-untyped-def]
    """Where the newest row of a stream with a row window stands in its ring."""
    lane = lane_of(core, stream)
    last = core.lanes[lane].last
    counts, base = core.counts, stream * FATES
    entered = counts[base + ARRIVED] - counts[base + FILTERED] - counts[base + LATE]
    start = stream * last if core.settings.by else core.lanes[lane].recent
    return start + (entered - 1) % last


@kernel
def note_recent(core, stream, arrival, row):  # type: ignore[no-untyped-def]
    """Remember a row of a stream that has a row window."""
    if core.lanes[lane_of(core, stream)].last > 0:
        place = recent_place(core, stream)
        core.recent[place].arrival = arrival
        core.recent[place].row = row
