"""Window harvesting: how many basic windows of each window are gone through, for the most results.

Section IV of the GrubJoin paper. A newcomer of stream i (a *direction*) goes through the windows of
the others step by step. Of each window it takes the most valuable basic windows, so many that the
cost stays within bounds. Cost and output of a direction depend on its own numbers alone.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import driver, kernel

Numbers = npt.NDArray[np.float64]
Taken = npt.NDArray[np.int64]
"""By (direction, step): how many basic windows are gone through. None of a direction, or some of
each of its windows: what stops halfway makes no results."""

Metric = Literal["output", "output per cost", "more output per more cost"]
METRICS: tuple[Metric, ...] = ("output", "output per cost", "more output per more cost")
"""The evaluation metrics of section V-A: BO, BOpC and BDOpDC."""


class Directions(NamedTuple):
    """What is known of each direction.

    `yields` has by (direction, step, number of basic windows) the part of all partners that the
    most valuable so many hold (the paper's P).
    """

    rates: Numbers  # by direction: newcomers in a unit of time (λ)
    sizes: Numbers  # by (direction, step): rows of the window (S)
    selectivities: Numbers  # by (direction, step): the part of rows that agree (σ)
    parts: Taken  # by (direction, step): basic windows (n)
    yields: Numbers


class Ranked(NamedTuple):
    """The basic windows of a window, the most valuable first, and what so many of them yield."""

    order: Taken
    yields: Numbers


def ranked(scores: Numbers, by_age: bool = False) -> Ranked:
    """Rank basic windows by their scores (section IV-B); equals stay in the order of age.

    Args:
        scores: of the basic windows, the newest first.
        by_age: whether they can only be gone through from the newest on.

    Example:
        >>> order, yields = ranked(np.array([1.0, 3.0, 0.0]))
        >>> order.tolist(), yields.tolist()
        ([1, 0, 2], [0.0, 0.75, 1.0, 1.0])
        >>> order, yields = ranked(np.array([1.0, 3.0, 0.0]), by_age=True)
        >>> order.tolist(), yields.tolist()
        ([0, 1, 2], [0.0, 0.25, 1.0, 1.0])
    """
    order = np.arange(len(scores)) if by_age else np.argsort(-scores, kind="stable")
    total = scores.sum()
    # Where nothing is known all are worth the same.
    share = scores[order] / total if total > 0 else np.full(len(scores), 1 / len(scores))
    return Ranked(order, np.concatenate([[0.0], np.minimum(np.cumsum(share), 1.0)]))


@kernel
def direction(directions, taken, i):  # type: ignore[no-untyped-def]
    """Cost and output of a direction: C and O of section IV-C."""
    cost = 0.0
    partial = directions.rates[i]  # the choices so far, in a unit of time
    for j in range(taken.shape[1]):
        count = taken[i, j]
        size = directions.sizes[i, j]
        cost += partial * size * count / directions.parts[i, j]
        partial *= directions.yields[i, j, count] * directions.selectivities[i, j] * size
    return cost, partial


@kernel
def evaluate(directions, taken):  # type: ignore[no-untyped-def]
    """The comparisons, and the results, in a unit of time."""
    cost, output = 0.0, 0.0
    for i in range(taken.shape[0]):
        more, made = direction(directions, taken, i)
        cost += more
        output += made
    return cost, output


@driver
def cost_and_output(directions, taken):  # type: ignore[no-untyped-def]
    """What `evaluate` says, for callers in Python."""
    return evaluate(directions, taken)


def everything(directions: Directions) -> Taken:
    """All basic windows of all windows."""
    return directions.parts.copy()


def full_cost(directions: Directions) -> float:
    """The comparisons of the full join in a unit of time: C(1)."""
    return float(cost_and_output(directions, everything(directions))[0])


def budget_of(directions: Directions, throttle: float) -> float:
    """The comparisons that are allowed; sums are off by a little, in whatever order."""
    return throttle * full_cost(directions) * (1 + 1e-9)


# -- greedy --------------------------------------------------------------------------------------


def greedy(
    directions: Directions,
    throttle: float,
    metric: Metric = "more output per more cost",
    side: Literal["forward", "reverse", "double"] = "double",
) -> Taken:
    """Numbers that are nearly the best, found step by step (section V-A).

    Args:
        directions: what is known of each direction.
        throttle: the part of the full join's cost that is allowed (z).
        metric: by which steps are compared.
        side: from nothing on, from everything down, or whichever is shorter (section VI-A).
    """
    budget = budget_of(directions, throttle)
    streams = len(directions.rates)
    if side == "double":
        side = "forward" if throttle <= 0.5 ** ((streams - 1) / 2) else "reverse"
    taken = np.zeros_like(directions.parts) if side == "forward" else everything(directions)
    if side == "reverse":
        _descend(directions, taken, budget, METRICS.index(metric))
    _climb(directions, taken, budget, METRICS.index(metric))
    return taken


@kernel
def _score(metric, cost, output, more_cost, more_output):  # type: ignore[no-untyped-def]
    """How good a step is that leads to a cost and an output, by more of each."""
    if metric == 0:
        return output
    if metric == 1:
        return output / cost if cost > 0.0 else np.inf
    return more_output / more_cost if more_cost > 0.0 else np.inf


@driver
def _climb(directions, taken, budget, metric):  # type: ignore[no-untyped-def]
    """Take one basic window more at a time, the best first, while the cost allows."""
    streams, steps = taken.shape
    costs, outputs = np.zeros(streams), np.zeros(streams)
    frozen = np.zeros((streams, steps), np.bool_)
    for i in range(streams):
        costs[i], outputs[i] = direction(directions, taken, i)
    while True:
        cost, output = costs.sum(), outputs.sum()
        best_score, best_i, best_j = -1.0, -1, -1
        for i in range(streams):
            unused = taken[i, 0] == 0
            for j in range(1 if unused else steps):
                if frozen[i, j] or taken[i, j] == directions.parts[i, j]:
                    continue
                _step(taken, i, j, unused, 1)
                new_cost, new_output = direction(directions, taken, i)
                _step(taken, i, j, unused, -1)
                more, made = new_cost - costs[i], new_output - outputs[i]
                if cost + more > budget:
                    frozen[i, j] = True
                    continue
                score = _score(metric, cost + more, output + made, more, made)
                if score > best_score:
                    best_score, best_i, best_j = score, i, j
        if best_i < 0:
            return
        _step(taken, best_i, best_j, taken[best_i, 0] == 0, 1)
        costs[best_i], outputs[best_i] = direction(directions, taken, best_i)


@kernel
def _step(taken, i, j, whole, change):  # type: ignore[no-untyped-def]
    """Take one basic window more or less: of all windows where a direction begins or ends."""
    if whole:
        for k in range(taken.shape[1]):
            taken[i, k] += change
    else:
        taken[i, j] += change


@driver
def _descend(directions, taken, budget, metric):  # type: ignore[no-untyped-def]
    """Leave one basic window out at a time, the least loss first, until the cost is allowed.

    Where a window is down to one, the whole direction is left out.
    """
    streams, steps = taken.shape
    costs, outputs = np.zeros(streams), np.zeros(streams)
    before = np.empty(steps, np.int64)
    for i in range(streams):
        costs[i], outputs[i] = direction(directions, taken, i)
    while costs.sum() > budget:
        cost, output = costs.sum(), outputs.sum()
        best_score, best_i, best_j = -np.inf, -1, -1
        for i in range(streams):
            if taken[i, 0] == 0:
                continue
            for j in range(steps):
                before[:] = taken[i]
                _leave_out(taken, i, j)
                new_cost, new_output = direction(directions, taken, i)
                taken[i] = before
                saved, lost = costs[i] - new_cost, outputs[i] - new_output
                score = _score(metric, cost - saved, output - lost, saved, lost)
                if metric == 2:
                    score = -score if saved > 0.0 else -np.inf
                if best_i < 0 or score > best_score:
                    best_score, best_i, best_j = score, i, j
        if best_i < 0:
            return
        _leave_out(taken, best_i, best_j)
        costs[best_i], outputs[best_i] = direction(directions, taken, best_i)


@kernel
def _leave_out(taken, i, j):  # type: ignore[no-untyped-def]
    """Take one basic window less; or none of the direction at all, where it was the last one."""
    if taken[i, j] > 1:
        taken[i, j] -= 1
    else:
        taken[i] = 0
