"""Keys that repeat: normally distributed, as in section 5.6 of the existence-pattern paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamshed_lab.workloads.arrivals import regular_streams
from streamshed_lab.workloads.base import Workload
from streamshed_lab.workloads.checks import require


@dataclass(frozen=True)
class NormalWorkload(Workload):
    """Streams whose keys are independent draws from one normal distribution, rounded.

    Attributes:
        streams: how many streams there are, named `s1`, `s2`, …
        tuples: rows per stream.
        rate: rows per second of each stream, at equal distances, the streams' beats interleaved.
        mean: of the keys.
        variance: of the keys, before rounding.
        seed: of all randomness.

    Examples:
        >>> tables = NormalWorkload(streams=2, tuples=5, variance=15.0, seed=1).tables()
        >>> tables["s1"]["key"].to_pylist()
        [95, 103, 102, 99, 104]
        >>> tables["s2"]["time"][1].as_py().isoformat()
        '1970-01-01T00:00:00.150000+00:00'
    """

    mean: float = 100.0
    variance: float = 25.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        super().__post_init__()
        require(self.variance > 0, "variance", self.variance, "more than 0")

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams.

        Returns:
            For each stream, in time order: `key` (int64) and `time` (timestamp in microseconds,
            UTC, beginning with 1970).
        """
        generator = np.random.default_rng([self.seed, 2])
        deviation = np.sqrt(self.variance)
        drawn = [generator.normal(self.mean, deviation, self.tuples) for _ in self.names]
        return regular_streams([np.rint(keys).astype(np.int64) for keys in drawn], self.rate)
