"""MJoin: a hash table for each stream, probed one after the other (Viglas, Naughton, Burger 2003).

Complete joins probe the most selective stream first, and stop where nothing matches. The order is
chosen anew every 1,024 tuples, from the probes of late, or as often as the query says: the SNJoin
paper counts a choice for every tuple, and the partial results of each probe (figure 4). Joins of
variable arity probe all streams. Partitions are flushed from all tables together (coordinated
flushing).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import Batch
from streamshed.engine.sink import MADE as WRITTEN
from streamshed.engine.sink import MEMBERS
from streamshed.kernels.compiling import cold_kernel, kernel, loop
from streamshed.kernels.core import BOUNDLESS, NONE
from streamshed_lab.baselines.base import CROWDED, DONE, FULL, SUSPENDED, Baseline
from streamshed_lab.baselines.tables import (
    ARRIVED,
    END,
    HELD,
    LEVEL,
    MADE,
    NEXT,
    PROBES,
    add_row,
    expire,
    head_of,
    is_full,
)

FORGET_AT = 1024.0
"""Probes of a stream after which half of them are forgotten."""


class MJoin(Baseline):
    """One hash table for each stream; see the module."""

    name = "MJoin"
    partials: ClassVar[npt.NDArray[np.int64]] = np.empty(1 << 12, np.int64)
    """Where partial results are formed: those of a probe are lost with the next."""

    @property
    def tables(self) -> int:
        """One for each stream."""
        return self.query.streams

    def _loop(self, batch: Batch) -> int:
        memory = BOUNDLESS if self.query.memory is None else self.query.memory
        query = self.query
        status: int = run_mjoin(
            self.state,
            batch,
            self.out,
            memory,
            query.ordered_every,
            self.partials if query.forms else self.partials[:0],
            query.factorised,
        )
        return status

    def _store(self, batch: Batch) -> None:
        store(self.state, batch)

    def _left(self, step: int) -> int:
        return step  # all are flushed together

    def _victims(self, held: npt.NDArray[np.int64]) -> tuple[int, int, int]:
        return 0, self.tables, int(held.sum(axis=0).argmax())


@loop
def run_mjoin(state, batch, out, memory, ordered_every, partials, factorised):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it."""
    numbers = state.numbers
    for i in range(numbers[NEXT], batch.time.size):
        if numbers[LEVEL] == 0:
            numbers[NEXT] = i
            expire(state, batch.time[i])
            if numbers[HELD] >= memory:
                return FULL
            if is_full(state):
                return CROWDED
            row = add_row(state, batch.stream[i], batch, i)
            state.members[row] = batch.payload[i]
            numbers[ARRIVED] += 1
            if state.settings.complete:
                if numbers[ARRIVED] % ordered_every == 0:
                    sort_streams(state)
                probe_while_matching(state, batch, i, partials)
            else:
                probe_all(state, batch, i)
        if numbers[END] > 0:
            if factorised:
                done = emit_factorised(state, batch, out, i)
            else:
                done = emit(state, batch, out, i)
            if not done:
                numbers[LEVEL] = 1
                return SUSPENDED
            numbers[LEVEL] = 0
    numbers[NEXT] = 0
    return DONE


@loop
def store(state, batch):  # type: ignore[no-untyped-def]
    """Store rows without any probe."""
    for i in range(batch.time.size):
        row = add_row(state, batch.stream[i], batch, i)
        state.members[row] = batch.payload[i]
        state.numbers[ARRIVED] += 1


@kernel
def probe(state, stream, hashed, filled):  # type: ignore[no-untyped-def]
    """Append the rows of a stream that have a hash."""
    state.numbers[PROBES] += 1
    row = np.int64(state.heads[head_of(state, stream, hashed)])
    while row != NONE:
        if state.entries[row].hash == hashed:
            state.found[filled] = row
            filled += 1
        row = np.int64(state.entries[row].next)
    return filled


@kernel
def probe_while_matching(state, batch, i, partials):  # type: ignore[no-untyped-def]
    """Collect partners, the most selective stream first; none if a stream has none.

    Args:
        state: the tables.
        batch: of the newcomer.
        i: its place there.
        partials: where partial results are formed; empty if they are not.
    """
    groups, filled = 0, 0
    state.numbers[END] = 0
    for place in range(state.settings.streams):
        stream = np.int64(state.order[place])
        if stream == batch.stream[i]:
            continue
        state.groups[groups] = filled
        state.choice[groups] = filled
        filled = probe(state, stream, batch.hash[i], filled)
        state.asked[stream] += 1.0
        if state.asked[stream] >= FORGET_AT:
            state.asked[stream] *= 0.5
            state.met[stream] *= 0.5
        if filled == state.groups[groups]:
            return
        state.met[stream] += 1.0
        groups += 1
        state.groups[groups] = filled
        if partials.size > 0:
            form_partials(state, groups, partials)
    state.groups[groups] = filled
    state.numbers[END] = groups


@kernel
def form_partials(state, groups, partials):  # type: ignore[no-untyped-def]
    """Write all combinations of the partners so far, one after the other, over and over."""
    at = 0
    while True:
        if at + groups > partials.size:
            at = 0
        for group in range(groups):
            partials[at + group] = state.members[state.found[state.choice[group]]]
        at += groups
        group = groups - 1
        while group >= 0:
            state.choice[group] += 1
            if state.choice[group] < state.groups[group + 1]:
                break
            state.choice[group] = state.groups[group]
            group -= 1
        if group < 0:
            return


@kernel
def emit_factorised(state, batch, out, i):  # type: ignore[no-untyped-def]
    """Make one output of a tuple: itself, then all its partners; False if out of room."""
    groups = state.numbers[END]
    width = state.groups[groups] + 1
    if out.filled[WRITTEN] >= out.results.size:
        return False
    base = out.filled[MEMBERS]
    if base + width > out.payload.size:
        if base > 0:
            return False
        width = out.payload.size  # an output of more rows than there is room for is cut short
    out.payload[base] = batch.payload[i]
    for place in range(width - 1):
        out.payload[base + 1 + place] = state.members[state.found[place]]
    out.filled[MEMBERS] = base + width
    out.results[out.filled[WRITTEN]].time = batch.time[i]
    out.results[out.filled[WRITTEN]].end = base + width
    out.filled[WRITTEN] += 1
    state.numbers[MADE] += 1
    return True


@kernel
def probe_all(state, batch, i):  # type: ignore[no-untyped-def]
    """Collect the partners of all streams that have any."""
    groups, filled = 0, 0
    for stream in range(state.settings.streams):
        if stream == batch.stream[i]:
            continue
        state.groups[groups] = filled
        state.choice[groups] = filled
        filled = probe(state, stream, batch.hash[i], filled)
        if filled > state.groups[groups]:
            groups += 1
    state.groups[groups] = filled
    state.numbers[END] = groups if groups + 1 >= state.settings.at_least else 0


@cold_kernel
def sort_streams(state):  # type: ignore[no-untyped-def]
    """Put the streams first that matched least often of late."""
    order, asked, met = state.order, state.asked, state.met
    for place in range(1, order.size):
        stream = order[place]
        at = place
        while at > 0:
            other = order[at - 1]
            if met[other] * (asked[stream] + 1.0) <= met[stream] * (asked[other] + 1.0):
                break
            order[at] = other
            at -= 1
        order[at] = stream


@kernel
def emit(state, batch, out, i):  # type: ignore[no-untyped-def]
    """Make the results of a tuple, a choice of partners after the other; False if out of room."""
    groups = state.numbers[END]
    width = groups + 1
    while True:
        if (
            out.filled[WRITTEN] >= out.results.size
            or out.filled[MEMBERS] + width > out.payload.size
        ):
            return False
        base = out.filled[MEMBERS]
        for group in range(groups):
            row = state.found[state.choice[group]]
            place = state.entries[row].table if state.settings.complete else group + 1
            out.payload[base + place] = state.members[row]
        out.payload[base + (batch.stream[i] if state.settings.complete else 0)] = batch.payload[i]
        out.filled[MEMBERS] = base + width
        out.results[out.filled[WRITTEN]].time = batch.time[i]
        out.results[out.filled[WRITTEN]].end = base + width
        out.filled[WRITTEN] += 1
        state.numbers[MADE] += 1
        group = groups - 1
        while group >= 0:
            state.choice[group] += 1
            if state.choice[group] < state.groups[group + 1]:
                break
            state.choice[group] = state.groups[group]
            group -= 1
        if group < 0:
            return True
