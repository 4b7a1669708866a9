"""Ages in buckets: fine where a key is young, and coarser the older it is.

A window is cut into `CELLS` equal parts. Each of the first sixteen is a bucket, and so is each
sixteenth part of every doubling from there on.

A state with ages has the array `horizon`: the length of a window, and the cells of a unit of time.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import ARRIVALS, BOUNDLESS, NEWEST
from streamshed.kernels.intrinsics import bit_length

CELLS = 4096
PART = 16
"""Buckets of a doubling."""
AGES = 144
DOUBLINGS = AGES // PART


@kernel
def bucket(policy, age):  # type: ignore[no-untyped-def]
    """The bucket of an age."""
    cell = np.int64(np.float64(age) * policy.horizon[1])
    cell = min(max(cell, np.int64(0)), np.int64(CELLS - 1))
    halvings = max(bit_length(np.uint64(cell)) - 5, 0)
    return halvings * PART + (cell >> halvings)


@kernel
def width(age):  # type: ignore[no-untyped-def]
    """The part of a window that a bucket takes."""
    return np.float64(1 << max((age >> 4) - 1, 0)) / CELLS


@kernel
def find_horizon(policy, core):  # type: ignore[no-untyped-def]
    """See how long a window is, if that was not done yet, and so how many cells a unit of time has.

    It is the longest time window, or where there is none the rows of all row windows together.
    """
    if policy.horizon[0] > 0.0:
        return
    longest = np.int64(0)
    rows = np.int64(0)
    for lane in range(core.settings.lanes):
        rows += core.lanes[lane].last
        if core.lanes[lane].window < BOUNDLESS:
            longest = max(longest, core.lanes[lane].window)
    horizon = longest if core.settings.timed else rows
    policy.horizon[0] = np.float64(max(horizon, np.int64(1)))
    policy.horizon[1] = CELLS / (policy.horizon[0] + 1.0)


@kernel
def now(core):  # type: ignore[no-untyped-def]
    """The newest time seen, or without time windows the number of the latest arrival."""
    return core.numbers[NEWEST] if core.settings.timed else core.numbers[ARRIVALS] - 1


@kernel
def moment(core, row):  # type: ignore[no-untyped-def]
    """When a row came, by the same clock."""
    return core.rows[row].time if core.settings.timed else core.rows[row].arrival


@kernel
def start_of(age):  # type: ignore[no-untyped-def]
    """The age at which a bucket begins, as a part of a window."""
    begin = 0.0 if age < PART else PART * width(age // PART * PART)
    return begin + (age % PART) * width(age)
