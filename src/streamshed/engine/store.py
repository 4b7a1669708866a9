"""The store: rows come, are evicted, and go, with everything that must know of it."""

from __future__ import annotations

from streamshed.engine.match.hooks import insert_row, refresh_ranks, remove_row
from streamshed.engine.unmatched import on_leaving
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.core import (
    ARRIVALS,
    BOUNDLESS,
    FATES,
    FREE_ROW,
    NEWCOMER_BYTES,
    NONE,
    PEAK,
    PEAK_BYTES,
    PINNED,
    ROWS_USED,
    SHED,
    STORED,
)
from streamshed.kernels.hooks import admits, on_insert, on_remove, victim
from streamshed.kernels.lanes import lane_append, lane_remove, oldest_of_pool
from streamshed.kernels.table import (
    add_occurrence,
    drop_key,
    is_unused,
    key_for,
    lane_of,
    pool_of,
    remove_occurrence,
    sweep_of,
)


@kernel
def count(core, stream, fate, change):  # type: ignore[no-untyped-def]
    """Note what became of rows of a stream."""
    core.counts[stream * FATES + fate] += change


@kernel
def count_stored(core, stream):  # type: ignore[no-untyped-def]
    """Note that a row of a stream was stored, and the most that were so at once."""
    place = stream * FATES
    core.counts[place + STORED] += 1
    core.counts[place + PEAK] = max(core.counts[place + PEAK], core.counts[place + STORED])


@kernel
def pin(core, hashed, shift):  # type: ignore[no-untyped-def]
    """Find or enter a key, and hold it while its row is processed, even if its rows all leave."""
    key = key_for(core, hashed, shift)
    core.numbers[PINNED] = key
    return key


@kernel
def unpin(core, key, shift):  # type: ignore[no-untyped-def]
    """Let go of a key, which leaves if it has no rows."""
    core.numbers[PINNED] = NONE
    if is_unused(core, key):
        drop_key(core, key, shift)


@kernel
def make_room(core, matcher, policy, stream, time, worth, size, key, shift):  # type: ignore[no-untyped-def]
    """Evict rows until a newcomer of a stream fits into its pool; False if it is refused."""
    pool = pool_of(core, stream)
    core.numbers[NEWCOMER_BYTES] = size
    if size > core.pools[pool].limit:  # whatever else left, it would not fit
        return False
    while _is_full(core, pool, size):
        row = _outside(core, pool)
        if row == NONE:
            refresh_ranks(matcher, policy, core, pool)
            if not admits(policy, core, pool, key, stream, time, worth):
                return False
            row = victim(policy, core, pool, core.numbers[ARRIVALS] - 1)
        evict(core, matcher, policy, row, shift)
    return True


@kernel
def _is_full(core, pool, size):  # type: ignore[no-untyped-def]
    """Whether a pool has no room for one row more, of so many bytes."""
    found = core.pools[pool]
    return found.held >= found.budget or found.bytes + size > found.limit


@kernel
def evict(core, matcher, policy, row, shift):  # type: ignore[no-untyped-def]
    """Shed a stored row."""
    count(core, core.rows[row].stream, SHED, 1)
    on_leaving(core, row, True)
    remove(core, matcher, policy, row, shift)


@kernel
def evict_down(core, matcher, policy, pool, shift):  # type: ignore[no-untyped-def]
    """Evict rows of a pool until it is within its budget."""
    pools = core.pools
    while pools[pool].held > pools[pool].budget or pools[pool].bytes > pools[pool].limit:
        row = _outside(core, pool)
        if row == NONE:
            row = victim(policy, core, pool, core.numbers[ARRIVALS])
        count(core, core.rows[row].stream, SHED, 1)
        on_leaving(core, row, True)
        remove_apart(core, matcher, policy, row, shift)


@kernel
def _outside(core, pool):  # type: ignore[no-untyped-def]
    """The oldest row of a pool that the newest time seen has left behind, or NONE.

    The clock may still wait for a slow stream; but when room is needed such rows go first.
    """
    if not core.settings.timed:
        return NONE
    return oldest_of_pool(core, pool, True)


@kernel
def is_bounded(core, stream):  # type: ignore[no-untyped-def]
    """Whether a stream's rows fall under a budget: only then the policy hears of them."""
    return core.pools[pool_of(core, stream)].budget < BOUNDLESS


@kernel
def remove(core, matcher, policy, row, shift):  # type: ignore[no-untyped-def]
    """Take a row out of everything."""
    rows = core.rows
    stream, key = rows[row].stream, rows[row].key
    remove_occurrence(core, lane_of(core, stream), row)
    if core.key_rows.size > 0:
        core.key_rows[key] -= 1
    lane_remove(core, sweep_of(core, stream), row)
    remove_row(matcher, policy, core, row)
    core.pools[pool_of(core, stream)].held -= 1
    if core.size.size > 0:
        core.key_size[key] -= core.size[row]
        core.pools[pool_of(core, stream)].bytes -= core.size[row]
    if is_bounded(core, stream):
        on_remove(policy, core, row)
    count(core, stream, STORED, -1)
    if is_unused(core, key) and key != core.numbers[PINNED]:
        drop_key(core, key, shift)
    rows[row].arrival = NONE
    rows[row].after = core.numbers[FREE_ROW]
    core.numbers[FREE_ROW] = row


@cold_kernel
def remove_apart(core, matcher, policy, row, shift):  # type: ignore[no-untyped-def]
    """The same where it is seldom done: the code for it is there once for all who call this."""
    remove(core, matcher, policy, row, shift)


@kernel
def insert(core, matcher, policy, batch, i, key, arrival, pattern):  # type: ignore[no-untyped-def]
    """Store a newcomer; the pattern says which lanes held its key when it arrived, its own too."""
    row = place_row(core, batch, i, key, arrival)
    insert_row(matcher, policy, core, row)
    if is_bounded(core, batch.stream[i]):
        on_insert(policy, core, row, pattern, worth_of(batch, i))
    return row


@kernel
def worth_of(batch, i):  # type: ignore[no-untyped-def]
    """What the user's column says that a row is worth, 0 where there is none."""
    return batch.worth[i] if batch.worth.size > 0 else 0


@kernel
def size_of(batch, i):  # type: ignore[no-untyped-def]
    """The bytes that a row takes, 0 where the budget is in rows."""
    return batch.size[i] if batch.size.size > 0 else 0


@kernel
def place_row(core, batch, i, key, arrival):  # type: ignore[no-untyped-def]
    """Give a row of a batch its place, in its lane and below its key; counts are not touched."""
    row = core.numbers[FREE_ROW]
    if row != NONE:
        core.numbers[FREE_ROW] = core.rows[row].after
    else:
        row = core.numbers[ROWS_USED]
        core.numbers[ROWS_USED] = row + 1
    core.rows[row].time = batch.time[i]
    core.rows[row].arrival = arrival
    core.rows[row].payload = batch.payload[i]
    core.rows[row].key = key
    core.rows[row].stream = batch.stream[i]
    if core.importance.size > 0:
        core.importance[row] = batch.importance[i]
    if core.size.size > 0:
        _count_bytes(core, pool_of(core, batch.stream[i]), row, batch.size[i])
    lane_append(core, sweep_of(core, batch.stream[i]), row)
    add_occurrence(core, lane_of(core, batch.stream[i]), row)
    if core.key_rows.size > 0:
        core.key_rows[key] += 1
    core.pools[pool_of(core, batch.stream[i])].held += 1
    return row


@kernel
def _count_bytes(core, pool, row, size):  # type: ignore[no-untyped-def]
    """Count the bytes of a row that is stored."""
    core.size[row] = size
    core.key_size[core.rows[row].key] += size
    core.pools[pool].bytes += size
    core.numbers[PEAK_BYTES] = max(core.numbers[PEAK_BYTES], core.pools[pool].bytes)
