"""An archive that comes twice, as if it were the time to come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.demo import funnel
from streamshed.demo.workload import FunnelWorkload, minutes_of
from streamshed.join import spec_of
from streamshed.tuning.archive import Archive
from streamshed.tuning.laps import two_laps

SAID = ss.join("a", "b").on("k").within(10, time="ts")


def archive(said: ss.Join, **tables: pa.Table) -> Archive:
    return Archive.read(spec_of(said), tables, "time", 1.0)


def laps(said: ss.Join, **tables: pa.Table):
    read = archive(said, **tables)
    return two_laps(read.spec, read.plan, read.tables)


def passing(rows: int = 60) -> dict[str, pa.Table]:
    """Every key comes once to each stream."""
    return {name: pa.table({"k": range(rows), "ts": range(rows)}) for name in "ab"}


def test_rows_come_again_after_all_of_them_with_new_keys_but_those_that_last():
    k = ["lasts" if row % 20 == 0 else f"{row}" for row in range(60)]
    tables = {name: pa.table({"k": k, "ts": [*range(59), None]}) for name in "ab"}
    found = laps(SAID, **tables)
    assert found.length == 59
    first, second = (found.tables["a"].slice(60 * lap, 60).to_pydict() for lap in (0, 1))
    assert second["ts"] == [None if ts is None else ts + 59 for ts in first["ts"]]
    (own,) = {*first} - {"k", "ts"}
    assert [row for row in range(60) if first[own][row] == second[own][row]] == [0, 20, 40]
    # The keys are the same in all streams, and new ones are as different as those they were.
    assert found.tables["b"][own] == found.tables["a"][own]
    assert len({*first[own], *second[own]}) == 2 * 58 - 1


def test_the_second_lap_makes_what_the_first_does():
    times = np.arange(0, 600)
    tables = {
        name: pa.table({"k": times // 3 + seed % 2, "ts": times}) for seed, name in enumerate("ab")
    }
    read = archive(SAID, **tables)
    exact = read.doubled().exact()
    results = SAID.count(tables).results
    assert exact.ledger.results == results
    # Parts need not end where the first lap does.
    assert abs(exact.before - exact.made.size) <= 1
    assert abs(exact.made.sum() - results) <= exact.made.max()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (SAID.within(60, time="ts"), "rows would meet themselves"),
        (ss.join("a", "b").on("k").last(5), "rows have no time"),
        (SAID.last(60), "rows would meet themselves"),
    ],
)
def test_joins_whose_rows_come_once(said, why):
    assert laps(SAID, **passing()) is not None
    assert laps(said, **passing()) is None, why


def test_rows_come_once_where_keys_recur_or_facts_have_times():
    recurring = {name: pa.table({"k": [1, 2] * 30, "ts": range(60)}) for name in "ab"}
    assert laps(SAID, **recurring) is None
    pairs = pa.table({"k": [1], "j": [1], "end": [30]})
    related = ss.join("a", "b").within(10, time="ts").through(pairs, a="k", b="j")
    tables = passing()
    assert laps(related, a=tables["a"], b=tables["b"].rename_columns(["j", "ts"])) is None


def test_a_policy_is_measured_once_it_has_learned():
    """What is recommended on the first half of an archive holds in the second."""
    tables = FunnelWorkload(sessions=400, minutes=96, seed=5).tables()
    half = {name: t.filter(pa.compute.less(minutes_of(t["ts"]), 48)) for name, t in tables.items()}
    joined = funnel()
    exact = joined.count(tables).results - joined.count(half).results
    for wanted in (0.8, 0.95):
        best = joined.tune(half, recall=wanted, policies=["density"]).join
        made = best.count(tables).results - best.count(half).results
        assert abs(made / exact - wanted) < 0.03
