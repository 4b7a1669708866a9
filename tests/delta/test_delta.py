"""A job file into a Delta table, killed in the middle: the exact answer, each result once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from queries import environment

JARS = Path(os.environ.get("STREAMSHED_DELTA", "build/delta"))
JOB = Path(__file__).with_name("job.toml")
STREAMS = ("ads", "clicks", "orders")
ROWS, FILES = 2_000, 8
PATIENCE = 900
pytestmark = [
    pytest.mark.delta,
    pytest.mark.spark,
    pytest.mark.skipif(not JARS.exists(), reason="no jars of Delta: make test-delta fetches them"),
]


def written(folder: Path) -> dict[str, pa.Table]:
    """The streams, each in as many files as there are batches."""
    random = np.random.default_rng(0)
    tables = {}
    for stream in STREAMS:
        times = np.sort(random.integers(0, 3_600_000_000, ROWS))
        columns = {"id": np.arange(ROWS), "k": random.integers(0, 40, ROWS)}
        tables[stream] = pa.table(columns | {"ts": pa.array(times).cast(pa.timestamp("us", "UTC"))})
        (folder / stream).mkdir()
        for part in range(FILES):
            inside = (times * FILES // 3_600_000_000) == part
            file = folder / stream / f"{part}.parquet"
            pq.write_table(tables[stream].filter(pa.array(inside)), file)
            os.utime(file, (1_000_000 + part, 1_000_000 + part))
    return tables


def started(folder: Path) -> subprocess.Popen[bytes]:
    """The job, by the command line, in a group of its own."""
    jars = ",".join(map(str, sorted(JARS.resolve().glob("*.jar"))))
    command = [sys.executable, "-m", "streamshed.cli", "run", str(JOB), "--json"]
    return subprocess.Popen(
        [*command, "--set", f"spark.jars={jars}"],
        env=environment(FOLDER=str(folder)),
        start_new_session=True,
        stdout=subprocess.PIPE,
    )


def in_table(folder: Path) -> pa.Table:
    """The rows of a Delta table: those of the files that its log has added."""
    files = [
        action["add"]["path"]
        for log in sorted((folder / "_delta_log").glob("*.json"))
        for action in map(json.loads, log.read_text().splitlines())
        if "add" in action
    ]
    return pa.concat_tables([pq.read_table(folder / file) for file in files])


def test_a_job_that_is_killed_ends_with_each_result_once(tmp_path: Path) -> None:
    tables = written(tmp_path)
    killed = started(tmp_path)
    commits = tmp_path / "checkpoint" / "commits"
    until = time.monotonic() + PATIENCE
    while not (commits / "1").exists():
        assert killed.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert len([path for path in commits.iterdir() if path.name.isdigit()]) < FILES
    again = started(tmp_path)
    out, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0
    ledger = json.loads(out.splitlines()[-1])
    assert not any(stream["late"] for stream in ledger["streams"].values())
    with duckdb.connect() as database:
        for stream, table in tables.items():
            database.register(stream, table)
        exact = database.sql(
            "select ads.id, clicks.id, orders.id"
            " from ads join clicks using (k) join orders using (k)"
            " where greatest(ads.ts, clicks.ts, orders.ts) - least(ads.ts, clicks.ts, orders.ts)"
            " <= interval 2 minutes"
        ).fetchall()
    made = in_table(tmp_path / "results")
    found = Counter(zip(*(made[stream].to_pylist() for stream in STREAMS), strict=True))
    assert len(exact) > 1_000
    assert found == Counter(exact)
    assert ledger["results"] == len(exact)
