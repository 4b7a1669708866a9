"""What the value-based policies share: windows that rank join values, not rows.

Each pool keeps a heap of the keys present in it, by a statistic of the key. Keys of equal standing
are ranked by a number drawn for the key and the lane, so that windows decide independently, as the
papers' baselines do.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import NONE, Field
from streamshed.kernels.heap import heap_push, heap_remove, heap_restore, heap_top
from streamshed.kernels.machine import trailing_zeros
from streamshed.kernels.random import draw, mix
from streamshed.kernels.table import lane_of, pool_of


def value_layout() -> dict[str, Field]:
    """The arrays of a value-based policy; an entry is a key in a lane, key × lanes + lane."""
    return {
        "items": Field("held", np.int32, None),  # a heap of entries for each pool
        "place": Field("entry", np.int32, NONE),
        "sizes": Field("pool", np.int64),
        "standing": Field("entry", np.int64, None),  # the key's statistic, as this entry knows it
    }


@kernel
def oldest_of_lowest_value(policy, core, pool):  # type: ignore[no-untyped-def]
    """The oldest row of the lowest-ranked key of a pool."""
    newest = core.heads[heap_top(policy, pool)]
    return core.rows[newest].newer  # the ring goes on from the newest to the oldest


@kernel
def value_inserted(policy, core, row, standing):  # type: ignore[no-untyped-def]
    """Enter a row's key into the heap of its pool, if it is not there."""
    entry = core.rows[row].key * core.settings.lanes + lane_of(core, core.rows[row].stream)
    if policy.place[entry] == NONE:
        policy.standing[entry] = standing
        heap_push(policy, core, pool_of(core, core.rows[row].stream), entry)


@kernel
def value_removed(policy, core, row):  # type: ignore[no-untyped-def]
    """Take a row's key out of the heap of its pool, if no row of it is left there."""
    entry = core.rows[row].key * core.settings.lanes + lane_of(core, core.rows[row].stream)
    if core.heads[entry] == NONE:
        heap_remove(policy, core, pool_of(core, core.rows[row].stream), entry)


@kernel
def value_changed(policy, core, key, standing):  # type: ignore[no-untyped-def]
    """Tell every entry of a key its new standing, one after the other.

    One after the other, because entries of one key may share a heap, and a heap can be put right
    only while a single item of it is out of place.
    """
    lanes = core.keys[key].lanes
    while lanes != np.uint64(0):
        lane = np.int64(trailing_zeros(lanes))
        lanes &= lanes - np.uint64(1)
        entry = key * core.settings.lanes + lane
        if policy.place[entry] != NONE:
            policy.standing[entry] = standing
            heap_restore(policy, core, pool_of(core, lane), entry)


@kernel
def value_precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    """Order by standing, then by lot."""
    if policy.standing[item] != policy.standing[other]:
        return policy.standing[item] < policy.standing[other]
    return _lot(core, item) < _lot(core, other)


@kernel
def _lot(core, entry):  # type: ignore[no-untyped-def]
    """The number of a key in a lane in the draw among equals."""
    lanes = core.settings.lanes
    return mix(core.keys[entry // lanes].hash ^ draw(core.settings.seed, entry % lanes))
