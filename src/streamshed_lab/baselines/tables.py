"""Hash tables, one for each input of an operator, with chains of entries in one pool.

An entry is a row of a stream, or in a tree an intermediate result. Rows leave in the order of their
arrival, when the window has passed them; intermediate results when a probe meets them, or when all
are swept because the pool is full.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import driver, kernel, loop
from streamshed.kernels.core import NONE

ENTRY = np.dtype(
    [
        ("hash", np.uint64),
        ("time", np.int64),  # of its oldest member
        ("latest", np.int64),  # of its latest
        ("number", np.int64),  # of the arrival that made it
        ("table", np.int32),  # NONE if it is unused
        ("next", np.int32),  # in its chain
        ("back", np.int32),
        ("after", np.int32),  # the next row to arrive, or the next unused entry
    ],
    align=True,
)

# The scalars of the state, in `State.numbers`.
(
    FIRST,
    LAST,
    FREE,
    USED,
    HELD,
    ARRIVED,
    MADE,
    PROBES,
    EXPIRED,
    NEXT,
    LEVEL,
    START,
    END,
    AT,
    CHAIN,
) = range(15)
NUMBERS = 15


class Settings(NamedTuple):
    """What is joined, as scalars."""

    streams: int
    window: int
    complete: bool
    at_least: int
    width: int  # members of an entry, at most
    shift: np.uint64  # of a hash, so that its top bits say the bucket
    buckets: int  # of each table


class State(NamedTuple):
    """The arrays of a join."""

    settings: Settings
    heads: npt.NDArray[np.int32]  # table × buckets + bucket
    entries: npt.NDArray[Any]
    members: npt.NDArray[np.int64]  # entry × width + stream
    numbers: npt.NDArray[np.int64]
    order: npt.NDArray[np.int32]  # the streams, the most selective first
    asked: npt.NDArray[np.float64]  # by stream: probes of late, and how many met a row
    met: npt.NDArray[np.float64]
    found: npt.NDArray[np.int32]  # partners, or intermediate results, of the newcomer
    groups: npt.NDArray[np.int64]  # where the partners of each stream begin
    choice: npt.NDArray[np.int64]


def new_state(
    streams: int, tables: int, window: int, at_least: int | None, width: int, room: int
) -> State:
    """An empty state.

    Args:
        streams: how many are joined.
        tables: how many hash tables there are.
        window: the length of the window.
        at_least: members of a partial result, None for a complete join.
        width: members that an entry has, at most.
        room: rows of a stream that a window is expected to hold.
    """
    bits = max(4, int(room - 1).bit_length())
    settings = Settings(
        streams,
        window,
        at_least is None,
        at_least or streams,
        width,
        np.uint64(64 - bits),
        1 << bits,
    )
    state = State(
        settings,
        np.full(tables << bits, NONE, np.int32),
        np.empty(0, ENTRY),
        np.empty(0, np.int64),
        np.zeros(NUMBERS, np.int64),
        np.arange(streams, dtype=np.int32),
        np.zeros(streams),
        np.zeros(streams),
        np.empty(0, np.int32),
        np.zeros(streams + 1, np.int64),
        np.zeros(streams + 1, np.int64),
    )
    state.numbers[[FIRST, LAST, FREE]] = NONE
    return state


def larger(state: State, room: int) -> State:
    """The state with room for so many entries."""
    entries, members = np.empty(room, ENTRY), np.empty(room * state.settings.width, np.int64)
    found = np.empty(room, np.int32)
    entries.view(np.uint8)[: state.entries.nbytes] = state.entries.view(np.uint8)
    members[: state.members.size] = state.members
    found[: state.found.size] = state.found
    return state._replace(entries=entries, members=members, found=found)


@kernel
def head_of(state, table, hashed):  # type: ignore[no-untyped-def]
    """Where the chain of a hash begins in a table."""
    return table * state.settings.buckets + np.int64(hashed >> state.settings.shift)


@kernel
def is_full(state):  # type: ignore[no-untyped-def]
    """Whether there is no room for another entry."""
    numbers = state.numbers
    return numbers[FREE] == NONE and numbers[USED] == state.entries.size


@kernel
def add(state, table, hashed, time, latest, number):  # type: ignore[no-untyped-def]
    """Enter something into a table; returns its entry, whose members are not written yet."""
    numbers, entries = state.numbers, state.entries
    entry = numbers[FREE]
    if entry != NONE:
        numbers[FREE] = entries[entry].after
    else:
        entry = numbers[USED]
        numbers[USED] += 1
    numbers[HELD] += 1
    entries[entry].hash = hashed
    entries[entry].time = time
    entries[entry].latest = latest
    entries[entry].number = number
    entries[entry].table = table
    head = head_of(state, table, hashed)
    following = state.heads[head]
    entries[entry].next = following
    entries[entry].back = NONE
    if following != NONE:
        entries[following].back = entry
    state.heads[head] = entry
    return entry


@kernel
def add_row(state, table, batch, i):  # type: ignore[no-untyped-def]
    """Enter a row into a table, and at the end of those that expire."""
    numbers = state.numbers
    time = batch.time[i]
    entry = add(state, table, batch.hash[i], time, time, numbers[ARRIVED])
    state.entries[entry].after = NONE
    if numbers[LAST] == NONE:
        numbers[FIRST] = entry
    else:
        state.entries[numbers[LAST]].after = entry
    numbers[LAST] = entry
    return entry


@kernel
def drop(state, entry):  # type: ignore[no-untyped-def]
    """Take an entry out of its chain, and let it be used anew."""
    entries = state.entries
    back, following = entries[entry].back, entries[entry].next
    if back == NONE:
        state.heads[head_of(state, entries[entry].table, entries[entry].hash)] = following
    else:
        entries[back].next = following
    if following != NONE:
        entries[following].back = back
    entries[entry].table = NONE
    entries[entry].after = state.numbers[FREE]
    state.numbers[FREE] = entry
    state.numbers[HELD] -= 1


@kernel
def expire(state, now):  # type: ignore[no-untyped-def]
    """Let go of the rows that are outside the window."""
    numbers, entries = state.numbers, state.entries
    row = numbers[FIRST]
    while row != NONE and now - entries[row].time > state.settings.window:
        following = np.int64(entries[row].after)
        drop(state, row)
        numbers[EXPIRED] += 1
        row = following
    numbers[FIRST] = row
    if row == NONE:
        numbers[LAST] = NONE


@loop
def sweep(state, now):  # type: ignore[no-untyped-def]
    """Let go of all intermediate results that are outside the window."""
    for entry in range(state.numbers[USED]):
        old = now - state.entries[entry].time > state.settings.window
        if state.entries[entry].table != NONE and old:
            drop(state, entry)


@driver
def taken_out(state, partition, partitions, tables):  # type: ignore[no-untyped-def]
    """Take all entries of a partition out of a range of tables; returns which they were.

    Rows stay among those that arrived only as far as they are in memory.
    """
    entries, numbers = state.entries, state.numbers
    out = np.empty(numbers[HELD], np.int64)
    count = 0
    shift = np.uint64(64 - partitions)
    for entry in range(numbers[USED]):
        table = entries[entry].table
        if tables[0] <= table < tables[1] and np.int64(entries[entry].hash >> shift) == partition:
            out[count] = entry
            count += 1
    last = np.int64(NONE)
    row = numbers[FIRST]
    while row != NONE:
        following = np.int64(entries[row].after)
        table = entries[row].table
        goes = np.int64(entries[row].hash >> shift) == partition
        if not (tables[0] <= table < tables[1] and goes):
            if last == NONE:
                numbers[FIRST] = row
            else:
                entries[last].after = row
            last = row
        row = following
    if last == NONE:
        numbers[FIRST] = NONE
    else:
        entries[last].after = NONE
    numbers[LAST] = last
    return out[:count].copy()


@loop
def drop_all(state, gone):  # type: ignore[no-untyped-def]
    """Let go of entries."""
    for place in range(gone.size):
        drop(state, gone[place])
