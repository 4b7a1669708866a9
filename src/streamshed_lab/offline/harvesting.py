"""The best harvest fractions, by brute force (GrubJoin, section IV-D)."""

from __future__ import annotations

import numpy as np

from streamshed.engine.gate.harvest_fractions import (
    Directions,
    Numbers,
    Taken,
    budget_of,
    direction,
)
from streamshed.kernels.compiling import driver


def best(directions: Directions, throttle: float) -> Taken:
    """The numbers with the most output of all that cost at most a part of the full join.

    All settings of each direction are listed, and those left out that cost no less than another
    and yield no more; then all combinations of the rest are tried (section IV-D).
    """
    budget = budget_of(directions, throttle)
    lists = [_frontier(directions, i, budget) for i in range(len(directions.rates))]
    chosen = _best_of([costs for _, costs, _ in lists], [made for _, _, made in lists], budget)
    return np.array([lists[i][0][at] for i, at in enumerate(chosen)])


def _frontier(directions: Directions, i: int, budget: float) -> tuple[Taken, Numbers, Numbers]:
    """The settings of a direction that are worth considering, by cost: they, costs, outputs."""
    ranges = [np.arange(1, parts + 1) for parts in directions.parts[i]]
    settings = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, len(ranges))
    settings = np.concatenate([np.zeros((1, len(ranges)), np.int64), settings])
    costs, outputs = _all_of_direction(directions, i, settings)
    order = np.lexsort((-outputs, costs))
    order = order[costs[order] <= budget]
    before = np.maximum.accumulate(np.concatenate([[-1.0], outputs[order][:-1]]))
    order = order[outputs[order] > before]
    return settings[order], costs[order], outputs[order]


@driver
def _all_of_direction(directions, i, settings):  # type: ignore[no-untyped-def]
    taken = np.zeros(directions.parts.shape, np.int64)
    costs, outputs = np.empty(len(settings)), np.empty(len(settings))
    for k in range(len(settings)):
        taken[i] = settings[k]
        costs[k], outputs[k] = direction(directions, taken, i)
    return costs, outputs


def _best_of(costs: list[Numbers], outputs: list[Numbers], budget: float) -> list[int]:
    """The combination of one setting of each direction with the most output within the budget."""
    first = len(costs[0])
    if len(costs) == 1:
        return [int(np.searchsorted(costs[0], budget, "right")) - 1]
    best_output, best_choice = -1.0, [0] * len(costs)
    if len(costs) == 2:
        # Both lists rise: for each of the one, the dearest of the other that is left.
        fits = np.searchsorted(costs[1], budget - costs[0], "right") - 1
        sums = np.where(fits >= 0, outputs[0] + outputs[1][np.maximum(fits, 0)], -1.0)
        at = int(np.argmax(sums))
        return [at, int(max(fits[at], 0))]
    for k in range(first):
        rest = _best_of(costs[1:], outputs[1:], budget - costs[0][k])
        spent = costs[0][k] + sum(costs[i + 1][at] for i, at in enumerate(rest))
        made = outputs[0][k] + sum(outputs[i + 1][at] for i, at in enumerate(rest))
        if spent <= budget and made > best_output:
            best_output, best_choice = made, [k, *rest]
    return best_choice
