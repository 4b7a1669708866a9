"""What the paper set, and how much of everything to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamshed.policies import (
    Density,
    Existence,
    Frequency,
    Oldest,
    Output,
    Policy,
    Random,
)
from streamshed_lab.experiments.verdicts import Reading, reading
from streamshed_lab.workloads import ExistenceWorkload

WINDOW = 100.0
"""Seconds, in all synthetic experiments (table 1)."""


EPS = {"last row": "existence", "all rows": "existence, completed first"}
"""Which rows of a completed key leave first: the last one (definition 1 to the letter), or all."""
FREQUENCIES = {"all windows": "frequency", "own window": "frequency, own window"}
"""Where values are counted: in all windows (the example of 3.3), or in each (T_i of section 4)."""
EP = "existence"
POLICIES: Mapping[str, Policy] = {
    "existence": Existence(),
    "existence, completed first": Existence(completed="first"),
    "random": Random(),
    "frequency": Frequency(),
    "frequency, own window": Frequency(scope="window"),
    "output": Output(),
    "oldest": Oldest(),
    "density": Density(),
}
"""The paper's and its rivals, in both readings; `oldest` and `density` are beside them."""
PLAIN = {
    "completed": "last row",
    "frequency": "all windows",
    "processor": "unlimited",
    "tables": "of what is held",
    "bytes": "by the formulas",
    "similar": "by how many times",
}
"""How the paper was read at first."""


@dataclass(frozen=True)
class Variant:
    """The paper's policies in one reading."""

    completed: str = "last row"
    counted: str = "all windows"

    @property
    def ep(self) -> str:
        """Existence patterns."""
        return EPS[self.completed]

    @property
    def frequency(self) -> str:
        """The frequency-based rival."""
        return FREQUENCIES[self.counted]

    @property
    def rivals(self) -> tuple[str, str, str]:
        """All that the paper compares with."""
        return ("random", self.frequency, "output")


BOTH = tuple(Variant(completed, counted) for completed in EPS for counted in FREQUENCIES)
"""Readings of both; then of one, for claims that are about one only."""
OF_EP = tuple(Variant(completed=completed) for completed in EPS)
OF_RIVALS = tuple(Variant(counted=counted) for counted in FREQUENCIES)


@dataclass(frozen=True)
class Scale:
    """How much of everything to run."""

    tuples: int = 10_000
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    memories: tuple[int, ...] = (100, 200, 300, 400, 500)
    spreads: tuple[float, ...] = (5.0, 20.0, 50.0, 100.0, 150.0)
    """The last is longer than the window: of streams that are faster, whose windows have more rows,
    there are more results to find then, as figure 7 suggests."""
    alphas: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0)
    rates: tuple[float, ...] = (10.0, 12.5, 16.7, 25.0)
    streams: tuple[int, ...] = (3, 4, 5, 6, 7)
    timed_tuples: int = 80_000
    rounds: int = 7
    domain: int = 2_000_000
    normal_tuples: int = 4_000
    counted_tuples: int = 10_000
    variances: tuple[float, ...] = (15.0, 20.0, 25.0, 30.0, 35.0)
    deviations: tuple[float, ...] = (15.0, 25.0, 35.0)
    real_memories: tuple[int, ...] = (150, 200, 250, 300, 350)


FULL = Scale()

QUICK = Scale(
    seeds=(1,),
    memories=(100, 300, 500),
    spreads=(20.0, 100.0),
    alphas=(0.0, 1.0, 2.0),
    rates=(10.0, 16.7, 25.0),
    streams=(3, 5, 7),
    timed_tuples=10_000,
    rounds=5,
    domain=500_000,
    normal_tuples=1_000,
    counted_tuples=2_000,
    variances=(15.0, 35.0),
    deviations=(),
    real_memories=(150, 250, 350),
)


def workloads_as_read(scale: Scale) -> list[ExistenceWorkload]:
    """The paper's workload under every reading of what it leaves open."""
    return [
        ExistenceWorkload(tuples=scale.tuples, spread=spread, seed=seed, repertoire=repertoire)
        for repertoire in (None, 10)
        for spread in scale.spreads
        for seed in scale.seeds
    ]


def settings_as_read(scale: Scale) -> dict[Reading, tuple[str, float]]:
    """Reading → (orders, spread) of what the workload leaves open."""
    return {
        reading(spread=f"{spread:g} s", orders=orders): (orders, spread)
        for orders in ("all", "10")
        for spread in scale.spreads
    }
