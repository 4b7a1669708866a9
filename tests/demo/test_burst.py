"""The burst on Spark: who fell behind, and what is said of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from queries import environment

pytest.importorskip("pyspark")
from streamshed.demo.burst import (
    BUDGETED,
    EXACT,
    LOAD,
    PACE,
    SPARKS,
    _Contender,
    loaded,
    resident,
    run,
    trial,
)
from streamshed.demo.display import verdict
from streamshed.demo.story import Outcome, Sample, Truth
from streamshed.demo.workload import FunnelWorkload
from streamshed.spark import shared_memory
from streamshed.terminal import prepare_spark


def outcome(name, lag, memory=1e9, waiting=0, recall=None):
    return Outcome(name, [Sample(1.0, 90, 100.0, 10, int(memory), recall, waiting, lag)])


def test_the_verdict_says_who_did_better():
    truth = Truth(np.array([9_999]), np.array([100]), 40)
    ours = [outcome(EXACT, 2.0), outcome(BUDGETED, 3.0, 0.8e9, recall=(0.9, 0.8, 1.0))]
    lines = " ".join(verdict([outcome(SPARKS, 9.0, waiting=1_234), *ours], truth, 1.0))
    assert "fell 9.0 s behind, ours 2.0 s without a budget and 3.0 s with one. When" in lines
    assert "Spark's own join had made 90 results, ours 90 without a budget" in lines
    assert "not all of the 9,999 rows were joined. Left were 1,234 by Spark's own join." in lines
    assert "200 MB less memory than Spark's own join, and held 25% of the rows" in lines
    assert "made 90.0 % of the exact results." in lines
    assert "reported 90.0 % (80.0 to 100.0)." in lines
    lines = " ".join(verdict([outcome(SPARKS, 3.5, 0.5e9), *ours], truth, 1.0))
    assert "All three kept up" in lines
    assert "300 MB more" in lines
    # Who falls behind does not keep up, even if ours falls farther behind.
    slow = [ours[0], outcome(BUDGETED, 30.0, waiting=9, recall=(0.9, 0.8, 1.0))]
    lines = " ".join(verdict([outcome(SPARKS, 29.0), *slow], truth, 1.0))
    assert "fell 29.0 s behind, ours 2.0 s without a budget and 30.0 s with one" in lines
    assert "Here Spark's own join did better." in lines
    assert "None kept up" not in lines
    slow[0] = outcome(EXACT, 31.0)
    assert "None kept up" in verdict([outcome(SPARKS, 29.0), *slow], truth, 1.0)[0]
    assert "of the exact results of the rows that it joined." in lines


def test_the_height_of_the_burst_follows_the_trial():
    workload = loaded(FunnelWorkload(minutes=30, burst=5, seed=1), 5_000.0)
    most = max(sum(map(len, tables.values())) for tables in workload.by_minute())
    assert most / PACE == pytest.approx(LOAD * 5_000.0, rel=0.05)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no /proc")
def test_memory_is_that_of_all_processes_of_a_session():
    code = "import os; held = b'1' * 80_000_000; os.fork(); os.read(0, 1)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        seen = 0
        until = time.monotonic() + 30
        while seen <= 80_000_000 and time.monotonic() < until:
            seen = resident(process.pid)
        process.communicate(b"\n\n")
    # What the two share counts once.
    assert 80_000_000 < seen < 140_000_000
    assert resident(os.getsid(0)) > 0


def test_a_join_that_has_ended_leaves_no_process(tmp_path, monkeypatch):
    """As Java may live on in the middle of a batch, and Python workers in a group of their own."""
    command = tmp_path / "python"
    started = "subprocess.Popen(['sleep', '300']{})\n"
    lines = f"import subprocess\n{started.format('')}{started.format(', process_group=0')}"
    command.write_text(f"#!{sys.executable}\n{lines}")
    command.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(command))
    (tmp_path / "files" / "orders").mkdir(parents=True)
    with _Contender(tmp_path / "join", tmp_path / "files", ["none"]) as contender:
        assert contender.process.wait(10) == 0
        assert resident(contender.process.pid) > 0
    until = time.monotonic() + 10
    while resident(contender.process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert resident(contender.process.pid) == 0
    assert not (tmp_path / "join").exists()


@pytest.mark.slow
@pytest.mark.spark
def test_three_joins_of_the_same_files_take_turns_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    prepare_spark()
    assert trial(FunnelWorkload(sessions=50, minutes=3)) > 0
    shown: list[str] = []
    workload = FunnelWorkload(sessions=50, minutes=12, burst=5, seed=1)
    outcomes, truth = run(
        workload, None, "oldest", shown.append, lambda all_: shown.append(all_[-1].name)
    )
    assert [one.name for one in outcomes] == [SPARKS, EXACT, BUDGETED]
    assert not any(one.note for one in outcomes)
    sparks, exact, ours = outcomes
    # Whoever came to the end made what there is to make.
    for one in (sparks, exact):
        # What is due within a minute is interpolated; at its end it is known.
        minute = np.searchsorted(truth.rows, truth.rows[-1] - one.last.waiting)
        assert one.last.results <= truth.results[minute]
        if not one.last.waiting:
            assert one.last.results == truth.results[-1]
    assert exact.last.recall == (1.0, 1.0, 1.0)
    assert ours.most("held") <= truth.peak // 3
    assert 0 < ours.last.results < ours.last.due
    assert all(one.most("memory") > 100e6 for one in outcomes)
    assert shown.count(EXACT) >= 12 * 4
    assert not list(tmp_path.glob("streamshed-*"))
    for folder in shared_memory._base().glob("*"):  # of other queries of this machine
        assert shared_memory._owner_of(folder).alive
    assert f"{SPARKS}: a minute of the streams arrives every 1 s" in shown
