"""Trees of binary joins, left-deep, in the order of the streams: symmetric hash joins, and XJoins.

The operator of stream j joins what the streams before it have made with its own rows; each of its
two inputs has a hash table. What it makes is stored in the table of the next operator, and probes
the other one there. An XJoin tree flushes the fullest partition of any table when memory is full; a
tree of symmetric hash joins has no disk.

With variable arity an operator passes on what finds no match. Intermediate results are not stored
then: they would have to be withdrawn when another stream joins in, or when a member expires. So a
newcomer goes through the operators of all other streams, each of which probes its rows (as costly
as an outer join, section 3.1), and extends every intermediate result that comes from below. These
all have the newcomer's key, so that one probe does for all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import Batch
from streamshed.engine.sink import MADE as WRITTEN
from streamshed.engine.sink import MEMBERS
from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import BOUNDLESS, NONE
from streamshed_lab.baselines.base import CROWDED, DONE, FULL, SUSPENDED, Baseline
from streamshed_lab.baselines.mjoin import store
from streamshed_lab.baselines.tables import (
    ARRIVED,
    AT,
    CHAIN,
    END,
    HELD,
    LAST,
    LEVEL,
    MADE,
    NEXT,
    PROBES,
    START,
    add,
    add_row,
    drop,
    expire,
    head_of,
    is_full,
)

UNSET = -2
"""Stands for a chain that was not entered yet."""


class SHJTree(Baseline):
    """A tree of symmetric hash joins; see the module."""

    name = "SHJ tree"
    spills = False

    @property
    def tables(self) -> int:
        """One for each stream, and for each intermediate result, unless arity varies."""
        streams = self.query.streams
        return 2 * streams - 2 if self.query.at_least is None else streams

    @property
    def width(self) -> int:
        """Members that an entry of a table has, at most."""
        return self.query.streams if self.query.at_least is None else 1

    def _loop(self, batch: Batch) -> int:
        if self.query.at_least is not None:
            passed: int = run_passing(self.state, batch, self.out)
            return passed
        memory = BOUNDLESS if self.query.memory is None else self.query.memory
        status: int = run_tree(self.state, batch, self.out, memory)
        return status

    def _store(self, batch: Batch) -> None:
        store(self.state, batch)

    def _left(self, step: int) -> int:
        return 0 if step == 1 else self.query.streams + step - 2

    def _victims(self, held: npt.NDArray[np.int64]) -> tuple[int, int, int]:
        table, partition = np.unravel_index(held.argmax(), held.shape)
        return int(table), int(table) + 1, int(partition)


class XJoinTree(SHJTree):
    """A tree of XJoins; see the module."""

    name = "XJoin tree"
    spills = True


# -- complete joins -------------------------------------------------------------------------------


@loop
def run_tree(state, batch, out, memory):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it.

    A newcomer's work is a queue, `found`: up to START what it meets itself, then the intermediate
    results that come of it, up to END. AT and CHAIN say how far the work is; LEVEL is 1 while there
    is any.
    """
    numbers = state.numbers
    for i in range(numbers[NEXT], batch.time.size):
        if numbers[LEVEL] == 0:
            numbers[NEXT] = i
            expire(state, batch.time[i])
            if numbers[HELD] >= memory:
                return FULL
            if is_full(state):
                return CROWDED
            meet(state, batch, i)
            numbers[ARRIVED] += 1
            numbers[LEVEL] = 1
        status = work_off(state, batch, out, i)
        if status != DONE:
            return status
        numbers[LEVEL] = 0
    numbers[NEXT] = 0
    return DONE


@kernel
def meet(state, batch, i):  # type: ignore[no-untyped-def]
    """Store a newcomer, and begin the queue: with itself, or with what it meets."""
    numbers, entries, streams = state.numbers, state.entries, state.settings.streams
    stream = np.int64(batch.stream[i])
    row = add_row(state, stream, batch, i)
    state.members[row * state.settings.width + stream] = batch.payload[i]
    numbers[START] = 0
    numbers[END] = 0
    numbers[AT] = 0
    numbers[CHAIN] = UNSET
    if stream == 0:
        state.found[0] = row
        numbers[END] = 1
        return
    numbers[PROBES] += 1
    table = 0 if stream == 1 else streams + stream - 2
    left = np.int64(state.heads[head_of(state, table, batch.hash[i])])
    while left != NONE:
        following = np.int64(entries[left].next)
        if batch.time[i] - entries[left].time > state.settings.window:
            drop(state, left)
        elif entries[left].hash == batch.hash[i]:
            state.found[numbers[END]] = left
            numbers[END] += 1
        left = following
    numbers[START] = numbers[END]


@kernel
def work_off(state, batch, out, i):  # type: ignore[no-untyped-def]
    """Work the queue off, as far as there is room."""
    numbers, entries, streams = state.numbers, state.entries, state.settings.streams
    while numbers[AT] < numbers[END]:
        left = np.int64(state.found[numbers[AT]])
        table = np.int64(entries[left].table)
        spans = 1 if table == 0 else table - streams + 2
        itself = numbers[AT] < numbers[START]
        if numbers[CHAIN] == UNSET:
            if itself:
                numbers[CHAIN] = numbers[LAST]
            else:
                numbers[PROBES] += 1
                numbers[CHAIN] = state.heads[head_of(state, spans, batch.hash[i])]
        while numbers[CHAIN] != NONE:
            right = numbers[CHAIN]
            if entries[right].hash == batch.hash[i]:
                if spans + 1 == streams:
                    if not write(state, batch, out, i, left, right):
                        return SUSPENDED
                else:
                    if is_full(state):
                        return CROWDED
                    combine(state, batch, i, left, right, spans)
            numbers[CHAIN] = NONE if itself else np.int64(entries[right].next)
        numbers[CHAIN] = UNSET
        numbers[AT] += 1
    return DONE


@kernel
def combine(state, batch, i, left, right, spans):  # type: ignore[no-untyped-def]
    """Store what two entries make together, and put it at the end of the queue."""
    numbers, entries, width = state.numbers, state.entries, state.settings.width
    time = min(entries[left].time, entries[right].time)
    made = add(
        state,
        state.settings.streams + spans - 1,
        batch.hash[i],
        time,
        batch.time[i],
        numbers[ARRIVED] - 1,
    )
    for member in range(spans):
        state.members[made * width + member] = state.members[left * width + member]
    state.members[made * width + spans] = state.members[right * width + spans]
    state.found[numbers[END]] = made
    numbers[END] += 1


@kernel
def write(state, batch, out, i, left, right):  # type: ignore[no-untyped-def]
    """Write a result; False if there is no room."""
    width = state.settings.streams
    base = out.filled[MEMBERS]
    if out.filled[WRITTEN] >= out.results.size or base + width > out.payload.size:
        return False
    for member in range(width - 1):
        out.payload[base + member] = state.members[left * width + member]
    out.payload[base + width - 1] = state.members[right * width + width - 1]
    close_result(state, batch, out, i, base + width)
    return True


@kernel
def close_result(state, batch, out, i, end):  # type: ignore[no-untyped-def]
    """Say when a result was made, and where its members end."""
    out.filled[MEMBERS] = end
    out.results[out.filled[WRITTEN]].time = batch.time[i]
    out.results[out.filled[WRITTEN]].end = end
    out.filled[WRITTEN] += 1
    state.numbers[MADE] += 1


# -- variable arity -------------------------------------------------------------------------------


@loop
def run_passing(state, batch, out):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it: LEVEL is that of the next operator, plus one.

    The intermediate results of a newcomer are pairs in `found`: which one they extend, by which
    row. Those of the last operator stand from START to END.
    """
    numbers, streams = state.numbers, state.settings.streams
    for i in range(numbers[NEXT], batch.time.size):
        if numbers[LEVEL] == 0:
            numbers[NEXT] = i
            expire(state, batch.time[i])
            if is_full(state) or state.found.size < 2:
                return CROWDED
            row = add_row(state, batch.stream[i], batch, i)
            state.members[row] = batch.payload[i]
            numbers[ARRIVED] += 1
            state.found[0], state.found[1] = NONE, row
            numbers[START], numbers[END], numbers[LEVEL], numbers[CHAIN] = 0, 1, 1, 0
        while numbers[LEVEL] <= streams:
            if numbers[LEVEL] - 1 != batch.stream[i] and not pass_on(state, batch, i):
                return CROWDED
            numbers[LEVEL] += 1
            numbers[AT] = numbers[START]
        if not write_passed(state, batch, out, i):
            return SUSPENDED
        numbers[LEVEL] = 0
    numbers[NEXT] = 0
    return DONE


@kernel
def pass_on(state, batch, i):  # type: ignore[no-untyped-def]
    """Let an operator extend what comes from below; False if there is no room.

    CHAIN counts how many members the results have besides the newcomer.
    """
    numbers, entries, found = state.numbers, state.entries, state.found
    head = head_of(state, numbers[LEVEL] - 1, batch.hash[i])
    matches = 0
    row = np.int64(state.heads[head])
    while row != NONE:
        matches += entries[row].hash == batch.hash[i]
        row = np.int64(entries[row].next)
    coming = numbers[END] - numbers[START]
    numbers[PROBES] += 1
    if matches == 0:
        return True
    if 2 * (numbers[END] + coming * matches) > found.size:
        return False
    end = numbers[END]
    for place in range(numbers[START], numbers[END]):
        row = np.int64(state.heads[head])
        while row != NONE:
            if entries[row].hash == batch.hash[i]:
                found[2 * end], found[2 * end + 1] = place, row
                end += 1
            row = np.int64(entries[row].next)
    numbers[START], numbers[END] = numbers[END], end
    numbers[CHAIN] += 1
    return True


@kernel
def write_passed(state, batch, out, i):  # type: ignore[no-untyped-def]
    """Write the results that have come through all operators; False if there is no room."""
    numbers, found = state.numbers, state.found
    width = numbers[CHAIN] + 1
    if width < state.settings.at_least:
        return True
    while numbers[AT] < numbers[END]:
        base = out.filled[MEMBERS]
        if out.filled[WRITTEN] >= out.results.size or base + width > out.payload.size:
            return False
        at = numbers[AT]
        for member in range(width - 1, 0, -1):
            out.payload[base + member] = state.members[found[2 * at + 1]]
            at = np.int64(found[2 * at])
        out.payload[base] = batch.payload[i]
        close_result(state, batch, out, i, base + width)
        numbers[AT] += 1
    return True
