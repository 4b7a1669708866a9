"""The matcher of streams that are joined by a condition between every two members.

A newcomer goes through the windows of the other streams in a join order, low selectivity first. In
each it is compared with the rows there; those that agree with it are its partners. Then partners
are chosen window by window: each must agree with those chosen before.

A comparison is that of one choice so far with one row of the next window that is probed, as in the
paper's nested loops, whether an index spares the machine the look or not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamshed.engine.batch import BEFORE, DEPTH, GROUPS, MIXED, MOST
from streamshed.engine.gate.hooks import updates_selectivity
from streamshed.engine.match import hooks
from streamshed.engine.match.keys import newcomer_importance
from streamshed.engine.match.pairs import (
    AGREED,
    COMPARED,
    TALLIES,
    Selectivity,
    enter,
    in_order,
    seek,
    stage,
    take_out,
)
from streamshed.kernels.bounds import within_bounds
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import NEWEST
from streamshed.kernels.hooks import on_newcomer


class Conditions(NamedTuple):
    """The matcher's state: what rows are compared by, and how many agree."""

    index: Any
    selectivity: Selectivity


@implements(hooks.set_newcomer, Conditions)
@implements(hooks.restore_row, Conditions)
def _set_newcomer(matcher, policy, core, batch, i, shift):  # type: ignore[no-untyped-def]
    stage(matcher.index, batch, i)
    on_newcomer(policy, core, newcomer_importance(batch, i), 0)


@implements(hooks.insert_row, Conditions)
def _insert_row(matcher, policy, core, row):  # type: ignore[no-untyped-def]
    enter(matcher.index, core, row)


@implements(hooks.remove_row, Conditions)
def _remove_row(matcher, policy, core, row):  # type: ignore[no-untyped-def]
    take_out(matcher.index, core, row)


@implements(hooks.work_before, Conditions)
def _work_before(matcher, core):  # type: ignore[no-untyped-def]
    return matcher.selectivity.comparisons[0]


@implements(hooks.work_done, Conditions)
def _work_done(matcher, core, work):  # type: ignore[no-untyped-def]
    return matcher.selectivity.comparisons[0] - work.cursor[BEFORE]


@implements(hooks.begin_probe, Conditions)
def _begin_probe(matcher, throttle, core, batch, work, i, key, shift):  # type: ignore[no-untyped-def]
    """Collect the partners of a row window by window, until one has none.

    What is compared in the windows before counts, even where a later one has no partners.
    """
    selectivity = matcher.selectivity
    steps = core.settings.lanes - 1
    stream = np.int64(batch.stream[i])
    filled = 0
    groups = 0
    for step in range(steps):
        lane = selectivity.orders[stream * steps + step]
        work.groups[step].start = filled
        work.groups[step].choice = filled
        start = filled
        filled = seek(
            matcher.index, core, throttle, selectivity, batch, work, i, key, lane, step, filled
        )
        tally = (stream * core.settings.lanes + lane) * TALLIES
        if updates_selectivity(throttle):
            selectivity.tallies[tally + COMPARED] += selectivity.looked[step]
            selectivity.tallies[tally + AGREED] += filled - start
        if filled == start:
            break
        groups += 1
    work.groups[groups].start = filled
    work.cursor[MOST] = max(work.cursor[MOST], filled)
    selectivity.comparisons[0] += selectivity.looked[0]
    work.cursor[DEPTH] = 0
    work.cursor[GROUPS] = groups
    newer = not core.settings.timed or core.numbers[NEWEST] > batch.time[i]
    work.cursor[MIXED] = 1 if newer else 0
    return groups > 0


@implements(hooks.next_match, Conditions)
def _next_match(matcher, throttle, core, batch, work, i, shift):  # type: ignore[no-untyped-def]
    steps = core.settings.lanes - 1
    groups, depth = work.cursor[GROUPS], work.cursor[DEPTH]
    while depth >= 0:
        choice = work.groups[depth].choice
        if choice == work.groups[depth + 1].start:
            work.groups[depth].choice = work.groups[depth].start
            depth -= 1
            continue
        work.groups[depth].choice = choice + 1
        row = np.int64(work.partners[choice])
        if not _fits(core, matcher.index, work, row, depth):
            continue
        work.groups[depth].row = row
        if depth + 1 < steps:
            matcher.selectivity.comparisons[0] += matcher.selectivity.looked[depth + 1]
        if depth < groups - 1:
            depth += 1
        elif groups == steps:
            work.cursor[DEPTH] = depth
            return True
    return False


@kernel
def _fits(core, index, work, row, depth):  # type: ignore[no-untyped-def]
    """Whether a row agrees with all chosen already, and is within windows and bounds with them.

    All members are within their windows at the time of the latest if every two are.
    """
    rows, lanes = core.rows, core.lanes
    time, lane = rows[row].time, np.int64(rows[row].stream)
    for group in range(depth):
        other = work.groups[group].row
        ahead, other_lane = rows[other].time - time, np.int64(rows[other].stream)
        if ahead > lanes[lane].window or -ahead > lanes[other_lane].window:
            return False
        if not within_bounds(core, lane, time, other_lane, rows[other].time):
            return False
        if not in_order(index, lane, row, other_lane, other):
            return False
    return True
