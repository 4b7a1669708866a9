"""The join on one shared key: how fast, how much memory, and how that compares.

The workload is the one of the existence-pattern paper: every key passes through some of the streams
in some order. Its rate is such that a window of 100 seconds would hold twice the budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed.engine.batch import Batch
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import merged
from streamshed.engine.operator import Operator
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.duck import beside
from streamshed_lab.bench.machine import share
from streamshed_lab.bench.timing import best_of, processor_time, wall_time
from streamshed_lab.workloads import ExistenceWorkload

if TYPE_CHECKING:
    from streamshed.ledger import Ledger
    from streamshed.plan.plan import Plan

WINDOW = 100
"""Seconds."""
POLICIES = ("exact", "random", "oldest", "frequency", "output", "existence", "column")

LOOP_BARS = {"existence": 8_000_000, "output": 8_000_000, "frequency": 6_000_000}
"""Of 5 streams that keep 500 rows each."""
END_TO_END_BAR = 2_000_000
GROWTH_BAR = 6.0
STATE_BAR, STATE_ROWS = 80.0, 20_000
DUCKDB_BAR = 1.0
SHARDS, SHARDS_BAR = 2, 1.7


@dataclass(frozen=True)
class Setting:
    """What is measured together.

    Attributes:
        streams: how many streams.
        rows: the budget of each.
        timed: rows of all streams together that are timed, after as many as fill the windows.
        repeats: how often.
        policies: by name; `exact` has no budget, `column` sheds by the column `misc`.
        end_to_end: whether replay is timed too, and not only the loop.
    """

    streams: int
    rows: int
    timed: int
    repeats: int
    policies: tuple[str, ...] = POLICIES
    end_to_end: bool = True

    def __str__(self) -> str:
        return f"{self.streams} streams, {self.rows:,} rows"

    @property
    def filling(self) -> int:
        """Rows of each stream that fill a window: twice the budget."""
        return 2 * self.rows

    def tables(self) -> dict[str, pa.Table]:
        """The streams, at a rate that overflows the budget by 2."""
        return ExistenceWorkload(
            streams=self.streams,
            tuples=self.filling + self.timed // self.streams,
            rate=self.filling / WINDOW,
            spread=WINDOW / 2,
            seed=1,
            arrivals="poisson",
        ).tables()

    def join(self, policy: str) -> ss.Join:
        """The join under a policy."""
        names = [f"s{number + 1}" for number in range(self.streams)]
        join = ss.join(*names).on("key").within(f"{WINDOW} s", time="time", clock="max").seed(1)
        if policy == "exact":
            return join
        join = join.keep(rows=self.rows)
        return join.shed(column="misc") if policy == "column" else join.shed(policy)


QUICK = (
    *(Setting(streams, 500, timed=200_000, repeats=3) for streams in (3, 5, 7)),
    Setting(5, 20_000, timed=200_000, repeats=2),
    Setting(5, 100_000, timed=500_000, repeats=2, policies=("existence",), end_to_end=False),
)
FULL = (
    *(Setting(streams, 500, timed=1_000_000, repeats=5) for streams in (3, 5, 7)),
    *(Setting(streams, 20_000, timed=1_000_000, repeats=3) for streams in (3, 5, 7)),
    Setting(5, 1_000_000, timed=3_000_000, repeats=2, policies=("random", "oldest", "existence")),
)


_PROFILED = Setting(5, 500, timed=100_000, repeats=1)


def _profiled(policy: str) -> tuple[ss.Join, dict[str, pa.Table]]:
    return _PROFILED.join(policy), _PROFILED.tables()


LOOPS = {
    **{policy: partial(_profiled, policy) for policy in (*POLICIES, "density")},
    "in bulk": partial(_profiled, "exact"),
}
"""Of which flame graphs can be drawn."""


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    costs: dict[int, float] = {}
    for setting in QUICK if quick else FULL:
        progress(f"{setting}: making the workload")
        bench = _Bench(setting, progress)
        yield from bench.measurements()
        if setting.streams == 5:
            costs[setting.rows] = bench.cost("existence")
    few, many = min(costs), max(costs)
    yield Measurement(
        f"growth of the loop's time per row from {few:,} to {many:,} rows, existence, 5 streams",
        costs[many] / costs[few],
        "times",
        bar=GROWTH_BAR,
        at_most=True,
    )
    yield from _against_duckdb(3 if quick else 5, progress)
    yield from _in_shards(quick, progress)


def loop_speeds(setting: Setting, progress: Progress) -> dict[str, float]:
    """How many rows a second the compiled loop takes under each policy of a setting."""
    bench = _Bench(setting, progress)
    bench.time_loops()
    return {policy: 1 / bench.cost(policy) for policy in setting.policies}


class _Bench:
    """One setting: its workload, and what was measured with it."""

    def __init__(self, setting: Setting, progress: Progress) -> None:
        self.setting = setting
        self.progress = progress
        self.tables = setting.tables()
        self.tuples = sum(table.num_rows for table in self.tables.values())
        self.plans = {
            policy: setting.join(policy)
            .select("time")
            .plan({n: t.schema for n, t in self.tables.items()})
            for policy in setting.policies
        }
        self.batches = {policy: self._batch(plan) for policy, plan in self.plans.items()}
        self.ledgers: dict[str, Ledger] = {}
        self.loop_times: dict[str, float] = {}

    def _batch(self, plan: Plan) -> Batch:
        """All rows in the order of arrival, as the loop takes them."""
        operator = _operator(plan)
        parts = [
            operator.read(position, table.combine_chunks().to_batches()[0])
            for position, table in enumerate(self.tables.values())
        ]
        return merged(parts)

    def cost(self, policy: str) -> float:
        """Seconds of the loop for each row."""
        timed: int = self.tuples - self.setting.filling * self.setting.streams
        return self.loop_times[policy] / timed

    def time_loops(self) -> None:
        """Time the loop under every policy."""
        for policy in self.setting.policies:
            self.progress(f"{self.setting}: warming up {policy}")
            self._warm_up(policy)
        self.progress(f"{self.setting}: timing the loop")
        loops = {policy: partial(self._loop, policy) for policy in self.setting.policies}
        self.loop_times = best_of(self.setting.repeats, loops)

    def measurements(self) -> Iterator[Measurement]:
        """Loop, end to end, and state, for every policy."""
        self.time_loops()
        for policy in self.setting.policies:
            bar = LOOP_BARS.get(policy) if self._is_the_paper_s() else None
            yield Measurement(self._name("loop", policy), 1 / self.cost(policy), "rows/s", bar)
        yield from self._share()
        if self.setting.end_to_end:
            yield from self._end_to_end()
        for policy in self.setting.policies:
            ledger = self.ledgers[policy]
            stored = sum(stream.stored for stream in ledger.streams.values())
            yield Measurement(
                self._name("state beyond the payload", policy),
                ledger.state_bytes / stored,
                "bytes/row",
                bar=STATE_BAR if self.setting.rows == STATE_ROWS else None,
                at_most=True,
            )

    def _end_to_end(self) -> Iterator[Measurement]:
        self.progress(f"{self.setting}: timing replay")
        runs = {
            policy: partial(processor_time, partial(self.setting.join(policy).replay, self.tables))
            for policy in self.setting.policies
        }
        for policy, seconds in best_of(self.setting.repeats, runs).items():
            of_paper = policy == "existence" and self._is_the_paper_s()
            bar = END_TO_END_BAR if of_paper else None
            name = self._name("end to end", policy)
            yield Measurement(name, self.tuples / seconds, "rows/s", bar)

    def _share(self) -> Iterator[Measurement]:
        """How much of what memory can hand over the loop asks for."""
        policy = "existence"
        operator = _operator(self.plans[policy])
        speed = 1 / self.cost(policy)
        yield from share(self._name("loop", policy), operator, self.batches[policy], speed)

    def _is_the_paper_s(self) -> bool:
        return (self.setting.streams, self.setting.rows) == (5, 500)

    def _name(self, what: str, policy: str) -> str:
        return f"{what}, {policy}, {self.setting}"

    def _warm_up(self, policy: str) -> None:
        """Compile, or read the compiled code, before anything is timed."""
        some = {name: table.slice(0, 1_000) for name, table in self.tables.items()}
        self.setting.join(policy).replay(some)

    def _loop(self, policy: str) -> float:
        """Seconds of processor time that the compiled loop takes once the windows are full."""
        operator = _operator(self.plans[policy])
        batch = self.batches[policy]
        filling = self.setting.filling * self.setting.streams
        _drain(operator, Batch._make(column[:filling] for column in batch))
        rest = Batch._make(column[filling:] for column in batch)
        seconds = processor_time(partial(_drain, operator, rest))
        self.ledgers[policy] = operator.ledger()
        return seconds


def _operator(plan: Plan) -> Operator:
    """A join that counts its results and keeps no payload."""
    return build_operator(plan, whole=False)


def _drain(operator: Operator, batch: Batch) -> None:
    for _ in operator.process(batch):
        pass


# -- beside DuckDB --------------------------------------------------------------------------------

_ROWS = 600_000
_WINDOW_ROWS = 100_000
_KEYS = (400_000, 300_000, 200_000)
"""How many keys there are: the fewer, the more often each comes again."""
_STEP = 3
"""Units of time between the rows of a stream."""
_REACH = _STEP * _WINDOW_ROWS

_SQL = f"""
    select a.k ak, a.ts ats, a.v av, b.k bk, b.ts bts, b.v bv, c.k ck, c.ts cts, c.v cv,
        greatest(a.ts, b.ts, c.ts) as time
    from a join b using (k) join c using (k)
    where greatest(a.ts, b.ts, c.ts) - a.ts <= {_REACH}
      and greatest(a.ts, b.ts, c.ts) - b.ts <= {_REACH}
      and greatest(a.ts, b.ts, c.ts) - c.ts <= {_REACH}
"""


def _against_duckdb(repeats: int, progress: Progress) -> Iterator[Measurement]:
    """The exact three-way join of rows that are at hand, which is where a database is at home."""
    for keys in _KEYS:
        yield from _with_keys(keys, repeats, progress)


def _with_keys(keys: int, repeats: int, progress: Progress) -> Iterator[Measurement]:
    progress(f"the exact join beside DuckDB, {keys:,} keys")
    tables = {name: _uniform(seed, keys) for seed, name in enumerate("abc")}
    join = ss.join(*tables).on("k").within(_REACH, time="ts")
    setting = (
        f"exact join of 3 streams of {_ROWS:,} rows, {_WINDOW_ROWS:,} in a window, {keys:,} keys"
    )
    yield from beside(join, tables, _SQL, repeats, setting, DUCKDB_BAR)


def _uniform(seed: int, keys: int) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.arange(_ROWS) * _STEP + random.integers(0, _STEP, _ROWS)
    drawn = random.integers(0, keys, _ROWS)
    return pa.table({"k": drawn, "ts": times, "v": random.random(_ROWS)})


# -- in shards ------------------------------------------------------------------------------------


def _in_shards(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Replay with a budget in as many shards as there are cores, beside replay in one."""
    setting = Setting(5, 20_000, timed=500_000 if quick else 3_000_000, repeats=3 if quick else 5)
    tables = setting.tables()
    for policy in ("existence", "random"):
        progress(f"replay in {SHARDS} shards, {policy}")
        join = setting.join(policy)
        for number in (1, SHARDS):
            join.replay(
                {name: rows.slice(0, 1_000) for name, rows in tables.items()}, shards=number
            )
        best = best_of(
            setting.repeats,
            {
                number: partial(wall_time, partial(join.replay, tables, shards=number))
                for number in (1, SHARDS)
            },
        )
        said = f"replay, {policy}, {setting}"
        for number, seconds in best.items():
            rows = sum(table.num_rows for table in tables.values())
            yield Measurement(f"{said}, shards={number}", rows / seconds, "rows/s")
        ratio = best[1] / best[SHARDS]
        name = f"speed of shards={SHARDS} against one, {said}"
        yield Measurement(name, ratio, "times", SHARDS_BAR)
