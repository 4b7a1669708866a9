"""What ties the rows of a join to the relation: the facts of each, and when the last of them ends.

The policy is told who matches whom through the relation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.match import hooks as match_hooks
from streamshed.engine.match.fact_index import (
    Changes,
    Facts,
    code_hash,
    fact_count,
    first_place,
    other_code,
    valid_at,
    valid_until,
)
from streamshed.engine.store import count, remove
from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import BOUNDLESS, CLOCK, FILTERED, NEVER, NONE, Field
from streamshed.kernels.heap import heap_push, heap_remove, heap_restore, heap_top
from streamshed.kernels.lanes import older_row
from streamshed.kernels.table import find_key, home_shift, key_hash, key_head

LOOKS = 8
"""How many rows are looked at again, at most, before one of them leaves."""

NEWCOMER = np.dtype(
    [
        ("code", np.int64),  # NONE if there is no newcomer
        ("time", np.int64),
        ("until", np.int64),
        ("importance", np.float64),
        ("matches", np.int64),
        ("stream", np.int32),
    ],
    align=True,
)


class RowFacts(NamedTuple):
    """What is known of each row, and a heap of those that will be of no use before they expire."""

    items: npt.NDArray[np.int32]
    place: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int64]
    until: npt.NDArray[np.int64]  # by row: when the last fact ends that was valid when it came
    code: npt.NDArray[np.int32]  # by row
    newcomer: npt.NDArray[Any]


def row_facts_layout() -> dict[str, Field]:
    """The arrays of `RowFacts`."""
    return {
        "items": Field("row", np.int32, None),
        "place": Field("row", np.int32, None),
        "sizes": Field("once", np.int64),
        "until": Field("row", np.int64, None),
        "code": Field("row", np.int32, None),
        "newcomer": Field("once", NEWCOMER, NONE),
    }


class RelationState(NamedTuple):
    """The matcher's state: the relation, the ties of rows to it, and what is known of the batch."""

    facts: Facts
    links: RowFacts
    changes: Changes  # of the relation, that are to come
    codes: npt.NDArray[np.int32]  # of the batch's keys; empty where they are looked up one by one


@implements(hooks.precedes, RowFacts)
def _precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    if policy.until[item] != policy.until[other]:
        return policy.until[item] < policy.until[other]
    return older_row(core, item, other)


@kernel
def importance_at(core, row):  # type: ignore[no-untyped-def]
    """How important a stored row is; 1 where rows are not weighted."""
    return core.importance[row] if core.importance.size > 0 else 1.0


@kernel
def begin_newcomer(through, policy, core, code, stream, time, until, importance):  # type: ignore[no-untyped-def]
    """Say who comes; the policy learns of it, and how many stored rows it matches."""
    newcomer = through.links.newcomer
    newcomer[0].code = code
    newcomer[0].stream = stream
    newcomer[0].time = time
    newcomer[0].until = until
    newcomer[0].importance = importance
    matches = np.int64(0)
    counted = hooks.counts_matches(policy)
    if counted > 0:
        matches = meet(through, policy, core, code, stream, time, 1 if counted > 1 else 0)
    newcomer[0].matches = matches
    hooks.on_newcomer(policy, core, importance, matches)
    if hooks.ranks_by_promise(policy):
        hooks.on_value(policy, core, key_hash(through.facts, code), importance)
        density = promise(through, policy, core, code, stream, time, importance)
        hooks.set_promise(policy, core, NONE, density)


@implements(match_hooks.on_settled, RelationState)
def _end_newcomer(through, policy, core, key, stored):  # type: ignore[no-untyped-def]
    """The newcomer is stored, or was refused: then nobody matches it any more."""
    newcomer = through.links.newcomer[0]
    told = hooks.counts_matches(policy) > 1 and newcomer.matches > 0
    if told and not stored:
        meet(through, policy, core, newcomer.code, newcomer.stream, newcomer.time, -1)
    through.links.newcomer[0].code = NONE


@kernel
def meet(through, policy, core, code, stream, time, change):  # type: ignore[no-untyped-def]
    """Count the stored rows that one matches through the relation, and let them know of it.

    Args:
        through: the relation.
        policy: whom to tell.
        core: the state of the join.
        code: of the one.
        stream: of the one.
        time: of the one.
        change: 1 if it comes, -1 if it goes, 0 if the others need not know.
    """
    facts, rows = through.facts, core.rows
    shift = home_shift(core.table)
    matches = np.int64(0)
    first = first_place(facts, code)
    for place in range(first, first + fact_count(facts, code)):
        if not valid_at(facts, place, time):
            continue
        for lane in range(core.settings.lanes):
            if lane == stream:
                continue
            other = other_code(facts, place, stream, lane)
            if change < 0:
                _tell_newcomer(through, policy, core, place, lane, other)
            key = find_key(core, code_hash(other), shift)
            head = key_head(core, key, lane) if key != NONE else np.int64(NONE)
            row = head
            while row != NONE:
                if valid_at(facts, place, rows[row].time):
                    matches += 1
                    if change != 0:
                        hooks.on_match(policy, core, row, change)
                row = np.int64(rows[row].older)
                if row == head:
                    break
    return matches


@kernel
def _tell_newcomer(through, policy, core, place, lane, code):  # type: ignore[no-untyped-def]
    """Tell the newcomer too, which is not stored yet, that one who goes matched it."""
    newcomer = through.links.newcomer[0]
    same = newcomer.code == code and newcomer.stream == lane
    if same and valid_at(through.facts, place, newcomer.time):
        hooks.on_match(policy, core, NONE, -1)


@kernel
def promise(through, policy, core, code, stream, time, importance):  # type: ignore[no-untyped-def]
    """The importance of the results that a row promises in a window's length.

    For each fact that is valid for it: as many as rows of the other streams are expected in that
    time, times each other, and as important as the least important of them.
    """
    facts = through.facts
    total = 0.0
    first = first_place(facts, code)
    for place in range(first, first + fact_count(facts, code)):
        if not valid_at(facts, place, time):
            continue
        many, worth = 1.0, np.float64(importance)
        for lane in range(core.settings.lanes):
            if lane != stream:
                other = other_code(facts, place, stream, lane)
                rate, weight = hooks.expected_rate(policy, core, key_hash(facts, other))
                many *= rate
                worth = min(worth, weight)
        total += many * worth
    return total


@kernel
def refresh_promises(through, policy, core, pool):  # type: ignore[no-untyped-def]
    """Look again at what the rows promise that stand lowest in a pool; not all of it is news."""
    links, known = through.links, False
    for _ in range(LOOKS):
        if not known:
            row = hooks.victim(policy, core, pool, 0)
            stream, time = core.rows[row].stream, core.rows[row].time
            code, importance = np.int64(links.code[row]), importance_at(core, row)
            density = promise(through, policy, core, code, stream, time, importance)
            known = hooks.set_promise(policy, core, row, density)


@implements(match_hooks.insert_row, RelationState)
def _link(through, policy, core, row):  # type: ignore[no-untyped-def]
    """Tie the newcomer's row to the relation."""
    links = through.links
    newcomer = links.newcomer[0]
    links.code[row] = newcomer.code
    links.until[row] = newcomer.until
    links.place[row] = NONE
    _await_end(links, core, row)


@kernel
def _await_end(links, core, row):  # type: ignore[no-untyped-def]
    """Put a row where it belongs among those that will be of no use before they expire."""
    lane = core.lanes[core.rows[row].stream]
    if links.place[row] != NONE:
        heap_restore(links, core, 0, row)
    elif core.settings.timed and lane.last == 0:  # rows that are filtered move no row window
        longest = lane.window + core.settings.late
        if links.until[row] < BOUNDLESS and links.until[row] - core.rows[row].time <= longest:
            heap_push(links, core, 0, row)


@kernel
def ended(through, core, code, lane, begin, end):  # type: ignore[no-untyped-def]
    """A fact with a code has ended: how long are the rows of any use that it was valid for?"""
    key = find_key(core, code_hash(code), home_shift(core.table))
    head = key_head(core, key, lane) if key != NONE else np.int64(NONE)
    row = head
    while row != NONE:
        time = core.rows[row].time
        if begin <= time < end:
            through.links.until[row] = valid_until(through.facts, code, time)
            _await_end(through.links, core, row)
        row = np.int64(core.rows[row].older)
        if row == head:
            break


@implements(match_hooks.expire_useless, RelationState)
def _expire_ended(through, policy, core, shift):  # type: ignore[no-untyped-def]
    """Filter the rows whose facts have all ended for whatever may still come (the paper's rule 8).

    No row comes with a time before the clock less what may be late.
    """
    links = through.links
    clock = core.numbers[CLOCK]
    if clock == NEVER:
        return
    while links.sizes[0] > 0:
        row = heap_top(links, 0)
        if links.until[row] > clock - core.settings.late:
            break
        count(core, core.rows[row].stream, FILTERED, 1)
        remove(core, through, policy, row, shift)


@implements(match_hooks.remove_row, RelationState)
def _unlink(through, policy, core, row):  # type: ignore[no-untyped-def]
    """Untie a row that goes, and tell those that it matched."""
    links = through.links
    if links.place[row] != NONE:
        heap_remove(links, core, 0, row)
    if hooks.counts_matches(policy) > 1 and hooks.has_matches(policy, core, row):
        gone = core.rows[row]
        meet(through, policy, core, np.int64(links.code[row]), gone.stream, gone.time, -1)
