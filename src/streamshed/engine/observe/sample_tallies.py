"""What is tallied of the results of a second join: see `sample_join`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.observe.recorder import FINE
from streamshed.engine.observe.state import GROUPS, STEPS

VISITOR = 1 << 40
"""Places from here on are those of rows of a part that probe, and are not in the log."""


class Sums(NamedTuple):
    """What was counted: see `state.Loss`."""

    total: npt.NDArray[Any]
    spread: npt.NDArray[np.float64]  # by (stream, or facts, and group)
    steps: npt.NDArray[Any]
    step_spread: npt.NDArray[np.float64]


class Part(NamedTuple):
    """Rows that are replayed together: what their results are tallied by."""

    start: int  # the place of the first that is stored
    stored: npt.NDArray[np.int64]  # which of them are stored
    lots: npt.NDArray[np.uint64]
    steps: npt.NDArray[np.int64]  # the places of their steps; STEPS if such a step is over

    def rows(self, newcomers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Which rows of the part are at places, or visit."""
        visiting = newcomers >= VISITOR
        rows = newcomers - VISITOR
        rows[~visiting] = self.stored[newcomers[~visiting] - self.start]
        return rows


class Chance(NamedTuple):
    """Something that was drawn, and that results would not have been seen without."""

    drawn: int  # the member of a stream; or the fact, which comes after all streams
    levels: npt.NDArray[np.int64]  # by result: the chance is 2^(-level / FINE)
    lots: npt.NDArray[np.uint64]


def open_steps(
    sums: Sums, number: npt.NDArray[np.int64], made: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Begin the steps of time of some rows.

    Args:
        sums: the tallies.
        number: by row: the number of its step, in order.
        made: by row: the results made before it.

    Returns:
        By row: the place of its step. Of steps that are over none is told apart.
    """
    recent = number > number[-1] - STEPS
    begins = np.flatnonzero(recent & np.append(True, number[1:] != number[:-1]))
    steps = sums.steps
    for row in begins.tolist():
        place = int(number[row]) % STEPS
        if steps["number"][place] != number[row]:
            steps[place] = 0
            steps["number"][place] = number[row]
            steps["results"][place] = made[row]
            sums.step_spread.reshape(STEPS, -1)[place] = 0
    return np.where(recent, number % STEPS, STEPS)


def add_results(sums: Sums, steps: npt.NDArray[np.int64], chances: list[Chance]) -> None:
    """Count results for the inverse of their chances, given the places of their steps."""
    weight = np.ones(len(steps))
    for chance in chances:
        weight *= 2.0 ** (chance.levels / FINE)
    spread = sums.spread.reshape(-1, GROUPS)
    step_spread = sums.step_spread.reshape(STEPS, -1, GROUPS)
    for chance in chances:
        unsure = weight * np.sqrt(1.0 - 0.5 ** (chance.levels / FINE))
        group = (chance.lots % np.uint64(GROUPS)).astype(np.int64)
        spread[chance.drawn] += np.bincount(group, unsure, GROUPS)
        by_step = np.bincount(steps * GROUPS + group, unsure, (STEPS + 1) * GROUPS)
        step_spread[:, chance.drawn] += by_step.reshape(-1, GROUPS)[:STEPS]
    for name, counts in (("exact", weight), ("certain", weight == 1), ("seen", weight > 0)):
        sums.total[name] += counts.sum()
        sums.steps[name] += np.bincount(steps, counts, STEPS + 1)[:STEPS]
    heavy = weight > 1
    sums.total["weight"] = np.maximum(sums.total["weight"], weight[heavy].max(initial=0.0))
    for step in np.unique(steps[heavy & (steps < STEPS)]):
        heaviest = weight[heavy & (steps == step)].max()
        sums.steps["weight"][step] = max(sums.steps["weight"][step], heaviest)
