"""Files of rows on disk: written once, mapped into memory, and removed when they are of no use.

A file is an Arrow IPC stream of a single row, whose cells are lists: what the join knows of each
row that was spilled, and the users' rows of each input, all in the order of their partitions. (One
message costs less than one for each input.)
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.checkpoint import from_ipc, write_ipc
from streamshed.errors import SpillError, StateError

PREFIX = "streamshed-spill-"
"""What the names of the folders of runs begin with."""


@dataclass(frozen=True)
class DiskFile:
    """A file that was written, as it is mapped."""

    number: int
    nbytes: int
    known: npt.NDArray[Any]
    """What the join knows of each row."""
    rows: tuple[pa.RecordBatch, ...]
    """The users' rows of each input."""


@dataclass
class Disk:
    """The folder of a run. It goes with the join, unless a snapshot refers to it.

    Attributes:
        to: the folder in which it is made.
        record: what the join knows of a row.
        most: the most bytes that were in use at once.
        written: the bytes written so far.
    """

    to: str
    record: np.dtype[Any]
    most: int = 0
    written: int = 0
    files: dict[int, DiskFile] = field(default_factory=dict)
    next_file: int = 0
    referred: set[int] = field(default_factory=set)
    """Files that the last snapshot refers to: they are not removed before the next."""
    left: Path | None = None
    """The folder of the run whose snapshot this one goes on from."""

    def __post_init__(self) -> None:
        self.folder = _new_folder(self.to)
        self._removal = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @property
    def nbytes(self) -> int:
        """Bytes of all files in use."""
        return sum(file.nbytes for file in self.files.values())

    def write(self, known: npt.NDArray[Any], rows: Sequence[pa.RecordBatch]) -> DiskFile:
        """Write rows to a new file.

        Args:
            known: what the join knows of each, as records.
            rows: the users' rows of each input.
        """
        batch = _as_one(known, rows)
        number = self.next_file
        path = self._path(number)
        try:
            with pa.OSFile(str(path), "wb") as sink:
                write_ipc(sink, batch)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise SpillError(
                f".spill(): {len(known):,} rows could not be written to {self.to!r} ({error}); "
                "make room there, name another folder, or keep more rows in memory with .keep()"
            ) from error
        self.next_file += 1
        file = self.files[number] = self._mapped(number)
        self.written += file.nbytes
        self.most = max(self.most, self.nbytes)
        return file

    def drop(self, number: int) -> None:
        """Give up a file of which nothing is needed any more."""
        del self.files[number]
        if number not in self.referred:
            self._path(number).unlink(missing_ok=True)

    def stay(self) -> None:
        """Let the files in use stay until this is said again: a snapshot refers to them.

        Those to which the one before referred, be it of another run, are not needed any more.
        """
        for number in self.referred - self.files.keys():
            self._path(number).unlink(missing_ok=True)
        self.referred = set(self.files)
        self._removal.detach()
        self._remove_left()

    def saved(self) -> dict[str, Any]:
        """What a snapshot says of the files."""
        return {
            "folder": str(self.folder),
            "files": list(self.files),
            "next": self.next_file,
            "most": self.most,
            "written": self.written,
        }

    def go_on(self, said: dict[str, Any]) -> None:
        """Take over the files that a snapshot refers to; those of the run that made it stay."""
        self.left = before = Path(said["folder"])
        for number in said["files"]:
            old = before / self._path(number).name
            try:
                _link(old, self._path(number))
                self.files[number] = self._mapped(number)
            except (OSError, pa.ArrowInvalid, StopIteration) as error:
                raise StateError(
                    f"the state refers to rows that were spilled to {str(old)!r}, which cannot be "
                    f"read ({error}); bring the file back, or start anew"
                ) from error
        self.next_file, self.most, self.written = said["next"], said["most"], said["written"]

    def close(self) -> None:
        """Remove all files, those of the run before included."""
        self._removal.detach()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._remove_left()

    def _remove_left(self) -> None:
        if self.left is not None:
            shutil.rmtree(self.left, ignore_errors=True)
            self.left = None

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.arrows"

    def _mapped(self, number: int) -> DiskFile:
        with pa.memory_map(str(self._path(number))) as source:
            known, *inputs = from_ipc(source.read_buffer()).columns
            nbytes = source.size()
        records = np.frombuffer(known.values.buffers()[1], self.record, len(known.values))
        rows = [pa.RecordBatch.from_struct_array(part.values) for part in inputs]
        return DiskFile(number, nbytes, records, tuple(rows))


def _new_folder(to: str) -> Path:
    if os.path.exists(to) and not os.path.isdir(to):
        raise SpillError(f".spill(): {to!r} is a file; name a folder")
    try:
        os.makedirs(to, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=to))
    except OSError as error:
        raise SpillError(
            f".spill(): the folder {to!r} cannot be written to ({error}); name one that can"
        ) from error


def _as_one(known: npt.NDArray[Any], rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """What is known of rows, and the rows of each input, as a batch of a single row."""
    kind, records = pa.binary(known.dtype.itemsize), pa.py_buffer(known)
    columns = [pa.Array.from_buffers(kind, len(known), [None, records])]
    columns += [batch.to_struct_array() for batch in rows]
    lists = [pa.LargeListArray.from_arrays([0, len(column)], column) for column in columns]
    return pa.RecordBatch.from_arrays(lists, [str(number) for number in range(len(lists))])


def _link(old: Path, new: Path) -> None:
    try:
        os.link(old, new)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(old, new)
