"""How often keys come that come again and again: learned from those followed in full.

Of each key the arrivals in each lane are counted, older ones for less. What these counts say of the
arrivals to come is learned by a regression for each lane, on the key's own rate there and on its
mean rate elsewhere: where a key is as popular in all streams the latter counts, where each stream
has favourites of its own the former does, and where all keys are alike neither. A key that has not
come for some time comes less often than its counts say, or not at all: for that there is a factor
for each halving of the window.

A state with such rates has the arrays of `returning_layout`.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import aside, kernel
from streamshed.kernels.core import Field

ONCE = 1024
"""An arrival in a count, which are whole numbers so that they take little room."""
MEMORY = 6.0
"""Windows after which an arrival is forgotten."""
SILENCES = 8
"""Halvings of the window, by which the time since the last arrival is told apart."""
BEGINNING = 1.0
"""How much data outweighs what is assumed at first: both rates count half."""
ROUGHNESS = 0.02
"""Arrivals vary as their rate; this is the variance that is left where a rate is 0."""

FIT = 12
_OWN, _ELSEWHERE = 1, 2
_SUMS, _TARGETS, _WEIGHTS = 0, 6, 9
"""In the numbers of a regression: six sums of products, three with the target, three weights."""


def returning_layout(lanes: int) -> dict[str, Field]:
    """The arrays of a state with rates."""
    return {
        "fit": Field("once", np.float64, times=lanes * FIT, kept=True),
        "silence": Field("once", np.float64, times=2 * SILENCES, kept=True),
        "rates": Field("once", np.float64, times=lanes),
    }


@kernel
def count_arrival(counts, base, lanes, lane, gap):  # type: ignore[no-untyped-def]
    """Count an arrival of a key in a lane, so many windows after the one before."""
    fading = _fading(gap)
    for other in range(lanes):
        counts[base + other] = np.int32(counts[base + other] * fading)
    counts[base + lane] += np.int32(ONCE)


@kernel
def _fading(gap):  # type: ignore[no-untyped-def]
    return 1.0 - min(gap / MEMORY, 1.0)


@kernel
def per_window(known, gap):  # type: ignore[no-untyped-def]
    """What makes counts into arrivals in a window.

    Args:
        known: for how many windows the key had been known when it last came.
        gap: windows since.
    """
    fading = _fading(gap)
    return fading / ((min(known, MEMORY) * fading + gap + 1.0) * ONCE)


@kernel
def _elsewhere(counts, base, lanes, lane):  # type: ignore[no-untyped-def]
    total = np.int64(0)
    for other in range(lanes):
        total += np.int64(counts[base + other])
    return np.float64(total - counts[base + lane]) / max(lanes - 1, 1)


@kernel
def silence(gap):  # type: ignore[no-untyped-def]
    """Which halving of the window a time since the last arrival falls into."""
    found = 0
    edge = 1.0 / (1 << (SILENCES - 1))
    for _ in range(SILENCES - 1):
        if gap > edge:
            found += 1
        edge *= 2.0
    return found


@kernel
def watch(policy, counts, base, lanes, known, begin, end):  # type: ignore[no-untyped-def]
    """A followed key was under watch from the one to the other time after its last arrival."""
    if end <= begin:
        return
    middle = 0.5 * (begin + end)
    scale = per_window(known, middle)
    expected = 0.0
    for lane in range(lanes):
        own = counts[base + lane] * scale
        elsewhere = _elsewhere(counts, base, lanes, lane) * scale
        weight = (end - begin) / (ROUGHNESS + own + elsewhere)
        sums = lane * FIT + _SUMS
        policy.fit[sums] += weight
        policy.fit[sums + 1] += weight * own
        policy.fit[sums + 2] += weight * elsewhere
        policy.fit[sums + 3] += weight * own * own
        policy.fit[sums + 4] += weight * own * elsewhere
        policy.fit[sums + 5] += weight * elsewhere * elsewhere
        expected += _rate(policy, lane, own, elsewhere)
    edge, before = 1.0 / (1 << (SILENCES - 1)), 0.0
    for part in range(SILENCES):
        after = end if part == SILENCES - 1 else min(edge, end)
        first = max(before, begin)
        if after > first:
            policy.silence[2 * part] += expected * (after - first)
        before = edge
        edge *= 2.0


@kernel
def witness(policy, counts, base, lanes, lane, known, gap):  # type: ignore[no-untyped-def]
    """A followed key under watch has come to a lane."""
    scale = per_window(known, gap)
    own = counts[base + lane] * scale
    elsewhere = _elsewhere(counts, base, lanes, lane) * scale
    weight = 1.0 / (ROUGHNESS + own + elsewhere)
    targets = lane * FIT + _TARGETS
    policy.fit[targets] += weight
    policy.fit[targets + _OWN] += weight * own
    policy.fit[targets + _ELSEWHERE] += weight * elsewhere
    policy.silence[2 * silence(gap) + 1] += 1.0


@kernel
def _rate(policy, lane, own, elsewhere):  # type: ignore[no-untyped-def]
    weights = lane * FIT + _WEIGHTS
    fit = policy.fit
    return fit[weights] + fit[weights + 1] * own + fit[weights + 2] * elsewhere


@kernel
def expect(policy, counts, base, lanes, known, gap):  # type: ignore[no-untyped-def]
    """Put the arrivals that a key will have in a window into `rates`; returns their sum."""
    scale = per_window(known, gap)
    total = 0.0
    for lane in range(lanes):
        own = counts[base + lane] * scale
        elsewhere = _elsewhere(counts, base, lanes, lane) * scale
        policy.rates[lane] = _rate(policy, lane, own, elsewhere)
        total += policy.rates[lane]
    return total


@kernel
def liveliness(policy, gap):  # type: ignore[no-untyped-def]
    """How many of the arrivals expected of keys come that were silent for as long."""
    part = 2 * silence(gap)
    return (policy.silence[part + 1] + 1.0) / (policy.silence[part] + 1.0)


@aside
def regress(policy, lanes):  # type: ignore[no-untyped-def]
    """Find the weights of each lane anew: least squares, none of them below 0."""
    fit = policy.fit
    for lane in range(lanes):
        sums, targets, weights = lane * FIT, lane * FIT + _TARGETS, lane * FIT + _WEIGHTS
        a, b, c = fit[sums] + BEGINNING, fit[sums + 1], fit[sums + 2]
        d, e, f = fit[sums + 3] + BEGINNING, fit[sums + 4], fit[sums + 5] + BEGINNING
        x, y, z = fit[targets], fit[targets + 1] + 0.5 * BEGINNING, fit[targets + 2]
        z += 0.5 * BEGINNING
        own_share, other_share = b / a, c / a
        d, e, f = d - own_share * b, e - own_share * c, f - other_share * c
        y, z = y - own_share * x, z - other_share * x
        other = (z - e / d * y) / (f - e / d * e)
        own = (y - e * other) / d
        if other < 0.0:
            other, own = 0.0, y / d
        elif own < 0.0:
            own, other = 0.0, z / f
        own, other = max(own, 0.0), max(other, 0.0)
        fit[weights] = max((x - b * own - c * other) / a, 0.0)
        fit[weights + 1] = own
        fit[weights + 2] = other


@aside
def fade(policy, lanes):  # type: ignore[no-untyped-def]
    """Let what was learned count half."""
    for lane in range(lanes):
        for i in range(lane * FIT, lane * FIT + _WEIGHTS):
            policy.fit[i] *= 0.5
    for i in range(2 * SILENCES):
        policy.silence[i] *= 0.5
