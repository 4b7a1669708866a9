"""The loop of the keyed join: expire, probe, emit, admit, shed while full, insert.

Written once; policies take part by their hooks. Tuples are processed one after the other, as
docs/meaning.md says, and the loop can be left and entered again in the middle of a tuple's results.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import driver, kernel, loop
from streamshed.kernels.core import (
    ARRIVALS,
    ARRIVED,
    BOUNDLESS,
    CLOCK,
    EXPIRED,
    FATES,
    FILTERED,
    FIRST_SEEN,
    FREE_ROW,
    LATE,
    NEVER,
    NEWEST,
    NONE,
    PINNED,
    ROWS_USED,
    SHED,
    STORED,
)
from streamshed.kernels.hooks import admits, inserted, mark, removed, restored, victim
from streamshed.kernels.lanes import lane_append, lane_remove, older_row, oldest
from streamshed.kernels.machine import prefetch
from streamshed.kernels.table import (
    ONE,
    add_key,
    add_occurrence,
    drop_key,
    find_key,
    home_shift,
    key_count,
    key_hash,
    key_head,
    key_lanes,
    lane_of,
    pool_of,
    remove_occurrence,
)
from streamshed.operators.buffers import EMITTING, GROUPS, LATECOMERS, NEXT, SHIFT
from streamshed.operators.probing import emit, gather

DONE, SUSPENDED = 0, 1

CACHED = 1 << 14
"""Directories up to this size, and what hangs below them, stay in the cache by themselves."""


@loop
def run(core, policy, batch, work, out):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it, until it is done or the output buffer is full."""
    cursor = work.cursor
    cursor[SHIFT] = np.int64(home_shift(core.table))
    for i in range(cursor[NEXT], batch.time.size):
        if cursor[EMITTING] == 0:
            if core.table.size > CACHED:
                _look_ahead(core, batch, i, np.uint64(cursor[SHIFT]))
            if not _arrive(core, policy, batch, out, i, cursor[SHIFT]):
                continue
            key = _pin(core, batch.hash[i], np.uint64(cursor[SHIFT]))
            gather(core, batch, work, i, key)
        key = core.numbers[PINNED]
        if cursor[GROUPS] > 0:
            if not emit(core, policy, batch, work, out, i, key):
                cursor[NEXT] = i
                cursor[EMITTING] = 1
                return SUSPENDED
            cursor[EMITTING] = 0
        _settle(core, policy, batch, i, key, np.uint64(cursor[SHIFT]))
    cursor[NEXT] = 0
    return DONE


@kernel
def _look_ahead(core, batch, i, shift):  # type: ignore[no-untyped-def]
    """Ask for the memory that the next tuples will need while this one is worked on.

    With windows larger than the cache this halves the time of a tuple.
    """
    words = core.settings.key_words
    if i + 12 < batch.hash.size:
        prefetch(core.table, np.int64(batch.hash[i + 12] >> shift))
        prefetch(core.keys, _likely_key(core, batch.hash[i + 8], shift) * words)
        key = _likely_key(core, batch.hash[i + 4], shift)
        prefetch(core.rows, max(0, key_head(core, key, lane_of(core, batch.stream[i + 4]))))
    first = core.lanes[lane_of(core, batch.stream[i])].first
    if first == NONE:
        return
    # The rows of this lane that expire next: their keys' places, and the rows themselves.
    prefetch(core.table, np.int64(key_hash(core, core.rows[first].key) >> shift))
    second = core.rows[first].after
    if second != NONE:
        prefetch(core.keys, core.rows[second].key * words)
        prefetch(core.rows, core.rows[second].older)
        prefetch(core.rows, max(0, core.rows[second].after))


@kernel
def _likely_key(core, hashed, shift):  # type: ignore[no-untyped-def]
    """The key that stands where a hash would be sought first, or any if there is none.

    Without a branch: whether a key is there cannot be foretold, and a wrong guess of the processor
    costs more than a prefetch in vain.
    """
    entry = core.table[np.int64(hashed >> shift)] & np.uint64(0xFFFFFFFF)
    return max(0, np.int64(entry) - 1)


@kernel
def _count(core, stream, fate, change):  # type: ignore[no-untyped-def]
    core.counts[stream * FATES + fate] += change


@kernel
def _arrive(core, policy, batch, out, i, shift):  # type: ignore[no-untyped-def]
    """Count, filter, turn away what is late, advance the clock, expire; False if that was all."""
    stream = batch.stream[i]
    time = batch.time[i]
    lane = lane_of(core, stream)
    numbers = core.numbers
    numbers[ARRIVALS] += 1
    _count(core, stream, ARRIVED, 1)
    if batch.null.size > 0 and batch.null[i]:
        _count(core, stream, FILTERED, 1)
        return False
    if core.settings.timed:
        clock = numbers[CLOCK]
        if clock != NEVER and clock - time > core.settings.late:
            _count(core, stream, LATE, 1)
            out.late[out.filled[LATECOMERS]] = i
            out.filled[LATECOMERS] += 1
            return False
        if _advance(core, lane, time):
            _expire(core, policy, shift)
    if core.lanes[lane].last > 0:
        _push_out(core, policy, stream, shift)
    return True


@kernel
def _advance(core, lane, time):  # type: ignore[no-untyped-def]
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
    # Without idle streams only the slowest stream can hold the clock back.
    if core.settings.idle == BOUNDLESS and before != NEVER and before > clock != NEVER:
        return False
    slowest = np.int64(BOUNDLESS)
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
def _expire(core, policy, shift):  # type: ignore[no-untyped-def]
    """Let go of every row that the clock has left behind."""
    clock = core.numbers[CLOCK]
    for lane in range(core.settings.lanes):
        if core.lanes[lane].last > 0:
            continue
        longest = core.lanes[lane].window + core.settings.late
        while True:
            row = oldest(core, lane)
            if row == NONE or clock - core.rows[row].time <= longest:
                break
            _count(core, core.rows[row].stream, EXPIRED, 1)
            _remove(core, policy, row, np.uint64(shift))


@kernel
def _recent_place(core, stream):  # type: ignore[no-untyped-def]
    """Where the newest row of a stream with a row window stands in its ring."""
    lane = lane_of(core, stream)
    last = core.lanes[lane].last
    counts, base = core.counts, stream * FATES
    entered = counts[base + ARRIVED] - counts[base + FILTERED] - counts[base + LATE]
    start = stream * last if core.settings.by else core.lanes[lane].recent
    return start + (entered - 1) % last


@kernel
def _push_out(core, policy, stream, shift):  # type: ignore[no-untyped-def]
    """Let a stream's row window move on by the row that has arrived."""
    place = _recent_place(core, stream)
    arrival, row = core.recent[place].arrival, core.recent[place].row
    core.recent[place].arrival = NONE
    if arrival != NONE and core.rows[row].arrival == arrival:
        _count(core, stream, EXPIRED, 1)
        _remove(core, policy, row, np.uint64(shift))


@kernel
def _pin(core, hashed, shift):  # type: ignore[no-untyped-def]
    """Find or enter a key, and hold it while its tuple is processed, even if its rows all leave."""
    key = find_key(core, hashed, shift)
    if key == NONE:
        key = add_key(core, hashed, shift)
    core.numbers[PINNED] = key
    return key


@kernel
def _remove(core, policy, row, shift):  # type: ignore[no-untyped-def]
    """Take a row out of everything."""
    rows = core.rows
    stream, key = rows[row].stream, rows[row].key
    lane, pool = lane_of(core, stream), pool_of(core, stream)
    remove_occurrence(core, lane, row)
    lane_remove(core, lane, row)
    if core.pools[pool].budget < BOUNDLESS:
        removed(policy, core, row)
    core.pools[pool].held -= 1
    _count(core, stream, STORED, -1)
    if key_count(core, key) == 0 and key != core.numbers[PINNED]:
        drop_key(core, key, shift)
    rows[row].arrival = NONE
    rows[row].after = core.numbers[FREE_ROW]
    core.numbers[FREE_ROW] = row


@kernel
def _settle(core, policy, batch, i, key, shift):  # type: ignore[no-untyped-def]
    """Admit the tuple, shed while its pool is full, and store it."""
    stream = batch.stream[i]
    pool = pool_of(core, stream)
    worth = batch.worth[i] if batch.worth.size > 0 else 0
    arrival = core.numbers[ARRIVALS] - 1
    pattern = key_lanes(core, key) | (ONE << np.uint64(lane_of(core, stream)))
    bounded = core.pools[pool].budget < BOUNDLESS
    while bounded and core.pools[pool].held >= core.pools[pool].budget:
        row = _outside(core, pool)
        if row == NONE:
            if not admits(policy, core, pool, worth):
                _count(core, stream, SHED, 1)
                _unpin(core, key, shift)
                return
            row = victim(policy, core, pool, arrival)
        _count(core, core.rows[row].stream, SHED, 1)
        _remove(core, policy, row, shift)
    row = _store(core, batch, i, key, arrival)
    _count(core, stream, STORED, 1)
    if core.lanes[lane_of(core, stream)].last > 0:
        place = _recent_place(core, stream)
        core.recent[place].arrival = arrival
        core.recent[place].row = row
    core.numbers[PINNED] = NONE
    if bounded:
        inserted(policy, core, row, pattern, worth)


@kernel
def _unpin(core, key, shift):  # type: ignore[no-untyped-def]
    core.numbers[PINNED] = NONE
    if key_count(core, key) == 0:
        drop_key(core, key, shift)


@kernel
def _store(core, batch, i, key, arrival):  # type: ignore[no-untyped-def]
    """Give a tuple a row, in its lane and below its key."""
    row = core.numbers[FREE_ROW]
    if row != NONE:
        core.numbers[FREE_ROW] = core.rows[row].after
    else:
        row = core.numbers[ROWS_USED]
        core.numbers[ROWS_USED] = row + 1
    lane = lane_of(core, batch.stream[i])
    core.rows[row].time = batch.time[i]
    core.rows[row].arrival = arrival
    core.rows[row].payload = batch.payload[i]
    core.rows[row].key = key
    core.rows[row].stream = batch.stream[i]
    lane_append(core, lane, row)
    add_occurrence(core, lane, row)
    core.pools[pool_of(core, batch.stream[i])].held += 1
    return row


@kernel
def _outside(core, pool):  # type: ignore[no-untyped-def]
    """The oldest row of a pool that the newest time seen has left behind, or NONE.

    The clock may still wait for a slow stream; but when room is needed such rows go first.
    """
    if not core.settings.timed:
        return NONE
    if core.settings.pools > 1 or core.settings.lanes == 1:
        return _outside_lane(core, pool)
    found = NONE
    for lane in range(core.settings.lanes):
        row = _outside_lane(core, lane)
        if row != NONE and (found == NONE or older_row(core, row, found)):
            found = row
    return found


@kernel
def _outside_lane(core, lane):  # type: ignore[no-untyped-def]
    if core.lanes[lane].last > 0:
        return NONE
    row = oldest(core, lane)
    if row != NONE and core.numbers[NEWEST] - core.rows[row].time <= core.lanes[lane].window:
        return NONE
    return row


@kernel
def _store_again(core, batch, i, arrival, shift):  # type: ignore[no-untyped-def]
    """Give a row of a checkpoint its place; counts are not touched."""
    key = find_key(core, batch.hash[i], shift)
    if key == NONE:
        key = add_key(core, batch.hash[i], shift)
    return _store(core, batch, i, key, arrival)


@loop
def rebuild(core, policy, batch, arrivals, marks):  # type: ignore[no-untyped-def]
    """Store rows again after a restart, in the order of their arrival."""
    shift = home_shift(core.table)
    for i in range(batch.time.size):
        row = _store_again(core, batch, i, arrivals[i], shift)
        if core.pools[pool_of(core, batch.stream[i])].budget < BOUNDLESS:
            restored(policy, core, row, marks[i])


@loop
def readmit(core, policy, batch, arrivals, worths):  # type: ignore[no-untyped-def]
    """Store rows again under another policy: it takes them as newcomers."""
    shift = home_shift(core.table)
    for i in range(batch.time.size):
        row = _store_again(core, batch, i, arrivals[i], shift)
        if core.pools[pool_of(core, batch.stream[i])].budget < BOUNDLESS:
            inserted(policy, core, row, key_lanes(core, core.rows[row].key), worths[i])


@loop
def shed_down(core, policy):  # type: ignore[no-untyped-def]
    """Shed until every pool is within its budget, after the budget was lowered."""
    shift = home_shift(core.table)
    for pool in range(core.settings.pools):
        while core.pools[pool].held > core.pools[pool].budget:
            row = _outside(core, pool)
            if row == NONE:
                row = victim(policy, core, pool, core.numbers[ARRIVALS])
            _count(core, core.rows[row].stream, SHED, 1)
            _remove(core, policy, row, shift)


@driver
def live_rows(rows):  # type: ignore[no-untyped-def]
    """The numbers of the rows that are stored."""
    found = np.empty(rows.size, np.int64)
    count = 0
    for row in range(rows.size):
        if rows[row].arrival != NONE:
            found[count] = row
            count += 1
    return found[:count].copy()


@loop
def marks_of(core, policy, rows, marks):  # type: ignore[no-untyped-def]
    """Ask the policy for the marks of rows."""
    for i in range(rows.size):
        if core.pools[pool_of(core, core.rows[rows[i]].stream)].budget < BOUNDLESS:
            marks[i] = mark(policy, core, rows[i])
