"""What the paper set, and how much of everything to run."""

from __future__ import annotations

from dataclasses import dataclass

from streamshed_lab.workloads import ExistenceWorkload

WINDOW = 100.0
"""Seconds, in all synthetic experiments (table 1)."""


EP = "existence"

RIVALS = ("random", "frequency", "output")

POLICIES = (EP, *RIVALS, "oldest")


@dataclass(frozen=True)
class Scale:
    """How much of everything to run."""

    tuples: int = 10_000
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    memories: tuple[int, ...] = (100, 200, 300, 400, 500)
    spreads: tuple[float, ...] = (5.0, 20.0, 50.0, 100.0)
    alphas: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0)
    rates: tuple[float, ...] = (10.0, 12.5, 16.7, 25.0)
    streams: tuple[int, ...] = (3, 4, 5, 6, 7)
    timed_tuples: int = 80_000
    rounds: int = 7
    normal_tuples: int = 4_000
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
    normal_tuples=1_000,
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


def settings_as_read(scale: Scale) -> dict[str, tuple[str, float]]:
    """Label → (orders, spread) of every reading."""
    return {
        f"spread {spread:g} s, {orders} orders": (orders, spread)
        for orders in ("all", "10")
        for spread in scale.spreads
    }
