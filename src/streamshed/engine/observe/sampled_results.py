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

from streamshed.engine.observe.state import (
    FLOOR,
    FRESH,
    LEVELS,
    SIGNS,
    at_most_in_sketch,
    clump_of,
    depth_of,
    is_over,
    latest_time,
    left_in_sketch,
    level_of,
    oldest_partner,
    rows_in_sketch,
    window_of,
)
from streamshed.kernels.bounds import within_bounds
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.core import BOUNDLESS, NONE
from streamshed.kernels.random import mix
from streamshed.kernels.table import lane_of

DOUBT = 1.1
"""A key may have so many times the rows that the sketch tells, as it forgets them unevenly."""
LACKING = 0.95
"""Where less than this part is seen of what the sketch predicts, something was not followed."""
_ONE = np.uint64(1)
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
def part_from(lo, hi, count, least):  # type: ignore[no-untyped-def]
    """How many of so many rows are of a time, or number, of at least so much.

    There is one at each of both ends; those in between are taken as evenly spread.
    """
    rows = np.float64(count)
    if lo >= least:
        return rows
    if hi < least:
        return 0.0
    part = np.float64(hi - least + 1) / np.float64(hi - lo + 1)
    return 1.0 + (rows - 2.0) * part


@kernel
def partners_in(loss, core, e, time):  # type: ignore[no-untyped-def]
    """How many rows of an entry a result of a time may have, by all windows of their stream."""
    entry = loss.entries[e]
    stream = np.int64(entry.stream)
    rows = part_from(entry.lo, entry.hi, entry.count, oldest_partner(loss, core, stream, time))
    if loss.earliest.size > 0:
        least = time - window_of(core, stream)
        rows = min(rows, part_from(loss.earliest[e], loss.latest[e], entry.count, least))
    return rows


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
            if not within_bounds(core, other, latest_time(loss, e), stream, time):
                rows = 0.0
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
                if rows < entry.count:
                    cut = _cut_variance(entry, rows)
                    _add_cut(loss, np.sqrt(cut), mix(np.uint64(entry.lo) ^ np.uint64(e)), merged)
                    merged = True
                    if level == 0:
                        cut_at_0 += cut
        e = np.int64(entry.after)
    for slot in range(slots):
        for level in range(1, top + 1):
            partners[slot * LEVELS + level] += partners[slot * LEVELS + level - 1]
    return Partners(slots, top, ahead, merged, cut_at_0, own, own_rows, same, rank, over)


@kernel
def _add_cut(loss, deviation, signs, more):  # type: ignore[no-untyped-def]
    """Add what an entry has wrong, which is to one side as long as the same edge cuts it."""
    for sign in range(SIGNS):
        before = loss.cut[sign] if more else 0.0
        aside = np.float64((signs >> np.uint64(sign)) & _ONE)
        loss.cut[sign] = before + deviation * (1.0 - 2.0 * aside)


@kernel
def _cut_variance(entry, rows):  # type: ignore[no-untyped-def]
    """The variance of the number of rows of an entry that are within a window whose edge cuts it.

    Rows that come at once are within together; but no more can be wrong than are on either side.
    """
    cut = rows * (1.0 - rows / entry.count)
    most = min(rows, entry.count - rows)
    return max(cut, min(cut * clump_of(entry), most * most))


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
        return _within_bounds(loss, core, key, stream, time, level)
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
def _within_bounds(loss, core, key, stream, time, level):  # type: ignore[no-untyped-def]
    """The results where there are bounds: combinations of entries are gone through, lane by lane.

    The last row of an entry stands for all of its rows.
    """
    entries, at, product = loss.entries, loss.at, loss.led
    lanes, head = core.settings.lanes, np.int64(loss.keys[key].head)
    first = 1 if stream == 0 else 0
    last = lanes - 2 if stream == lanes - 1 else lanes - 1
    results = 0.0
    lane = first
    at[lane] = head
    while lane >= first:
        e = np.int64(at[lane])
        while e != NONE and not _fits_above(loss, core, e, lane, stream, time, level):
            e = np.int64(entries[e].after)
        if e == NONE:
            lane -= 2 if lane - 1 == stream else 1
            if lane >= first:
                at[lane] = entries[at[lane]].after
            continue
        at[lane] = e
        before = lane - 2 if lane - 1 == stream else lane - 1
        product[lane] = partners_in(loss, core, e, time)
        if lane > first:
            product[lane] *= product[before]
        if lane == last:
            results += product[lane]
            at[lane] = entries[e].after
        else:
            lane += 2 if lane + 1 == stream else 1
            at[lane] = head
    return results


@kernel
def _fits_above(loss, core, e, lane, stream, time, level):  # type: ignore[no-untyped-def]
    """Whether an entry is of a lane, and within bounds with the newcomer and those chosen above."""
    entry = loss.entries[e]
    if entry.stream != lane or level_of(loss, entry) > level:
        return False
    own = latest_time(loss, e)
    if not within_bounds(core, lane, own, stream, time):
        return False
    for above in range(lane):
        if above != stream:
            other = latest_time(loss, np.int64(loss.at[above]))
            if not within_bounds(core, lane, own, above, other):
                return False
    return True


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
