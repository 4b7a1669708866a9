"""What is noted of keys: of those with rows stored, and of ghosts.

A key that loses its last row, or is refused without having one, leaves a *ghost*: what was noted
of it. If it comes again soon, that is known again, and it is not taken for a new key whose partners
are yet to come. What is learned is learned from all of them, stored or not.

A state with a key history has the arrays of `history_layout`.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.age_buckets import AGES, DOUBLINGS, find_horizon, now
from streamshed.kernels.arrival_rates import (
    ROWS_SEEN,
    count_arrival,
    fits_of,
    is_learned_from,
    learn_rates,
    regress,
)
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.core import KEYS_USED, NONE, Field, Shape
from streamshed.kernels.key_states import (
    NO_BITS,
    ONE_BIT,
    moves_of,
    named,
    sizes_of,
    states_of,
    true_state,
)
from streamshed.kernels.life_table import (
    EXPECTED,
    LEVELS,
    count_event,
    count_present,
    enter_state,
    halve,
    leave_state,
    look_forward,
)
from streamshed.kernels.recurrence import (
    COUNTS,
    FAST,
    GAP,
    GAPS,
    SLOW,
    fade_entries,
    find_recurrence,
    gap_entries,
    gap_of,
    halve_recurrence,
    hear,
    set_entries,
)
from streamshed.kernels.table import key_hash, key_lanes

MEMORY = 4.0
"""Windows of silence after which a key is forgotten."""
FIRST_LOOKS, LOOKS = 64, 4096
"""Rows after which all is made anew from what was learned: at least, and at most."""
LESSON = 500
"""Keys that must have left a state before what was learned counts half."""
FEWEST_GHOSTS, MOST_GHOSTS = 1 << 13, 1 << 20
"""Places for ghosts: in between, one for each row of the budget."""

NOTED, CHOSEN, _ROWS_SEEN, NEXT_LOOK, SINCE, LEFT, SWEPT = range(7)
NUMBERS = 7
"""The scalars of a key history: the latest arrival that was noted, and the row that is to leave for
it (both plus 1); the rows noted; at how many all is found anew; since when nothing was forgotten,
and the keys that came again since; the ghost that is looked at next."""

_32 = np.uint64(32)

NOTE = np.dtype(
    [
        ("begin", np.int64),  # since when the key is known
        ("last", np.int64),  # when it last came
        # When the oldest row of its present life came; if it returns, when its present burst began.
        ("first", np.int64),
        # The lanes it came to in this life (if it returns: ever); with a single lane, how often.
        ("lanes", np.uint64),
        ("lost", np.uint64),  # the lanes that held it, or refused it, and do not hold it
        ("returns", np.int8),  # 1 if it came to a lane again, or after its life was over
        ("opened", np.int8),  # the bin of the gap that its present burst ended
        ("heard", np.int16),  # the bin of gaps until which its present silence was learned
        ("tag", np.uint32),  # of a ghost: the upper half of its hash
    ],
    align=True,
)


def history_layout(shape: Shape) -> dict[str, Field]:
    """The arrays of a state with a key history."""
    lanes = shape.lanes
    states, moves, sizes = states_of(lanes), moves_of(lanes), sizes_of(lanes)
    budget = min(max(FEWEST_GHOSTS, shape.budget), MOST_GHOSTS)
    ghosts = 1 << budget.bit_length() - 1 if lanes > 1 else 1
    scratch = (
        states * AGES
        + sizes * AGES * 3
        + states * DOUBLINGS * (moves + 1)
        + states * (1 + EXPECTED * LEVELS)
    )

    def once(times: int, kept: bool = True) -> Field:
        return Field("once", np.float64, times=times, kept=kept)

    return {
        "notes": Field("key", NOTE, kept=True),
        "counts": Field("entry", np.float32, times=COUNTS, kept=True),
        "ghosts": Field("once", NOTE, times=ghosts, kept=True),
        "ghost_counts": Field("once", np.float32, times=ghosts * lanes * COUNTS, kept=True),
        "flow": once(states * AGES),
        "events": once(sizes * AGES * 2),
        "moved": once(states * DOUBLINGS * (moves + 1)),
        "outlook": once(states * AGES),
        "fit": once(fits_of(lanes)),
        "fresh": once(2),
        "by_gap": Field("once", GAP, times=gap_entries(lanes), kept=True),
        "by_set": once(set_entries(lanes)),
        "fade": once(fade_entries(lanes)),
        "scratch": once(scratch, kept=False),
        "horizon": once(2),
        "numbers": Field("once", np.int64, times=NUMBERS, kept=True),
    }


@cold_kernel
def begin(policy, core):  # type: ignore[no-untyped-def]
    """See how long a window is, and how counts fade in it."""
    find_horizon(policy, core)
    find_recurrence(policy, core)
    regress(policy, core)


@kernel
def note_arrival(policy, core, key, lane, came, others):  # type: ignore[no-untyped-def]
    """A row of a key has come to a lane; others: 0 if no other rows of the key are stored."""
    lanes, time, notes = core.settings.lanes, now(core), policy.notes
    if policy.horizon[0] == 0.0:
        begin(policy, core)
    policy.numbers[ROWS_SEEN] += 1
    bit = ONE_BIT << np.uint64(lane) if lanes > 1 else ONE_BIT
    if others == 0 and not _recall(policy, core, key, time):
        notes[key].begin = time
        notes[key].last = time
        notes[key].first = came
        notes[key].lanes = bit
        notes[key].lost = NO_BITS
        notes[key].returns = 0
        notes[key].opened = 0
        notes[key].heard = 0
        base = COUNTS * key * lanes
        for i in range(base, base + COUNTS * lanes):
            policy.counts[i] = 0.0
        policy.counts[base + COUNTS * lane] = np.float32(1.0 / FAST)
        policy.counts[base + COUNTS * lane + 1] = np.float32(1.0 / SLOW)
        enter_state(policy, core, true_state(core, notes[key]), time - came)
    else:
        returned = notes[key].returns
        if returned == 0:
            _live_on(policy, core, key, bit, lane, came)
        if lanes > 1:
            count_arrival(policy, core, key, lane, returned)
        notes[key].last = time
    _sweep(policy, core)
    if policy.numbers[ROWS_SEEN] >= policy.numbers[NEXT_LOOK]:
        learn(policy, core, key)


@kernel
def _live_on(policy, core, key, bit, lane, came):  # type: ignore[no-untyped-def]
    """A key that does not return has come again: to another stream, or it returns from now on."""
    lanes, time, notes = core.settings.lanes, now(core), policy.notes
    state, age = true_state(core, notes[key]), time - notes[key].first
    policy.numbers[LEFT] += 1
    over = age > policy.horizon[0]
    if not over:
        again = lanes > 1 and notes[key].lanes & bit != NO_BITS
        count_event(policy, core, state, age, lane, again)
        if again:
            notes[key].returns = 1
            return
    elif lanes > 1:
        notes[key].returns = 1
        return
    if over:
        notes[key].first, notes[key].lanes = came, bit
    else:
        notes[key].first = min(notes[key].first, came)
        notes[key].lanes = notes[key].lanes | bit if lanes > 1 else notes[key].lanes + ONE_BIT
    enter_state(policy, core, true_state(core, notes[key]), time - notes[key].first)


@kernel
def _tag(hashed):  # type: ignore[no-untyped-def]
    return np.uint32(hashed >> _32)


@kernel
def _place(policy, hashed):  # type: ignore[no-untyped-def]
    """The first of the two places that a ghost may have; the other differs in the last bit."""
    return np.int64(hashed & np.uint64(policy.ghosts.size - 1))


@kernel
def _recall(policy, core, key, time):  # type: ignore[no-untyped-def]
    """Note of a key again what its ghost knows; whether it has one."""
    if core.settings.lanes == 1:
        return False
    hashed = key_hash(core, key)
    place = _place(policy, hashed)
    if not _is_ghost_of(policy, place, hashed, time):
        place ^= 1
        if not _is_ghost_of(policy, place, hashed, time):
            return False
    policy.notes[key] = policy.ghosts[place]
    counted = COUNTS * core.settings.lanes
    for i in range(counted):
        policy.counts[counted * key + i] = policy.ghost_counts[counted * place + i]
    policy.ghosts[place].lost = NO_BITS
    return True


@kernel
def _is_ghost_of(policy, place, hashed, time):  # type: ignore[no-untyped-def]
    """Whether the ghost of a key is in a place, and not too old."""
    ghost = policy.ghosts[place]
    if ghost.lost == NO_BITS or ghost.tag != _tag(hashed):
        return False
    return time - ghost.last <= MEMORY * policy.horizon[0]


@kernel
def leave_ghost(policy, core, key, lane):  # type: ignore[no-untyped-def]
    """Remember a key that has no row any more, or was refused without having one, in a lane."""
    if core.settings.lanes == 1:
        leave_state(policy, core, policy.notes[key])
        return
    hashed = key_hash(core, key)
    place = _place_for(policy, _place(policy, hashed))
    _dismiss(policy, core, place)
    policy.notes[key].lost |= ONE_BIT << np.uint64(lane)
    policy.notes[key].tag = _tag(hashed)
    policy.ghosts[place] = policy.notes[key]
    counted = COUNTS * core.settings.lanes
    for i in range(counted):
        policy.ghost_counts[counted * place + i] = policy.counts[counted * key + i]


@kernel
def _place_for(policy, place):  # type: ignore[no-untyped-def]
    """The place of a new ghost: the first that is free, or that of whose key came least lately."""
    one, other = policy.ghosts[place], policy.ghosts[place ^ 1]
    if one.lost == NO_BITS:
        return place
    if other.lost == NO_BITS or other.last < one.last:
        return place ^ 1
    return place


@kernel
def _dismiss(policy, core, place):  # type: ignore[no-untyped-def]
    """Forget a ghost, if there is one: what did not come counts, too."""
    ghost = policy.ghosts[place]
    if ghost.lost == NO_BITS:
        return
    if ghost.returns == 0:
        leave_state(policy, core, ghost)
    else:
        gap, base = (now(core) - ghost.last) / policy.horizon[0], place * core.settings.lanes
        until = gap_of(policy, gap) if gap < MEMORY else np.int64(GAPS)
        hear(policy, core, ghost, policy.ghost_counts, base, NONE, until)
        if is_learned_from(policy):
            learn_rates(policy, core, ghost, policy.ghost_counts, base, NONE, min(gap, MEMORY))
    policy.ghosts[place].lost = NO_BITS


@kernel
def _sweep(policy, core):  # type: ignore[no-untyped-def]
    """Look at one ghost after another, and dismiss those that nobody will ask for."""
    if core.settings.lanes == 1:
        return
    place = policy.numbers[SWEPT]
    policy.numbers[SWEPT] = (place + 1) & (policy.ghosts.size - 1)
    if now(core) - policy.ghosts[place].last > MEMORY * policy.horizon[0]:
        _dismiss(policy, core, place)


@kernel
def _hear_silence(policy, core):  # type: ignore[no-untyped-def]
    """Learn that keys have not come for so long."""
    for key in range(core.numbers[KEYS_USED]):
        if key_lanes(core, key) != NO_BITS:
            _hear_one(policy, core, policy.notes, policy.counts, key)
    for place in range(policy.ghosts.size):
        if policy.ghosts[place].lost != NO_BITS:
            _hear_one(policy, core, policy.ghosts, policy.ghost_counts, place)


@kernel
def _hear_one(policy, core, notes, counts, at):  # type: ignore[no-untyped-def]
    if notes[at].returns == 1:
        until = gap_of(policy, (now(core) - notes[at].last) / policy.horizon[0])
        if until > notes[at].heard:
            hear(policy, core, notes[at], counts, at * core.settings.lanes, NONE, until)
            notes[at].heard = until


@cold_kernel
def learn(policy, core, newcomer):  # type: ignore[no-untyped-def]
    """Make of what was noted what is expected; and forget, now and then."""
    numbers = policy.numbers
    if policy.fresh[0] > 0.0:  # as long as no key returned, there is nothing to be learned of them
        _hear_silence(policy, core)
        find_recurrence(policy, core)
        regress(policy, core)
    look_forward(policy, core, newcomer)
    if numbers[NEXT_LOOK] == 0:
        numbers[SINCE] = now(core)
    elif now(core) - numbers[SINCE] >= policy.horizon[0] and numbers[LEFT] >= LESSON:
        halve(policy.flow, policy.flow.size)
        halve(policy.events, policy.events.size)
        halve(policy.moved, policy.moved.size)
        halve(policy.fresh, 2)
        halve_recurrence(policy)
        if named(core):
            halve(policy.fit, 6 * core.settings.lanes * core.settings.lanes)
        count_present(policy, core, newcomer, policy.flow, 0.5)
        numbers[SINCE] = now(core)
        numbers[LEFT] = 0
    most = max(LOOKS, policy.ghosts.size // 4)
    numbers[NEXT_LOOK] = numbers[ROWS_SEEN] + max(FIRST_LOOKS, min(numbers[ROWS_SEEN] // 8, most))
