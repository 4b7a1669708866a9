"""What changes of the distribution do (figure 5)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import streamshed as ss
from streamshed_lab.experiments.msketch.running import (
    SKEWED,
    SUBSET,
    Scale,
    region_join,
    region_work,
)
from streamshed_lab.experiments.report import Report, Row, markdown_table, stem, summarise
from streamshed_lab.experiments.verdicts import Claim, judge

INTERVAL = 250
"""Seconds in which results are counted."""
MEMORY = 126
LONG = 8
"""Intervals of a region that is looked at."""
POLICIES = ("MSketch", "BJoin", "Rand")


def figure_5(scale: Scale, report: Report) -> list[Claim]:
    """Results by time, with three quarters of the memory, and how soon they recover."""
    rows: list[Row] = []
    waits: dict[str, list[int]] = {name: [] for name in POLICIES}
    for seed in scale.seeds:
        report.progress(f"results by time, seed {seed}")
        work = region_work(scale, SKEWED, seed)
        tables = work.tables()
        for name in POLICIES:
            join = region_join(seed).keep(rows=MEMORY).shed(SUBSET[name])
            made = by_time(join, tables, 3 * scale.tuples)
            waits[name] += recoveries(made, work.drifts())
            rows += [
                {"seed": seed, "policy": name, "time": INTERVAL * i, "results": int(n)}
                for i, n in enumerate(made)
            ]
    report.runs(stem("fig05", "results-by-time", memory=MEMORY, tuples=scale.tuples), rows)
    shown = [row for row in rows if row["seed"] == scale.seeds[0]]
    tables = region_work(scale, SKEWED, scale.seeds[0]).tables()
    exact = by_time(region_join(scale.seeds[0]), tables, 3 * scale.tuples)
    shown += [
        {"policy": "exact", "time": INTERVAL * i, "results": int(n)} for i, n in enumerate(exact)
    ]
    report.chart(summarise(shown, ["policy", "time"], "results"), "time", "results", "policy")
    mean = {name: statistics.fmean(found) if found else 0.0 for name, found in waits.items()}
    measured = markdown_table(
        ["policy", "intervals until half of the median", "changes"],
        [[name, f"{mean[name]:.2f}", str(len(waits[name]))] for name in POLICIES],
    )
    return [
        judge(
            "5",
            "MSketch recovers from concept drift as quickly as Rand",
            measured,
            {"mean over changes": mean["MSketch"] <= mean["Rand"] + 1},
            "Taken as: not more than one interval later, in the mean.",
        )
    ]


def by_time(join: ss.Join, tables: Mapping[str, pa.Table], length: int) -> npt.NDArray[np.int64]:
    """How many results are made in each interval."""
    counts = np.zeros(-(-length // INTERVAL), np.int64)
    for batch in join.select("time").replay_batches(tables):
        times = batch.column("time").to_numpy() // INTERVAL
        counts += np.bincount(times, minlength=len(counts))
    return counts


def recoveries(made: npt.NDArray[np.int64], drifts: list[int]) -> list[int]:
    """For each long region how many intervals pass until half of its median is reached.

    Examples:
        >>> recoveries(np.array([9] * 8 + [1, 2, 8, 8, 8, 8, 8, 8, 8, 8]), [2000])
        [0, 2]
    """
    ends = [-(-time // INTERVAL) for time in drifts]
    found = []
    for start, end in zip([0, *ends], [*ends, len(made)], strict=True):
        if end - start >= LONG:
            region = made[start:end]
            found.append(int(np.argmax(region >= np.median(region) / 2)))
    return found
