"""Estimates, each with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace

Z = 1.97
"""How far 95 % of a normal distribution reach, and a little for variances that are estimated."""
MERGED = 1.5
"""By how much rows within merged ones are less evenly spread than by chance alone."""
SKETCHED, ALL_SKETCHED = 1.0, 0.2
"""The parts of the results predicted by the sketch that may be wrong: of each key, and of all."""


@dataclass(frozen=True)
class Estimate:
    """An estimated number, with its 95 % confidence interval.

    Examples:
        >>> print(Estimate(1210.4, 1100.2, 1340.1))
        1,210 (1,100 to 1,340)
        >>> print(f"{Estimate(0.5, 0.25, 0.75):.1%}, {Estimate(3.0, 3.0, 3.0)}")
        50.0 % (25.0 to 75.0), 3
    """

    value: float
    low: float
    high: float

    def __format__(self, form: str) -> str:
        form = form or ",.0f"
        unit, factor = ("", 1)
        if form.endswith("%"):
            form, unit, factor = f"{form[:-1]}f", " %", 100
        value, low, high = (
            format(number * factor, form) for number in (self.value, self.low, self.high)
        )
        exact = self.low == self.high
        return f"{value}{unit}" if exact else f"{value}{unit} ({low} to {high})"

    def __str__(self) -> str:
        return format(self)


@dataclass(frozen=True)
class Share(Estimate):
    """An estimated part of a whole, from 0 to 1; it prints as a percentage.

    Examples:
        >>> print(Share(0.9621, 0.951, 0.97))
        96.2 % (95.1 to 97.0)
    """

    def __format__(self, form: str) -> str:
        return Estimate.__format__(self, form or ".1%")


@dataclass(frozen=True)
class Tally:
    """What is known of the results that a join would make without shedding, and those it made.

    Tallies of different keys can be added.

    Attributes:
        exact: the estimate: every result seen counts for all that it stands for.
        certain: the part of it that was seen for certain.
        seen: the results seen, each counted once.
        made: the results that were made.
        hidden: results that there may be besides with rows that nobody followed.
        unseen: results that are predicted by a sketch alone; `exact` has them.
        variance: that of the estimate, by lots.
        unseen_variance: that of what is predicted, if it were wrong by as much.
        hidden_variance: that of what is hidden.
        merged_variance: that of the estimate where rows were merged, and their times are not known.
        weight: the most that one more key, or row, may add: no less than the results for which one
            stands; 0 if all were seen.

    Examples:
        >>> Tally(exact=100.0, certain=100.0, seen=100.0, made=80.0).missed()
        Estimate(value=20.0, low=20.0, high=20.0)
        >>> print(Tally(exact=1600.0, seen=50.0, variance=50_000.0, weight=32.0).missed())
        1,600 (1,190 to 2,106)
    """

    exact: float = 0.0
    certain: float = 0.0
    seen: float = 0.0
    made: float = 0.0
    hidden: float = 0.0
    unseen: float = 0.0
    variance: float = 0.0
    unseen_variance: float = 0.0
    hidden_variance: float = 0.0
    merged_variance: float = 0.0
    weight: float = 0.0

    def estimate(self) -> Estimate:
        """The results without shedding; no fewer than were seen, or made.

        What lots, the sketch and merged rows may have wrong is independent of each other.
        """
        merged = Z * MERGED * math.sqrt(self.merged_variance)
        seen = self.seen - merged  # of merged rows it is not certain that they were in a window
        value = max(self.exact, seen, self.made)
        unsure = max(0.0, self.exact - self.certain)
        low, high = _bounds(unsure, self.variance, self.weight)
        unseen = math.hypot(
            Z * SKETCHED * math.sqrt(self.unseen_variance), Z * ALL_SKETCHED * self.unseen
        )
        hidden = min(self.hidden, Z * math.sqrt(self.hidden_variance))
        least = self.certain + unsure - math.hypot(unsure - low, unseen, merged)
        most = self.certain + unsure + math.hypot(high - unsure, unseen, merged, hidden)
        return Estimate(value, min(value, max(least, seen, self.made)), max(value, most))

    def missed(self) -> Estimate:
        """The results that shedding has cost."""
        exact = self.estimate()
        return Estimate(*(max(0.0, e - self.made) for e in (exact.value, exact.low, exact.high)))

    def __add__(self, other: Tally) -> Tally:
        both = zip(astuple(self), astuple(other), strict=True)
        summed = Tally(*(one + another for one, another in both))
        return replace(summed, weight=max(self.weight, other.weight))


@dataclass(frozen=True)
class KeyTally:
    """What is known of the keys that have results, without shedding and in the join as it is.

    Tallies of different keys can be added, but for the weight, of which the largest counts.

    Examples:
        >>> print(KeyTally(keys=9.0, keys_certain=9.0, keys_made=7.0).made())
        7
        >>> print(KeyTally(keys=9.0, keys_certain=9.0, keys_made=7.0).exact())
        9
    """

    keys: float = 0.0
    keys_certain: float = 0.0
    keys_variance: float = 0.0
    keys_made: float = 0.0
    keys_made_variance: float = 0.0
    keys_weight: float = 0.0

    def __add__(self, other: KeyTally) -> KeyTally:
        both = zip(astuple(self), astuple(other), strict=True)
        summed = KeyTally(*(one + another for one, another in both))
        return replace(summed, keys_weight=max(self.keys_weight, other.keys_weight))

    def made(self) -> Estimate:
        """The keys that made a result."""
        unit = 1 + self.keys_made_variance / self.keys_made if self.keys_made else 0.0
        low, high = _bounds(self.keys_made, self.keys_made_variance, unit)
        return Estimate(self.keys_made, low, high)

    def exact(self) -> Estimate:
        """The keys that would have made one without shedding."""
        made = self.made()
        unsure = self.keys - self.keys_certain
        bounds = _bounds(unsure, self.keys_variance, self.keys_weight)
        low, high = (self.keys_certain + bound for bound in bounds)
        return Estimate(max(self.keys, made.value), max(low, made.low), max(high, made.high))


def _bounds(unsure: float, variance: float, weight: float) -> tuple[float, float]:
    """The interval of a sum of which each term is up to `weight`.

    Counts of few keys are skewed. The interval is that of a weighted sum of Poisson counts (Fay and
    Feuer 1997), which is exact for equal weights; it is not zero above where nothing was seen.
    """
    low = high = max(0.0, unsure)
    if unsure > 0 and variance > 0:
        low = _quantile(unsure, variance, -Z)
    if weight > 1:
        unit = max(weight, variance / unsure if unsure > weight else 0.0)
        high = _quantile(max(0.0, unsure) + unit, variance + unit**2, Z)
    return low, high


def _quantile(mean: float, variance: float, z: float) -> float:
    """A quantile of the gamma distribution, as Wilson and Hilferty (1931) found it."""
    ninth = variance / (9 * mean * mean)
    root = max(0.0, 1 - ninth + z * math.sqrt(ninth))
    return mean * root * root * root


def part_made(made: int, missed: Estimate) -> Share:
    """The part of all results that was made.

    Examples:
        >>> part_made(75, Estimate(25.0, 0.0, 75.0))
        Share(value=0.75, low=0.5, high=1.0)
        >>> print(part_made(0, Estimate(0.0, 0.0, 0.0)))
        100.0 %
    """
    low, value, high = (
        made / (made + lost) if made + lost else 1.0
        for lost in (missed.high, missed.value, missed.low)
    )
    return Share(value, low, high)
