"""The loop of a join that spills: tuples of partitions on disk are noted, the others are joined.

All that happens to a tuple is what `keyed_loop` does; only who waits, and when memory is looked at,
is decided here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import (
    ARRIVALS,
    BOUNDLESS,
    CLOCK,
    FIRST_SEEN,
    FREE_KEY,
    FREE_ROW,
    KEYS_USED,
    NEVER,
    NEWEST,
    NONE,
    OVERDUE,
    PINNED,
    ROWS_USED,
    STORED,
)
from streamshed.kernels.table import home_shift, key_hash, lane_of
from streamshed.operators.buffers import EMITTING, GROUPS, NEXT, SHIFT
from streamshed.operators.keyed_loop import (
    CACHED,
    DONE,
    SUSPENDED,
    arrive,
    look_ahead,
    pin,
    settle,
)
from streamshed.operators.probing import emit, gather
from streamshed.operators.storing import count, remove, store_again

ROUND_OVER = 2
"""What the loop says, besides `DONE` and `SUSPENDED`, when memory is to be looked at."""

PARTITIONS = 64
LOWEST = np.uint64(PARTITIONS - 1)
"""The bits of a hash that tell its partition; the highest tell its place in a table of keys."""

NOTED, CAME, UNTIL = range(3)
"""The scalars of a door: the tuples noted and those that came in this round; its last time."""

WAITING, FIRST = 1, 2
"""What is to be done with a row from disk."""

AWAY = np.dtype(
    [
        ("time", np.int64),
        ("arrival", np.int64),
        ("hash", np.uint64),
        ("payload", np.int64),
        ("stream", np.int32),
    ],
    align=True,
)
"""What is known of a row that is on its way to disk, or there: its payload is then its place in the
part of its input."""


class Door(NamedTuple):
    """Who is let in to be joined in memory, and until when."""

    spilled: npt.NDArray[np.bool_]  # by partition: whether its rows are on disk
    left: npt.NDArray[np.int64]  # by budget: how many may come until memory is looked at
    noted: npt.NDArray[Any]
    numbers: npt.NDArray[np.int64]


def new_door(budgets: int) -> Door:
    """A door that lets all in."""
    numbers = np.array([0, 0, BOUNDLESS], np.int64)
    return Door(
        np.zeros(PARTITIONS, np.bool_), np.zeros(budgets, np.int64), np.empty(0, AWAY), numbers
    )


@kernel
def partition_of(hashed):  # type: ignore[no-untyped-def]
    """The partition of a key."""
    return np.int64(hashed & LOWEST)


@loop
def run_spilling(core, policy, batch, work, out, door):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it, until it is done, or the round or the room is."""
    cursor = work.cursor
    cursor[SHIFT] = np.int64(home_shift(core.table))
    for i in range(cursor[NEXT], batch.time.size):
        if cursor[EMITTING] == 0:
            if _comes_after(batch, door, i):
                cursor[NEXT] = i
                return ROUND_OVER
            if core.table.size > CACHED:
                look_ahead(core, batch, i, np.uint64(cursor[SHIFT]))
            if not arrive(core, policy, batch, out, i, np.uint64(cursor[SHIFT])):
                continue
            if door.spilled[partition_of(batch.hash[i])]:
                _note(core, batch, door, i)
                if _take(core, batch, door, i):
                    cursor[NEXT] = i + 1
                    return ROUND_OVER
                continue
        if not _join(core, policy, batch, work, out, i):
            return SUSPENDED
        if _take(core, batch, door, i):
            cursor[NEXT] = i + 1
            return ROUND_OVER
    cursor[NEXT] = 0
    return DONE


@loop
def run_again(core, policy, batch, arrivals, work, out):  # type: ignore[no-untyped-def]
    """Process the rows of partitions from disk, one partition after the other.

    What a row is worth says what is to be done: `FIRST` begins a partition, `WAITING` is joined,
    and others, which were joined before, are only stored.
    """
    cursor = work.cursor
    cursor[SHIFT] = np.int64(home_shift(core.table))
    for i in range(cursor[NEXT], batch.time.size):
        if cursor[EMITTING] == 0:
            if batch.worth[i] & FIRST:
                _forget_all(core)
            core.numbers[ARRIVALS] = arrivals[i]
            arrive(core, policy, batch, out, i, np.uint64(cursor[SHIFT]))
            if not batch.worth[i] & WAITING:
                store_again(core, batch, i, arrivals[i], np.uint64(cursor[SHIFT]))
                continue
        if not _join(core, policy, batch, work, out, i):
            return SUSPENDED
    cursor[NEXT] = 0
    return DONE


@kernel
def _forget_all(core):  # type: ignore[no-untyped-def]
    """Forget all rows, keys and times; results stay counted, and the room stays."""
    numbers = core.numbers
    numbers[FREE_ROW] = numbers[FREE_KEY] = numbers[PINNED] = NONE
    numbers[CLOCK] = numbers[NEWEST] = numbers[FIRST_SEEN] = NEVER
    numbers[OVERDUE] = 0
    numbers[ROWS_USED] = numbers[KEYS_USED] = 0
    core.table[:] = np.uint64(0)
    for lane in range(core.settings.sweeps):
        core.lanes[lane].first = NONE
        core.lanes[lane].end = NONE
        core.lanes[lane].newest = NEVER
        core.sizes[lane] = 0
    for pool in range(core.settings.pools):
        core.pools[pool].held = 0


@loop
def spread(rows, stream, time, hashed, payload):  # type: ignore[no-untyped-def]
    """Write records as columns."""
    for i in range(rows.size):
        stream[i] = rows[i].stream
        time[i] = rows[i].time
        hashed[i] = rows[i].hash
        payload[i] = rows[i].payload


@kernel
def _join(core, policy, batch, work, out, i):  # type: ignore[no-untyped-def]
    """Probe and emit, or go on to, and store the tuple; False if out of room for results."""
    cursor = work.cursor
    if cursor[EMITTING] == 0:
        key = pin(core, batch.hash[i], np.uint64(cursor[SHIFT]))
        gather(core, policy, batch, work, i, key)
    key = core.numbers[PINNED]
    if cursor[GROUPS] > 0:
        if not emit(core, policy, batch, work, out, i, key):
            cursor[NEXT] = i
            cursor[EMITTING] = 1
            return False
        cursor[EMITTING] = 0
    settle(core, policy, batch, i, key, np.int64(NONE), np.uint64(cursor[SHIFT]))
    return True


@kernel
def _comes_after(batch, door, i):  # type: ignore[no-untyped-def]
    """Whether a tuple comes after the last time of a round in which something has come."""
    numbers = door.numbers
    if batch.time[i] <= numbers[UNTIL] or numbers[CAME] == 0:
        return False
    return batch.null.size == 0 or not batch.null[i]


@kernel
def _take(core, batch, door, i):  # type: ignore[no-untyped-def]
    """Count a tuple; True if there is no room for another."""
    budget = 0 if door.left.size == 1 else batch.stream[i]
    door.numbers[CAME] += 1
    door.left[budget] -= 1
    return door.left[budget] == 0


@kernel
def _note(core, batch, door, i):  # type: ignore[no-untyped-def]
    """Note a tuple that is to wait on disk."""
    place = door.numbers[NOTED]
    door.noted[place].time = batch.time[i]
    door.noted[place].arrival = core.numbers[ARRIVALS] - 1
    door.noted[place].hash = batch.hash[i]
    door.noted[place].payload = batch.payload[i]
    door.noted[place].stream = batch.stream[i]
    door.numbers[NOTED] = place + 1
    count(core, batch.stream[i], STORED, 1)


@loop
def arrange(rows, told_apart, starts, firsts, filled, arranged, places):  # type: ignore[no-untyped-def]
    """Put rows in the order of their partitions; those of a partition stay in their order.

    Args:
        rows: as they came.
        told_apart: whether a single input holds the rows of all streams.
        starts: for each partition where its rows begin, which is moved on to where they end.
        firsts: for each input where its rows begin among the places.
        filled: for each input 0, which is moved on to how many rows it has.
        arranged: room for the rows; each knows then where its user's row stands in its input.
        places: room for the places of the users' rows, input by input, in the new order.
    """
    for i in range(rows.size):
        partition = partition_of(rows[i].hash)
        arranged[starts[partition]] = rows[i]
        starts[partition] += 1
    for i in range(arranged.size):
        origin = 0 if told_apart else arranged[i].stream
        places[firsts[origin] + filled[origin]] = arranged[i].payload
        arranged[i].payload = filled[origin]
        filled[origin] += 1


@loop
def census(core, sizes):  # type: ignore[no-untyped-def]
    """Count the rows in memory by partition and lane."""
    for row in range(core.numbers[ROWS_USED]):
        if core.rows[row].arrival != NONE:
            partition = partition_of(key_hash(core, core.rows[row].key))
            sizes[partition, lane_of(core, core.rows[row].stream)] += 1


@loop
def take_out(core, policy, chosen, away):  # type: ignore[no-untyped-def]
    """Take the rows of chosen partitions out of memory; they stay stored, elsewhere."""
    shift = home_shift(core.table)
    taken = 0
    for row in range(core.numbers[ROWS_USED]):
        if core.rows[row].arrival == NONE:
            continue
        hashed = key_hash(core, core.rows[row].key)
        if not chosen[partition_of(hashed)]:
            continue
        stream = core.rows[row].stream
        away[taken].time = core.rows[row].time
        away[taken].arrival = core.rows[row].arrival
        away[taken].hash = hashed
        away[taken].payload = core.rows[row].payload
        away[taken].stream = stream
        taken += 1
        remove(core, policy, row, shift)
        count(core, stream, STORED, 1)
    return taken
