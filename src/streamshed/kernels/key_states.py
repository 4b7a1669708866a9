"""States of keys: the streams that they came to, or how many; which moves are open to them."""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.intrinsics import ones

MOST_NAMED = 6
"""Up to so many streams their sets are told apart, beyond it only how many there are."""
MOST_ROWS = 63
"""Where streams are told apart by a column, states are numbers of rows up to this."""

ONE_BIT, NO_BITS = np.uint64(1), np.uint64(0)


def states_of(lanes: int) -> int:
    """The number of states, for layouts."""
    if lanes == 1:
        return MOST_ROWS + 1
    return 1 << lanes if lanes <= MOST_NAMED else lanes + 1


def moves_of(lanes: int) -> int:
    """The number of moves, for layouts."""
    return lanes if 1 < lanes <= MOST_NAMED else 1


def sizes_of(lanes: int) -> int:
    """The number of sizes that states have, for layouts."""
    return MOST_ROWS + 1 if lanes == 1 else lanes + 1


@kernel
def named(core):  # type: ignore[no-untyped-def]
    """Whether states are sets of streams."""
    return 1 < core.settings.lanes <= MOST_NAMED


@kernel
def state_count(core):  # type: ignore[no-untyped-def]
    """The number of states."""
    if core.settings.lanes == 1:
        return MOST_ROWS + 1
    return 1 << core.settings.lanes if named(core) else core.settings.lanes + 1


@kernel
def ways_of(core):  # type: ignore[no-untyped-def]
    """The number of moves: to a certain stream, or just to one more."""
    return core.settings.lanes if named(core) else 1


@kernel
def size_count(core):  # type: ignore[no-untyped-def]
    """The number of sizes that states have."""
    return MOST_ROWS + 1 if core.settings.lanes == 1 else core.settings.lanes + 1


@kernel
def state_of(core, lanes, count):  # type: ignore[no-untyped-def]
    """The state of a key in the given lanes, with so many rows in all."""
    if core.settings.lanes == 1:
        return min(np.int64(count), np.int64(MOST_ROWS))
    return np.int64(lanes) if named(core) else np.int64(ones(lanes))


@kernel
def size_of(core, state):  # type: ignore[no-untyped-def]
    """How many streams, or rows, a state stands for."""
    return np.int64(ones(np.uint64(state))) if named(core) else np.int64(state)


@kernel
def is_open(core, state, move):  # type: ignore[no-untyped-def]
    """Whether a key in a state can make a move."""
    if named(core):
        return (state >> move) & 1 == 0
    return state + 1 < state_count(core)


@kernel
def after_move(core, state, move):  # type: ignore[no-untyped-def]
    """The state that a move leads to."""
    return state | (1 << move) if named(core) else state + 1


@kernel
def true_state(core, note):  # type: ignore[no-untyped-def]
    """The state that a key would be in if nothing were shed."""
    return state_of(core, note.lanes, note.lanes)
