"""What disk support is worth when memory holds half of the windows (section 7.1)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import streamshed as ss
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import merged
from streamshed.kernels.compiling import driver
from streamshed.kernels.core import NONE
from streamshed.kernels.random import draw
from streamshed_lab.baselines import Baseline, MJoin, Query, XJoinTree
from streamshed_lab.experiments.joining import key_join
from streamshed_lab.experiments.report import Report, Row, markdown_table, stem
from streamshed_lab.experiments.snjoin.running import part
from streamshed_lab.experiments.timing import least_times
from streamshed_lab.experiments.verdicts import QUARTER, Claim, judge, near, reading
from streamshed_lab.workloads import SensorWorkload

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
    staged: tuple[int, ...] = (2, 5)
    """Streams of the baselines with a disk."""
    staged_rows: int = 6_000


FULL = Scale()
QUICK = Scale(
    streams=(2, 10, 20), rows=20_000, seeds=(1,), rounds=2, staged=(2, 4), staged_rows=1_000
)
VALUES = 1_000
"""Values of the streams that make one output for each arrival."""
Ints = npt.NDArray[np.int64]


def disk_support(scale: Scale, report: Report) -> list[Claim]:
    """Output with and without a disk, by the number of streams."""
    runs: list[Row] = []
    for streams in scale.streams:
        for seed in scale.seeds:
            report.progress(f"{streams} streams, seed {seed}")
            runs += measured(streams, seed, scale)
    outputs: list[Row] = []
    for streams, seed in product(scale.streams, scale.seeds):
        report.progress(f"{streams} streams, one output for each arrival, seed {seed}")
        outputs += measured_outputs(streams, seed, scale.rows)
    stages: list[Row] = []
    for streams in scale.staged:
        report.progress(f"baselines with a disk, {streams} streams")
        tables = appearances(streams, scale.staged_rows // streams, scale.seeds[0])
        stages += [
            {"streams": streams, "operator": kind.name}
            | staged(kind, tables, scale.staged_rows // 2)
            for kind in (MJoin, XJoinTree)
        ]
    name = stem("section71", "disk-support", window=WINDOW, rows=scale.rows)
    report.runs(name, runs)
    report.runs(stem("section71", "outputs", window=WINDOW, rows=scale.rows), outputs)
    report.runs(stem("section71", "stages", window=WINDOW, rows=scale.staged_rows), stages)
    lines = {"results": runs, "one output for each arrival": outputs}
    gains = [
        {"unit": unit, "streams": n, "by": "gain", "gain_mean": _times(of, n, "rate") - 1}
        for unit, of in lines.items()
        for n in scale.streams
    ]
    report.chart(gains, "streams", "gain", "unit", paper={(2, "results"): PAPER}, log=True)
    return claims(runs, outputs, stages)


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


# -- one output for each arrival ------------------------------------------------------------------


def zipf_rows(streams: int, rows: int, seed: int) -> tuple[Ints, Ints, Ints]:
    """Streams with the paper's values, shared by all for ever: stream, time and value by row.

    Args:
        streams: how many.
        rows: of all of them in a window.
        seed: of all that is drawn.
    """
    every = WINDOW * streams / rows
    work = SensorWorkload(
        streams, WINDOWS * WINDOW, every, values=VALUES, popular="same", seed=seed
    )
    table = work.table()
    stream, value, time = (table[name].cast("int64").to_numpy() for name in table.column_names)
    return stream, time, value


@driver
def outputs_made(stream, time, value, counts, window, room, seed):  # type: ignore[no-untyped-def]
    """How many arrivals find their value in all other windows, where rows are dropped at random.

    Args:
        stream: by row.
        time: by row, ascending.
        value: by row.
        counts: zeros, by (value, stream): the rows that are held.
        window: of all streams.
        room: rows that may be held.
        seed: of the lots.
    """
    streams = counts.shape[1]
    held, place = np.empty(room, np.int64), np.full(time.size, NONE, np.int64)
    many, first, outputs = 0, 0, 0
    for i in range(time.size):
        while time[i] - time[first] > window:
            if place[first] != NONE:
                counts[value[first], stream[first]] -= 1
                many -= 1
                held[place[first]] = held[many]
                place[held[many]] = place[first]
                place[first] = NONE
            first += 1
        met = 0
        for other in range(streams):
            met += other != stream[i] and counts[value[i], other] > 0
        outputs += met == streams - 1
        if many == room:
            word = draw(np.uint64(seed), np.uint64(i))  # type: ignore[no-untyped-call]
            gone = np.int64(word % np.uint64(room))
            row = held[gone]
            counts[value[row], stream[row]] -= 1
            place[row] = NONE
            many -= 1
            held[gone] = held[many]
            if gone < many:
                place[held[gone]] = gone
        held[many], place[i] = i, many
        counts[value[i], stream[i]] += 1
        many += 1
    return outputs


def measured_outputs(streams: int, seed: int, rows: int) -> list[Row]:
    """Outputs, one for each arrival that has any, with a disk and without."""
    stream, time, value = zipf_rows(streams, rows, seed)
    found = []
    for name, room in (("shed", rows // 2), ("spilled", time.size)):
        counts = np.zeros((VALUES, streams), np.int64)
        made = outputs_made(  # type: ignore[no-untyped-call]
            stream, time, value, counts, WINDOW * 1e6, room, seed
        )
        rate = made / (WINDOWS * WINDOW)
        row = {"streams": streams, "seed": seed, "overflow": name, "results": made, "rate": rate}
        found.append(row)
    return found


# -- the baselines with a disk --------------------------------------------------------------------


def staged(baseline: type[Baseline], tables: Mapping[str, pa.Table], memory: int) -> Row:
    """The results of a baseline with a disk, by the stage that makes them.

    The disk is revisited at the end of each window, when no rows come for a moment (the reactive
    stage of XJoin), and once when the streams have ended.
    """
    plan = key_join(tables, WINDOW).plan({name: rows.schema for name, rows in tables.items()})
    operator = build_operator(plan, whole=False)
    batch = merged(
        [
            operator.read(position, rows.combine_chunks().to_batches()[0])
            for position, rows in enumerate(tables.values())
        ]
    )
    join = baseline(Query(len(tables), round(WINDOW * 1e6), memory=memory))
    ends = np.arange(1, WINDOWS + 1) * WINDOW * 1e6
    start, revisited = 0, 0
    for end in (*np.searchsorted(batch.time, ends).tolist(), batch.time.size):
        for _ in join.process(part(batch, start, end)):
            pass
        if end < batch.time.size:
            before = join.late_results
            for _ in join.revisit():
                pass
            revisited += join.late_results - before
        start = end
    at_once = join.results - join.late_results
    for _ in join.finish():
        pass
    return {
        "in memory": at_once,
        "revisiting": revisited,
        "at the end": join.late_results - revisited,
        "results": join.results,
    }


def _replayed(join: ss.Join, tables: Mapping[str, pa.Table]) -> None:
    join.replay(tables)


def claims(runs: list[Row], outputs: list[Row], stages: list[Row]) -> list[Claim]:
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
    table += "\n\nWith one output for each arrival, and the paper's values, a disk adds "
    table += ", ".join(f"{_times(outputs, n, 'rate') - 1:+.0%} with {n}" for n in streams)
    table += " streams.\n\nResults of baselines with a disk, by stage:\n\n"
    heads = ["streams", "operator", "in memory", "revisiting", "at the end", "results"]
    table += markdown_table(
        heads,
        [[f"{r[h]:,}" if isinstance(r[h], int) else r[h] for h in heads] for r in stages],
    )
    least, most = min(streams), max(streams)
    processor = {
        count: _times(runs, count, "rate") / _times(runs, count, "seconds") - 1 for count in streams
    }
    by = {
        reading(**{"rates by": "the streams", "output": "results"}): gains,
        reading(**{"rates by": "the processor", "output": "results"}): processor,
        reading(**{"rates by": "the streams", "output": "one for each arrival"}): {
            count: _times(outputs, count, "rate") - 1 for count in streams
        },
    }
    return [
        judge(
            PLACE,
            f"Disk support increases the output rate of 2 streams, by up to {PAPER:.0%}",
            table,
            {said.at(f"{least} streams"): near(found[least], PAPER) for said, found in by.items()},
            "Against shedding at random with the same memory; results in the streams' own time, "
            "or in processor time, as where the processor is the bottleneck. There the gain is "
            + ", ".join(f"{gain:+.0%} with {n}" for n, gain in processor.items())
            + " streams.",
            QUARTER,
        ),
        judge(
            PLACE,
            "With more streams disk support is less beneficial",
            table,
            {
                said.at(f"{most} against {least} streams"): found[most] < found[least]
                for said, found in by.items()
            },
            "In the paper the processor is the bottleneck: for many streams there is hardly time "
            "to revisit what was spooled. Here it is always revisited; and of a result of many "
            "streams some member is likely to have been shed: without a disk ever less is left. "
            "Where an arrival makes one output of popular values, that all streams have, enough "
            "copies are left of each, the more surely the more popular a value has to be.",
        ),
        judge(
            PLACE,
            "Nothing is lost to disk",
            table,
            {
                f"{count} streams": _mean(runs, count, "spilled", "results")
                == _mean(runs, count, "memory", "results")
                for count in streams
            }
            | {
                f"{r['operator']}, {r['streams']} streams": r["results"] == most_results
                for r in stages
                for most_results in (
                    max(other["results"] for other in stages if other["streams"] == r["streams"]),
                )
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
