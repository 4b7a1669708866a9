"""How much more often keys come than their rates say (docs/meaning.md, Density), with dicts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from .lives import AGES, CELLS, MIDDLE, MOST_NAMED

FAST, SLOW = 0.3, 3.0
GAPS, AHEAD, TRUST = 13, 0.03, 0.7
FEW_BY_GAP, FEW_BY_SET = 0.5, 8.0

Streams = frozenset[int] | int
"""The streams that a key came to, or with many streams how many."""
Place = tuple[str, int, Streams]
"""What is counted: by gap or by set, for a stream, in a bin or for a set."""


def begin(place: int) -> float:
    """Where a bin of gaps begins, in windows."""
    return 0.0 if place == 0 else 2.0 ** (place - 1) / CELLS


class Recurrence:
    """What was expected and what came, by the gap and by the streams that a key came to."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.named = 1 < lanes <= MOST_NAMED
        self.groups = range(lanes) if self.named else range(1)
        self.came: dict[Place, float] = defaultdict(float)
        self.expected: dict[Place, float] = defaultdict(float)
        self.factors: dict[Place, float] = {}
        self.fades: dict[tuple[int, int], tuple[float, float]] = {}
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
        return min(max(cell, 0), CELLS - 1).bit_length()

    def learn(
        self,
        lanes: set[int],
        fast: list[float],
        slow: list[float],
        gap: float,
        window: float,
        lane: int | None,
    ) -> None:
        """After a gap a key has come to a stream, or to none; so much of each was to come."""
        last, streams = self.bin(gap, window), self.streams(lanes)
        for group in self.groups:
            those = [group] if self.named else range(self.lanes)
            fast_here = slow_here = 0.0
            for one in those:
                fast_here += fast[one]
                slow_here += slow[one]
            total = 0.0
            for place in range(last + 1):
                low, high = begin(place), gap if place == last else begin(place + 1)
                each = fast_here * FAST * (math.exp(-low / FAST) - math.exp(-high / FAST))
                each += slow_here * SLOW * (math.exp(-low / SLOW) - math.exp(-high / SLOW))
                self.expected["gap", group, place] += each
                total += each * self.factors["gap", group, place]
            self.expected["set", group, streams] += total
        if lane is not None:
            self.came["gap", self.group(lane), last] += 1.0
            self.came["set", self.group(lane), streams] += 1.0

    def of_set(self, lanes: set[int], lane: int) -> float:
        """The factor of keys that came to these streams."""
        return self.factors.get(("set", self.group(lane), self.streams(lanes)), 1.0)

    def rate(self, lane: int, age: int, fast: float, slow: float) -> float:
        """What comes in a window, after a silence in a bucket of ages."""
        fast_left, slow_left = self.fades[self.group(lane), age]
        return fast * fast_left + slow * slow_left

    def find_anew(self) -> None:
        """Make factors of what was counted, and average over the time ahead."""
        for group in self.groups:
            for place in range(GAPS):
                ratio = self._ratio(("gap", group, place), FEW_BY_GAP)
                self.factors["gap", group, place] = ratio**TRUST
            for age in range(AGES):
                self.fades[group, age] = self._averages(group, MIDDLE[age])
        for at in list(self.expected):
            if at[0] == "set":
                self.factors[at] = self._ratio(at, FEW_BY_SET)

    def _ratio(self, at: Place, few: float) -> float:
        return (self.came[at] + few) / (self.expected[at] + few)

    def _averages(self, group: int, age: float) -> tuple[float, float]:
        fast = slow = 0.0
        for place, low, high in self._pieces(age):
            factor = self.factors["gap", group, place]
            fast += factor * FAST * (math.exp(-low / FAST) - math.exp(-high / FAST))
            slow += factor * SLOW * (math.exp(-low / SLOW) - math.exp(-high / SLOW))
        return fast / AHEAD, slow / AHEAD

    def _pieces(self, age: float) -> Iterator[tuple[int, float, float]]:
        """The time ahead, cut where bins end; the last has no end."""
        for place in range(GAPS):
            low = max(age, begin(place))
            high = age + AHEAD if place == GAPS - 1 else min(age + AHEAD, begin(place + 1))
            if low < high:
                yield place, low, high

    def fade(self) -> None:
        """All that was counted counts half."""
        for counted in (self.came, self.expected):
            for at in counted:
                counted[at] *= 0.5
