"""Several streams into one, in the order in which their rows arrive; and one into several."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import driver, kernel, loop
from streamshed.kernels.intrinsics import int_at, long_at


class Runs(NamedTuple):
    """Rows in several runs, each in the order of arrival, of which a span is merged.

    The columns are known by their addresses, so that they need not be copied into one array first.
    """

    columns: npt.NDArray[np.int64]  # by (run, see STREAM): where a column begins
    starts: npt.NDArray[np.int64]  # by run: the first row of the span
    ends: npt.NDArray[np.int64]


class Race(NamedTuple):
    """A tournament between the runs: who has the next row."""

    winner: npt.NDArray[np.int64]  # by node; the leaves, one for each run, stand last
    front: npt.NDArray[np.int64]  # by run: when its next row arrives
    at: npt.NDArray[np.int64]  # by run: its next row
    next: npt.NDArray[np.int32]  # the runs whose rows come next, of some rows
    taken: npt.NDArray[np.int64]  # by run: the next row to be taken by whoever merges them


class Places(NamedTuple):
    """Room to count the rows of some moments, each in the place that its number says."""

    moments: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]  # by (moment, place of keys)
    seen: npt.NDArray[np.int32]  # by moment: the places that have rows
    used: npt.NDArray[np.int64]  # by moment: how many these are


STREAM, TIME, HASH, PAYLOAD, ARRIVAL, HASHES = range(6)
"""The columns of a run; the last has the hashes of its attributes, by (row, place)."""
SOME = 1 << 10
"""Rows whose order is found at a time, before they are taken."""
MOMENTS_AT_ONCE = 16
"""Moments of which rows are counted at once; rows of others that come between cost more."""
_OVER = np.iinfo(np.int64).max
_FEW_RUNS = 4


def race_of(runs: int) -> Race:
    """Room for a tournament between so many runs."""
    leaves = max(_FEW_RUNS, 1 << max(0, runs - 1).bit_length())
    front, at, taken = (np.empty(leaves, np.int64) for _ in range(3))
    return Race(np.empty(2 * leaves, np.int64), front, at, np.empty(SOME, np.int32), taken)


def counting(places: int) -> Places:
    """Room to count the rows in so many places."""
    moments, used = np.zeros((2, MOMENTS_AT_ONCE), np.int64)
    rows, seen = np.zeros((2, MOMENTS_AT_ONCE, places), np.int32)
    return Places(moments, rows, seen, used)


@kernel
def begin_race(race, runs):  # type: ignore[no-untyped-def]
    """Let the runs begin; returns how many rows there are."""
    leaves = race.front.size
    rows = np.int64(0)
    for run in range(leaves):
        race.winner[leaves + run] = run
        race.front[run] = _OVER
        race.at[run] = 0
        if run < runs.starts.size and runs.starts[run] < runs.ends[run]:
            race.at[run] = runs.starts[run]
            race.front[run] = long_at(runs.columns[run, ARRIVAL], runs.starts[run])
            rows += runs.ends[run] - runs.starts[run]
        race.taken[run] = race.at[run]
    for node in range(leaves - 1, 0, -1):
        _play(race, node)
    return rows


@kernel
def find_order(race, runs, rows):  # type: ignore[no-untyped-def]
    """Find the runs of the next rows, of which there are so many or more; returns how many."""
    rows = min(rows, SOME)
    if runs.starts.size == 1:
        race.next[:rows] = 0
    elif race.front.size == _FEW_RUNS:
        _run_few(race, runs, rows)
    else:
        for i in range(rows):
            run = race.winner[1]
            race.next[i] = run
            race.front[run] = _next_arrival(race, runs, run)
            node = (race.front.size + run) >> 1
            while node > 0:
                _play(race, node)
                node >>= 1
    return rows


@kernel
def _play(race, node):  # type: ignore[no-untyped-def]
    """Let the better of two go on; of rows that arrive at one time that of the first run."""
    one, other = race.winner[2 * node], race.winner[2 * node + 1]
    race.winner[node] = one if race.front[one] <= race.front[other] else other


@kernel
def _run_few(race, runs, rows):  # type: ignore[no-untyped-def]
    """The same tournament between four, in registers and without branches.

    Which run is next cannot be foretold: a wrong guess of the processor costs more than all of it.
    """
    a, b, c, d = race.front[0], race.front[1], race.front[2], race.front[3]
    for i in range(rows):
        one = np.int64(b < a)
        other = np.int64(d < c) + 2
        run = other if min(c, d) < min(a, b) else one
        race.next[i] = run
        arrival = _next_arrival(race, runs, run)
        a = arrival if run == 0 else a
        b = arrival if run == 1 else b
        c = arrival if run == 2 else c
        d = arrival if run == 3 else d
    race.front[0], race.front[1], race.front[2], race.front[3] = a, b, c, d


@kernel
def _next_arrival(race, runs, run):  # type: ignore[no-untyped-def]
    """Go on in a run; returns when its next row arrives."""
    following = race.at[run] + 1
    race.at[run] = following
    if following < runs.ends[run]:
        return long_at(runs.columns[run, ARRIVAL], following)
    return _OVER


@kernel
def take_row(race, run):  # type: ignore[no-untyped-def]
    """The next row of a run."""
    row = race.taken[run]
    race.taken[run] = row + 1
    return row


@loop
def merge_rows(runs, race, firsts, order, stream, time, hashed, payload, hashes):  # type: ignore[no-untyped-def]
    """Put the rows of several runs into one order: by (time of arrival, run, place in it).

    Args:
        runs: the rows.
        race: room to merge them.
        firsts: where each run would begin if they stood one after the other.
        order: takes where each row would stand then, if there is room.
        stream: takes the column of that name, as the others do.
        time: a column.
        hashed: a column.
        payload: a column.
        hashes: takes those of the attributes, if rows have some.
    """
    rows, width = begin_race(race, runs), hashes.shape[1]
    place = 0
    while place < rows:
        for i in range(find_order(race, runs, rows - place)):
            run = np.int64(race.next[i])
            row = take_row(race, run)
            columns = runs.columns[run]
            stream[place] = int_at(columns[STREAM], row)
            time[place] = long_at(columns[TIME], row)
            hashed[place] = long_at(columns[HASH], row)
            payload[place] = long_at(columns[PAYLOAD], row)
            if hashes.shape[0] > 0:
                for own in range(width):
                    hashes[place, own] = long_at(columns[HASHES], row * width + own)
            if order.size > 0:
                order[place] = firsts[run] + row
            place += 1


@loop
def order_by_shard(hashed, starts, order):  # type: ignore[no-untyped-def]
    """Put rows into an order by shard, which the hash of the key says, and then as they stand.

    Args:
        hashed: of each row; takes its shard, since to divide again takes longer than to read it.
        starts: takes where the rows of each shard begin, and where the last end.
        order: takes the rows.
    """
    shards = np.uint64(starts.size - 1)
    starts[:] = 0
    for i in range(hashed.size):
        hashed[i] %= shards
        starts[np.int64(hashed[i]) + 1] += 1
    for shard in range(1, starts.size):
        starts[shard] += starts[shard - 1]
    for i in range(hashed.size):
        own = np.int64(hashed[i])
        order[starts[own]] = i
        starts[own] += 1
    for shard in range(starts.size - 1, 0, -1):
        starts[shard] = starts[shard - 1]
    starts[0] = 0


@loop
def count_places(hashed, time, no_key, no_time, every, cells, places, counts):  # type: ignore[no-untyped-def]
    """Count rows by moment and by the place of their keys; returns how many counts there are.

    Counts of one moment and place are to be added; there are several where rows are out of order
    by many moments.

    Args:
        hashed: by which keys are divided among shards.
        time: of each row.
        no_key: which have no key; empty if all have one.
        no_time: which have no time; empty likewise.
        every: how far moments are apart.
        cells: the number of the first place, how many shards there are, and places of each.
        places: room to count the rows of some moments.
        counts: takes what is counted; it has room for as many as there are rows.
    """
    first, shards, own = cells[0], np.uint64(cells[1]), np.uint64(cells[2])
    found = at = 0
    begin = end = np.int64(0)  # of the moment at hand: to divide takes longer than to look
    for i in range(hashed.size):
        if (no_key.size > 0 and no_key[i]) or (no_time.size > 0 and no_time[i]):
            continue
        if time[i] < begin or time[i] >= end:
            moment = time[i] // every
            begin, end = moment * every, (moment + 1) * every
            at = moment % places.moments.size
            if places.moments[at] != moment:
                found = _count_moment(places, at, first, counts, found)
                places.moments[at] = moment
        shard = hashed[i] % shards
        place = ((hashed[i] >> np.uint64(32)) * own) >> np.uint64(32)
        cell = np.int64(shard * own + place)
        if places.rows[at, cell] == 0:
            places.seen[at, places.used[at]] = cell
            places.used[at] += 1
        places.rows[at, cell] += 1
    for at in range(places.moments.size):
        found = _count_moment(places, at, first, counts, found)
    return found


@kernel
def _count_moment(places, at, first, counts, found):  # type: ignore[no-untyped-def]
    """Hand out the counts of a moment, and make room for another; returns how many are found."""
    for i in range(places.used[at]):
        cell = places.seen[at, i]
        counts.moments[found] = places.moments[at]
        counts.cells[found] = first + cell
        counts.rows[found] = places.rows[at, cell]
        places.rows[at, cell] = 0
        found += 1
    places.used[at] = 0
    return found


@driver
def running_maximum(times, null, so_far):  # type: ignore[no-untyped-def]
    """The largest time up to each row, and the number of rows that came behind it."""
    largest = so_far
    maxima = np.empty(times.size, np.int64)
    behind = 0
    for i in range(times.size):
        if null.size == 0 or not null[i]:
            if times[i] > largest:
                largest = times[i]
            elif times[i] < largest:
                behind += 1
        maxima[i] = largest
    return maxima, behind
