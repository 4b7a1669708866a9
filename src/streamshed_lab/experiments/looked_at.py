"""Families by which the estimate of the results missed was once judged, and tuned since then.

A change of the estimator is tried on these first.
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


def _hot_for_a_while(seed: int, rows: int = 36_000) -> Tables:
    random, time = np.random.default_rng([seed, 61]), np.arange(rows)
    hot_then = (time > rows // 4) & (time < rows * 2 // 3)

    def stream() -> pa.Table:
        hot = hot_then & (random.random(rows) < 0.015)
        return table_of(key=np.where(hot, 3, random.integers(9, rows // 2, rows)), second=time)

    return {name: stream() for name in "abc"}


def _unique_beside_zipf(seed: int) -> Tables:
    parts = (
        ExistenceWorkload(streams=3, tuples=11_050, rate=17.0, spread=45.0, seed=seed),
        ZipfWorkload(3, 7_150, 11.0, 6_000, 0.7, seed=seed + 700),
    )
    return MixedWorkload((parts,)).tables()


GENERATED = {
    "a key hot for a while": Setting(_hot_for_a_while, keyed(2_000.0), keep_rows(450)),
    "one heavy key, 2 streams": generated(
        lambda s: OneHeavyKey(2, 2_400.0, rate=35.0, begins=0.45, share=0.007, seed=s), 170.0, 320
    ),
    "one heavy key, 3 streams": generated(
        lambda s: OneHeavyKey(3, 1_700.0, rate=33.0, begins=0.2, share=0.006, seed=s), 180.0, 270
    ),
    "one heavy key, 5 streams": generated(
        lambda s: OneHeavyKey(5, 1_200.0, rate=26.0, begins=0.35, share=0.0018, seed=s), 160.0, 280
    ),
    "unique keys": generated(
        lambda s: ExistenceWorkload(streams=5, tuples=18_000, rate=50.0, spread=70.0, seed=s),
        110.0,
        1_400,
    ),
    "unique keys in 12 orders": generated(
        lambda s: ExistenceWorkload(
            streams=3, tuples=24_000, rate=55.0, spread=35.0, repertoire=12, seed=s
        ),
        65.0,
        1_000,
    ),
    "Zipf, skew 1, 3 streams": generated(
        lambda s: ZipfWorkload(3, 18_000, 14.0, 25_000, 1.05, seed=s), 160.0, 240
    ),
    "Zipf, skew 0.8": generated(
        lambda s: ZipfWorkload(2, 32_000, 24.0, 45_000, 0.8, seed=s), 190.0, 330
    ),
    "Zipf, own popular keys": generated(
        lambda s: ZipfWorkload(2, 28_000, 22.0, 9_000, 0.85, popular="own", seed=s), 170.0, 260
    ),
    "flashes": generated(
        lambda s: FlashKeys(3, 8_000.0, 5.5, flashes=24, lasting=800.0, each=0.06, seed=s),
        650.0,
        230,
    ),
    "clumps": generated(
        lambda s: ClumpedKeys(
            2, 8_500.0, 4.8, flashes=20, lasting=1_100.0, clumps=11.0, size=6.0, seed=s
        ),
        850.0,
        170,
    ),
    "clumps, 3 streams": generated(
        lambda s: ClumpedKeys(
            3, 7_500.0, 5.2, flashes=18, lasting=1_000.0, clumps=8.0, size=4.0, seed=s
        ),
        800.0,
        260,
    ),
    "bursts, rate x 30": generated(
        lambda s: Bursts(
            2, 1_900.0, rate=15.0, factor=30.0, every=420.0, lasting=5.0, keys=1_400, seed=s
        ),
        115.0,
        230,
    ),
    "flash crowd": generated(
        lambda s: FlashCrowd(2, 4_800.0, rate=15.0, keys=6_000, every=700.0, seed=s), 190.0, 210
    ),
    "heavy sessions": generated(
        lambda s: HeavySessions(4, 3_400.0, rate=10.0, tail=0.8, each=0.05, seed=s), 240.0, 360
    ),
    "sessions that repeat": generated(
        lambda s: RepeatingSessions(seconds=15_000.0, sessions=22_000, lasting=140.0, seed=s),
        1_100.0,
        320,
    ),
    "auctions": generated(
        lambda s: Auctions(seconds=14_000.0, auctions=4_400, sold=0.6, seed=s), 900.0, 420
    ),
    "daily cycle": generated(
        lambda s: DailyCycle(2, 3_400.0, rate=24.0, day=850.0, keys=2_800, seed=s), 125.0, 270
    ),
    "a stream that stops": generated(
        lambda s: StoppingStream(
            4, 3_300.0, rate=13.0, keys=2_400, every=660.0, lasting=220.0, seed=s
        ),
        140.0,
        310,
    ),
    "swapped keys": generated(
        lambda s: SwappedKeys(2, 2_300.0, rate=25.0, keys=14_000, skew=0.85, every=280.0, seed=s),
        130.0,
        260,
    ),
    "normal keys": generated(
        lambda s: NormalWorkload(streams=2, tuples=24_000, rate=21.0, variance=800.0**2, seed=s),
        140.0,
        380,
    ),
    "unique keys beside Zipf": Setting(_unique_beside_zipf, keyed(95.0), keep_rows(310)),
}
"""Generated streams on a shared key, with windows that hold more than a sample can follow."""


@cache
def _honeypots(*hosts: str) -> Tables:
    return traces.honeypot(list(hosts))


@cache
def _mail() -> Tables:
    return {name: table.slice(250_000, 80_000) for name, table in traces.emails(332_000).items()}


@cache
def _parts_of(log: str, start: int, rows: int, parts: int) -> Tables:
    """The hosts in a log of a server: one row of so many, and the others."""
    table = traces.weblog(log).slice(start, rows)
    found = table.select(["host", "ts"]).rename_columns(["key", "time"])
    some = pa.array(np.arange(found.num_rows) % parts == 0)
    return {"some": found.filter(some), "others": found.filter(pc.invert(some))}


@cache
def _words(*papers: str) -> Tables:
    return traces.news(list(papers))


REAL = {
    "honeypots of Asia, 2 hours": real(
        lambda: _honeypots("groucho-tokyo", "groucho-singapore", "groucho-sydney"),
        7_200.0,
        lambda join: join.keep(total=300),
    ),
    "honeypots of America, an hour": real(
        lambda: _honeypots("groucho-oregon", "groucho-us-east"),
        3_600.0,
        lambda join: join.keep(total=150),
    ),
    "honeypots near and far, 5 hours": real(
        lambda: _honeypots("groucho-singapore", "groucho-eu", "groucho-oregon"),
        18_000.0,
        lambda join: join.keep(total=800),
    ),
    "emails of later years, 2 days": real(_mail, 2 * 86_400.0, keep_rows(300)),
    "hosts of EPA's server, an hour": real(
        lambda: _parts_of("epa", 0, 16_000, 3), 3_600.0, keep_rows(120)
    ),
    "hosts of NASA's server, late, 2 hours": real(
        lambda: _parts_of("nasa", 19_500, 12_000, 2), 7_200.0, keep_rows(230)
    ),
    "hosts of a trapped server, a day": real(
        lambda: _parts_of("honeynet", 0, 20_000, 4), 86_400.0, keep_rows(120)
    ),
    "words of 3 papers, 2 days": real(
        lambda: _words("cbs", "usat", "lat"), 2 * 86_400.0, keep_rows(400)
    ),
}
"""Real traces; seeds are those of the samples alone."""


def _chain(tables: Tables) -> ss.Join:
    return ss.join(*tables).on("a.x = b.x", "b.y = c.y").within("55 minutes", time="time")


def _long_chain(tables: Tables) -> ss.Join:
    pairs = ("a.x = b.x", "b.y = c.y", "c.x = d.x")
    return ss.join(*tables).on(*pairs).within("35 minutes", time="time")


def _near(tables: Tables) -> ss.Join:
    return ss.join(*tables).on(ss.near("v", 0.7)).within("50 minutes", time="time")


def _near_in_3(tables: Tables) -> ss.Join:
    return ss.join(*tables).on(ss.near("v", 1.5)).within("25 minutes", time="time")


def _through(tables: Tables) -> ss.Join:
    random = np.random.default_rng(102)
    facts = pa.table({name: random.integers(0, 1_800, 10_000) for name in "pq"})
    pair = ss.join("a", "b").on(a="x", b="y")
    return pair.through(facts, a="p", b="q").within("45 minutes", time="time")


def _heavy_by_stream(tables: Tables) -> ss.Join:
    return ss.join(by="stream").on("key").within("3 minutes", time="time")


def _first_of_row(tables: Tables) -> ss.Join:
    return ss.join(*tables).on("x").within("45 minutes", time="time").first(per="a")


def _first_of_key(tables: Tables) -> ss.Join:
    return ss.join(*tables).on("x").within("45 minutes", time="time").first(per="key")


KINDS = {
    "equalities": Setting(
        lambda s: columns(s + 1_000, "abc", 11_000, 900), _chain, keep_rows(280), OF_EQUALITIES
    ),
    "equalities, 4 streams": Setting(
        lambda s: columns(s + 1_000, "abcd", 8_500, 800), _long_chain, keep_rows(260), OF_EQUALITIES
    ),
    "equalities, Zipf": Setting(
        lambda s: columns(s + 1_000, "abc", 11_000, 4_000, 0.75),
        _chain,
        keep_rows(280),
        OF_EQUALITIES,
    ),
    "a distance": Setting(
        lambda s: columns(s + 1_000, "ab", 13_000, 9), _near, keep_rows(270), OF_ALL
    ),
    "a distance, 3 streams": Setting(
        lambda s: columns(s + 1_000, "abc", 10_000, 9), _near_in_3, keep_rows(240), OF_ALL
    ),
    "a relation": Setting(
        lambda s: columns(s + 1_000, "ab", 13_000, 1_800),
        _through,
        keep_rows(270),
        (*OF_ALL, "density"),
    ),
    "a queue": Setting(
        lambda s: columns(s + 1_000, "abc", 11_000, 900),
        _chain,
        lambda join: join.throttle(rows_per_second=1.6).queue(rows=60),
        OF_ALL,
    ),
    "a throttle": Setting(
        lambda s: columns(s + 1_000, "ab", 13_000, 9),
        _near,
        lambda join: join.throttle(comparisons_per_second=25.0),
        ("",),
    ),
    "in order, heavy sessions": Setting(
        lambda s: HeavySessions(3, 3_300.0, rate=10.0, tail=0.8, each=0.07, seed=s).tables(),
        in_order_of(240.0),
        keep_rows(260),
        OF_KEYS,
    ),
    "in order, files of commits": Setting(
        lambda s: commits(s + 700, streams=4, rows=4_000),
        in_order_of(300.0),
        keep_rows(110),
        OF_KEYS,
    ),
    "intervals, swapped keys": Setting(
        lambda s: SwappedKeys(
            3, 2_200.0, rate=9.0, keys=4_000, skew=0.8, every=280.0, seed=s
        ).tables(),
        in_intervals,
        keep_rows(130),
        OF_KEYS,
    ),
    "one heavy key by a column": Setting(
        lambda s: beside_each_other(OneHeavyKey(4, 1_500.0, 22.0, share=0.004, seed=s).tables()),
        _heavy_by_stream,
        lambda join: join.keep(total=900),
        OF_ALL,
    ),
    "intervals, a heavy key": Setting(
        lambda s: OneHeavyKey(3, 1_700.0, rate=26.0, begins=0.3, share=0.006, seed=s).tables(),
        in_intervals,
        keep_rows(240),
        OF_KEYS,
    ),
    "first results of rows": Setting(
        lambda s: columns(s + 1_000, "abc", 14_000, 4_500), _first_of_row, keep_rows(260), OF_KEYS
    ),
    "first results of keys": Setting(
        lambda s: columns(s + 1_000, "ab", 18_000, 11_000), _first_of_key, keep_rows(280), OF_KEYS
    ),
}
"""Joins whose results are no products of keys' rows, and other ways to shed."""

LARGE = {
    "a large window, Zipf": generated(
        lambda s: ZipfWorkload(2, 280_000, 1_000.0, 120_000, 0.75, seed=s), 95.0, 38_000
    ),
    "a large window, Zipf, 3 streams": generated(
        lambda s: ZipfWorkload(3, 160_000, 1_000.0, 180_000, 0.85, seed=s), 65.0, 22_000
    ),
    "a large window, Zipf, skew 0.7": generated(
        lambda s: ZipfWorkload(2, 260_000, 1_000.0, 140_000, 0.7, seed=s), 90.0, 36_000
    ),
    "a large window, Zipf, skew 0.6, 3 streams": generated(
        lambda s: ZipfWorkload(3, 120_000, 900.0, 200_000, 0.6, seed=s), 55.0, 24_000
    ),
    "a large window, unique keys": generated(
        lambda s: ExistenceWorkload(streams=4, tuples=190_000, rate=950.0, spread=45.0, seed=s),
        95.0,
        32_000,
    ),
}
"""Budgets so large that the sample takes a small part of the memory."""

SHARDED = {
    "Zipf in 3 shards": replace(
        generated(lambda s: ZipfWorkload(3, 20_000, 18.0, 25_000, 0.85, seed=s + 90), 150.0, 330),
        shards=3,
    ),
    "one heavy key in 2 shards": replace(
        generated(
            lambda s: OneHeavyKey(3, 1_500.0, 25.0, begins=0.3, share=0.004, seed=s + 90),
            160.0,
            300,
        ),
        shards=2,
    ),
}
"""Joins in parts, each with a sample of its own."""

_OF_A_KEY = GENERATED | REAL | LARGE | SHARDED
LOOKED_AT: Mapping[str, Setting] = {
    name: replace(setting, keyed=True) for name, setting in _OF_A_KEY.items()
} | KINDS
