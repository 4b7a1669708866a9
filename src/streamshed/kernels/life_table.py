"""What becomes of keys that have not come twice to a stream, learned as in a life table.

How likely a key is to come to a further stream, or again, in each bucket of ages is those who did,
by those who were there. From that a small dynamic programme finds for each state the best ratio of
expected results to the expected time that its rows take up, over a few rules of when to give a key
up: for these rules, the index of Gittins (1979).
"""

from __future__ import annotations

from streamshed.kernels.age_buckets import AGES, DOUBLINGS, PART, bucket, now, start_of, width
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.core import KEYS_USED
from streamshed.kernels.key_states import (
    NO_BITS,
    after_move,
    is_open,
    named,
    size_count,
    size_of,
    state_count,
    true_state,
    ways_of,
)
from streamshed.kernels.table import key_lanes

TURNS = 0.3
"""What the arrivals are worth that follow when a key turns out to return."""
PRICES = (2.0**-6, 2.0**-2, 2.0**2, 2.0**6)
"""Results for a row in a window, at which keys are given up."""
LEVELS = len(PRICES)
FIRM = 4.0
"""Events that outweigh what is known more coarsely."""
HOPE = 0.5
"""Moves expected in each doubling of age before anything is known."""
MOVE, RETURN = range(2)


@kernel
def enter_state(policy, core, state, age):  # type: ignore[no-untyped-def]
    """A key is in a state from now on."""
    policy.flow[state * AGES + bucket(policy, age)] += 1.0


@kernel
def leave_state(policy, core, note):  # type: ignore[no-untyped-def]
    """A key that does not return is forgotten: what it would have done is not known."""
    age = now(core) - note.first
    if note.returns == 0 and age <= policy.horizon[0]:
        policy.flow[true_state(core, note) * AGES + bucket(policy, age)] -= 1.0


@kernel
def count_event(policy, core, state, age, lane, again):  # type: ignore[no-untyped-def]
    """A key has left a state by coming to a lane, again or for the first time."""
    at, ways = bucket(policy, age), ways_of(core)
    way = ways if again else (lane if named(core) else 0)
    policy.flow[state * AGES + at] -= 1.0
    policy.moved[(state * DOUBLINGS + at // PART) * (ways + 1) + way] += 1.0
    policy.events[(size_of(core, state) * AGES + at) * 2 + (RETURN if again else MOVE)] += 1.0


@kernel
def halve(array, size):  # type: ignore[no-untyped-def]
    """Let what was counted count half."""
    for i in range(size):
        array[i] *= 0.5


@kernel
def count_present(policy, core, counts, each):  # type: ignore[no-untyped-def]
    """Count the keys that are in a state now, at their present age."""
    for key in range(core.numbers[KEYS_USED]):
        if key_lanes(core, key) != NO_BITS:
            _count_one(policy, core, policy.notes[key], counts, each)
    if core.settings.lanes > 1:
        for place in range(policy.ghosts.size):
            if policy.ghosts[place].lost != NO_BITS:
                _count_one(policy, core, policy.ghosts[place], counts, each)


@kernel
def _count_one(policy, core, note, counts, each):  # type: ignore[no-untyped-def]
    age = now(core) - note.first
    if note.returns == 0 and age <= policy.horizon[0]:
        counts[true_state(core, note) * AGES + bucket(policy, age)] += each


@cold_kernel
def look_forward(policy, core):  # type: ignore[no-untyped-def]
    """Make the index of each state and age anew from what has been learned.

    In `scratch` are, one after the other: keys there, by (state, age); the same by (size, age); the
    course, rates of moves and returns by (size, age); factors, by (state, doubling, way); expected
    results and time of rows, by (state, age, price).
    """
    states, sizes, ways = state_count(core), size_count(core), ways_of(core)
    scratch = policy.scratch
    exposed = states * AGES
    course = exposed + sizes * AGES
    factor = course + sizes * AGES * 2
    for i in range(exposed):
        scratch[i] = policy.flow[i]
    count_present(policy, core, scratch, -1.0)
    for i in range(exposed, course):
        scratch[i] = 0.0
    for state in range(1, states):
        present = 0.0
        sized = exposed + size_of(core, state) * AGES
        for age in range(AGES):
            change = scratch[state * AGES + age]
            scratch[state * AGES + age] = max(present + 0.5 * change, 0.0)
            present = max(present + change, 0.0)
            scratch[sized + age] += scratch[state * AGES + age]
    for size in range(1, sizes):
        _fit_course(policy, core, size, exposed + size * AGES, course + size * AGES * 2)
    for state in range(1, states):
        sized = course + size_of(core, state) * AGES * 2
        for doubling in range(DOUBLINGS):
            moves, returns = 0.0, 0.0
            for age in range(doubling * PART, (doubling + 1) * PART):
                time = scratch[state * AGES + age] * width(age)
                moves += time * scratch[sized + age * 2]
                returns += time * scratch[sized + age * 2 + 1]
            place = (state * DOUBLINGS + doubling) * (ways + 1)
            for way in range(ways + 1):
                expected = moves if way < ways else returns
                happened = policy.moved[place + way]
                scratch[factor + place + way] = (happened + FIRM) / (expected + FIRM)
    for state in range(states - 1, 0, -1):
        _promise(policy, core, state, course, factor)


@kernel
def _fit_course(policy, core, size, exposed, course):  # type: ignore[no-untyped-def]
    """The rate of moves and returns at each age for one number of streams."""
    scratch, lanes = policy.scratch, core.settings.lanes
    ways = lanes - size if named(core) else (1 if size + 1 < size_count(core) else 0)
    for doubling in range(DOUBLINGS):
        begin = doubling * PART
        span = PART * width(begin)
        hope = HOPE / (start_of(begin) + 0.5 * span)
        for event in range(2):
            times = 1 if event == RETURN else ways
            happened, seen = 0.0, 0.0
            for age in range(begin, begin + PART):
                happened += policy.events[(size * AGES + age) * 2 + event]
                seen += scratch[exposed + age] * times * width(age)
            if event == MOVE and ways > 0:
                happened += span * hope / ways
            rate = happened / (seen + span)
            for age in range(begin, begin + PART):
                expected = scratch[exposed + age] * times * width(age) * rate
                happened = policy.events[(size * AGES + age) * 2 + event]
                firm = (happened + FIRM) / (expected + FIRM)
                scratch[course + age * 2 + event] = rate * firm


@kernel
def _worth(policy, core, size):  # type: ignore[no-untyped-def]
    """Results in a window of a key with so many streams that turns out to return."""
    lanes = core.settings.lanes
    if lanes == 1:
        return 0.0
    each = TURNS * (policy.fresh[1] + 2.0) / (policy.fresh[0] + 2.0) / lanes
    missing = lanes - size if core.settings.complete else max(core.settings.at_least - size, 0)
    worth = size * each * min(each, 1.0) ** missing
    if missing > 0:
        worth += missing * each * min(each, 1.0) ** (missing - 1)
    return worth


@kernel
def _promise(policy, core, state, course, factor):  # type: ignore[no-untyped-def]
    """Expected results and time of rows of a state at each age and price, and its index.

    From the oldest age to the youngest; states with more streams are done before.
    """
    states, ways, scratch = state_count(core), ways_of(core), policy.scratch
    size = size_of(core, state)
    promised = factor + states * DOUBLINGS * (ways + 1)
    taken = promised + states * (AGES + 1) * LEVELS
    here = state * (AGES + 1) * LEVELS
    for level in range(here + AGES * LEVELS, here + (AGES + 1) * LEVELS):
        scratch[promised + level] = 0.0
        scratch[taken + level] = 0.0
    full = core.settings.lanes if core.settings.complete else core.settings.at_least
    brings = 1.0 if size + 1 >= full else 0.0
    worth = _worth(policy, core, size)
    for age in range(AGES - 1, -1, -1):
        rates = course + (size * AGES + age) * 2
        factors = factor + (state * DOUBLINGS + age // PART) * (ways + 1)
        span = width(age)
        returns = scratch[rates + RETURN] * scratch[factors + ways] * span
        left = returns
        for move in range(ways):
            if is_open(core, state, move):
                left += scratch[rates + MOVE] * scratch[factors + move] * span
        scale = 1.0 / (1.0 + left)  # from rates to chances
        stays = 1.0 - left * scale
        remains = returns * scale * max(1.0 - start_of(age), 0.0)
        takes = size * span * (1.0 - 0.5 * (left * scale)) + remains * (size + 1)
        at = here + age * LEVELS
        for level in range(at, at + LEVELS):
            later = level + LEVELS
            scratch[promised + level] = stays * scratch[promised + later] + remains * worth
            scratch[taken + level] = takes + stays * scratch[taken + later]
        for move in range(ways):
            if is_open(core, state, move):
                chance = scratch[rates + MOVE] * scratch[factors + move] * span * scale
                shift = (after_move(core, state, move) - state) * (AGES + 1) * LEVELS
                for level in range(at, at + LEVELS):
                    there = level + shift
                    results = scratch[promised + there] + scratch[promised + there + LEVELS]
                    time = scratch[taken + there] + scratch[taken + there + LEVELS]
                    scratch[promised + level] += chance * (brings + 0.5 * results)
                    scratch[taken + level] += chance * 0.5 * time
        best = 0.0
        for level in range(LEVELS):
            results, time = scratch[promised + at + level], scratch[taken + at + level]
            best = max(best, results / time)
            if results <= PRICES[level] * time:
                scratch[promised + at + level] = 0.0
                scratch[taken + at + level] = 0.0
        policy.outlook[state * AGES + age] = best
