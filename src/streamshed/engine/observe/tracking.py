"""Following the keys of the sample: what a row would have completed if nothing were shed."""

from __future__ import annotations

import numpy as np

from streamshed.engine.batch import BEFORE, SAMPLE_SHIFT
from streamshed.engine.clock import expire
from streamshed.engine.gate.hooks import Unthrottled
from streamshed.engine.match.hooks import NoIndex
from streamshed.engine.match.keys import choices, gather
from streamshed.engine.observe.sampling import (
    Following,
    enter,
    is_followed,
    lower,
    remember,
    sift,
    tally,
)
from streamshed.engine.store import count, place_row, remove
from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import (
    ARRIVALS,
    CLOCK,
    EXPIRED,
    KEYS_USED,
    NEWEST,
    NONE,
    RESULTS,
    ROWS_USED,
)
from streamshed.kernels.hooks import on_sample, on_sample_restore
from streamshed.kernels.table import (
    ONE,
    add_key,
    find_key,
    home_shift,
    key_for,
    key_hash,
    key_lanes,
    lane_of,
)


@kernel
def follow(core, policy, sample, batch, work, i):  # type: ignore[no-untyped-def]
    """Compare a row's results with those it should have made, and enter it into the sample.

    Returns:
        The row's row in the sample, or NONE if its key is not followed.
    """
    true = sample.core
    hashed = batch.hash[i]
    shift = np.uint64(work.cursor[SAMPLE_SHIFT])
    tell_time(core, sample)
    if true.numbers[CLOCK] != core.numbers[CLOCK]:
        true.numbers[CLOCK] = core.numbers[CLOCK]
        expire(true, NoIndex(0), Following(policy, True), shift)
    key = _followed_key(sample, hashed, shift)
    if key == NONE:
        return NONE
    gather(true, Unthrottled(0), batch, work, i, key)
    results = choices(true, batch, work, i)
    missed = results - np.float64(core.numbers[RESULTS] - work.cursor[BEFORE])
    if missed > 0:
        tally(sample, key, hashed, _step(core, sample), missed)
    pattern = key_lanes(true, key) | (ONE << np.uint64(lane_of(true, batch.stream[i])))
    arrival = core.numbers[ARRIVALS] - 1
    row = place_row(true, batch, i, key, arrival)
    on_sample(policy, true, row, pattern, results, sample.chance[key])
    sample.came[key] += 1
    sample.sieve[0].followed += 1
    while _too_many(sample):
        _thin_out(core, policy, sample, shift)
    return row if true.rows[row].arrival == arrival else NONE


@kernel
def tell_time(core, sample):  # type: ignore[no-untyped-def]
    """Let the sample know what time it is."""
    sample.core.numbers[NEWEST] = core.numbers[NEWEST]
    sample.core.numbers[ARRIVALS] = core.numbers[ARRIVALS]


@kernel
def _followed_key(sample, hashed, shift):  # type: ignore[no-untyped-def]
    """The number of a key in the sample, which it enters if it may; NONE if it is not followed."""
    key = find_key(sample.core, hashed, shift)
    if key == NONE and is_followed(sample, hashed):
        key = add_key(sample.core, hashed, shift)
        enter(sample, key, hashed)
    return key


@kernel
def _step(core, sample):  # type: ignore[no-untyped-def]
    """The step of time in which a row comes: by the newest time, or else by arrivals."""
    now = core.numbers[NEWEST] if core.settings.timed else core.numbers[ARRIVALS]
    return now // sample.sieve[0].step


@kernel
def _too_many(sample):  # type: ignore[no-untyped-def]
    sieve = sample.sieve[0]
    if sample.core.pools[0].held > sieve.capacity:
        return True
    return sieve.followed >= sieve.patience and sieve.rate > sieve.least


@kernel
def _thin_out(core, policy, sample, shift):  # type: ignore[no-untyped-def]
    """Let keys go: half of them, but not below the least rate, unless there is no room."""
    true, sieve = sample.core, sample.sieve[0]
    rate = sieve.rate * 0.5
    if true.pools[0].held <= sieve.capacity:
        rate = max(rate, sieve.least)
    lower(sample, rate)
    _sift_absent(core, sample, shift)
    for key in range(true.numbers[KEYS_USED]):
        if key_lanes(true, key) != np.uint64(0):
            hashed, came = key_hash(true, key), sample.came[key]
            chance = sift(sample, hashed, sample.chance[key], came, core.numbers[ARRIVALS])
            sample.chance[key] = chance
            remember(sample, hashed, chance, came)
    for row in range(true.numbers[ROWS_USED]):
        if true.rows[row].arrival != NONE and sample.chance[true.rows[row].key] == 0.0:
            remove(true, NoIndex(0), Following(policy, False), row, shift)


@kernel
def _sift_absent(core, sample, shift):  # type: ignore[no-untyped-def]
    """Let go of the regulars but for those without rows that stay so."""
    regulars = sample.regulars
    count = sample.sieve[0].regulars
    sample.sieve[0].regulars = 0
    for place in range(count):
        hashed, came = regulars[place].hash, regulars[place].came
        if find_key(sample.core, hashed, shift) == NONE:
            chance = sift(sample, hashed, regulars[place].chance, came, core.numbers[ARRIVALS])
            remember(sample, hashed, chance, came)


@kernel
def expire_followed(core, policy, sample, row, shift):  # type: ignore[no-untyped-def]
    """Remove a row of the sample that its row window has left behind."""
    true = sample.core
    tell_time(core, sample)
    count(true, true.rows[row].stream, EXPIRED, 1)
    remove(true, NoIndex(0), Following(policy, True), row, shift)


@loop
def follow_again(policy, sample, batch, arrivals, anew, tell):  # type: ignore[no-untyped-def]
    """Enter rows into the sample after a restart, in the order of their arrival.

    Args:
        policy: the state of the policy.
        sample: the sample.
        batch: the rows.
        arrivals: their arrival numbers.
        anew: whether the sample begins anew, with those of the rows whose keys are followed.
        tell: whether the policy is told.
    """
    true = sample.core
    shift = home_shift(true.table)
    for i in range(batch.time.size):
        if anew and _followed_key(sample, batch.hash[i], shift) == NONE:
            continue
        row = place_row(true, batch, i, key_for(true, batch.hash[i], shift), arrivals[i])
        if tell:
            on_sample_restore(policy, true, row)
