"""The program bounded by prices, where it is too large for a solver.

Say what a place in memory costs at each moment, λ ≥ 0, and share out what a result is worth among
the members that it needs, p ≥ 0. For any solution of the program the results are at most

    results + Σ λ · (budget − held) + Σ p · (what the rows allow − what is made),

as no bracket is negative. Put together anew, that is a sum of parts that can each be made as large
as they can be by themselves: Σ λ · budget; for each group what its size is above the shares given
away, if anything; and for each row the best moment to let it go, the largest of the sums of its
shares less its cost until then, or nothing. So every choice of prices gives an upper bound, and the
best prices give that of the program.

They are sought by going down the slope: a moment that is too full becomes dearer, and a group's
share moves to the streams whose rows are not kept. The steps are those of Adam (Kingma, Ba 2015),
ever shorter, each price in its own unit.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from streamshed_lab.offline.program import Program
from streamshed_lab.offline.solver import Solved
from streamshed_lab.offline.trace import Floats, Ints

STEPS = 200
STRIDE = 0.2
"""The first step, as a part of a typical price."""
MOMENTUM, MEMORY = 0.9, 0.99
"""Of Adam: how long slopes, and their squares, are remembered."""


class _Answer(NamedTuple):
    """What all do at some prices: the bound, the slope of it, and the part kept for each ask."""

    bound: float
    by_place: Floats
    by_share: Floats
    allowed: Floats


class _Adam:
    """Steps down a slope, in the unit of each price; prices stay above zero."""

    def __init__(self, unit: Floats) -> None:
        self.unit = unit
        self.slope = np.zeros_like(unit)
        self.square = np.zeros_like(unit)

    def step(self, prices: Floats, slope: Floats, number: int, stride: float) -> Floats:
        self.slope += (1 - MOMENTUM) * (slope - self.slope)
        self.square += (1 - MEMORY) * (slope**2 - self.square)
        mean = self.slope / (1 - MOMENTUM**number)
        size = np.sqrt(self.square / (1 - MEMORY**number))
        return np.maximum(prices - stride * self.unit * mean / (size + 1e-3), 0.0)


def priced(program: Program, seconds: float | None) -> Solved:
    """Bound the program by prices.

    Args:
        program: what to bound.
        seconds: after which to stop and take the best bound so far.
    """
    size, asker = program.needs.size, program.asker
    ends = time.monotonic() + (np.inf if seconds is None else seconds)
    shares = (size / np.bincount(asker, minlength=size.size))[asker]
    places = np.zeros(program.room.size)
    by_place = _Adam(np.full(places.size, size.sum() / program.room.sum()))
    by_share = _Adam(shares.copy())
    market = _Market(program)
    most, allowed = float(size.sum()), np.zeros(asker.size)
    for number in range(1, STEPS + 1):
        answer = market.answer(places, shares)
        most = min(most, answer.bound)
        allowed += answer.allowed
        if time.monotonic() > ends:
            break
        stride = STRIDE * (1 - (number - 1) / STEPS)
        places = by_place.step(places, answer.by_place, number, stride)
        shares = by_share.step(shares, answer.by_share, number, stride)
        # What is not given away is lost to the bound: shares add up to the size.
        given = np.bincount(asker, shares, minlength=size.size)
        shares *= (size / np.maximum(given, np.finfo(float).tiny))[asker]
    parts = np.full(size.size, np.inf)
    np.minimum.at(parts, asker, allowed / number)
    return Solved(most, parts)


class _Market:
    """Says what all rows and groups do at given prices."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.offers = program.asks.T.tocsr()
        row = program.uses.row
        self.begins = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
        self.lengths = np.diff(np.concatenate([self.begins, [row.size]]))

    def answer(self, places: Floats, shares: Floats) -> _Answer:
        program = self.program
        sums = np.concatenate([[0.0], np.cumsum(places)])
        gain = self.offers @ shares - (sums[program.past] - sums[program.first])
        best, kept = self._kept(gain)
        given = np.bincount(program.asker, shares, minlength=program.needs.size.size)
        left = program.needs.size - given
        made = left >= -1e-12 * program.needs.size
        moments = program.room.size
        change = np.bincount(program.first, kept, moments + 1)
        change -= np.bincount(program.past, kept, moments + 1)
        allowed = program.asks @ kept
        return _Answer(
            bound=float(places @ program.room + np.maximum(left, 0.0).sum() + best),
            by_place=program.room - np.cumsum(change)[:moments],
            by_share=allowed - made[program.asker],
            allowed=allowed,
        )

    def _kept(self, gain: Floats) -> tuple[float, Floats]:
        """What the rows gain at best, and until which uses they are then kept."""
        sums = np.cumsum(gain)
        sums -= np.repeat(sums[self.begins] - gain[self.begins], self.lengths)
        best = np.maximum(np.maximum.reduceat(sums, self.begins), 0.0)
        ends = (sums >= np.repeat(best, self.lengths)) & (sums > 0)
        passed: Ints = np.cumsum(ends) - ends
        until = passed[self.begins + self.lengths - 1] + ends[self.begins + self.lengths - 1]
        return float(best.sum()), (passed < np.repeat(until, self.lengths)).astype(np.float64)
