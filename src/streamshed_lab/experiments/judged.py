"""The families by which the estimate of the results missed is judged.

Nothing may be tuned by these: whoever has looked at how they come out, and changes the estimator,
moves them to `looked_at`, and draws others here. They are windows that hold several times what a
sample can follow, the workloads that break policies, real traces, and every kind of join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import streamshed as ss
from streamshed_lab.experiments.coverage import (
    OF_ALL,
    OF_KEYS,
    Setting,
    Tables,
    beside_each_other,
    columns,
    commits,
    generated,
    in_intervals,
    in_order_of,
    keep_rows,
    keyed,
    real,
    table_of,
)
from streamshed_lab.workloads import (
    Auctions,
    Bursts,
    ClumpedKeys,
    DailyCycle,
    ExistenceWorkload,
    FlashCrowd,
    FlashKeys,
    HeavySessions,
    MixedWorkload,
    NormalWorkload,
    OneHeavyKey,
    RepeatingSessions,
    StoppingStream,
    SwappedKeys,
    ZipfWorkload,
    traces,
)

OF_EQUALITIES = (*OF_ALL, "sketch")


def _hot_twice(seed: int, rows: int = 38_000) -> Tables:
    """A key that is hot, then rare, then hot again."""
    random, time = np.random.default_rng([seed, 83]), np.arange(rows)
    part = time * 8 // rows
    hot_then = (part == 2) | (part == 6)

    def stream() -> pa.Table:
        hot = hot_then & (random.random(rows) < 0.018)
        return table_of(key=np.where(hot, 5, random.integers(9, rows // 2, rows)), second=time)

    return {name: stream() for name in "ab"}


def _normal_beside_unique(seed: int) -> Tables:
    parts = (
        NormalWorkload(streams=2, tuples=9_000, rate=9.0, variance=500.0**2, seed=seed),
        ExistenceWorkload(streams=2, tuples=16_000, rate=16.0, spread=55.0, seed=seed + 800),
    )
    return MixedWorkload((parts,)).tables()


GENERATED = {
    "a key hot twice": Setting(_hot_twice, keyed(1_800.0), keep_rows(420)),
    "files of commits": Setting(commits, keyed(900.0), keep_rows(150)),
    "one heavy key, 2 streams": generated(
        lambda s: OneHeavyKey(2, 2_100.0, rate=38.0, begins=0.5, share=0.008, seed=s), 160.0, 300
    ),
    "one heavy key, 4 streams": generated(
        lambda s: OneHeavyKey(4, 1_600.0, rate=28.0, begins=0.25, share=0.003, seed=s), 170.0, 290
    ),
    "one heavy key, 5 streams": generated(
        lambda s: OneHeavyKey(5, 1_100.0, rate=29.0, begins=0.4, share=0.002, seed=s), 150.0, 260
    ),
    "unique keys": generated(
        lambda s: ExistenceWorkload(streams=4, tuples=21_000, rate=65.0, spread=60.0, seed=s),
        95.0,
        1_500,
    ),
    "unique keys in 6 orders": generated(
        lambda s: ExistenceWorkload(
            streams=4, tuples=20_000, rate=60.0, spread=45.0, repertoire=6, seed=s
        ),
        75.0,
        900,
    ),
    "Zipf, skew 1.1": generated(
        lambda s: ZipfWorkload(2, 26_000, 18.0, 30_000, 1.1, seed=s), 180.0, 210
    ),
    "Zipf, skew 0.75, 3 streams": generated(
        lambda s: ZipfWorkload(3, 22_000, 19.0, 35_000, 0.75, seed=s), 170.0, 280
    ),
    "Zipf, own popular keys": generated(
        lambda s: ZipfWorkload(3, 20_000, 18.0, 7_000, 0.9, popular="own", seed=s), 150.0, 240
    ),
    "flashes": generated(
        lambda s: FlashKeys(2, 9_000.0, 6.5, flashes=30, lasting=700.0, each=0.05, seed=s),
        750.0,
        190,
    ),
    "clumps": generated(
        lambda s: ClumpedKeys(
            2, 7_800.0, 5.4, flashes=22, lasting=900.0, clumps=9.0, size=7.0, seed=s
        ),
        950.0,
        190,
    ),
    "clumps, 4 streams": generated(
        lambda s: ClumpedKeys(
            4, 6_500.0, 4.6, flashes=16, lasting=850.0, clumps=7.0, size=3.0, seed=s
        ),
        700.0,
        240,
    ),
    "bursts, rate x 60": generated(
        lambda s: Bursts(
            3, 1_800.0, rate=12.0, factor=60.0, every=450.0, lasting=3.0, keys=1_700, seed=s
        ),
        105.0,
        250,
    ),
    "flash crowd": generated(
        lambda s: FlashCrowd(3, 4_200.0, rate=13.0, keys=5_000, every=650.0, seed=s), 170.0, 230
    ),
    "heavy sessions": generated(
        lambda s: HeavySessions(3, 3_700.0, rate=11.0, tail=0.85, each=0.06, seed=s), 220.0, 330
    ),
    "sessions that repeat": generated(
        lambda s: RepeatingSessions(seconds=14_000.0, sessions=20_000, lasting=160.0, seed=s),
        1_000.0,
        300,
    ),
    "auctions": generated(
        lambda s: Auctions(seconds=13_000.0, auctions=4_000, sold=0.55, seed=s), 850.0, 380
    ),
    "daily cycle": generated(
        lambda s: DailyCycle(3, 3_100.0, rate=22.0, day=780.0, keys=3_500, seed=s), 115.0, 290
    ),
    "a stream that stops": generated(
        lambda s: StoppingStream(
            3, 3_500.0, rate=14.0, keys=2_700, every=700.0, lasting=250.0, seed=s
        ),
        160.0,
        330,
    ),
    "swapped keys": generated(
        lambda s: SwappedKeys(3, 2_100.0, rate=23.0, keys=17_000, skew=0.9, every=260.0, seed=s),
        120.0,
        280,
    ),
    "normal keys": generated(
        lambda s: NormalWorkload(streams=3, tuples=21_000, rate=20.0, variance=700.0**2, seed=s),
        130.0,
        340,
    ),
    "normal keys beside unique ones": Setting(_normal_beside_unique, keyed(105.0), keep_rows(290)),
}
"""Generated streams on a shared key, with windows that hold more than a sample can follow."""


@cache
def _honeypots(*hosts: str) -> Tables:
    return traces.honeypot(list(hosts))


@cache
def _mail(start: int, rows: int) -> Tables:
    whole = traces.emails(start + rows)
    return {name: table.slice(start) for name, table in whole.items()}


@cache
def _parts_of(log: str, start: int, rows: int, parts: int) -> Tables:
    """The hosts in a log of a server: one row of so many, and the others."""
    table = traces.weblog(log).slice(start, rows)
    found = table.select(["host", "ts"]).rename_columns(["key", "time"])
    some = pa.array(np.arange(found.num_rows) % parts == 1)
    return {"some": found.filter(some), "others": found.filter(pc.invert(some))}


@cache
def _words(*papers: str) -> Tables:
    return traces.news(list(papers))


REAL = {
    "honeypots of Europe and Asia, 4 hours": real(
        lambda: _honeypots("groucho-eu", "groucho-tokyo", "groucho-singapore"),
        4 * 3_600.0,
        lambda join: join.keep(total=90),
    ),
    "4 honeypots of America, 2 hours": real(
        lambda: _honeypots("groucho-oregon", "groucho-us-east", "groucho-norcal", "zeppo-norcal"),
        7_200.0,
        lambda join: join.keep(total=120),
    ),
    "emails of middle years, 4 days": real(
        lambda: _mail(170_000, 70_000), 4 * 86_400.0, keep_rows(220)
    ),
    "hosts of EPA's server, 3 hours": real(
        lambda: _parts_of("epa", 4_000, 18_000, 2), 3 * 3_600.0, keep_rows(160)
    ),
    "hosts of SDSC's server, 4 hours": real(
        lambda: _parts_of("sdsc", 0, 22_000, 3), 4 * 3_600.0, keep_rows(180)
    ),
    "clients of companies' reports, 2 hours": real(
        lambda: _parts_of("sec", 40_000, 30_000, 3), 7_200.0, keep_rows(140)
    ),
    "words of 4 papers, a day": real(
        lambda: _words("cbs", "npr", "cnn", "nyt"), 86_400.0, keep_rows(250)
    ),
    "words of 2 papers, 3 days": real(lambda: _words("wapo", "usat"), 3 * 86_400.0, keep_rows(300)),
}
"""Real traces; seeds are those of the samples alone."""


def _chain(tables: Tables) -> ss.Join:
    return ss.join(*tables).on("a.x = b.x", "b.y = c.y").within("50 minutes", time="time")


def _long_chain(tables: Tables) -> ss.Join:
    pairs = ("a.x = b.x", "b.y = c.y", "c.x = d.x")
    return ss.join(*tables).on(*pairs).within("40 minutes", time="time")


def _near(tables: Tables) -> ss.Join:
    return ss.join(*tables).on(ss.near("v", 0.6)).within("55 minutes", time="time")


def _near_in_3(tables: Tables) -> ss.Join:
    return ss.join(*tables).on(ss.near("v", 1.3)).within("30 minutes", time="time")


def _through(tables: Tables) -> ss.Join:
    random = np.random.default_rng(113)
    facts = pa.table({name: random.integers(0, 1_900, 9_000) for name in "pq"})
    pair = ss.join("a", "b").on(a="x", b="y")
    return pair.through(facts, a="p", b="q").within("50 minutes", time="time")


def _of_x(tables: Tables) -> ss.Join:
    return ss.join(*tables).on("x").within("50 minutes", time="time")


def _in_rows(tables: Tables) -> ss.Join:
    return ss.join(*tables).on("x").last(3_000, time="time")


def _by_stream(tables: Tables) -> ss.Join:
    return ss.join(by="stream").on("x").within("40 minutes", time="time")


def _heavy_by_stream(tables: Tables) -> ss.Join:
    return ss.join(by="stream").on("key").within("3 minutes", time="time")


def _rare(seed: int, streams: str, rows: int, keys: int) -> Tables:
    return columns(seed + 2_000, streams, rows, keys)


KINDS = {
    "equalities": Setting(
        lambda s: _rare(s, "abc", 11_500, 950), _chain, keep_rows(290), OF_EQUALITIES
    ),
    "equalities, 4 streams": Setting(
        lambda s: _rare(s, "abcd", 9_000, 850), _long_chain, keep_rows(250), OF_EQUALITIES
    ),
    "equalities, Zipf": Setting(
        lambda s: columns(s + 2_000, "abc", 11_500, 3_500, 0.65),
        _chain,
        keep_rows(290),
        OF_EQUALITIES,
    ),
    "a distance": Setting(lambda s: _rare(s, "ab", 14_000, 9), _near, keep_rows(280), OF_ALL),
    "a distance, 3 streams": Setting(
        lambda s: _rare(s, "abc", 11_000, 9), _near_in_3, keep_rows(250), OF_ALL
    ),
    "a relation": Setting(
        lambda s: _rare(s, "ab", 14_000, 1_900), _through, keep_rows(280), (*OF_ALL, "density")
    ),
    "a queue": Setting(
        lambda s: _rare(s, "abc", 11_500, 950),
        _chain,
        lambda join: join.throttle(rows_per_second=1.7).queue(rows=70),
        OF_ALL,
    ),
    "a throttle": Setting(
        lambda s: _rare(s, "ab", 14_000, 9),
        _near,
        lambda join: join.throttle(comparisons_per_second=22.0),
        ("",),
    ),
    "partial results": Setting(
        lambda s: _rare(s, "abcd", 11_000, 4_000),
        lambda tables: _of_x(tables).partial(at_least=3),
        keep_rows(300),
        OF_KEYS,
    ),
    "in order of time": Setting(
        lambda s: _rare(s, "abc", 13_000, 3_500),
        lambda tables: _of_x(tables).in_order(*tables),
        keep_rows(300),
        OF_KEYS,
    ),
    "in order, files of commits": Setting(
        lambda s: commits(s + 750, streams=4, rows=4_400),
        in_order_of(280.0),
        keep_rows(120),
        OF_KEYS,
    ),
    "in order, clumped keys": Setting(
        lambda s: ClumpedKeys(
            3, 3_500.0, 4.0, flashes=20, lasting=400.0, clumps=8.0, size=4.0, seed=s
        ).tables(),
        in_order_of(400.0),
        keep_rows(120),
        OF_KEYS,
    ),
    "intervals, swapped keys": Setting(
        lambda s: SwappedKeys(
            3, 2_400.0, rate=8.5, keys=4_500, skew=0.85, every=300.0, seed=s
        ).tables(),
        in_intervals,
        keep_rows(130),
        OF_KEYS,
    ),
    "row windows": Setting(
        lambda s: _rare(s, "abc", 13_000, 3_800), _in_rows, keep_rows(300), OF_KEYS
    ),
    "streams by a column": Setting(
        lambda s: beside_each_other(_rare(s, "abcde", 8_000, 5_000)),
        _by_stream,
        lambda join: join.keep(total=900),
        OF_ALL,
    ),
    "one heavy key by a column": Setting(
        lambda s: beside_each_other(OneHeavyKey(4, 1_600.0, 21.0, share=0.005, seed=s).tables()),
        _heavy_by_stream,
        lambda join: join.keep(total=900),
        OF_ALL,
    ),
    "first results of rows": Setting(
        lambda s: _rare(s, "abc", 13_500, 4_200),
        lambda tables: _of_x(tables).first(per="b"),
        keep_rows(270),
        OF_KEYS,
    ),
    "first results of keys": Setting(
        lambda s: _rare(s, "ab", 17_000, 10_000),
        lambda tables: _of_x(tables).first(per="key"),
        keep_rows(290),
        OF_KEYS,
    ),
    "first results in row windows": Setting(
        lambda s: _rare(s, "ab", 15_000, 9_000),
        lambda tables: _in_rows(tables).first(per="a"),
        keep_rows(290),
        OF_KEYS,
    ),
    "first results by a column": Setting(
        lambda s: beside_each_other(_rare(s, "abcde", 7_000, 9_000)),
        lambda tables: _by_stream(tables).first(per="key"),
        lambda join: join.keep(total=800),
        OF_ALL,
    ),
}
"""Other kinds of joins and of results, and other ways to shed."""

LARGE = {
    "a large window, Zipf": generated(
        lambda s: ZipfWorkload(2, 250_000, 950.0, 110_000, 0.8, seed=s), 85.0, 32_000
    ),
    "a large window, Zipf, 3 streams": generated(
        lambda s: ZipfWorkload(3, 125_000, 850.0, 160_000, 0.55, seed=s), 60.0, 26_000
    ),
    "a large window, unique keys": generated(
        lambda s: ExistenceWorkload(streams=3, tuples=200_000, rate=1_000.0, spread=55.0, seed=s),
        90.0,
        34_000,
    ),
}
"""Budgets so large that the sample takes a small part of the memory."""

SHARDED = {
    "Zipf in 3 shards": replace(
        generated(lambda s: ZipfWorkload(3, 19_000, 17.0, 28_000, 0.9, seed=s + 95), 160.0, 310),
        shards=3,
    ),
    "one heavy key in 2 shards": replace(
        generated(
            lambda s: OneHeavyKey(3, 1_600.0, 23.0, begins=0.35, share=0.005, seed=s + 95),
            150.0,
            280,
        ),
        shards=2,
    ),
    "auctions in 4 shards": replace(
        generated(
            lambda s: Auctions(seconds=12_000.0, auctions=3_600, sold=0.5, seed=s + 90),
            800.0,
            440,
        ),
        shards=4,
    ),
    "emails in 3 shards": replace(
        real(lambda: _mail(100_000, 60_000), 3 * 86_400.0, keep_rows(260)), shards=3
    ),
}
"""Joins in parts, each with a sample of its own, as on Spark."""

OF_SAMPLES = ("random",)
"""Policies whose results are a sample: of others the averages are not known."""


def _with_values(streams: Tables, seed: int) -> Tables:
    """The same streams, whose rows have a number v each."""
    random = np.random.default_rng([seed, 85])
    return {
        name: table.append_column("v", pa.array(random.gamma(2.0, 30.0, table.num_rows)))
        for name, table in streams.items()
    }


def _bursts_of_values(seed: int) -> Tables:
    bursts = Bursts(2, 1_500.0, 12.0, factor=40.0, every=400.0, lasting=4.0, keys=1_500, seed=seed)
    return _with_values(bursts.tables(), seed)


def _days_of_values(seed: int) -> Tables:
    cycle = DailyCycle(3, 2_500.0, rate=20.0, day=700.0, keys=2_500, seed=seed)
    return _with_values(cycle.tables(), seed)


AGGREGATED = {
    "aggregates through bursts": Setting(
        _bursts_of_values, keyed(100.0), keep_rows(220), aggregated=("s1.v", 60.0)
    ),
    "aggregates of a daily cycle": Setting(
        _days_of_values, keyed(100.0), keep_rows(260), aggregated=("s2.v", 90.0)
    ),
    "aggregates of a random sample": Setting(
        lambda s: _rare(s, "ab", 12_000, 900),
        _of_x,
        keep_rows(500),
        OF_SAMPLES,
        aggregated=("a.v", 1_200.0),
    ),
    "aggregates in 2 shards": Setting(
        lambda s: _rare(s, "ab", 12_000, 900),
        _of_x,
        keep_rows(500),
        OF_KEYS,
        shards=2,
        aggregated=("b.v", 900.0),
    ),
}
"""Aggregates of windows, beside the results missed."""

_OF_A_KEY = GENERATED | REAL | LARGE | SHARDED
JUDGED: Mapping[str, Setting] = {
    name: replace(setting, keyed=True) for name, setting in _OF_A_KEY.items()
} | (KINDS | AGGREGATED)
