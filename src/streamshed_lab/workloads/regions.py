"""Three relations of two attributes, dense in a few regions, one region after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed_lab.workloads.arrivals import Ints
from streamshed_lab.workloads.checks import require
from streamshed_lab.workloads.zipf import ranks

NAMES = ("r1", "r2", "r3")
CONDITIONS = ("r1.a1 = r2.a1", "r2.a2 = r3.a1")
_SHAPES = (0.5, 1.0, 2.0)
"""How long one side of a region is, in parts of the root of its volume."""


@dataclass(frozen=True)
class RegionWorkload:
    """The generated data of section 5.1 (Law and Zaniolo 2007), after Vitter and Wang (1999).

    Rows fall into rectangular regions of the space of two attributes: by a Zipf distribution over
    the regions, and by another over the values of a region, of which those near its centre are the
    most frequent. The relations are input in turn, region by region: between two regions the
    distribution changes.

    The paper does not say how regions of different relations lie to each other. Of independent ones
    next to none would meet, and the joins would be empty. So the attributes that are joined have
    the centres of their regions in common, up to an offset, and region *i* of each relation comes
    at the same time.

    Attributes:
        tuples: of each relation.
        domain: values of an attribute, numbered from 0.
        regions: how many there are.
        volume: pairs of values of each region, or nearly: 100 are 5 × 20, 10 × 10 or 20 × 5.
        inter: the skew over regions, z-inter.
        intra: the range of skews within regions, z-intra; each region's is drawn from it.
        offset: how far the centres of joined regions may be from each other.
        seed: of all randomness.

    Examples:
        >>> work = RegionWorkload(tuples=3, regions=2, seed=1)
        >>> {name: table.column_names for name, table in work.tables().items()}["r2"]
        ['time', 'a1', 'a2', 'region']
        >>> work.tables()["r2"]["time"].to_pylist()
        [1, 4, 7]
    """

    tuples: int = 10_000
    domain: int = 1024
    regions: int = 10
    volume: int = 100
    inter: float = 1.0
    intra: tuple[float, float] = (1.6, 2.0)
    offset: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        require(self.tuples >= 1, "tuples", self.tuples, "1 or more")
        require(self.regions >= 1, "regions", self.regions, "1 or more")
        require(self.volume >= 1, "volume", self.volume, "1 or more")
        longest = max(map(max, self._sides()))
        least = f"{longest} or more, the length of a region"
        require(self.domain >= longest, "domain", self.domain, least)
        require(self.inter >= 0, "inter", self.inter, "0 or more")
        require(min(self.intra) >= 0, "intra", self.intra, "two skews, 0 or more")
        require(self.offset >= 0, "offset", self.offset, "0 or more")

    def _sides(self) -> list[tuple[int, int]]:
        """The sides that regions can have."""
        root = np.sqrt(self.volume)
        return [(max(1, round(root * long)), max(1, round(root / long))) for long in _SHAPES]

    def sizes(self) -> Ints:
        """The tuples of each region, the largest first; every relation has as many."""
        shares = 1.0 / np.arange(1, self.regions + 1) ** self.inter
        ends = np.round(np.cumsum(shares) / shares.sum() * self.tuples).astype(np.int64)
        sizes: Ints = np.diff(ends, prepend=0)
        return sizes

    def drifts(self) -> list[int]:
        """The times at which one region follows another, in the order in which they come."""
        order = np.random.default_rng([self.seed, 7]).permutation(self.regions)
        ends: Ints = np.cumsum(self.sizes()[order])
        return [int(3 * end) for end in ends[:-1]]

    def tables(self) -> dict[str, pa.Table]:
        """Generate the relations.

        Returns:
            For each the integers `time` (one tuple a second comes, of each relation in turn), `a1`
            and `a2`, and `region`.
        """
        generator = np.random.default_rng([self.seed, 7])
        order = generator.permutation(self.regions)
        one, other = generator.integers(0, self.domain, (2, self.regions))
        unjoined = generator.integers(0, self.domain, (2, self.regions))
        centres = {"r1": (one, unjoined[0]), "r2": (one, other), "r3": (other, unjoined[1])}
        return {
            name: self._relation(number, order, centres[name]) for number, name in enumerate(NAMES)
        }

    def _relation(self, number: int, order: Ints, centres: tuple[Ints, Ints]) -> pa.Table:
        generator = np.random.default_rng([self.seed, 8, number])
        sizes = self.sizes()
        parts = []
        for region in order:
            shift = generator.integers(-self.offset, self.offset + 1, 2)
            centre = np.array([centres[0][region], centres[1][region]]) + shift
            sides = self._sides()[generator.integers(len(_SHAPES))]
            values = _by_distance(sides, generator)
            skew = generator.uniform(*self.intra)
            drawn = values[ranks(generator.random(sizes[region]), len(values), skew)]
            parts.append((centre + drawn) % self.domain)
        pairs = np.concatenate(parts)
        return pa.table(
            {
                "time": np.arange(self.tuples) * len(NAMES) + number,
                "a1": pairs[:, 0],
                "a2": pairs[:, 1],
                "region": np.repeat(order, sizes[order]),
            }
        )


def _by_distance(sides: tuple[int, int], generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """The values of a region relative to its centre, the nearest first, equals at random."""
    grid = np.stack(np.meshgrid(*(np.arange(side) - side // 2 for side in sides)), axis=-1)
    values = grid.reshape(-1, 2)
    order = np.lexsort((generator.random(len(values)), (values**2).sum(axis=1)))
    return values[order].astype(np.int64)
