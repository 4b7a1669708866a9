"""Joins on a cluster of two workers, whose executors are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import streamshed as ss
from harness import spec
from queries import (
    BATCHES,
    PATIENCE,
    TESTS,
    Query,
    check,
    environment,
    logged,
    running,
    struck,
    waits,
    workload,
    written,
)
from streaming import Ran, cut, replayed
from streamshed.demo import funnel
from streamshed.demo.workload import FunnelWorkload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def master() -> Iterator[str]:
    from streamshed.spark.cluster import cluster

    with cluster(environment=environment()) as master:
        yield master
    assert executors() == []


@dataclass(frozen=True)
class Process:
    """What Linux says of a process."""

    number: int

    @property
    def parent(self) -> int:
        status = Path(f"/proc/{self.number}/stat").read_text()
        return int(status.rpartition(")")[2].split()[1])

    @property
    def command(self) -> str:
        return Path(f"/proc/{self.number}/cmdline").read_bytes().replace(b"\0", b" ").decode()

    @property
    def ancestors(self) -> list[int]:
        above = [self.parent]
        while above[-1] > 1:
            above.append(Process(above[-1]).parent)
        return above


def started(command: str, by: int) -> list[int]:
    """The processes below a process that run a command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        process = Process(int(folder.name))
        with contextlib.suppress(OSError):  # it has ended
            if command in process.command and by in process.ancestors:
                found.append(process.number)
    return sorted(found)


def executors() -> list[int]:
    """The executors of the cluster that this process has started."""
    return started("CoarseGrainedExecutorBackend", by=os.getpid())


def executor_of(worker: int) -> int:
    """The executor that has started a Python worker, by way of a daemon."""
    (found,) = set(Process(worker).ancestors) & set(executors())
    return found


def kill_executor(query: Query, folder: Path, batch: int, moment: str) -> None:
    """Kill the executor whose Python worker waits in the middle of a batch."""
    query.wait_for(struck(folder, batch, moment))
    worker = int((folder / f"_struck-{batch}-{moment}").read_text())
    os.kill(executor_of(worker), signal.SIGKILL)


@dataclass
class Trial:
    """A query on the cluster, in two shards, and what it should leave behind."""

    folder: Path
    policy: str
    master: str

    def running(self, *options: str) -> contextlib.AbstractContextManager[Query]:
        return running(self.folder, self.policy, "--master", self.master, "--shards", "2", *options)


@pytest.fixture(params=["exact", "existence"])
def trial(request: pytest.FixtureRequest, master: str, tmp_path: Path) -> Trial:
    return Trial(written(tmp_path / "cluster", request.param).folder, request.param, master)


@pytest.fixture
def undisturbed(trial: Trial, spark: SparkSession, tmp_path: Path) -> Ran:
    """The same query in two shards here, to which nothing happens."""
    files = written(tmp_path / "here", trial.policy)
    return files.run(spark, spec(workload(trial.policy)), shards=2)


@pytest.mark.slow
def test_a_join_on_a_cluster_is_that_of_replay(master: str, tmp_path: Path) -> None:
    folder = written(tmp_path, "existence").folder
    with running(folder, "existence", "--master", master) as query:
        query.finish()
    expected = replayed(spec(workload("existence")), cut(workload("existence"), BATCHES))
    check(folder, expected.table, expected.ledger)


@slow
def test_executors_elsewhere_compile_nothing_that_the_driver_has(tmp_path: Path) -> None:
    """As on another host: with a home and a cache of their own, which are empty."""
    from streamshed.spark.cluster import cluster

    folder, elsewhere = written(tmp_path / "files", "exact").folder, tmp_path / "elsewhere"
    elsewhere.mkdir()
    variables = environment(STREAMSHED_CACHE=str(elsewhere / "cache"), HOME=str(elsewhere))
    with (
        cluster(workers=1, environment=variables) as other,
        running(folder, "exact", "--master", other) as query,
    ):
        query.finish()
    expected = replayed(spec(workload("exact")), cut(workload("exact"), BATCHES))
    check(folder, expected.table, expected.ledger)
    assert list((elsewhere / "cache").glob("*")) == []


@slow
def test_executors_are_killed_in_the_middle_of_a_batch(trial: Trial, undisturbed: Ran) -> None:
    moments = [(1, "before"), (2, "within"), (3, "after"), (4, "within"), (5, "after")]
    with trial.running(*waits(*moments)) as query:
        for batch, moment in moments:
            kill_executor(query, trial.folder, batch, moment)
        query.finish()
    check(trial.folder, undisturbed.table, undisturbed.ledger)


@slow
def test_all_executors_are_killed_whenever(trial: Trial, undisturbed: Ran) -> None:
    """Early in a batch, when it is done, and a while later, whatever they are at."""
    with trial.running() as query:
        for batch, log, later in [(1, "offsets", 0.0), (2, "commits", 0.0), (4, "offsets", 0.3)]:
            query.wait_for(logged(trial.folder, log, batch))
            time.sleep(later)
            killed = executors()
            for executor in killed:
                os.kill(executor, signal.SIGKILL)
            assert killed
        query.finish()
    check(trial.folder, undisturbed.table, undisturbed.ledger)


@slow
def test_executors_and_then_the_driver_are_killed(trial: Trial, undisturbed: Ran) -> None:
    """The query then goes on from its checkpoint, on other executors."""
    for batch, moment in [(1, "within"), (3, "after")]:
        with trial.running(*waits((batch, moment))) as query:
            kill_executor(query, trial.folder, batch, moment)
    with trial.running() as query:
        query.finish()
    check(trial.folder, undisturbed.table, undisturbed.ledger)


# -- the cluster itself ------------------------------------------------------------------------


def cluster_command(*arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "streamshed.cli", "cluster", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        cwd=cwd,
    )


@slow
def test_the_example_on_a_cluster(tmp_path: Path) -> None:
    example = TESTS.parent / "examples" / "ad_funnel.py"
    ran = cluster_command(sys.executable, str(example), str(tmp_path / "funnel"), cwd=tmp_path)
    printed = ran.communicate(timeout=PATIENCE)[0].decode()
    assert ran.returncode == 0
    tables = FunnelWorkload(seed=1).tables()
    for name, table in tables.items():
        assert f"{table.num_rows:,}" in next(
            line for line in printed.splitlines() if line.startswith(name)
        )
    results = pq.read_table(tmp_path / "funnel" / "results")
    assert f"{results.num_rows:,} results" in printed
    assert results.num_rows > 0.3 * funnel().count(tables).results


@slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_cluster_ends_with_its_command(tmp_path: Path, how: signal.Signals) -> None:
    """Also when it is interrupted, as here, or told to end."""
    script = "import os, time; print(os.environ['MASTER'], flush=True); time.sleep(600)"
    ran = cluster_command(sys.executable, "-c", script, cwd=tmp_path)
    try:
        assert ran.stdout is not None
        assert ran.stdout.readline().startswith(b"spark://127.0.0.1:")
        cluster = started("org.apache.spark.deploy", by=ran.pid)
        assert len(cluster) == 3
    finally:
        ran.send_signal(how)
        ran.communicate(timeout=60)
    assert not any(Path(f"/proc/{process}").exists() for process in cluster)
    assert ran.returncode != 0


def test_a_cluster_that_does_not_start_says_why() -> None:
    from streamshed.spark.cluster import cluster

    starting = cluster(environment={**environment(), "JAVA_HOME": "/nowhere"})
    said = r"(?s)Spark's master ended.*/nowhere/bin/java"
    with pytest.raises(ss.StreamshedError, match=said), starting:
        pass
