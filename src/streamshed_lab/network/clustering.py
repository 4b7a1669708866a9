"""Clusters of sensors and their heads: HEED (Younis, Fahmy 2004)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamshed.errors import StreamshedError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FIRST_HEADS, LEAST_CHANCE = 0.05, 1e-4
"""HEED's C_prob and p_min."""


@dataclass(frozen=True)
class Clusters:
    """Which cluster each sensor is in.

    Attributes:
        heads: the sensor that heads each cluster, in order.
        cluster: of each sensor, numbered as the heads.
    """

    heads: Ints
    cluster: Ints

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def sizes(self) -> Ints:
        """How many sensors each cluster has."""
        return np.bincount(self.cluster, minlength=len(self.heads))


def heed(positions: Floats, within: float, seed: int = 0) -> Clusters:
    """Elect heads so that every sensor has one within range, and let each sensor join one.

    In rounds, a sensor that hears of no head within range becomes a tentative one by a chance that
    doubles, beginning with its part of energy (drawn from the seed). Among tentative heads within
    range of each other the one of the least cost stays, where cost is the mean distance to the
    sensors within range (HEED's AMRP, with power that grows with distance).

    Args:
        positions: x and y of each sensor.
        within: the range of a cluster: how far a head may be from its members.
        seed: of the energies and of the chances.

    Examples:
        >>> clusters = heed(np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0]]), within=1.0)
        >>> len(clusters), clusters.sizes.tolist()
        (2, [2, 1])
    """
    if not within > 0:
        raise StreamshedError(f"the range of clusters is {within!r}; give a length above 0")
    random = np.random.default_rng([seed, 11])
    count = len(positions)
    distances = np.linalg.norm(positions[:, None] - positions[None, :], axis=2)
    near = distances <= within
    cost = np.where(near, distances, 0.0).sum(axis=1) / np.maximum(near.sum(axis=1) - 1, 1)
    chance = np.maximum(FIRST_HEADS * random.uniform(0.5, 1.0, count), LEAST_CHANCE)
    tentative, final = np.zeros(count, bool), np.zeros(count, bool)
    while True:
        best = _least_cost(near, tentative | final, cost)
        sure = chance >= 1.0
        lone = best == -1
        mine = best == np.arange(count)
        final |= mine & sure
        tentative = (mine & ~sure) | (lone & (random.random(count) < chance))
        if sure.all():
            break
        chance = np.minimum(2 * chance, 1.0)
    # Who has heard of no head announces itself; the others near by hear of that.
    for sensor in np.argsort(cost, kind="stable"):
        final[sensor] |= not (near[sensor] & final).any()
    heads = np.flatnonzero(final)
    best = _least_cost(near, final, cost)
    best[heads] = heads
    return Clusters(heads, np.searchsorted(heads, best))


def _least_cost(near: npt.NDArray[np.bool_], heads: npt.NDArray[np.bool_], cost: Floats) -> Ints:
    """For each sensor the head within range of the least cost, or -1."""
    costs = np.where(near & heads[None, :], cost[None, :], np.inf)
    best = costs.argmin(axis=1)
    return np.where(np.isfinite(costs[np.arange(len(cost)), best]), best, -1)
