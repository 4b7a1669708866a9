"""The shared-memory cache is a copy: whatever happens to it, the state store has it all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from state_handle import Handle
from streamshed.engine.checkpoint import Delta, Head, SegmentName, from_ipc
from streamshed.engine.ingest import merged
from streamshed.kernels.core import Shape
from streamshed.plan.plan import Plan
from streamshed.spark import shared_memory, store
from streamshed.spark.sharding import Sharding
from streamshed.spark.shared_memory import CacheFolder, Process, SharedMemory, sweep

SHAPE = Shape(*range(len(Shape.__dataclass_fields__)))
ROWS = pa.record_batch({"key": [1, 2, 3]})
LONG = np.dtype(np.int64)


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setattr(shared_memory, "_base", lambda: path)
    monkeypatch.setattr(store, "_live", {})
    return path


@pytest.fixture
def gone() -> Process:
    """A process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as ended:
        process = Process.running(ended.pid)
    assert process.start
    return process


def changed(
    segments: dict[SegmentName, pa.RecordBatch] | None = None,
    removed: list[SegmentName] | None = None,
) -> Delta:
    return Delta(Head({}, {}, {}), segments or {}, removed or [])


def released(lineage: str, token: str) -> None:
    folder = CacheFolder.create(lineage)
    folder.memory.array("times", 3, LONG, zero=True)
    folder.write(SHAPE, b"head", changed(segments={(0, 0): ROWS}))
    folder.release(token)


# -- who may go on ---------------------------------------------------------------------------------


def test_only_one_acquires_a_folder() -> None:
    released("shard", "token")
    acquired = CacheFolder.acquire("shard", "token")
    assert acquired is not None
    assert acquired.path is not None
    assert from_ipc((acquired.path / "segment-0-0").read_bytes()) == ROWS
    assert CacheFolder.acquire("shard", "token") is None


def test_a_folder_that_is_gone_is_not_released(base: Path) -> None:
    folder = CacheFolder.create("shard")
    assert folder.path is not None
    shutil.rmtree(folder.path)
    folder.write_segment((0, 0), ROWS)
    folder.write(SHAPE, b"head", changed(segments={(0, 1): ROWS}, removed=[(0, 0)]))
    folder.release("token")
    assert not list(base.iterdir())


def test_folders_are_private(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base.mkdir(mode=0o755)
    folder = CacheFolder.create("shard")
    assert folder.path is not None
    assert stat.S_IMODE(base.stat().st_mode) == stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    with monkeypatch.context() as patched:
        patched.setattr(os, "getuid", lambda: 12345)
        assert CacheFolder.create("shard").path is None
    shutil.rmtree(base)
    base.symlink_to("/dev/shm")
    assert CacheFolder.create("shard").path is None


# -- what dead processes leave ---------------------------------------------------------------------


def test_folders_of_dead_processes_are_swept(
    base: Path, gone: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    released("living", "token")
    with monkeypatch.context() as patched:
        patched.setattr(shared_memory, "owner", lambda: gone)
        released("dead", "token")
        CacheFolder.acquire("dead", "token")
        released("dead", "next")
        CacheFolder.create("other")
    sweep()
    assert [path.name for path in base.iterdir()] == ["living.token"]


def test_another_process_of_the_same_number_is_no_owner(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = Process(os.getpid(), Process.running(os.getpid()).start - 1)
    with monkeypatch.context() as patched:
        patched.setattr(shared_memory, "owner", lambda: earlier)
        released("shard", "token")
    sweep()
    assert not list(base.iterdir())


def test_a_folder_belongs_to_the_executor_that_acquired_it(
    gone: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its maker, another executor of the machine, may die before it has been released again."""
    with monkeypatch.context() as patched:
        patched.setattr(shared_memory, "owner", lambda: gone)
        released("shard", "token")
    acquired = CacheFolder.acquire("shard", "token")
    assert acquired is not None
    assert acquired.path is not None
    sweep()
    assert acquired.path.exists()
    acquired.write(SHAPE, b"head", changed())
    acquired.release("next")
    sweep()
    assert CacheFolder.acquire("shard", "next") is not None


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ({70: (60, "python -m pyspark.daemon"), 60: (1, "/jvm/bin/java -cp x")}, 60),
        ({70: (60, "/jvm/bin/java -cp x"), 60: (1, "bash")}, 70),
        # The executor is gone, and the daemon has not noticed.
        ({70: (1, "python -m pyspark.daemon"), 1: (0, "/sbin/init")}, 70),
        # The daemon is gone.
        ({70: (0, "/sbin/init")}, os.getpid()),
    ],
    ids=["daemon", "no daemon", "executor gone", "daemon gone"],
)
def test_the_owner_of_a_worker_is_its_executor(
    processes: dict[int, tuple[int, str]], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 70)
    monkeypatch.setattr(shared_memory, "_parent_of", lambda number: processes[number][0])
    monkeypatch.setattr(shared_memory, "_command_of", lambda number: processes[number][1].split())
    monkeypatch.setattr(Process, "running", classmethod(lambda cls, number: cls(number, 5)))
    shared_memory._owner_at_first.cache_clear()
    assert shared_memory.owner() == Process(expected, 5)
    processes.clear()  # whatever becomes of them
    assert shared_memory.owner() == Process(expected, 5)
    shared_memory._owner_at_first.cache_clear()


# -- too little memory, or none --------------------------------------------------------------------


def full(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_memory_is_reserved(base: Path) -> None:
    base.mkdir()
    array = SharedMemory(base).array("times", 1 << 17, LONG, zero=False)
    (file,) = base.iterdir()
    assert file.stat().st_blocks * 512 >= array.nbytes == 1 << 20


def test_a_full_file_system_leaves_arrays_in_process_memory(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CacheFolder.create("shard")
    folder.memory.array("times", 3, LONG, zero=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        array = folder.memory.array("keys", 3, LONG, zero=True)
    array[:] = 7
    assert not folder.memory.shareable
    folder.write(SHAPE, b"head", changed(segments={(0, 0): ROWS}))
    folder.release("token")
    assert not list(base.iterdir())


ONE = Sharding(partitions=1)
PAIR = ss.join("a", "b").on("k").within(100, time="ts")
TIMES = pa.schema([("k", pa.int64()), ("ts", pa.int64())])


def batch(handle: Handle, plan: Plan, time: int) -> int:
    """Process a row of each stream; returns the results of all batches so far."""
    state = store.Store(handle, ONE).open(plan)
    row = pa.record_batch([[1], [time]], schema=TIMES)
    for _ in state.join.process(merged([state.join.read(at, row) for at in (0, 1)])):
        pass
    store.Store(handle, ONE).save(state)
    return state.join.ledger().results


@pytest.mark.parametrize("kind", ["shared", "off", "full"])
@pytest.mark.parametrize("same_worker", [True, False])
def test_a_join_goes_on_with_and_without_shared_memory(
    kind: str, same_worker: bool, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "off":
        monkeypatch.setenv(shared_memory.SWITCH, "off")
    if kind == "full":
        monkeypatch.setattr(os, "posix_fallocate", full)
    restored = []
    monkeypatch.setattr(
        store,
        "restore_operator",
        lambda *args, restore=store.restore_operator: restored.append(1) or restore(*args),
    )
    handle, plan = Handle(), PAIR.plan({"a": TIMES, "b": TIMES})
    for time in range(4):
        assert batch(handle, plan, time) == (time + 1) ** 2
        if not same_worker:
            store._live.clear()
    assert len(restored) == (0 if kind == "shared" or same_worker else 3)
    assert bool(base.exists() and list(base.iterdir())) == (kind == "shared")


def test_a_batch_done_again_starts_from_the_state_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared_memory.SWITCH, "off")
    handle, plan = Handle(), PAIR.plan({"a": TIMES, "b": TIMES})
    batch(handle, plan, 0)
    before = dict(handle.values)
    assert batch(handle, plan, 1) == 4
    handle.values = before
    assert batch(handle, plan, 1) == 4


def test_a_large_head_is_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared_memory.SWITCH, "off")
    monkeypatch.setattr(store, "PART", 100)
    handle, plan = Handle(), PAIR.plan({"a": TIMES, "b": TIMES})
    for time in range(3):
        assert batch(handle, plan, time) == (time + 1) ** 2
        store._live.clear()
    assert max(len(part) for _, part in handle.values.values()) == 100


# -- memory ----------------------------------------------------------------------------------------


def test_rows_that_were_saved_are_in_shared_memory_alone() -> None:
    count = 2_000
    rows = pa.record_batch({"k": range(count), "ts": range(count), "text": ["x" * 5_000] * count})
    join = ss.join("a", "b").on("k").within(count, time="ts")
    plan = join.plan({"a": rows.schema, "b": rows.schema})
    running = store.Store(Handle(), Sharding(partitions=1)).open(plan)
    before = pa.total_allocated_bytes()
    for _ in running.join.process(running.join.read(0, pa.concat_batches([rows]))):
        pass
    running_store = store.Store(Handle(), Sharding(partitions=1))
    running_store.save(running)
    assert pa.total_allocated_bytes() - before < rows.nbytes // 2
    assert running.join.payload[0].nbytes() >= rows.nbytes
    kept = running.join.payload[0].segments.popitem()[1]
    assert kept == rows
    assert running.folder.mapped((0, 99)) is None
    assert CacheFolder(None, "nowhere").mapped((0, 0)) is None


def test_bytes_of_executors() -> None:
    released("shard", "token")
    me = shared_memory.owner().number
    assert shared_memory.bytes_of({me}) >= ROWS.nbytes
    assert shared_memory.bytes_of({me + 1}) == 0
