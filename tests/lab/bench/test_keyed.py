"""The benchmark of the keyed join, in small."""

from __future__ import annotations

import pytest

from streamshed import StreamshedError
from streamshed_lab.bench import keyed, run
from streamshed_lab.bench.keyed import Setting


@pytest.fixture
def small(monkeypatch):
    policies = ("exact", "oldest", "existence")
    settings = (
        Setting(5, 500, timed=2_000, repeats=1, policies=policies),
        Setting(5, 600, timed=2_000, repeats=1, policies=("existence",), end_to_end=False),
    )
    monkeypatch.setattr(keyed, "QUICK", settings)
    monkeypatch.setattr(keyed, "_ROWS", 3_000)
    monkeypatch.setattr(keyed, "_KEYS", (1_000,))
    monkeypatch.setattr(keyed, "STATE_ROWS", 600)
    monkeypatch.setattr(keyed, "_in_shards", lambda quick, progress: iter([]))


def test_everything_is_measured_once(small):
    told = []
    found = list(run("keyed", quick=True, progress=told.append))
    named = {measurement.name: measurement for measurement in found}
    assert len(named) == len(found)
    assert all(measurement.value > 0 for measurement in found)
    for what in ("loop", "end to end", "state beyond the payload"):
        for policy in ("exact", "oldest", "existence"):
            assert f"{what}, {policy}, 5 streams, 500 rows" in named
    assert named["loop, existence, 5 streams, 500 rows"].bar == 8_000_000
    assert named["end to end, existence, 5 streams, 500 rows"].bar == 2_000_000
    assert named["loop, oldest, 5 streams, 500 rows"].bar is None
    with_bars = [measurement for measurement in found if measurement.bar is not None]
    assert [m.bar for m in with_bars if "state" in m.name] == [80.0]
    assert any("of one core's memory bandwidth" in name for name in named)
    assert any("from 500 to 600 rows" in name for name in named)
    assert any("against DuckDB" in name for name in named)
    assert told


def test_windows_are_full_and_overflow_by_two():
    setting = Setting(3, 200, timed=600, repeats=1)
    tables = setting.tables()
    assert {table.num_rows for table in tables.values()} == {600}
    ledger = setting.join("oldest").count(tables)
    assert {stream.stored for stream in ledger.streams.values()} == {200}
    exact = setting.join("exact").count(tables)
    for stream in exact.streams.values():
        assert stream.stored == pytest.approx(400, rel=0.2)


def test_times_are_not_compared_where_results_differ(small, monkeypatch):
    monkeypatch.setattr(keyed, "_SQL", keyed._SQL + " limit 1")
    with pytest.raises(StreamshedError, match="the results differ"):
        list(keyed._against_duckdb(1, lambda line: None))
