"""The loop: take → arrive → expire → gate → probe → emit → admit or evict → insert.

Written once, for every kind of join. The types of the components' states pick what happens at each
step when the loop is compiled. Rows are processed one after the other, as docs/meaning.md says, and
the loop can be left and entered again in the middle of a row's results.
"""

from __future__ import annotations

import numpy as np

from streamshed.engine.batch import (
    AT,
    BEFORE,
    GROUPS,
    IDLE,
    MET,
    MOMENT,
    NEXT,
    PROBED,
    SHIFT,
    STAGE,
    TAKEN,
)
from streamshed.engine.clock import (
    advance_stream,
    arrive,
    drop_useless,
    expire,
    expire_apart,
    is_visitor,
    note_recent,
    recent_place,
)
from streamshed.engine.gate.hooks import (
    admit,
    asks_throttle,
    ends_round_before,
    is_round_over,
    is_spilled,
    must_adapt,
    on_joined,
    on_work,
    release,
    rows_of,
    take_next,
)
from streamshed.engine.match.hooks import (
    before_arrival,
    begin_probe,
    is_matchable,
    next_match,
    on_settled,
    prefetch_rows,
    restore_row,
    row_hash,
    set_newcomer,
    stores_rows,
    work_before,
    work_done,
)
from streamshed.engine.match.hooks import insert_row as index_row
from streamshed.engine.match.keys import begin_key, note_first
from streamshed.engine.observe.hooks import observe, on_made, on_probed
from streamshed.engine.sink import (
    EACH,
    NO_ROOM,
    count_result,
    emit_product,
    importance_of,
    is_full,
    latest_time,
    result_width,
    within_windows,
    write,
)
from streamshed.engine.store import (
    count,
    count_stored,
    evict_down,
    insert,
    is_bounded,
    make_room,
    pin,
    place_row,
    remove,
    size_of,
    unpin,
    worth_of,
)
from streamshed.engine.unmatched import note_members, note_stored, on_leaving, on_refused
from streamshed.kernels.compiling import cold_kernel, kernel, loop
from streamshed.kernels.core import (
    ARRIVALS,
    ARRIVED,
    BOUNDLESS,
    EXPIRED,
    FILTERED,
    FREE_ROW,
    KEYS_USED,
    MOST_KEYS,
    NEVER,
    NEWEST,
    NONE,
    OVERDUE,
    PINNED,
    SHED,
)
from streamshed.kernels.hooks import mark, on_arrival, on_insert, on_restore, on_result
from streamshed.kernels.table import ONE, find_key, free_key, home_shift, key_lanes, lane_of

DONE, FULL, DUE, ROUND_OVER, CROWDED = range(5)
"""Why the loop was left: the batch is done; the sink is full; the throttle is to be set anew;
memory is to be looked at by a join that spills; or the directory is to be made larger."""


@loop
def run(core, matcher, policy, loss, throttle, queue, router, batch, work, out):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it, until it is done or the loop has to be left."""
    cursor = work.cursor
    cursor[SHIFT] = np.int64(home_shift(core.table))
    shift = np.uint64(cursor[SHIFT])
    rows = rows_of(queue, batch)
    size = batch.time.size
    status = ROUND_OVER
    while True:
        if cursor[STAGE] == IDLE:
            i = cursor[NEXT]
            if i == size:
                cursor[NEXT] = 0
                status = DONE
                break
            if core.numbers[KEYS_USED] > core.numbers[MOST_KEYS]:
                return CROWDED
            at, come = take_next(queue, throttle, policy, loss, core, batch, i)
            cursor[NEXT] = i + come
            if at == NONE:
                continue
            cursor[AT] = at
            cursor[STAGE] = TAKEN
            prefetch_rows(matcher, core, batch, i, shift)
        at = cursor[AT]
        if cursor[STAGE] == TAKEN:
            if must_adapt(throttle, rows, at):
                return DUE
            if ends_round_before(router, matcher, policy, core, rows, at):
                break
            cursor[STAGE] = IDLE
            if not _enter(core, matcher, policy, loss, throttle, router, rows, work, out, at):
                release(queue, at)
                if is_round_over(router):
                    break
                continue
            key = core.numbers[PINNED]
            if begin_probe(matcher, throttle, core, rows, work, at, key, shift):
                cursor[STAGE] = PROBED
        if cursor[STAGE] == PROBED:
            if not _emit(core, matcher, policy, throttle, rows, work, out, at, shift):
                return FULL
            cursor[STAGE] = IDLE
            on_made(loss, core, rows, at)
        done = work_done(matcher, core, work)
        on_work(throttle, core, lane_of(core, rows.stream[at]), done)
        on_probed(loss, done)
        _settle(core, matcher, policy, rows, work, at, shift)
        release(queue, at)
        on_joined(router, core, rows, at)
        if is_round_over(router):
            break
    if core.settings.lazy and core.settings.timed and core.numbers[OVERDUE] == 0:
        expire_apart(core, matcher, policy, shift)
    return status


@kernel
def _enter(core, matcher, policy, loss, throttle, router, rows, work, out, at):  # type: ignore[no-untyped-def]
    """Let a row arrive; False if it is not probed now."""
    shift = np.uint64(work.cursor[SHIFT])
    if rows.time[at] >= work.moments[work.cursor[MOMENT], 0] and not (
        rows.null.size > 0 and rows.null[at]
    ):
        _pass_moments(core, matcher, policy, work, rows.time[at], shift)
    before_arrival(matcher, policy, core, rows, work, at)
    if not arrive(core, matcher, policy, rows, out, at, shift):
        return False
    drop_useless(core, matcher, policy, throttle, shift)
    if not is_matchable(matcher, core, rows, at):
        count(core, rows.stream[at], FILTERED, 1)
        return False
    observe(loss, core, rows, at)
    if core.lanes[lane_of(core, rows.stream[at])].last > 0:
        _move_row_window(core, matcher, policy, rows.stream[at], shift)
    if asks_throttle(router) and not admit(throttle, core, rows, at):
        count(core, rows.stream[at], SHED, 1)
        return False
    if is_spilled(router, matcher, core, rows, at, shift):
        return False
    begin_key(core, pin(core, row_hash(matcher, rows, at), shift))
    work.cursor[MET] = 0
    set_newcomer(matcher, policy, core, rows, at, shift)
    on_arrival(policy, core, rows, at)
    work.cursor[BEFORE] = work_before(matcher, core)
    return True


@kernel
def _move_row_window(core, matcher, policy, stream, shift):  # type: ignore[no-untyped-def]
    """Let a stream's row window move on by the row that has arrived."""
    place = recent_place(core, stream)
    arrival, row = core.recent[place].arrival, core.recent[place].row
    core.recent[place].arrival = NONE
    if arrival == NONE or row == NONE:  # noqa: PLR1714 - they are of different types
        return
    if core.rows[row].arrival == arrival:
        count(core, stream, EXPIRED, 1)
        on_leaving(core, row, False)
        remove(core, matcher, policy, row, shift)


@kernel
def _emit(core, matcher, policy, throttle, rows, work, out, at, shift):  # type: ignore[no-untyped-def]
    """Make the results of a row, one combination of partners after the other; False if full.

    Some sinks take all of them at once.
    """
    key, stream, time = core.numbers[PINNED], rows.stream[at], rows.time[at]
    pattern = key_lanes(core, key) | (ONE << np.uint64(lane_of(core, stream)))
    made = emit_product(out, core, matcher, policy, throttle, rows, work, at, shift)
    if made != EACH:
        return made != NO_ROOM
    while True:
        if is_full(out, result_width(core, work.cursor[GROUPS])):
            return False
        if not next_match(matcher, throttle, core, rows, work, at, shift):
            return True
        latest = latest_time(core, rows, work, at)
        if within_windows(core, rows, work, at, latest):
            importance = importance_of(core, rows, work, at)
            write(out, core, matcher, rows, work, at, latest, importance)
            groups = work.cursor[GROUPS]
            on_result(throttle, core, key, stream, time, pattern, work.groups, groups)
            on_result(policy, core, key, stream, time, pattern, work.groups, groups)
            count_result(core, importance)
            note_members(core, work)
            note_first(core, rows, work, at, key)


@kernel
def _settle(core, matcher, policy, rows, work, at, shift):  # type: ignore[no-untyped-def]
    """Admit a row that was probed, evict while its pool is full, and store it; or refuse it."""
    key, stream = core.numbers[PINNED], rows.stream[at]
    if is_visitor(rows, at):
        on_settled(matcher, policy, core, key, False)
        unpin(core, key, shift)
        return
    if not stores_rows(matcher, core):
        count(core, stream, EXPIRED, 1)
        on_settled(matcher, policy, core, key, False)
        unpin(core, key, shift)
        return
    arrival = core.numbers[ARRIVALS] - 1
    pattern = key_lanes(core, key) | (ONE << np.uint64(lane_of(core, stream)))
    time, worth, size = rows.time[at], worth_of(rows, at), size_of(rows, at)
    if is_bounded(core, stream) and not make_room(
        core, matcher, policy, stream, time, worth, size, key, shift
    ):
        count(core, stream, SHED, 1)
        on_refused(core, work, rows, at, key)
        note_recent(core, stream, arrival, NONE)
        on_settled(matcher, policy, core, key, False)
        unpin(core, key, shift)
        return
    row = insert(core, matcher, policy, rows, at, key, arrival, pattern)
    count_stored(core, stream)
    note_stored(core, work, row)
    note_recent(core, stream, arrival, row)
    on_settled(matcher, policy, core, key, True)
    core.numbers[PINNED] = NONE


@loop
def advance(core, matcher, policy, times):  # type: ignore[no-untyped-def]
    """Let time go on to what has been seen of each stream elsewhere, and expire."""
    shift = home_shift(core.table)
    moved = False
    for lane in range(times.size):
        if times[lane] != NEVER and advance_stream(core, lane, times[lane]):
            moved = True
    if moved:
        expire(core, matcher, policy, shift)


@loop
def pass_moments(core, matcher, policy, work):  # type: ignore[no-untyped-def]
    """Go past the moments of a batch that are left at its end."""
    _pass_moments(core, matcher, policy, work, BOUNDLESS - 1, home_shift(core.table))


@cold_kernel
def _pass_moments(core, matcher, policy, work, time, shift):  # type: ignore[no-untyped-def]
    """Go past all moments up to a time: see what other shards have seen, and keep to new budgets.

    What a moment's time leaves behind goes first.
    """
    lanes, cursor = core.settings.lanes, work.cursor
    while work.moments[cursor[MOMENT], 0] <= time:
        now = work.moments[cursor[MOMENT]]
        cursor[MOMENT] += 1
        for lane in range(lanes):
            if now[1 + lane] != NEVER:
                advance_stream(core, lane, now[1 + lane])
        expire_apart(core, matcher, policy, shift)
        if core.numbers[NEWEST] != NEVER:
            core.numbers[NEWEST] = max(core.numbers[NEWEST], now[0])
        pools = core.settings.pools
        for pool in range(pools):
            core.pools[pool].budget = now[1 + lanes + pool]
            core.pools[pool].limit = now[1 + lanes + pools + pool]
            evict_down(core, matcher, policy, pool, shift)


@loop
def restore_rows(core, matcher, policy, batch, arrivals, rows, keys, marks, anew):  # type: ignore[no-untyped-def]
    """Store the rows of a checkpoint again, in the order of their arrival.

    Args:
        core: the state of the join.
        matcher: of which the indexes are empty.
        policy: its state, with what it knew of each row, or a new one.
        batch: the rows.
        arrivals: their arrival numbers.
        rows: the numbers that they have in the core; if empty, such as are free.
        keys: the numbers of their keys.
        marks: what the policy said of them.
        anew: whether the policy is another, and takes them as newcomers.
    """
    shift = home_shift(core.table)
    for i in range(batch.time.size):
        hashed = row_hash(matcher, batch, i)
        if rows.size > 0:
            core.rows[rows[i]].after = core.numbers[FREE_ROW]
            core.numbers[FREE_ROW] = rows[i]
            if find_key(core, hashed, shift) == NONE:
                free_key(core, keys[i])
        key = pin(core, hashed, shift)
        restore_row(matcher, policy, core, batch, i, shift)
        if anew:
            on_arrival(policy, core, batch, i)
        row = place_row(core, batch, i, key, arrivals[i])
        index_row(matcher, policy, core, row)
        if is_bounded(core, batch.stream[i]):
            if anew:
                on_insert(policy, core, row, key_lanes(core, key), worth_of(batch, i))
            else:
                on_restore(policy, core, row, marks[i] if marks.size > 0 else 0)
        on_settled(matcher, policy, core, key, True)
        core.numbers[PINNED] = NONE


@loop
def evict_to_budget(core, matcher, policy):  # type: ignore[no-untyped-def]
    """Evict until every pool is within its budget, after the budget was lowered."""
    shift = home_shift(core.table)
    for pool in range(core.settings.pools):
        evict_down(core, matcher, policy, pool, shift)


@loop
def withdraw(core, batch, i):  # type: ignore[no-untyped-def]
    """Forget a row that has arrived but could not be probed: it is as if it had not come."""
    count(core, batch.stream[i], ARRIVED, -1)
    core.numbers[ARRIVALS] -= 1
    unpin(core, core.numbers[PINNED], home_shift(core.table))


@loop
def skip_results(core, matcher, policy, rows, work):  # type: ignore[no-untyped-def]
    """Let the row at hand make no more results: it is stored, or refused, and the next may come."""
    work.cursor[STAGE] = IDLE
    _settle(core, matcher, policy, rows, work, work.cursor[AT], home_shift(core.table))


@loop
def drop_rows(core, matcher, policy, rows):  # type: ignore[no-untyped-def]
    """Remove stored rows, between batches or between two rows of one."""
    shift = home_shift(core.table)
    for row in rows:
        remove(core, matcher, policy, row, shift)


@loop
def read_marks(core, policy, rows, marks):  # type: ignore[no-untyped-def]
    """Ask the policy for the marks of rows."""
    for i in range(rows.size):
        if is_bounded(core, core.rows[rows[i]].stream):
            marks[i] = mark(policy, core, rows[i])
