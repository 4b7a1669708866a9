"""How much more, or less, often keys come than their arrival rates say.

The rates are those of a Hawkes process whose kernels fade as slowly as windows do. It cannot say
that a key which was silent for a while, as a session that has ended, is silent for good; nor that
nothing comes after a certain stream. So it is counted how many arrivals were expected in each
stream, and how many came: by the time since the key last came, and by the streams that it came to.
What came for each that was expected is the factor by which rates are multiplied.

A state with these counts has the arrays `by_gap` and `by_set`, of (arrivals, expected, factor), and
`fade`: what is left of fast and slow counts, for each stream and age, with the factors by gap.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.age_buckets import AGES, CELLS, start_of, width
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.core import NONE
from streamshed.kernels.intrinsics import bit_length
from streamshed.kernels.key_states import MOST_NAMED, named, state_count, states_of, true_state

FAST, SLOW = 0.3, 3.0
"""Windows in which the counts of arrivals fade to 1/e."""
COUNTS = 4
"""Of a key in a lane: fast and slow counts, and what of each is to come in a window."""
GAPS = 13
"""Gaps are told apart by doublings of the cells of a window; those within a cell are the first."""
AHEAD = 0.03
"""Windows over which a rate is averaged: who comes right now need not come for long."""
TRUST = 0.7
"""The power of factors by gap: keys are silent in more than one way."""
FEW_BY_GAP, FEW_BY_SET = 0.5, 8.0
"""Arrivals that outweigh the factor 1."""
CAME, EXPECTED, FACTOR = range(3)


def groups_of(lanes: int) -> int:
    """The number of streams that are told apart, for layouts."""
    return lanes if 1 < lanes <= MOST_NAMED else 1


def gap_entries(lanes: int) -> int:
    """The size of `by_gap`."""
    return groups_of(lanes) * GAPS * 3


def set_entries(lanes: int) -> int:
    """The size of `by_set`."""
    return groups_of(lanes) * states_of(lanes) * 3 if lanes > 1 else 3


@kernel
def group_of(core, lane):  # type: ignore[no-untyped-def]
    """The group that a lane is counted in: its own, or one for all."""
    return lane if named(core) else 0


@kernel
def _group_count(core):  # type: ignore[no-untyped-def]
    return core.settings.lanes if named(core) else np.int64(1)


@kernel
def _gap_of(policy, gap):  # type: ignore[no-untyped-def]
    """The bin of a gap, which is given in windows."""
    cell = np.int64(gap * policy.horizon[0] * policy.horizon[1])
    return bit_length(np.uint64(min(max(cell, np.int64(0)), np.int64(CELLS - 1))))


@kernel
def _begin_of(place):  # type: ignore[no-untyped-def]
    """The gap at which a bin begins, in windows."""
    return 0.0 if place == 0 else np.float64(1 << (place - 1)) / CELLS


@kernel
def factor_of_set(policy, core, note, lane):  # type: ignore[no-untyped-def]
    """How much more often keys come to a lane that came to the lanes that this one came to."""
    states = state_count(core)
    at = (group_of(core, lane) * states + true_state(core, note)) * 3
    return policy.by_set[at + FACTOR]


@cold_kernel
def learn_recurrence(policy, core, note, counts, base, lane, gap):  # type: ignore[no-untyped-def]
    """Learn from the time since a key last came; lane: where it has come now, or NONE."""
    lanes, last = core.settings.lanes, _gap_of(policy, gap)
    for group in range(_group_count(core)):
        fast, slow = 0.0, 0.0
        for of in range(group if named(core) else 0, group + 1 if named(core) else lanes):
            fast += counts[COUNTS * (base + of) + 2]
            slow += counts[COUNTS * (base + of) + 3]
        fasts, slows, expected = 1.0, 1.0, 0.0
        for place in range(last + 1):
            ends = gap if place == last else _begin_of(place + 1)
            fast_then, slow_then = np.exp(-ends / FAST), np.exp(-ends / SLOW)
            each = fast * FAST * (fasts - fast_then) + slow * SLOW * (slows - slow_then)
            fasts, slows = fast_then, slow_then
            at = (group * GAPS + place) * 3
            policy.by_gap[at + EXPECTED] += each
            expected += each * policy.by_gap[at + FACTOR]
        at = (group * state_count(core) + true_state(core, note)) * 3
        policy.by_set[at + EXPECTED] += expected
    if lane != NONE:
        group = group_of(core, lane)
        policy.by_gap[(group * GAPS + last) * 3 + CAME] += 1.0
        policy.by_set[(group * state_count(core) + true_state(core, note)) * 3 + CAME] += 1.0


@cold_kernel
def find_recurrence(policy, core):  # type: ignore[no-untyped-def]
    """Make the factors anew from what was counted, and average what is left of counts."""
    if core.settings.lanes == 1:
        return
    for at in range(0, policy.by_gap.size, 3):
        came, expected = policy.by_gap[at + CAME], policy.by_gap[at + EXPECTED]
        policy.by_gap[at + FACTOR] = ((came + FEW_BY_GAP) / (expected + FEW_BY_GAP)) ** TRUST
    for at in range(0, policy.by_set.size, 3):
        came, expected = policy.by_set[at + CAME], policy.by_set[at + EXPECTED]
        policy.by_set[at + FACTOR] = (came + FEW_BY_SET) / (expected + FEW_BY_SET)
    for group in range(_group_count(core)):
        for age in range(AGES):
            _average(policy, group, age)


@kernel
def _average(policy, group, age):  # type: ignore[no-untyped-def]
    """What is left of counts, on average over the time ahead, after a silence."""
    begin = start_of(age) + 0.5 * width(age)
    end = begin + AHEAD
    fast, slow = 0.0, 0.0
    for place in range(GAPS):
        low = max(begin, _begin_of(place))
        high = end if place == GAPS - 1 else min(end, _begin_of(place + 1))
        if low < high:
            factor = policy.by_gap[(group * GAPS + place) * 3 + FACTOR]
            fast += factor * FAST * (np.exp(-low / FAST) - np.exp(-high / FAST))
            slow += factor * SLOW * (np.exp(-low / SLOW) - np.exp(-high / SLOW))
    policy.fade[2 * AGES * group + age] = fast / AHEAD
    policy.fade[2 * AGES * group + AGES + age] = slow / AHEAD


@cold_kernel
def halve_recurrence(policy):  # type: ignore[no-untyped-def]
    """Let what was counted count half."""
    for at in range(0, policy.by_gap.size, 3):
        policy.by_gap[at + CAME] *= 0.5
        policy.by_gap[at + EXPECTED] *= 0.5
    for at in range(0, policy.by_set.size, 3):
        policy.by_set[at + CAME] *= 0.5
        policy.by_set[at + EXPECTED] *= 0.5
