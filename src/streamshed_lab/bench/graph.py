"""The join by a graph of equalities: beside DuckDB, under sketches, and what decisions cost.

The exact join is a chain of three streams, a million rows in all, as a user has it: from tables to
a table of results. Values are drawn uniformly.

The speed under `sketch` is that of the loop, on one core, with the windows holding twice the budget
and 100 copies of each sketch.

What decisions cost is measured on the paper's data (Law and Zaniolo 2007, figure 3), with budgets
of a quarter and of three quarters of a window. A policy that keeps more makes more results, which
takes its time too; so the time of decisions is taken where there are no results: the same streams,
the third of which has values that none of the others has. What `sketch` takes there beyond
`random`, by the time that `random` takes for the whole join, is the share of decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import streamshed as ss
from streamshed.engine.batch import Batch
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import merged
from streamshed.engine.operator import Operator
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.duck import beside
from streamshed_lab.bench.timing import best_of, processor_time
from streamshed_lab.workloads.regions import CONDITIONS, NAMES, RegionWorkload

DUCKDB_BAR = 1.0
SPEED_BAR = 500_000
SHARE_BAR = 0.25

ROWS = 1_000_000
"""Of the three streams together."""
CHAIN = ("a.x = b.x", "b.y = c.y")
KEYS = (100_000, 50_000, 30_000)
"""Values of each attribute."""
STEP = 3
"""Units of time between the rows of a stream."""
BUDGETS = (1_000, 20_000)
WINDOW = 500
"""Of the paper's data, in seconds."""
FULL_WINDOW = 167
PARTS = (0.25, 0.75)
POLICIES = ("random", "oldest", "pairwise", "sketch")


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    repeats: int
    tuples: int
    """Timed under sketches."""
    regions: int
    """Rows of each relation of the paper's data."""


QUICK, FULL = Effort(2, 300_000, 5_000), Effort(5, 1_500_000, 10_000)


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    effort = QUICK if quick else FULL
    for keys in KEYS:
        yield from _against_duckdb(keys, effort.repeats, progress)
    for rows in BUDGETS:
        yield from _under_policies(rows, effort, progress)
    for part in PARTS:
        yield from _decisions(part, effort, progress)


def chain(rows: int, keys: int) -> dict[str, pa.Table]:
    """Three streams of so many rows each, to be joined by `CHAIN`."""
    return {
        name: _stream(seed, rows, keys, columns)
        for seed, (name, columns) in enumerate({"a": "x", "b": "xy", "c": "y"}.items())
    }


def _profiled(policy: str) -> tuple[ss.Join, dict[str, pa.Table]]:
    rows = 1_000
    join = ss.join(*"abc").on(*CHAIN).within(2 * rows * STEP, time="ts", clock="max")
    return join.keep(rows=rows).shed(policy), chain(20_000, 4 * rows)


LOOPS = {policy: partial(_profiled, policy) for policy in POLICIES}
"""Of which flame graphs can be drawn."""


def _stream(seed: int, rows: int, keys: int, columns: str) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.arange(rows) * STEP + random.integers(0, STEP, rows)
    values = {column: random.integers(0, keys, rows) for column in columns}
    return pa.table({"ts": times, **values, "v": random.random(rows)})


def _against_duckdb(keys: int, repeats: int, progress: Progress) -> Iterator[Measurement]:
    progress(f"the exact chain beside DuckDB, {keys:,} values")
    tables = chain(ROWS // 3, keys)
    in_window = ROWS // 18
    reach = STEP * in_window
    join = ss.join(*tables).on(*CHAIN).within(reach, time="ts")
    columns = ", ".join(f"{s}.{c} {s}_{c}" for s in tables for c in tables[s].column_names)
    latest = "greatest(a.ts, b.ts, c.ts)"
    within = " and ".join(f"{latest} - {name}.ts <= {reach}" for name in tables)
    query = (
        f"select {columns}, {latest} as time from a join b on a.x = b.x join c on b.y = c.y"
        f" where {within}"
    )
    setting = f"exact chain, {ROWS:,} rows in all, {in_window:,} in a window, {keys:,} values"
    yield from beside(join, tables, query, repeats, setting, DUCKDB_BAR)


def _under_policies(rows: int, effort: Effort, progress: Progress) -> Iterator[Measurement]:
    progress(f"the loop under every policy, {rows:,} rows")
    tables = chain(effort.tuples // 3, 4 * rows)
    join = ss.join(*tables).on(*CHAIN).within(2 * rows * STEP, time="ts", clock="max")
    joins = {policy: join.keep(rows=rows).shed(policy) for policy in POLICIES}
    best = best_of(effort.repeats, {p: partial(_loop_time, j, tables) for p, j in joins.items()})
    for policy, seconds in best.items():
        name = f"loop, {policy}, chain of 3 streams, {rows:,} rows"
        bar = SPEED_BAR if policy == "sketch" else None
        yield Measurement(name, effort.tuples / seconds, "rows/s", bar)


def _decisions(part: float, effort: Effort, progress: Progress) -> Iterator[Measurement]:
    progress(f"what decisions cost, {part:.0%} memory")
    tables = RegionWorkload(tuples=effort.regions, seed=1).tables()
    rows = round(part * FULL_WINDOW)
    join = ss.join(*NAMES).on(*CONDITIONS).within(WINDOW, time="time", clock="max").keep(rows=rows)
    apart = pc.add(tables["r3"]["a1"], 1 << 20)
    fruitless = tables | {"r3": tables["r3"].set_column(1, "a1", apart)}
    runs = {
        (policy, whole): partial(_loop_time, join.shed(policy), tables if whole else fruitless)
        for policy in POLICIES
        for whole in (True, False)
    }
    best = best_of(effort.repeats, runs)
    setting = f"the paper's data, {part:.0%} memory"
    for policy in POLICIES:
        spent = best[policy, True]
        name = f"whole time, {policy}, {setting}"
        yield Measurement(name, spent / (3 * effort.regions) * 1e6, "µs/row")
    more = best["sketch", False] - best["random", False]
    name = f"share of decisions, sketch over random, {setting}"
    yield Measurement(name, more / best["random", True], "of random's time", SHARE_BAR, True)


def _loop_time(join: ss.Join, tables: Mapping[str, pa.Table]) -> float:
    """Seconds of processor time that the loop takes for all rows."""
    plan = join.select("time").plan({name: table.schema for name, table in tables.items()})
    operator = build_operator(plan, whole=False)
    parts = [
        operator.read(position, table.combine_chunks().to_batches()[0])
        for position, table in enumerate(tables.values())
    ]
    return processor_time(partial(_drain, operator, merged(parts)))


def _drain(operator: Operator, batch: Batch) -> None:
    for _ in operator.process(batch):
        pass
