"""The sample: some keys, chosen by hash, that are followed in full outside the shedding.

It is a second `Core` of the same kind, without payload and without a budget: of the keys in it
everything is known, and so what shedding costs them. As keys are chosen by nothing but their hash,
what holds of them holds of all, up to chance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import Core, Field
from streamshed.kernels.random import mix

EVERY = np.uint64(2**64 - 1)
"""The limit at which every key is in the sample."""

SIEVE = np.dtype(
    [
        ("limit", np.uint64),  # the largest lot that is in the sample; 0 if there is no sample
        ("salt", np.uint64),  # makes lots of hashes
        ("rate", np.float64),  # the part of all keys that the limit lets in
        ("least", np.float64),  # the rate at which thinning out ends, while there is room
        ("capacity", np.int64),  # rows beyond which the sample is thinned out in any case
        ("followed", np.int64),  # tuples followed at this rate
        ("step", np.int64),  # the length of a step of time
    ],
    align=True,
)

PATIENCE = 1 << 10
"""Tuples that are followed at a rate before the next lower one will do."""

GROUPS = 128
"""Random groups of keys, from whose differences the precision of an estimate is known."""
_GROUP = np.uint64(GROUPS - 1)

STEPS = 12
"""Steps in which the last minute goes by."""

STEP = np.dtype([("number", np.int64), ("missed", np.float64)], align=True)

MISSED = 0
TOTALS = 1


class Sample(NamedTuple):
    """The followed keys, and what was counted of them."""

    core: Core
    sieve: npt.NDArray[Any]
    totals: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64]  # by group: what the missed results add to the uncertainty
    steps: npt.NDArray[Any]  # a ring: the missed results of the last minute, step by step
    step_spread: npt.NDArray[np.float64]  # by (step, group)


def sample_layout() -> dict[str, Field]:
    """The arrays of a `Sample` besides its core."""
    return {
        "sieve": Field("once", SIEVE, kept=True),
        "totals": Field("once", np.float64, times=TOTALS, kept=True),
        "spread": Field("once", np.float64, times=GROUPS, kept=True),
        "steps": Field("once", STEP, -1, times=STEPS, kept=True),
        "step_spread": Field("once", np.float64, times=STEPS * GROUPS, kept=True),
    }


class Following(NamedTuple):
    """What stands in a policy's place for the rows of the sample: it tells the policy of them."""

    policy: Any
    expired: bool


@implements(hooks.removed, Following)
def _removed(policy, core, row):  # type: ignore[no-untyped-def]
    hooks.unfollowed(policy.policy, core, row, policy.expired)


@kernel
def lot(sample, hashed):  # type: ignore[no-untyped-def]
    """The number that decides whether a key is in the sample; its place in tables says nothing."""
    return mix(hashed ^ sample.sieve[0].salt)


@kernel
def in_sample(sample, hashed):  # type: ignore[no-untyped-def]
    """Whether a key is followed."""
    limit = sample.sieve[0].limit
    return limit != np.uint64(0) and lot(sample, hashed) <= limit


@kernel
def halve(sample):  # type: ignore[no-untyped-def]
    """Let in half as many keys from now on."""
    sample.sieve[0].limit >>= np.uint64(1)
    sample.sieve[0].rate *= 0.5
    sample.sieve[0].followed = 0


@kernel
def tally(sample, hashed, step, missed):  # type: ignore[no-untyped-def]
    """Count results that a followed key has missed, for all the keys that it stands for.

    Each is counted 1/p times where a part p of all keys is followed (Horvitz and Thompson), so that
    the expected count is the true one. The variance of that is (1 - p)/p² times the square of what
    a key has missed, summed over the keys followed; sums over random groups of keys have it too.
    """
    rate = sample.sieve[0].rate
    group = np.int64(lot(sample, hashed) & _GROUP)
    value = missed / rate
    spread = value * np.sqrt(1.0 - rate)
    sample.totals[MISSED] += value
    sample.spread[group] += spread
    place = step % STEPS
    if sample.steps[place].number != step:
        sample.steps[place].number = step
        sample.steps[place].missed = 0.0
        sample.step_spread[place * GROUPS : (place + 1) * GROUPS] = 0.0
    sample.steps[place].missed += value
    sample.step_spread[place * GROUPS + group] += spread
