"""The router of a join that spills: rows of partitions on disk are noted, the others are joined.

`Router` decides who waits, and when memory is looked at. `Revisit` goes through the rows of
partitions that are read again from disk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.gate import hooks
from streamshed.engine.match.hooks import row_hash
from streamshed.engine.store import count, place_row, remove
from streamshed.kernels.compiling import implements, kernel, loop
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
from streamshed.kernels.table import home_shift, key_for, key_hash, lane_of

PARTITIONS = 64
LOWEST = np.uint64(PARTITIONS - 1)
"""The bits of a hash that tell its partition; the highest tell its place in a table of keys."""

NOTED, CAME, UNTIL, OVER = range(4)
"""The scalars of a router: the rows noted and those that came in this round; its last time; and
whether it is over."""

WAITING, FIRST = 1, 2
"""What is to be done with a row from disk."""

AWAY = np.dtype(
    [
        ("time", np.int64),
        ("arrival", np.int64),
        ("hash", np.uint64),
        ("payload", np.int64),
        ("importance", np.float64),
        ("stream", np.int32),
    ],
    align=True,
)
"""What is known of a row that is on its way to disk, or there: its payload is then its place in the
part of its input."""


class Router(NamedTuple):
    """Which partitions are on disk, and how many rows may come until memory is looked at."""

    spilled: npt.NDArray[np.bool_]  # by partition: whether its rows are on disk
    left: npt.NDArray[np.int64]  # by budget: how many may come until memory is looked at
    noted: npt.NDArray[Any]
    numbers: npt.NDArray[np.int64]


class Revisit(NamedTuple):
    """The rows of partitions from disk, one partition after the other.

    `FIRST` begins a partition, `WAITING` is joined, and others, which were joined before, are only
    stored.
    """

    to_do: npt.NDArray[np.int64]
    arrivals: npt.NDArray[np.int64]


def new_router(budgets: int) -> Router:
    """A router that keeps all in memory."""
    numbers = np.array([0, 0, BOUNDLESS, 0], np.int64)
    return Router(
        np.zeros(PARTITIONS, np.bool_), np.zeros(budgets, np.int64), np.empty(0, AWAY), numbers
    )


@kernel
def partition_of(hashed):  # type: ignore[no-untyped-def]
    """The partition of a key."""
    return np.int64(hashed & LOWEST)


@implements(hooks.ends_before, Router)
def _ends_before(router, core, batch, i):  # type: ignore[no-untyped-def]
    """Whether a row comes after the last time of a round in which something has come."""
    numbers = router.numbers
    if batch.time[i] <= numbers[UNTIL] or numbers[CAME] == 0:
        return False
    return batch.null.size == 0 or not batch.null[i]


@implements(hooks.goes_aside, Router)
def _goes_aside(router, matcher, core, batch, i, shift):  # type: ignore[no-untyped-def]
    if not router.spilled[partition_of(batch.hash[i])]:
        return False
    place = router.numbers[NOTED]
    router.noted[place].time = batch.time[i]
    router.noted[place].arrival = core.numbers[ARRIVALS] - 1
    router.noted[place].hash = batch.hash[i]
    router.noted[place].payload = batch.payload[i]
    router.noted[place].stream = batch.stream[i]
    if batch.importance.size > 0:
        router.noted[place].importance = batch.importance[i]
    router.numbers[NOTED] = place + 1
    count(core, batch.stream[i], STORED, 1)
    _count_row(router, batch, i)
    return True


@implements(hooks.on_joined, Router)
def _on_joined(router, batch, i):  # type: ignore[no-untyped-def]
    _count_row(router, batch, i)


@implements(hooks.is_round_over, Router)
def _is_round_over(router):  # type: ignore[no-untyped-def]
    return router.numbers[OVER] != 0


@kernel
def _count_row(router, batch, i):  # type: ignore[no-untyped-def]
    """Count a row; the round is over if there is no room for another."""
    budget = 0 if router.left.size == 1 else batch.stream[i]
    router.numbers[CAME] += 1
    router.left[budget] -= 1
    if router.left[budget] == 0:
        router.numbers[OVER] = 1


@implements(hooks.ends_before, Revisit)
def _begin_row(router, core, batch, i):  # type: ignore[no-untyped-def]
    if router.to_do[i] & FIRST:
        _forget_all(core)
    core.numbers[ARRIVALS] = router.arrivals[i]
    return False


@implements(hooks.goes_aside, Revisit)
def _only_stored(router, matcher, core, batch, i, shift):  # type: ignore[no-untyped-def]
    if router.to_do[i] & WAITING:
        return False
    key = key_for(core, row_hash(matcher, batch, i), shift)
    place_row(core, batch, i, key, router.arrivals[i])
    return True


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
def take_out(core, matcher, policy, chosen, away):  # type: ignore[no-untyped-def]
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
        if core.importance.size > 0:
            away[taken].importance = core.importance[row]
        taken += 1
        remove(core, matcher, policy, row, shift)
        count(core, stream, STORED, 1)
    return taken
