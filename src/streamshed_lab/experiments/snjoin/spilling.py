"""What disk support is worth when memory holds half of the windows (section 7.1)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed_lab.experiments.joining import key_join
from streamshed_lab.experiments.report import Report, Row, markdown_table, stem
from streamshed_lab.experiments.timing import least_times
from streamshed_lab.experiments.verdicts import QUARTER, Claim, judge, near, reading

WINDOW = 60.0
"""Seconds, as in the paper."""
WINDOWS = 5
"""So many of them are joined."""
PAPER = 0.58
"""By how much the output rate of 2 streams grows in the paper."""
PLACE = "section 7.1"


@dataclass(frozen=True)
class Scale:
    """How much of everything to run."""

    streams: tuple[int, ...] = (2, 5, 10, 15, 20)
    rows: int = 60_000
    """Of all streams together in a window."""
    seeds: tuple[int, ...] = (1, 2, 3)
    rounds: int = 3


FULL = Scale()
QUICK = Scale(streams=(2, 10, 20), rows=20_000, seeds=(1,), rounds=2)


def disk_support(scale: Scale, report: Report) -> list[Claim]:
    """Output with and without a disk, by the number of streams."""
    runs: list[Row] = []
    for streams in scale.streams:
        for seed in scale.seeds:
            report.progress(f"{streams} streams, seed {seed}")
            runs += measured(streams, seed, scale)
    name = stem("section71", "disk-support", window=WINDOW, rows=scale.rows)
    report.runs(name, runs)
    return claims(runs)


def measured(streams: int, seed: int, scale: Scale) -> list[Row]:
    """Results for each second of the streams: in memory, shedding at random, and with a disk."""
    tables = appearances(streams, scale.rows // streams, seed)
    exact = key_join(tables, WINDOW).seed(seed)
    half = exact.keep(total=scale.rows // 2)
    with TemporaryDirectory() as folder:
        joins = {
            "memory": exact,
            "shed": half.shed("random").estimate(rate=0),
            "spilled": half.spill(to=folder),
        }
        results = {name: join.count(tables).results for name, join in joins.items()}
        times = least_times(
            scale.rounds, {name: partial(_replayed, join, tables) for name, join in joins.items()}
        )
    return [
        {
            "streams": streams,
            "seed": seed,
            "overflow": name,
            "results": results[name],
            "seconds": times[name],
            "rate": results[name] / (WINDOWS * WINDOW),
        }
        for name in joins
    ]


def appearances(streams: int, rows: int, seed: int) -> dict[str, pa.Table]:
    """Streams with so many rows of each in a window; every key comes once to each of them.

    It comes at random times within half a window. (`ExistenceWorkload` lists the orders of streams,
    which 20 have too many of.)

    Examples:
        >>> tables = appearances(20, 100, seed=1)
        >>> len(tables), tables["s1"].num_rows
        (20, 500)
    """
    random = np.random.default_rng([seed, streams])
    began = random.uniform(0, WINDOWS * WINDOW, WINDOWS * rows)
    tables = {}
    for number in range(streams):
        time = began + random.uniform(0, WINDOW / 2, len(began))
        order = np.argsort(time)
        micros = pa.array((time[order] * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
        tables[f"s{number + 1}"] = pa.table({"key": order, "time": micros})
    return tables


def _replayed(join: ss.Join, tables: Mapping[str, pa.Table]) -> None:
    join.replay(tables)


def claims(runs: list[Row]) -> list[Claim]:
    """The paper's two sentences, and what they come to here."""
    streams = list(dict.fromkeys(run["streams"] for run in runs))
    gains = {count: _times(runs, count, "rate") - 1 for count in streams}
    table = markdown_table(
        [
            "streams",
            "output rate with a disk",
            "results",
            "of",
            "processor time",
            "times shedding's",
        ],
        [
            [
                str(count),
                f"{gains[count]:+.0%}",
                f"{_mean(runs, count, 'spilled', 'results'):,.0f}",
                f"{_mean(runs, count, 'memory', 'results'):,.0f}",
                f"{_mean(runs, count, 'spilled', 'seconds') / (WINDOWS * WINDOW):.3%}",
                f"{_times(runs, count, 'seconds'):.1f}",
            ]
            for count in streams
        ],
    )
    least, most = min(streams), max(streams)
    by = {
        "the streams": gains,
        "the processor": {
            count: _times(runs, count, "rate") / _times(runs, count, "seconds") - 1
            for count in streams
        },
    }
    return [
        judge(
            PLACE,
            f"Disk support increases the output rate of 2 streams, by up to {PAPER:.0%}",
            table,
            {
                reading(**{"rates by": clock}).at(f"{least} streams"): near(found[least], PAPER)
                for clock, found in by.items()
            },
            "Against shedding at random with the same memory; results in the streams' own time, "
            "or in processor time, as where the processor is the bottleneck. There the gain is "
            + ", ".join(f"{gain:+.0%} with {n}" for n, gain in by["the processor"].items())
            + " streams.",
            QUARTER,
        ),
        judge(
            PLACE,
            "With more streams disk support is less beneficial",
            table,
            {
                reading(**{"rates by": clock}).at(f"{most} against {least} streams"): found[most]
                < found[least]
                for clock, found in by.items()
            },
            "In the paper the processor is the bottleneck: for many streams there is hardly time "
            "to revisit what was spooled. Here it is always revisited; and of a result of many "
            "streams some member is likely to have been shed: without a disk ever less is left.",
        ),
        judge(
            PLACE,
            "Nothing is lost to disk",
            table,
            {
                f"{count} streams": _mean(runs, count, "spilled", "results")
                == _mean(runs, count, "memory", "results")
                for count in streams
            },
            ours=True,
        ),
    ]


def _mean(runs: list[Row], streams: int, overflow: str, measure: str) -> float:
    chosen = [r for r in runs if (r["streams"], r["overflow"]) == (streams, overflow)]
    return statistics.fmean(run[measure] for run in chosen)


def _times(runs: list[Row], streams: int, measure: str) -> float:
    """How many times as much a measure is with a disk as with shedding."""
    with_disk = _mean(runs, streams, "spilled", measure)
    return with_disk / max(1e-9, _mean(runs, streams, "shed", measure))
