"""Which rows of an entry are within windows, and within bounds on times; what that may have wrong.

There is a row at each end of a merged entry; those in between are taken as evenly spread. How many
of them are on a side of an edge, and which of two rows is the later one, may be otherwise.
"""

from __future__ import annotations

import numpy as np

from streamshed.engine.observe.state import (
    SIGNS,
    clump_of,
    first_time,
    latest_time,
    level_of,
    oldest_partner,
    window_of,
)
from streamshed.kernels.bounds import partner_times
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.core import NONE
from streamshed.kernels.random import mix

_ONE = np.uint64(1)
BETWEEN = 2
"""A merged entry is its first row (0), its last row (1), and those in between."""
TIES_DOUBT = 0.5
"""By how much rows of equal time may be more, or fewer, than they are taken to be."""


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
def cut_variance(entry, rows):  # type: ignore[no-untyped-def]
    """The variance of the number of rows of an entry that are within a window whose edge cuts it.

    Rows that come at once are within together; but no more can be wrong than are on either side.
    """
    cut = rows * (1.0 - rows / entry.count)
    most = min(rows, entry.count - rows)
    return max(cut, min(cut * clump_of(entry), most * most))


@kernel
def add_cut(loss, deviation, signs, more):  # type: ignore[no-untyped-def]
    """Add what an entry has wrong, which is to one side as long as the same edge cuts it."""
    for sign in range(SIGNS):
        before = loss.cut[sign] if more else 0.0
        aside = np.float64((signs >> np.uint64(sign)) & _ONE)
        loss.cut[sign] = before + deviation * (1.0 - 2.0 * aside)


# -- bounds on times ------------------------------------------------------------------------------


@kernel
def rows_within_bounds(loss, core, e, stream, time):  # type: ignore[no-untyped-def]
    """How many rows of an entry may be in a result with a row of another stream and of a time."""
    entry = loss.entries[e]
    least, most = partner_times(core, stream, time, np.int64(entry.stream))
    first, last = first_time(loss, e), latest_time(loss, e)
    later = part_from(first, last, entry.count, most + 1)
    rows = part_from(first, last, entry.count, least) - later
    return max(0.0, min(rows, partners_in(loss, core, e, time)))


@cold_kernel
def count_within_bounds(loss, core, key, stream, time, level):  # type: ignore[no-untyped-def]
    """The newcomer's results up to a level: combinations of entries are tried, lane by lane.

    Entries that overlap in time count as far as their rows fit together if they are evenly spread.
    What may be wrong of the results is left in `Loss.cut`.
    """
    entries, at, product = loss.entries, loss.at, loss.led
    lanes, head = core.settings.lanes, np.int64(loss.keys[key].head)
    first = 1 if stream == 0 else 0
    last = lanes - 2 if stream == lanes - 1 else lanes - 1
    results = 0.0
    loss.cut[:] = 0.0
    lane = first
    at[lane] = head
    while lane >= first:
        before = lane - 2 if lane - 1 == stream else lane - 1
        e = np.int64(at[lane])
        rows = 0.0
        while e != NONE:
            if entries[e].stream == lane and level_of(loss, entries[e]) <= level:
                loss.doubts[lane * SIGNS : (lane + 1) * SIGNS] = 0.0
                rows = _rows_beside(loss, core, e, lane, stream, time)
                if rows > 0:
                    break
            e = np.int64(entries[e].after)
        if e == NONE:
            lane = before
            if lane >= first:
                at[lane] = entries[at[lane]].after
            continue
        at[lane] = e
        product[lane] = rows
        if lane > first:
            product[lane] *= product[before]
            for sign in range(SIGNS):
                loss.doubts[lane * SIGNS + sign] += loss.doubts[before * SIGNS + sign]
        if lane == last:
            results += product[lane]
            for sign in range(SIGNS):
                loss.cut[sign] += product[lane] * loss.doubts[lane * SIGNS + sign]
            at[lane] = entries[e].after
        else:
            lane += 2 if lane + 1 == stream else 1
            at[lane] = head
    return results


@kernel
def _rows_beside(loss, core, e, lane, stream, time):  # type: ignore[no-untyped-def]
    """How many rows of an entry fit, in the mean, with the newcomer and those chosen above."""
    entry = loss.entries[e]
    rows = rows_within_bounds(loss, core, e, stream, time)
    if rows <= 0:
        return 0.0
    if rows < entry.count:
        wrong = np.sqrt(cut_variance(entry, rows)) / rows
        _add_doubt(loss, lane, wrong, mix(np.uint64(entry.lo) ^ np.uint64(e)))
    for above in range(lane):
        if above != stream:
            rows *= _part_beside(loss, core, e, lane, np.int64(loss.at[above]), above, stream, time)
            if rows <= 0:
                return 0.0
    return rows


@kernel
def _part_beside(loss, core, e, lane, other, above, stream, time):  # type: ignore[no-untyped-def]
    """The part of the pairs of rows of two entries that are within bounds; notes the doubt."""
    one, two, lanes = loss.entries[e], loss.entries[other], core.settings.lanes
    most, least = core.bounds[lane * lanes + above], -core.bounds[above * lanes + lane]
    latest = latest_time(loss, e) - first_time(loss, other)
    earliest = first_time(loss, e) - latest_time(loss, other)
    if latest <= most and earliest >= least:
        return 1.0
    if latest < least or earliest > most:
        return 0.0
    clump, clumps = clump_of(one), clump_of(two)
    n, m = max(1.0, one.count / clump), max(1.0, two.count / clumps)
    equal = 1.0 if least <= 0 <= most else 0.0
    # Between times that are evenly spread; whether they are equal is not known from that.
    above_least = 0.0 if least in (0, 1) else least - 0.5
    below_most = 0.0 if most in (0, -1) else most + 0.5
    pairs, fit, aside = 0.0, 0.0, 0.0
    for i in range(BETWEEN + 1):
        rows, begin, end = _part_of(loss, core, e, stream, time, i)
        if rows <= 0:
            continue
        for j in range(BETWEEN + 1):
            others, begins, ends = _part_of(loss, core, other, stream, time, j)
            if others > 0:
                if begin == end and begins == ends:
                    part = 1.0 if least <= begin - begins <= most else 0.0
                else:
                    part = _part_up_to(begin, end, begins, ends, below_most)
                    part -= _part_up_to(begin, end, begins, ends, above_least)
                if BETWEEN in (i, j) and begin < ends and begins < end:
                    ways = _part_that_tied(loss, core, lane, above)
                    back = _part_that_tied(loss, core, above, lane)
                    ranges = begin, end, begins, ends
                    tied = _part_tied(ranges, rows / clump, others / clumps, ways, back)
                    part += tied * (equal - part)
                    aside += rows * others * TIES_DOUBT * tied * (equal - part)
                pairs += rows * others
                fit += rows * others * part
    if pairs == 0 or fit <= 0:
        return 0.0
    fit /= pairs
    unsure = fit * (1.0 - fit) * (1.0 - _part_known(loss, e) * _part_known(loss, other))
    if unsure > 0:
        _add_doubt(loss, lane, abs(aside) / pairs / fit, np.uint64(0))  # in all keys alike
        # As of the statistic of Mann and Whitney; rows that come at once are as one.
        wrong = np.sqrt(unsure * (n + m + 1.0) / (3.0 * n * m))
        signs = mix(np.uint64(one.lo) ^ np.uint64(e))
        signs = mix(signs ^ np.uint64(two.lo) ^ np.uint64(other))
        _add_doubt(loss, lane, min(wrong, fit, 1.0 - fit) / fit, signs)
    return fit


@kernel
def _part_of(loss, core, e, stream, time, end):  # type: ignore[no-untyped-def]
    """The rows of one end of an entry (or in between), from when, until when.

    As far as they are within bounds with the newcomer.
    """
    entry = loss.entries[e]
    least, most = partner_times(core, stream, time, np.int64(entry.stream))
    first, last = first_time(loss, e), latest_time(loss, e)
    begin, until = max(first, least), min(last, most)
    rows = np.float64(entry.count)
    if first == last:
        return (rows if end == 0 else 0.0), first, first
    at_end = min(clump_of(entry), 0.5 * rows)  # come at once
    if end == 0:
        return (at_end if first >= least else 0.0), first, first
    if end == 1:
        return (at_end if last <= most else 0.0), last, last
    part = np.float64(until - begin + 1) / np.float64(last - first + 1)
    return (rows - 2.0 * at_end) * max(0.0, part), begin, until


@kernel
def _part_known(loss, e):  # type: ignore[no-untyped-def]
    """The part of the rows of an entry whose times are known: of the first and the last one."""
    at_once = first_time(loss, e) == latest_time(loss, e)
    return 1.0 if at_once else min(1.0, 2.0 / loss.entries[e].count)


@kernel
def _part_tied(ranges, n, m, ways, back):  # type: ignore[no-untyped-def]
    """The part of pairs of times of two ranges, of so many each, that are likely to be the same.

    As many as newcomers have found so far: of two rows of the same time the second does.
    """
    begin, end, begins, ends = ranges
    both = np.float64(min(end, ends) - max(begin, begins))
    if begin == end or begins == ends:  # one time, which may be one within the other range
        return min(1.0, ways + back) / max(1.0, n, m)
    n_common, m_common = n * both / np.float64(end - begin), m * both / np.float64(ends - begins)
    tied = min(n_common * ways + m_common * back, n_common, m_common)
    return tied / (max(1.0, n) * max(1.0, m))


@kernel
def _part_that_tied(loss, core, stream, other):  # type: ignore[no-untyped-def]
    """The part of newcomers with partners in another stream that had one of the same time."""
    pair = 2 * (stream * core.settings.lanes + other)
    return loss.ties[pair + 1] / max(1.0, loss.ties[pair])


@kernel
def note_partners(loss, core, stream, slots):  # type: ignore[no-untyped-def]
    """Note from which streams a newcomer has partners."""
    for slot in range(slots):
        loss.ties[2 * (stream * core.settings.lanes + np.int64(loss.streams[slot]))] += 1.0


@kernel
def note_tie(loss, core, stream, other):  # type: ignore[no-untyped-def]
    """Note that a newcomer has a partner of the same time in another stream."""
    loss.ties[2 * (stream * core.settings.lanes + other) + 1] += 1.0


@kernel
def _part_up_to(begin, end, begins, ends, most):  # type: ignore[no-untyped-def]
    """The part of pairs of times of two ranges with one later than the other by so much at most."""
    if end - begins <= most:
        return 1.0
    if begin - ends > most:
        return 0.0
    length, width = np.float64(end - begin), np.float64(ends - begins)
    if length == 0:
        return (np.float64(ends - begin) + most) / width
    if width == 0:
        return (np.float64(begins - begin) + most) / length
    area = _half_square(ends - begin + most) - _half_square(begins - begin + most)
    area += _half_square(begins - end + most) - _half_square(ends - end + most)
    return max(0.0, min(1.0, area / (length * width)))


@kernel
def _half_square(by):  # type: ignore[no-untyped-def]
    return 0.5 * max(0.0, by) ** 2


@kernel
def _add_doubt(loss, lane, part, signs):  # type: ignore[no-untyped-def]
    """Let the rows chosen of a lane be wrong by a part, to some side."""
    for sign in range(SIGNS):
        aside = np.float64((signs >> np.uint64(sign)) & _ONE)
        loss.doubts[lane * SIGNS + sign] += part * (1.0 - 2.0 * aside)


@kernel
def results_in_doubt(loss, core):  # type: ignore[no-untyped-def]
    """How many results may be wrong of those counted last, where there are bounds."""
    if core.bounds.size == 0:
        return 0.0
    square = 0.0
    for sign in range(SIGNS):
        square += loss.cut[sign] ** 2 / SIGNS
    return np.sqrt(square)
