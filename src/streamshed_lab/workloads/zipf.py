"""Keys that repeat, few of them often: a Zipf distribution over values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed_lab.workloads.arrivals import Ints, regular_streams
from streamshed_lab.workloads.base import Workload
from streamshed_lab.workloads.checks import require


@dataclass(frozen=True)
class ZipfWorkload(Workload):
    """Streams whose keys are independent draws from a Zipf distribution.

    The key of rank r comes with a probability that is proportional to r^-skew. Which key has which
    rank is drawn from the seed: another seed has other popular keys.

    Attributes:
        streams: how many streams there are, named `s1`, `s2`, …
        tuples: rows per stream.
        rate: rows per second of each stream, at equal distances, the streams' beats interleaved.
        keys: how many keys there are, numbered from 0.
        skew: of the distribution, of all streams or of each; 0 is uniform.
        popular: `"same"`, the popular keys of one stream are those of every other; or `"own"`,
            every stream ranks the keys in a way of its own, so that what is common in one is mostly
            rare in the others.
        seed: of all randomness.

    Examples:
        >>> tables = ZipfWorkload(streams=2, tuples=6, keys=100, skew=2.0, seed=1).tables()
        >>> [table["key"].to_pylist() for table in tables.values()]
        [[34, 2, 29, 34, 2, 28], [34, 34, 34, 34, 34, 35]]
    """

    keys: int = 10_000
    skew: float | tuple[float, ...] = 1.0
    popular: Literal["same", "own"] = "same"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        super().__post_init__()
        require(self.keys >= 1, "keys", self.keys, "1 or more")
        require(
            len(self.skews) == self.streams and min(self.skews) >= 0,
            "skew",
            self.skew,
            f"0 or more, one number or {self.streams}, as there are streams",
        )
        require(self.popular in ("same", "own"), "popular", self.popular, '"same" or "own"')

    @property
    def skews(self) -> tuple[float, ...]:
        """The skew of each stream."""
        return self.skew if isinstance(self.skew, tuple) else (self.skew,) * self.streams

    def rankings(self) -> list[Ints]:
        """For each stream its keys, the most popular first."""
        generator = np.random.default_rng([self.seed, 3])
        if self.popular == "same":
            return [generator.permutation(self.keys)] * self.streams
        return [generator.permutation(self.keys) for _ in self.names]

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams.

        Returns:
            For each stream, in time order: `key` (int64) and `time` (timestamp in microseconds,
            UTC, beginning with 1970).
        """
        generator = np.random.default_rng([self.seed, 4])
        return regular_streams(
            [
                ranking[ranks(generator.random(self.tuples), self.keys, skew)]
                for ranking, skew in zip(self.rankings(), self.skews, strict=True)
            ],
            self.rate,
        )


def ranks(draws: npt.NDArray[np.float64], keys: int, skew: float) -> Ints:
    """Turn uniform draws into ranks of a Zipf distribution, counted from 0.

    Examples:
        >>> ranks(np.array([0.0, 0.5, 0.99]), keys=3, skew=1.0).tolist()
        [0, 0, 2]
    """
    cumulative = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -skew)
    drawn: Ints = np.searchsorted(cumulative, draws * cumulative[-1], side="right")
    return drawn.clip(max=keys - 1)
