"""Following the keys of the sample: what a tuple would have completed if nothing were shed."""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import aside, kernel, loop
from streamshed.kernels.core import ARRIVALS, CLOCK, EXPIRED, NEWEST, NONE, RESULTS, ROWS_USED
from streamshed.kernels.hooks import followed, refollowed
from streamshed.kernels.sampling import PATIENCE, Following, halve, in_sample, tally
from streamshed.kernels.table import (
    ONE,
    add_key,
    find_key,
    home_shift,
    key_hash,
    key_lanes,
    lane_of,
)
from streamshed.operators.buffers import BEFORE
from streamshed.operators.probing import choices, gather
from streamshed.operators.storing import count, expire, remove, store, store_again


@kernel
def follow(core, policy, sample, batch, work, i):  # type: ignore[no-untyped-def]
    """Compare a tuple's results with those it should have made, and enter it into the sample.

    Returns:
        The tuple's row in the sample, or NONE if its key is followed no longer.
    """
    true = sample.core
    hashed = batch.hash[i]
    shift = home_shift(true.table)
    _catch_up(core, policy, true, shift)
    key = find_key(true, hashed, shift)
    if key == NONE:
        key = add_key(true, hashed, shift)
    gather(true, batch, work, i, key)
    results = choices(true, batch, work, i)
    missed = results - np.float64(core.numbers[RESULTS] - work.cursor[BEFORE])
    if missed > 0:
        tally(sample, hashed, _step(core, sample), missed)
    pattern = key_lanes(true, key) | (ONE << np.uint64(lane_of(true, batch.stream[i])))
    row = store(true, batch, i, key, core.numbers[ARRIVALS] - 1)
    followed(policy, true, row, pattern, results, sample.sieve[0].rate)
    sample.sieve[0].followed += 1
    while _too_many(sample):
        _thin_out(policy, sample, shift)
    return row if in_sample(sample, hashed) else NONE


@kernel
def _catch_up(core, policy, true, shift):  # type: ignore[no-untyped-def]
    """Let go of the sample's rows that the clock has left behind since it was last looked at."""
    if true.numbers[CLOCK] != core.numbers[CLOCK]:
        true.numbers[CLOCK] = core.numbers[CLOCK]
        expire(true, Following(policy, True), shift)


@kernel
def _step(core, sample):  # type: ignore[no-untyped-def]
    """The step of time in which a tuple comes: by the newest time, or else by arrivals."""
    now = core.numbers[NEWEST] if core.settings.timed else core.numbers[ARRIVALS]
    return now // sample.sieve[0].step


@kernel
def _too_many(sample):  # type: ignore[no-untyped-def]
    sieve = sample.sieve[0]
    if sample.core.pools[0].held > sieve.capacity:
        return True
    return sieve.followed > PATIENCE and sieve.rate > sieve.least


@kernel
def _thin_out(policy, sample, shift):  # type: ignore[no-untyped-def]
    """Let half of the keys go."""
    true = sample.core
    halve(sample)
    for row in range(true.numbers[ROWS_USED]):
        if true.rows[row].arrival != NONE and not in_sample(
            sample, key_hash(true, true.rows[row].key)
        ):
            remove(true, Following(policy, False), row, shift)


@aside
def push_out_followed(policy, sample, row):  # type: ignore[no-untyped-def]
    """Let go of a row of the sample that its row window has left behind."""
    true = sample.core
    count(true, true.rows[row].stream, EXPIRED, 1)
    remove(true, Following(policy, True), row, home_shift(true.table))


@loop
def follow_again(policy, sample, batch, arrivals, tell):  # type: ignore[no-untyped-def]
    """Enter rows into the sample after a restart, in the order of their arrival.

    Args:
        policy: the state of the policy.
        sample: the sample.
        batch: the rows; those of keys that are not followed are passed over.
        arrivals: their arrival numbers.
        tell: whether the policy is told.
    """
    true = sample.core
    shift = home_shift(true.table)
    for i in range(batch.time.size):
        if in_sample(sample, batch.hash[i]):
            row = store_again(true, batch, i, arrivals[i], shift)
            if tell:
                refollowed(policy, true, row)
