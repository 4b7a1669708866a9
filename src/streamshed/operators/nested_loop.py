"""The loop of the join on any condition: expire, go through the windows, emit, admit, insert.

A newcomer goes through the windows of the other streams in a join order, low selectivity first. In
each it is compared with the rows there; those that agree with it are its partners. Then partners
are chosen window by window: each must agree with those chosen before. The loop can be left and
entered again in the middle of a tuple's results.

A comparison is that of one choice so far with one row of the next window that is gone through, as
in the paper's nested loops, whether an index spares the machine the look or not.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import ARRIVALS, ARRIVED, NONE, PINNED, RESULTS, SHED
from streamshed.kernels.hooks import inserted, produced, restored
from streamshed.kernels.pacing import (
    completed,
    is_due,
    let_in,
    telling,
    worked,
)
from streamshed.kernels.pairs import (
    AGREED,
    COMPARISONS,
    DEPTH,
    LOOKED,
    TALLIES,
    announced,
    in_order,
    seek,
)
from streamshed.kernels.table import home_shift
from streamshed.operators.buffers import (
    BEFORE,
    EMITTING,
    GROUPS,
    MADE,
    MEMBERS,
    NEXT,
    SAMPLE_SHIFT,
    SHIFT,
)
from streamshed.operators.keyed_loop import (
    DONE,
    DUE,
    SUSPENDED,
    arrive,
    pin,
    push_out,
    settle,
    unpin,
)
from streamshed.operators.storing import count, outlive, store_again


@loop
def run_nested(core, paired, sample, parts, meeting, batch, work, out):  # type: ignore[no-untyped-def]
    """Process a batch, or what is left of it, until it is done or the output buffer is full."""
    cursor = work.cursor
    cursor[SHIFT] = np.int64(home_shift(core.table))
    cursor[SAMPLE_SHIFT] = np.int64(home_shift(sample.core.table))
    shift = np.uint64(cursor[SHIFT])
    for i in range(cursor[NEXT], batch.time.size):
        cursor[NEXT] = i
        if cursor[EMITTING] == 0:
            if is_due(parts, batch, i):
                return DUE
            if not arrive(core, paired, batch, out, i, shift):
                continue
            outlive(core, paired, parts, shift)
            if not let_in(parts, core, batch.stream[i]):
                count(core, batch.stream[i], SHED, 1)
                continue
            if core.lanes[batch.stream[i]].last > 0:
                push_out(core, paired, sample, batch.stream[i], cursor)
            key = pin(core, batch.hash[i], shift)
            announced(paired.index, i)
            cursor[BEFORE] = meeting.numbers[COMPARISONS]
            _gather(core, paired.index, parts, meeting, batch, work, i, key)
            cursor[EMITTING] = 1
        key = core.numbers[PINNED]
        chosen = cursor[GROUPS] == 0
        if not chosen and not _choose(core, paired, parts, meeting, batch, work, out, i, key):
            return SUSPENDED
        cursor[EMITTING] = 0
        worked(parts, core, batch.stream[i], meeting.numbers[COMPARISONS] - cursor[BEFORE])
        settle(core, paired, batch, i, key, np.int64(NONE), shift)
    cursor[NEXT] = 0
    return DONE


@kernel
def _gather(core, index, parts, meeting, batch, work, i, key):  # type: ignore[no-untyped-def]
    """Collect the partners of a tuple window by window, until one has none.

    As many groups are left as there are windows to choose from; a window without partners is no
    group, but what is compared there counts.
    """
    steps = core.settings.lanes - 1
    stream = np.int64(batch.stream[i])
    filled = 0
    groups = 0
    for step in range(steps):
        lane = meeting.orders[stream * steps + step]
        work.groups[step].start = filled
        work.groups[step].choice = filled
        start = filled
        filled = seek(index, core, parts, meeting, batch, work, i, key, lane, step, filled)
        tally = (stream * core.settings.lanes + lane) * TALLIES
        if telling(parts):
            meeting.met[tally + LOOKED] += meeting.looked[step]
            meeting.met[tally + AGREED] += filled - start
        if filled == start:
            break
        groups += 1
    work.groups[groups].start = filled
    meeting.numbers[COMPARISONS] += meeting.looked[0]
    meeting.numbers[DEPTH] = 0
    work.cursor[GROUPS] = groups


@kernel
def _choose(core, paired, parts, meeting, batch, work, out, i, key):  # type: ignore[no-untyped-def]
    """Choose partners one after the other, and emit what is complete; False if out of room."""
    lanes = core.settings.lanes
    groups, steps = work.cursor[GROUPS], lanes - 1
    depth = meeting.numbers[DEPTH]
    while depth >= 0:
        if depth == steps - 1 and _out_of_room(out, lanes):
            meeting.numbers[DEPTH] = depth
            return False
        choice = work.groups[depth].choice
        if choice == work.groups[depth + 1].start:
            work.groups[depth].choice = work.groups[depth].start
            depth -= 1
            continue
        work.groups[depth].choice = choice + 1
        row = np.int64(work.partners[choice])
        if not _fits(core, paired.index, work, row, depth):
            continue
        work.groups[depth].row = row
        if depth + 1 < steps:
            meeting.numbers[COMPARISONS] += meeting.looked[depth + 1]
        if depth < groups - 1:
            depth += 1
        elif groups == steps:
            _write(core, batch, work, out, i, groups)
            stream = batch.stream[i]
            completed(parts, core, stream, batch.time[i], work.groups, groups)
            produced(paired, core, key, stream, np.uint64(0), work.groups, groups)
            core.numbers[RESULTS] += 1
    return True


@kernel
def _out_of_room(out, width):  # type: ignore[no-untyped-def]
    return out.filled[MADE] >= out.results.size or out.filled[MEMBERS] + width > out.payload.size


@kernel
def _fits(core, index, work, row, depth):  # type: ignore[no-untyped-def]
    """Whether a row agrees with all that are chosen already, and is within the windows with them.

    All members are within their windows at the time of the latest if every two are.
    """
    rows, lanes = core.rows, core.lanes
    time, lane = rows[row].time, np.int64(rows[row].stream)
    for group in range(depth):
        other = work.groups[group].row
        ahead, other_lane = rows[other].time - time, np.int64(rows[other].stream)
        if ahead > lanes[lane].window or -ahead > lanes[other_lane].window:
            return False
        if not in_order(index, lane, row, other_lane, other):
            return False
    return True


@kernel
def _write(core, batch, work, out, i, groups):  # type: ignore[no-untyped-def]
    """Put one result into the output buffer."""
    base, made = out.filled[MEMBERS], out.filled[MADE]
    latest = batch.time[i]
    out.payload[base + batch.stream[i]] = batch.payload[i]
    for group in range(groups):
        row = work.groups[group].row
        out.payload[base + core.rows[row].stream] = core.rows[row].payload
        latest = max(latest, core.rows[row].time)
    out.filled[MEMBERS] = base + groups + 1
    out.results[made].end = out.filled[MEMBERS]
    out.results[made].time = latest
    out.filled[MADE] = made + 1


@loop
def enter_again(core, paired, batch, arrivals, marks, anew):  # type: ignore[no-untyped-def]
    """Store rows again after a restart, in the order of their arrival.

    Args:
        core: the state of the join.
        paired: the policy, and the index.
        batch: the rows.
        arrivals: their arrival numbers.
        marks: what the policy said of them.
        anew: whether the policy is another, and takes them as newcomers.
    """
    shift = home_shift(core.table)
    for i in range(batch.time.size):
        announced(paired.index, i)
        row = store_again(core, batch, i, arrivals[i], shift)
        if anew:
            worth = batch.worth[i] if batch.worth.size > 0 else 0
            inserted(paired, core, row, np.uint64(0), worth)
        else:
            restored(paired, core, row, marks[i])


@loop
def withdraw(core, batch, i):  # type: ignore[no-untyped-def]
    """Forget a tuple that has come but cannot be compared: it is as if it had not."""
    count(core, batch.stream[i], ARRIVED, -1)
    core.numbers[ARRIVALS] -= 1
    unpin(core, core.numbers[PINNED], home_shift(core.table))
