"""The matcher of streams that share a key, complete or partial.

Partners are collected in groups, one for each stream; then one choice from every group after the
other is a result. The choices stay as they are when the loop is left, and go on from there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import DEPTH, GROUPS, LOOKED, MIXED, MOST
from streamshed.engine.gate.hooks import is_probed, lookback, on_candidates
from streamshed.engine.match import hooks
from streamshed.engine.unmatched import MATCHED
from streamshed.kernels.bounds import within_bounds
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import ALL, KEY_HEADS, NEVER, NONE, PER_KEY, PINNED, Field
from streamshed.kernels.hooks import counts_matches, has_matches, on_match, on_newcomer
from streamshed.kernels.intrinsics import ones, prefetch, prefetch_whole
from streamshed.kernels.table import (
    ONE,
    is_unused,
    key_hash,
    key_head,
    key_lanes,
    lane_of,
    likely_key,
    sweep_of,
)

CACHED = 1 << 14
"""Up to so many rows, and what belongs to them, stay in the cache by themselves."""
WORDS_IN_LINE = 16
"""The words of a key that a line of the cache has."""


class KeyState(NamedTuple):
    """The matcher's state: the key table of the core is nearly all it needs."""

    newcomer: npt.NDArray[np.int64]  # the stream of the row that is probed, or NONE


class KeyWindowState(NamedTuple):
    """The same where the rows of a key can be skipped by basic windows (`key_windows.py`)."""

    newcomer: npt.NDArray[np.int64]
    part: npt.NDArray[np.int64]  # by lane: the length of its basic windows
    skip: npt.NDArray[np.int32]  # by row, see `key_windows.py`


def keys_layout() -> dict[str, Field]:
    """The arrays of `Keys`."""
    return {"newcomer": Field("once", np.int64, NONE)}


@implements(hooks.set_newcomer, KeyWindowState)
@implements(hooks.set_newcomer, KeyState)
@implements(hooks.restore_row, KeyState)
@implements(hooks.restore_row, KeyWindowState)
def _set_newcomer(matcher, policy, core, batch, i, shift):  # type: ignore[no-untyped-def]
    """Tell the policy how important a newcomer is, and how many stored rows it matches."""
    matches = np.int64(0)
    counted = counts_matches(policy)
    if counted > 0:
        change = 1 if counted > 1 else 0
        matches = _meet(policy, core, core.numbers[PINNED], batch.stream[i], change)
        matcher.newcomer[0] = batch.stream[i]
    on_newcomer(policy, core, newcomer_importance(batch, i), matches)


@implements(hooks.on_settled, KeyWindowState)
@implements(hooks.on_settled, KeyState)
def _on_settled(matcher, policy, core, key, stored):  # type: ignore[no-untyped-def]
    if counts_matches(policy) > 1 and not stored:
        _meet(policy, core, key, matcher.newcomer[0], -1)
    matcher.newcomer[0] = NONE


@implements(hooks.remove_row, KeyState)
def _remove_row(matcher, policy, core, row):  # type: ignore[no-untyped-def]
    uncount_matches(matcher, policy, core, row)


@kernel
def uncount_matches(matcher, policy, core, row):  # type: ignore[no-untyped-def]
    """A row has left: let the policy know of those that it matched."""
    if counts_matches(policy) > 1 and has_matches(policy, core, row):
        key, stream = np.int64(core.rows[row].key), np.int64(core.rows[row].stream)
        _meet(policy, core, key, stream, -1)
        newcomer = matcher.newcomer[0]
        if newcomer not in (NONE, stream) and key == core.numbers[PINNED]:
            on_match(policy, core, NONE, -1)


@kernel
def newcomer_importance(batch, i):  # type: ignore[no-untyped-def]
    """How important a newcomer is; 1 where rows are not weighted."""
    return batch.importance[i] if batch.importance.size > 0 else 1.0


@kernel
def _meet(policy, core, key, stream, change):  # type: ignore[no-untyped-def]
    """Count the stored rows of other streams that have a key, and let them know of the change."""
    matches = np.int64(0)
    for lane in range(core.settings.lanes):
        head = key_head(core, key, lane)
        row = head
        while row != NONE:
            if core.rows[row].stream != stream:
                matches += 1
                if change != 0:
                    on_match(policy, core, row, change)
            row = np.int64(core.rows[row].older)
            if row == head:
                break
    return matches


@implements(hooks.prefetch_rows, KeyWindowState)
@implements(hooks.prefetch_rows, KeyState)
def _prefetch_rows(matcher, core, batch, i, shift):  # type: ignore[no-untyped-def]
    if core.rows.size > CACHED:
        prefetch_keys(matcher, core, batch, i, shift)


@kernel
def prefetch_keys(matcher, core, batch, i, shift):  # type: ignore[no-untyped-def]
    """Ask for the memory that the next rows will need of the key table.

    With windows larger than the cache this halves the time of a row.
    """
    words = core.settings.key_words
    if i + 12 < batch.hash.size:
        prefetch(core.table, np.int64(hooks.row_hash(matcher, batch, i + 12) >> shift))
        key = likely_key(core, hooks.row_hash(matcher, batch, i + 8), shift)
        _prefetch_key(core, key, batch.stream[i + 8])
        key = likely_key(core, hooks.row_hash(matcher, batch, i + 4), shift)
        prefetch(core.rows, max(0, key_head(core, key, lane_of(core, batch.stream[i + 4]))))
    if core.settings.lazy:
        _prefetch_next_to_leave(core, batch.stream[i])
        return
    first = core.lanes[sweep_of(core, batch.stream[i])].first
    if first == NONE:
        return
    # The rows of this lane that expire next: their keys' places, and the rows themselves.
    prefetch(core.table, np.int64(key_hash(core, core.rows[first].key) >> shift))
    second = core.rows[first].after
    if second != NONE:
        prefetch(core.keys, core.rows[second].key * words)
        prefetch(core.rows, core.rows[second].older)
        prefetch(core.rows, max(0, core.rows[second].after))


@kernel
def _prefetch_key(core, key, stream):  # type: ignore[no-untyped-def]
    """Ask for a key, which may take several lines of the cache, as a row of a stream needs it."""
    place = key * core.settings.key_words
    prefetch(core.keys, place)
    if core.settings.key_words > WORDS_IN_LINE:
        prefetch(core.keys, place + KEY_HEADS + lane_of(core, stream))


@kernel
def _prefetch_next_to_leave(core, stream):  # type: ignore[no-untyped-def]
    """Ask for what one row more needs to leave when all are looked through that may have to.

    About as many rows of a stream leave as come. (If the row has left already this is in vain.)
    """
    rows, lane = core.rows, sweep_of(core, stream)
    row = np.int64(core.lanes[lane].ahead)
    if row != NONE:
        _prefetch_key(core, rows[row].key, stream)
        prefetch_whole(rows, rows[row].newer)
        prefetch_whole(rows, rows[row].older)
        after = np.int64(rows[row].after)
        core.lanes[lane].ahead = after
        prefetch_whole(rows, max(0, after))


@implements(hooks.begin_probe, KeyWindowState)
@implements(hooks.begin_probe, KeyState)
def _begin_probe(matcher, throttle, core, batch, work, i, key, shift):  # type: ignore[no-untyped-def]
    if core.until.size > 0 and _is_silent(core, np.int64(batch.stream[i]), batch.time[i], key):
        work.cursor[GROUPS] = 0
        work.cursor[LOOKED] = 0
        return False
    gather(matcher, core, throttle, batch, work, i, key)
    if work.cursor[GROUPS] == 0:
        return False
    begin_choices(core, work)
    return True


@implements(hooks.next_match, KeyWindowState)
@implements(hooks.next_match, KeyState)
def _next_match(matcher, throttle, core, batch, work, i, shift):  # type: ignore[no-untyped-def]
    return next_choice(core, work)


# -- choices of partners: all, or those in order of time, or the first ----------------------------


@kernel
def begin_choices(core, work):  # type: ignore[no-untyped-def]
    """Go to before the first choice of partners; `next_choice` then chooses the first."""
    if _is_searched(core):
        _begin_search(core, work)
    else:
        _begin_product(work)


@kernel
def next_choice(core, work):  # type: ignore[no-untyped-def]
    """Go on to the next choice of partners that makes a result; False if there is none."""
    if _is_searched(core):
        return _next_fitting(core, work)
    return _next_of_product(work)


@kernel
def _is_searched(core):  # type: ignore[no-untyped-def]
    """Whether not every choice of partners makes a result, so that choices are searched."""
    return core.bounds.size > 0 or core.settings.first != ALL


@kernel
def _begin_search(core, work):  # type: ignore[no-untyped-def]
    """Go to before the first choice; partners stand newest first, or oldest if these are wanted."""
    groups, partners = work.groups, work.partners
    if core.settings.first != ALL and not core.settings.last_touch:
        for group in range(work.cursor[GROUPS]):
            low, high = groups[group].start, groups[group + 1].start - 1
            while low < high:
                partners[low], partners[high] = partners[high], partners[low]
                low += 1
                high -= 1
    work.cursor[DEPTH] = 0
    outer = _group_at(core, work, 0)
    groups[outer].choice = groups[outer].start


@kernel
def _group_at(core, work, depth):  # type: ignore[no-untyped-def]
    """The group of a level of the search: that of the stream whose rows make one result first."""
    lane = core.settings.first
    if lane >= 0:
        for group in range(work.cursor[GROUPS]):
            if core.rows[work.partners[work.groups[group].start]].stream == lane:
                if depth == 0:
                    return group
                return depth - 1 if depth <= group else depth
    return depth


@kernel
def _next_fitting(core, work):  # type: ignore[no-untyped-def]
    """Go on to the next choice of partners that are within their bounds; False if there is none."""
    groups, cursor = work.groups, work.cursor
    depth = cursor[DEPTH]
    while depth >= 0:
        group = _group_at(core, work, depth)
        choice = groups[group].choice
        if choice == groups[group + 1].start:
            depth -= 1
            continue
        groups[group].choice = choice + 1
        groups[group].row = work.partners[choice]
        if not _fits_above(core, work, depth, groups[group].row):
            continue
        if depth == cursor[GROUPS] - 1:
            cursor[DEPTH] = depth
            return True
        depth += 1
        group = _group_at(core, work, depth)
        groups[group].choice = groups[group].start
    cursor[DEPTH] = -1
    return False


@kernel
def _fits_above(core, work, depth, row):  # type: ignore[no-untyped-def]
    """Whether a partner is within its bounds with those chosen at the levels above."""
    if core.bounds.size > 0:
        rows = core.rows
        for above in range(depth):
            other = work.groups[_group_at(core, work, above)].row
            if not within_bounds(
                core, rows[row].stream, rows[row].time, rows[other].stream, rows[other].time
            ):
                return False
    return True


@kernel
def _is_silent(core, stream, time, key):  # type: ignore[no-untyped-def]
    """Whether a newcomer could make a result, but its key has made its first.

    Most newcomers find too few streams with their key, which is known at less cost.
    """
    if not core.settings.by:
        others = key_lanes(core, key) & ~(ONE << np.uint64(stream))
        if ones(others) + 1 < core.settings.at_least:
            return False
    return time <= core.until[key]


@kernel
def begin_key(core, key):  # type: ignore[no-untyped-def]
    """Let a key that has no rows make a result again."""
    if core.until.size > 0 and is_unused(core, key):
        core.until[key] = NEVER


@kernel
def note_first(core, batch, work, i, key):  # type: ignore[no-untyped-def]
    """A result was made: leave out those that are not the first, if only these are wanted."""
    if core.settings.first == ALL:
        return
    stream = np.int64(batch.stream[i])
    if core.settings.first == PER_KEY:
        until = batch.time[i] + core.lanes[sweep_of(core, stream)].window
        for group in range(work.cursor[GROUPS]):
            row = work.groups[group].row
            window = core.lanes[sweep_of(core, core.rows[row].stream)].window
            until = max(until, core.rows[row].time + window)
        core.until[key] = until
    # With a row of the stream whose first results are made, the next of its partners; else the end.
    work.cursor[DEPTH] = 0 if core.settings.first not in (PER_KEY, stream) else -1


@kernel
def _begin_product(work):  # type: ignore[no-untyped-def]
    """Go to before the first choice, where every choice makes a result."""
    groups = work.cursor[GROUPS]
    for group in range(groups):
        work.groups[group].choice = work.groups[group].start
        work.groups[group].row = work.partners[work.groups[group].start]
    work.groups[groups - 1].choice -= 1


@kernel
def _next_of_product(work):  # type: ignore[no-untyped-def]
    """Go on to the next choice, where every choice makes a result; False if there is none."""
    group = work.cursor[GROUPS] - 1
    while group >= 0:
        choice = work.groups[group].choice + 1
        if choice < work.groups[group + 1].start:
            work.groups[group].choice = choice
            work.groups[group].row = work.partners[choice]
            return True
        start = work.groups[group].start
        work.groups[group].choice = start
        work.groups[group].row = work.partners[start]
        group -= 1
    return False


@kernel
def gather(matcher, core, throttle, batch, work, i, key):  # type: ignore[no-untyped-def]
    """Collect the partners of a row by stream; no groups if it completes nothing.

    Args:
        matcher: knows which row of a key is next.
        core: the state of the join.
        throttle: says what of the windows is probed.
        batch: the rows.
        work: room for the partners.
        i: the row.
        key: its key.
    """
    settings = core.settings
    work.cursor[GROUPS] = 0
    work.cursor[MIXED] = 0
    work.cursor[LOOKED] = 0
    if settings.by:
        _gather_by_stream(matcher, core, throttle, batch, work, i, key)
        return
    stream = np.int64(batch.stream[i])
    others = key_lanes(core, key) & ~(ONE << np.uint64(stream))
    present = ones(others)
    if present + 1 < settings.at_least:
        return
    groups = 0
    filled = 0
    for lane in range(settings.lanes):
        if (others >> np.uint64(lane)) & ONE == np.uint64(0):
            continue
        work.groups[groups].start = filled
        before = work.cursor[LOOKED]
        filled = collect(matcher, core, throttle, batch, work, i, key, lane, filled)
        met = filled - work.groups[groups].start
        on_candidates(throttle, core, stream, lane, work.cursor[LOOKED] - before, met)
        if filled > work.groups[groups].start:
            groups += 1
        elif settings.complete:
            return
    work.groups[groups].start = filled
    if groups + 1 >= settings.at_least:
        work.cursor[GROUPS] = groups


@kernel
def collect(matcher, core, throttle, batch, work, i, key, lane, filled):  # type: ignore[no-untyped-def]
    """Append the rows below an entry that are within their windows together with a row.

    Where windows differ by stream (SNJoin, section 2.4), all rows are partners up to the shortest
    window; from there to the longest each is asked for its own.
    """
    rows = core.rows
    time = batch.time[i]
    stream = batch.stream[i]
    own = lane_of(core, stream)
    reach = core.lanes[sweep_of(core, stream)].window
    window = lookback(throttle, core, own, lane)
    head = key_head(core, key, lane)
    row = head
    looked = 0
    once = core.settings.first == lane
    while True:
        ahead = rows[row].time - time
        if -ahead > window:  # all that follow are older still
            break
        looked += 1
        fits = ahead <= reach and rows[row].stream != stream
        fits = fits and within_bounds(core, lane, rows[row].time, own, time)
        if -ahead > core.settings.shortest and fits:
            fits = -ahead <= core.lanes[sweep_of(core, rows[row].stream)].window
        if once and fits:
            fits = core.met[row] & MATCHED == 0
        if fits and is_probed(throttle, core, own, lane, -ahead, row):
            work.partners[filled] = row
            filled += 1
            if ahead > 0:
                work.cursor[MIXED] = 1
        row = hooks.next_older(matcher, throttle, core, row, head, own, lane, -ahead)
        if row == head:
            break
    work.cursor[LOOKED] += looked
    work.cursor[MOST] = max(work.cursor[MOST], filled)
    return filled


@kernel
def _gather_by_stream(matcher, core, throttle, batch, work, i, key):  # type: ignore[no-untyped-def]
    """The same where one list holds the rows of all streams: sort them into groups."""
    if key_head(core, key, 0) == NONE:
        return
    rows = core.rows
    filled = collect(matcher, core, throttle, batch, work, i, key, 0, 0)
    on_candidates(throttle, core, 0, 0, work.cursor[LOOKED], filled)
    groups = 0
    for j in range(filled):
        stream = rows[work.partners[j]].stream
        if work.group_of[stream] == NONE:
            work.group_of[stream] = groups
            work.groups[groups].start = 0
            groups += 1
        work.groups[work.group_of[stream]].start += 1
    total = 0
    for group in range(groups):
        size = work.groups[group].start
        work.groups[group].start = total
        work.groups[group].choice = total
        total += size
    work.groups[groups].start = total
    # The second half of the room for partners takes them in order of their groups.
    for j in range(filled):
        row = work.partners[j]
        group = work.group_of[rows[row].stream]
        work.partners[filled + work.groups[group].choice] = row
        work.groups[group].choice += 1
    for j in range(filled):
        row = work.partners[filled + j]
        work.partners[j] = row
        work.group_of[rows[row].stream] = NONE
    if groups + 1 >= core.settings.at_least:
        work.cursor[GROUPS] = groups
