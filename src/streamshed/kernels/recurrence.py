"""How much more, or less, often keys come than their arrival rates say.

The rates are those of a Hawkes process whose kernels fade as slowly as windows do. It cannot say
that a key which was silent for a while, as a session that has ended, is silent for good; nor that
nothing comes after a certain stream. So it is counted how many arrivals were expected in each
stream, and how many came: by the time since the key last came, apart for keys that come often and
seldom, as what is a silence for one is none for the other; and by the streams that it came to. What
came for each that was expected is the factor by which rates are multiplied.

Keys may come in bursts. Who came soon after another row of the key counts in part, the sooner the
more, for the silence that the burst ended: rows that are kept through it are there for all of it.

How long a key was silent is learned as time goes on, not only when it comes again: or what is known
of long silences would be that of keys that end them.

A state with these counts has the arrays `by_gap`, of `GAP`, and `by_set`, of (arrivals, expected,
factor), and `fade`: what is left of fast and slow counts, for each stream, pace and age, with the
factors by gap.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.age_buckets import AGES, CELLS, now, start_of, width
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.core import NONE
from streamshed.kernels.intrinsics import bit_length, float_bits
from streamshed.kernels.key_states import MOST_NAMED, named, state_count, states_of, true_state

FAST, SLOW = 0.3, 3.0
"""Windows in which the counts of arrivals fade to 1/e."""
COUNTS = 4
"""Of a key in a lane: fast and slow counts, and what of each is to come in a window."""
GAPS = 15
"""Gaps are told apart by doublings of the cells of a window; those within a cell are the first."""
AHEAD, AHEADS, LONGER = 0.03, 4, 3.0
"""Windows over which a rate is averaged: the shortest, how many, and how much longer each is."""
FADES = 4
"""What is left of fast and slow counts: the most over a time ahead, and over the longest."""
BURST = 0.01
"""Windows that a burst lasts."""
TRUST = 0.7
"""The power of factors by gap: keys are silent in more than one way."""
FEW_BY_GAP, FEW_BY_SET = 0.5, 8.0
"""Arrivals that outweigh what is taken at first."""
EVEN = 0.1
"""Windows of silence after which a factor by gap is taken to be 1 at first; before, it falls with
the root of the gap, as people's habits do: what they do comes in bursts."""
PACES, LEAST_PACE = 8, 127 - 6
"""Rates are told apart by factors of 4; the exponent of the least, as a 32-bit float has it."""
FEW_BY_PACE = 4.0
"""Arrivals that outweigh what is taken of a pace at first."""
DOUBT = 0.1
"""How much each arrival that was to come in a silence tells at first that the key is gone."""
CAME, EXPECTED, FACTOR = range(3)

GAP = np.dtype(
    [
        ("came", np.float64),  # arrivals after gaps that ended in a bin
        ("fast_ended", np.float64),  # fast and slow counts of the keys that came
        ("slow_ended", np.float64),
        ("fast_passed", np.float64),  # of keys that were silent until the bin began, less those
        ("slow_passed", np.float64),  # of keys of which that is not learned from its first bin on
        ("expected", np.float64),
        ("factor", np.float64),
        ("fast_due", np.float64),  # arrivals expected until the bin begins, for each count
        ("slow_due", np.float64),
    ],
    align=True,
)


def groups_of(lanes: int) -> int:
    """The number of streams that are told apart, for layouts."""
    return lanes if 1 < lanes <= MOST_NAMED else 1


def gap_entries(lanes: int) -> int:
    """The size of `by_gap`; beyond the last bin is one of keys that are forgotten."""
    return groups_of(lanes) * PACES * (GAPS + 1)


def fade_entries(lanes: int) -> int:
    """The size of `fade`."""
    return groups_of(lanes) * PACES * AGES * FADES


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
def gap_of(policy, gap):  # type: ignore[no-untyped-def]
    """The bin of a gap, which is given in windows."""
    return _bin_of(np.int64(gap * policy.horizon[0] * policy.horizon[1]))


@kernel
def _bin_of(cell):  # type: ignore[no-untyped-def]
    return min(bit_length(np.uint64(max(cell, np.int64(0)))), GAPS - 1)


@kernel
def _begin_of(place):  # type: ignore[no-untyped-def]
    """The gap at which a bin begins, in windows."""
    return 0.0 if place == 0 else np.float64(1 << (place - 1)) / CELLS


@kernel
def pace_of(core, lane, rate):  # type: ignore[no-untyped-def]
    """Where what is kept of the pace of a rate in a lane begins: by group and pace."""
    if not named(core):
        return np.int64(0)
    doubled = (float_bits(np.float32(rate)) >> np.int64(23)) - LEAST_PACE
    return lane * PACES + (min(max(doubled, np.int64(0)), np.int64(2 * PACES - 1)) >> np.int64(1))


@kernel
def factor_of_set(policy, core, note, lane):  # type: ignore[no-untyped-def]
    """How much more often keys come to a lane that came to the lanes that this one came to."""
    states = state_count(core)
    at = (group_of(core, lane) * states + true_state(core, note)) * 3
    return policy.by_set[at + FACTOR]


@kernel
def _to_come(core, counts, base, group):  # type: ignore[no-untyped-def]
    """What was to come of a group in a window, fast and slow."""
    if named(core):
        at = COUNTS * (base + group)
        return np.float64(counts[at + 2]), np.float64(counts[at + 3])
    fast, slow = 0.0, 0.0
    for at in range(COUNTS * base, COUNTS * (base + core.settings.lanes), COUNTS):
        fast += counts[at + 2]
        slow += counts[at + 3]
    return fast, slow


@kernel
def hear(policy, core, note, counts, base, lane, place):  # type: ignore[no-untyped-def]
    """Learn that a key was silent until a bin of gaps; lane: where it has come then, or NONE.

    Of the bin in which it came it has passed half, as in a life table.
    """
    by_gap, by_set = policy.by_gap, policy.by_set
    for group in range(_group_count(core)):
        fast, slow = _to_come(core, counts, base, group)
        pace = pace_of(core, group, fast + slow) * (GAPS + 1)
        since, until = pace + note.heard, pace + place
        by_gap[since].fast_passed -= fast
        by_gap[since].slow_passed -= slow
        by_gap[until].fast_passed += fast
        by_gap[until].slow_passed += slow
        expected = fast * (by_gap[until].fast_due - by_gap[since].fast_due)
        expected += slow * (by_gap[until].slow_due - by_gap[since].slow_due)
        at = (group * state_count(core) + true_state(core, note)) * 3
        if lane != NONE:
            by_gap[until].fast_ended += fast
            by_gap[until].slow_ended += slow
            expected += 0.5 * fast * (by_gap[until + 1].fast_due - by_gap[until].fast_due)
            expected += 0.5 * slow * (by_gap[until + 1].slow_due - by_gap[until].slow_due)
            if group == group_of(core, lane):
                part = min((now(core) - note.first) / (BURST * policy.horizon[0]), 1.0)
                by_gap[until].came += part
                by_gap[pace + note.opened].came += 1.0 - part
                by_set[at + CAME] += 1.0
        by_set[at + EXPECTED] += expected


@cold_kernel
def find_recurrence(policy, core):  # type: ignore[no-untyped-def]
    """Make the factors anew from what was counted, and average what is left of counts."""
    if core.settings.lanes == 1:
        return
    for group in range(_group_count(core)):
        for place in range(GAPS - 1, -1, -1):
            _find_factors(policy, group, place)
        for pace in range(group * PACES, (group + 1) * PACES):
            _find_due(policy, pace * (GAPS + 1))
    for at in range(0, policy.by_set.size, 3):
        came, expected = policy.by_set[at + CAME], policy.by_set[at + EXPECTED]
        policy.by_set[at + FACTOR] = (came + FEW_BY_SET) / (expected + FEW_BY_SET)
    for age in range(AGES):
        _average(policy, _group_count(core) * PACES, age)


@kernel
def _part(fades, place):  # type: ignore[no-untyped-def]
    """What of a count falls into a bin of gaps."""
    return _part_until(fades, place, _begin_of(place + 1))


@kernel
def _part_until(fades, place, end):  # type: ignore[no-untyped-def]
    """What of a count falls into a bin of gaps until a moment in it."""
    return fades * (np.exp(-_begin_of(place) / fades) - np.exp(-end / fades))


@kernel
def _find_factors(policy, group, place):  # type: ignore[no-untyped-def]
    """The factors of a bin; those of a pace of which little is known follow from those of all.

    Who came often is gone after a shorter silence: or rows of a key that was hot would keep out
    those of the next one until that is learned.
    """
    by_gap = policy.by_gap
    first, end = group * PACES * (GAPS + 1) + place, (group + 1) * PACES * (GAPS + 1)
    fast_part, slow_part = _part(FAST, place), _part(SLOW, place)
    came, expected = FEW_BY_GAP * np.sqrt(EVEN / _begin_of(place + 1)), FEW_BY_GAP
    for at in range(first, end, GAPS + 1):
        fast, slow = 0.5 * by_gap[at].fast_ended, 0.5 * by_gap[at].slow_ended
        for beyond in range(at + 1, at - place + GAPS + 1):
            fast += by_gap[beyond].fast_passed
            slow += by_gap[beyond].slow_passed
        by_gap[at].expected = max(fast * fast_part + slow * slow_part, 0.0)
        came += by_gap[at].came
        expected += by_gap[at].expected
    begins = FEW_BY_PACE * came / expected
    missed = DOUBT * 2.0 ** (LEAST_PACE - 126) * _begin_of(place + 1)
    for at in range(first, end, GAPS + 1):
        came = by_gap[at].came + begins / (1.0 + missed)
        factor = came / (by_gap[at].expected + FEW_BY_PACE)
        missed *= 4.0
        by_gap[at].factor = factor**TRUST


@kernel
def _find_due(policy, first):  # type: ignore[no-untyped-def]
    """Add up what is expected of counts until each bin begins."""
    by_gap = policy.by_gap
    fast, slow = 0.0, 0.0
    for place in range(GAPS + 1):
        by_gap[first + place].fast_due, by_gap[first + place].slow_due = fast, slow
        fast += by_gap[first + place].factor * _part(FAST, place)
        slow += by_gap[first + place].factor * _part(SLOW, place)


@kernel
def _average(policy, paces, age):  # type: ignore[no-untyped-def]
    """What is left of counts after a silence, on average over one of the times ahead.

    Who comes right now need not come for long, and who was here just now may come much later: as
    rows can be given up at any time, what counts is the time over which they are worth most. But
    partners that may come are waited for, so of them the longest of these times is noted, too.
    """
    by_gap, fade = policy.by_gap, policy.fade
    for at in range(FADES * age, FADES * AGES * paces, FADES * AGES):
        fade[at], fade[at + 1] = 0.0, 0.0
    begin, ahead = start_of(age) + 0.5 * width(age), AHEAD
    young = _bin_of(np.int64(begin * CELLS))
    fast_young, slow_young = _part_until(FAST, young, begin), _part_until(SLOW, young, begin)
    for _ in range(AHEADS):
        end = begin + ahead
        old = _bin_of(np.int64(end * CELLS))
        fast_old, slow_old = _part_until(FAST, old, end), _part_until(SLOW, old, end)
        for pace in range(paces):
            this, other = by_gap[pace * (GAPS + 1) + young], by_gap[pace * (GAPS + 1) + old]
            fast = other.fast_due + other.factor * fast_old
            slow = other.slow_due + other.factor * slow_old
            fast -= this.fast_due + this.factor * fast_young
            slow -= this.slow_due + this.factor * slow_young
            at = FADES * (AGES * pace + age)
            fade[at] = max(fade[at], fast / ahead)
            fade[at + 1] = max(fade[at + 1], slow / ahead)
            fade[at + 2], fade[at + 3] = fast / ahead, slow / ahead
        ahead *= LONGER


@cold_kernel
def halve_recurrence(policy):  # type: ignore[no-untyped-def]
    """Let what was counted count half."""
    by_gap = policy.by_gap
    for at in range(by_gap.size):
        by_gap[at].came *= 0.5
        by_gap[at].fast_ended *= 0.5
        by_gap[at].slow_ended *= 0.5
        by_gap[at].fast_passed *= 0.5
        by_gap[at].slow_passed *= 0.5
    for at in range(0, policy.by_set.size, 3):
        policy.by_set[at + CAME] *= 0.5
        policy.by_set[at + EXPECTED] *= 0.5
