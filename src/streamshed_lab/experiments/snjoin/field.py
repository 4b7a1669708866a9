"""Fields of sensors of several sizes, measured with and without feedback."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

import pyarrow as pa

from streamshed_lab.experiments.report import Row, summarise
from streamshed_lab.network import Clusters, Network, Outcome, Relevance, heed, simulate
from streamshed_lab.workloads.field import FieldWorkload

LARGEST = 2_000
"""Sensors of the paper's largest network, of which the space is the "total sensor space"."""
RANGE = math.sqrt(0.1 * LARGEST)
"""The cluster range: a square of this length is a tenth of the largest field."""
CAPACITY = 930.0

PLAIN, FEEDBACK, MJOIN = "SNJoin*", "SNJoin* with feedback", "MJoin"
MEASURES = ("probes", "delay", "drop rate", "width", "communication")


@dataclass(frozen=True)
class Scale:
    """How much of everything to run.

    Attributes:
        sizes: of networks, in sensors.
        swept: those of them on which what the paper leaves open is tried.
        seconds: of readings.
        warm_up: seconds that are not measured: the window fills, and feedback begins to work.
        seeds: of fields, readings and sequences.
        sweeps: seeds for what is left open.
    """

    sizes: tuple[int, ...] = tuple(range(200, 2_001, 200))
    swept: tuple[int, ...] = (1_000, 2_000)
    seconds: float = 180.0
    warm_up: float = 90.0
    seeds: tuple[int, ...] = (1, 2, 3)
    sweeps: tuple[int, ...] = (1,)


FULL = Scale()
QUICK = Scale(
    swept=(1_000,),
    seconds=80.0,
    warm_up=65.0,
    seeds=(1,),
    sweeps=(1,),
)


@dataclass(frozen=True)
class Setting:
    """A field and how it works.

    Attributes:
        reach: how far a value reaches, in cluster ranges.
        within: the cluster range, in units of the base; negative, in sides of the field.
        fixed: whether all networks are in the largest one's field.
        network: how heads work.
        relevance: how they learn.
    """

    reach: float = 0.75
    within: float = 1.0
    fixed: bool = False
    network: Network = field(default_factory=lambda: Network(latency=0.1, sampled=16))
    relevance: Relevance = field(default_factory=Relevance)

    def techniques(self) -> Mapping[str, Network]:
        """The networks that are compared."""
        return {
            PLAIN: self.network,
            FEEDBACK: replace(self.network, relevance=self.relevance),
            MJOIN: replace(self.network, technique="mjoin"),
        }


@lru_cache(maxsize=1)
def _readings(
    sensors: int, seconds: float, reach: float, area: float | None, seed: int
) -> tuple[FieldWorkload, pa.Table]:
    work = FieldWorkload(sensors=sensors, seconds=seconds, reach=reach, area=area, seed=seed)
    return work, work.table()


@lru_cache(maxsize=16)
def _clusters(work: FieldWorkload, within: float) -> Clusters:
    return heed(work.positions(), within, work.seed)


@cache
def measure(
    scale: Scale, setting: Setting, technique: str, sensors: int, seed: int, limited: bool = True
) -> Row:
    """Run a network over a field; one row of what was measured (both figures ask for some)."""
    area = float(LARGEST) if setting.fixed else None
    work, table = _readings(sensors, scale.seconds, setting.reach * RANGE, area, seed)
    within = setting.within * RANGE if setting.within > 0 else -setting.within * work.side
    clusters = _clusters(work, within)
    network = replace(
        setting.techniques()[technique],
        capacity=CAPACITY if limited else math.inf,
        warm_up=scale.warm_up,
        seed=seed,
    )
    sensor, key, time = (table[name].cast("int64").to_numpy() for name in table.column_names)
    done = simulate(network, clusters, sensor, key, time)
    return {
        "sensors": sensors,
        "seed": seed,
        "technique": technique,
        "heads": "limited" if limited else "without limits",
        "clusters": len(clusters),
        **measured(done),
    }


def measured(done: Outcome) -> Row:
    """What is compared of a run."""
    each = max(done.processed, 1)
    sent = sum(done.bytes.values())
    return {
        "probes": done.probes / each,
        "delay": done.delay,
        "drop rate": done.drop_rate,
        "width": done.width,
        "communication": sent / each,
        "bytes per second": sent / done.seconds,
        "messages": sum(done.messages.values()) / each,
        "updates per second": done.outputs / done.seconds,
        "members per second": done.outputs * done.width / done.seconds,
    }


def reduced(without: Row, having: Row) -> Row:
    """By how much feedback reduces each measure, in per cent; drop rates in points."""
    found = {
        name: 100.0 * (1.0 - having[name] / without[name]) if without[name] else 0.0
        for name in (*MEASURES, "bytes per second")
    }
    found["drop rate"] = 100.0 * (without["drop rate"] - having["drop rate"])
    rates = without["members per second"], having["members per second"]
    found["output"] = 100.0 * (rates[1] / rates[0] - 1.0) if rates[0] else 0.0
    return found


def reductions(runs: Sequence[Row], by: Sequence[str]) -> Iterator[Row]:
    """The reductions of each pair of runs that differ in feedback alone."""
    told = ("technique", "seed", *by)
    found = {tuple(run[name] for name in told): run for run in runs}
    for key, without in found.items():
        if key[0] == PLAIN:
            yield {
                **dict(zip(told[1:], key[1:], strict=True)),
                "clusters": without["clusters"],
                **reduced(without, found[(FEEDBACK, *key[1:])]),
            }


def means(rows: Sequence[Row], by: Sequence[str], values: Sequence[str]) -> list[Row]:
    """The mean of each value over seeds, by setting."""
    table: dict[tuple[object, ...], Row] = {}
    for value in values:
        for row in summarise(rows, by, value):
            setting = tuple(row[name] for name in by)
            table.setdefault(setting, dict(zip(by, setting, strict=True)))[value] = row[
                f"{value}_mean"
            ]
    return list(table.values())
