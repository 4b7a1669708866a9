"""SNJoin as figure 2 of its paper has it, and nothing besides: one hash table for all streams.

In each bucket the values that are in the window are chained, one entry each (the tuple-value list).
An entry has the rows of all streams with its value (the value occurrence list, here a chain for
each stream, so that only partners are gone through), and how many streams have any (the count
summary ψ). Rows expire in the order of their arrival (the clean-sweep list). It takes its rows from
the pool of the other baselines, and writes results as they do, so that what is compared is the
structure alone. Where arity varies there is one chain for all streams, and an arrival makes one
output (step 5): all rows of other streams with its value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import Batch
from streamshed.errors import SpecError
from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import NONE
from streamshed_lab.baselines.base import CROWDED, DONE, SUSPENDED, Baseline, Query
from streamshed_lab.baselines.mjoin import emit, emit_factorised
from streamshed_lab.baselines.tables import (
    ARRIVED,
    END,
    EXPIRED,
    FIRST,
    FREE,
    HELD,
    LAST,
    LEVEL,
    NEXT,
    PROBES,
    USED,
    is_full,
)

VALUE = np.dtype(
    [
        ("hash", np.uint64),
        ("next", np.int32),  # in its bucket, or the next unused one
        ("back", np.int32),
        ("streams", np.int32),  # ψ
    ],
    align=True,
)


class Values(NamedTuple):
    """The tuple-value lists, and the occurrences of each value."""

    values: npt.NDArray[Any]
    newest: npt.NDArray[np.int32]  # by `chain_of`: the newest occurrence of a value
    of_row: npt.NDArray[np.int32]  # by entry: its value
    numbers: npt.NDArray[np.int64]  # the first unused value, and how many were used


class SNJoin(Baseline):
    """One hash table for all streams; see the module."""

    name = "bare SNJoin"
    spills = False

    def __init__(self, query: Query) -> None:
        if query.at_least is not None and not (query.at_least == 2 and query.factorised):
            raise SpecError(
                "bare SNJoin makes complete results, or one output for each arrival that meets any;"
                " leave `at_least` out, or ask for 2 and `factorised`"
            )
        super().__init__(query)
        self.chains = query.streams if query.at_least is None else 1
        self.values = _larger_values(None, 1_024, self.chains, 0)

    @property
    def tables(self) -> int:
        """One for all, with as many buckets as the others have together."""
        return self.query.streams

    def _loop(self, batch: Batch) -> int:
        if self.values.of_row.size < len(self.state.entries):
            self._grow_values(self.values.values.size)
        status: int = run_snjoin(self.state, self.values, batch, self.out, self.query.factorised)
        return status

    def _clear(self, now: int) -> None:
        """There was no room: for a row, or for a value."""
        if self.held == len(self.state.entries):
            self._make_room(2 * len(self.state.entries))
        self._grow_values(2 * self.values.values.size)

    def _grow_values(self, room: int) -> None:
        entries = len(self.state.entries)
        self.values = _larger_values(self.values, room, self.chains, entries)

    def _store(self, batch: Batch) -> None:
        raise NotImplementedError("streams of a complete join do not change")

    def _left(self, step: int) -> int:
        return step

    def _victims(self, held: npt.NDArray[np.int64]) -> tuple[int, int, int]:
        raise NotImplementedError("it has no disk")


def _larger_values(old: Values | None, room: int, chains: int, entries: int) -> Values:
    """The values with room for more, each with so many chains."""
    values, newest = np.empty(room, VALUE), np.full(room * chains, NONE, np.int32)
    of_row = np.full(entries, NONE, np.int32)
    numbers = np.array([NONE, 0], np.int64)
    if old is not None:
        values.view(np.uint8)[: old.values.nbytes] = old.values.view(np.uint8)
        newest[: old.newest.size] = old.newest
        of_row[: old.of_row.size] = old.of_row
        numbers[:] = old.numbers
    return Values(values, newest, of_row, numbers)


@loop
def run_snjoin(state, lists, batch, out, factorised):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it."""
    numbers, values = state.numbers, lists.values
    for i in range(numbers[NEXT], batch.time.size):
        if numbers[LEVEL] == 0:
            numbers[NEXT] = i
            clean_sweep(state, lists, batch.time[i])
            crowded = lists.numbers[0] == NONE and lists.numbers[1] == values.size
            if is_full(state) or crowded:
                return CROWDED
            value = find_value(state, lists, batch.hash[i])
            add_occurrence(state, lists, value, batch, i)
            numbers[ARRIVED] += 1
            numbers[END] = 0
            if not state.settings.complete:
                collect_others(state, lists, value, np.int64(batch.stream[i]))
            elif values[value].streams == state.settings.streams:
                collect(state, lists, value, np.int64(batch.stream[i]))
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


@kernel
def chain_of(state, value, stream):  # type: ignore[no-untyped-def]
    """The chain of a value's occurrences in a stream; in all of them, where arity varies."""
    return value * state.settings.streams + stream if state.settings.complete else value


@kernel
def bucket_of(state, hashed):  # type: ignore[no-untyped-def]
    """The bucket of a hash, among those that the tables of all streams have together."""
    spread = np.uint64(state.heads.size)
    return np.int64(((hashed >> np.uint64(32)) * spread) >> np.uint64(32))


@kernel
def find_value(state, lists, hashed):  # type: ignore[no-untyped-def]
    """The entry of a value, which is made if there is none (step 1)."""
    values = lists.values
    state.numbers[PROBES] += 1
    bucket = bucket_of(state, hashed)
    value = np.int64(state.heads[bucket])
    while value != NONE and values[value].hash != hashed:
        value = np.int64(values[value].next)
    if value != NONE:
        return value
    value = lists.numbers[0]
    if value != NONE:
        lists.numbers[0] = values[value].next
    else:
        value = lists.numbers[1]
        lists.numbers[1] += 1
    first = state.heads[bucket]
    values[value].hash = hashed
    values[value].next = first
    values[value].back = NONE
    values[value].streams = 0
    if first != NONE:
        values[first].back = value
    state.heads[bucket] = value
    return value


@kernel
def add_occurrence(state, lists, value, batch, i):  # type: ignore[no-untyped-def]
    """Put a row at the head of the occurrences, and at the end of those that expire."""
    numbers, entries, values = state.numbers, state.entries, lists.values
    row = numbers[FREE]
    if row != NONE:
        numbers[FREE] = entries[row].after
    else:
        row = numbers[USED]
        numbers[USED] += 1
    numbers[HELD] += 1
    stream = np.int64(batch.stream[i])
    place = chain_of(state, value, stream)
    before = lists.newest[place]
    entries[row].hash = batch.hash[i]
    entries[row].time = batch.time[i]
    entries[row].table = stream
    entries[row].next = before
    entries[row].back = NONE
    entries[row].after = NONE
    if before != NONE:
        entries[before].back = row
    else:
        values[value].streams += 1
    lists.newest[place] = row
    state.members[row] = batch.payload[i]
    lists.of_row[row] = value
    if numbers[LAST] == NONE:
        numbers[FIRST] = row
    else:
        entries[numbers[LAST]].after = row
    numbers[LAST] = row


@kernel
def clean_sweep(state, lists, now):  # type: ignore[no-untyped-def]
    """Let go of rows that are outside the window, and of values that have none left (step 6)."""
    numbers, entries, values = state.numbers, state.entries, lists.values
    row = numbers[FIRST]
    while row != NONE and now - entries[row].time > state.settings.window:
        following = np.int64(entries[row].after)
        value = np.int64(lists.of_row[row])
        back, after = entries[row].back, entries[row].next
        if back == NONE:
            lists.newest[chain_of(state, value, np.int64(entries[row].table))] = after
        else:
            entries[back].next = after
        if after != NONE:
            entries[after].back = back
        elif back == NONE:
            values[value].streams -= 1
            if values[value].streams == 0:
                remove_value(state, lists, value)
        entries[row].table = NONE
        entries[row].after = numbers[FREE]
        numbers[FREE] = row
        numbers[HELD] -= 1
        numbers[EXPIRED] += 1
        row = following
    numbers[FIRST] = row
    if row == NONE:
        numbers[LAST] = NONE


@kernel
def remove_value(state, lists, value):  # type: ignore[no-untyped-def]
    """Take a value out of its bucket."""
    values = lists.values
    back, after = values[value].back, values[value].next
    if back == NONE:
        state.heads[bucket_of(state, values[value].hash)] = after
    else:
        values[back].next = after
    if after != NONE:
        values[after].back = back
    values[value].next = lists.numbers[0]
    lists.numbers[0] = value


@kernel
def collect(state, lists, value, own):  # type: ignore[no-untyped-def]
    """Collect the occurrences of a value, stream by stream, the newcomer's left out (step 5)."""
    streams = state.settings.streams
    group, filled = np.int64(0), np.int64(0)
    for stream in range(streams):
        if stream == own:
            continue
        state.groups[group] = filled
        state.choice[group] = filled
        group += 1
        row = np.int64(lists.newest[chain_of(state, value, stream)])
        while row != NONE:
            state.found[filled] = row
            filled += 1
            row = np.int64(state.entries[row].next)
    state.groups[group] = filled
    state.numbers[END] = group


@kernel
def collect_others(state, lists, value, own):  # type: ignore[no-untyped-def]
    """Collect the occurrences of a value in all streams but the newcomer's, as one group."""
    filled = np.int64(0)
    row = np.int64(lists.newest[chain_of(state, value, own)])
    while row != NONE:
        if state.entries[row].table != own:
            state.found[filled] = row
            filled += 1
        row = np.int64(state.entries[row].next)
    state.groups[0], state.groups[1] = np.int64(0), filled
    state.numbers[END] = 1 if filled > 0 else 0
