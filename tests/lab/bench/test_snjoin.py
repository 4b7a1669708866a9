"""The benchmark of joins of many streams, in small."""

from __future__ import annotations

import pytest

from streamshed import StreamshedError
from streamshed_lab.baselines import MJoin
from streamshed_lab.bench import run, snjoin, spilling
from streamshed_lab.bench.snjoin import Scale
from streamshed_lab.experiments.snjoin import running
from streamshed_lab.experiments.snjoin.running import (
    Arrivals,
    at_equal_work,
    sensor_join,
    sensor_query,
    sensors,
    times,
)


def test_everything_is_measured_once(monkeypatch):
    tiny = Scale((2, 3), (20, 40), crowd=500, minutes=2, tuples=2_000, readings=500, rounds=1)
    monkeypatch.setattr(snjoin, "QUICK", tiny)
    monkeypatch.setattr(snjoin, "CHANGES", 3)
    monkeypatch.setattr(spilling, "QUICK", ((100,), 1))
    told = []
    found = list(run("snjoin", quick=True, progress=told.append))
    named = {measurement.name: measurement for measurement in found}
    assert len(named) == len(found)
    level = "time of bare SNJoin against that of"
    choosing = f"{level} MJoin, an order for each row, complete, events"
    assert named[f"{choosing}, 3 streams"].bar == 0.62
    assert named[f"{choosing}, 2 streams"].bar is None
    assert named[f"{level} XJoin tree, complete, readings, 3 streams"].bar == 0.82
    assert named["time of SNJoin against that of MJoin, complete, events, 3 streams"].bar == 0.8
    output = "SNJoin's output against that of MJoin at equal work, variable arity"
    assert named[f"{output}, 40 streams"].bar == 1.6
    assert named[f"{output}, 20 streams"].bar is None
    (fewer,) = [m for m in found if m.name.startswith("fewer results")]
    assert fewer.bar == 4
    assert [m.bar for m in found if m.name.startswith("loop")] == [1_000_000, 1_000_000]
    assert any(m.name.startswith("speed against the join in memory") for m in found)
    assert told


def test_times_are_not_compared_where_results_differ(monkeypatch):
    tuples = Arrivals.of(sensor_join(), {"readings": sensors(20, 500).table()})
    made = iter([0, 5, 0, 5, 0, 6])
    monkeypatch.setattr(running, "results_of", lambda operator: next(made))
    with pytest.raises(StreamshedError, match="the results differ in number"):
        times(tuples, sensor_query(20), 1)


def test_less_is_taken_in_less_time():
    tuples = Arrivals.of(sensor_join(), {"readings": sensors(100, 2_000).table()})
    query = sensor_query(100)
    spent, results = times(tuples, query, 2)
    share, made = at_equal_work(tuples, lambda: MJoin(query), spent["MJoin"] / 4, spent["MJoin"])
    assert 0.05 < share < 0.7
    assert made < results
    assert at_equal_work(tuples, lambda: MJoin(query), 1.0, 0.5) == (1.0, results)
