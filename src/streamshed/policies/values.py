"""What the value-based policies share: windows that rank join values, not rows.

Each pool keeps a heap of the keys present in it, by a statistic of the key. The newest row of a key
in a lane stands for it there, so that all that the heap knows is kept by row: a table by key and
lane would be empty for the most part. Where values hardly repeat, most keys stand equal, and then
the papers' baselines behave like a random selection. So a few rows are drawn first, and the first
of a lowest-standing key leaves; only if none is met does the heap say whose turn it is.

The heap may know a key as lower than it stands: only what comes to its top is found anew, and most
keys leave before they do. So a key that rises costs nothing; one that falls rises in the heap.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from streamshed.kernels import hooks
from streamshed.kernels.compiling import hook, implements, kernel
from streamshed.kernels.core import NONE, Field, Shape
from streamshed.kernels.heap import heap_push, heap_remove, heap_restore, heap_top
from streamshed.kernels.intrinsics import trailing_zeros
from streamshed.kernels.pool_rows import add_member, drawn_member, drop_member, member_layout
from streamshed.kernels.random import GOLDEN, draw, mix
from streamshed.kernels.table import key_hash, key_head, key_lanes, lane_of, pool_of
from streamshed.policies.base import Policy

State = TypeVar("State", bound=type)

TRIES = 8
"""Rows drawn in search of one whose key stands lowest."""


class ValuePolicy(Policy):
    """A policy that ranks join values."""

    def layout(self, shape: Shape) -> dict[str, Field]:
        """A heap of the newest rows of keys for each pool, and its rows to draw from."""
        # A count is exact in 32 bits up to 2^24; what a key has for each byte needs more of them.
        standing = np.float64 if shape.sized else np.float32
        return {
            "items": Field("held", np.int32, None),
            "place": Field("row", np.int32, NONE),
            "sizes": Field("pool", np.int64),
            "standing": Field("row", standing, None),  # of the key, or less: known to the heap
            "lot": Field("row", np.uint16, None),  # the highest bits of its number among equals
        } | member_layout()


@kernel
def entry_of(core, row):  # type: ignore[no-untyped-def]
    """The row that stands for a row's key in its lane: the newest."""
    return key_head(core, core.rows[row].key, lane_of(core, core.rows[row].stream))


@hook
def standing_of(policy, core, row):  # type: ignore[no-untyped-def]
    """The statistic of a row's key at present."""
    return 0.0


@kernel
def _known_top(policy, core, pool):  # type: ignore[no-untyped-def]
    """The row that stands first in the heap of a pool, by what its key stands at present."""
    while True:
        top = heap_top(policy, pool)
        standing = standing_of(policy, core, top)
        if policy.standing[top] == standing:
            return top
        policy.standing[top] = standing
        heap_restore(policy, core, pool, top)


def _lowest(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    """A row of a lowest-standing key of a pool."""
    top = _known_top(policy, core, pool)
    word = draw(core.settings.seed, arrival)
    for _ in range(TRIES):
        row = drawn_member(policy, pool, word)
        if standing_of(policy, core, row) == policy.standing[top]:
            return row
        word = mix(word + GOLDEN)
    return core.rows[top].newer  # the ring goes on from the newest to the oldest


@kernel
def value_inserted(policy, core, row, standing):  # type: ignore[no-untyped-def]
    """Enter a row, and its key into the heap of its pool if it is not there."""
    add_member(policy, core, row)
    enter_value(policy, core, row, standing)


@kernel
def enter_value(policy, core, row, standing):  # type: ignore[no-untyped-def]
    """Enter a row's key into the heap of its pool, if it is not there."""
    if entry_of(core, row) != row:
        return  # a late one: a newer one stands for the key
    before = np.int64(core.rows[row].older)
    pool = pool_of(core, core.rows[row].stream)
    if before != row and policy.place[before] != NONE:
        _stand_in(policy, pool, before, row)
        return
    policy.standing[row] = standing
    policy.lot[row] = np.uint16(_lot(core, row) >> np.uint64(48))
    heap_push(policy, core, pool, row)


@kernel
def value_removed(policy, core, row):  # type: ignore[no-untyped-def]
    """Take a row out, and its key out of the heap of its pool if no row of it is left there."""
    drop_member(policy, core, row)
    if policy.place[row] == NONE:
        return
    pool, newest = pool_of(core, core.rows[row].stream), entry_of(core, row)
    if newest == NONE:
        heap_remove(policy, core, pool, row)
    else:
        _stand_in(policy, pool, row, newest)


@kernel
def _stand_in(policy, pool, row, other):  # type: ignore[no-untyped-def]
    """Let another row stand for a key."""
    place = policy.place[row]
    policy.place[row] = NONE
    policy.place[other] = place
    policy.items[place * policy.sizes.size + pool] = other
    policy.standing[other] = policy.standing[row]
    policy.lot[other] = policy.lot[row]


@kernel
def value_lowered(policy, core, key, standing):  # type: ignore[no-untyped-def]
    """Tell the entries of a key that knew it as higher its standing, one after the other.

    One after the other, because entries of one key may share a heap, and a heap can be put right
    only while a single item of it is out of place.
    """
    known = policy.standing.dtype.type(standing)
    lanes = key_lanes(core, key)
    while lanes != np.uint64(0):
        lane = np.int64(trailing_zeros(lanes))
        lanes &= lanes - np.uint64(1)
        entry = key_head(core, key, lane)
        if policy.place[entry] != NONE and policy.standing[entry] > known:
            policy.standing[entry] = known
            heap_restore(policy, core, pool_of(core, lane), entry)


def _precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    """Order by standing, then by lot."""
    if policy.standing[item] != policy.standing[other]:
        return policy.standing[item] < policy.standing[other]
    # Most keys stand equal where values hardly repeat, and to draw each lot anew takes longest.
    if policy.lot[item] != policy.lot[other]:
        return policy.lot[item] < policy.lot[other]
    return _lot(core, item) < _lot(core, other)


@kernel
def _lot(core, row):  # type: ignore[no-untyped-def]
    """The number of a row's key in its lane in the draw among equals."""
    lane = lane_of(core, core.rows[row].stream)
    return mix(key_hash(core, core.rows[row].key) ^ draw(core.settings.seed, lane))


def ranks_values(state: State) -> State:
    """Let the order of the heaps and the choice of victims be those of this module."""
    implements(hooks.precedes, state)(_precedes)
    implements(hooks.victim, state)(_lowest)
    return state
