"""How often keys come that come again and again: arrivals excite arrivals.

Of each key and stream two counts of arrivals fade, a fast and a slow one. What they say of the
arrivals to come is found by least squares: a Hawkes process with exponential kernels.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.age_buckets import now
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.core import NONE
from streamshed.kernels.key_states import MOST_NAMED, NO_BITS, ONE_BIT, named
from streamshed.kernels.random import mix
from streamshed.kernels.recurrence import BURST, COUNTS, FAST, SLOW, gap_of, hear

RIPENING = 0.5
"""Windows for which a key is taken to have been known before it came."""
OWN = 0.5
"""How much of the arrivals in a stream is taken at first to follow from those in it."""
CAUTION = 4.0
"""How much data outweighs what is taken at first."""
ROUGH = 0.02
"""Arrivals vary as their rate; this is the variance that is left where a rate is 0."""
LEARNED_FULLY = 4096
"""Arrivals that are all learned from; then one in four is."""
ROWS_SEEN = 2
"""Where the rows noted so far stand in the numbers of a key history."""

_THREE = np.uint64(3)


def fits_of(lanes: int) -> int:
    """The numbers of a fit: sums of products, targets and weights."""
    return 8 * lanes * lanes if 1 < lanes <= MOST_NAMED else 1


@kernel
def ripeness(policy, note, time):  # type: ignore[no-untyped-def]
    """What makes arrivals in a window of slow counts, as the key may be known for a short time."""
    known = (time - note.begin) / policy.horizon[0]
    return SLOW / (SLOW * (1.0 - np.exp(-known / SLOW)) + RIPENING)


@kernel
def count_arrival(policy, core, key, lane, returned):  # type: ignore[no-untyped-def]
    """Count an arrival, and find anew what is to come; learn, if the key returned before."""
    lanes, base, counts = core.settings.lanes, key * core.settings.lanes, policy.counts
    note = policy.notes[key]
    gap = (now(core) - note.last) / policy.horizon[0]
    if returned == 1:
        place = gap_of(policy, gap)
        hear(policy, core, note, counts, base, lane, place)
        if is_learned_from(policy):
            learn_rates(policy, core, note, counts, base, lane, gap)
        if now(core) - note.first >= BURST * policy.horizon[0]:
            policy.notes[key].first, policy.notes[key].opened = now(core), place
    policy.notes[key].heard = 0
    if note.returns == 1:
        policy.notes[key].lanes |= ONE_BIT << np.uint64(lane)
    fast, slow = np.float32(np.exp(-gap / FAST)), np.float32(np.exp(-gap / SLOW))
    for i in range(COUNTS * base, COUNTS * (base + lanes), COUNTS):
        counts[i] *= fast
        counts[i + 1] *= slow
    counts[COUNTS * (base + lane)] += np.float32(1.0 / FAST)
    counts[COUNTS * (base + lane) + 1] += np.float32(1.0 / SLOW)
    if note.returns == 1 or note.lost != NO_BITS:
        total = expect(policy, core, base, ripeness(policy, note, now(core)))
        if returned == 0 and note.returns == 1:
            policy.fresh[0] += 1.0
            policy.fresh[1] += total


@kernel
def expect(policy, core, base, ripe):  # type: ignore[no-untyped-def]
    """What is to come of each lane in a window, as counts stand; the sum of it."""
    lanes, counts, fit = core.settings.lanes, policy.counts, policy.fit
    total = 0.0
    if lanes > MOST_NAMED:
        fasts, slows = 0.0, 0.0
        for i in range(COUNTS * base, COUNTS * (base + lanes), COUNTS):
            fasts += counts[i]
            slows += counts[i + 1] * ripe
        away = 0.5 * (1.0 - OWN) / (lanes - 1)
        own = 0.5 * OWN - away
        for i in range(COUNTS * base, COUNTS * (base + lanes), COUNTS):
            counts[i + 2] = np.float32(own * counts[i] + away * fasts)
            counts[i + 3] = np.float32(own * counts[i + 1] * ripe + away * slows)
        return 0.5 * (fasts + slows)
    weight = 6 * lanes * lanes
    for to in range(COUNTS * base, COUNTS * (base + lanes), COUNTS):
        fasts, slows = 0.0, 0.0
        for i in range(COUNTS * base, COUNTS * (base + lanes), COUNTS):
            fasts += fit[weight] * counts[i]
            slows += fit[weight + 1] * counts[i + 1]
            weight += 2
        counts[to + 2] = np.float32(fasts)
        counts[to + 3] = np.float32(slows * ripe)
        total += fasts + slows * ripe
    return total


@kernel
def is_learned_from(policy):  # type: ignore[no-untyped-def]
    """All gaps that end with the first arrivals are learned from, then one in four.

    Whether a key came or was given up: gaps of one kind alone would say that keys come more often
    than they do, or more seldom.
    """
    seen = policy.numbers[ROWS_SEEN]
    return seen <= LEARNED_FULLY or mix(np.uint64(seen)) & _THREE == NO_BITS


@cold_kernel
def learn_rates(policy, core, note, counts, base, lane, gap):  # type: ignore[no-untyped-def]
    """Learn from the time since a key last came; lane: where it has come now, or NONE."""
    fit, lanes = policy.fit, core.settings.lanes
    if lanes > MOST_NAMED:
        return
    ripe = ripeness(policy, note, note.last)
    fast, slow = np.exp(-gap / FAST), np.exp(-gap / SLOW)
    fasts = 0.5 * FAST * (1.0 - fast * fast)
    slows = 0.5 * SLOW * (1.0 - slow * slow) * ripe * ripe
    both = (1.0 - fast * slow) / (1.0 / FAST + 1.0 / SLOW) * ripe
    first, end = COUNTS * base, COUNTS * (base + lanes)
    total = 0.0
    for i in range(first, end, COUNTS):
        total += counts[i] + counts[i + 1] * ripe
    weight = lanes / (ROUGH * lanes + total)
    features = 2 * lanes
    target = features * features + lane * features
    at = 0
    for i in range(first, end, COUNTS):
        x, y = weight * counts[i], weight * counts[i + 1]
        to = at
        for j in range(first, i + 1, COUNTS):
            fit[to] += x * counts[j] * fasts
            fit[to + 1] += x * counts[j + 1] * both
            fit[to + features] += y * counts[j] * both
            fit[to + features + 1] += y * counts[j + 1] * slows
            to += 2
        at += 2 * features
        if lane != NONE:
            fit[target] += x * fast
            fit[target + 1] += y * slow * ripe
            target += 2


@cold_kernel
def regress(policy, core):  # type: ignore[no-untyped-def]
    """Find the weights anew: least squares, none of them below 0, one after the other."""
    fit, lanes = policy.fit, core.settings.lanes
    if not named(core):
        return
    features = 2 * lanes
    for lane in range(lanes):
        target = features * features + lane * features
        weight = target + lanes * features
        for _ in range(20):
            for i in range(features):
                begins = 0.5 * OWN if i // 2 == lane else 0.5 * (1.0 - OWN) / (lanes - 1)
                rest = fit[target + i] + CAUTION * begins
                for j in range(features):
                    if j != i:
                        rest -= fit[max(i, j) * features + min(i, j)] * fit[weight + j]
                fit[weight + i] = max(rest / (fit[i * features + i] + CAUTION), 0.0)
