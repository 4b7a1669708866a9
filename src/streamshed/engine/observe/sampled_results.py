"""What a newcomer would complete if nothing were shed, as far as its key is followed.

Partners of level c are known with the chance 2^-c. With F(c) results of partners up to level c, the
estimate is the sum of 2^c·(F(c) - F(c - 1)), whose expectation is the number of all results. Where
the sketch says that there are many more than F(c), their number is predicted by what is known on
level c; that takes the place of F(c), but not on the highest level, where all is known, and not if
a row followed on level c is about as old as a window: then none was missed since. Whatever is
predicted, the expectation is the same (a difference estimator).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamshed.engine.observe.merged_rows import (
    add_cut,
    count_within_bounds,
    cut_variance,
    note_partners,
    note_tie,
    partners_in,
    results_in_doubt,
    rows_within_bounds,
)
from streamshed.engine.observe.state import (
    CERTAIN,
    FLOOR,
    FRESH,
    LEVELS,
    at_most_in_sketch,
    depth_of,
    is_over,
    latest_time,
    left_in_sketch,
    level_of,
    oldest_partner,
    rows_in_sketch,
    window_of,
)
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.core import BOUNDLESS, NONE
from streamshed.kernels.random import mix
from streamshed.kernels.table import lane_of

DOUBT = 1.1
"""A key may have so many times the rows that the sketch tells, as it forgets them unevenly."""
LACKING = 0.95
"""Where less than this part is seen of what the sketch predicts, something was not followed."""
NO_RANK = -9999
"""The largest rank of no entries."""


class Partners(NamedTuple):
    """What was found below the newcomer's key."""

    slots: int  # streams that have partners
    top: int  # the highest level of a partner
    ahead: bool  # some are newer than the newcomer
    merged: bool  # entries are cut by the edge of a window: `Loss.cut` is what that may have wrong
    cut_at_0: float  # partners of level 0 that may be outside for this reason
    own: int  # entries of the newcomer's own stream, and their rows
    own_rows: float
    same: np.int64  # the entry to which the newcomer can be added if ranks are equal, or NONE
    rank: np.int64  # the largest one of all entries
    over: bool  # some have expired


class Found(NamedTuple):
    """The results of a newcomer: see `state.TALLY`."""

    exact: float
    certain: float
    seen: float
    spread: float
    weight: float
    lowest: np.int64  # the lowest level at which there is a result
    last: float  # what the key knows, or predicts


@kernel
def gather(loss, core, key, stream, time, position):  # type: ignore[no-untyped-def]
    """Count the newcomer's partners by stream and level, in `Loss.partners`."""
    entries, partners = loss.entries, loss.partners
    reach = window_of(core, stream)
    slots, top, own, own_rows = 0, 0, 0, 0.0
    ahead, merged, cut_at_0 = False, False, 0.0
    same, rank, over = np.int64(NONE), np.int64(NO_RANK), False
    e = np.int64(loss.keys[key].head)
    while e != NONE:
        entry = entries[e]
        other = np.int64(entry.stream)
        if is_over(loss, core, e):
            over = True
            e = np.int64(entry.after)
            continue
        rank = max(rank, np.int64(entry.rank))
        if other == stream:
            own += 1
            own_rows += entry.count
            if same == NONE and _is_alike(loss, entry, position):
                same = e
        else:
            rows = partners_in(loss, core, e, time)
            if core.settings.timed and latest_time(loss, e) > time:
                ahead = True
                if latest_time(loss, e) - time > reach:
                    rows = 0.0
            if core.bounds.size > 0:
                rows = rows_within_bounds(loss, core, e, stream, time)
                if entry.hi == entry.lo and latest_time(loss, e) == time:
                    note_tie(loss, core, stream, other)
            if rows > 0:
                level = level_of(loss, entry)
                while top < level:
                    top += 1
                    for slot in range(slots):
                        partners[slot * LEVELS + top] = 0.0
                if loss.slot_of[other] == NONE:
                    _add_slot(loss, other, slots, top)
                    slots += 1
                partners[loss.slot_of[other] * LEVELS + level] += rows
                if rows < entry.count and core.bounds.size == 0:
                    cut = cut_variance(entry, rows)
                    add_cut(loss, np.sqrt(cut), mix(np.uint64(entry.lo) ^ np.uint64(e)), merged)
                    merged = True
                    if level == 0:
                        cut_at_0 += cut
        e = np.int64(entry.after)
    if core.bounds.size > 0:
        note_partners(loss, core, stream, slots)
    for slot in range(slots):
        for level in range(1, top + 1):
            partners[slot * LEVELS + level] += partners[slot * LEVELS + level - 1]
    return Partners(slots, top, ahead, merged, cut_at_0, own, own_rows, same, rank, over)


@kernel
def _is_alike(loss, entry, position):  # type: ignore[no-untyped-def]
    """Whether a row of a position can be counted in an entry of its stream, by floor and place."""
    return entry.hi == position and entry.lo == position and entry.floor == loss.numbers[FLOOR]


@kernel
def _add_slot(loss, stream, slot, top):  # type: ignore[no-untyped-def]
    """Give a stream a slot among the partners."""
    loss.slot_of[stream] = slot
    loss.streams[slot] = stream
    for level in range(top + 1):
        loss.partners[slot * LEVELS + level] = 0.0


@kernel
def release_slots(loss, slots):  # type: ignore[no-untyped-def]
    """Let the streams have no slots any more."""
    for slot in range(slots):
        loss.slot_of[loss.streams[slot]] = NONE


@kernel
def _product(loss, core, slots, level):  # type: ignore[no-untyped-def]
    """The results with partners up to a level: one choice from each stream that has some."""
    results = 1.0
    members = 1
    for slot in range(slots):
        rows = loss.partners[slot * LEVELS + level]
        if rows > 0:
            results *= rows
            members += 1
    return results if members >= core.settings.at_least else 0.0


@kernel
def count_results(loss, core, sight, key, stream, time, partners, ends):  # type: ignore[no-untyped-def]
    """The newcomer's results: what level c adds is seen with the chance 2^-c.

    From the level `ends` on all partners are known, and nothing is predicted.
    """
    by_latest = partners.ahead and core.settings.complete
    exact, spread, certain, heaviest = 0.0, 0.0, 0.0, 0.0
    seen, before, weight, known = 0.0, 0.0, 1.0, 0.0
    lowest = np.int64(NONE)
    old = np.int64(0)
    if ends > 0:
        old = np.int64(_weigh(loss, core, key, time, partners))
    last = max(partners.top, min(ends, depth_of(sight.lot)))
    for level in range(last + 1):
        if level <= partners.top:
            results = _on_level(loss, core, key, stream, time, partners, level, by_latest)
            if results > seen:
                seen = results
                if lowest == NONE:
                    lowest = np.int64(level)
                if level == 0:
                    certain = results
                    loss.hand[0].slack = CERTAIN * results_in_doubt(loss, core)
                else:
                    heaviest = weight
        known = seen
        if level < min(ends, old):
            known = _predicted(loss, core, sight, stream, partners, level, seen)
        loss.known[level] = known
        exact += weight * (known - before)
        spread += weight * (known - before) * np.sqrt(1.0 - 1.0 / weight)
        before = known
        weight *= 2.0
    loss.hand[0].top = last + 1
    return Found(exact, certain, seen, spread, heaviest, lowest, known)


@cold_kernel
def _weigh(loss, core, key, time, partners):  # type: ignore[no-untyped-def]
    """Note what the sketch has of partners, by slot and level, in `Loss.weighed`.

    Returns:
        The lowest level of an entry of the first quarter of its window: on this level, and above,
        the key has been followed for long.
    """
    weighed, entries, left = loss.weighed, loss.entries, loss.left
    old = np.int64(LEVELS)
    left[:] = 1.0
    for slot in range(partners.slots):
        for level in range(partners.top + 1):
            weighed[slot * LEVELS + level] = 0.0
    e = np.int64(loss.keys[key].head)
    while e != NONE:
        other, level = np.int64(entries[e].stream), level_of(loss, entries[e])
        if _is_old(loss, core, e, time):
            old = np.int64(min(old, level))
        part = left_in_sketch(loss, core, e)
        left[level] = min(left[level], part)
        if loss.slot_of[other] != NONE and level <= partners.top:
            weighed[loss.slot_of[other] * LEVELS + level] += entries[e].count * part
        e = np.int64(entries[e].after)
    for slot in range(partners.slots):
        for level in range(1, partners.top + 1):
            weighed[slot * LEVELS + level] += weighed[slot * LEVELS + level - 1]
    for level in range(1, LEVELS):
        left[level] = min(left[level], left[level - 1])
    return old


@kernel
def _is_old(loss, core, e, time):  # type: ignore[no-untyped-def]
    """Whether the first row of an entry is in the first quarter of its window, or of one."""
    entry = loss.entries[e]
    stream = np.int64(entry.stream)
    last, window = core.lanes[lane_of(core, stream)].last, window_of(core, stream)
    if last > 0 and entry.lo - oldest_partner(loss, core, stream, time) <= last // 4:
        return True
    if window >= BOUNDLESS:
        return False
    first = entry.lo if last == 0 else loss.earliest[e]
    return first - (time - window) <= window // 4


@kernel
def _on_level(loss, core, key, stream, time, partners, level, by_latest):  # type: ignore[no-untyped-def]
    """The results with partners up to a level."""
    if partners.slots + 1 < core.settings.at_least:
        return 0.0
    if core.bounds.size > 0:
        return count_within_bounds(loss, core, key, stream, time, level)
    if by_latest:
        return _by_latest(loss, core, key, stream, time, partners.slots, level)
    return _product(loss, core, partners.slots, level)


@kernel
def _predicted(loss, core, sight, stream, partners, level, seen):  # type: ignore[no-untyped-def]
    """The results that there may be where so many are seen: by the sketch, and known partners."""
    results, lanes = 1.0, core.settings.lanes
    for lane in range(lanes):
        if lane != stream:
            rows = rows_in_sketch(loss, lanes, sight.first, sight.second, lane)
            known, missed = _missed_rows(loss, partners, level, lane, FRESH * rows)
            results *= known + missed
    return results if seen < LACKING * results else seen


@kernel
def _missed_rows(loss, partners, level, lane, rows):  # type: ignore[no-untyped-def]
    """The partners known up to a level, and those missed if the sketch has so many rows of a lane.

    What was missed is as old as the oldest row that was not, or older.
    """
    slot, known, weighed = loss.slot_of[lane], 0.0, 0.0
    if slot != NONE:
        place = slot * LEVELS + min(level, partners.top)
        known, weighed = loss.partners[place], loss.weighed[place]
    return known, max(0.0, rows - weighed) / loss.left[level]


@kernel
def count_missable(loss, core, sight, stream, partners, last):  # type: ignore[no-untyped-def]
    """The results that there may be besides, as the sketch never has too few rows of a key.

    No more than twice as many partners as are known: beside few of them it is mostly noise.
    """
    results, lanes, level = 1.0, core.settings.lanes, loss.hand[0].top - 1
    for lane in range(lanes):
        if lane != stream:
            rows = at_most_in_sketch(loss, lanes, sight.first, sight.second, lane)
            known, missed = _missed_rows(loss, partners, level, lane, FRESH * rows)
            results *= known + min(known, missed)
    return max(0.0, results - last)


@cold_kernel
def _by_latest(loss, core, key, stream, time, slots, level):  # type: ignore[no-untyped-def]
    """The results of a complete join where some partners are newer than the newcomer.

    All members are within their windows of the latest one; so results are counted by that.
    """
    entries = loss.entries
    results = _led_by(loss, core, key, stream, slots, level, NONE, time)
    reach = window_of(core, stream)
    e = np.int64(loss.keys[key].head)
    while e != NONE:
        other = np.int64(entries[e].stream)
        if other != stream and level_of(loss, entries[e]) <= level:
            latest = latest_time(loss, e)
            if time < latest <= time + reach:
                rows = partners_in(loss, core, e, latest)
                if rows > 0:
                    results += rows * _led_by(loss, core, key, stream, slots, level, other, latest)
        e = np.int64(entries[e].after)
    return results


@kernel
def _led_by(loss, core, key, stream, slots, level, leader, latest):  # type: ignore[no-untyped-def]
    """The choices of other members if the latest one is of a stream (NONE: the newcomer) and time.

    Of members of equal time the one of the last stream is called the latest, or the newcomer.
    """
    entries, led = loss.entries, loss.led
    for slot in range(slots):
        led[slot] = 0.0
    e = np.int64(loss.keys[key].head)
    while e != NONE:
        other = np.int64(entries[e].stream)
        if other not in (stream, leader):
            behind = latest - latest_time(loss, e)
            first = behind > 0 or (behind == 0 and (leader == NONE or other < leader))
            if first and level_of(loss, entries[e]) <= level and loss.slot_of[other] != NONE:
                led[loss.slot_of[other]] += partners_in(loss, core, e, latest)
        e = np.int64(entries[e].after)
    results = 1.0
    members = 1 if leader == NONE else 2
    for slot in range(slots):
        if led[slot] > 0:
            results *= led[slot]
            members += 1
    return results if members >= core.settings.at_least else 0.0


@kernel
def count_hidden(loss, core, stream, partners, seen, sight):  # type: ignore[no-untyped-def]
    """The results that there may be besides with rows that came before the key was followed."""
    if core.settings.by:
        results = _believed_by(loss, core, partners, sight)
    else:
        results = _believed(loss, core, stream, partners, sight)
    return max(0.0, results - seen)


@kernel
def _believed(loss, core, stream, partners, sight):  # type: ignore[no-untyped-def]
    results, members = 1.0, 1
    lanes = core.settings.lanes
    for lane in range(lanes):
        slot = loss.slot_of[lane]
        if lane != stream and slot != NONE:
            likely = rows_in_sketch(loss, lanes, sight.first, sight.second, lane)
            results *= _rows_believed(loss.partners[slot * LEVELS + partners.top], likely)
            members += 1
    return results if members >= core.settings.at_least else 0.0


@kernel
def _believed_by(loss, core, partners, sight):  # type: ignore[no-untyped-def]
    """The same where a column names the streams: hidden rows are spread over them like partners."""
    total = 0.0
    for slot in range(partners.slots):
        total += loss.partners[slot * LEVELS + partners.top]
    if total == 0:
        return 0.0
    likely = rows_in_sketch(loss, core.settings.lanes, sight.first, sight.second, 0)
    factor = _rows_believed(total, likely) / total
    results = _product(loss, core, partners.slots, partners.top)
    for _ in range(partners.slots):
        results *= factor
    return results


@kernel
def _rows_believed(rows, likely):  # type: ignore[no-untyped-def]
    """How many partners there may be where so many are known, and the sketch has so many.

    No more than twice as many: beside few partners the sketch is mostly noise.
    """
    return max(rows, min(2.0 * rows, DOUBT * likely))
