"""What deciding costs with the tables of section 4, and no join around them (figure 9).

EP has a bit-vector hash table and, for each window, a priority queue of 2ⁿ⁻¹ patterns. Value-based
policies have a table of all values of the domain for each window, *T_i*, here as a priority queue
too: to find the value that stands lowest takes no time, to change what one stands by takes
log₂ D steps. Both go by the same code; what differs is what the queue is of. The paper's times are
of the same: "for making load shedding decisions and updating the data structures". Values are
unique, as in its experiment, and come to each window once; rows are dropped where the memory is
full, and do not expire.
"""

from __future__ import annotations

import time
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.kernels.compiling import kernel, loop

NONE = -1
ABSENT = np.inf
"""What a pattern or a value stands by that has no rows."""
PATTERNS, FREQUENCY, OUTPUT = range(3)
Kind = Literal["existence", "frequency", "output"]
KINDS: dict[Kind, int] = {"existence": PATTERNS, "frequency": FREQUENCY, "output": OUTPUT}


class Tables(NamedTuple):
    """A priority queue of groups for each window, and the rows of each group, first in first out.

    A group is a pattern, or a value; that of a stream has the number stream × groups + its own.
    """

    items: npt.NDArray[np.int32]  # the queues, one after the other
    place: npt.NDArray[np.int32]  # by group: its place in its queue
    standing: npt.NDArray[np.float64]  # by group
    first: npt.NDArray[np.int32]  # by group: its oldest row
    last: npt.NDArray[np.int32]
    after: npt.NDArray[np.int32]  # by row: the next of its group
    before: npt.NDArray[np.int32]
    group: npt.NDArray[np.int32]  # by row
    value: npt.NDArray[np.int64]  # by row
    row_of: npt.NDArray[np.int32]  # by (stream, value): its row, as values are unique
    bits: npt.NDArray[np.uint8]  # by value: the windows that it is in
    made: npt.NDArray[np.float64]  # by group: r, or results
    stored: npt.NDArray[np.float64]  # by group: n
    held: npt.NDArray[np.int64]  # by stream: how many rows


def new_tables(kind: int, streams: int, domain: int, rows: int) -> Tables:
    """Empty tables."""
    groups = (1 << (streams - 1)) if kind == PATTERNS else domain
    many = streams * groups

    def empty(size: int) -> npt.NDArray[Any]:
        return np.full(size, NONE, np.int32)

    order = np.tile(np.arange(groups, dtype=np.int32), streams)
    return Tables(
        order + np.repeat(np.arange(streams, dtype=np.int32) * groups, groups),
        order.copy(),
        np.full(many, ABSENT),
        empty(many),
        empty(many),
        empty(streams * rows),
        empty(streams * rows),
        empty(streams * rows),
        np.zeros(streams * rows, np.int64),
        empty(streams * domain),
        np.zeros(domain, np.uint8),
        np.zeros(many),
        np.zeros(many),
        np.zeros(streams, np.int64),
    )


def nanoseconds(tables: dict[str, pa.Table], kind: Kind, rows: int, domain: int) -> float:
    """The time that deciding and keeping the tables takes, for each row.

    Args:
        tables: streams of unique keys, below the domain's size.
        kind: of policy.
        rows: of each window.
        domain: how many values there are.
    """
    stream = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables.values()])
    when, key = (
        np.concatenate([table[name].cast("int64").to_numpy() for table in tables.values()])
        for name in ("time", "key")
    )
    order = np.lexsort((stream, when))
    # Values are anywhere in the domain, as hash values or names are.
    where = np.random.default_rng(9).permutation(domain)[key[order]]
    state = new_tables(KINDS[kind], len(tables), domain, rows)
    begin = time.process_time()
    decide(state, KINDS[kind], len(tables), rows, stream[order], where)
    return (time.process_time() - begin) * 1e9 / order.size


@loop
def decide(tables, kind, streams, rows, stream, value):  # type: ignore[no-untyped-def]
    """Take rows, one after the other; returns how many keys were completed."""
    completed = 0
    for i in range(stream.size):
        own = stream[i]
        free = tables.held[own]
        if free == rows:
            free = _remove(tables, kind, streams, own, _victim(tables, kind, streams, own))
        else:
            free += own * rows
            tables.held[own] += 1
        completed += _insert(tables, kind, streams, own, free, value[i])
    return completed


@kernel
def _victim(tables, kind, streams, own):  # type: ignore[no-untyped-def]
    groups = tables.place.size // streams
    if kind == PATTERNS:
        full = (own + 1) * groups - 1
        if tables.first[full] != NONE:
            return np.int64(tables.first[full])
    return np.int64(tables.first[tables.items[own * groups]])


@kernel
def _remove(tables, kind, streams, own, row):  # type: ignore[no-untyped-def]
    """Take a row out of its group and of all tables; returns it."""
    group = np.int64(tables.group[row])
    before, after = tables.before[row], tables.after[row]
    if before == NONE:
        tables.first[group] = after
    else:
        tables.after[before] = after
    if after == NONE:
        tables.last[group] = before
    else:
        tables.before[after] = before
    value = tables.value[row]
    tables.row_of[own * tables.bits.size + value] = NONE
    tables.bits[value] &= ~np.uint8(1 << own)
    if kind != PATTERNS:
        tables.stored[group] -= 1.0
    _rank(tables, kind, streams, group)
    return row


@kernel
def _insert(tables, kind, streams, own, row, value):  # type: ignore[no-untyped-def]
    """Put a row into its group; returns whether its value is now in all windows."""
    groups = tables.place.size // streams
    tables.bits[value] |= np.uint8(1 << own)
    pattern = np.int64(tables.bits[value])
    below = (1 << own) - 1
    short = (pattern & below) | ((pattern >> 1) & ~below)
    group = own * groups + (short if kind == PATTERNS else value)
    last = tables.last[group]
    tables.group[row], tables.value[row] = group, value
    tables.before[row], tables.after[row] = last, NONE
    if last == NONE:
        tables.first[group] = row
    else:
        tables.after[last] = row
    tables.last[group] = row
    tables.row_of[own * tables.bits.size + value] = row
    tables.stored[group] += 1.0
    done = pattern == (1 << streams) - 1
    if done:
        for other in range(streams):
            met = np.int64(tables.row_of[other * tables.bits.size + value])
            theirs = np.int64(tables.group[met])
            tables.made[theirs] += 1.0
            if kind != FREQUENCY:
                _rank(tables, kind, streams, theirs)
    _rank(tables, kind, streams, group)
    return done


@kernel
def _rank(tables, kind, streams, group):  # type: ignore[no-untyped-def]
    """Find anew what a group stands by, and its place in the queue."""
    standing = ABSENT
    if tables.first[group] != NONE:
        if kind == PATTERNS:
            standing = tables.made[group] / tables.stored[group]
        elif kind == FREQUENCY:
            standing = tables.stored[group]
        else:
            standing = tables.made[group]
    rises = standing < tables.standing[group]
    tables.standing[group] = standing
    groups = tables.place.size // streams
    base = group // groups * groups
    at = np.int64(tables.place[group])
    if rises:
        while at > 0:
            parent = (at - 1) // 2
            if tables.standing[tables.items[base + parent]] <= standing:
                break
            _put(tables, base, at, tables.items[base + parent])
            at = parent
    else:
        while True:
            child = 2 * at + 1
            if child >= groups:
                break
            other = child + 1
            if other < groups and (
                tables.standing[tables.items[base + other]]
                < tables.standing[tables.items[base + child]]
            ):
                child = other
            if tables.standing[tables.items[base + child]] >= standing:
                break
            _put(tables, base, at, tables.items[base + child])
            at = child
    _put(tables, base, at, group)


@kernel
def _put(tables, base, at, group):  # type: ignore[no-untyped-def]
    tables.items[base + at] = group
    tables.place[group] = at
