"""Running joins left where any worker of this machine finds them: arrays in shared memory.

Spark gives a shard now to this worker, now to that one. A folder holds one shard's arrays and
segments. Its name ends in the token of the state that it holds; who wants to go on from that state
renames the folder first, so that only one can, and nobody finds it while it is being changed.

A folder is only a copy. If it cannot be written, or is gone, the state store has it all.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.checkpoint import Delta, Head, SegmentName, Snapshot, from_ipc, write_ipc
from streamshed.kernels.core import Memory, Shape

_OWNER, _ABOUT, _HEAD = "owner", "about.json", "head"


class SharedMemory(Memory):
    """Arrays in files that other processes can map as well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, tuple[str, int]] = {}
        self.shareable = True

    def array(self, name: str, size: int, dtype: np.dtype[Any], zero: bool) -> npt.NDArray[Any]:
        """A new array in a file of its own, or here if there is no room for it."""
        old = self.files.pop(name, None)
        try:
            if 2 * size * dtype.itemsize > shutil.disk_usage(self.folder).free:
                raise OSError("no room")
            file = f"{name}.{uuid.uuid4().hex}"
            with (self.folder / file).open("w+b") as opened:
                opened.truncate(max(1, size * dtype.itemsize))
                array = _mapped(opened.fileno(), size, dtype)
        except OSError:
            self.shareable = False
            return super().array(name, size, dtype, zero)
        self.files[name] = file, size
        if old is not None:
            (self.folder / old[0]).unlink(missing_ok=True)
        return array

    def open(self, name: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An array that another process has made."""
        if name not in self.files:
            return np.empty(0, dtype)
        file, size = self.files[name]
        with (self.folder / file).open("r+b") as opened:
            return _mapped(opened.fileno(), size, dtype)


def _mapped(file: int, size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    room = mmap.mmap(file, max(1, size * dtype.itemsize))
    return np.frombuffer(room, dtype, size)


class Folder:
    """The folder of one shard, while this process works on it."""

    def __init__(self, path: Path, lineage: str) -> None:
        self.path = path
        self.lineage = lineage
        self.memory = SharedMemory(path)

    @classmethod
    def new(cls, lineage: str) -> Folder:
        """An empty folder."""
        sweep()
        path = _taken(_base() / lineage)
        path.mkdir(parents=True)
        return cls(path, lineage)

    @classmethod
    def take(cls, lineage: str, token: str) -> Folder | None:
        """The folder that holds the state of a token, if it is here; nobody else has it then."""
        left = _base() / f"{lineage}.{token}"
        path = _taken(left)
        try:
            left.rename(path)
        except OSError:
            return None
        return cls(path, lineage)

    def read(self) -> tuple[Shape, Snapshot] | None:
        """What the folder holds, or None if it is not whole."""
        try:
            about = json.loads((self.path / _ABOUT).read_text())
            snapshot = Snapshot(Head.from_bytes((self.path / _HEAD).read_bytes()))
            for position, sealed in enumerate(snapshot.head.numbers["sealed"]):
                for number, _ in sealed:
                    file = pa.memory_map(str(self._segment((position, number))))
                    snapshot.segments[position, number] = from_ipc(file.read_buffer())
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return None
        self.memory.files = {name: (file, size) for name, (file, size) in about["files"].items()}
        return Shape(**about["shape"]), snapshot

    def write(self, shape: Shape, head: bytes, delta: Delta) -> None:
        """Write what a batch has changed besides the arrays."""
        for name, rows in delta.segments.items():
            self.keep(name, rows)
        with self._if_possible():
            for name in delta.removed:
                self._segment(name).unlink(missing_ok=True)
            (self.path / _HEAD).write_bytes(head)
            about = {"shape": asdict(shape), "files": self.memory.files}
            (self.path / _ABOUT).write_text(json.dumps(about))
            (self.path / _OWNER).write_text(str(os.getppid()))

    def keep(self, name: SegmentName, rows: pa.RecordBatch) -> None:
        """Write a segment."""
        with self._if_possible(), pa.OSFile(str(self._segment(name)), "wb") as file:
            write_ipc(file, rows)

    def leave(self, token: str) -> None:
        """Put the folder where the next one finds it; whatever else is left of the shard goes."""
        if not self.memory.shareable:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        path = self.path.with_name(f"{self.lineage}.{token}")
        with contextlib.suppress(OSError):
            for other in self.path.parent.glob(f"{self.lineage}.*"):
                if other != self.path:
                    _remove(other)
            self.path.rename(path)
            self.path = self.memory.folder = path

    @contextlib.contextmanager
    def _if_possible(self) -> Iterator[None]:
        """What cannot be written here is not left for others."""
        try:
            yield
        except OSError:
            self.memory.shareable = False

    def _segment(self, name: SegmentName) -> Path:
        return self.path / f"segment-{name[0]}-{name[1]}"


def clear() -> None:
    """Remove all that is left on the shelf: whoever goes on does so from the state store."""
    shutil.rmtree(_base(), ignore_errors=True)


def sweep() -> None:
    """Remove what processes have left that are gone."""
    with contextlib.suppress(OSError):
        for path in _base().iterdir():
            try:
                os.kill(_owner(path), 0)
            except (OSError, ValueError):
                _remove(path)


def _base() -> Path:
    """Memory rather than a disk, where there is a file system of that kind."""
    memory = Path("/dev/shm")
    root = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    user = os.getuid() if hasattr(os, "getuid") else 0
    return root / f"streamshed-{user}"


def _taken(path: Path) -> Path:
    """A name for a folder that only this process knows, and that says whose it is."""
    return path.with_name(f"{path.stem}.taken-{os.getppid()}-{uuid.uuid4().hex}")


def _owner(path: Path) -> int:
    """The process without which a folder is of no use: the parent of the worker that had it last.

    While a worker has it, the name tells; the worker may be of another executor than the one that
    left the folder, and outlive that.
    """
    process, dash, _ = path.name.partition(".taken-")[2].partition("-")
    return int(process if dash else (path / _OWNER).read_text())


def _remove(path: Path) -> None:
    """Remove a folder, unless somebody takes it first: what has been taken is not touched."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path.rename(_taken(path)), ignore_errors=True)
