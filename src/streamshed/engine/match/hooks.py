"""What the loop asks of a matcher, and tells it.

A matcher finds the stored rows that make results with a newcomer, and keeps the indexes that it
needs for that. Its state is the first argument; the bodies here are those of a matcher that needs
no index beyond the key table.
"""

from __future__ import annotations

import numpy as np

from streamshed.engine.batch import BEFORE, LOOKED
from streamshed.kernels.compiling import hook
from streamshed.kernels.core import RESULTS


@hook
def prefetch_rows(matcher, core, batch, i, shift):  # type: ignore[no-untyped-def]
    """Ask for the memory that the rows after the i-th will need."""


@hook
def row_hash(matcher, batch, i):  # type: ignore[no-untyped-def]
    """The hash under which a row of the batch stands in the key table."""
    return batch.hash[i]


@hook
def before_arrival(matcher, policy, core, batch, work, i):  # type: ignore[no-untyped-def]
    """A row is about to arrive: make what changes by itself up to its time."""


@hook
def expire_useless(matcher, policy, core, shift):  # type: ignore[no-untyped-def]
    """Remove stored rows that can match nothing that may still come."""


@hook
def is_matchable(matcher, core, batch, i):  # type: ignore[no-untyped-def]
    """Whether a row can match anything at all; it is filtered if not."""
    return True


@hook
def set_newcomer(matcher, policy, core, batch, i, shift):  # type: ignore[no-untyped-def]
    """A row will be probed, then admitted or refused; its key is in the key table."""


@hook
def begin_probe(matcher, throttle, core, batch, work, i, key, shift):  # type: ignore[no-untyped-def]
    """Look for the partners of a row; whether there may be any results."""
    return False


@hook
def next_match(matcher, throttle, core, batch, work, i, shift):  # type: ignore[no-untyped-def]
    """Choose the next combination of partners, one row in each group; False if there is none."""
    return False


@hook
def next_older(matcher, throttle, core, row, head, lane, other, offset):  # type: ignore[no-untyped-def]
    """The row that a newcomer looks at after another of the same key; `head` if there is none.

    Args:
        matcher: its state.
        throttle: says what of the windows is probed.
        core: the state of the join.
        row: the other one.
        head: the newest row of the key.
        lane: of the newcomer.
        other: of the rows.
        offset: how much older than the newcomer the row is.
    """
    return np.int64(core.rows[row].older)


@hook
def work_done(matcher, core, work):  # type: ignore[no-untyped-def]
    """The work that a row has cost: its look-up, the rows looked at, and the results made."""
    return 1 + work.cursor[LOOKED] + core.numbers[RESULTS] - work.cursor[BEFORE]


@hook
def work_before(matcher, core):  # type: ignore[no-untyped-def]
    """What `work_done` counts from."""
    return core.numbers[RESULTS]


@hook
def stores_rows(matcher, core):  # type: ignore[no-untyped-def]
    """Whether rows are stored at all."""
    return True


@hook
def refresh_ranks(matcher, policy, core, pool):  # type: ignore[no-untyped-def]
    """A row of a pool has to leave: bring what the policy knows of the lowest up to date."""


@hook
def insert_row(matcher, policy, core, row):  # type: ignore[no-untyped-def]
    """Enter the newcomer, which is stored in a row, into the indexes."""


@hook
def remove_row(matcher, policy, core, row):  # type: ignore[no-untyped-def]
    """Take a row out of the indexes; its fields can still be read, the key table lacks it."""


@hook
def on_settled(matcher, policy, core, key, stored):  # type: ignore[no-untyped-def]
    """The newcomer, which has a key, was stored, or refused."""


@hook
def write_fact(matcher, work, out, place):  # type: ignore[no-untyped-def]
    """Write what a result has besides its rows to a place of the buffer."""


@hook
def restore_row(matcher, policy, core, batch, i, shift):  # type: ignore[no-untyped-def]
    """The i-th row of a checkpoint is about to be stored again, below the key that is pinned."""
