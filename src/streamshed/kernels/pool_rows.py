"""The rows of each pool without gaps, in an order of no meaning, so that one can be drawn.

A state with members has `members` (position × pools + pool), `position` (by row; NONE for rows that
were not entered, as those of pools without a budget) and `filled` (by pool).
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import NONE, Field
from streamshed.kernels.table import pool_of


def member_layout() -> dict[str, Field]:
    """The arrays of a state with members."""
    return {
        "members": Field("held", np.int32, None),
        "position": Field("row", np.int32, NONE),
        "filled": Field("pool", np.int64),
    }


@kernel
def add_member(policy, core, row):  # type: ignore[no-untyped-def]
    """Put a row at the end."""
    pool = pool_of(core, core.rows[row].stream)
    put_member(policy, core, row, policy.filled[pool])


@kernel
def put_member(policy, core, row, position):  # type: ignore[no-untyped-def]
    """Put a row where it stood before a restart; in the end there are no gaps."""
    pool = pool_of(core, core.rows[row].stream)
    policy.members[position * policy.filled.size + pool] = row
    policy.position[row] = position
    policy.filled[pool] += 1


@kernel
def member_position(policy, core, row):  # type: ignore[no-untyped-def]
    """Where a row stands."""
    return policy.position[row]


@kernel
def drop_member(policy, core, row):  # type: ignore[no-untyped-def]
    """Take a row out; the last one takes its place."""
    pools = policy.filled.size
    pool = pool_of(core, core.rows[row].stream)
    end = policy.filled[pool] - 1
    moved = policy.members[end * pools + pool]
    policy.members[policy.position[row] * pools + pool] = moved
    policy.position[moved] = policy.position[row]
    policy.position[row] = NONE
    policy.filled[pool] = end


@kernel
def member_at(policy, pool, position):  # type: ignore[no-untyped-def]
    """The row at a position."""
    return np.int64(policy.members[position * policy.filled.size + pool])


@kernel
def drawn_member(policy, pool, word):  # type: ignore[no-untyped-def]
    """The row that a random word points at."""
    place = np.int64(word % np.uint64(policy.filled[pool]))
    return policy.members[place * policy.filled.size + pool]
