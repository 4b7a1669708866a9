"""The join on any condition: how fast rows are compared, and how well the throttle works.

The ε-join is that of the GrubJoin paper, of three streams, without a throttle; a comparison is that
of a choice so far with one row that its windows hold, whether the index spares the look or not.
DuckDB joins the same tables by ranges, in as many threads as it likes. Vectors have 512 elements;
how fast they are compared is measured against the machine's own products of matrices in the same
process, both in one thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import merged
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.timing import best_of, processor_time, wall_time
from streamshed_lab.experiments.grubjoin.harvesting import (
    DOUBLE,
    milliseconds,
    optimality,
    random_directions,
)
from streamshed_lab.experiments.grubjoin.output import capacity, compared, work
from streamshed_lab.experiments.grubjoin.pacing import SECOND, WINDOW, epsilon_join, watched

WIDE = 512
SHARE_BAR = 0.6
THROTTLED_BAR = 0.15
OPTIMALITY_BAR = 0.98
TIME_BAR = 10.0
OFF_BAR = 0.05
ALIGNED_BAR, NONALIGNED_BAR = 65.0, 150.0


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    repeats = 2 if quick else 5
    yield from _scan(200.0 if quick else 500.0, repeats, progress)
    yield from _against_duckdb(100.0, repeats, progress)
    yield from _vectors(quick, progress)
    yield from _harvesting(100 if quick else 500, progress)
    yield from _throttle(quick, progress)


def _scan(rate: float, repeats: int, progress: Progress) -> Iterator[Measurement]:
    progress("timing the ε scan")
    tables = work("nonaligned", rate, 1).tables()
    join = epsilon_join(list(tables))
    made = join.count(tables).comparisons or 0
    seconds = best_of(repeats, {"": lambda: processor_time(lambda: join.count(tables))})[""]
    name = f"ε scan, 3 streams, {rate * WINDOW:,.0f} rows in a window"
    yield Measurement(name, made / seconds, "comparisons/s")
    rows = sum(table.num_rows for table in tables.values())
    yield Measurement(f"{name}, rows", rows / seconds, "rows/s")


def _against_duckdb(rate: float, repeats: int, progress: Progress) -> Iterator[Measurement]:
    import duckdb

    progress("timing the ε-join, here and in DuckDB")
    tables = work("nonaligned", rate, 1).tables()
    join = epsilon_join(list(tables))
    window = round(WINDOW * SECOND)
    near = " AND ".join(
        # As DuckDB does best: a range join on the values, and a filter on the times.
        f"{one}.value BETWEEN {other}.value - 1 AND {other}.value + 1"
        f" AND abs({one}.us - {other}.us) <= {window}"
        for one, other in (("s1", "s2"), ("s1", "s3"), ("s2", "s3"))
    )
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(f"{name}_rows", table)
            made = f"SELECT value, epoch_us(time) AS us FROM {name}_rows"
            database.execute(f"CREATE TABLE {name} AS {made}")

        def query() -> int:
            found = database.execute(f"SELECT count(*) FROM s1, s2, s3 WHERE {near}").fetchone()
            return int(found[0]) if found else 0

        if query() != join.count(tables).results:
            raise AssertionError("DuckDB counts other results")
        best = best_of(
            repeats,
            {
                "here": lambda: wall_time(lambda: join.count(tables)),
                "duckdb": lambda: wall_time(query),
            },
        )
    yield Measurement("ε-join, 3 streams", best["here"], "s")
    yield Measurement("ε-join, 3 streams, DuckDB", best["duckdb"], "s")
    name = "ε-join, 3 streams, DuckDB's time by ours"
    yield Measurement(name, best["duckdb"] / best["here"], "times", bar=1.0)


def _vectors(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """In a process of its own, where products are taken in one thread."""
    progress("timing products of vectors")
    script = f"from streamshed_lab.bench.nested import time_vectors; time_vectors({quick})"
    environment = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    found = json.loads(done.stdout)
    yield Measurement(f"products of matrices, {WIDE} wide", found["peak"] / 1e9, "Gflop/s")
    yield Measurement(f"cosine join, {WIDE} wide", found["comparisons"], "comparisons/s")
    share = found["comparisons"] * 2 * WIDE / found["peak"]
    yield Measurement(f"cosine join, {WIDE} wide, of the peak", share, "part", bar=SHARE_BAR)
    name = f"cosine join, {WIDE} wide, with a tenth of the comparisons, of the time"
    yield Measurement(name, found["throttled"], "part", THROTTLED_BAR, at_most=True)


def time_vectors(quick: bool) -> None:
    """Print the best rate of products of matrices, and of comparisons in a cosine join."""
    random = np.random.default_rng(1)
    rows = 12_000 if quick else 20_000
    join = ss.join("a", "b").on(ss.cosine("v", at_least=0.9)).within(rows // 2, time="ts")
    vectors = random.standard_normal((2, rows, WIDE), np.float32)
    tables = {
        name: pa.table(
            {
                "ts": np.arange(rows),
                "v": pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), WIDE),
            }
        )
        for name, part in zip("ab", vectors, strict=True)
    }
    left, right = vectors[0][:2048], np.ascontiguousarray(vectors[1][:2048].T)
    best, peak = np.inf, 0.0
    for _ in range(3 if quick else 5):
        seconds, comparisons = _time_join(join, tables)
        best = min(best, seconds)
        start = time.perf_counter()
        for _ in range(4):
            left @ right
        peak = max(peak, 4 * 2 * 2048 * 2048 * WIDE / (time.perf_counter() - start))
    slow = join.throttle(comparisons_per_second=comparisons / rows / 10, every=rows // 20)
    _time_join(slow, {name: table.slice(0, 1000) for name, table in tables.items()})
    throttled = min(_time_join(slow, tables)[0] for _ in range(2))
    found = {"peak": peak, "comparisons": comparisons / best, "throttled": throttled / best}
    print(json.dumps(found))


def _time_join(join: ss.Join, tables: dict[str, pa.Table]) -> tuple[float, int]:
    """The seconds that a join takes, without reading, and the comparisons that it makes."""
    plan = join.select("time").plan({name: table.schema for name, table in tables.items()})
    operator = build_operator(plan, whole=False)
    parts = [
        operator.read(position, table.combine_chunks().to_batches()[0])
        for position, table in enumerate(tables.values())
    ]
    batch = merged(parts)
    start = time.perf_counter()
    for _ in operator.process(batch):
        pass
    return time.perf_counter() - start, operator.ledger().comparisons or 0


def _harvesting(runs: int, progress: Progress) -> Iterator[Measurement]:
    progress("harvest fractions")
    reached = {
        throttle: float(np.mean([optimality(seed, throttle)[DOUBLE] for seed in range(runs)]))
        for throttle in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
    }
    worst = min(reached, key=lambda throttle: reached[throttle])
    yield Measurement(
        f"greedy, BDOpDC, double-sided, of the best, {runs} runs",
        reached[worst],
        "part",
        bar=OPTIMALITY_BAR,
        cell=f"z = {worst}",
    )
    known = random_directions(1, streams=5, parts=20)
    taken = max(milliseconds(known, throttle, "double") for throttle in (0.1, 0.25, 0.5, 0.9))
    yield Measurement("greedy, m = 5, n = 20", taken, "ms", bar=TIME_BAR, at_most=True)


def _throttle(quick: bool, progress: Progress) -> Iterator[Measurement]:
    limit = capacity()
    progress("the throttle, settled and after a change of rate by ten")
    streams = work("aligned", 200.0, 1, seconds=140.0)
    said = epsilon_join(streams.names).throttle(
        comparisons_per_second=limit, part="2 seconds", buffer=100
    )
    (span,) = watched(said, streams.tables(), [60.0, 140.0])
    off = abs(span.comparisons / 80.0 / limit - 1)
    yield Measurement("work off the throttle, settled", off, "part", bar=OFF_BAR, at_most=True)
    streams = work("aligned", ((0.0, 30.0), (60.0, 300.0)), 1, seconds=80.0)
    edges = np.arange(60.0, 81.0, 5.0).tolist()
    most = max(span.comparisons for span in watched(said, streams.tables(), edges))
    over = most / 5.0 / limit - 1
    name = "work above the throttle, in 5 s after a rise of rates by ten"
    yield Measurement(name, over, "part", bar=OFF_BAR, at_most=True)
    progress("GrubJoin against RandomDrop")
    for kind, bar in (("aligned", ALIGNED_BAR), ("nonaligned", NONALIGNED_BAR)):
        gains = [
            100 * compared(work(kind, 250.0, seed), limit)["improvement"]
            for seed in range(1 if quick else 3)
        ]
        name = f"output over RandomDrop, {kind}, 250 rows/s"
        yield Measurement(name, float(np.mean(gains)), "%", bar=bar)
