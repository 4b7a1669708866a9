"""RandomDrop, the baseline: rows are dropped at random before the join, at the best rates.

After Ayad and Naughton 2004, as the GrubJoin paper uses them: which part of each stream is admitted
so that the join costs no more than allowed and makes the most results.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamshed.engine.gate.harvest_fractions import Directions
from streamshed.kernels.compiling import driver, kernel

ROUNDS = 400


@kernel
def _costs(directions, orders, admitted, shares):  # type: ignore[no-untyped-def]
    """The comparisons in a unit of time, and how much of them hangs on each stream.

    `shares` is what the cost changes by, in relation, when a stream is admitted more by a factor.
    """
    streams, steps = orders.shape
    shares[:] = 0.0
    total = 0.0
    for i in range(streams):
        partial = directions.rates[i] * admitted[i]
        for j in range(steps):
            size = directions.sizes[i, j] * admitted[orders[i, j]]
            cost = partial * size
            total += cost
            shares[i] += cost
            for k in range(j + 1):
                shares[orders[i, k]] += cost
            partial *= directions.selectivities[i, j] * size
    return total


@driver
def _best_shares(directions, orders, budget):  # type: ignore[no-untyped-def]
    streams = orders.shape[0]
    admitted, shares = np.ones(streams), np.empty(streams)
    if _costs(directions, orders, admitted, shares) <= budget:
        return admitted
    for turn in range(ROUNDS):
        # All streams that are not admitted whole have the same share in the cost, at the best.
        free = admitted < 1.0
        if turn == 0 or not free.any():
            free[:] = True
        mean = np.exp(np.log(np.maximum(shares[free], 1e-300)).mean())
        for i in range(streams):
            if free[i] or shares[i] > mean:
                admitted[i] = min(1.0, admitted[i] * (mean / max(shares[i], 1e-300)) ** 0.25)
        low, high = 0.0, 1.0 / admitted.min()
        trial = np.empty(streams)
        for _ in range(60):
            middle = (low + high) / 2
            trial[:] = np.minimum(1.0, admitted * middle)
            if _costs(directions, orders, trial, shares) <= budget:
                low = middle
            else:
                high = middle
        admitted[:] = np.minimum(1.0, admitted * low)
        _costs(directions, orders, admitted, shares)
    return admitted


def best_rates(
    directions: Directions, orders: npt.NDArray[np.int64], budget: float
) -> npt.NDArray[np.float64]:
    """The part of each stream that is admitted: the most results within a cost.

    Every result has a member of each stream, so their number goes with the product of the parts.
    The logarithm of the cost is convex in those of the parts; so what is found is the best.

    Args:
        directions: what is known of the streams; yields do not count here.
        orders: by (direction, step) the stream that is gone through.
        budget: the comparisons allowed in a unit of time.
    """
    found: npt.NDArray[np.float64] = _best_shares(directions, orders, budget)
    return found
