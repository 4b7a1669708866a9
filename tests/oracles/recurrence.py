"""How much more often keys come than their rates say (docs/meaning.md, Density), with dicts."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache

import numpy as np

from .lives import CELLS, MIDDLE, MOST_NAMED

FAST, SLOW = 0.3, 3.0
GAPS, AHEAD, BURST, TRUST = 15, 0.03, 0.01, 0.7
AHEADS = [AHEAD, 3 * AHEAD, 9 * AHEAD, 27 * AHEAD]
FEW_BY_GAP, FEW_BY_SET, FEW_BY_PACE = 0.5, 8.0, 4.0
PACES, LEAST_PACE, DOUBT = 8, -6, 0.1
EVEN = 0.1

Streams = frozenset[int] | int
"""The streams that a key came to, or with many streams how many."""
Bin = tuple[int, int, int]
"""What is counted by gap: for a stream, a pace, and a bin of gaps."""
Set = tuple[int, Streams]
"""What is counted by the streams that a key came to: for a stream, and a set."""


def begin(place: int) -> float:
    """Where a bin of gaps begins, in windows."""
    return 0.0 if place == 0 else 2.0 ** (place - 1) / CELLS


@cache
def part_of(place: int, fades: float) -> float:
    """The part of a count that falls into a bin of gaps."""
    return fades * (math.exp(-begin(place) / fades) - math.exp(-begin(place + 1) / fades))


class Recurrence:
    """What was expected and what came, by the gap and by the streams that a key came to."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.named = 1 < lanes <= MOST_NAMED
        self.groups = range(lanes) if self.named else range(1)
        self.came: dict[Bin, float] = defaultdict(float)
        self.fast: dict[Bin, float] = defaultdict(float)
        self.slow: dict[Bin, float] = defaultdict(float)
        self.factors: dict[Bin, float] = {}
        self.came_of_set: dict[Set, float] = defaultdict(float)
        self.expected_of_set: dict[Set, float] = defaultdict(float)
        self.factors_of_sets: dict[Set, float] = {}
        self.fades: dict[tuple[int, int, int], list[list[float]]] = {}
        self.find_anew()

    def group(self, lane: int) -> int:
        """Streams are told apart if they are few."""
        return lane if self.named else 0

    def streams(self, lanes: set[int]) -> Streams:
        """The streams that a key came to, as they are told apart."""
        return frozenset(lanes) if self.named else len(lanes)

    def bin(self, gap: float, window: float) -> int:
        """Which bin a gap is in: the doublings of the cells of a window."""
        cell = int(gap * window * (CELLS / (window + 1.0)))
        return min(max(cell, 0).bit_length(), GAPS - 1)

    def pace(self, rate: float) -> int:
        """Which pace a rate is: by factors of 4."""
        if not self.named:
            return 0
        exponent = math.frexp(np.float32(rate))[1] - 1 if rate else LEAST_PACE
        return min(max(exponent - LEAST_PACE, 0), 2 * PACES - 1) // 2

    def hear(
        self,
        lanes: set[int],
        fast: list[float],
        slow: list[float],
        since: int,
        until: int,
        lane: int | None,
    ) -> None:
        """A key was silent from a bin of gaps to another, and came then to a stream or to none.

        So much of each stream was to come of it.
        """
        for group in self.groups:
            those = [group] if self.named else range(self.lanes)
            fast_here = slow_here = 0.0
            for one in those:
                fast_here += fast[one]
                slow_here += slow[one]
            pace = self.pace(fast_here + slow_here)
            expected = 0.0
            for place in range(since, until + (lane is not None)):
                part = 0.5 if place == until else 1.0
                at = group, pace, place
                self.fast[at] += part * fast_here
                self.slow[at] += part * slow_here
                due = fast_here * part_of(place, FAST) + slow_here * part_of(place, SLOW)
                expected += part * due * self.factors[at]
            self.expected_of_set[group, self.streams(lanes)] += expected

    def come(
        self,
        lanes: set[int],
        fast: list[float],
        slow: list[float],
        bins: list[tuple[int, float]],
        lane: int,
    ) -> None:
        """A key has come to a stream; it counts so much in each of some bins of gaps."""
        group = self.group(lane)
        those = [lane] if self.named else range(self.lanes)
        rate = 0.0
        for counts in (fast, slow):
            rate += sum(counts[one] for one in those)
        for place, part in bins:
            self.came[group, self.pace(rate), place] += part
        self.came_of_set[group, self.streams(lanes)] += 1.0

    def of_set(self, lanes: set[int], lane: int) -> float:
        """The factor of keys that came to these streams."""
        return self.factors_of_sets.get((self.group(lane), self.streams(lanes)), 1.0)

    def rates(self, lane: int, age: int, fast: float, slow: float) -> tuple[float, float]:
        """What comes in a window, after a silence in a bucket of ages: at most, and for long."""
        at = self.group(lane), self.pace(fast + slow), age
        if at not in self.fades:
            self.fades[at] = self._averages(*at[:2], MIDDLE[age])
        fasts, slows = self.fades[at]
        most = fast * max(fasts) + slow * max(slows)
        return most, fast * fasts[-1] + slow * slows[-1]

    def find_anew(self) -> None:
        """Make factors of what was counted; averages over the time ahead follow when asked for."""
        self.fades.clear()
        for group in self.groups:
            for place in range(GAPS):
                expected = [self.expected(group, pace, place) for pace in range(PACES)]
                came = [self.came[group, pace, place] for pace in range(PACES)]
                at_first = FEW_BY_GAP * math.sqrt(EVEN / begin(place + 1))
                of_all = (sum(came) + at_first) / (sum(expected) + FEW_BY_GAP)
                for pace in range(PACES):
                    missed = DOUBT * 2.0 ** (LEAST_PACE + 1 + 2 * pace) * begin(place + 1)
                    above = came[pace] + FEW_BY_PACE * of_all / (1.0 + missed)
                    ratio = above / (expected[pace] + FEW_BY_PACE)
                    self.factors[group, pace, place] = ratio**TRUST
        for at, expected in self.expected_of_set.items():
            factor = (self.came_of_set[at] + FEW_BY_SET) / (expected + FEW_BY_SET)
            self.factors_of_sets[at] = factor

    def expected(self, group: int, pace: int, place: int) -> float:
        """What was expected after gaps in a bin."""
        at = group, pace, place
        return self.fast[at] * part_of(place, FAST) + self.slow[at] * part_of(place, SLOW)

    def _averages(self, group: int, pace: int, age: float) -> list[list[float]]:
        """Of each count what is left, on average over each of the times ahead."""
        return [
            [self._sum(group, pace, age, ahead, fades) / ahead for ahead in AHEADS]
            for fades in (FAST, SLOW)
        ]

    def _sum(self, group: int, pace: int, age: float, ahead: float, fades: float) -> float:
        """What of a count falls into some time after an age, cut where bins end."""
        found = 0.0
        for place in range(GAPS):
            low, high = max(age, begin(place)), min(age + ahead, begin(place + 1))
            if low < high:
                part = fades * (math.exp(-low / fades) - math.exp(-high / fades))
                found += self.factors[group, pace, place] * part
        return found

    def fade(self) -> None:
        """All that was counted counts half."""
        for by_gap in (self.came, self.fast, self.slow):
            for at in by_gap:
                by_gap[at] *= 0.5
        for by_set in (self.came_of_set, self.expected_of_set):
            for of in by_set:
                by_set[of] *= 0.5
