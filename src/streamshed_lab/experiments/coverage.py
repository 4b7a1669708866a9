"""How often the interval of the results missed holds the truth: it should 95 times in 100.

A run is one join of one generated workload under one policy, with a seed of its own. What it would
have made without shedding is what the same join says when it follows every key, which the tests
compare with DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

import streamshed as ss
from streamshed_lab.workloads import ExistenceWorkload, NormalWorkload, ZipfWorkload

POLICIES = ("random", "oldest", "frequency", "output", "existence")


@dataclass(frozen=True)
class Setting:
    """A kind of workload and the join that it is given to.

    Attributes:
        tables: the streams of a seed.
        window: in seconds.
        rows: the budget of each stream.
    """

    tables: Callable[[int], Mapping[str, pa.Table]]
    window: float
    rows: int

    def join(self, policy: str, seed: int) -> ss.Join:
        """The join, without a word on what it estimates."""
        said = ss.join(*self.tables(0)).on("key").seed(seed)
        said = said.within(f"{self.window} s", time="time", clock="max")
        return said.keep(rows=self.rows).shed(policy)


def _existence(seed: int) -> Mapping[str, pa.Table]:
    return ExistenceWorkload(streams=4, tuples=5_000, spread=50.0, seed=seed).tables()


def _normal(seed: int) -> Mapping[str, pa.Table]:
    return NormalWorkload(streams=3, tuples=5_000, variance=100.0**2, seed=seed).tables()


def _zipf(seed: int) -> Mapping[str, pa.Table]:
    return ZipfWorkload(streams=3, tuples=5_000, keys=5_000, skew=1.0, seed=seed).tables()


SETTINGS = {
    "existence": Setting(_existence, window=100.0, rows=400),
    "normal": Setting(_normal, window=100.0, rows=300),
    "zipf": Setting(_zipf, window=50.0, rows=100),
}
"""Keys that come once in a stream, keys of similar frequency, and keys of very different ones."""


@dataclass(frozen=True)
class Run:
    """One run: what was made and missed, and what was said of it."""

    workload: str
    policy: str
    seed: int
    made: int
    missed: float
    said: ss.Estimate

    @property
    def covered(self) -> bool:
        """Whether the truth is in the interval."""
        return self.said.low <= self.missed <= self.said.high


def runs(
    seeds: Iterable[int],
    rate: float | None = None,
    policies: Iterable[str] = POLICIES,
    settings: Mapping[str, Setting] = SETTINGS,
) -> Iterator[Run]:
    """Run every policy on every workload, once for each seed.

    No two policies have the same data: where one interval fails, so would those of the others.

    Args:
        seeds: of each policy's workloads and joins, one after the other.
        rate: the part of all keys that is followed in the end; the default, if None.
        policies: by name.
        settings: by name.
    """
    chosen = tuple(policies)
    for seed in seeds:
        for name, setting in settings.items():
            for number, policy in enumerate(chosen):
                own = seed * len(chosen) + number
                tables = setting.tables(own)
                said = setting.join(policy, own)
                exact = said.estimate(rate=1).count(tables)
                ledger = said.estimate(rate=rate).count(tables)
                assert exact.missed is not None
                assert ledger.missed is not None
                # A policy that learns from the keys followed sheds others where it follows all.
                missed = exact.results + exact.missed.value - ledger.results
                yield Run(name, policy, own, ledger.results, missed, ledger.missed)


def coverage(found: Iterable[Run]) -> float:
    """The part of the runs whose interval holds the truth."""
    covered = [run.covered for run in found]
    return sum(covered) / len(covered)
