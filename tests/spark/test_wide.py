"""Results of many bytes pass through Java's memory piece by piece."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from queries import PATIENCE, environment
from streaming import Files

ROWS, KEYS, BATCHES, BYTES = 20_000, 60_000, 8, 1_000


@pytest.mark.slow
def test_wide_results_need_no_more_memory_than_java_has(tmp_path: Path) -> None:
    """More than three gigabytes of results and half a gigabyte of state, where Java has two."""
    random = np.random.default_rng(1)
    text = pa.array(["x" * BYTES] * ROWS)
    met = np.ones(KEYS, np.int64)
    batches: list[dict[str, pa.Table]] = [{} for _ in range(BATCHES)]
    for name in "abc":
        counts = np.zeros(KEYS, np.int64)
        for number, batch in enumerate(batches):
            keys = random.integers(0, KEYS, ROWS)
            counts += np.bincount(keys, minlength=KEYS)
            times = np.arange(number * ROWS, (number + 1) * ROWS)
            batch[name] = pa.table({"k": keys, "ts": times, "text": text})
        met *= counts
    Files(tmp_path).write(batches)
    assert met.sum() * 3 * BYTES > 3e9
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("wide.py")), str(tmp_path)],
        env=environment(SPARK_LOCAL_DIRS=str(tmp_path / "_tmp")),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) == met.sum()
