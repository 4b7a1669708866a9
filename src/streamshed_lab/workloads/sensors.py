"""Sensors that send readings now and then, and that come and go.

The streams of section 7 of the SNJoin paper (Ali, Aref, Kamel 2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from streamshed_lab.workloads.arrivals import SECOND, Ints, timestamps
from streamshed_lab.workloads.base import Workload
from streamshed_lab.workloads.checks import require
from streamshed_lab.workloads.zipf import ranks

MINUTE = 60.0


@dataclass(frozen=True)
class SensorWorkload:
    """A field of sensors whose readings are values of Zipf distributions.

    The time between two readings of a sensor is exponential. Each sensor has a skew of its own, one
    of `skews`, drawn at random. The paper is silent about how many values there are, and whether
    the popular values of one sensor are those of another. They cannot be so all the time: with
    skews of 1 to 5 over the same ranking a window of a minute would hold the same value dozens of
    times from every sensor, and make more results than there are atoms. So either each sensor has
    its own ranking, or all have the same for a while (`lasts`), and then one of new values: what
    they measure moves on.

    Sensors are numbered. With `changes`, every minute some are added or removed, 1 to so many,
    drawn at random: added if there are fewer than in the beginning, removed if there are more,
    otherwise by lot. So there are about as many sensors at any time. One that is added is new.

    Attributes:
        sensors: how many there are in the beginning.
        seconds: how long the trace is.
        every: the mean time between two readings of a sensor, in seconds.
        values: how many values there are.
        skews: of the sensors.
        popular: `"own"`, every sensor ranks values in its own way; `"same"`, all rank them alike.
        lasts: for how many seconds, before all values are new; None for ever.
        changes: the most sensors that are added or removed in a minute.
        seed: of all randomness.

    Examples:
        >>> field = SensorWorkload(sensors=3, seconds=4.0, values=10, seed=1)
        >>> field.table().slice(0, 3)["sensor"].to_pylist()
        [1, 0, 2]
    """

    sensors: int = 2_000
    seconds: float = 180.0
    every: float = 1.0
    values: int = 100_000
    skews: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 5.0)
    popular: Literal["own", "same"] = "own"
    lasts: float | None = None
    changes: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        require(self.sensors >= 2, "sensors", self.sensors, "2 or more")
        require(self.seconds > 0, "seconds", self.seconds, "more than 0")
        require(self.every > 0, "every", self.every, "more than 0 seconds")
        require(self.values >= 1, "values", self.values, "1 or more")
        require(min(self.skews, default=-1) >= 0, "skews", self.skews, "numbers of 0 or more")
        require(self.popular in ("own", "same"), "popular", self.popular, '"own" or "same"')
        require(self.lasts is None or self.lasts > 0, "lasts", self.lasts, "more than 0, or None")
        require(0 <= self.changes < self.sensors, "changes", self.changes, "fewer than sensors")

    def lives(self) -> tuple[list[float], list[float]]:
        """When each sensor comes and when it goes, in seconds."""
        generator = np.random.default_rng([self.seed, 1])
        begins, ends = [0.0] * self.sensors, [self.seconds] * self.sensors
        there = list(range(self.sensors))
        for minute in range(1, int(np.ceil(self.seconds / MINUTE)) if self.changes else 0):
            now, many = minute * MINUTE, int(generator.integers(1, self.changes + 1))
            surplus = len(there) - self.sensors
            if surplus > 0 or (surplus == 0 and generator.random() < 0.5):
                gone = generator.choice(len(there), many, replace=False)
                for place in sorted(gone.tolist(), reverse=True):
                    ends[there.pop(place)] = now
            else:
                there += range(len(begins), len(begins) + many)
                begins += [now] * many
                ends += [self.seconds] * many
        return begins, ends

    def table(self) -> pa.Table:
        """Generate the readings of all sensors, in time order.

        Returns:
            `sensor` (int64), `key` (int64) and `time` (timestamp in microseconds, UTC, beginning
            with 1970).
        """
        generator = np.random.default_rng([self.seed, 2])
        begins, ends = (np.array(times) for times in self.lives())
        # So many readings, at times drawn uniformly, are those of exponential waiting times.
        counts = generator.poisson((ends - begins) / self.every)
        sensor = np.repeat(np.arange(counts.size), counts)
        moments = begins[sensor] + generator.random(sensor.size) * (ends - begins)[sensor]
        order = np.argsort(moments, kind="stable")
        sensor, times = sensor[order], np.rint(moments[order] * SECOND).astype(np.int64)
        values = self._values(sensor, counts.size)
        if self.lasts is not None:
            values += (times // round(self.lasts * SECOND)) * self.values
        return pa.table({"sensor": sensor, "key": values, "time": timestamps(times)})

    def _values(self, sensor: Ints, sensors: int) -> Ints:
        """The reading of each sensor in a list of them."""
        generator = np.random.default_rng([self.seed, 3])
        skew = np.array(self.skews)[generator.integers(0, len(self.skews), sensors)]
        draws, rank = generator.random(sensor.size), np.empty(sensor.size, np.int64)
        for one in np.unique(skew):
            mine = skew[sensor] == one
            rank[mine] = ranks(draws[mine], self.values, float(one))
        if self.popular == "same":
            return rank
        # The value of rank r is begin + r·step, modulo the number of values.
        begin = generator.integers(0, self.values, sensors)
        step = generator.integers(1, max(2, self.values), sensors)
        while (shared := np.array([gcd(int(s), self.values) > 1 for s in step])).any():
            if self.values == 1:
                break
            step[shared] = generator.integers(1, self.values, int(shared.sum()))
        values: Ints = (begin[sensor] + rank * step[sensor]) % self.values
        return values

    def tables(self) -> dict[str, pa.Table]:
        """The same as one table for each sensor, `s1`, `s2`, …, of `key` and `time`."""
        table = self.table()
        sensor = table["sensor"].to_numpy()
        rest = table.drop_columns("sensor")
        return {
            f"s{number + 1}": rest.filter(pa.array(sensor == number))
            for number in range(len(self.lives()[0]))
        }


@dataclass(frozen=True)
class EventWorkload(Workload):
    """Sensors that report events, each event once: a phenomenon that passes over the field.

    Every sensor reports nearly every event, after a delay. So joins of any number of streams have
    results, which those of values that repeat have not, or too many.

    Attributes:
        streams: how many sensors there are, named `s1`, `s2`, …
        tuples: how many events there are.
        rate: events per second.
        reported: the chance that a sensor reports an event.
        delay: the mean time until it does, which is exponential, in seconds.
        seed: of all randomness.

    Examples:
        >>> tables = EventWorkload(streams=2, tuples=4, seed=3).tables()
        >>> [sorted(table["key"].to_pylist()) for table in tables.values()]
        [[0, 1, 2, 3], [0, 1, 2, 3]]
    """

    reported: float = 0.99
    delay: float = 1.0
    seed: int = 0

    unique_keys: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        super().__post_init__()
        require(0 < self.reported <= 1, "reported", self.reported, "above 0 and up to 1")
        require(self.delay > 0, "delay", self.delay, "more than 0 seconds")

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams.

        Returns:
            For each, in time order: `key` (int64) and `time` (timestamp in microseconds, UTC,
            beginning with 1970).
        """
        generator = np.random.default_rng([self.seed, 5])
        moments = np.sort(generator.random(self.tuples)) * self.seconds
        tables = {}
        for name in self.names:
            key = np.flatnonzero(generator.random(self.tuples) < self.reported)
            when = moments[key] + generator.exponential(self.delay, key.size)
            order = np.argsort(when, kind="stable")
            times = np.rint(when[order] * SECOND).astype(np.int64)
            tables[name] = pa.table({"key": key[order], "time": timestamps(times)})
        return tables
