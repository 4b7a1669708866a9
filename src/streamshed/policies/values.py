"""What the value-based policies share: windows that rank join values, not rows.

Each pool keeps a heap of the keys present in it, by a statistic of the key. Where values hardly
repeat, most keys stand equal, and then the papers' baselines behave like a random selection. So a
few rows are drawn first, and the first of a lowest-standing key leaves; only if none is met does
the heap say whose turn it is.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import NONE, Field
from streamshed.kernels.heap import heap_push, heap_remove, heap_restore, heap_top
from streamshed.kernels.intrinsics import trailing_zeros
from streamshed.kernels.pool_rows import add_member, drawn_member, drop_member, member_layout
from streamshed.kernels.random import GOLDEN, draw, mix
from streamshed.kernels.table import key_hash, key_head, key_lanes, lane_of, pool_of
from streamshed.policies.base import Policy

TRIES = 8
"""Rows drawn in search of one whose key stands lowest."""


class ValuePolicy(Policy):
    """A policy that ranks join values."""

    ranks_keys: ClassVar[bool] = True

    def layout(self, shape: object) -> dict[str, Field]:
        """A heap of entries (key × lanes + lane) for each pool, and its rows to draw from."""
        return {
            "items": Field("held", np.int32, None),
            "place": Field("entry", np.int32, NONE),
            "sizes": Field("pool", np.int64),
            "standing": Field("entry", np.float64, None),  # the key's statistic, known to the heap
            "lot": Field("entry", np.uint32, None),  # the upper half of its number among equals
        } | member_layout()


@kernel
def entry_of(core, row):  # type: ignore[no-untyped-def]
    """The entry of a row's key in its lane."""
    return core.rows[row].key * core.settings.lanes + lane_of(core, core.rows[row].stream)


@kernel
def lowest_value(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    """A row of a lowest-standing key of a pool."""
    top = heap_top(policy, pool)
    word = draw(core.settings.seed, arrival)
    for _ in range(TRIES):
        row = drawn_member(policy, pool, word)
        if policy.standing[entry_of(core, row)] == policy.standing[top]:
            return row
        word = mix(word + GOLDEN)
    lanes = core.settings.lanes
    newest = key_head(core, top // lanes, top % lanes)
    return core.rows[newest].newer  # the ring goes on from the newest to the oldest


@kernel
def value_inserted(policy, core, row, standing):  # type: ignore[no-untyped-def]
    """Enter a row, and its key into the heap of its pool if it is not there."""
    add_member(policy, core, row)
    enter_value(policy, core, row, standing)


@kernel
def enter_value(policy, core, row, standing):  # type: ignore[no-untyped-def]
    """Enter a row's key into the heap of its pool, if it is not there."""
    entry = entry_of(core, row)
    if policy.place[entry] == NONE:
        policy.standing[entry] = standing
        policy.lot[entry] = np.uint32(_lot(core, entry) >> np.uint64(32))
        heap_push(policy, core, pool_of(core, core.rows[row].stream), entry)


@kernel
def value_removed(policy, core, row):  # type: ignore[no-untyped-def]
    """Take a row out, and its key out of the heap of its pool if no row of it is left there."""
    drop_member(policy, core, row)
    stream = core.rows[row].stream
    if key_head(core, core.rows[row].key, lane_of(core, stream)) == NONE:
        heap_remove(policy, core, pool_of(core, stream), entry_of(core, row))


@kernel
def value_changed(policy, core, key, standing):  # type: ignore[no-untyped-def]
    """Tell every entry of a key its new standing, one after the other.

    One after the other, because entries of one key may share a heap, and a heap can be put right
    only while a single item of it is out of place.
    """
    lanes = key_lanes(core, key)
    while lanes != np.uint64(0):
        lane = np.int64(trailing_zeros(lanes))
        lanes &= lanes - np.uint64(1)
        entry = key * core.settings.lanes + lane
        if policy.place[entry] != NONE and policy.standing[entry] != standing:
            policy.standing[entry] = standing
            heap_restore(policy, core, pool_of(core, lane), entry)


@kernel
def value_precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    """Order by standing, then by lot."""
    if policy.standing[item] != policy.standing[other]:
        return policy.standing[item] < policy.standing[other]
    # Most keys stand equal where values hardly repeat, and to draw each lot anew takes longest.
    if policy.lot[item] != policy.lot[other]:
        return policy.lot[item] < policy.lot[other]
    return _lot(core, item) < _lot(core, other)


@kernel
def _lot(core, entry):  # type: ignore[no-untyped-def]
    """The number of a key in a lane in the draw among equals."""
    lanes = core.settings.lanes
    return mix(key_hash(core, entry // lanes) ^ draw(core.settings.seed, entry % lanes))
