"""A cache of running joins in shared memory, from which any worker of this machine goes on.

Spark gives a shard now to this worker, now to that one. A folder holds one shard's arrays and
segments. Its name ends in the token of the state that it holds; a worker that wants to go on from
that state renames the folder first, so that only one can, and nobody finds it while it changes.

A folder is only a copy: the state store has it all. Where there is no shared memory, or too little
of it, arrays are in the memory of the process, and the next worker reads the state store. Set
`STREAMSHED_SHARED_MEMORY=off` in the environment of the executors to do without it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.checkpoint import Delta, Head, SegmentName, Snapshot, from_ipc, write_ipc
from streamshed.kernels.core import Memory, Shape
from streamshed.spark.daemon import DAEMON

SWITCH = "STREAMSHED_SHARED_MEMORY"
"""The environment variable that turns the cache off."""

_OWNER, _ABOUT, _HEAD = "owner", "about.json", "head"
_DAEMONS = {"pyspark.daemon", DAEMON}
"""Modules of daemons that fork workers: Spark's own, and that of this package."""


class SharedMemory(Memory):
    """Arrays in files that other processes can map as well.

    Attributes:
        folder: of the files; None where arrays are in the memory of this process.
        files: for each array the name of its file, and its size.
        shareable: whether all arrays are in files.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.files: dict[str, tuple[str, int]] = {}
        self.shareable = folder is not None

    def array(self, name: str, size: int, dtype: np.dtype[Any], zero: bool) -> npt.NDArray[Any]:
        """A new array in a file of its own, or in process memory if there is no room for it."""
        old = self.files.pop(name, None)
        if not self.shareable or self.folder is None:
            return super().array(name, size, dtype, zero)
        path = self.folder / f"{name}.{uuid.uuid4().hex}"
        try:
            if 2 * size * dtype.itemsize > shutil.disk_usage(self.folder).free:
                raise OSError("no room")
            with path.open("w+b") as opened:
                # A file with holes is mapped even where there is no room to fill them: the first
                # write to such a page ends the process (SIGBUS).
                os.posix_fallocate(opened.fileno(), 0, max(1, size * dtype.itemsize))
                array = _mapped(opened.fileno(), size, dtype)
        except OSError:
            self.shareable = False
            path.unlink(missing_ok=True)
            return super().array(name, size, dtype, zero)
        self.files[name] = path.name, size
        if old is not None:
            (self.folder / old[0]).unlink(missing_ok=True)
        return array

    def open(self, name: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An array that another process has made."""
        if name not in self.files or self.folder is None:
            return super().open(name, dtype)
        file, size = self.files[name]
        with (self.folder / file).open("r+b") as opened:
            return _mapped(opened.fileno(), size, dtype)


def _mapped(file: int, size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    room = mmap.mmap(file, max(1, size * dtype.itemsize))
    return np.frombuffer(room, dtype, size)


class CacheFolder:
    """The folder of one shard, while this process works on it.

    Args:
        path: of the folder; None where there is no shared memory.
        lineage: the name of the shard's state from its beginning.
    """

    def __init__(self, path: Path | None, lineage: str) -> None:
        self.lineage = lineage
        self.memory = SharedMemory(path)

    @property
    def path(self) -> Path | None:
        """Where it is; None where there is no shared memory."""
        return self.memory.folder

    @classmethod
    def create(cls, lineage: str) -> CacheFolder:
        """An empty folder."""
        base = private_base()
        if base is None:
            return cls(None, lineage)
        sweep()
        path = _acquired(base / lineage)
        try:
            path.mkdir(mode=0o700)
        except OSError:
            return cls(None, lineage)
        return cls(path, lineage)

    @classmethod
    def acquire(cls, lineage: str, token: str) -> CacheFolder | None:
        """The folder that holds the state of a token, if it is here; nobody else has it then."""
        base = private_base()
        if base is None:
            return None
        released = base / f"{lineage}.{token}"
        path = _acquired(released)
        try:
            released.rename(path)
        except OSError:
            return None
        return cls(path, lineage)

    def read(self) -> tuple[Shape, Snapshot] | None:
        """What the folder holds, or None if it is not whole."""
        if self.path is None:
            return None
        try:
            about = json.loads((self.path / _ABOUT).read_text())
            snapshot = Snapshot(Head.from_bytes((self.path / _HEAD).read_bytes()))
            for position, sealed in enumerate(snapshot.head.numbers["sealed"]):
                for number, _ in sealed:
                    file = pa.memory_map(str(_segment(self.path, (position, number))))
                    snapshot.segments[position, number] = from_ipc(file.read_buffer())
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return None
        self.memory.files = {name: (file, size) for name, (file, size) in about["files"].items()}
        return Shape(**about["shape"]), snapshot

    def write(self, shape: Shape, head: bytes, delta: Delta) -> None:
        """Write what a batch has changed besides the arrays."""
        for name, rows in delta.segments.items():
            self.write_segment(name, rows)
        with self._or_unshared() as path:
            if path is None:
                return
            for name in delta.removed:
                _segment(path, name).unlink(missing_ok=True)
            (path / _HEAD).write_bytes(head)
            about = {"shape": asdict(shape), "files": self.memory.files}
            (path / _ABOUT).write_text(json.dumps(about))
            (path / _OWNER).write_text(str(owner()))

    def write_segment(self, name: SegmentName, rows: pa.RecordBatch) -> None:
        """Write a segment."""
        with self._or_unshared() as path:
            if path is not None:
                with pa.OSFile(str(_segment(path, name)), "wb") as file:
                    write_ipc(file, rows)

    def mapped(self, name: SegmentName) -> pa.RecordBatch | None:
        """A segment that was written, in shared memory; None if it is not there."""
        with self._or_unshared() as path:
            if path is not None:
                return from_ipc(pa.memory_map(str(_segment(path, name))).read_buffer())
        return None

    def release(self, token: str) -> None:
        """Let the next worker acquire the folder; all older folders of the shard are removed."""
        if self.path is None:
            return
        if not self.memory.shareable:
            shutil.rmtree(self.path, ignore_errors=True)
            self.memory.folder = None
            return
        path = self.path.with_name(f"{self.lineage}.{token}")
        with contextlib.suppress(OSError):
            for other in self.path.parent.glob(f"{self.lineage}.*"):
                if other != self.path:
                    _remove(other)
            self.path.rename(path)
            self.memory.folder = path

    @contextlib.contextmanager
    def _or_unshared(self) -> Iterator[Path | None]:
        """The path to write to, if any; a folder that cannot be written is not released."""
        try:
            yield self.path if self.memory.shareable else None
        except OSError:
            self.memory.shareable = False


def _segment(path: Path, name: SegmentName) -> Path:
    return path / f"segment-{name[0]}-{name[1]}"


def clear() -> None:
    """Remove the whole cache: workers go on from the state store."""
    shutil.rmtree(_base(), ignore_errors=True)


def bytes_of(owners: Container[int]) -> int:
    """The bytes of all folders of some executors, by the numbers of their processes."""
    total = 0
    with contextlib.suppress(OSError):
        for path in _base().iterdir():
            with contextlib.suppress(OSError, ValueError):  # it was removed meanwhile
                if _owner_of(path).number in owners:
                    total += sum(512 * file.stat().st_blocks for file in path.iterdir())
    return total


def sweep() -> None:
    """Remove the folders of executors that are gone."""
    with contextlib.suppress(OSError):
        for path in _base().iterdir():
            try:
                gone = not _owner_of(path).alive
            except (OSError, ValueError):
                gone = True
            if gone:
                _remove(path)


def _base() -> Path:
    """The folder of all folders: in memory, where there is a file system of that kind."""
    memory = Path("/dev/shm")
    root = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return root / f"streamshed-{os.getuid()}"


def private_base() -> Path | None:
    """The folder of all folders, made if need be; None if turned off, or not this user's alone."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false"):
        return None
    base = _base()
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        found = base.lstat()
        # Its name can be guessed, so another user may have made it, or a link of that name.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return None
        if stat.S_IMODE(found.st_mode) != 0o700:
            base.chmod(0o700)
    except OSError:
        return None
    return base


# -- owners ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A process: its number, which is used again, and when it started.

    Examples:
        >>> Process.parsed(str(Process(7, 1234)))
        Process(number=7, start=1234)
    """

    number: int
    start: int
    """In clock ticks since the machine started; 0 where that is not known."""

    @classmethod
    def running(cls, number: int) -> Process:
        """The process that has a number now."""
        return cls(number, _start_of(number))

    @classmethod
    def parsed(cls, text: str) -> Process:
        """The process that `str` wrote."""
        number, _, start = text.partition("-")
        return cls(int(number), int(start))

    def __str__(self) -> str:
        return f"{self.number}-{self.start}"

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        try:
            os.kill(self.number, 0)
        except PermissionError:
            pass
        except OSError:
            return False
        return not self.start or _start_of(self.number) == self.start


@cache
def _owner_at_first(worker: int) -> Process:
    """The process without which the folders of a worker are of no use: its executor.

    A worker is forked by Spark's daemon, which an executor has started, or is started by the
    executor itself. Any other parent has adopted it, and says nothing: then it owns its folders.
    """
    parent = os.getppid()
    if not _DAEMONS.isdisjoint(_command_of(parent)):
        executor = _parent_of(parent)
        return Process.running(executor if _is_java(executor) else parent)
    return Process.running(parent if _is_java(parent) else worker)


def owner() -> Process:
    """The owner of the folders of this process, as when it first asked: its parents may die."""
    return _owner_at_first(os.getpid())


def _owner_of(path: Path) -> Process:
    """The owner of a folder.

    While a worker has it, the name tells; the worker may be of another executor than the one that
    released the folder, and outlive that.
    """
    _, acquired, rest = path.name.partition(".acquired-")
    return Process.parsed(rest.rpartition("-")[0] if acquired else (path / _OWNER).read_text())


def _acquired(path: Path) -> Path:
    """A name for a folder that only this process knows, and that tells its owner."""
    return path.with_name(f"{path.stem}.acquired-{owner()}-{uuid.uuid4().hex}")


def _remove(path: Path) -> None:
    """Remove a folder, unless a worker acquires it first."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path.rename(_acquired(path)), ignore_errors=True)


def _stat_of(number: int) -> list[str]:
    """What Linux says of a process, from its state on; its name before that may hold blanks."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _start_of(number: int) -> int:
    found = _stat_of(number)
    return int(found[19]) if found and found[0] != "Z" else 0


def _parent_of(number: int) -> int:
    found = _stat_of(number)
    return int(found[1]) if found else 0


def _command_of(number: int) -> list[str]:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes().decode("latin-1").split("\0")
    except OSError:
        return [""]


def _is_java(number: int) -> bool:
    return number > 0 and Path(_command_of(number)[0]).name == "java"
