"""Queries that are killed and go on: nothing is lost, nothing is done twice."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from engine import spec
from streaming import Files, counts, cut, replayed, rows

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).with_name("driver.py")
TESTS = DRIVER.parent.parent
BATCHES = 6
PATIENCE = 240.0


@pytest.fixture(scope="module")
def driver() -> ModuleType:
    found = importlib.util.spec_from_file_location("driver", DRIVER)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


class Query:
    """A driver process, its Spark and its Python workers."""

    def __init__(self, folder: Path, policy: str, *options: str) -> None:
        temporary = folder / "_tmp"
        temporary.mkdir(exist_ok=True)
        paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.log = (folder / "_log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(folder), policy, *options],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_DIRS": str(temporary),
            },
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill the driver and its Spark; the workers see it and end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def wait_for(self, happened: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not happened():
            assert self.process.poll() is None, "the driver ended too early"
            assert time.monotonic() < until, "the driver takes too long"
            time.sleep(0.002)

    def finish(self) -> None:
        assert self.process.wait(PATIENCE) == 0
        self.log.close()


@contextlib.contextmanager
def running(folder: Path, policy: str, *options: str) -> Iterator[Query]:
    query = Query(folder, policy, *options)
    try:
        yield query
    finally:
        query.kill()


def struck(folder: Path, batch: int, moment: str) -> Callable[[], bool]:
    marker = folder / f"_struck-{batch}-{moment}"
    return lambda: marker.exists() and marker.read_text() != ""


def logged(folder: Path, log: str, batch: int) -> Callable[[], bool]:
    return (folder / "_checkpoint" / log / str(batch)).exists


def check(folder: Path, driver: ModuleType, policy: str) -> None:
    workload = driver.workload(policy)
    expected = replayed(spec(workload), cut(workload, BATCHES))
    found = pq.read_table(folder / "_results.parquet")
    assert rows(found, expected.table.schema) == rows(expected.table)
    ledger = json.loads((folder / "_ledger.json").read_text())
    assert ledger == {"streams": counts(expected.ledger), "results": expected.ledger.results}


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest, driver: ModuleType) -> Path:
    policy = request.node.callspec.params["policy"]
    Files(tmp_path).write(cut(driver.workload(policy), BATCHES))
    return tmp_path


@pytest.mark.parametrize("policy", ["exact", "existence", "output"])
def test_tasks_that_fail_once_are_done_once(folder: Path, driver: ModuleType, policy: str) -> None:
    disturbances = ["1 before die", "2 within die", "3 after die", "4 within die", "4 after die"]
    options = [word for said in disturbances for word in ("--disturb", *said.split())]
    with running(folder, policy, "--master", "local[2,4]", *options) as query:
        query.finish()
    assert len(list(folder.glob("_struck-*"))) == len(disturbances)
    check(folder, driver, policy)


@pytest.mark.parametrize("policy", ["exact", "random"])
def test_a_worker_is_killed(folder: Path, driver: ModuleType, policy: str) -> None:
    moments = [(1, "before"), (2, "within"), (4, "after")]
    options = [
        word for batch, moment in moments for word in ("--disturb", str(batch), moment, "wait")
    ]
    with running(folder, policy, "--master", "local[2,4]", *options) as query:
        for batch, moment in moments:
            query.wait_for(struck(folder, batch, moment))
            worker = int((folder / f"_struck-{batch}-{moment}").read_text())
            os.kill(worker, signal.SIGKILL)
        query.finish()
    check(folder, driver, policy)


@pytest.mark.parametrize("policy", ["exact", "existence", "random"])
def test_the_driver_is_killed_again_and_again(
    folder: Path, driver: ModuleType, policy: str
) -> None:
    with running(folder, policy) as query:
        query.wait_for(logged(folder, "offsets", 1))
    with running(folder, policy, "--disturb", "2", "within", "wait") as query:
        query.wait_for(struck(folder, 2, "within"))
    with running(folder, policy, "--disturb", "3", "after", "wait") as query:
        query.wait_for(struck(folder, 3, "after"))
    with running(folder, policy) as query:
        query.wait_for(logged(folder, "commits", 3))
    with running(folder, policy) as query:
        query.finish()
    check(folder, driver, policy)
