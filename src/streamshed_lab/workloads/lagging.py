"""Numbers that rise and wrap around, each stream behind or ahead of the others: GrubJoin's.

Gedik, Wu, Yu, Liu: *GrubJoin* (section VI-B). The value of stream i at time φ is
(D/η)·(φ + τᵢ) + κᵢ·N(0, 1), modulo D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed_lab.workloads.arrivals import SECOND, stream_names, timestamps
from streamshed_lab.workloads.checks import require


@dataclass(frozen=True)
class LaggingWorkload:
    """Streams of numbers that match with a lag, the more loosely the more they deviate.

    Attributes:
        lags: for each stream by how many seconds it is ahead (τ).
        deviations: for each stream how far its values deviate (κ).
        seconds: the length of the trace.
        rate: rows per second of each stream, at times drawn uniformly; or pairs of a time and the
            rate from there on, the first at 0.
        span: values are from 0 up to this (D).
        period: seconds in which values go through the span once (η).
        seed: of all randomness.

    Examples:
        >>> tables = LaggingWorkload(lags=(0, 5), deviations=(0, 0), seconds=10, rate=2).tables()
        >>> tables["s1"].column_names, tables["s1"].num_rows
        (['value', 'time'], 20)
    """

    lags: tuple[float, ...] = (0.0, 5.0, 15.0)
    deviations: tuple[float, ...] = (2.0, 2.0, 50.0)
    seconds: float = 60.0
    rate: float | tuple[tuple[float, float], ...] = 100.0
    span: float = 1000.0
    period: float = 50.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        require(len(self.lags) >= 2, "lags", self.lags, "of 2 streams or more")
        same = len(self.lags) == len(self.deviations)
        require(same, "deviations", self.deviations, "as many as lags")
        require(self.seconds > 0, "seconds", self.seconds, "more than 0")
        require(all(rate > 0 for _, rate in self.rates), "rate", self.rate, "more than 0")
        require(self.rates[0][0] == 0, "rate", self.rate, "given from time 0 on")

    @property
    def rates(self) -> Sequence[tuple[float, float]]:
        """From when on which rate holds."""
        return ((0.0, self.rate),) if isinstance(self.rate, int | float) else self.rate

    @property
    def names(self) -> list[str]:
        """The names of the streams."""
        return stream_names(len(self.lags))

    def _times(self, generator: np.random.Generator) -> npt.NDArray[np.float64]:
        ends = [*(start for start, _ in self.rates[1:]), self.seconds]
        drawn = [
            generator.uniform(start, end, round(rate * (end - start)))
            for (start, rate), end in zip(self.rates, ends, strict=True)
        ]
        return np.sort(np.concatenate(drawn))

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams.

        Returns:
            For each stream, in time order: `value` (double) and `time` (timestamp in microseconds,
            UTC, beginning with 1970).
        """
        generator = np.random.default_rng([self.seed, 11])
        tables = {}
        for name, lag, deviation in zip(self.names, self.lags, self.deviations, strict=True):
            times = self._times(generator)
            rising = self.span / self.period * (times + lag)
            values = (rising + deviation * generator.standard_normal(len(times))) % self.span
            stamps = timestamps((times * SECOND).astype(np.int64))
            tables[name] = pa.table({"value": values, "time": stamps})
        return tables
