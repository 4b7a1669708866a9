"""The router of a join that spills: rows of partitions on disk are noted, the others are joined.

`Router` decides who waits, and when memory is looked at. `Revisit` goes through the rows of
partitions that are read again from disk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.clock import note_recent
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
    PEAK_BYTES,
    PINNED,
    ROWS_USED,
    STORED,
)
from streamshed.kernels.table import (
    find_key,
    home_shift,
    key_for,
    key_hash,
    key_head,
    lane_of,
    sweep_of,
)

SHARED_BITS = 4
PARTITIONS = 1 << SHARED_BITS
LOWEST = np.uint64(PARTITIONS - 1)
"""The bits of a hash that tell its partition; the highest tell its place in a table of keys."""

NOTED, CAME, UNTIL, OVER, LISTED, NOTED_SIZE, NEEDED, MOST = range(8)
"""The scalars of a router: the rows noted, and the size of those that came in this round; its last
time; whether it is over; the rows of row windows that are listed; the size of the rows noted; that
of the next row, if there was no room for it; and where budgets are in bytes, those for rows."""

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
        ("size", np.int32),
    ],
    align=True,
)
"""What is known of a row that is on its way to disk, or there: its payload is then its place in the
part of its input. Its size is 1, or where the budget is in bytes those that it takes in memory."""
LARGEST = np.iinfo(np.int32).max

PIECE = np.dtype(
    [
        ("start", np.int64),
        ("end", np.int64),
        ("taken", np.int64),
        ("oldest", np.int64),
        ("newest", np.int64),
        ("first", np.int64),
    ]
)
"""The rows of a partition that go to disk at once: from where to where they stand, what they take
of a budget, their least and largest times, and the arrival number of the first."""

ENTERED = np.dtype([("arrival", np.int64), ("stream", np.int64)])
"""A row that entered a row window."""


class Router(NamedTuple):
    """Which partitions are on disk, and how many rows may come until memory is looked at."""

    spilled: npt.NDArray[np.bool_]  # by partition: whether its rows are on disk
    left: npt.NDArray[np.int64]  # by budget: what may come until memory is looked at
    noted: npt.NDArray[Any]
    entered: npt.NDArray[Any]  # the rows that came; without room where there are no row windows
    numbers: npt.NDArray[np.int64]


class Revisit(NamedTuple):
    """The rows of partitions from disk, one partition after the other.

    `FIRST` begins a partition, `WAITING` is joined, and others, which were joined before, are only
    stored. Rows of row windows leave before others come.
    """

    to_do: npt.NDArray[np.int64]
    arrivals: npt.NDArray[np.int64]
    leaving: npt.NDArray[np.int64]  # rows that leave
    before: npt.NDArray[np.int64]  # the rows before which they do, in their order
    numbers: npt.NDArray[np.int64]  # how many have left


def new_router(budgets: int) -> Router:
    """A router that keeps all in memory."""
    return Router(
        np.zeros(PARTITIONS, np.bool_),
        np.zeros(budgets, np.int64),
        np.empty(0, AWAY),
        np.empty(0, ENTERED),
        np.array([0, 0, BOUNDLESS, 0, 0, 0, 0, 0], np.int64),
    )


@kernel
def partition_of(hashed):  # type: ignore[no-untyped-def]
    """The partition of a key."""
    return np.int64(hashed & LOWEST)


@implements(hooks.ends_round_before, Router)
def _ends_round_before(router, matcher, policy, core, batch, i):  # type: ignore[no-untyped-def]
    """Whether a row comes after the last time of a round in which something came, or is too large.

    A row that is larger than all memory for rows is taken as it is, and goes to disk at once.
    """
    numbers = router.numbers
    if batch.null.size > 0 and batch.null[i]:
        return False
    size = _size_of(batch, i)
    if router.left[0] < size <= numbers[MOST]:
        numbers[NEEDED] = size
        return True
    numbers[NEEDED] = 0
    return batch.time[i] > numbers[UNTIL] and numbers[CAME] > 0


@kernel
def _size_of(batch, i):  # type: ignore[no-untyped-def]
    """What a row takes of a budget: its bytes, or 1."""
    return min(batch.size[i], np.int64(LARGEST)) if batch.size.size > 0 else np.int64(1)


@implements(hooks.is_spilled, Router)
def _is_spilled(router, matcher, core, batch, i, shift):  # type: ignore[no-untyped-def]
    if not router.spilled[partition_of(batch.hash[i])]:
        return False
    place = router.numbers[NOTED]
    router.noted[place].time = batch.time[i]
    router.noted[place].arrival = core.numbers[ARRIVALS] - 1
    router.noted[place].hash = batch.hash[i]
    router.noted[place].payload = batch.payload[i]
    router.noted[place].stream = batch.stream[i]
    router.noted[place].size = _size_of(batch, i)
    if batch.importance.size > 0:
        router.noted[place].importance = batch.importance[i]
    router.numbers[NOTED] = place + 1
    router.numbers[NOTED_SIZE] += _size_of(batch, i)
    count(core, batch.stream[i], STORED, 1)
    note_recent(core, batch.stream[i], core.numbers[ARRIVALS] - 1, NONE)
    _count_row(router, core, batch, i)
    return True


@implements(hooks.on_joined, Router)
def _on_joined(router, core, batch, i):  # type: ignore[no-untyped-def]
    _count_row(router, core, batch, i)


@implements(hooks.is_round_over, Router)
def _is_round_over(router):  # type: ignore[no-untyped-def]
    return router.numbers[OVER] != 0


@kernel
def _count_row(router, core, batch, i):  # type: ignore[no-untyped-def]
    """Count a row; the round is over if there is no room for another."""
    budget = 0 if router.left.size == 1 else batch.stream[i]
    if core.lanes[lane_of(core, batch.stream[i])].last > 0:
        place = router.numbers[LISTED]
        router.entered[place].arrival = core.numbers[ARRIVALS] - 1
        router.entered[place].stream = batch.stream[i]
        router.numbers[LISTED] = place + 1
    size = _size_of(batch, i)
    router.numbers[CAME] += size
    router.left[budget] -= size
    if router.left[budget] <= 0:
        router.numbers[OVER] = 1
    if core.size.size > 0:
        held = core.pools[0].bytes + router.numbers[NOTED_SIZE]
        core.numbers[PEAK_BYTES] = max(core.numbers[PEAK_BYTES], held)


@implements(hooks.ends_round_before, Revisit)
def _begin_row(router, matcher, policy, core, batch, i):  # type: ignore[no-untyped-def]
    if router.to_do[i] & FIRST:
        _forget_all(core)
    done = router.numbers[0]
    while done < router.before.size and router.before[done] == i:
        leaving = router.leaving[done]
        row = _row_of(core, batch, leaving, router.arrivals[leaving])
        if row != NONE:
            remove(core, matcher, policy, row, home_shift(core.table))
        done += 1
    router.numbers[0] = done
    core.numbers[ARRIVALS] = router.arrivals[i]
    return False


@kernel
def _row_of(core, batch, i, arrival):  # type: ignore[no-untyped-def]
    """The stored row that a row of the batch is, by its arrival number, or NONE."""
    key = find_key(core, batch.hash[i], home_shift(core.table))
    if key == NONE:
        return np.int64(NONE)
    head = key_head(core, key, lane_of(core, batch.stream[i]))
    row = head
    while row != NONE and core.rows[row].arrival != arrival:
        row = np.int64(core.rows[row].older)
        if row == head:
            return np.int64(NONE)
    return row


@implements(hooks.asks_throttle, Revisit)
def _asks_no_throttle(router):  # type: ignore[no-untyped-def]
    return False


@implements(hooks.is_spilled, Revisit)
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
    core.table[:] = np.uint32(0)
    core.key_rows[:] = np.int32(0)
    for lane in range(core.settings.sweeps):
        core.lanes[lane].first = NONE
        core.lanes[lane].end = NONE
        core.lanes[lane].newest = NEVER
        core.sizes[lane] = 0
    for pool in range(core.settings.pools):
        core.pools[pool].held = 0


@loop
def measure(rows, one_input, pieces, inputs):  # type: ignore[no-untyped-def]
    """Count the rows of each partition, in `end`, and of each input."""
    for i in range(rows.size):
        pieces[partition_of(rows[i].hash)].end += 1
        inputs[0 if one_input else rows[i].stream] += 1


@loop
def arrange(rows, one_input, pieces, firsts, filled, arranged, places):  # type: ignore[no-untyped-def]
    """Put rows in the order of their partitions; those of a partition stay in their order.

    Users' rows stay in their order, too: they are copied one after the other.

    Args:
        rows: as they came.
        one_input: whether a single input holds the rows of all streams.
        pieces: for each partition where its rows begin; the rest is said, `end` as it is reached.
        firsts: for each input where its rows begin among the places.
        filled: for each input 0, which is moved on to how many rows it has.
        arranged: room for the rows; each knows then where its user's row stands in its input.
        places: room for the places of the users' rows, input by input, in their order.
    """
    for i in range(rows.size):
        partition = partition_of(rows[i].hash)
        to = pieces[partition].end
        if to == pieces[partition].start:
            pieces[partition].first = rows[i].arrival
            pieces[partition].oldest = pieces[partition].newest = rows[i].time
        pieces[partition].end = to + 1
        pieces[partition].taken += rows[i].size
        pieces[partition].oldest = min(pieces[partition].oldest, rows[i].time)
        pieces[partition].newest = max(pieces[partition].newest, rows[i].time)
        arranged[to] = rows[i]
        origin = 0 if one_input else rows[i].stream
        places[firsts[origin] + filled[origin]] = rows[i].payload
        arranged[to].payload = filled[origin]
        filled[origin] += 1


@loop
def read_back(known, base, to_do, start, batch, arrivals, tasks):  # type: ignore[no-untyped-def]
    """Put rows of a piece from disk into a batch.

    Args:
        known: what is known of them.
        base: what is added to the places of users' rows in their file.
        to_do: what is to be done with each.
        start: where they begin in the batch.
        batch: which has room for them.
        arrivals: room for their arrival numbers.
        tasks: room for what is to be done with them.
    """
    for i in range(known.size):
        to = start + i
        batch.stream[to] = known[i].stream
        batch.time[to] = known[i].time
        batch.hash[to] = known[i].hash
        batch.payload[to] = base + known[i].payload
        if batch.importance.size > 0:
            batch.importance[to] = known[i].importance
        arrivals[to] = known[i].arrival
        tasks[to] = to_do


@loop
def read_into_part(known, base, start, rank, latest, keys, rows):  # type: ignore[no-untyped-def]
    """Put rows of a piece from disk into a part of a join in bulk.

    Args:
        known: what is known of them.
        base: what is added to the places of users' rows in their file.
        start: where they begin in the part.
        rank: of the first.
        latest: the time of the row before.
        keys: takes hashes and times.
        rows: takes what else there is of rows.

    Returns:
        The time of the last; NEVER if rows are not in the order of time.
    """
    for i in range(known.size):
        to = start + i
        if known[i].time < latest:
            return np.int64(NEVER)
        latest = known[i].time
        keys[to].hash = known[i].hash
        keys[to].time = latest
        rows[to].payload = base + known[i].payload
        rows[to].rank = rank + i
        rows[to].stream = known[i].stream
    return np.int64(latest)


@loop
def find_needed(core, known, oldest, needed):  # type: ignore[no-untyped-def]
    """Say of rows whether they are within their windows.

    Args:
        core: the state of the join in memory.
        known: the rows.
        oldest: by list of rows the oldest time in its window.
        needed: what is said.
    """
    for i in range(known.size):
        needed[i] = known[i].time >= oldest[sweep_of(core, known[i].stream)]


@loop
def census(core, sizes):  # type: ignore[no-untyped-def]
    """Add up the sizes of the rows in memory by partition and lane."""
    for row in range(core.numbers[ROWS_USED]):
        if core.rows[row].arrival != NONE:
            partition = partition_of(key_hash(core, core.rows[row].key))
            sizes[partition, lane_of(core, core.rows[row].stream)] += _stored_size(core, row)


@kernel
def _stored_size(core, row):  # type: ignore[no-untyped-def]
    return min(core.size[row], np.int64(LARGEST)) if core.size.size > 0 else np.int64(1)


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
        away[taken].size = _stored_size(core, row)
        if core.importance.size > 0:
            away[taken].importance = core.importance[row]
        taken += 1
        remove(core, matcher, policy, row, shift)
        count(core, stream, STORED, 1)
    return taken
