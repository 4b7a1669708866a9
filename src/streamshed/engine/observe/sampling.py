"""The sample: some keys, chosen by hash, that are followed in full outside the shedding.

It is a second `Core` of the same kind, without payload and without a budget: of the keys in it
everything is known, and so what shedding costs them. As keys are chosen by nothing but their hash,
what holds of them holds of all, up to chance.

In the beginning all keys are followed. The more tuples have been followed, the fewer will do: the
sample is thinned out by halves, down to its rate. Of a key that comes as often as many others
together no other could take the place: such *regulars* are followed with a greater chance, the most
frequent for certain. The chance of a key is a matter of the tuples that have come, never of its
hash.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel, loop
from streamshed.kernels.core import NONE, Core, Field
from streamshed.kernels.random import mix

SIEVE = np.dtype(
    [
        ("limit", np.uint64),  # the largest lot that is in the sample; 0 if there is no sample
        ("salt", np.uint64),  # makes lots of hashes
        ("rate", np.float64),  # the part of all lots that the limit lets in
        ("least", np.float64),  # the rate at which thinning out ends, while there is room
        ("capacity", np.int64),  # rows beyond which the sample is thinned out in any case
        ("ordinary", np.int64),  # keys with more than one tuple in so many have a greater chance
        ("patience", np.int64),  # tuples followed at a rate before the next lower one will do
        ("followed", np.int64),  # tuples followed at this rate
        ("regulars", np.int64),  # how many there are
        ("step", np.int64),  # the length of a step of time
    ],
    align=True,
)

REGULAR = np.dtype([("hash", np.uint64), ("chance", np.float64), ("came", np.int64)], align=True)
"""A key that is followed with a greater chance than the rate; known while it has no rows, too."""
ORDINARY = 1 << 10
"""A key with more than one tuple in so many is a regular: so there are never more of them."""

GROUPS = 128
"""Random groups of keys, from whose differences the precision of an estimate is known."""
STEPS = 12
"""Steps in which the last minute goes by."""

TALLY = np.dtype(
    [
        ("number", np.int64),  # of the step, where there are steps
        ("missed", np.float64),  # results missed, each counted for all that it stands for
        ("certain", np.float64),  # those of keys that are followed for certain
        ("seen", np.float64),  # results missed by followed keys, each counted once
    ],
    align=True,
)

_ONE = np.uint64(1)
_GROUP = np.uint64(GROUPS - 1)
_FILTER = 64
_SIX = np.uint64(6)
_PLACE = np.uint64(63)
_LOTS = 2.0**64


class Sample(NamedTuple):
    """The followed keys, and what was counted of them."""

    core: Core
    sieve: npt.NDArray[Any]
    chance: npt.NDArray[np.float64]  # by key of the sample: how likely it was to be followed
    came: npt.NDArray[np.int64]  # by key of the sample: its tuples since it entered
    regulars: npt.NDArray[Any]  # in order of their hashes
    beyond: npt.NDArray[np.uint64]  # bits for the lots of regulars that are above the limit
    total: npt.NDArray[Any]  # the tally since the beginning
    spread: npt.NDArray[np.float64]  # by group: what the missed results add to the uncertainty
    steps: npt.NDArray[Any]  # a ring: the tallies of the last minute, step by step
    step_spread: npt.NDArray[np.float64]  # by (step, group)


def sample_layout() -> dict[str, Field]:
    """The arrays of a `Sample` besides its core."""
    return {
        "sieve": Field("once", SIEVE, kept=True),
        "chance": Field("sample key", np.float64, None, kept=True),
        "came": Field("sample key", np.int64, None, kept=True),
        "regulars": Field("once", REGULAR, times=ORDINARY, kept=True),
        "beyond": Field("once", np.uint64, times=_FILTER, kept=True),
        "total": Field("once", TALLY, kept=True),
        "spread": Field("once", np.float64, times=GROUPS, kept=True),
        "steps": Field("once", TALLY, times=STEPS, kept=True),
        "step_spread": Field("once", np.float64, times=STEPS * GROUPS, kept=True),
    }


class Following(NamedTuple):
    """What stands in a policy's place for the rows of the sample: it tells the policy of them."""

    policy: Any
    expired: bool


@implements(hooks.on_remove, Following)
def _removed(policy, core, row):  # type: ignore[no-untyped-def]
    hooks.on_sample_end(policy.policy, core, row, policy.expired)


@kernel
def lot(sample, hashed):  # type: ignore[no-untyped-def]
    """The number that decides whether a key is in the sample; its place in tables says nothing."""
    return mix(hashed ^ sample.sieve[0].salt)


@kernel
def may_be_followed(sample, hashed):  # type: ignore[no-untyped-def]
    """Whether a key is followed, or may be: a few others have the same bits as a regular."""
    limit = sample.sieve[0].limit
    if limit == np.uint64(0):
        return False
    word = lot(sample, hashed)
    bits = sample.beyond[np.int64((word >> _SIX) & _PLACE)]
    return word <= limit or (bits >> (word & _PLACE)) & _ONE == _ONE


@kernel
def is_followed(sample, hashed):  # type: ignore[no-untyped-def]
    """Whether a key is followed when it comes."""
    return lot(sample, hashed) <= sample.sieve[0].limit or _regular(sample, hashed) != NONE


@kernel
def enter(sample, key, hashed):  # type: ignore[no-untyped-def]
    """Begin to follow a key, or go on with a regular that had no rows."""
    place = _regular(sample, hashed)
    sample.chance[key] = sample.sieve[0].rate if place == NONE else sample.regulars[place].chance
    sample.came[key] = 0 if place == NONE else sample.regulars[place].came


@kernel
def _regular(sample, hashed):  # type: ignore[no-untyped-def]
    """The place of a key among the regulars, or NONE."""
    low, high = 0, sample.sieve[0].regulars
    while low < high:
        middle = (low + high) >> 1
        if sample.regulars[middle].hash < hashed:
            low = middle + 1
        else:
            high = middle
    if low < sample.sieve[0].regulars and sample.regulars[low].hash == hashed:
        return low
    return NONE


@kernel
def lower(sample, rate):  # type: ignore[no-untyped-def]
    """Lower the rate; then `sift` says of each key whether it stays."""
    sieve = sample.sieve
    sieve[0].rate = rate
    sieve[0].limit = np.uint64(rate * _LOTS) - _ONE
    sieve[0].followed = 0
    sample.beyond[:] = np.uint64(0)


@kernel
def sift(sample, hashed, chance, came, arrivals):  # type: ignore[no-untyped-def]
    """The chance of a key at the new rate, or 0 if it is followed no longer.

    A key's chance never grows: what was known of it so far was known with that chance, and who was
    not followed cannot be followed in full any more.

    Args:
        sample: the sample.
        hashed: the key.
        chance: the one it had.
        came: the tuples of it that have come.
        arrivals: all tuples that have come.
    """
    part = max(1.0, came * sample.sieve[0].ordinary / arrivals)
    chance = min(chance, sample.sieve[0].rate * part * part)
    word = lot(sample, hashed)
    if word <= sample.sieve[0].limit:
        return chance
    if np.float64(word) >= chance * _LOTS:
        return 0.0
    sample.beyond[np.int64((word >> _SIX) & _PLACE)] |= _ONE << (word & _PLACE)
    return chance


@kernel
def remember(sample, hashed, chance, came):  # type: ignore[no-untyped-def]
    """Enter a key among the regulars, if it is one."""
    if chance <= sample.sieve[0].rate:
        return
    place = sample.sieve[0].regulars
    while place > 0 and sample.regulars[place - 1].hash > hashed:
        sample.regulars[place].hash = sample.regulars[place - 1].hash
        sample.regulars[place].chance = sample.regulars[place - 1].chance
        sample.regulars[place].came = sample.regulars[place - 1].came
        place -= 1
    sample.regulars[place].hash = hashed
    sample.regulars[place].chance = chance
    sample.regulars[place].came = came
    sample.sieve[0].regulars += 1


@kernel
def tally(sample, key, hashed, step, missed):  # type: ignore[no-untyped-def]
    """Count results that a followed key has missed, for all the keys that it stands for.

    Each is counted 1/p times where the key is followed with chance p (Horvitz and Thompson), so
    that the expected count is the true one. The variance of that is (1 - p)/p² times the square of
    what a key has missed, summed over the keys followed; sums over random groups of keys have it
    too, and need no memory of keys that are gone.
    """
    chance = sample.chance[key]
    group = np.int64(lot(sample, hashed) & _GROUP)
    place = step % STEPS
    if sample.steps[place].number != step:
        sample.steps[place].number = step
        sample.steps[place].missed = 0.0
        sample.steps[place].certain = 0.0
        sample.steps[place].seen = 0.0
        sample.step_spread[place * GROUPS : (place + 1) * GROUPS] = 0.0
    _add(sample.total, 0, missed, chance)
    _add(sample.steps, place, missed, chance)
    spread = missed / chance * np.sqrt(1.0 - chance)
    sample.spread[group] += spread
    sample.step_spread[place * GROUPS + group] += spread


@kernel
def _add(tallies, place, missed, chance):  # type: ignore[no-untyped-def]
    tallies[place].missed += missed / chance
    tallies[place].seen += missed
    if chance == 1.0:
        tallies[place].certain += missed


@loop
def count_followed(sample, hashes):  # type: ignore[no-untyped-def]
    """How many of the tuples to come may be followed."""
    count = 0
    for i in range(hashes.size):
        count += may_be_followed(sample, hashes[i])
    return count
