"""The matcher of streams that are joined by a graph of equalities between pairs of them.

The partners of a newcomer are sought stream by stream, each level below the rows chosen above it.
A stream is looked up as soon as the attributes of its index are known, so that a row that leads
nowhere is left at once, and what does not depend on the rows between is looked up once. The search
stays as it is when the loop is left, and goes on from there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamshed.engine.batch import DEPTH, GROUPS, LOOKED, MIXED
from streamshed.engine.gate.hooks import is_probed, lookback
from streamshed.engine.match import hooks
from streamshed.engine.match.attribute_index import (
    AttributeIndex,
    bind_row,
    enter_row,
    fits_row,
    look_up,
    next_older,
    prefetch_leaving,
    prefetch_lookup,
    take_out_row,
)
from streamshed.engine.match.keys import CACHED, newcomer_importance, prefetch_keys
from streamshed.engine.match.probe_order import ProbeOrder, bind, find_orders
from streamshed.kernels.bounds import within_bounds
from streamshed.kernels.compiling import cold_kernel, implements, kernel
from streamshed.kernels.core import ARRIVALS, NONE
from streamshed.kernels.hooks import on_newcomer

AHEAD = 12
"""How many rows ahead memory is asked for."""
OFTEN, SELDOM = 32, 1024
"""One arrival in so many is measured; after so many the orders are found anew."""
EARLY = 256
"""The first arrivals are all measured."""
WEIGHT = 1 / 64
"""Of the latest measurement in the mean."""
MOST_COUNTED = 256


class Attributes(NamedTuple):
    """The matcher's state: in which order streams are probed, and their indexes."""

    order: ProbeOrder
    entries: AttributeIndex
    shift: np.uint64  # of a hash, so that its top bits are a place in the directory of entries
    bits: int  # of an entry's number that say which index it is in
    width: int  # attributes for which it has


@implements(hooks.prefetch_rows, Attributes)
def _prefetch_rows(matcher, core, batch, i, shift):  # type: ignore[no-untyped-def]
    if core.rows.size > CACHED:
        prefetch_keys(matcher, core, batch, i, shift)
        _prefetch_indexes(core, matcher, batch, i, shift)


@kernel
def _prefetch_indexes(core, matcher, batch, i, shift):  # type: ignore[no-untyped-def]
    """Ask for the memory in which the next rows will look others up, and be entered.

    What is asked for leads to what is asked for four rows later: the directory to a key, the key to
    a row.
    """
    if i + AHEAD < batch.time.size:
        for stage in range(3):
            _prefetch_partners(core, matcher, batch, i + AHEAD - 4 * stage, stage, shift)
    first = core.lanes[batch.stream[i]].first
    if first != NONE and matcher.order.indexes[batch.stream[i]] > 1:
        prefetch_leaving(core, matcher, first)


@kernel
def _prefetch_partners(core, matcher, batch, i, stage, shift):  # type: ignore[no-untyped-def]
    """Ask for what a row will look up at once, and for its own places in indexes."""
    order = matcher.order
    stream = np.int64(batch.stream[i])
    deepest = order.settings.streams - 1
    for later in range(deepest):
        level = order.levels[stream * deepest + later]
        if level.after == NONE:
            prefetch_lookup(
                core, matcher, batch, i, level.stream, level.index, level.mask, stage, shift
            )
    wide = order.settings.wide
    for index in range(1, order.indexes[stream]):
        mask = order.masks[stream * wide + index]
        prefetch_lookup(core, matcher, batch, i, stream, index, mask, stage, shift)


@implements(hooks.set_newcomer, Attributes)
def _set_newcomer(matcher, policy, core, batch, i, shift):  # type: ignore[no-untyped-def]
    bind(matcher.order, np.int64(batch.stream[i]), batch.hashes[i], 0)
    on_newcomer(policy, core, newcomer_importance(batch, i), 0)
    _measure(core, matcher, np.int64(batch.stream[i]), shift)


@implements(hooks.restore_row, Attributes)
def _restore_row(matcher, policy, core, batch, i, shift):  # type: ignore[no-untyped-def]
    bind(matcher.order, np.int64(batch.stream[i]), batch.hashes[i], 0)
    on_newcomer(policy, core, newcomer_importance(batch, i), 0)


implements(hooks.insert_row, Attributes)(enter_row)
implements(hooks.remove_row, Attributes)(take_out_row)


@kernel
def _measure(core, matcher, stream, shift):  # type: ignore[no-untyped-def]
    """Count now and then how many rows of the other streams match; see `find_orders`."""
    arrival = core.numbers[ARRIVALS] - 1
    if arrival % OFTEN == 0 or arrival < EARLY:
        _count_matches(core, matcher, stream, shift)
    if arrival % SELDOM == 0 or arrival in (16, 64, EARLY):
        find_orders(matcher.order)


@cold_kernel
def _count_matches(core, matcher, stream, shift):  # type: ignore[no-untyped-def]
    """Count the rows of each stream that share an attribute with a newcomer, if not too many."""
    order = matcher.order
    streams = order.settings.streams
    wide = order.settings.wide
    for other in range(streams):
        needed = order.attributes[other] & order.attributes[stream]
        if other == stream or needed == np.uint64(0):
            continue
        index = 0
        while order.masks[other * wide + index] & ~needed != np.uint64(0):
            index += 1
        mask = order.masks[other * wide + index]
        head = look_up(core, matcher, other, index, mask, shift)
        row, count = head, 0
        while row != NONE and count < MOST_COUNTED:
            if fits_row(matcher, row, other, needed):
                count += 1
            row = next_older(core, matcher, index, row)
            if row == head:
                break
        place = stream * streams + other
        order.fanout[place] += (count - order.fanout[place]) * WEIGHT


@implements(hooks.begin_probe, Attributes)
def _begin_probe(matcher, throttle, core, batch, work, i, key, shift):  # type: ignore[no-untyped-def]
    work.cursor[GROUPS] = core.settings.lanes - 1
    work.cursor[MIXED] = 0
    work.cursor[LOOKED] = 0
    if not _look_up_after(core, matcher, batch, work, i, np.int64(NONE), shift):
        return False
    work.cursor[DEPTH] = 0
    work.groups[0].choice = work.groups[0].start
    return True


@implements(hooks.next_match, Attributes)
def _next_match(matcher, throttle, core, batch, work, i, shift):  # type: ignore[no-untyped-def]
    last = core.settings.lanes - 2
    depth = work.cursor[DEPTH]
    while depth >= 0:
        row = _next_row(core, matcher, throttle, batch, work, i, depth)
        if row == NONE:
            depth -= 1
            continue
        work.groups[depth].row = row
        if depth == last:
            work.cursor[DEPTH] = depth
            return True
        bind_row(matcher, core, row)
        if _look_up_after(core, matcher, batch, work, i, depth, shift):
            depth += 1
            work.groups[depth].choice = work.groups[depth].start
    return False


@kernel
def _look_up_after(core, matcher, batch, work, i, depth, shift):  # type: ignore[no-untyped-def]
    """Look up the streams that the row at a level makes possible; False if one has no partner."""
    order = matcher.order
    deepest = order.settings.streams - 1
    base = batch.stream[i] * deepest
    for later in range(depth + 1, deepest):
        level = order.levels[base + later]
        if level.after == depth:
            row = look_up(core, matcher, level.stream, level.index, level.mask, shift)
            if row == NONE:
                return False
            if batch.time[i] - core.rows[row].time > core.lanes[level.stream].window:
                return False  # the newest, and too old
            work.groups[later].start = row
    return True


@kernel
def _fits_above(core, batch, work, i, depth, row):  # type: ignore[no-untyped-def]
    """Whether a row is within its bounds with the newcomer and the rows chosen above."""
    if core.bounds.size == 0:
        return True
    stream, time = core.rows[row].stream, core.rows[row].time
    if not within_bounds(core, stream, time, batch.stream[i], batch.time[i]):
        return False
    for above in range(depth):
        other = work.groups[above].row
        if not within_bounds(core, stream, time, core.rows[other].stream, core.rows[other].time):
            return False
    return True


@kernel
def _next_row(core, matcher, throttle, batch, work, i, depth):  # type: ignore[no-untyped-def]
    """The next row at a level that fits the newcomer and the rows above, or NONE."""
    group = work.groups[depth]
    row = group.choice
    if row == NONE:
        return row
    level = matcher.order.levels[batch.stream[i] * (matcher.order.settings.streams - 1) + depth]
    time = batch.time[i]
    stream = np.int64(batch.stream[i])
    reach = core.lanes[stream].window
    window = lookback(throttle, core, stream, level.stream)
    head = group.start
    while row != NONE:
        ahead = core.rows[row].time - time
        if -ahead > window:  # all that follow are older still
            break
        work.cursor[LOOKED] += 1
        following = next_older(core, matcher, level.index, row)
        if following == head:
            following = np.int64(NONE)
        if (
            ahead <= reach
            and core.rows[row].stream == level.stream
            and is_probed(throttle, core, stream, level.stream, -ahead, row)
            and fits_row(matcher, row, level.stream, level.compared)
            and _fits_above(core, batch, work, i, depth, row)
        ):
            if ahead > 0:
                work.cursor[MIXED] = 1
            work.groups[depth].choice = following
            return row
        row = following
    work.groups[depth].choice = NONE
    return np.int64(NONE)
