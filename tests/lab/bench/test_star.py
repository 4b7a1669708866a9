"""The benchmark of the join through a relation, in small."""

from __future__ import annotations

import streamshed as ss
from streamshed_lab.bench import run, star
from streamshed_lab.bench.star import Setting


def test_everything_is_measured_once(monkeypatch):
    monkeypatch.setattr(star, "MILLION", 2_000)
    monkeypatch.setattr(star, "SIZES", (100, 2_000))
    monkeypatch.setattr(star, "MANY", 1_200)
    monkeypatch.setattr(star, "QUICK", (4_000, 1))
    told = []
    found = list(run("star", quick=True, progress=told.append))
    named = {measurement.name: measurement for measurement in found}
    assert len(named) == len(found)
    assert all(measurement.value > 0 for measurement in found)
    speeds = [m for name, m in named.items() if name.startswith("loop, importance(gain_loss)")]
    assert [m.bar for m in speeds] == [None, None, 1_000_000, None]
    assert named["growth of the time per row from 100 to 2,000 facts"].bar == 3
    assert told


def test_rows_meet_through_the_relation_as_it_changes():
    relation, streams = Setting(facts=500, changed=400, rows=100, tuples=4_000).data()
    join = ss.join("r", "s").within(200, time="ts").through(relation, r="a", s="b")
    ledger = join.count(streams)
    assert ledger.results > 1_500  # most of the 2,000 pairs, and some by chance
    assert ledger.streams["r"].filtered == 0
    assert ledger.streams["s"].filtered > 0  # whose facts were gone when they came
