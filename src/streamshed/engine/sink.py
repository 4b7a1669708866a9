"""The sink: where the members of results go.

It is bounded: the loop is left when it is full, and goes on after it was emptied. Where results are
only counted it has no room at all, and takes nothing; that is no type of its own, for which all
would be compiled once more. One that takes all partners of a row at once is: `factorised.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import GROUPS, MIXED
from streamshed.engine.match.hooks import write_fact
from streamshed.kernels.compiling import hook, kernel
from streamshed.kernels.core import ARRIVALS, NONE, RESULTS, TOTAL_IMPORTANCE
from streamshed.kernels.table import sweep_of

MADE, MEMBERS, LATECOMERS = range(3)
FILLED = 3

RESULT = np.dtype(
    [
        ("time", np.int64),
        ("end", np.int64),
        ("update", np.int64),  # these two only where a column names the streams
        ("extends", np.int64),  # NONE if it extends nothing
    ],
    align=True,
)
MEMBER = np.dtype(
    [
        ("time", np.int64),
        ("arrival", np.int64),
        ("importance", np.float64),  # 1 where rows are not weighted
        ("stream", np.int32),
    ],
    align=True,
)
"""What is known of a member, where members of other keys may have to be dropped."""
NO_MEMBERS: npt.NDArray[Any] = np.empty(0, MEMBER)
LATE_ROW = np.dtype([("payload", np.int64), ("stream", np.int32)], align=True)


class Buffer(NamedTuple):
    """The bounded output buffer.

    A result of named streams takes one place for each stream (NONE where it has no member), and one
    more for the fact where they are joined through a relation; one of streams named by a column
    takes as many as it has members.
    """

    payload: npt.NDArray[np.int64]
    results: npt.NDArray[Any]  # the time of each, and where its members end
    late: npt.NDArray[Any]
    filled: npt.NDArray[np.int64]
    importance: npt.NDArray[np.float64]  # by result; empty where rows are not weighted
    members: npt.NDArray[Any]  # by place; empty where no member may have to be dropped


def allocate_buffer(
    results: int, width: int, rows: int, weighted: bool, members: bool = False
) -> Buffer:
    """A buffer for so many results of a width, and the latecomers of so many rows.

    Without room for results they are only counted.

    Args:
        results: how many it holds.
        width: the places of a result.
        rows: how many may be late.
        weighted: whether results have an importance.
        members: whether it is noted what is known of members.
    """
    return Buffer(
        np.empty(results * width, np.int64),
        np.empty(results, RESULT),
        np.empty(rows, LATE_ROW),
        np.zeros(FILLED, np.int64),
        np.empty(results if weighted else 0, np.float64),
        np.empty(results * width if members else 0, MEMBER),
    )


@kernel
def is_full(out, width):  # type: ignore[no-untyped-def]
    """Whether there is no room for another result of a width."""
    if out.results.size == 0:
        return False
    return out.filled[MADE] >= out.results.size or out.filled[MEMBERS] + width > out.payload.size


EACH, ALL, NO_ROOM = range(3)
"""What becomes of a row's results: they are made one by one, all were made, or there is no room."""


@hook
def emit_product(out, core, matcher, policy, throttle, batch, work, i, shift):  # type: ignore[no-untyped-def]
    """Make all results of the row at hand at once, if the sink can; see `EACH`."""
    return EACH


@hook
def write(out, core, matcher, batch, work, i, latest, importance):  # type: ignore[no-untyped-def]
    """Take a result: the row at hand, and the rows chosen as its partners."""
    if out.results.size == 0:
        return
    groups = work.cursor[GROUPS]
    base, made = out.filled[MEMBERS], out.filled[MADE]
    end = base + result_width(core, groups)
    if core.settings.by:
        out.payload[base] = batch.payload[i]
        for group in range(groups):
            out.payload[base + 1 + group] = core.rows[work.groups[group].row].payload
        out.results[made].update = core.numbers[ARRIVALS] - 1
        out.results[made].extends = extended(core, work, groups)
    else:
        if not core.settings.complete:
            out.payload[base:end] = NONE
        out.payload[base + batch.stream[i]] = batch.payload[i]
        for group in range(groups):
            row = work.groups[group].row
            out.payload[base + core.rows[row].stream] = core.rows[row].payload
        write_fact(matcher, work, out, base + core.settings.lanes)
    if out.members.size > 0:
        _write_members(out, core, batch, work, i, base)
    out.filled[MEMBERS] = end
    out.results[made].end = end
    out.results[made].time = latest
    if out.importance.size > 0:
        out.importance[made] = importance
    out.filled[MADE] = made + 1


@kernel
def _write_members(out, core, batch, work, i, base):  # type: ignore[no-untyped-def]
    """Note what is known of the members of a result, each in its place."""
    by = core.settings.by
    member = out.members[base + (0 if by else batch.stream[i])]
    member.time = batch.time[i]
    member.arrival = core.numbers[ARRIVALS] - 1
    member.importance = batch.importance[i] if batch.importance.size > 0 else 1.0
    member.stream = batch.stream[i]
    for group in range(work.cursor[GROUPS]):
        row = work.groups[group].row
        stored = core.rows[row]
        member = out.members[base + (1 + group if by else stored.stream)]
        member.time = stored.time
        member.arrival = stored.arrival
        member.importance = core.importance[row] if core.importance.size > 0 else 1.0
        member.stream = stored.stream


@kernel
def result_width(core, groups):  # type: ignore[no-untyped-def]
    """The places that a result takes in the buffer."""
    return groups + 1 if core.settings.by else core.settings.width


@kernel
def count_result(core, importance):  # type: ignore[no-untyped-def]
    """Count a result, and how important it is."""
    core.numbers[RESULTS] += 1
    if core.importance.size > 0:
        core.totals[TOTAL_IMPORTANCE] += importance


@kernel
def write_late(out, batch, i):  # type: ignore[no-untyped-def]
    """Take a row that came too late."""
    place = out.filled[LATECOMERS]
    out.late[place].payload = batch.payload[i]
    out.late[place].stream = batch.stream[i]
    out.filled[LATECOMERS] = place + 1


@kernel
def latest_time(core, batch, work, i):  # type: ignore[no-untyped-def]
    """The time of the latest member: that of the row at hand, unless a partner is newer."""
    latest = batch.time[i]
    if work.cursor[MIXED] != 0:
        for group in range(work.cursor[GROUPS]):
            latest = max(latest, core.rows[work.groups[group].row].time)
    return latest


@kernel
def importance_of(core, batch, work, i):  # type: ignore[no-untyped-def]
    """The importance of a result: the smallest of its members', 1 where rows are not weighted."""
    if core.importance.size == 0:
        return 1.0
    importance = batch.importance[i]
    for group in range(work.cursor[GROUPS]):
        importance = min(importance, core.importance[work.groups[group].row])
    return importance


@kernel
def within_windows(core, batch, work, i, latest):  # type: ignore[no-untyped-def]
    """Whether the members are all within their windows at the time of the latest.

    Each is so together with the row at hand; only where some are newer than it can they be too far
    from each other. (A partial join asks for no more than the former, as in definition 2.)
    """
    if work.cursor[MIXED] == 0 or not core.settings.complete:
        return True
    if latest - batch.time[i] > core.lanes[batch.stream[i]].window:
        return False
    for group in range(work.cursor[GROUPS]):
        row = work.groups[group].row
        if latest - core.rows[row].time > core.lanes[core.rows[row].stream].window:
            return False
    return True


@kernel
def extended(core, work, groups):  # type: ignore[no-untyped-def]
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
