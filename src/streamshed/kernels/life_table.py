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

TURNS = 0.2
"""What the arrivals are worth that follow when a key turns out to return."""
PRICES = (2.0**-6, 2.0**-2, 2.0**2, 2.0**6)
"""Results for a row in a window, at which keys are given up."""
LEVELS = len(PRICES)
RESULTS, TIME, NEXT_RESULTS, NEXT_TIME, MEAN_RESULTS, MEAN_TIME = range(6)
EXPECTED = 6
"""What is expected of a state at a price: results and time of rows from an age on, and from the
next younger one on; and their means over the age between both."""
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
def count_present(policy, core, newcomer, counts, each):  # type: ignore[no-untyped-def]
    """Count the keys that are in a state now, at their present age.

    The key of a newcomer is among them, though it may have no row yet and no ghost any more.
    """
    if key_lanes(core, newcomer) == NO_BITS:
        _count_one(policy, core, policy.notes[newcomer], counts, each)
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
def look_forward(policy, core, newcomer):  # type: ignore[no-untyped-def]
    """Make the index of each state and age anew from what has been learned.

    In `scratch` are, one after the other: keys there, by (state, age); the same by (size, age); the
    course, rates of moves and returns by (size, age); factors, by (state, doubling, way); and what
    `_find_outlook` needs.
    """
    states, sizes, ways = state_count(core), size_count(core), ways_of(core)
    scratch = policy.scratch
    exposed = states * AGES
    course = exposed + sizes * AGES
    factor = course + sizes * AGES * 2
    for i in range(exposed):
        scratch[i] = policy.flow[i]
    count_present(policy, core, newcomer, scratch, -1.0)
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
    _find_outlook(policy, core, course, factor)


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
def _find_outlook(policy, core, course, factor):  # type: ignore[no-untyped-def]
    """Find the index of each state at each age, from the oldest age to the youngest.

    Of each state at each price are kept the results and the time of rows that are expected from an
    age on, and the mean of both ages between which a key may enter the state.
    """
    states, scratch = state_count(core), policy.scratch
    worths = factor + states * DOUBLINGS * (ways_of(core) + 1)
    expected = worths + states
    for state in range(1, states):
        scratch[worths + state] = _worth(policy, core, size_of(core, state))
    for i in range(expected, expected + EXPECTED * states * LEVELS):
        scratch[i] = 0.0
    for age in range(AGES - 1, -1, -1):
        for state in range(states - 1, 0, -1):  # those with more streams first
            at = expected + EXPECTED * state * LEVELS
            _promise(policy, core, state, age, course, factor, scratch[worths + state], at)
            policy.outlook[state * AGES + age] = _best_price(scratch, at)


@kernel
def _promise(policy, core, state, age, course, factor, worth, at):  # type: ignore[no-untyped-def]
    """Expected results and time of rows of a state from an age on, unless its keys are given up."""
    ways, size, scratch = ways_of(core), size_of(core, state), policy.scratch
    full = core.settings.lanes if core.settings.complete else core.settings.at_least
    brings = 1.0 if size + 1 >= full else 0.0
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
    takes = size * span * (1.0 - 0.5 * (left * scale))
    for price in range(LEVELS):
        level = at + EXPECTED * price
        # A key that returns can be given up then, too.
        kept = remains if worth > PRICES[price] * (size + 1) else 0.0
        scratch[level + NEXT_RESULTS] = stays * scratch[level + RESULTS] + kept * worth
        scratch[level + NEXT_TIME] = takes + stays * scratch[level + TIME] + kept * (size + 1)
    for move in range(ways):
        if is_open(core, state, move):
            chance = scratch[rates + MOVE] * scratch[factors + move] * span * scale
            shift = (after_move(core, state, move) - state) * EXPECTED * LEVELS
            for level in range(at, at + EXPECTED * LEVELS, EXPECTED):
                there = level + shift
                scratch[level + NEXT_RESULTS] += chance * (brings + scratch[there + MEAN_RESULTS])
                scratch[level + NEXT_TIME] += chance * scratch[there + MEAN_TIME]


@kernel
def _best_price(scratch, at):  # type: ignore[no-untyped-def]
    """The best ratio of results to time; what does not reach a price is given up at it."""
    best = 0.0
    for price in range(LEVELS):
        level = at + EXPECTED * price
        results, time = scratch[level + NEXT_RESULTS], scratch[level + NEXT_TIME]
        best = max(best, results / time)
        if results <= PRICES[price] * time:
            results, time = 0.0, 0.0
        scratch[level + MEAN_RESULTS] = 0.5 * (results + scratch[level + RESULTS])
        scratch[level + MEAN_TIME] = 0.5 * (time + scratch[level + TIME])
        scratch[level + RESULTS], scratch[level + TIME] = results, time
    return best
