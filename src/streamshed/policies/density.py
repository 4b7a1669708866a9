"""Shed the keys that promise the fewest results for the room they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.errors import SpecError
from streamshed.kernels import hooks
from streamshed.kernels.ages import moment, now
from streamshed.kernels.compiling import aside, implements, kernel
from streamshed.kernels.core import ARRIVALS, BOUNDLESS, NONE, Field, Shape
from streamshed.kernels.hearing import hear, hear_of, hearing_layout, lose_sight
from streamshed.kernels.lanes import oldest_of_pool
from streamshed.kernels.machine import trailing_zeros
from streamshed.kernels.members import add_member, drop_member, member_layout, put_member
from streamshed.kernels.notes import (
    leave_ghost,
    note_layout,
    note_removed,
    note_stored,
    oldest_in,
    take_notice,
)
from streamshed.kernels.prospects import prospect, state_of
from streamshed.kernels.random import GOLDEN, draw, mix
from streamshed.kernels.returning import expect, liveliness
from streamshed.kernels.table import key_count, key_head, key_lanes, lane_of, pool_of
from streamshed.policies.base import Policy

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan

FRONT = 8
"""Rows of a full window that are looked at each time, and as many are drawn besides."""
PLENTY = 256.0
"""A row that promises so many times less than the newcomer may leave at once."""
SHYNESS = 0.6
"""What a key that returns is worth as long as hardly any of its rows are stored."""

NOTED, CHOSEN = range(2)
"""The latest arrival that was noted, and the row that is to leave for it; both plus 1."""
NUMBERS = 2

_ONE = np.uint64(1)
_NONE = np.uint64(0)
_32 = np.uint64(32)


class DensityState(NamedTuple):
    """What is known of keys, of those stored and of those followed, and what was learned."""

    members: npt.NDArray[Any]
    position: npt.NDArray[Any]
    filled: npt.NDArray[Any]
    turn: npt.NDArray[Any]  # by pool: the place in front that is taken next
    notes: npt.NDArray[Any]
    holdings: npt.NDArray[Any]
    counts: npt.NDArray[Any]
    stored: npt.NDArray[Any]
    ghosts: npt.NDArray[Any]
    ghost_counts: npt.NDArray[Any]
    heard: npt.NDArray[Any]
    heard_counts: npt.NDArray[Any]
    lessons: npt.NDArray[Any]
    flow: npt.NDArray[Any]
    events: npt.NDArray[Any]
    moved: npt.NDArray[Any]
    returned: npt.NDArray[Any]
    gained: npt.NDArray[Any]
    outlook: npt.NDArray[Any]
    there: npt.NDArray[Any]
    exposed: npt.NDArray[Any]
    course: npt.NDArray[Any]
    factor: npt.NDArray[Any]
    promised: npt.NDArray[Any]
    taken: npt.NDArray[Any]
    brings: npt.NDArray[Any]
    fit: npt.NDArray[Any]
    silence: npt.NDArray[Any]
    rates: npt.NDArray[Any]
    crowd: npt.NDArray[Any]
    front: npt.NDArray[Any]
    horizon: npt.NDArray[Any]
    numbers: npt.NDArray[Any]


@dataclass(frozen=True)
class Density(Policy):
    """Rows leave whose keys promise the fewest results for the room that their rows take.

    Whole keys are what is kept or shed: a row is of no use without its partners. What a key in a
    given condition promises is learned, while the join runs, from some keys that are followed in
    full (see `Join.estimate`): keys that come once to a stream by the streams that hold them and by
    age, others by how often they come. What was learned fades, so that changes are followed.

    Examples:
        >>> Density().name
        'density'
    """

    name: ClassVar[str] = "density"
    state: ClassVar[type] = DensityState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "moving"
    follows: ClassVar[float] = 1 / 4
    ranks_keys: ClassVar[bool] = True

    def check(self, plan: Plan) -> None:
        """There must be keys to learn from."""
        if plan.rate == 0:
            raise SpecError(
                "shed('density') learns from keys that are followed, and estimate(rate=0) follows"
                " none; leave estimate out, or shed by 'oldest', 'frequency' or another policy"
            )

    def layout(self, shape: Shape) -> dict[str, Field]:
        """What is known of keys, and tables whose size depends on the number of streams alone."""
        return {
            **member_layout(),
            **note_layout(shape),
            **hearing_layout(shape.lanes),
            "turn": Field("pool", np.int64, kept=True),
            "crowd": Field("once", np.float64, times=shape.lanes),
            "front": Field("once", np.float64, times=FRONT),
            "numbers": Field("once", np.int64, times=NUMBERS, kept=True),
        }


# -- what a key promises --------------------------------------------------------------------------


@kernel
def _density(policy, core, key, lane, state, first, more):  # type: ignore[no-untyped-def]
    """Results that a row of a key promises for each window that it is kept.

    Args:
        policy: the state of the policy.
        core: the state of the join.
        key: the key.
        lane: where the row is.
        state: the state of the key.
        first: when the oldest row of the key came.
        more: 1 if the row is to be stored yet, and else 0.
    """
    if policy.notes[key].returns == 0:
        kind = np.int64(policy.notes[key].lost != _NONE)
        return prospect(policy, core, kind, state, now(core) - first)
    return _steady(policy, core, key, lane, more)


@aside
def _steady(policy, core, key, lane, more):  # type: ignore[no-untyped-def]
    """The same of a key that comes again and again.

    In what is left of the row's life the rows of each lane go over from those stored to those to
    come: what is between is taken. An arrival in a lane makes as many results as there are
    combinations of the others.
    """
    lanes, base = core.settings.lanes, key * core.settings.lanes
    note, crowd = policy.notes[key], policy.crowd
    time, horizon = now(core), policy.horizon[0]
    gap, known = (time - note.last) / horizon, (note.last - note.begin) / horizon
    expected = expect(policy, policy.counts, base, lanes, known, gap)
    age = 0
    if key_head(core, key, lane) != NONE:
        age = time - moment(core, oldest_in(core, key, lane))
    renewed = 0.5 * max(1.0 - age / horizon, 0.0)
    taken = 0.0
    for other in range(lanes):
        rows = np.float64(policy.stored[base + other])
        if other == lane:
            rows += more
        if core.pools[pool_of(core, other)].budget >= BOUNDLESS:
            rows = policy.rates[other]
        crowd[other] = rows + (policy.rates[other] - rows) * renewed
        taken += crowd[other]
    promised = 0.0
    for newcomer in range(lanes):
        if newcomer == lane:
            continue
        results = policy.rates[newcomer]
        for other in range(lanes):
            if other != newcomer:
                results *= crowd[other] if core.settings.complete else max(crowd[other], 1.0)
        promised += results
    rows = np.float64(policy.holdings[key].rows + more)
    share = rows / expected if rows < expected else 1.0
    promised *= liveliness(policy, gap) * (SHYNESS + (1.0 - SHYNESS) * share)
    return promised / taken


@kernel
def _stored_density(policy, core, row):  # type: ignore[no-untyped-def]
    key, lane = np.int64(core.rows[row].key), lane_of(core, core.rows[row].stream)
    state = state_of(core, key_lanes(core, key), key_count(core, key))
    return _density(policy, core, key, lane, state, policy.holdings[key].first, 0)


# -- who leaves -----------------------------------------------------------------------------------


@kernel
def _choose(policy, core, pool, arrival, offered):  # type: ignore[no-untyped-def]
    """The row that promises least among the oldest, those in front and as many drawn.

    A row that is drawn takes the place in front of one that promises more. The search ends with a
    row that promises far less than what is offered for its place.
    """
    best = np.int64(oldest_of_pool(core, pool))
    lowest = _stored_density(policy, core, best)
    filled, pools = policy.filled[pool], policy.filled.size
    front = min(filled, FRONT)
    for place in range(front):
        if PLENTY * lowest <= offered:
            break
        row = np.int64(policy.members[place * pools + pool])
        policy.front[place] = _stored_density(policy, core, row)
        if policy.front[place] < lowest:
            lowest, best = policy.front[place], row
    word = draw(core.settings.seed, arrival)
    for place in range(front):
        if PLENTY * lowest <= offered:
            break
        drawn = np.int64(((word >> _32) * np.uint64(filled)) >> _32)
        word = mix(word + GOLDEN)
        if drawn < front:
            continue
        row = np.int64(policy.members[drawn * pools + pool])
        density = _stored_density(policy, core, row)
        if density < policy.front[place]:
            policy.front[place] = density
            _swap(policy, core, row, place)
            if density < lowest:
                lowest, best = density, row
    key, lane = core.rows[best].key, lane_of(core, core.rows[best].stream)
    return oldest_in(core, key, lane), lowest


@kernel
def _swap(policy, core, row, place):  # type: ignore[no-untyped-def]
    """Let a row and the one at a place of its pool's list change places."""
    pools = policy.filled.size
    pool = pool_of(core, core.rows[row].stream)
    other, position = policy.members[place * pools + pool], policy.position[row]
    policy.members[place * pools + pool] = row
    policy.members[position * pools + pool] = other
    policy.position[row] = place
    policy.position[other] = position


@kernel
def _put_forward(policy, core, key):  # type: ignore[no-untyped-def]
    """Put the rows of a key that can hardly make results any more in front."""
    lanes = key_lanes(core, key)
    while lanes != _NONE:
        lane = np.int64(trailing_zeros(lanes))
        lanes &= lanes - _ONE
        pool = pool_of(core, lane)
        row = key_head(core, key, lane)
        bounded = core.pools[pool].budget < BOUNDLESS
        if bounded and policy.filled[pool] > FRONT and policy.position[row] >= FRONT:
            _swap(policy, core, row, policy.turn[pool])
            policy.turn[pool] = (policy.turn[pool] + 1) % FRONT


@kernel
def _lose(policy, core, key, lane):  # type: ignore[no-untyped-def]
    """A lane holds a key no longer, or would not take it."""
    whole = policy.notes[key].lost == _NONE
    policy.notes[key].lost |= _ONE << np.uint64(lane)
    if whole and policy.notes[key].returns == 0:
        _put_forward(policy, core, key)


@implements(hooks.admits, DensityState)
def _admits(policy, core, pool, key, stream, time, worth):  # type: ignore[no-untyped-def]
    lane, arrival = lane_of(core, stream), core.numbers[ARRIVALS] - 1
    take_notice(policy, core, key, lane)
    policy.numbers[NOTED] = arrival + 1
    note, holding = policy.notes[key], policy.holdings[key]
    came = time if core.settings.timed else arrival
    first = came if holding.rows == 0 else min(holding.first, came)
    head = key_head(core, key, lane)
    lanes = key_lanes(core, key) | (_ONE << np.uint64(lane))
    state = state_of(core, lanes, key_count(core, key) + 1)
    density = _density(policy, core, key, lane, state, first, 1)
    instead = note.returns == 1 and head != NONE
    if density > 0.0 or instead:
        row, lowest = _choose(policy, core, pool, arrival, density)
        refused = density == 0.0 or density < lowest
        if instead and refused:
            row = oldest_in(core, key, lane)
        if instead or not refused:
            policy.numbers[CHOSEN] = row + 1
            return True
    if holding.rows == 0:
        leave_ghost(policy, core, key, lane)
    elif head == NONE:
        _lose(policy, core, key, lane)
    return False


@implements(hooks.victim, DensityState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    row = policy.numbers[CHOSEN] - 1
    policy.numbers[CHOSEN] = 0
    if row == NONE:
        row, _ = _choose(policy, core, pool, arrival, 0.0)
    return row


@implements(hooks.on_insert, DensityState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    key = np.int64(core.rows[row].key)
    if policy.numbers[NOTED] != core.rows[row].arrival + 1:
        take_notice(policy, core, key, lane_of(core, core.rows[row].stream))
    note_stored(policy, core, row)
    add_member(policy, core, row)
    lanes = core.settings.lanes
    everywhere = ~_NONE >> np.uint64(64 - lanes)
    if lanes > 1 and policy.notes[key].returns == 0 and key_lanes(core, key) == everywhere:
        _put_forward(policy, core, key)


@implements(hooks.on_remove, DensityState)
def _on_remove(policy, core, row):  # type: ignore[no-untyped-def]
    key, lane = np.int64(core.rows[row].key), lane_of(core, core.rows[row].stream)
    drop_member(policy, core, row)
    note_removed(policy, core, row)
    if policy.holdings[key].rows == 0:
        leave_ghost(policy, core, key, lane)
    elif policy.stored[key * core.settings.lanes + lane] == 0:
        _lose(policy, core, key, lane)


@implements(hooks.mark, DensityState)
def _mark(policy, core, row):  # type: ignore[no-untyped-def]
    return policy.position[row]


@implements(hooks.on_restore, DensityState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    note_stored(policy, core, row)
    put_member(policy, core, row, marked)


# -- what is learned ------------------------------------------------------------------------------


@implements(hooks.on_sample, DensityState)
def _on_sample(policy, sample, row, pattern, results, chance):  # type: ignore[no-untyped-def]
    hear(policy, sample, row, pattern, results)


@implements(hooks.on_sample_end, DensityState)
def _on_sample_end(policy, sample, row, expired):  # type: ignore[no-untyped-def]
    lose_sight(policy, sample, row, expired)


@implements(hooks.on_sample_restore, DensityState)
def _on_sample_restore(policy, sample, row):  # type: ignore[no-untyped-def]
    hear_of(policy, sample, row)
