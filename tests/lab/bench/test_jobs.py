"""The benchmark of jobs, in small."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
from streamshed.demo import funnel
from streamshed.demo.workload import FunnelWorkload
from streamshed_lab.bench import jobs


def test_a_page_with_the_ledgers_of_a_thousand_streams_keeps_up():
    (update,) = jobs._ledgers(lambda line: None)
    assert update.holds
    assert "1,000 streams" in update.name


def test_results_after_the_first_half_are_those_of_the_second():
    tables = FunnelWorkload(sessions=600, minutes=20, seed=1).tables()
    first = jobs.halved(tables)
    for name, table in first.items():
        assert 0 < table.num_rows < tables[name].num_rows
    made = funnel().replay(tables).table
    middle = max(table["ts"][-1].value for table in tables.values()) // 2
    late = sum(time.value >= middle for time in made["time"])
    assert jobs.results_after(funnel(), tables, first) == late > 0


def test_tuning_has_its_bars(monkeypatch):
    monkeypatch.setattr(jobs, "POLICIES", ("oldest",))
    told = []
    monkeypatch.setattr(jobs, "MINUTES", 40)
    seconds, *points = jobs._tuning(150, told.append)
    assert seconds.holds
    assert [one.bar for one in points] == [2.0, 2.0, 2.0]
    assert told


def test_a_process_that_ends_without_a_batch_is_told(tmp_path):
    command = [jobs.sys.executable, "-c", "print('no Java')"]
    with pytest.raises(RuntimeError, match="no batch was done: no Java"):
        jobs._until_first_batch(command, tmp_path / "job" / "checkpoint")
