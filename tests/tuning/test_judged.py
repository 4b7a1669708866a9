"""What tune recommends on the first half of an archive, tried on the second.

No rule of tune was chosen on these archives.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamshed.demo.workload import FunnelWorkload
from streamshed.errors import InputError
from streamshed_lab.experiments.joining import key_join
from streamshed_lab.workloads import (
    Auctions,
    Bursts,
    DailyCycle,
    ExistenceWorkload,
    HeavySessions,
    RepeatingSessions,
    SwappedKeys,
    traces,
)

WANTED = (0.8, 0.9, 0.95)
POLICIES = ["density", "output", "oldest"]


def shop(**said) -> dict[str, pa.Table]:
    """A funnel with other shoppers than that of the benchmark."""
    tables = FunnelWorkload(**said).tables()
    return {
        name: table.select(["session", "ts"]).rename_columns(["key", "time"])
        for name, table in tables.items()
    }


STEADY = {
    "days": (DailyCycle(seconds=12_000.0, rate=8.0, keys=500, seed=21).tables, 150.0),
    "popular keys that change": (
        SwappedKeys(seconds=8_000.0, rate=12.0, keys=5_000, every=400.0, seed=24).tables,
        100.0,
    ),
    "keys that come once": (
        ExistenceWorkload(streams=4, tuples=40_000, rate=60.0, spread=50.0, seed=27).tables,
        100.0,
    ),
    "a funnel": (partial(shop, sessions=800, minutes=120, shoppers=0.03, seed=34), 600.0),
    "sessions": (
        RepeatingSessions(seconds=40_000.0, sessions=15_000, seed=23).tables,
        1_000.0,
    ),
}
"""Archives whose second half is much like the first."""
UNSTEADY = {
    "sessions with a heavy tail": (HeavySessions(seconds=8_000.0, rate=6.0, seed=22).tables, 200.0),
    "bursts": (Bursts(seconds=8_000.0, rate=10.0, keys=1_000, seed=30).tables, 100.0),
    "auctions": (Auctions(seconds=60_000.0, auctions=4_000, seed=28).tables, 1_200.0),
}
"""Archives whose halves differ, by what few keys or a few seconds make."""
REAL = {
    "honeypots": (
        partial(traces.honeypot, ["groucho-eu", "groucho-sydney", "groucho-sa"]),
        10_800.0,
    ),
    "headlines": (partial(traces.news, ["wapo", "lat", "usat", "npr"]), 3 * 86_400.0),
}


def micros(table: pa.Table) -> pa.ChunkedArray:
    return table["time"].cast(pa.timestamp("us")).cast(pa.int64())


def tried(tables, window, wanted):
    """What is recommended on the first half, and its recall on the second."""
    ends = [pc.min_max(micros(table)).as_py() for table in tables.values()]
    middle = (min(end["min"] for end in ends) + max(end["max"] for end in ends)) // 2
    first = {name: table.filter(pc.less(micros(table), middle)) for name, table in tables.items()}
    join = key_join(tables, window)
    found = join.tune(first, recall=wanted, policies=POLICIES)
    made, exact = (
        one.count(tables).results - one.count(first).results for one in (found.join, join)
    )
    return found, made / exact


def warned(found) -> bool:
    said = str(found)
    return any(word in said for word in ("The data drift", "Recall varies", "another burst"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(reason="2.4 points too low for 90 %"))
        if name == "sessions"
        else name
        for name in STEADY
    ],
)
def test_the_recommendation_holds(name):
    make, window = STEADY[name]
    tables = make()
    off = {wanted: tried(tables, window, wanted)[1] - wanted for wanted in WANTED}
    assert max(map(abs, off.values())) < 0.02, off


@pytest.mark.slow
@pytest.mark.parametrize("name", [*UNSTEADY, *REAL])
def test_where_it_does_not_hold_it_says_so(name):
    make, window = {**UNSTEADY, **REAL}[name]
    if name in REAL:
        try:
            traces.data_folder()
        except InputError as missing:
            pytest.skip(str(missing))
    tables = make()
    for wanted in WANTED:
        found, recall = tried(tables, window, wanted)
        assert abs(recall - wanted) < 0.02 or warned(found), (wanted, recall, str(found))
