"""The demonstration on Spark, from its command to what it leaves behind."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from queries import environment

pytest.importorskip("pyspark")
from streamshed.demo.live import Batch, Outcome
from streamshed.spark import shared_memory


def test_an_outcome_sums_its_batches_up() -> None:
    batches = (
        Batch(0, rows=10, seconds=5.0, held=10, shed=0, results=1, state_bytes=100),
        Batch(1, rows=60, seconds=2.0, held=50, shed=20, results=7, state_bytes=500),
        Batch(2, rows=30, seconds=1.0, held=40, shed=60, results=9, state_bytes=400),
    )
    outcome = Outcome(batches)
    assert (outcome.rows, outcome.results, outcome.held, outcome.state_bytes) == (100, 9, 50, 500)
    assert outcome.rows_per_second == 30.0
    assert Outcome(batches[:1]).rows_per_second == 2.0
    assert Outcome(()).rows_per_second == Outcome(()).results == 0


@pytest.mark.slow
@pytest.mark.spark
def test_the_command_shows_both_joins_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamshed.cli", "demo", "--policy", "oldest", "--rows", "30000"],
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    ours, sparks = (
        re.split(r"\s*│\s*", line)[1:-1] for line in done.stdout.splitlines() if line[:1] == "│"
    )
    assert ours[0] == "streamshed, shed by 'oldest'"
    assert 0 < float(ours[3].rstrip("%")) < 100
    value, low, high = map(float, re.findall(r"([\d.]+)%", ours[4]))
    assert 0 <= low <= value <= high <= 100
    assert ours[5] == "30,000"
    assert sparks[0].startswith("Spark's own")
    assert sparks[3] == ("" if "stopped" in sparks[0] else "100.0%")
    assert int(sparks[2].replace(",", "")) > 0
    progress = [line for line in done.stderr.splitlines() if line.startswith("batch")]
    assert sum(" held " in line and " shed " in line for line in progress) >= 3
    assert not list(tmp_path.glob("streamshed-*"))
    for folder in shared_memory._base().glob("*"):  # of other queries of this machine
        assert shared_memory._owner_of(folder).alive
