"""Rows come and go: the steps of the loop that are the same for the windows and for the sample."""

from __future__ import annotations

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import (
    BOUNDLESS,
    CLOCK,
    EXPIRED,
    FATES,
    FREE_ROW,
    NEVER,
    NONE,
    PINNED,
    ROWS_USED,
    SHED,
    STORED,
)
from streamshed.kernels.hooks import removed
from streamshed.kernels.lanes import lane_append, lane_remove, oldest
from streamshed.kernels.pacing import outlived
from streamshed.kernels.table import (
    add_occurrence,
    drop_key,
    key_count,
    key_for,
    lane_of,
    pool_of,
    remove_occurrence,
    sweep_of,
)


@kernel
def count(core, stream, fate, change):  # type: ignore[no-untyped-def]
    """Note what became of tuples of a stream."""
    core.counts[stream * FATES + fate] += change


@kernel
def expire(core, policy, shift):  # type: ignore[no-untyped-def]
    """Let go of every row that the clock has left behind."""
    for lane in range(core.settings.sweeps):
        expire_lane(core, policy, lane, shift)


@kernel
def expire_lane(core, policy, lane, shift):  # type: ignore[no-untyped-def]
    """Let go of every row of a lane that the clock has left behind."""
    if core.lanes[lane].last > 0 or core.numbers[CLOCK] == NEVER:
        return
    longest = core.lanes[lane].window + core.settings.late
    while True:
        row = oldest(core, lane)
        if row == NONE or core.numbers[CLOCK] - core.rows[row].time <= longest:
            break
        count(core, core.rows[row].stream, EXPIRED, 1)
        remove(core, policy, row, shift)


@kernel
def outlive(core, policy, parts, shift):  # type: ignore[no-untyped-def]
    """Shed the rows that no newcomer will be compared with any more, if memory is to be saved."""
    for lane in range(core.settings.lanes):
        row = outlived(parts, core, lane)
        while row != NONE:
            count(core, lane, SHED, 1)
            remove(core, policy, row, shift)
            row = outlived(parts, core, lane)


@kernel
def remove(core, policy, row, shift):  # type: ignore[no-untyped-def]
    """Take a row out of everything."""
    rows = core.rows
    stream, key = rows[row].stream, rows[row].key
    pool = pool_of(core, stream)
    remove_occurrence(core, lane_of(core, stream), row)
    lane_remove(core, sweep_of(core, stream), row)
    if core.pools[pool].budget < BOUNDLESS:
        removed(policy, core, row)
    core.pools[pool].held -= 1
    count(core, stream, STORED, -1)
    if key_count(core, key) == 0 and key != core.numbers[PINNED]:
        drop_key(core, key, shift)
    rows[row].arrival = NONE
    rows[row].after = core.numbers[FREE_ROW]
    core.numbers[FREE_ROW] = row


@kernel
def store(core, batch, i, key, arrival):  # type: ignore[no-untyped-def]
    """Give a tuple a row, in its lane and below its key."""
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
    lane_append(core, sweep_of(core, batch.stream[i]), row)
    add_occurrence(core, lane_of(core, batch.stream[i]), row)
    core.pools[pool_of(core, batch.stream[i])].held += 1
    return row


@kernel
def store_again(core, batch, i, arrival, shift):  # type: ignore[no-untyped-def]
    """Give a row of a checkpoint its place; counts are not touched."""
    return store(core, batch, i, key_for(core, batch.hash[i], shift), arrival)
