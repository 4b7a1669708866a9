"""Estimates, each with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z = 1.97
"""How far 95 % of a normal distribution reach, and a little for variances that are estimated."""


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
    """What a sample of keys says of a number of results.

    Tallies of different keys can be added.

    Attributes:
        missed: the estimate: every result seen counts for all that it stands for.
        certain: the part of it that was seen for certain.
        seen: the results seen, each counted once.
        variance: that of the estimate.
        unit: what one more key in the sample might have added, at most.

    Examples:
        >>> Tally(missed=100.0, certain=100.0, seen=100.0).estimate()
        Estimate(value=100.0, low=100.0, high=100.0)
        >>> print(Tally(missed=1600.0, seen=50.0, variance=50_000.0, unit=32.0).estimate())
        1,600 (1,190 to 2,106)
    """

    missed: float = 0.0
    certain: float = 0.0
    seen: float = 0.0
    variance: float = 0.0
    unit: float = 0.0

    def estimate(self) -> Estimate:
        """The estimate with its interval.

        Counts of few keys are skewed. The interval is that of a weighted sum of Poisson counts (Fay
        and Feuer 1997), which is exact for equal weights; it is not below what was seen, and not
        zero above where nothing was seen.
        """
        unsure = self.missed - self.certain
        low = high = unsure
        if unsure > 0 and self.variance > 0:
            low = _quantile(unsure, self.variance, -Z)
        if self.unit > 0:
            high = _quantile(unsure + self.unit, self.variance + self.unit**2, Z)
        return Estimate(self.missed, max(self.seen, self.certain + low), self.certain + high)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.missed + other.missed,
            self.certain + other.certain,
            self.seen + other.seen,
            self.variance + other.variance,
            max(self.unit, other.unit),
        )


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
