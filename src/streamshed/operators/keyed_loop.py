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
    LATE,
    NEVER,
    NEWEST,
    NONE,
    OVERDUE,
    PINNED,
    RESULTS,
    SHED,
    STORED,
)
from streamshed.kernels.hooks import admits, announced, inserted, mark, restored, victim
from streamshed.kernels.lanes import older_row, oldest
from streamshed.kernels.machine import prefetch
from streamshed.kernels.pacing import is_due, let_in, worked
from streamshed.kernels.sampling import may_be_followed
from streamshed.kernels.table import (
    ONE,
    drop_key,
    home_shift,
    key_count,
    key_for,
    key_hash,
    key_head,
    key_lanes,
    lane_of,
    pool_of,
    sweep_of,
)
from streamshed.operators.buffers import (
    BEFORE,
    EMITTING,
    GROUPS,
    LATECOMERS,
    LOOKED,
    NEXT,
    SAMPLE_SHIFT,
    SHIFT,
)
from streamshed.operators.following import follow, push_out_followed, tell_time
from streamshed.operators.probing import emit, gather
from streamshed.operators.storing import (
    count,
    expire,
    expire_lane,
    outlive,
    remove,
    store,
    store_again,
)

DONE, SUSPENDED, DUE = range(3)
"""Why the loop was left; DUE: what is gone through has to be said anew."""

SWEPT_EVERY = 64
"""Where nothing is ever shed, an arrival looks for rows to expire in its own stream only, but for
one in so many: rows that should have left never match, and to look through all streams costs more
than the rest of the work if there are many. At the end of a batch all have left."""

CACHED = 1 << 14
"""Directories up to this size, and what hangs below them, stay in the cache by themselves."""


@loop
def run(core, policy, sample, batch, work, out):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it, until it is done or the output buffer is full."""
    cursor = work.cursor
    cursor[SHIFT] = np.int64(home_shift(core.table))
    cursor[SAMPLE_SHIFT] = np.int64(home_shift(sample.core.table))
    for i in range(cursor[NEXT], batch.time.size):
        if cursor[EMITTING] == 0:
            if core.table.size > CACHED:
                look_ahead(core, batch, i, np.uint64(cursor[SHIFT]))
            if is_due(policy, batch, i):
                cursor[NEXT] = i
                return DUE
            if not arrive(core, policy, batch, out, i, np.uint64(cursor[SHIFT])):
                continue
            outlive(core, policy, policy, np.uint64(cursor[SHIFT]))
            if not let_in(policy, core, batch.stream[i]):
                _turn_away(core, policy, sample, batch, work, i)
                continue
            if core.lanes[lane_of(core, batch.stream[i])].last > 0:
                push_out(core, policy, sample, batch.stream[i], cursor)
            key = pin(core, batch.hash[i], np.uint64(cursor[SHIFT]))
            announced(policy, core, batch, i)
            gather(core, policy, batch, work, i, key)
            cursor[BEFORE] = core.numbers[RESULTS]
        key = core.numbers[PINNED]
        if cursor[GROUPS] > 0:
            if not emit(core, policy, batch, work, out, i, key):
                cursor[NEXT] = i
                cursor[EMITTING] = 1
                return SUSPENDED
            cursor[EMITTING] = 0
        worked(policy, core, batch.stream[i], work_done(core, cursor))
        if visits(batch, i):
            unpin(core, key, np.uint64(cursor[SHIFT]))
            continue
        followed = np.int64(NONE)
        if may_be_followed(sample, batch.hash[i]):
            followed = np.int64(follow(core, policy, sample, batch, work, i))
        settle(core, policy, batch, i, key, followed, np.uint64(cursor[SHIFT]))
    if core.settings.lazy and core.settings.timed and core.numbers[OVERDUE] == 0:
        expire(core, policy, np.uint64(cursor[SHIFT]))
    cursor[NEXT] = 0
    return DONE


@kernel
def _turn_away(core, policy, sample, batch, work, i):  # type: ignore[no-untyped-def]
    """Shed a tuple for which there is no time; all that it would have made is missed."""
    count(core, batch.stream[i], SHED, 1)
    work.cursor[BEFORE] = core.numbers[RESULTS]
    if may_be_followed(sample, batch.hash[i]):
        follow(core, policy, sample, batch, work, i)


@kernel
def work_done(core, cursor):  # type: ignore[no-untyped-def]
    """What a tuple has cost: to be looked up, the rows looked at, and the results made."""
    return 1 + cursor[LOOKED] + core.numbers[RESULTS] - cursor[BEFORE]


@kernel
def look_ahead(core, batch, i, shift):  # type: ignore[no-untyped-def]
    """Ask for the memory that the next tuples will need while this one is worked on.

    With windows larger than the cache this halves the time of a tuple.
    """
    words = core.settings.key_words
    if i + 12 < batch.hash.size:
        prefetch(core.table, np.int64(batch.hash[i + 12] >> shift))
        prefetch(core.keys, likely_key(core, batch.hash[i + 8], shift) * words)
        key = likely_key(core, batch.hash[i + 4], shift)
        prefetch(core.rows, max(0, key_head(core, key, lane_of(core, batch.stream[i + 4]))))
    first = core.lanes[sweep_of(core, batch.stream[i])].first
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
def likely_key(core, hashed, shift):  # type: ignore[no-untyped-def]
    """The key that stands where a hash would be sought first, or any if there is none.

    Without a branch: whether a key is there cannot be foretold, and a wrong guess of the processor
    costs more than a prefetch in vain.
    """
    entry = core.table[np.int64(hashed >> shift)] & np.uint64(0xFFFFFFFF)
    return max(0, np.int64(entry) - 1)


@kernel
def arrive(core, policy, batch, out, i, shift):  # type: ignore[no-untyped-def]
    """Count, filter, turn away what is late, advance the clock, expire; False if that was all."""
    stream = batch.stream[i]
    time = batch.time[i]
    lane = lane_of(core, stream)
    numbers = core.numbers
    numbers[ARRIVALS] += 1
    at_home = not visits(batch, i)
    if at_home:
        count(core, stream, ARRIVED, 1)
    if batch.null.size > 0 and batch.null[i]:
        if at_home:
            count(core, stream, FILTERED, 1)
        return False
    if core.settings.timed:
        clock = numbers[CLOCK]
        if clock != NEVER and clock - time > core.settings.late:
            if not at_home:
                return False
            count(core, stream, LATE, 1)
            out.late[out.filled[LATECOMERS]] = i
            out.filled[LATECOMERS] += 1
            return False
        overdue = numbers[OVERDUE]
        if _advance(core, lane, time) or overdue != 0:
            # Who lets the clock begin, by a time of another stream, may be behind it already.
            began = clock == NEVER
            numbers[OVERDUE] = np.int64(began)
            if core.settings.lazy and not began and numbers[ARRIVALS] % SWEPT_EVERY != 0:
                expire_lane(core, policy, sweep_of(core, stream), shift)
            else:
                expire(core, policy, shift)
    return True


@kernel
def visits(batch, i):  # type: ignore[no-untyped-def]
    """Whether a tuple is stored and accounted for elsewhere, and only probes here."""
    return batch.visiting.size > 0 and batch.visiting[i]


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


@loop
def advance(core, policy, times):  # type: ignore[no-untyped-def]
    """Let time go on to what has been seen of each stream elsewhere, and expire."""
    shift = home_shift(core.table)
    moved = False
    for lane in range(times.size):
        if times[lane] != NEVER and _advance(core, lane, times[lane]):
            moved = True
    if moved:
        expire(core, policy, shift)


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
def push_out(core, policy, sample, stream, cursor):  # type: ignore[no-untyped-def]
    """Let a stream's row window move on by the row that has arrived."""
    place = _recent_place(core, stream)
    left = core.recent[place]
    arrival, row, followed = left.arrival, left.row, left.followed
    core.recent[place].arrival = NONE
    if arrival == NONE:
        return
    if row != NONE and core.rows[row].arrival == arrival:
        count(core, stream, EXPIRED, 1)
        remove(core, policy, row, np.uint64(cursor[SHIFT]))
    if followed != NONE and sample.core.rows[followed].arrival == arrival:
        tell_time(core, sample)
        push_out_followed(policy, sample, followed, np.uint64(cursor[SAMPLE_SHIFT]))


@kernel
def _note_recent(core, stream, arrival, row, followed):  # type: ignore[no-untyped-def]
    """Remember a row of a stream, if its window is one of rows."""
    if core.lanes[lane_of(core, stream)].last > 0:
        place = _recent_place(core, stream)
        core.recent[place].arrival = arrival
        core.recent[place].row = row
        core.recent[place].followed = followed


@kernel
def pin(core, hashed, shift):  # type: ignore[no-untyped-def]
    """Find or enter a key, and hold it while its tuple is processed, even if its rows all leave."""
    key = key_for(core, hashed, shift)
    core.numbers[PINNED] = key
    return key


@kernel
def settle(core, policy, batch, i, key, followed, shift):  # type: ignore[no-untyped-def]
    """Admit the tuple, shed while its pool is full, and store it.

    Returns:
        The row in which it is stored, or NONE if it was refused.
    """
    stream = batch.stream[i]
    pool = pool_of(core, stream)
    worth = batch.worth[i] if batch.worth.size > 0 else 0
    arrival = core.numbers[ARRIVALS] - 1
    pattern = key_lanes(core, key) | (ONE << np.uint64(lane_of(core, stream)))
    bounded = core.pools[pool].budget < BOUNDLESS
    while bounded and core.pools[pool].held >= core.pools[pool].budget:
        row = _outside(core, pool)
        if row == NONE:
            if not admits(policy, core, pool, key, stream, batch.time[i], worth):
                count(core, stream, SHED, 1)
                _note_recent(core, stream, arrival, NONE, followed)
                unpin(core, key, shift)
                return NONE
            row = victim(policy, core, pool, arrival)
        count(core, core.rows[row].stream, SHED, 1)
        remove(core, policy, row, shift)
    row = store(core, batch, i, key, arrival)
    count(core, stream, STORED, 1)
    _note_recent(core, stream, arrival, row, followed)
    core.numbers[PINNED] = NONE
    if bounded:
        inserted(policy, core, row, pattern, worth)
    return row


@kernel
def unpin(core, key, shift):  # type: ignore[no-untyped-def]
    """Let go of a key, which leaves if it has no rows."""
    core.numbers[PINNED] = NONE
    if key_count(core, key) == 0:
        drop_key(core, key, shift)


@kernel
def _outside(core, pool):  # type: ignore[no-untyped-def]
    """The oldest row of a pool that the newest time seen has left behind, or NONE.

    The clock may still wait for a slow stream; but when room is needed such rows go first.
    """
    if not core.settings.timed:
        return NONE
    if core.settings.pools > 1 or core.settings.sweeps == 1:
        return _outside_lane(core, pool)
    found = NONE
    for lane in range(core.settings.sweeps):
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


@loop
def rebuild(core, policy, batch, arrivals, marks):  # type: ignore[no-untyped-def]
    """Store rows again after a restart, in the order of their arrival."""
    shift = home_shift(core.table)
    for i in range(batch.time.size):
        row = store_again(core, batch, i, arrivals[i], shift)
        if core.pools[pool_of(core, batch.stream[i])].budget < BOUNDLESS:
            restored(policy, core, row, marks[i])


@loop
def readmit(core, policy, batch, arrivals, worths):  # type: ignore[no-untyped-def]
    """Store rows again under another policy: it takes them as newcomers."""
    shift = home_shift(core.table)
    for i in range(batch.time.size):
        announced(policy, core, batch, i)
        row = store_again(core, batch, i, arrivals[i], shift)
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
            count(core, core.rows[row].stream, SHED, 1)
            remove(core, policy, row, shift)


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
