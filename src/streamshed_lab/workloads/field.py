"""A field of sensors: positions, and readings that those close by have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed_lab.workloads.arrivals import SECOND, Ints, timestamps
from streamshed_lab.workloads.checks import require
from streamshed_lab.workloads.zipf import ranks


@dataclass(frozen=True)
class FieldWorkload:
    """Sensors spread uniformly over a square, with readings of a Zipf distribution each.

    Section 7 of the SNJoin paper (Ali, Aref, Kamel 2005): the skew of each sensor is a whole number
    from 1 to 5, and the time between its readings is exponential. There is one sensor for each unit
    of area, so that a larger field has more of them, unless the area is said.

    The paper does not say whether sensors that are close to each other see the same values. Here
    each rank of the distribution has a grid of its own over the field, with cells of the length
    `reach` and a random offset, and stands for one value in each cell: the nearer two sensors are,
    the more values they have in common, and beyond the reach none.

    Attributes:
        sensors: how many there are.
        seconds: the length of the trace.
        rate: readings per second of each sensor.
        ranks: of the distribution.
        reach: how far a value reaches; infinite, if all sensors see the same values.
        area: of the field; as many units as there are sensors, unless said.
        seed: of all randomness.

    Examples:
        >>> work = FieldWorkload(sensors=3, seconds=2.0, seed=1)
        >>> work.positions().shape
        (3, 2)
        >>> work.table().column_names
        ['sensor', 'key', 'time']
    """

    sensors: int = 200
    seconds: float = 300.0
    rate: float = 1.0
    ranks: int = 1_000
    reach: float = math.inf
    area: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        require(self.sensors >= 2, "sensors", self.sensors, "2 or more")
        require(self.seconds > 0, "seconds", self.seconds, "more than 0")
        require(self.rate > 0, "rate", self.rate, "more than 0 readings per second")
        require(self.ranks >= 1, "ranks", self.ranks, "1 or more")
        require(self.reach > 0, "reach", self.reach, "more than 0")
        require(self.area is None or self.area > 0, "area", self.area, "more than 0")

    @property
    def side(self) -> float:
        """The length of the square."""
        return math.sqrt(self.sensors if self.area is None else self.area)

    def positions(self) -> npt.NDArray[np.float64]:
        """Where each sensor is: x and y."""
        return np.random.default_rng([self.seed, 21]).uniform(0.0, self.side, (self.sensors, 2))

    def table(self) -> pa.Table:
        """Generate the readings of all sensors.

        Returns:
            In time order: `sensor` and `key` (int64), and `time` (timestamp in microseconds, UTC,
            beginning with 1970).
        """
        random = np.random.default_rng([self.seed, 22])
        counts = random.poisson(self.rate * self.seconds, self.sensors)
        # Given their number, the points of a Poisson process are spread uniformly.
        time = np.sort((random.random(counts.sum()) * self.seconds * SECOND).astype(np.int64))
        sensor = random.permutation(np.repeat(np.arange(self.sensors), counts))
        skew = random.integers(1, 6, self.sensors)[sensor]
        drawn = random.random(len(sensor))
        rank = np.empty(len(sensor), np.int64)
        for value in range(1, 6):
            of_skew = skew == value
            rank[of_skew] = ranks(drawn[of_skew], self.ranks, value)
        key = self._values(rank, self.positions()[sensor], random)
        return pa.table({"sensor": sensor, "key": key, "time": timestamps(time)})

    def _values(
        self, rank: Ints, place: npt.NDArray[np.float64], random: np.random.Generator
    ) -> Ints:
        offset = random.random((self.ranks, 2))
        if math.isinf(self.reach):
            return rank
        cell = np.floor(place / self.reach + offset[rank]).astype(np.int64)
        across = math.ceil(self.side / self.reach) + 1
        values: Ints = (rank * across + cell[:, 0]) * across + cell[:, 1]
        return values
