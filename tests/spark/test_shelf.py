"""The shelf is a copy: whatever happens to it, the state store has it all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamshed.engine.checkpoint import Delta, Head, SegmentName, from_ipc
from streamshed.kernels.core import Shape
from streamshed.spark import shelf
from streamshed.spark.shelf import Folder, sweep

SHAPE = Shape(*range(len(Shape.__dataclass_fields__)))
ROWS = pa.record_batch({"key": [1, 2, 3]})


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shelf, "_base", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def changed(
    segments: dict[SegmentName, pa.RecordBatch] | None = None,
    removed: list[SegmentName] | None = None,
) -> Delta:
    return Delta(Head({}, {}, {}, []), segments or {}, {}, removed or [])


def left(lineage: str, token: str) -> None:
    folder = Folder.new(lineage)
    folder.memory.array("times", 3, np.dtype(np.int64), zero=True)
    folder.write(SHAPE, b"head", changed(segments={(0, 0): ROWS}))
    folder.leave(token)


def test_only_one_takes_a_folder() -> None:
    left("shard", "token")
    taken = Folder.take("shard", "token")
    assert taken is not None
    assert from_ipc((taken.path / "segment-0-0").read_bytes()) == ROWS
    assert Folder.take("shard", "token") is None


def test_what_dead_processes_left_is_swept(
    base: Path, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left("living", "token")
    with monkeypatch.context() as patched:
        patched.setattr(os, "getppid", lambda: gone)
        left("dead", "token")
        Folder.take("dead", "token")
        left("dead", "next")
        Folder.new("other")
    sweep()
    assert [path.name for path in base.iterdir()] == ["living.token"]


def test_a_folder_belongs_to_the_executor_that_took_it(
    gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its maker, another executor of the machine, may die before it has been left again."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "getppid", lambda: gone)
        left("shard", "token")
    taken = Folder.take("shard", "token")
    assert taken is not None
    sweep()
    assert taken.path.exists()
    taken.write(SHAPE, b"head", changed())
    taken.leave("next")
    sweep()
    assert Folder.take("shard", "next") is not None


def test_a_folder_that_is_gone_is_not_left(base: Path) -> None:
    folder = Folder.new("shard")
    shutil.rmtree(folder.path)
    folder.keep((0, 0), ROWS)
    folder.write(SHAPE, b"head", changed(segments={(0, 1): ROWS}, removed=[(0, 0)]))
    folder.leave("token")
    assert not list(base.iterdir())
