"""Evict the keys that are expected to make the fewest results for the space they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.age_buckets import AGES, bucket, moment, now
from streamshed.kernels.compiling import cold_kernel, implements, kernel
from streamshed.kernels.core import ARRIVALS, BOUNDLESS, NEWCOMER_BYTES, NONE, PINNED, Field, Shape
from streamshed.kernels.intrinsics import float_bits, prefetch, trailing_zeros
from streamshed.kernels.key_history import (
    CHOSEN,
    NOTED,
    history_layout,
    leave_ghost,
    note_arrival,
)
from streamshed.kernels.key_states import NO_BITS, ONE_BIT, state_of
from streamshed.kernels.lanes import oldest_of_pool
from streamshed.kernels.pool_rows import add_member, drop_member, member_layout, put_member
from streamshed.kernels.random import GOLDEN, draw, mix
from streamshed.kernels.recurrence import COUNTS, FADES, factor_of_set, pace_of
from streamshed.kernels.table import (
    find_key,
    home_shift,
    is_unused,
    key_head,
    key_lanes,
    key_per_byte,
    lane_of,
    pool_of,
)
from streamshed.policies.base import Policy

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan

FRONT, DRAWN = 16, 4
"""Rows of a full window that are kept at hand to leave, and rows drawn for each newcomer."""
SMALL = 64
"""All rows of a window that has room for no more than so many are at hand: nothing is drawn, so
that what stays does not depend on luck."""
UNKNOWN = np.float32(-1.0)
"""Stands for the density of a row in front that was not looked at yet."""
PARTNERS = 0.5
"""How many of the rows expected in the window count as partners that are there already."""
LOST = 0.05
"""What the arrivals of a key are worth that has lost a row and never came twice to a stream."""

_32 = np.uint64(32)
_8, _LAST = np.int64(8), np.int64(255)


class DensityState(NamedTuple):
    """Rows that can be drawn, what is noted of keys, and what was learned."""

    members: npt.NDArray[Any]
    position: npt.NDArray[Any]
    filled: npt.NDArray[Any]
    front: npt.NDArray[Any]  # by (pool, place): the density of a row in front, when last looked at
    turn: npt.NDArray[Any]  # by pool: the place in front that is taken, or looked at, next
    notes: npt.NDArray[Any]  # by key
    counts: npt.NDArray[Any]  # by (key, lane): see COUNTS
    stored: npt.NDArray[Any]  # by (key, lane): rows
    ghosts: npt.NDArray[Any]  # notes of keys without rows
    ghost_counts: npt.NDArray[Any]
    flow: npt.NDArray[Any]  # by (state, age): keys that entered a state, less those that left
    events: npt.NDArray[Any]  # by (size, age): moves and returns
    moved: npt.NDArray[Any]  # by (state, doubling): moves to each lane, and returns
    outlook: npt.NDArray[Any]  # by (state, age): the density of keys that do not return
    fit: npt.NDArray[Any]  # sums of products of counts, of counts and arrivals; weights
    fresh: npt.NDArray[Any]  # keys that began to return, and what was expected of them
    by_gap: npt.NDArray[Any]  # by (lane, pace, gap): arrivals, how many were expected, a factor
    by_set: npt.NDArray[Any]  # by (lane, state): the same
    fade: npt.NDArray[Any]  # by (lane, pace, age): what is left of fast and slow counts
    scratch: npt.NDArray[Any]
    horizon: npt.NDArray[Any]
    numbers: npt.NDArray[Any]


@dataclass(frozen=True)
class Density(Policy):
    """Evict rows of the keys that are expected to make the fewest results for the space they take.

    It keeps or evicts whole keys, because a row is of no use without its partners. It learns while
    the join runs, from all keys, shed or not. For keys that come once to a stream, it learns by
    their age and by the streams that have them; for other keys, by how often they came lately.

    Examples:
        >>> Density().name
        'density'
    """

    name: ClassVar[str] = "density"
    state: ClassVar[type] = DensityState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "moving"

    def layout(self, shape: Shape) -> dict[str, Field]:
        """What is noted of keys, and tables whose size depends on the number of streams alone."""
        return {
            **member_layout(),
            **history_layout(shape),
            "front": Field("pool", np.float32, None, times=SMALL, kept=True),
            "turn": Field("pool", np.int64, kept=True),
            "stored": Field("entry", np.int32),
        }

    def prepare(self, state: Any, plan: Plan) -> None:
        """Nothing was looked at yet."""
        state.front[:] = UNKNOWN


# -- what a row promises --------------------------------------------------------------------------


@kernel
def _rows_of(policy, core, key):  # type: ignore[no-untyped-def]
    """The stored rows of a key, where a column names the streams; else 1 if there are any."""
    if core.settings.lanes == 1:
        return np.int64(policy.stored[key])
    return np.int64(0) if is_unused(core, key) else np.int64(1)


@kernel
def _oldest_in(core, key, lane):  # type: ignore[no-untyped-def]
    return np.int64(core.rows[key_head(core, key, lane)].newer)


@kernel
def _density(policy, core, key, lane, state):  # type: ignore[no-untyped-def]
    """Results that a row of a key in a lane promises for each window that it is kept."""
    note = policy.notes[key]
    hopeful = note.lost == NO_BITS or not core.settings.complete or core.settings.lanes == 1
    if note.returns == 0 and hopeful:
        return policy.outlook[state * AGES + bucket(policy, now(core) - note.first)]
    return _steady(policy, core, key, lane)


@kernel
def _rounded(density):  # type: ignore[no-untyped-def]
    """A density as it is compared: keys are equals if only the order of sums tells them apart."""
    return np.float32(density)


@kernel
def _is_expected(policy, core, key, lane):  # type: ignore[no-untyped-def]
    """Whether rows of a key are expected in another lane at all."""
    lanes, counts = core.settings.lanes, policy.counts
    most = np.float32(0.0)
    for other in range(lanes):
        if other != lane:
            i = COUNTS * (key * lanes + other)
            most = max(most, counts[i + 2], counts[i + 3])
    return most > 0.0


@kernel
def _steady(policy, core, key, lane):  # type: ignore[no-untyped-def]
    """The same of a key that comes again and again."""
    lanes, base, time = core.settings.lanes, key * core.settings.lanes, now(core)
    note, counts = policy.notes[key], policy.counts
    if note.returns == 0 and not _is_expected(policy, core, key, lane):
        return 0.0  # as what follows would find
    gap = bucket(policy, time - note.last)
    left = 1.0
    if key_head(core, key, lane) != NONE:
        age = (time - moment(core, _oldest_in(core, key, lane))) / policy.horizon[0]
        left = max(1.0 - age, 0.0)
    product, sums, kept = 1.0, 0.0, 1.0
    for other in range(lanes):
        if other != lane:
            i = COUNTS * (base + other)
            fast, slow = counts[i + 2], counts[i + 3]
            fade = FADES * (AGES * pace_of(core, other, fast + slow) + gap)
            rate = fast * policy.fade[fade] + slow * policy.fade[fade + 1]
            later = fast * policy.fade[fade + 2] + slow * policy.fade[fade + 3]
            factor = factor_of_set(policy, core, note, other)
            rate *= factor
            later *= factor
            rows = np.float64(policy.stored[base + other])
            kept += rows
            if core.pools[pool_of(core, other)].budget >= BOUNDLESS:
                rows = rate
            # Partners: those who are here, and some of those who come while they can be waited for.
            crowd = max(rows, PARTNERS * left * (np.sqrt(later) if later > 1.0 else later))
            crowd = max(crowd, 1e-9 if core.settings.complete else 1.0)
            product *= crowd
            sums += rate / crowd
    # Streams must keep the same keys, though each sees a key with other eyes: so the more rows of a
    # key the others have, the more it is worth to all.
    value = product * sums * np.sqrt(left * max(kept / lanes, 1.0))
    return value if note.returns == 1 else LOST * value


@kernel
def _stored_density(policy, core, row):  # type: ignore[no-untyped-def]
    key, lane = np.int64(core.rows[row].key), lane_of(core, core.rows[row].stream)
    state = state_of(core, key_lanes(core, key), _rows_of(policy, core, key))
    return _rounded(key_per_byte(core, _density(policy, core, key, lane, state), key, 0, 0))


# -- who leaves -----------------------------------------------------------------------------------


@kernel
def _front_size(core, pool):  # type: ignore[no-untyped-def]
    """How many places the front of a pool has."""
    budget = core.pools[pool].budget
    return budget if budget <= SMALL else np.int64(FRONT)


@kernel
def _choose(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    """The row that promises least among the oldest, those in front and some drawn."""
    pools, filled, at = policy.filled.size, policy.filled[pool], pool * SMALL
    size = _front_size(core, pool)
    front = min(filled, size)
    members, known = policy.members, policy.front
    word = draw(core.settings.seed, arrival)
    if filled > front:
        _prefetch_drawn(policy, core, pool, word)
    turn = _next_turn(policy, pool, size)
    known[at + turn] = UNKNOWN
    for place in range(front):
        if known[at + place] < 0.0:
            row = np.int64(members[place * pools + pool])
            known[at + place] = _stored_density(policy, core, row)
    if filled > front:
        _draw_some(policy, core, pool, front, word)
    best = np.int64(oldest_of_pool(core, pool))
    lowest = _stored_density(policy, core, best)
    for _ in range(size):  # what stands lowest is looked at again
        place = _lowest(known, at, front)
        if known[at + place] >= lowest:
            break
        row = np.int64(members[place * pools + pool])
        density = _stored_density(policy, core, row)
        if density <= known[at + place]:
            known[at + place] = density
            best, lowest = row, density
            break
        known[at + place] = density
    key, lane = np.int64(core.rows[best].key), lane_of(core, core.rows[best].stream)
    return _oldest_in(core, key, lane), lowest


@cold_kernel
def _choose_apart(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    """The same row, where no newcomer is compared with it: a budget has shrunk."""
    row, _ = _choose(policy, core, pool, arrival)
    return row


@kernel
def _draw_some(policy, core, pool, front, word):  # type: ignore[no-untyped-def]
    """Let rows that are drawn and promise less than the highest in front change places with it."""
    pools, filled, at = policy.filled.size, policy.filled[pool], pool * SMALL
    members, known = policy.members, policy.front
    highest = _highest(known, at, front)
    for _ in range(DRAWN):
        drawn = _place_drawn(word, filled)
        word = mix(word + GOLDEN)
        if drawn < front:
            continue
        density = _stored_density(policy, core, np.int64(members[drawn * pools + pool]))
        if density < known[at + highest]:
            _swap(policy, pool, drawn, highest)
            known[at + highest] = density
            highest = _highest(known, at, front)


@kernel
def _highest(known, at, front):  # type: ignore[no-untyped-def]
    """The place in front with the highest density, of equals the first.

    Densities and places are compared as one number, without a branch: which is the highest cannot
    be foretold.
    """
    most = np.int64(0)
    for place in range(front):
        most = max(most, float_bits(known[at + place]) << _8 | (_LAST - place))
    return _LAST - (most & _LAST)


@kernel
def _lowest(known, at, front):  # type: ignore[no-untyped-def]
    """The place in front with the lowest density, of equals the first."""
    least = np.int64(BOUNDLESS)
    for place in range(front):
        least = min(least, float_bits(known[at + place]) << _8 | place)
    return least & _LAST


@kernel
def _next_turn(policy, pool, size):  # type: ignore[no-untyped-def]
    """The place in front of a pool whose turn it is now."""
    turn = policy.turn[pool] + 1
    policy.turn[pool] = turn = turn if turn < size else 0
    return turn


@kernel
def _place_drawn(word, filled):  # type: ignore[no-untyped-def]
    return np.int64(((word >> _32) * np.uint64(filled)) >> _32)


@kernel
def _prefetch_drawn(policy, core, pool, word):  # type: ignore[no-untyped-def]
    """Bring what is known of the keys that will be drawn into the cache, all at once."""
    pools, lanes = policy.filled.size, core.settings.lanes
    for _ in range(DRAWN):
        place = _place_drawn(word, policy.filled[pool])
        word = mix(word + GOLDEN)
        key = np.int64(core.rows[np.int64(policy.members[place * pools + pool])].key)
        prefetch(policy.notes, key)
        prefetch(policy.counts, COUNTS * key * lanes)
        prefetch(policy.stored, key * lanes)
        prefetch(core.keys, key * core.settings.key_words)


@kernel
def _swap(policy, pool, place, other):  # type: ignore[no-untyped-def]
    """Let the rows at two places of a pool's list change places."""
    members, pools = policy.members, policy.filled.size
    one, two = members[place * pools + pool], members[other * pools + pool]
    members[place * pools + pool], members[other * pools + pool] = two, one
    policy.position[one], policy.position[two] = other, place


@kernel
def _put_forward(policy, core, key):  # type: ignore[no-untyped-def]
    """Put the rows of a key that can hardly make results any more in front."""
    lanes = key_lanes(core, key)
    while lanes != NO_BITS:
        lane = np.int64(trailing_zeros(lanes))
        lanes &= lanes - ONE_BIT
        pool = pool_of(core, lane)
        row = key_head(core, key, lane)
        if core.pools[pool].budget < BOUNDLESS:
            place, size = np.int64(policy.position[row]), _front_size(core, pool)
            if place >= size:
                turn = np.int64(policy.turn[pool])
                turn = turn if turn < size else np.int64(0)  # the budget may have shrunk
                _next_turn(policy, pool, size)
                _swap(policy, pool, place, turn)
                place = turn
            policy.front[pool * SMALL + place] = UNKNOWN


@kernel
def _lose(policy, core, key, lane):  # type: ignore[no-untyped-def]
    """A lane holds a key no longer, or would not take it."""
    whole = policy.notes[key].lost == NO_BITS
    policy.notes[key].lost |= ONE_BIT << np.uint64(lane)
    if whole and policy.notes[key].returns == 0 and core.settings.complete:
        _put_forward(policy, core, key)


@implements(hooks.on_arrival, DensityState)
def _on_arrival(policy, core, batch, i):  # type: ignore[no-untyped-def]
    lane, key = lane_of(core, batch.stream[i]), core.numbers[PINNED]
    boundless = core.pools[pool_of(core, lane)].budget >= BOUNDLESS
    if boundless and key != NONE:  # who has a budget is noted when it is admitted
        came = batch.time[i] if core.settings.timed else core.numbers[ARRIVALS] - 1
        note_arrival(policy, core, key, lane, came, _rows_of(policy, core, key))


@implements(hooks.queue_priority, DensityState)
def _queue_priority(policy, core, batch, i):  # type: ignore[no-untyped-def]
    lane = lane_of(core, batch.stream[i])
    bit = ONE_BIT << np.uint64(lane)
    key = find_key(core, batch.hash[i], home_shift(core.table))
    if key == NONE:
        return policy.outlook[state_of(core, bit, 1) * AGES]
    state = state_of(core, key_lanes(core, key) | bit, _rows_of(policy, core, key) + 1)
    return _density(policy, core, key, lane, state)


@implements(hooks.admits, DensityState)
def _admits(policy, core, pool, key, stream, time, worth):  # type: ignore[no-untyped-def]
    lane, arrival = lane_of(core, stream), core.numbers[ARRIVALS] - 1
    came = time if core.settings.timed else arrival
    rows = _rows_of(policy, core, key)
    if policy.numbers[NOTED] != arrival + 1:
        note_arrival(policy, core, key, lane, came, rows)
        policy.numbers[NOTED] = arrival + 1
    head = key_head(core, key, lane)
    lanes = key_lanes(core, key) | (ONE_BIT << np.uint64(lane))
    density = _density(policy, core, key, lane, state_of(core, lanes, rows + 1))
    density = _rounded(key_per_byte(core, density, key, 1, core.numbers[NEWCOMER_BYTES]))
    instead = policy.notes[key].returns == 1 and head != NONE
    if density > 0.0 or instead:
        row, lowest = _choose(policy, core, pool, arrival)
        refused = density == 0.0 or density < lowest
        if instead and refused:
            row = _oldest_in(core, key, lane)
        if instead or not refused:
            policy.numbers[CHOSEN] = row + 1
            return True
    if rows == 0:
        leave_ghost(policy, core, key, lane)
    elif head == NONE:
        _lose(policy, core, key, lane)
    return False


@implements(hooks.victim, DensityState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    row = policy.numbers[CHOSEN] - 1
    policy.numbers[CHOSEN] = 0
    if row == NONE:
        row = _choose_apart(policy, core, pool, arrival)
    return row


@implements(hooks.on_insert, DensityState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    key, lane = np.int64(core.rows[row].key), lane_of(core, core.rows[row].stream)
    lanes = core.settings.lanes
    if policy.numbers[NOTED] != core.rows[row].arrival + 1:
        alone = np.int64(core.rows[row].older) == row
        alone = alone and key_lanes(core, key) == ONE_BIT << np.uint64(lane)
        others = np.int64(0) if alone else np.int64(1)
        note_arrival(policy, core, key, lane, moment(core, row), others)
    policy.stored[key * lanes + lane] += 1
    policy.notes[key].lost &= ~(ONE_BIT << np.uint64(lane))
    pool = pool_of(core, core.rows[row].stream)
    if policy.filled[pool] < SMALL:
        policy.front[pool * SMALL + policy.filled[pool]] = UNKNOWN
    add_member(policy, core, row)
    everywhere = ~NO_BITS >> np.uint64(64 - lanes)
    if lanes > 1 and policy.notes[key].returns == 0 and key_lanes(core, key) == everywhere:
        _put_forward(policy, core, key)


@implements(hooks.on_remove, DensityState)
def _on_remove(policy, core, row):  # type: ignore[no-untyped-def]
    key, lane = np.int64(core.rows[row].key), lane_of(core, core.rows[row].stream)
    if policy.position[row] < SMALL:
        pool = pool_of(core, core.rows[row].stream)
        policy.front[pool * SMALL + policy.position[row]] = UNKNOWN
    drop_member(policy, core, row)
    policy.stored[key * core.settings.lanes + lane] -= 1
    # A row that leaves for a newcomer of its own key leaves no ghost once that was noted: the key
    # is still there. Before, the ghost is what the newcomer is noted with.
    coming = key == core.numbers[PINNED] and policy.numbers[NOTED] == core.numbers[ARRIVALS]
    if is_unused(core, key) and not coming:
        leave_ghost(policy, core, key, lane)
    elif policy.stored[key * core.settings.lanes + lane] == 0:
        _lose(policy, core, key, lane)


@implements(hooks.mark, DensityState)
def _mark(policy, core, row):  # type: ignore[no-untyped-def]
    return policy.position[row]


@implements(hooks.on_restore, DensityState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    key, lane = np.int64(core.rows[row].key), lane_of(core, core.rows[row].stream)
    policy.stored[key * core.settings.lanes + lane] += 1
    put_member(policy, core, row, marked)
