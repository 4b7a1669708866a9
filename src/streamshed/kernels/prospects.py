"""What becomes of keys that have not come twice to a stream: learned from those followed in full.

The *state* of such a key is the set of streams that hold it (with more than six streams: how many
do), its *kind* whether it is whole or has lost a row, and its age that of its oldest row. A key
leaves a state when it comes to a further stream (a *move*), when it comes again to one where it
was (it *returns*, and is no such key any more), or when a row of it expires. How likely that is in
each bucket of ages is learned as in a life table: those who leave, by those who are there. So that
little data goes far, the course over ages is taken from all states with as many streams, and each
state has for each move its own factor in each doubling of age; both begin at what is known more
coarsely.

From that a small dynamic programme finds for each state the best ratio of expected results to the
expected time that its rows take up, over a few rules of when to give a key up: a rule keeps a key
as long as this is worth a certain price. It is, for these rules, the index of Gittins (1979).

A state with prospects has the arrays of `prospect_layout`.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.ages import AGES, DOUBLINGS, PART, bucket, now, width
from streamshed.kernels.compiling import aside, kernel
from streamshed.kernels.core import KEYS_USED, Field
from streamshed.kernels.machine import ones
from streamshed.kernels.table import key_count, key_lanes

MOST_NAMED = 6
"""Up to so many streams their sets are told apart, beyond it only how many there are."""
MOST_ROWS = 63
"""Where streams are told apart by a column, states are numbers of rows up to this."""

MOVE, RETURN, YIELD = range(3)
"""Events of a life table: moves, returns, and the results that returns make."""
KINDS, EVENTS = 2, 3

PRICES = (2.0**-6, 2.0**-2, 2.0**2, 2.0**6)
"""Results for a row in a window, at which keys are given up."""
LEVELS = len(PRICES)
FIRM = 4.0
"""Events that outweigh what is known more coarsely."""
HOPE, LOST_HOPE = 0.5, 0.05
"""Moves expected in each doubling of age before anything is known: of whole keys, and of others."""

_NEVER = np.uint64(0)


def prospect_layout(lanes: int) -> dict[str, Field]:
    """The arrays of a state with prospects."""
    states, moves = _states(lanes), _moves(lanes)
    sizes = _sizes(lanes)
    learned = {
        "flow": KINDS * states * AGES,  # keys that entered a state at an age, less those that left
        "events": KINDS * sizes * AGES * EVENTS,
        "moved": KINDS * states * DOUBLINGS * moves,
        "returned": KINDS * states * DOUBLINGS * 2,  # returns, and what they made
        "gained": KINDS * states * moves,  # results of moves
        "outlook": KINDS * states * AGES,  # results for a row in a window, see above
    }
    scratch = {
        "there": KINDS * states * AGES,
        "exposed": KINDS * sizes * AGES,
        "course": KINDS * sizes * AGES * EVENTS,
        "factor": KINDS * states * DOUBLINGS * (moves + 2),
        "promised": states * (AGES + 1) * LEVELS,
        "taken": states * (AGES + 1) * LEVELS,
        "brings": moves,
    }
    return {
        name: Field("once", np.float64, times=size, kept=name in learned)
        for name, size in (learned | scratch).items()
    }


def _states(lanes: int) -> int:
    if lanes == 1:
        return MOST_ROWS + 1
    return 1 << lanes if lanes <= MOST_NAMED else lanes + 1


def _moves(lanes: int) -> int:
    return lanes if 1 < lanes <= MOST_NAMED else 1


def _sizes(lanes: int) -> int:
    return MOST_ROWS + 1 if lanes == 1 else lanes + 1


@kernel
def named(core):  # type: ignore[no-untyped-def]
    """Whether states are sets of streams."""
    return 1 < core.settings.lanes <= MOST_NAMED


@kernel
def states_of(core):  # type: ignore[no-untyped-def]
    """The number of states."""
    if core.settings.lanes == 1:
        return MOST_ROWS + 1
    return 1 << core.settings.lanes if named(core) else core.settings.lanes + 1


@kernel
def moves_of(core):  # type: ignore[no-untyped-def]
    """The number of moves: to a certain stream, or just to one more."""
    return core.settings.lanes if named(core) else 1


@kernel
def sizes_of(core):  # type: ignore[no-untyped-def]
    """The number of sizes that a state can have."""
    return MOST_ROWS + 1 if core.settings.lanes == 1 else core.settings.lanes + 1


@kernel
def state_of(core, lanes, count):  # type: ignore[no-untyped-def]
    """The state of a key with rows in the given lanes, so many in all."""
    if core.settings.lanes == 1:
        return min(count, MOST_ROWS)
    return np.int64(lanes) if named(core) else ones(lanes)


@kernel
def _size(core, state):  # type: ignore[no-untyped-def]
    return ones(np.uint64(state)) if named(core) else np.int64(state)


@kernel
def _open(core, state, move):  # type: ignore[no-untyped-def]
    """Whether a key in a state can make a move."""
    if named(core):
        return (state >> move) & 1 == 0
    return state + 1 < states_of(core)


@kernel
def _after(core, state, move):  # type: ignore[no-untyped-def]
    return state | (1 << move) if named(core) else state + 1


@kernel
def _ways(core, size):  # type: ignore[no-untyped-def]
    """How many moves are open to states of a size."""
    if named(core):
        return core.settings.lanes - size
    return 1 if size + 1 < sizes_of(core) else 0


@kernel
def prospect(policy, core, kind, state, age):  # type: ignore[no-untyped-def]
    """The index of a key."""
    place = (kind * states_of(core) + state) * AGES + bucket(policy, age)
    return policy.outlook[place]


# -- what is learned ------------------------------------------------------------------------------


@kernel
def enters(policy, core, kind, state, age):  # type: ignore[no-untyped-def]
    """A followed key is in a state from now on."""
    place = (kind * states_of(core) + state) * AGES + bucket(policy, age)
    policy.flow[place] += 1.0


@kernel
def leaves(policy, core, kind, state, age):  # type: ignore[no-untyped-def]
    """A followed key is in a state no longer."""
    place = (kind * states_of(core) + state) * AGES + bucket(policy, age)
    policy.flow[place] -= 1.0


@kernel
def moves(policy, core, kind, state, age, lane, results):  # type: ignore[no-untyped-def]
    """A followed key has come to a further stream, and made results."""
    move = lane if named(core) else 0
    at = bucket(policy, age)
    group = kind * states_of(core) + state
    policy.moved[(group * DOUBLINGS + at // PART) * moves_of(core) + move] += 1.0
    policy.gained[group * moves_of(core) + move] += results
    sized = kind * sizes_of(core) + _size(core, state)
    policy.events[(sized * AGES + at) * EVENTS + MOVE] += 1.0


@kernel
def returns(policy, core, kind, state, age, results):  # type: ignore[no-untyped-def]
    """A followed key has come again to a stream, and made results."""
    at = bucket(policy, age)
    group = kind * states_of(core) + state
    place = (group * DOUBLINGS + at // PART) * 2
    policy.returned[place] += 1.0
    policy.returned[place + 1] += results
    sized = kind * sizes_of(core) + _size(core, state)
    policy.events[(sized * AGES + at) * EVENTS + RETURN] += 1.0
    policy.events[(sized * AGES + at) * EVENTS + YIELD] += results


@kernel
def _halve(array):  # type: ignore[no-untyped-def]
    for i in range(array.size):
        array[i] *= 0.5


@aside
def forget(policy, sample):  # type: ignore[no-untyped-def]
    """Let what was learned count half; keys that are there count in full from now on."""
    _halve(policy.flow)
    _halve(policy.events)
    _halve(policy.moved)
    _halve(policy.returned)
    _halve(policy.gained)
    _count_present(policy, sample, policy.flow, 0.5)


@kernel
def _count_present(policy, sample, counts, each):  # type: ignore[no-untyped-def]
    time = now(sample)
    for key in range(sample.numbers[KEYS_USED]):
        lanes = key_lanes(sample, key)
        if lanes != _NEVER and policy.heard[key].returns == 0:
            kind = np.int64(policy.heard[key].lost != _NEVER)
            group = kind * states_of(sample) + state_of(sample, lanes, key_count(sample, key))
            at = bucket(policy, time - policy.heard[key].first)
            counts[group * AGES + at] += each


# -- what is made of it ---------------------------------------------------------------------------


@aside
def look_forward(policy, sample):  # type: ignore[no-untyped-def]
    """Make the index anew from what has been learned."""
    _count_exposure(policy, sample)
    _fit_courses(policy, sample)
    _fit_factors(policy, sample)
    for kind in range(KINDS):
        for state in range(states_of(sample) - 1, 0, -1):
            _promise(policy, sample, kind, state)


@kernel
def _count_exposure(policy, sample):  # type: ignore[no-untyped-def]
    """How many keys were in each state at each age, those that are in it until now included."""
    for i in range(policy.flow.size):
        policy.there[i] = policy.flow[i]
    _count_present(policy, sample, policy.there, -1.0)
    policy.exposed[:] = 0.0
    for kind in range(KINDS):
        for state in range(1, states_of(sample)):
            base = (kind * states_of(sample) + state) * AGES
            sized = (kind * sizes_of(sample) + _size(sample, state)) * AGES
            present = 0.0
            for age in range(AGES):
                change = policy.there[base + age]
                policy.there[base + age] = max(present + 0.5 * change, 0.0)
                present = max(present + change, 0.0)
                policy.exposed[sized + age] += policy.there[base + age]


@kernel
def _fit_courses(policy, sample):  # type: ignore[no-untyped-def]
    """For each number of streams the rate of each event at each age, from a doubling's rate."""
    for kind in range(KINDS):
        for size in range(1, sizes_of(sample)):
            base = (kind * sizes_of(sample) + size) * AGES
            ways = _ways(sample, size)
            for doubling in range(DOUBLINGS):
                begin = doubling * PART
                span = PART * width(begin)
                hope = (LOST_HOPE if kind > 0 else HOPE) / (_start(doubling) + 0.5 * span)
                for event in range(EVENTS):
                    times = ways if event == MOVE else 1
                    happened, exposed = 0.0, 0.0
                    for age in range(begin, begin + PART):
                        happened += policy.events[(base + age) * EVENTS + event]
                        exposed += policy.exposed[base + age] * times * width(age)
                    if event == MOVE and ways > 0:
                        happened += span * hope / ways
                    rate = happened / (exposed + span)
                    for age in range(begin, begin + PART):
                        expected = policy.exposed[base + age] * times * width(age) * rate
                        happened = policy.events[(base + age) * EVENTS + event]
                        policy.course[(base + age) * EVENTS + event] = (
                            rate * (happened + FIRM) / (expected + FIRM)
                        )


@kernel
def _start(doubling):  # type: ignore[no-untyped-def]
    """The age at which a doubling begins, as a part of a window."""
    return 0.0 if doubling == 0 else PART * width(doubling * PART)


@kernel
def _fit_factors(policy, sample):  # type: ignore[no-untyped-def]
    """For each state, doubling of age and event how much it differs from its size's course."""
    ways = moves_of(sample)
    for kind in range(KINDS):
        for state in range(1, states_of(sample)):
            group = kind * states_of(sample) + state
            sized = (kind * sizes_of(sample) + _size(sample, state)) * AGES
            for doubling in range(DOUBLINGS):
                moved, returned, made = 0.0, 0.0, 0.0
                for age in range(doubling * PART, (doubling + 1) * PART):
                    there = policy.there[group * AGES + age] * width(age)
                    moved += there * policy.course[(sized + age) * EVENTS + MOVE]
                    returned += there * policy.course[(sized + age) * EVENTS + RETURN]
                    made += there * policy.course[(sized + age) * EVENTS + YIELD]
                place = group * DOUBLINGS + doubling
                factor = place * (ways + 2)
                for move in range(ways):
                    happened = policy.moved[place * ways + move]
                    policy.factor[factor + move] = (happened + FIRM) / (moved + FIRM)
                happened = policy.returned[place * 2]
                policy.factor[factor + ways] = (happened + FIRM) / (returned + FIRM)
                happened = policy.returned[place * 2 + 1]
                policy.factor[factor + ways + 1] = (happened + FIRM) / (made + FIRM)


@kernel
def _gain(policy, sample, group, move, after):  # type: ignore[no-untyped-def]
    """Results of a move, on average; before any is seen: one if there are streams enough."""
    ways = moves_of(sample)
    happened = 1.0
    for doubling in range(DOUBLINGS):
        happened += policy.moved[(group * DOUBLINGS + doubling) * ways + move]
    enough = _size(sample, after) >= sample.settings.at_least
    return (policy.gained[group * ways + move] + (1.0 if enough else 0.0)) / happened


@kernel
def _promise(policy, sample, kind, state):  # type: ignore[no-untyped-def]
    """Expected results and time of rows of a state at each age and price, and its index.

    From the oldest age to the youngest; states with more streams are done before.
    """
    ways = moves_of(sample)
    group = kind * states_of(sample) + state
    size = _size(sample, state)
    sized = (kind * sizes_of(sample) + size) * AGES
    promised, taken = policy.promised, policy.taken
    here = state * (AGES + 1) * LEVELS
    for level in range(here + AGES * LEVELS, here + (AGES + 1) * LEVELS):
        promised[level] = 0.0
        taken[level] = 0.0
    for move in range(ways):  # what a move brings at once, in room that is free until the end
        if _open(sample, state, move):
            policy.brings[move] = _gain(policy, sample, group, move, _after(sample, state, move))
    for age in range(AGES - 1, -1, -1):
        course = (sized + age) * EVENTS
        factor = (group * DOUBLINGS + age // PART) * (ways + 2)
        span = width(age)
        left = policy.course[course + RETURN] * policy.factor[factor + ways] * span
        for move in range(ways):
            if _open(sample, state, move):
                left += policy.course[course + MOVE] * policy.factor[factor + move] * span
        scale = 1.0 / (1.0 + left)  # from rates to chances
        stays = 1.0 - left * scale
        makes = policy.course[course + YIELD] * policy.factor[factor + ways + 1] * span * scale
        takes = size * span * (1.0 - 0.5 * (left * scale))
        at = here + age * LEVELS
        for level in range(at, at + LEVELS):
            promised[level] = makes + stays * promised[level + LEVELS]
            taken[level] = takes + stays * taken[level + LEVELS]
        for move in range(ways):
            if _open(sample, state, move):
                chance = policy.course[course + MOVE] * policy.factor[factor + move] * span * scale
                shift = (_after(sample, state, move) - state) * (AGES + 1) * LEVELS
                brings = policy.brings[move]
                for level in range(at, at + LEVELS):
                    there = level + shift
                    results = promised[there] + promised[there + LEVELS]
                    promised[level] += chance * (brings + 0.5 * results)
                    taken[level] += chance * (0.5 * (taken[there] + taken[there + LEVELS]))
        best = 0.0
        for level in range(LEVELS):
            results, time = promised[at + level], taken[at + level]
            best = max(best, results / time)
            if results <= PRICES[level] * time:
                promised[at + level] = 0.0
                taken[at + level] = 0.0
        policy.outlook[group * AGES + age] = best
