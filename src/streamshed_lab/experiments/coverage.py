"""How good the estimate of the results missed is: coverage of its interval, error and bias.

A run is one join of one workload under one policy, with a seed of its own; what it would have made
without shedding is counted by the same join without a budget. `TUNED` and `LOOKED_AT` are the
families by which constants of the estimator were chosen; those by which it is judged are in
`judged`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import streamshed as ss
from streamshed.errors import InputError
from streamshed.ledger import Keys
from streamshed_lab.experiments.existence.values import HONEYPOTS, SDSC_PAGES
from streamshed_lab.experiments.joining import key_join
from streamshed_lab.workloads import (
    Bursts,
    ClumpedKeys,
    DailyCycle,
    ExistenceWorkload,
    FlashKeys,
    FunnelWorkload,
    HeavySessions,
    NormalWorkload,
    OneHeavyKey,
    StoppingStream,
    SwappedKeys,
    ZipfWorkload,
    page_streams,
    traces,
)

Tables = Mapping[str, pa.Table]
Shed = Callable[[ss.Join], ss.Join]

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
    """

    tables: Callable[[int], Tables]
    join: Callable[[Tables], ss.Join]
    shed: Shed
    policies: tuple[str, ...] = OF_KEYS
    same: bool = False
    keyed: bool = False


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
    """

    runs: int
    coverage: float
    error: float
    bias: float
    width: float
    sample: float
    keys_coverage: float | None


def keyed(window: float) -> Callable[[Tables], ss.Join]:
    """Joins on `key` within so many seconds."""
    return lambda tables: key_join(tables, window)


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


# -- looked at: generated -------------------------------------------------------------------------


def _hot_late(seed: int, rows: int = 40_000) -> Tables:
    """Two streams in which a key becomes hot late."""
    random, time = np.random.default_rng(seed), np.arange(rows)
    late = time > rows * 5 // 8

    def stream() -> pa.Table:
        hot = late & (random.random(rows) < 0.02)
        return table_of(key=np.where(hot, 0, random.integers(9, rows // 3, rows)), second=time)

    return {"a": stream(), "b": stream()}


def _shop(seed: int) -> Tables:
    """The streams of the demonstration, with a burst."""
    shop = FunnelWorkload(sessions=400, minutes=25, burst=5, seed=seed).tables()
    return {
        name: table.select(["session", "ts"]).rename_columns(["key", "time"])
        for name, table in shop.items()
    }


def table_of(second: np.ndarray, **columns: np.ndarray) -> pa.Table:
    """Columns, and a time in seconds."""
    time = pa.array((np.asarray(second) * 1_000_000).astype(np.int64)).view(pa.timestamp("us"))
    return pa.table({**columns, "time": time})


GENERATED = {
    "a key hot late": Setting(_hot_late, keyed(2_500.0), keep_rows(500)),
    "one heavy key, 2 streams": generated(
        lambda s: OneHeavyKey(streams=2, seconds=2_000.0, rate=40.0, share=0.01, seed=s), 200.0, 400
    ),
    "one heavy key, 3 streams": generated(
        lambda s: OneHeavyKey(seconds=2_000.0, rate=30.0, share=0.005, seed=s), 200.0, 300
    ),
    "one heavy key, 5 streams": generated(
        lambda s: OneHeavyKey(streams=5, seconds=1_000.0, rate=30.0, share=0.001, seed=s),
        200.0,
        300,
    ),
    "unique keys": generated(
        lambda s: ExistenceWorkload(streams=4, tuples=30_000, rate=60.0, spread=50.0, seed=s),
        100.0,
        2_000,
    ),
    "Zipf, skew 1.2": generated(
        lambda s: ZipfWorkload(2, 30_000, 20.0, 50_000, 1.2, seed=s), 200.0, 200
    ),
    "Zipf, skew 0.7": generated(
        lambda s: ZipfWorkload(3, 30_000, 20.0, 50_000, 0.7, seed=s), 200.0, 200
    ),
    "flashes": generated(
        lambda s: FlashKeys(seconds=8_000.0, rate=6.0, lasting=1_500.0, seed=s), 1_000.0, 200
    ),
    "clumps": generated(
        lambda s: ClumpedKeys(
            seconds=8_000.0, rate=5.0, clumps=8.0, size=5.0, lasting=1_500.0, seed=s
        ),
        1_000.0,
        200,
    ),
    "bursts": generated(lambda s: Bursts(rate=20.0, keys=2_000, seed=s), 100.0, 200),
    "heavy sessions": generated(lambda s: HeavySessions(rate=12.0, seed=s), 200.0, 300),
    "clumps of 3 streams, little shed": generated(
        lambda s: ClumpedKeys(3, 6_000.0, 6.0, clumps=10.0, size=3.0, lasting=800.0, seed=s),
        500.0,
        700,
    ),
    "flashes, much shed": generated(
        lambda s: FlashKeys(seconds=6_000.0, rate=10.0, lasting=400.0, seed=s), 600.0, 80
    ),
    "a shop in a burst": Setting(_shop, keyed(600.0), lambda join: join.keep(total=9_000)),
    "daily cycle": generated(
        lambda s: DailyCycle(seconds=3_000.0, rate=25.0, keys=4_000, seed=s), 100.0, 300
    ),
    "a stream that stops": generated(
        lambda s: StoppingStream(rate=15.0, keys=3_000, seed=s), 200.0, 400
    ),
    "swapped keys": generated(
        lambda s: SwappedKeys(seconds=2_000.0, rate=25.0, keys=20_000, seed=s), 100.0, 300
    ),
}
"""Generated streams on a shared key, with windows that hold more than a sample can follow."""


# -- looked at: real ------------------------------------------------------------------------------


@cache
def _honeypots() -> Tables:
    return traces.honeypot(HONEYPOTS)


@cache
def _emails() -> Tables:
    return traces.emails(80_000)


@cache
def _headlines() -> Tables:
    return traces.news(["abc", "cnn", "nyt"])


@cache
def _pages() -> Tables:
    return page_streams(traces.weblog("sdsc"), SDSC_PAGES)


@cache
def _hosts() -> Tables:
    """A log of a server cut into two streams by the parity of its rows, joined on the host."""
    log = traces.weblog("nasa").slice(0, 20_000)
    rows = log.select(["host", "ts"]).rename_columns(["key", "time"])
    odd = pa.array(np.arange(rows.num_rows) % 2 == 1)
    return {"odd": rows.filter(odd), "even": rows.filter(pc.invert(odd))}


@cache
def _other_honeypots() -> Tables:
    return traces.honeypot(["groucho-eu", "groucho-sydney", "groucho-sa"])


@cache
def _later_emails() -> Tables:
    return {name: table.slice(100_000, 60_000) for name, table in traces.emails(330_000).items()}


@cache
def _papers() -> Tables:
    return traces.news(["wapo", "lat", "usat", "npr"])


@cache
def _clients() -> Tables:
    """Requests for reports of companies: every fourth apart from the others."""
    log = traces.weblog("sec").slice(0, 40_000)
    rows = log.select(["host", "ts"]).rename_columns(["key", "time"])
    every = pa.array(np.arange(rows.num_rows) % 4 == 0)
    return {"some": rows.filter(every), "others": rows.filter(pc.invert(every))}


def real(read: Callable[[], Tables], window: float, shed: Shed) -> Setting:
    """A trace, the same for all seeds, within seconds."""
    return Setting(lambda seed: read(), keyed(window), shed, same=True)


REAL = {
    "honeypots, 10 minutes": real(_honeypots, 600.0, lambda join: join.keep(total=60)),
    "honeypots, an hour": real(_honeypots, 3_600.0, lambda join: join.keep(total=200)),
    "emails, 3 days": real(_emails, 3 * 86_400.0, keep_rows(500)),
    "news headlines, a day": real(_headlines, 86_400.0, keep_rows(400)),
    "pages of a web server, a day": real(_pages, 86_400.0, keep_rows(200)),
    "hosts of a web server, an hour": real(_hosts, 3_600.0, keep_rows(200)),
    "other honeypots, 3 hours": real(_other_honeypots, 10_800.0, lambda join: join.keep(total=600)),
    "later emails, 5 days": real(_later_emails, 5 * 86_400.0, keep_rows(150)),
    "news headlines of 4 papers, 3 days": real(_papers, 3 * 86_400.0, keep_rows(300)),
    "requests, one in four, 3 hours": real(_clients, 3 * 3_600.0, keep_rows(100)),
}
"""Real traces; seeds are those of the samples alone."""


# -- looked at: other kinds of joins --------------------------------------------------------------


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


def _chain(tables: Tables) -> ss.Join:
    return ss.join(*tables).on("a.x = b.x", "b.y = c.y").within("1 hour", time="time")


def _near(tables: Tables) -> ss.Join:
    return ss.join(*tables).on(ss.near("v", 0.5)).within("1 hour", time="time")


def _through(tables: Tables) -> ss.Join:
    random = np.random.default_rng(32)
    facts = pa.table({name: random.integers(0, 2_000, 8_000) for name in "pq"})
    return _through_facts(facts)


def _through_facts(facts: object) -> ss.Join:
    pair = ss.join("a", "b").on(a="x", b="y")
    return pair.through(facts, a="p", b="q").within("1 hour", time="time")


def _through_changing(tables: Tables) -> ss.Join:
    """Facts of which one is deleted and another inserted every second."""
    random = np.random.default_rng(33)
    pairs = {name: random.integers(0, 2_000, 30_000) for name in "pq"}
    facts = pa.table({name: values[:8_000] for name, values in pairs.items()})
    turn = np.arange(15_000)
    at = np.stack([turn, 8_000 + turn], axis=1).ravel()
    changes = table_of(
        np.repeat(turn, 2), **{name: values[at] for name, values in pairs.items()}
    ).append_column("change", pa.array(["delete", "insert"] * len(turn)))
    return _through_facts(ss.relation(facts, changes=changes))


def _first(tables: Tables) -> ss.Join:
    return ss.join(*tables).on("x").within("1 hour", time="time").first(per="b")


KINDS = {
    "equalities": Setting(
        lambda s: columns(s, "abc", 12_000, 1_000), _chain, keep_rows(300), (*OF_ALL, "sketch")
    ),
    "equalities, Zipf": Setting(
        lambda s: columns(s, "abc", 12_000, 3_000, 0.7), _chain, keep_rows(300), (*OF_ALL, "sketch")
    ),
    "a distance": Setting(lambda s: columns(s, "ab", 15_000, 9), _near, keep_rows(300), OF_ALL),
    "a distance, 3 streams": Setting(
        lambda s: columns(s, "abc", 12_000, 9), _near, keep_rows(300), OF_ALL
    ),
    "a relation": Setting(
        lambda s: columns(s, "ab", 15_000, 2_000), _through, keep_rows(300), (*OF_ALL, "density")
    ),
    "a relation that changes": Setting(
        lambda s: columns(s, "ab", 15_000, 2_000),
        _through_changing,
        keep_rows(300),
        (*OF_ALL, "density"),
    ),
    "a queue": Setting(
        lambda s: columns(s, "abc", 12_000, 1_000),
        _chain,
        lambda join: join.throttle(rows_per_second=1.5).queue(rows=50),
        OF_ALL,
    ),
    "a throttle": Setting(
        lambda s: columns(s, "ab", 15_000, 9),
        _near,
        lambda join: join.throttle(comparisons_per_second=20.0),
        ("",),
    ),
    "first results": Setting(
        lambda s: columns(s, "ab", 20_000, 9_000), _first, keep_rows(300), OF_KEYS
    ),
}
"""Joins whose results are no products of keys' rows, and other ways to shed, with windows larger
than a sample."""

LARGE = {
    "a large window, Zipf": generated(
        lambda s: ZipfWorkload(2, 300_000, 1_000.0, 100_000, 0.8, seed=s), 100.0, 40_000
    ),
    "a large window, unique keys": generated(
        lambda s: ExistenceWorkload(streams=3, tuples=300_000, rate=1_000.0, spread=50.0, seed=s),
        100.0,
        40_000,
    ),
}
"""Budgets so large that the sample takes a small part of the memory."""

LOOKED_AT = GENERATED | REAL | LARGE | KINDS
"""Once judged by, and since then tuned by: a change of the estimator is tried on these first."""


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
    said = said.shed(policy) if policy else said
    exact, keys = _exact(name, setting) if setting.same else _count(setting, tables)
    ledger = said.estimate(rate=rate).count(tables)
    assert ledger.missed is not None
    whole = ledger.state_bytes + ledger.payload_bytes + ledger.sample_bytes
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
    )


@cache
def _exact(name: str, setting: Setting) -> tuple[int, int | None]:
    """The same as `_count`, of data that are the same for every seed."""
    return _count(setting, setting.tables(0))


def _count(setting: Setting, tables: Tables) -> tuple[int, int | None]:
    """The results without shedding, and the keys that have one."""
    join = setting.join(tables)
    if not setting.keyed:
        return join.count(tables).results, None
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
        )
        for name, mine in of.items()
    }
