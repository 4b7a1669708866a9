"""Probe and emit: the partners of a tuple, and the results that they make together.

Partners are collected in groups, one for each stream; then one choice from every group after the
other is a result. The output buffer is bounded: when it is full the choices stay as they are, and
the next call goes on from there.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import ARRIVALS, NONE, RESULTS
from streamshed.kernels.hooks import produced
from streamshed.kernels.machine import ones
from streamshed.kernels.pacing import farthest, met, wanted
from streamshed.kernels.table import ONE, key_head, key_lanes, lane_of, sweep_of
from streamshed.operators.buffers import GROUPS, LOOKED, MADE, MEMBERS, MIXED


@kernel
def gather(core, parts, batch, work, i, key):  # type: ignore[no-untyped-def]
    """Collect the partners of a tuple by stream; no groups if it completes nothing.

    Args:
        core: the state of the join.
        parts: says what of the windows is gone through.
        batch: the tuples.
        work: room for the partners.
        i: the tuple.
        key: its key.
    """
    settings = core.settings
    work.cursor[GROUPS] = 0
    work.cursor[MIXED] = 0
    work.cursor[LOOKED] = 0
    if settings.by:
        _gather_by_stream(core, parts, batch, work, i, key)
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
        filled = collect(core, parts, batch, work, i, key, lane, filled)
        met(parts, core, stream, lane, filled - work.groups[groups].start)
        if filled > work.groups[groups].start:
            work.groups[groups].choice = work.groups[groups].start
            groups += 1
        elif settings.complete:
            return
    work.groups[groups].start = filled
    if groups + 1 >= settings.at_least:
        work.cursor[GROUPS] = groups


@kernel
def collect(core, parts, batch, work, i, key, lane, filled):  # type: ignore[no-untyped-def]
    """Append the rows below an entry that are within their windows together with a tuple."""
    rows = core.rows
    time = batch.time[i]
    stream = batch.stream[i]
    own = lane_of(core, stream)
    reach = core.lanes[own].window
    window = farthest(parts, core, own, lane)
    head = key_head(core, key, lane)
    row = head
    looked = 0
    while True:
        ahead = rows[row].time - time
        if -ahead > window:  # all that follow are older still
            break
        looked += 1
        fits = ahead <= reach and rows[row].stream != stream
        if fits and wanted(parts, core, own, lane, -ahead, row):
            work.partners[filled] = row
            filled += 1
            if ahead > 0:
                work.cursor[MIXED] = 1
        row = np.int64(rows[row].older)
        if row == head:
            break
    work.cursor[LOOKED] += looked
    return filled


@kernel
def _gather_by_stream(core, parts, batch, work, i, key):  # type: ignore[no-untyped-def]
    """The same where one list holds the rows of all streams: sort them into groups."""
    if key_head(core, key, 0) == NONE:
        return
    rows = core.rows
    if core.settings.sweeps == 1:
        filled = collect(core, parts, batch, work, i, key, 0, 0)
    else:
        filled = _collect_in_two_steps(core, batch, work, i, key)
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
    for group in range(groups):
        work.groups[group].choice = work.groups[group].start
    if groups + 1 >= core.settings.at_least:
        work.cursor[GROUPS] = groups


@kernel
def _collect_in_two_steps(core, batch, work, i, key):  # type: ignore[no-untyped-def]
    """Collect the rows of a key where windows differ by stream (SNJoin, section 2.4).

    Up to the shortest window all rows of other streams are partners; from there to the longest each
    is asked for its own.
    """
    rows, lanes = core.rows, core.lanes
    time = batch.time[i]
    stream = batch.stream[i]
    reach = lanes[sweep_of(core, stream)].window
    filled = 0
    head = key_head(core, key, 0)
    row = head
    while True:
        behind = time - rows[row].time
        if behind > core.settings.shortest:
            break
        if -behind <= reach and rows[row].stream != stream:
            work.partners[filled] = row
            filled += 1
        row = np.int64(rows[row].older)
        if row == head:
            return filled
    while True:
        behind = time - rows[row].time
        if behind > lanes[0].window:
            break
        if behind <= lanes[sweep_of(core, rows[row].stream)].window and rows[row].stream != stream:
            work.partners[filled] = row
            filled += 1
        row = np.int64(rows[row].older)
        if row == head:
            break
    return filled


@kernel
def choices(core, batch, work, i):  # type: ignore[no-untyped-def]
    """The number of results that a tuple completes with the partners gathered, as a float.

    Nothing is enumerated: a choice of one partner from each group is a result, and where the
    members must also fit each other, those of each latest member are counted together.
    """
    groups = work.cursor[GROUPS]
    if groups == 0:
        return 0.0
    time = batch.time[i]
    if work.cursor[MIXED] == 0 or not core.settings.complete:
        number = 1.0
        for group in range(groups):
            number *= work.groups[group + 1].start - work.groups[group].start
        return number
    number = _led_by(core, work, groups, NONE, time)
    for group in range(groups):
        for j in range(work.groups[group].start, work.groups[group + 1].start):
            latest = core.rows[work.partners[j]].time
            if latest <= time:  # as are all that follow, in order of age
                break
            number += _led_by(core, work, groups, group, latest)
    return number


@kernel
def _led_by(core, work, groups, leader, latest):  # type: ignore[no-untyped-def]
    """The choices whose latest member is a given one of a group (NONE: the newcomer).

    Of members of equal time the one of the last group is called the latest. The newcomer is within
    its window of each of its partners already.
    """
    number = 1.0
    for group in range(groups):
        if group == leader:
            continue
        fitting = 0
        for j in range(work.groups[group].start, work.groups[group + 1].start):
            row = work.partners[j]
            behind = latest - core.rows[row].time
            if behind > core.lanes[core.rows[row].stream].window:
                break
            if behind > 0 or (behind == 0 and (leader == NONE or group < leader)):
                fitting += 1
        number *= fitting
    return number


@kernel
def emit(core, policy, batch, work, out, i, key):  # type: ignore[no-untyped-def]
    """Make the results of a tuple, one choice of partners after the other; False if out of room."""
    settings = core.settings
    groups = work.cursor[GROUPS]
    stream = batch.stream[i]
    width = groups + 1 if settings.by else settings.lanes
    pattern = key_lanes(core, key) | (ONE << np.uint64(lane_of(core, stream)))
    while True:
        if out.filled[MADE] >= out.results.size or out.filled[MEMBERS] + width > out.payload.size:
            return False
        latest = chosen(core, batch, work, i, groups)
        if together(core, batch, work, i, groups, latest):
            _write(core, batch, work, out, i, groups, latest, width)
            produced(policy, core, key, stream, pattern, work.groups, groups)
            core.numbers[RESULTS] += 1
        if not next_choice(work, groups):
            return True


@kernel
def chosen(core, batch, work, i, groups):  # type: ignore[no-untyped-def]
    """Take the partner chosen in every group; returns the time of the latest member."""
    latest = batch.time[i]
    for group in range(groups):
        row = work.partners[work.groups[group].choice]
        work.groups[group].row = row
        latest = max(latest, core.rows[row].time)
    return latest


@kernel
def next_choice(work, groups):  # type: ignore[no-untyped-def]
    """Go on to the next choice of partners; False if there is none."""
    group = groups - 1
    while group >= 0:
        work.groups[group].choice += 1
        if work.groups[group].choice < work.groups[group + 1].start:
            return True
        work.groups[group].choice = work.groups[group].start
        group -= 1
    return False


@kernel
def together(core, batch, work, i, groups, latest):  # type: ignore[no-untyped-def]
    """Whether the members are all within their windows at the time of the latest.

    Each is so together with the newcomer; only where some are newer than it can they be too far
    from each other. (A partial join asks for no more than the former, as in definition 2.)
    """
    if work.cursor[MIXED] == 0 or not core.settings.complete:
        return True
    if latest - batch.time[i] > core.lanes[batch.stream[i]].window:
        return False
    for group in range(groups):
        row = work.groups[group].row
        if latest - core.rows[row].time > core.lanes[core.rows[row].stream].window:
            return False
    return True


@kernel
def _extended(core, work, groups):  # type: ignore[no-untyped-def]
    """The arrival that made results with all members but the newcomer, or NONE.

    It is that of the youngest of them, if they are enough and the others are all its partners.
    """
    if groups < core.settings.at_least:
        return NONE
    rows = core.rows
    youngest = work.groups[0].row
    for group in range(1, groups):
        if rows[work.groups[group].row].arrival > rows[youngest].arrival:
            youngest = work.groups[group].row
    time = rows[youngest].time
    reach = core.lanes[sweep_of(core, rows[youngest].stream)].window
    for group in range(groups):
        row = work.groups[group].row
        ahead = rows[row].time - time
        if ahead > reach or -ahead > core.lanes[sweep_of(core, rows[row].stream)].window:
            return NONE
    return rows[youngest].arrival


@kernel
def _write(core, batch, work, out, i, groups, latest, width):  # type: ignore[no-untyped-def]
    """Put one result into the output buffer."""
    base = out.filled[MEMBERS]
    if core.settings.by:
        out.payload[base] = batch.payload[i]
        for group in range(groups):
            out.payload[base + 1 + group] = core.rows[work.groups[group].row].payload
        out.results[out.filled[MADE]].update = core.numbers[ARRIVALS] - 1
        out.results[out.filled[MADE]].extends = _extended(core, work, groups)
    else:
        if not core.settings.complete:
            out.payload[base : base + width] = NONE
        out.payload[base + batch.stream[i]] = batch.payload[i]
        for group in range(groups):
            row = work.groups[group].row
            out.payload[base + core.rows[row].stream] = core.rows[row].payload
    out.filled[MEMBERS] = base + width
    out.results[out.filled[MADE]].end = base + width
    out.results[out.filled[MADE]].time = latest
    out.filled[MADE] += 1
