"""What the value-based policies share: windows that rank join values, not rows.

Each pool ranks the keys present in it by a statistic of the key. The newest row of a key in a lane
stands for it there, so that all that is known of it is kept by row: a table by key and lane would
be empty for the most part. Where values hardly repeat, most keys stand equal, and then the papers'
baselines behave like a random selection. So a few rows are drawn first, and the first of a
lowest-standing key leaves; only if none is met does the ranking say whose turn it is.

The ranking is a tournament tree (`kernels/tournament.py`) over the rows that are drawn from. It may
know a key as lower than it stands: only what comes to the top is found anew, and most keys leave
before they do. So a key that rises costs nothing; one that falls is told to the tree.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from streamshed.kernels import hooks
from streamshed.kernels.compiling import hook, implements, kernel
from streamshed.kernels.core import NONE, Field, Shape
from streamshed.kernels.intrinsics import float_bits, trailing_zeros
from streamshed.kernels.pool_rows import (
    add_member,
    drop_member,
    member_at,
    member_layout,
    put_member,
)
from streamshed.kernels.random import GOLDEN, draw, inverse_of, mix, remainder
from streamshed.kernels.table import key_hash, key_head, key_lanes, lane_of, pool_of
from streamshed.kernels.tournament import (
    ABSENT,
    breaks_tie,
    fit_tree,
    lowest_place,
    move_word,
    set_word,
    tie_at,
    tree_layout,
    word_at,
)
from streamshed.policies.base import Policy

State = TypeVar("State", bound=type)

TRIES = 8
"""Rows drawn in search of one whose key stands lowest."""
_32, _LOWER = np.uint64(32), np.uint64(2**32 - 1)


class ValuePolicy(Policy):
    """A policy that ranks join values."""

    def layout(self, shape: Shape) -> dict[str, Field]:
        """The rows of each pool to draw from, and a tree of those that stand for a key."""
        return tree_layout(ties=shape.sized) | member_layout()


@kernel
def entry_of(core, row):  # type: ignore[no-untyped-def]
    """The row that stands for a row's key in its lane: the newest."""
    return key_head(core, core.rows[row].key, lane_of(core, core.rows[row].stream))


@hook
def standing_of(policy, core, row):  # type: ignore[no-untyped-def]
    """The statistic of a row's key at present."""
    return 0.0


# -- what the tree holds of a row that stands for its key -----------------------------------------


@kernel
def _word(policy, standing, lot):  # type: ignore[no-untyped-def]
    """A standing as a word of the tree, and the half of a lot that decides among equals.

    A count is exact in 32 bits up to 2^24. What a key has for each byte needs all 64; then lots are
    the ties of the tree.
    """
    if policy.ties.size > 0:
        return np.uint64(np.float64(standing).view(np.int64))
    return (np.uint64(float_bits(np.float32(standing))) << _32) | (lot & _LOWER)


@kernel
def known_standing(policy, core, entry):  # type: ignore[no-untyped-def]
    """The standing of a key as the tree has it, where it is a count."""
    return np.int32(_known(policy, core, entry) >> _32).view(np.float32)


@kernel
def _known(policy, core, row):  # type: ignore[no-untyped-def]
    """The word of a row, ABSENT if it does not stand for its key."""
    place = np.int64(policy.position[row])
    if place == NONE:  # its pool has no budget, and is not ranked
        return ABSENT
    return word_at(policy, pool_of(core, core.rows[row].stream), place)


@kernel
def is_known(policy, core, row):  # type: ignore[no-untyped-def]
    """Whether a row stands for its key."""
    return _known(policy, core, row) != ABSENT


@kernel
def set_standing(policy, core, entry, standing):  # type: ignore[no-untyped-def]
    """Let the tree know a key by another standing."""
    pool, place = pool_of(core, core.rows[entry].stream), np.int64(policy.position[entry])
    word = _word(policy, standing, word_at(policy, pool, place))
    set_word(policy, pool, place, word, tie_at(policy, pool, place))


@kernel
def _lot(core, row):  # type: ignore[no-untyped-def]
    """The number of a row's key in its lane in the draw among equals."""
    lane = lane_of(core, core.rows[row].stream)
    return mix(key_hash(core, core.rows[row].key) ^ draw(core.settings.seed, lane))


def _breaks_tie(policy, core, pool, place, other):  # type: ignore[no-untyped-def]
    """Order by the whole lot those who have the same half of it."""
    row, other_row = member_at(policy, pool, place), member_at(policy, pool, other)
    return _lot(core, row) < _lot(core, other_row)


# -- who leaves -----------------------------------------------------------------------------------


@kernel
def _known_top(policy, core, pool):  # type: ignore[no-untyped-def]
    """The row that stands lowest in a pool, by what its key stands at present, and its word."""
    while True:
        place = lowest_place(policy, core, pool)
        top, known = member_at(policy, pool, place), word_at(policy, pool, place)
        word = _word(policy, standing_of(policy, core, top), known)
        if word == known:
            return top, known
        set_word(policy, pool, place, word, tie_at(policy, pool, place))


@kernel
def _may_stand_at(policy, pool, place, known):  # type: ignore[no-untyped-def]
    """Whether the row at a place may be of a key that stands at a known standing, and no higher.

    As the tree knows no key as higher than it stands, it can tell without looking at the key.
    """
    if policy.ties.size > 0:
        return True
    word = word_at(policy, pool, place)
    return word == ABSENT or word >> _32 <= known >> _32


def _lowest(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    """A row of a lowest-standing key of a pool."""
    top, known = _known_top(policy, core, pool)
    filled = np.uint64(policy.filled[pool])
    inverse = inverse_of(filled)
    word = draw(core.settings.seed, arrival)
    for _ in range(TRIES):
        place = np.int64(remainder(word, filled, inverse))
        if _may_stand_at(policy, pool, place, known):
            row = member_at(policy, pool, place)
            if _word(policy, standing_of(policy, core, row), known) == known:
                return row
        word = mix(word + GOLDEN)
    return core.rows[top].newer  # the ring goes on from the newest to the oldest


# -- rows come and go -----------------------------------------------------------------------------


@kernel
def value_inserted(policy, core, row, standing):  # type: ignore[no-untyped-def]
    """Enter a row, and let it stand for its key."""
    add_member(policy, core, row)
    enter_value(policy, core, row, standing)


@kernel
def value_restored(policy, core, row, standing, position):  # type: ignore[no-untyped-def]
    """Do the same with a row that stood at a position before a restart."""
    put_member(policy, core, row, position)
    enter_value(policy, core, row, standing)


@kernel
def enter_value(policy, core, row, standing):  # type: ignore[no-untyped-def]
    """Let a row that has its position stand for its key, which is new or keeps its standing."""
    fit_tree(policy, policy.members.size)
    if entry_of(core, row) != row:
        return  # a late one: a newer one stands for the key
    pool, place = pool_of(core, core.rows[row].stream), np.int64(policy.position[row])
    before = np.int64(core.rows[row].older)
    if before != row and is_known(policy, core, before):
        move_word(policy, pool, np.int64(policy.position[before]), place)
        return
    lot = _lot(core, row) >> _32
    set_word(policy, pool, place, _word(policy, standing, lot), np.uint32(lot))


@kernel
def value_removed(policy, core, row):  # type: ignore[no-untyped-def]
    """Take a row out, and its key out of its pool if no row of it is left there."""
    pool, place = pool_of(core, core.rows[row].stream), np.int64(policy.position[row])
    newest = entry_of(core, row)
    if newest != NONE and word_at(policy, pool, place) != ABSENT:
        move_word(policy, pool, place, np.int64(policy.position[newest]))
    drop_member(policy, core, row)
    # The last row has taken its position.
    move_word(policy, pool, policy.filled[pool], place)


@kernel
def value_lowered(policy, core, key, standing):  # type: ignore[no-untyped-def]
    """Tell those rows that stand for a key, and knew it as higher, its standing."""
    lanes = key_lanes(core, key)
    while lanes != np.uint64(0):
        lane = np.int64(trailing_zeros(lanes))
        lanes &= lanes - np.uint64(1)
        entry = key_head(core, key, lane)
        known = _known(policy, core, entry)
        if known != ABSENT and _word(policy, standing, known) < known:
            set_standing(policy, core, entry, standing)


def ranks_values(state: State) -> State:
    """Let the order among equals and the choice of victims be those of this module."""
    implements(breaks_tie, state)(_breaks_tie)
    implements(hooks.victim, state)(_lowest)
    return state
