"""The loop of the join through a relation: change, expire, filter, probe, emit, admit, insert.

A tuple is looked up in the relation by its key; every fact that is valid at its time leads to the
rows of the other streams that have the fact's other keys and came while it was valid. Results are
made fact by fact, and the loop can be left and entered again in the middle of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import (
    BOUNDLESS,
    CLOCK,
    EXPIRED,
    FILTERED,
    NEVER,
    NONE,
    PINNED,
    RESULTS,
)
from streamshed.kernels.facts import (
    ask_for,
    ask_for_code,
    begins,
    code_hash,
    end_fact,
    ends,
    fact_at,
    fact_count,
    first_place,
    insert_fact,
    other_code,
    sweep,
    valid_at,
    valid_until,
)
from streamshed.kernels.hooks import inserted, produced, restored
from streamshed.kernels.machine import prefetch
from streamshed.kernels.table import find_key, home_shift, key_head
from streamshed.operators.buffers import (
    CHANGE,
    EMITTING,
    FACT,
    GROUPS,
    MADE,
    MEMBERS,
    MIXED,
    NEXT,
    SAMPLE_SHIFT,
    SHIFT,
)
from streamshed.operators.keyed_loop import (
    CACHED,
    DONE,
    SUSPENDED,
    arrive,
    likely_key,
    look_ahead,
    pin,
    push_out,
    settle,
    unpin,
)
from streamshed.operators.links import announce, dismiss, ended, let_go
from streamshed.operators.probing import chosen, collect, next_choice, together
from streamshed.operators.storing import count, store_again

AHEAD = 8
"""How many tuples ahead the relation is asked for."""


class StarOut(NamedTuple):
    """The bounded output buffer: of each result a place for each stream, and the fact's number."""

    payload: npt.NDArray[np.int64]
    results: npt.NDArray[Any]
    late: npt.NDArray[np.int64]
    filled: npt.NDArray[np.int64]
    importance: npt.NDArray[np.float64]


@loop
def run_through(core, through, sample, changes, batch, codes, work, out):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it, until it is done or the output buffer is full."""
    cursor = work.cursor
    cursor[SHIFT] = np.int64(home_shift(core.table))
    cursor[SAMPLE_SHIFT] = np.int64(home_shift(sample.core.table))
    shift = np.uint64(cursor[SHIFT])
    for i in range(cursor[NEXT], batch.time.size):
        if cursor[EMITTING] == 0:
            _look_ahead(through.facts, codes, i)
            if core.table.size > CACHED:
                look_ahead(core, batch, i, shift)
                _look_for_partner(core, through.facts, batch, codes, i, shift)
            if batch.null.size == 0 or not batch.null[i]:
                change_until(core, through, changes, batch.time[i], cursor)
            if not _enter(core, through, sample, batch, codes, out, i, cursor):
                continue
            cursor[FACT] = first_place(through.facts, codes[i])
        key = core.numbers[PINNED]
        end = first_place(through.facts, codes[i]) + fact_count(through.facts, codes[i])
        while cursor[FACT] < end:
            if cursor[EMITTING] != 0 or _gather(core, through, batch, work, i, shift):
                if not _emit(core, through, batch, work, out, i, key):
                    cursor[NEXT] = i
                    cursor[EMITTING] = 1
                    return SUSPENDED
                cursor[EMITTING] = 0
            cursor[FACT] += 1
        _leave_or_stay(core, through, batch, i, key, shift)
    cursor[NEXT] = 0
    return DONE


@kernel
def _look_ahead(facts, codes, i):  # type: ignore[no-untyped-def]
    """Ask for the memory that the next tuples will need of the relation."""
    if i + 2 * AHEAD < codes.size:
        ask_for_code(facts, max(0, np.int64(codes[i + 2 * AHEAD])))
        ask_for(facts, max(0, np.int64(codes[i + AHEAD])))


@kernel
def _look_for_partner(core, facts, batch, codes, i, shift):  # type: ignore[no-untyped-def]
    """Ask for the memory in which the first partner of the next tuples will be sought."""
    if i + AHEAD >= codes.size or core.settings.lanes == 1:
        return
    hashed = _first_partner(facts, batch, codes, i + AHEAD // 2)
    prefetch(core.table, np.int64(hashed >> shift))
    hashed = _first_partner(facts, batch, codes, i + AHEAD // 4)
    prefetch(core.keys, likely_key(core, hashed, shift) * core.settings.key_words)


@kernel
def _first_partner(facts, batch, codes, i):  # type: ignore[no-untyped-def]
    """The hash of what a tuple meets through the first of its facts, or any if it has none."""
    place = max(0, first_place(facts, max(0, np.int64(codes[i]))))
    stream = np.int64(batch.stream[i])
    return code_hash(other_code(facts, place, stream, 1 if stream == 0 else 0))


@kernel
def change_until(core, through, changes, time, cursor):  # type: ignore[no-untyped-def]
    """Let the relation change up to a time."""
    while cursor[CHANGE] < changes.time.size and changes.time[cursor[CHANGE]] <= time:
        number = cursor[CHANGE]
        base = number * core.settings.lanes
        for lane in range(core.settings.lanes):
            if base + 8 * core.settings.lanes < changes.codes.size:
                ask_for_code(through.facts, changes.codes[base + 8 * core.settings.lanes + lane])
                ask_for(through.facts, changes.codes[base + 4 * core.settings.lanes + lane])
        if changes.insert[number]:
            fact = changes.fact[number]
            insert_fact(through.facts, changes.codes, base, fact, changes.time[number])
        else:
            _delete(core, through, changes.codes, base, changes.time[number])
        cursor[CHANGE] += 1


@kernel
def _delete(core, through, codes, base, time):  # type: ignore[no-untyped-def]
    """Let all facts end that are valid and have these codes."""
    facts = through.facts
    lanes = core.settings.lanes
    stream = 0
    for other in range(1, lanes):
        if fact_count(facts, np.int64(codes[base + other])) < fact_count(
            facts, np.int64(codes[base + stream])
        ):
            stream = other
    code = np.int64(codes[base + stream])
    first = first_place(facts, code)
    for place in range(first, first + fact_count(facts, code)):
        same = valid_at(facts, place, time)
        for other in range(lanes):
            if other != stream and same:
                same = other_code(facts, place, stream, other) == codes[base + other]
        if same:
            begin, end = begins(facts, place), ends(facts, place)
            fact = fact_at(facts, place)
            for lane in range(lanes):
                end_fact(facts, np.int64(codes[base + lane]), fact, time)
            for lane in range(lanes):
                ended(through, core, np.int64(codes[base + lane]), lane, begin, end)


@kernel
def _enter(core, through, sample, batch, codes, out, i, cursor):  # type: ignore[no-untyped-def]
    """Count, filter, turn away, expire; False if the tuple comes no further than that."""
    shift = np.uint64(cursor[SHIFT])
    if not arrive(core, through, batch, out, i, shift):
        return False
    let_go(core, through, shift)
    stream, time, code = batch.stream[i], batch.time[i], np.int64(codes[i])
    until = np.int64(NEVER)
    if code != NONE:
        sweep(through.facts, code, time, _horizon(core))
        until = valid_until(through.facts, code, time)
    if until == NEVER:
        count(core, stream, FILTERED, 1)
        return False
    if core.lanes[stream].last > 0:
        push_out(core, through, sample, stream, cursor)
    pin(core, batch.hash[i], shift)
    importance = batch.importance[i] if batch.importance.size > 0 else 1.0
    announce(through, core, code, stream, time, until, importance)
    return True


@kernel
def _horizon(core):  # type: ignore[no-untyped-def]
    """Facts that ended by this time concern nobody who is stored or may still come."""
    clock = core.numbers[CLOCK]
    if clock == NEVER:
        return np.int64(NEVER)
    longest = np.int64(0)
    for lane in range(core.settings.lanes):
        longest = max(longest, core.lanes[lane].window)
    if longest >= BOUNDLESS:
        return np.int64(NEVER)
    return clock - core.settings.late - longest


@kernel
def _leave_or_stay(core, through, batch, i, key, shift):  # type: ignore[no-untyped-def]
    """Store the tuple, unless it is refused, or there is no other stream to wait for."""
    if core.settings.lanes == 1:
        count(core, batch.stream[i], EXPIRED, 1)
        unpin(core, key, shift)
        dismiss(through, core, False)
        return
    row = settle(core, through, batch, i, key, np.int64(NONE), shift)
    dismiss(through, core, row != NONE)


@kernel
def _gather(core, through, batch, work, i, shift):  # type: ignore[no-untyped-def]
    """Collect the partners that a tuple has by way of a fact; False if that leads to no result."""
    facts, place = through.facts, work.cursor[FACT]
    work.cursor[GROUPS] = 0
    work.cursor[MIXED] = 0
    if not valid_at(facts, place, batch.time[i]):
        return False
    stream = np.int64(batch.stream[i])
    groups = 0
    filled = 0
    for lane in range(core.settings.lanes):
        if lane == stream:
            continue
        key = find_key(core, code_hash(other_code(facts, place, stream, lane)), shift)
        if key == NONE or key_head(core, key, lane) == NONE:
            return False
        start = filled
        filled = collect(core, through, batch, work, i, key, lane, start)
        filled = _only_valid(core, facts, work, place, start, filled)
        if filled == start:
            return False
        work.groups[groups].start = start
        work.groups[groups].choice = start
        groups += 1
    work.groups[groups].start = filled
    work.cursor[GROUPS] = groups
    return True


@kernel
def _only_valid(core, facts, work, place, start, filled):  # type: ignore[no-untyped-def]
    """Keep those partners for which a fact was valid when they came."""
    if facts.bounds.size == 0:
        return filled
    kept = start
    for j in range(start, filled):
        row = work.partners[j]
        if valid_at(facts, place, core.rows[row].time):
            work.partners[kept] = row
            kept += 1
    return kept


@kernel
def _emit(core, through, batch, work, out, i, key):  # type: ignore[no-untyped-def]
    """Make the results of a tuple and a fact, one choice after the other; False if out of room."""
    groups = work.cursor[GROUPS]
    width = core.settings.lanes + 1
    while True:
        if out.filled[MADE] >= out.results.size or out.filled[MEMBERS] + width > out.payload.size:
            return False
        latest = chosen(core, batch, work, i, groups)
        if together(core, batch, work, i, groups, latest):
            _write(core, through, batch, work, out, i, groups, latest)
            stream = batch.stream[i]
            produced(through, core, key, stream, np.uint64(0), work.groups, groups)
            core.numbers[RESULTS] += 1
        if not next_choice(work, groups):
            return True


@kernel
def _write(core, through, batch, work, out, i, groups, latest):  # type: ignore[no-untyped-def]
    """Put one result into the output buffer."""
    base, made = out.filled[MEMBERS], out.filled[MADE]
    importance = through.links.newcomer[0].importance
    out.payload[base + batch.stream[i]] = batch.payload[i]
    for group in range(groups):
        row = work.groups[group].row
        out.payload[base + core.rows[row].stream] = core.rows[row].payload
        importance = min(importance, through.links.importance[row])
    out.payload[base + core.settings.lanes] = fact_at(through.facts, work.cursor[FACT])
    out.filled[MEMBERS] = base + core.settings.lanes + 1
    out.results[made].end = out.filled[MEMBERS]
    out.results[made].time = latest
    out.importance[made] = importance
    through.links.total[0] += importance
    out.filled[MADE] = made + 1


@loop
def link_again(core, through, batch, codes, arrivals, marks, anew):  # type: ignore[no-untyped-def]
    """Store rows again after a restart, in the order of their arrival.

    Args:
        core: the state of the join.
        through: the policy, and the relation as it was.
        batch: the rows.
        codes: of their keys.
        arrivals: their arrival numbers.
        marks: what the policy said of them.
        anew: whether the policy is another, and takes them as newcomers.
    """
    shift = home_shift(core.table)
    for i in range(batch.time.size):
        code, stream, time = np.int64(codes[i]), batch.stream[i], batch.time[i]
        importance = batch.importance[i] if batch.importance.size > 0 else 1.0
        until = valid_until(through.facts, code, time)
        announce(through, core, code, stream, time, until, importance)
        row = store_again(core, batch, i, arrivals[i], shift)
        if anew:
            worth = batch.worth[i] if batch.worth.size > 0 else 0
            inserted(through, core, row, np.uint64(0), worth)
        else:
            restored(through, core, row, marks[i])
        dismiss(through, core, True)


@loop
def change_again(core, through, changes, time, cursor):  # type: ignore[no-untyped-def]
    """Let the relation change up to a time, before any row comes."""
    cursor[CHANGE] = 0
    change_until(core, through, changes, time, cursor)
