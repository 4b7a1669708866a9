"""How good the estimate of the results missed is: coverage of its interval, error and bias.

A run is one join of one workload under one policy, with a seed of its own; what it would have made
without shedding is counted by the same join without a budget. Constants of the estimator
were chosen by `TUNED` and the families of `looked_at`; those by which it is judged are in `judged`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from statistics import fmean, median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import streamshed as ss
from streamshed.engine.observe.state import STEPS
from streamshed.errors import InputError
from streamshed.ledger import Keys
from streamshed_lab.experiments.joining import key_join
from streamshed_lab.workloads import (
    ExistenceWorkload,
    NormalWorkload,
    OneHeavyKey,
    ZipfWorkload,
)

Tables = Mapping[str, pa.Table]
Shed = Callable[[ss.Join], ss.Join]

_STEP = 5_000_000
"""The steps of the last minute, in microseconds."""
_ROUNDING = 1e-9
"""Sums of the same numbers differ by so much in another order."""

OF_KEYS = ("random", "oldest", "frequency", "output", "existence", "density")
OF_ALL = ("random", "oldest")
"""The policies that serve joins on a shared key, and those that serve every kind of join."""


@dataclass(frozen=True)
class Setting:
    """A kind of workload and the join that it is given to.

    Attributes:
        tables: the streams of a seed.
        join: the join of these, which sheds nothing.
        shed: what makes it shed.
        policies: that it is run with.
        same: whether all seeds have the same data; then only the samples differ.
        keyed: whether keys with a result are counted: those of the column `key`.
        shards: in how many parts the join is done; one, if None.
        aggregated: a column of results, and seconds: then the counts and averages of results in
            windows of this length are compared too.
    """

    tables: Callable[[int], Tables]
    join: Callable[[Tables], ss.Join]
    shed: Shed
    policies: tuple[str, ...] = OF_KEYS
    same: bool = False
    keyed: bool = False
    shards: int | None = None
    aggregated: tuple[str, float] | None = None


@dataclass(frozen=True)
class Run:
    """One run: what was made and missed, and what was said of it.

    Attributes:
        workload: the name of its setting.
        policy: by name.
        seed: of the data and of the join.
        made: results.
        missed: the results that the join without shedding has besides.
        said: what the ledger said of these.
        sample: the bytes of the sample, as a part of those of the whole join.
        keys: that have a result without shedding; None if they were not counted.
        said_keys: what the ledger said of these.
        lately: results missed in the last minute before some moment of the run.
        said_lately: what the ledger said of these then.
        windows: whether each interval of an aggregate of a window holds the truth.
    """

    workload: str
    policy: str
    seed: int
    made: int
    missed: float
    said: ss.Estimate
    sample: float
    keys: int | None = None
    said_keys: Keys | None = None
    lately: float | None = None
    said_lately: ss.Estimate | None = None
    windows: tuple[bool, ...] = ()

    @property
    def covered(self) -> bool:
        """Whether the truth is in the interval."""
        return self.said.low <= self.missed <= self.said.high

    @property
    def error(self) -> float:
        """How far the estimate is off, as a part of the truth."""
        return abs(self.said.value - self.missed) / max(1.0, self.missed)


@dataclass(frozen=True)
class Verdict:
    """What some runs show of the estimate.

    Attributes:
        runs: how many there were.
        coverage: the part of them whose interval holds the truth.
        error: the median of the errors, as a part of the truth.
        bias: what was said less the truth, in the mean, as a part of the mean of the truth.
        width: the median of the width of the interval, as a part of the truth.
        sample: the largest part of the memory that a sample took.
        keys_coverage: the part of the runs in which the interval of keys holds the truth; None
            where keys are not counted.
        lately_coverage: the part of the runs in which that of the last minute holds it.
        windows_coverage: the part of the intervals of aggregates that hold it; None without any.
    """

    runs: int
    coverage: float
    error: float
    bias: float
    width: float
    sample: float
    keys_coverage: float | None
    lately_coverage: float | None
    windows_coverage: float | None


def keyed(window: float) -> Callable[[Tables], ss.Join]:
    """Joins on `key` within so many seconds."""
    return lambda tables: key_join(tables, window)


def in_order_of(window: float) -> Callable[[Tables], ss.Join]:
    """Joins on `key` whose members come in the order of the streams."""
    return lambda tables: keyed(window)(tables).in_order(*tables)


def in_intervals(tables: Tables) -> ss.Join:
    """A join on `key` of three streams, each member within an interval of the one before."""
    first, second, third = tables
    join = keyed(150.0)(tables).between(second, first, "-20 seconds", "1 minute")
    return join.between(third, second, "-30 seconds", "40 seconds")


def keep_rows(rows: int) -> Shed:
    """Sheds what is above so many rows of each stream."""
    return lambda join: join.keep(rows=rows)


def generated(make: Callable[[int], object], window: float, rows: int) -> Setting:
    """A workload made from a seed, within seconds, with so many rows of each stream."""

    def tables(seed: int) -> Tables:
        found: Tables = make(seed).tables()  # type: ignore[attr-defined]
        return found

    return Setting(tables, keyed(window), keep_rows(rows))


TUNED = {
    "existence": generated(
        lambda s: ExistenceWorkload(streams=4, tuples=5_000, spread=50.0, seed=s), 100.0, 400
    ),
    "normal": generated(
        lambda s: NormalWorkload(streams=3, tuples=5_000, variance=100.0**2, seed=s), 100.0, 300
    ),
    "zipf": generated(
        lambda s: ZipfWorkload(streams=3, tuples=5_000, keys=5_000, skew=1.0, seed=s), 50.0, 100
    ),
    "a heavy key, 4 streams": generated(
        lambda s: OneHeavyKey(streams=4, seconds=1_500.0, rate=25.0, share=0.002, seed=s),
        150.0,
        300,
    ),
    "a heavy key, 6 streams": generated(
        lambda s: OneHeavyKey(6, 1_200.0, rate=20.0, begins=0.1, share=0.0015, seed=s), 180.0, 250
    ),
}
"""Keys that come once in a stream, keys of similar frequency, keys of very different ones, and one
key that makes most results from few rows."""


def table_of(second: np.ndarray, **columns: np.ndarray) -> pa.Table:
    """Columns, and a time in seconds."""
    time = pa.array((np.asarray(second) * 1_000_000).astype(np.int64)).view(pa.timestamp("us"))
    return pa.table({**columns, "time": time})


def real(read: Callable[[], Tables], window: float, shed: Shed) -> Setting:
    """A trace, the same for all seeds, within seconds."""
    return Setting(lambda seed: read(), keyed(window), shed, same=True)


def columns(seed: int, streams: str, rows: int, keys: int, skew: float = 0.0) -> Tables:
    """Streams of a row a second each with columns x and y of so many values, and a number v."""
    random = np.random.default_rng([seed, 31])
    weights = 1.0 / np.arange(1, keys + 1) ** skew

    def drawn_keys() -> np.ndarray:
        return random.choice(keys, rows, p=weights / weights.sum())

    return {
        name: table_of(
            np.sort(random.uniform(0, rows, rows)),
            x=drawn_keys(),
            y=drawn_keys(),
            v=random.normal(0.0, 100.0, rows),
        )
        for name in streams
    }


def commits(seed: int, streams: int = 3, rows: int = 16_000) -> Tables:
    """Files that are changed together, at one instant, some of them again and again."""
    random = np.random.default_rng([seed, 84])
    found = {}
    for stream in range(streams):
        sizes = np.minimum(random.zipf(1.7, rows), 600)
        sizes = sizes[np.cumsum(sizes) <= rows]
        files = np.minimum(random.zipf(1.25, sizes.sum()), 30_000)
        time = np.sort(random.uniform(0, rows, len(sizes)))
        found[f"part{stream}"] = table_of(np.repeat(time, sizes), key=files)
    return found


def beside_each_other(streams: Tables) -> Tables:
    """One table with the rows of all streams in the order of time, which a column tells apart."""
    named = [
        table.append_column("stream", pa.array([name] * table.num_rows))
        for name, table in streams.items()
    ]
    return {"rows": pa.concat_tables(named).sort_by("time")}


# -- runs -----------------------------------------------------------------------------------------


def runs(
    seeds: Iterable[int],
    rate: float | None = None,
    policies: Iterable[str] | None = None,
    settings: Mapping[str, Setting] = TUNED,
) -> Iterator[Run]:
    """Run every policy on every workload, once for each seed.

    No two policies have the same data: where one interval fails, so would those of the others.

    Args:
        seeds: of each policy's workloads and joins, one after the other.
        rate: the part of all keys that is followed in the end; the default, if None.
        policies: by name; those of each setting, if None.
        settings: by name.
    """
    chosen = None if policies is None else tuple(policies)
    for seed in seeds:
        for name, setting in settings.items():
            own = setting.policies if chosen is None else chosen
            for number, policy in enumerate(own):
                yield run_once(name, setting, policy, seed * len(own) + number, rate)


def drawn(
    number: int, settings: Mapping[str, Setting], left_out: Callable[[str], None] = lambda why: None
) -> Iterator[Run]:
    """Some runs of every setting, in which the policies take turns.

    Args:
        number: how many of each.
        settings: by name. One whose trace is not there is left out.
        left_out: is told which one, and why.
    """
    for name, setting in settings.items():
        try:
            for seed in range(number):
                policy = setting.policies[seed % len(setting.policies)]
                yield run_once(name, setting, policy, seed)
        except InputError as missing:
            left_out(f"{name}: {missing}")


def run_once(name: str, setting: Setting, policy: str, seed: int, rate: float | None = None) -> Run:
    """One run of a setting."""
    tables = setting.tables(seed)
    said = setting.shed(setting.join(tables)).seed(seed)
    said = (said.shed(policy) if policy else said).estimate(rate=rate)
    exact, keys = _exact(name, setting) if setting.same else _count(setting, tables)
    ledger = said.count(_inputs(tables), shards=setting.shards)
    assert ledger.missed is not None
    whole = ledger.state_bytes + ledger.payload_bytes + ledger.sample_bytes
    lately, said_lately = _lately(setting, tables, said, seed)
    return Run(
        name,
        policy,
        seed,
        ledger.results,
        exact - ledger.results,
        ledger.missed,
        ledger.sample_bytes / whole,
        keys,
        ledger.keys,
        lately,
        said_lately,
        _windows(setting, tables, said),
    )


def _lately(
    setting: Setting, tables: Tables, said: ss.Join, seed: int
) -> tuple[float | None, ss.Estimate | None]:
    """The results missed in the last minute before a moment, and what was said of them.

    The moment is one in the second half of the rows.
    """
    if _has_row_windows(said, tables):
        return None, None
    times = np.sort(np.concatenate([_times(table) for table in tables.values()]))
    now = int(times[np.random.default_rng([seed, 7]).integers(len(times) // 2, len(times))])
    begin = (now // _STEP - STEPS + 1) * _STEP
    until = {name: table.filter(_times(table) <= now) for name, table in tables.items()}
    before = {name: table.filter(_times(table) < begin) for name, table in tables.items()}
    join = setting.join(tables)
    ledger = said.count(_inputs(until), shards=setting.shards)
    made = ledger.results - said.count(_inputs(before), shards=setting.shards).results
    exact = join.count(_inputs(until)).results - join.count(_inputs(before)).results
    return max(0, exact - made), ledger.missed_lately


def _times(table: pa.Table) -> np.ndarray:
    """The times of rows, in microseconds."""
    times: np.ndarray = table["time"].combine_chunks().view(pa.int64()).to_numpy()
    return times


def _has_row_windows(join: ss.Join, tables: Tables) -> bool:
    """Whether windows are of rows: "lately" is so many arrivals then."""
    plan = join.plan({name: table.schema for name, table in tables.items()})
    return any(stream.last is not None for stream in plan.streams)


def _windows(setting: Setting, tables: Tables, said: ss.Join) -> tuple[bool, ...]:
    """Whether the intervals of aggregates hold those of the join that sheds nothing."""
    if setting.aggregated is None:
        return ()
    column, seconds = setting.aggregated
    over = timedelta(seconds=seconds)
    exact, found = (
        join.aggregate(column, over=over).replay(_inputs(tables), shards=shards).table.to_pylist()
        for join, shards in ((setting.join(tables), None), (said, setting.shards))
    )
    truths = {row["end"]: row for row in exact}
    return tuple(
        row[f"{name}_low"] - _ROUNDING * abs(truths[row["end"]][name])
        <= truths[row["end"]][name]
        <= row[f"{name}_high"] + _ROUNDING * abs(truths[row["end"]][name])
        for row in found
        for name in ("count", "sum", "average")
        if row[f"{name}_low"] is not None and truths[row["end"]][name] is not None
    )


def _inputs(tables: Tables) -> Tables | pa.Table:
    """What a join takes: the one table where a column names the streams, or all."""
    return tables if len(tables) > 1 else next(iter(tables.values()))


@cache
def _exact(name: str, setting: Setting) -> tuple[int, int | None]:
    """The same as `_count`, of data that are the same for every seed."""
    return _count(setting, setting.tables(0))


def _count(setting: Setting, tables: Tables) -> tuple[int, int | None]:
    """The results without shedding, and the keys that have one."""
    join = setting.join(tables)
    if not setting.keyed:
        return join.count(_inputs(tables)).results, None
    firsts = join.first(per="key").replay(tables).table
    first = firsts[next(iter(tables))].combine_chunks().field("key")
    return join.count(tables).results, pc.count_distinct(first).as_py()


def coverage(found: Iterable[Run]) -> float:
    """The part of the runs whose interval holds the truth."""
    return fmean(run.covered for run in found)


def keys_coverage(found: Iterable[Run]) -> float | None:
    """The part of the runs whose interval of keys with a result holds the truth."""
    held = [
        run.said_keys.exact.low <= run.keys <= run.said_keys.exact.high
        for run in found
        if run.keys is not None and run.said_keys is not None
    ]
    return fmean(held) if held else None


def lately_coverage(found: Iterable[Run]) -> float | None:
    """The part of the runs whose interval of the last minute holds the truth."""
    held = [
        run.said_lately.low <= run.lately <= run.said_lately.high
        for run in found
        if run.lately is not None and run.said_lately is not None
    ]
    return fmean(held) if held else None


def windows_coverage(found: Iterable[Run]) -> float | None:
    """The part of the intervals of aggregates that hold the truth."""
    held = [holds for run in found for holds in run.windows]
    return fmean(held) if held else None


def judge(found: Iterable[Run]) -> dict[str, Verdict]:
    """What the runs of each workload show."""
    of: dict[str, list[Run]] = {}
    for run in found:
        of.setdefault(run.workload, []).append(run)
    return {
        name: Verdict(
            len(mine),
            coverage(mine),
            median(run.error for run in mine),
            fmean(r.said.value - r.missed for r in mine) / max(1.0, fmean(r.missed for r in mine)),
            median((r.said.high - r.said.low) / max(1.0, r.missed) for r in mine),
            max(run.sample for run in mine),
            keys_coverage(mine),
            lately_coverage(mine),
            windows_coverage(mine),
        )
        for name, mine in of.items()
    }
