"""The loop of the join by a graph of equalities: expire, probe, emit, admit, shed, insert.

The partners of a newcomer are sought stream by stream, each level below the rows chosen above it.
A stream is looked up as soon as the attributes of its index are known, so that a row that leads
nowhere is left at once, and what does not depend on the rows between is looked up once. The search
is left in the middle when the output buffer is full, and goes on from there.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import aside, kernel, loop
from streamshed.kernels.core import ARRIVALS, ARRIVED, FILTERED, NONE, PINNED, RESULTS, SHED
from streamshed.kernels.hooks import announced, inserted, produced, restored
from streamshed.kernels.pacing import farthest, is_due, let_in, wanted, worked
from streamshed.kernels.table import home_shift
from streamshed.operators.buffers import (
    BEFORE,
    DEPTH,
    EMITTING,
    LATECOMERS,
    LOOKED,
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
    DUE,
    SUSPENDED,
    arrive,
    look_ahead,
    pin,
    push_out,
    settle,
    work_done,
)
from streamshed.operators.net import bind, find_orders
from streamshed.operators.probing import together
from streamshed.operators.storing import count, outlive, store_again
from streamshed.operators.waiting import BUSY, has_come, is_ready, join_queue, release, take_first
from streamshed.operators.weaving import (
    ask_for,
    ask_for_leaving,
    bind_row,
    fits_row,
    look_up,
    next_older,
)

AHEAD = 12
"""How many tuples ahead memory is asked for."""
OFTEN, SELDOM = 32, 1024
"""One arrival in so many is measured; after so many the orders are found anew."""
EARLY = 256
"""The first arrivals are all measured."""
WEIGHT = 1 / 64
"""Of the latest measurement in the mean."""
MOST_COUNTED = 256


@loop
def run_graph(core, graph, sample, batch, work, out):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it, until it is done or the output buffer is full."""
    cursor = work.cursor
    _know_tables(core, sample, cursor)
    shift = np.uint64(cursor[SHIFT])
    for i in range(cursor[NEXT], batch.time.size):
        if cursor[EMITTING] == 0 and is_due(graph, batch, i):
            cursor[NEXT] = i
            return DUE
        if cursor[EMITTING] == 0 and core.table.size > CACHED:
            look_ahead(core, batch, i, shift)
            _look_ahead(core, graph, batch, i, shift)
        if not _process(core, graph, sample, batch, work, out, i):
            cursor[NEXT] = i
            return SUSPENDED
    cursor[NEXT] = 0
    return DONE


@loop
def run_queued(core, graph, sample, batch, queue, work, out):  # type: ignore[no-untyped-def]
    """Let a batch, or what is left of it, come to the queue, and process whose turn it is.

    Returns before the end also when a tuple was late: its place is another's later.
    """
    cursor, numbers = work.cursor, queue.numbers
    _know_tables(core, sample, cursor)
    capacity = queue.after.size - 2
    i = cursor[NEXT]
    while True:
        cursor[NEXT] = i
        place = numbers[BUSY]
        if place != NONE:
            if not _process(core, graph, sample, queue.tuples, work, out, place):
                return SUSPENDED
            release(queue, place)
            numbers[BUSY] = NONE
            if out.filled[LATECOMERS] > 0:
                return SUSPENDED
        elif i == batch.time.size:
            break
        elif batch.null.size > 0 and batch.null[i]:
            count(core, batch.stream[i], ARRIVED, 1)
            count(core, batch.stream[i], FILTERED, 1)
            has_come(queue)
            i += 1
        elif is_ready(queue, batch, i):
            take_first(queue)
            queue.free_at[0] += queue.gap
        else:
            join_queue(core, graph, queue, batch, i, capacity)
            i += 1
    cursor[NEXT] = 0
    return DONE


@kernel
def _know_tables(core, sample, cursor):  # type: ignore[no-untyped-def]
    """Note how far hashes are shifted, which is the same for a whole batch."""
    cursor[SHIFT] = np.int64(home_shift(core.table))
    cursor[SAMPLE_SHIFT] = np.int64(home_shift(sample.core.table))


@kernel
def _process(core, graph, sample, batch, work, out, i):  # type: ignore[no-untyped-def]
    """Process a tuple, or what is left to do of it; False if the output buffer is full."""
    cursor = work.cursor
    shift = np.uint64(cursor[SHIFT])
    if cursor[EMITTING] == 0:
        if not arrive(core, graph, batch, out, i, shift):
            return True
        outlive(core, graph, graph, shift)
        if not let_in(graph, core, batch.stream[i]):
            count(core, batch.stream[i], SHED, 1)
            return True
        if core.lanes[batch.stream[i]].last > 0:
            push_out(core, graph, sample, batch.stream[i], cursor)
        pin(core, batch.hash[i], shift)
        bind(graph.net, np.int64(batch.stream[i]), batch.hashes[i], 0)
        announced(graph, core, batch, i)
        _measure(core, graph, np.int64(batch.stream[i]), shift)
        cursor[LOOKED] = 0
        cursor[BEFORE] = core.numbers[RESULTS]
        _begin(core, graph, batch, work, i, shift)
    if cursor[DEPTH] != NONE:
        if not _emit(core, graph, batch, work, out, i, shift):
            cursor[EMITTING] = 1
            return False
        cursor[EMITTING] = 0
    worked(graph, core, batch.stream[i], work_done(core, cursor))
    settle(core, graph, batch, i, core.numbers[PINNED], np.int64(NONE), shift)
    return True


@kernel
def _look_ahead(core, graph, batch, i, shift):  # type: ignore[no-untyped-def]
    """Ask for the memory in which the next tuples will look others up, and be entered.

    What is asked for leads to what is asked for four tuples later: the directory to a key, the key
    to a row.
    """
    if i + AHEAD < batch.time.size:
        for stage in range(3):
            _ask_for_partners(core, graph, batch, i + AHEAD - 4 * stage, stage, shift)
    first = core.lanes[batch.stream[i]].first
    if first != NONE and graph.net.indexes[batch.stream[i]] > 1:
        ask_for_leaving(core, graph, first)


@kernel
def _ask_for_partners(core, graph, batch, i, stage, shift):  # type: ignore[no-untyped-def]
    """Ask for what a tuple will look up at once, and for its own places in indexes."""
    net = graph.net
    stream = np.int64(batch.stream[i])
    deepest = net.settings.streams - 1
    for later in range(deepest):
        level = net.levels[stream * deepest + later]
        if level.after == NONE:
            ask_for(core, graph, batch, i, level.stream, level.index, level.mask, stage, shift)
    wide = net.settings.wide
    for index in range(1, net.indexes[stream]):
        mask = net.masks[stream * wide + index]
        ask_for(core, graph, batch, i, stream, index, mask, stage, shift)


@kernel
def _measure(core, graph, stream, shift):  # type: ignore[no-untyped-def]
    """Count now and then how many rows of the other streams match; see `find_orders`."""
    arrival = core.numbers[ARRIVALS] - 1
    if arrival % OFTEN == 0 or arrival < EARLY:
        _count_matches(core, graph, stream, shift)
    if arrival % SELDOM == 0 or arrival in (16, 64, EARLY):
        find_orders(graph.net)


@aside
def _count_matches(core, graph, stream, shift):  # type: ignore[no-untyped-def]
    """Count the rows of each stream that share an attribute with a newcomer, if not too many."""
    net = graph.net
    streams = net.settings.streams
    wide = net.settings.wide
    for other in range(streams):
        needed = net.attributes[other] & net.attributes[stream]
        if other == stream or needed == np.uint64(0):
            continue
        index = 0
        while net.masks[other * wide + index] & ~needed != np.uint64(0):
            index += 1
        mask = net.masks[other * wide + index]
        head = look_up(core, graph, other, index, mask, shift)
        row, count = head, 0
        while row != NONE and count < MOST_COUNTED:
            if fits_row(graph, row, other, needed):
                count += 1
            row = next_older(core, graph, index, row)
            if row == head:
                break
        place = stream * streams + other
        net.fanout[place] += (count - net.fanout[place]) * WEIGHT


@kernel
def _begin(core, graph, batch, work, i, shift):  # type: ignore[no-untyped-def]
    """Begin the search for partners of a newcomer, whose attributes are known."""
    work.cursor[MIXED] = 0
    work.cursor[DEPTH] = NONE
    if _look_up_after(core, graph, batch, work, i, np.int64(NONE), shift):
        work.cursor[DEPTH] = 0
        work.groups[0].choice = work.groups[0].start


@kernel
def _look_up_after(core, graph, batch, work, i, depth, shift):  # type: ignore[no-untyped-def]
    """Look up the streams that the row at a level makes possible; False if one has no partner."""
    net = graph.net
    deepest = net.settings.streams - 1
    base = batch.stream[i] * deepest
    for later in range(depth + 1, deepest):
        level = net.levels[base + later]
        if level.after == depth:
            row = look_up(core, graph, level.stream, level.index, level.mask, shift)
            if row == NONE:
                return False
            if batch.time[i] - core.rows[row].time > core.lanes[level.stream].window:
                return False  # the newest, and too old
            work.groups[later].start = row
    return True


@kernel
def _next_row(core, graph, batch, work, i, depth):  # type: ignore[no-untyped-def]
    """The next row at a level that fits the newcomer and the rows above, or NONE."""
    group = work.groups[depth]
    row = group.choice
    if row == NONE:
        return row
    level = graph.net.levels[batch.stream[i] * (graph.net.settings.streams - 1) + depth]
    time = batch.time[i]
    stream = np.int64(batch.stream[i])
    reach = core.lanes[stream].window
    window = farthest(graph, core, stream, level.stream)
    head = group.start
    while row != NONE:
        ahead = core.rows[row].time - time
        if -ahead > window:  # all that follow are older still
            break
        work.cursor[LOOKED] += 1
        following = next_older(core, graph, level.index, row)
        if following == head:
            following = np.int64(NONE)
        if (
            ahead <= reach
            and core.rows[row].stream == level.stream
            and wanted(graph, core, stream, level.stream, -ahead, row)
            and fits_row(graph, row, level.stream, level.compared)
        ):
            if ahead > 0:
                work.cursor[MIXED] = 1
            work.groups[depth].choice = following
            return row
        row = following
    work.groups[depth].choice = NONE
    return np.int64(NONE)


@kernel
def _emit(core, graph, batch, work, out, i, shift):  # type: ignore[no-untyped-def]
    """Make the results of a tuple, one after the other; False if out of room."""
    width = core.settings.lanes
    last = width - 2
    depth = work.cursor[DEPTH]
    while depth >= 0:
        if out.filled[MADE] >= out.results.size:
            work.cursor[DEPTH] = depth
            return False
        row = _next_row(core, graph, batch, work, i, depth)
        if row == NONE:
            depth -= 1
            continue
        work.groups[depth].row = row
        if depth == last:
            _make(core, graph, batch, work, out, i, width)
            continue
        bind_row(graph, core, row)
        if _look_up_after(core, graph, batch, work, i, depth, shift):
            depth += 1
            work.groups[depth].choice = work.groups[depth].start
    work.cursor[DEPTH] = NONE
    return True


@kernel
def _make(core, graph, batch, work, out, i, width):  # type: ignore[no-untyped-def]
    """Make a result of the rows chosen, if they are within their windows."""
    groups = width - 1
    latest = batch.time[i]
    for group in range(groups):
        latest = max(latest, core.rows[work.groups[group].row].time)
    if not together(core, batch, work, i, groups, latest):
        return
    base, made = out.filled[MEMBERS], out.filled[MADE]
    out.payload[base + batch.stream[i]] = batch.payload[i]
    for group in range(groups):
        row = work.groups[group].row
        out.payload[base + core.rows[row].stream] = core.rows[row].payload
    out.filled[MEMBERS] = base + width
    out.results[made].end = base + width
    out.results[made].time = latest
    out.filled[MADE] = made + 1
    core.numbers[RESULTS] += 1
    key = core.numbers[PINNED]
    produced(graph, core, key, batch.stream[i], np.uint64(0), work.groups, groups)


@loop
def weave_again(core, graph, batch, arrivals, marks, anew):  # type: ignore[no-untyped-def]
    """Store rows again after a restart, in the order of their arrival.

    Args:
        core: the state of the join.
        graph: the policy, and the indexes.
        batch: the rows.
        arrivals: their arrival numbers.
        marks: what the policy said of them.
        anew: whether the policy is another, and takes them as newcomers.
    """
    shift = home_shift(core.table)
    for i in range(batch.time.size):
        bind(graph.net, np.int64(batch.stream[i]), batch.hashes[i], 0)
        row = store_again(core, batch, i, arrivals[i], shift)
        if anew:
            announced(graph, core, batch, i)
            worth = batch.worth[i] if batch.worth.size > 0 else 0
            inserted(graph, core, row, np.uint64(0), worth)
        else:
            restored(graph, core, row, marks[i])
