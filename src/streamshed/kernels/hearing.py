"""What is heard of the keys that are followed in full, and what is learned of it.

A state that hears has the arrays of `hearing_layout`, and those of prospects and rates.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.ages import find_horizon, moment, now
from streamshed.kernels.compiling import aside, kernel
from streamshed.kernels.core import BOUNDLESS, Field
from streamshed.kernels.machine import trailing_zeros
from streamshed.kernels.notes import oldest_in
from streamshed.kernels.prospects import (
    enters,
    forget,
    leaves,
    look_forward,
    moves,
    prospect_layout,
    returns,
    state_of,
)
from streamshed.kernels.returning import (
    ONCE,
    count_arrival,
    fade,
    regress,
    returning_layout,
    watch,
    witness,
)
from streamshed.kernels.table import key_count, key_lanes, lane_of

FIRST_LOOKS, LOOKS = 64, 4096
"""Followed tuples after which the prospects are made anew: at least, and at most."""
LESSON = 500
"""Followed keys that must have left a state before what was learned counts half."""

HEARD = np.dtype(
    [
        ("first", np.int64),  # when the oldest of its rows came
        ("begin", np.int64),  # since when the key is known
        ("last", np.int64),  # when it last came
        ("watched", np.int64),  # until when it was watched, if it returns
        ("lost", np.uint64),  # the lanes that held it and do so no longer
        ("returns", np.int64),  # 1 if it came to a lane that held it or had lost it
    ],
    align=True,
)
GONE = 2
"""Stands in `returns` when a key is followed no longer."""

TUPLES, NEXT_LOOK, SINCE, LEFT = range(4)
LESSONS = 4

_ONE = np.uint64(1)
_NONE = np.uint64(0)


def hearing_layout(lanes: int) -> dict[str, Field]:
    """The arrays of a state that hears."""
    return {
        "heard": Field("sample key", HEARD, kept=True),
        "heard_counts": Field("sample key", np.int32, times=lanes, kept=True),
        "lessons": Field("once", np.int64, times=LESSONS, kept=True),
        **prospect_layout(lanes),
        **returning_layout(lanes),
    }


@kernel
def _watch(policy, sample, key, time):  # type: ignore[no-untyped-def]
    """Account for the time until now in which a key that returns was watched."""
    note, horizon = policy.heard[key], policy.horizon[0]
    lanes = sample.settings.lanes
    begin, end = (note.watched - note.last) / horizon, (time - note.last) / horizon
    known = (note.last - note.begin) / horizon
    watch(policy, policy.heard_counts, key * lanes, lanes, known, begin, end)
    policy.heard[key].watched = time


@kernel
def _meet(policy, sample, row):  # type: ignore[no-untyped-def]
    """A key that is followed from now on."""
    key, lanes = np.int64(sample.rows[row].key), sample.settings.lanes
    time, lane = now(sample), lane_of(sample, sample.rows[row].stream)
    heard = policy.heard
    heard[key].first = moment(sample, row)
    heard[key].begin = time
    heard[key].last = time
    heard[key].watched = time
    heard[key].lost = _NONE
    heard[key].returns = 0
    policy.heard_counts[key * lanes : (key + 1) * lanes] = 0
    policy.heard_counts[key * lanes + lane] = ONCE
    state = state_of(sample, key_lanes(sample, key), 1)
    enters(policy, sample, 0, state, time - heard[key].first)


@kernel
def _hear_again(policy, sample, row, pattern, results):  # type: ignore[no-untyped-def]
    """A key that is followed has come again, or come to a further stream."""
    key, lanes = np.int64(sample.rows[row].key), sample.settings.lanes
    time, lane = now(sample), lane_of(sample, sample.rows[row].stream)
    heard, base = policy.heard, key * lanes
    note = heard[key]
    gap = (time - note.last) / policy.horizon[0]
    known = (note.last - note.begin) / policy.horizon[0]
    bit = _ONE << np.uint64(lane)
    alone = sample.rows[row].older == row
    if note.returns == 1:
        _watch(policy, sample, key, time)
        witness(policy, policy.heard_counts, base, lanes, lane, known, gap)
    else:
        kind = np.int64(note.lost != _NONE)
        before = pattern & ~bit if alone else pattern
        state = state_of(sample, before, key_count(sample, key) - 1)
        age = time - note.first
        leaves(policy, sample, kind, state, age)
        policy.lessons[LEFT] += 1
        if lanes > 1 and (not alone or note.lost & bit != _NONE):
            returns(policy, sample, kind, state, age, results)
            heard[key].returns = 1
            heard[key].watched = time
        else:
            moves(policy, sample, kind, state, age, lane, results)
            heard[key].first = min(note.first, moment(sample, row))
            state = state_of(sample, pattern, key_count(sample, key))
            enters(policy, sample, kind, state, time - heard[key].first)
    count_arrival(policy.heard_counts, base, lanes, lane, gap)
    heard[key].last = time


@kernel
def hear(policy, sample, row, pattern, results):  # type: ignore[no-untyped-def]
    """A tuple of a followed key has come."""
    find_horizon(policy, sample)
    if key_count(sample, sample.rows[row].key) == 1:
        _meet(policy, sample, row)
    else:
        _hear_again(policy, sample, row, pattern, results)
    policy.lessons[TUPLES] += 1
    if policy.lessons[TUPLES] >= policy.lessons[NEXT_LOOK]:
        _learn(policy, sample)


@aside
def _learn(policy, sample):  # type: ignore[no-untyped-def]
    """Make of what was heard what is expected; and forget, now and then."""
    lanes, lessons = sample.settings.lanes, policy.lessons
    look_forward(policy, sample)
    regress(policy, lanes)
    if lessons[NEXT_LOOK] == 0:
        lessons[SINCE] = now(sample)
    elif now(sample) - lessons[SINCE] >= policy.horizon[0] and lessons[LEFT] >= LESSON:
        forget(policy, sample)
        fade(policy, lanes)
        lessons[SINCE] = now(sample)
        lessons[LEFT] = 0
    lessons[NEXT_LOOK] = lessons[TUPLES] + max(FIRST_LOOKS, min(lessons[TUPLES] // 8, LOOKS))


@kernel
def lose_sight(policy, sample, row, expired):  # type: ignore[no-untyped-def]
    """A row has left the sample: its time was over, or its key is followed no longer."""
    key, lane = np.int64(sample.rows[row].key), lane_of(sample, sample.rows[row].stream)
    heard, time = policy.heard, now(sample)
    if heard[key].returns == GONE:
        return
    lanes, count = key_lanes(sample, key), key_count(sample, key)
    bit = _ONE << np.uint64(lane)
    kind = np.int64(heard[key].lost != _NONE)
    if heard[key].returns == 1:
        _watch(policy, sample, key, time)
    else:
        state = state_of(sample, lanes | bit, count + 1)
        leaves(policy, sample, kind, state, time - heard[key].first)
        policy.lessons[LEFT] += 1
    if not expired:
        heard[key].returns = GONE
    elif count > 0:
        if lanes & bit == _NONE:
            heard[key].lost |= bit
        if heard[key].returns == 0:
            heard[key].first = _oldest_followed(sample, key)
            kind = np.int64(heard[key].lost != _NONE)
            state = state_of(sample, lanes, count)
            enters(policy, sample, kind, state, time - heard[key].first)


@kernel
def _oldest_followed(sample, key):  # type: ignore[no-untyped-def]
    lanes = key_lanes(sample, key)
    found = np.int64(BOUNDLESS)
    while lanes != _NONE:
        lane = np.int64(trailing_zeros(lanes))
        lanes &= lanes - _ONE
        found = min(found, moment(sample, oldest_in(sample, key, lane)))
    return found


@kernel
def hear_of(policy, sample, row):  # type: ignore[no-untyped-def]
    """A row is in the sample that nothing was heard of: the policy has just begun."""
    find_horizon(policy, sample)
    key = sample.rows[row].key
    if key_count(sample, key) == 1:
        _meet(policy, sample, row)
    else:
        _hear_again(policy, sample, row, key_lanes(sample, key), 0.0)
