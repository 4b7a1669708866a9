"""Workers leave what was imported out of garbage collections, and give memory back."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from streamshed.spark import daemon, workers


def test_nothing_is_frozen_outside_of_workers() -> None:
    before = gc.get_freeze_count()
    workers.begin_task()
    assert gc.get_freeze_count() == before


@pytest.mark.spark
def test_imports_are_frozen_unless_a_join_is_at_hand(spark) -> None:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        import streamshed.spark.processor  # noqa: F401 - with all that it needs
        from streamshed.spark import workers

        gc.unfreeze()
        workers._frozen.clear()
        at_hand, found = dict(workers.AT_HAND), []
        for kept in ({"token": 1}, {}):
            workers.AT_HAND.clear()
            workers.AT_HAND.update(kept)
            workers.begin_task()
            found.append(gc.get_freeze_count())
        workers.AT_HAND.clear()
        workers.AT_HAND.update(at_hand)
        for _ in batches:
            pass
        yield pa.record_batch({"with_join": found[:1], "without": found[1:]})

    frozen = spark.range(1).coalesce(1).mapInArrow(counted, "with_join long, without long").first()
    assert frozen.with_join == 0
    assert frozen.without > 50_000


_FREED = """
import pyarrow as pa
from streamshed.spark import workers

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

held = [bytes(10_000) for _ in range(10_000)]
pinned = bytes(10_000)  # above all of them, so that nothing is given back by itself
held.clear()
before = resident()
workers.end_task(workers.LARGE - 1)
assert resident() > before - 10_000_000
workers.end_task(workers.LARGE)
assert resident() < before - 80_000_000, (before, resident())
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_large_tasks_give_memory_back() -> None:
    subprocess.run([sys.executable, "-c", _FREED], check=True)


_LOADED = """
import os, sys
from streamshed.spark import daemon

daemon.load()
assert "numba" in sys.modules and "pandas" in sys.modules
tasks = os.listdir("/proc/self/task")
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in tasks]
assert [name for name in names if not name.startswith("jemalloc")] == names[:1], names
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc")
def test_the_daemon_has_no_threads_that_a_fork_would_lose() -> None:
    subprocess.run([sys.executable, "-c", _LOADED], check=True)
    assert find_spec(daemon.DAEMON) is not None
