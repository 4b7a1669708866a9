"""The matcher of streams that are joined through a relation, which says who meets whom.

A row is looked up in the relation by its key; every fact that is valid at its time leads to the
rows of the other streams that have the fact's other keys and came while it was valid. Results are
made fact by fact.
"""

from __future__ import annotations

import numpy as np

from streamshed.engine.batch import CHANGE, DEPTH, FACT, GROUPS, LOOKED, MIXED
from streamshed.engine.gate.hooks import on_candidates
from streamshed.engine.match import hooks
from streamshed.engine.match.fact_index import (
    begins,
    code_hash,
    end_fact,
    ends,
    fact_at,
    fact_count,
    find_code,
    first_place,
    insert_fact,
    other_code,
    prefetch_code,
    prefetch_facts,
    sweep,
    valid_at,
    valid_until,
)
from streamshed.engine.match.keys import (
    CACHED,
    begin_choices,
    collect,
    newcomer_importance,
    next_choice,
    prefetch_keys,
)
from streamshed.engine.match.row_facts import (
    RelationState,
    begin_newcomer,
    ended,
    refresh_promises,
)
from streamshed.kernels.compiling import implements, kernel, loop
from streamshed.kernels.core import BOUNDLESS, CLOCK, NEVER, NONE
from streamshed.kernels.hooks import ranks_by_promise
from streamshed.kernels.intrinsics import prefetch
from streamshed.kernels.table import find_key, key_head, likely_key

AHEAD = 8
"""How many rows ahead the relation is asked for."""


@kernel
def code_of(through, batch, i):  # type: ignore[no-untyped-def]
    """The code of a row's key, or NONE if the relation has no such key."""
    if through.codes.size > 0:
        return np.int64(through.codes[i])
    return find_code(through.facts, batch.hash[i], batch.stream[i])


@implements(hooks.row_hash, RelationState)
def _row_hash(matcher, batch, i):  # type: ignore[no-untyped-def]
    return code_hash(code_of(matcher, batch, i))


@implements(hooks.prefetch_rows, RelationState)
def _prefetch_rows(matcher, core, batch, i, shift):  # type: ignore[no-untyped-def]
    codes = matcher.codes
    if codes.size == 0:
        return
    if i + 2 * AHEAD < codes.size:
        prefetch_code(matcher.facts, max(0, np.int64(codes[i + 2 * AHEAD])))
        prefetch_facts(matcher.facts, max(0, np.int64(codes[i + AHEAD])))
    if core.rows.size > CACHED:
        prefetch_keys(matcher, core, batch, i, shift)
        _prefetch_partner(core, matcher, batch, i, shift)


@kernel
def _prefetch_partner(core, matcher, batch, i, shift):  # type: ignore[no-untyped-def]
    """Ask for the memory in which the first partner of the next rows will be sought."""
    if i + AHEAD >= matcher.codes.size or core.settings.lanes == 1:
        return
    hashed = _first_partner(matcher, batch, i + AHEAD // 2)
    prefetch(core.table, np.int64(hashed >> shift))
    hashed = _first_partner(matcher, batch, i + AHEAD // 4)
    prefetch(core.keys, likely_key(core, hashed, shift) * core.settings.key_words)


@kernel
def _first_partner(matcher, batch, i):  # type: ignore[no-untyped-def]
    """The hash of what a row meets through the first of its facts, or any if it has none."""
    facts = matcher.facts
    place = max(0, first_place(facts, max(0, np.int64(matcher.codes[i]))))
    stream = np.int64(batch.stream[i])
    return code_hash(other_code(facts, place, stream, 1 if stream == 0 else 0))


# -- the relation changes -------------------------------------------------------------------------


@implements(hooks.before_arrival, RelationState)
def _before_arrival(matcher, policy, core, batch, work, i):  # type: ignore[no-untyped-def]
    if batch.null.size == 0 or not batch.null[i]:
        _change_until(core, matcher, batch.time[i], work.cursor)


@kernel
def _change_until(core, through, time, cursor):  # type: ignore[no-untyped-def]
    """Let the relation change up to a time."""
    changes = through.changes
    while cursor[CHANGE] < changes.time.size and changes.time[cursor[CHANGE]] <= time:
        number = cursor[CHANGE]
        base = number * core.settings.lanes
        for lane in range(core.settings.lanes):
            if base + 8 * core.settings.lanes < changes.codes.size:
                prefetch_code(through.facts, changes.codes[base + 8 * core.settings.lanes + lane])
                prefetch_facts(through.facts, changes.codes[base + 4 * core.settings.lanes + lane])
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


@loop
def change_until(core, through, time, cursor):  # type: ignore[no-untyped-def]
    """Let the relation change up to a time, before any row comes."""
    cursor[CHANGE] = 0
    _change_until(core, through, time, cursor)


# -- rows come and go -----------------------------------------------------------------------------


@implements(hooks.is_matchable, RelationState)
def _is_matchable(matcher, core, batch, i):  # type: ignore[no-untyped-def]
    code, time = code_of(matcher, batch, i), batch.time[i]
    if code == NONE:
        return False
    sweep(matcher.facts, code, time, _horizon(core))
    return valid_until(matcher.facts, code, time) != NEVER


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


@implements(hooks.set_newcomer, RelationState)
@implements(hooks.restore_row, RelationState)
def _set_newcomer(matcher, policy, core, batch, i, shift):  # type: ignore[no-untyped-def]
    code, time = code_of(matcher, batch, i), batch.time[i]
    until = valid_until(matcher.facts, code, time)
    importance = newcomer_importance(batch, i)
    begin_newcomer(matcher, policy, core, code, batch.stream[i], time, until, importance)


@implements(hooks.stores_rows, RelationState)
def _stores_rows(matcher, core):  # type: ignore[no-untyped-def]
    return core.settings.lanes > 1


@implements(hooks.refresh_ranks, RelationState)
def _refresh_ranks(matcher, policy, core, pool):  # type: ignore[no-untyped-def]
    if ranks_by_promise(policy):
        refresh_promises(matcher, policy, core, pool)


# -- probe ----------------------------------------------------------------------------------------


@implements(hooks.begin_probe, RelationState)
def _begin_probe(matcher, throttle, core, batch, work, i, key, shift):  # type: ignore[no-untyped-def]
    work.cursor[FACT] = first_place(matcher.facts, code_of(matcher, batch, i))
    work.cursor[DEPTH] = NONE
    work.cursor[LOOKED] = 0
    return True


@implements(hooks.next_match, RelationState)
def _next_match(matcher, throttle, core, batch, work, i, shift):  # type: ignore[no-untyped-def]
    cursor = work.cursor
    code = code_of(matcher, batch, i)
    end = first_place(matcher.facts, code) + fact_count(matcher.facts, code)
    while cursor[FACT] < end:
        if cursor[DEPTH] == NONE and _gather(core, matcher, throttle, batch, work, i, shift):
            cursor[DEPTH] = 0
            if cursor[GROUPS] == 0:  # of one stream alone
                return True
            begin_choices(core, work)
        if cursor[DEPTH] != NONE and next_choice(core, work):
            return True
        cursor[DEPTH] = NONE
        cursor[FACT] += 1
    return False


@implements(hooks.write_fact, RelationState)
def _write_fact(matcher, work, out, place):  # type: ignore[no-untyped-def]
    out.payload[place] = fact_at(matcher.facts, work.cursor[FACT])


@kernel
def _gather(core, through, throttle, batch, work, i, shift):  # type: ignore[no-untyped-def]
    """Collect the partners that a row has by way of a fact; False if that leads to no result."""
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
        start, before = filled, work.cursor[LOOKED]
        filled = collect(through, core, throttle, batch, work, i, key, lane, start)
        filled = _only_valid(core, facts, work, place, start, filled)
        on_candidates(throttle, core, stream, lane, work.cursor[LOOKED] - before, filled - start)
        if filled == start:
            return False
        work.groups[groups].start = start
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
