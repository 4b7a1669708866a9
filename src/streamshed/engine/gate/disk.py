"""Files of rows on disk: written once, mapped into memory, and removed when they are of no use.

A file is an Arrow IPC stream of a single row, whose cells are lists: what the join knows of each
row that was spilled, and the users' rows of each input, all in the order of their partitions. (One
message costs less than one for each input.)
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.checkpoint import Fetch, from_ipc, write_ipc
from streamshed.errors import SpillError, StateError

PREFIX, OWNER, SUFFIX = "streamshed-spill-", "owner", ".arrows"
"""What the names of the folders of runs begin with; the file in each that holds its token; and what
the names of the files of rows end with."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, and the random token in its owner file that proves whose it is."""

    path: Path
    token: str

    @classmethod
    def create(cls, to: str) -> RunFolder:
        """Make a new folder below another."""
        if os.path.exists(to) and not os.path.isdir(to):
            raise SpillError(f".spill(): {to!r} is a file; name a folder")
        try:
            os.makedirs(to, exist_ok=True)
            made = cls(Path(tempfile.mkdtemp(prefix=PREFIX, dir=to)), secrets.token_hex(16))
            (made.path / OWNER).write_text(made.token)
        except OSError as error:
            raise SpillError(
                f".spill(): the folder {to!r} cannot be written to ({error}); name one that can"
            ) from error
        return made

    @property
    def is_genuine(self) -> bool:
        """Whether a run made the folder that is there now, and named it so in its state."""
        try:
            return (self.path / OWNER).read_text() == self.token
        except (OSError, ValueError):
            return False

    def file(self, number: int) -> Path:
        """Where the file of a number is."""
        return self.path / f"{number:08d}{SUFFIX}"

    def remove(self, to: str) -> None:
        """Remove the files of the run and the folder, if it is genuine and directly below `to`.

        A state may come from anywhere: what it names is not removed on its word alone.
        """
        below = self.path.parent.resolve() == Path(to).resolve()
        named = self.path.name.startswith(PREFIX) and not self.path.is_symlink()
        if not (below and named and self.is_genuine):
            return
        with suppress(OSError):
            for file in self.path.glob(f"*{SUFFIX}"):
                file.unlink()
            (self.path / OWNER).unlink()
            self.path.rmdir()  # unless somebody else has put something there

    def saved(self) -> list[str]:
        """What a snapshot says of the folder."""
        return [str(self.path), self.token]

    @classmethod
    def from_saved(cls, said: Sequence[str]) -> RunFolder:
        """The folder of which a snapshot said so much."""
        path, token = said
        return cls(Path(path), token)


@dataclass(eq=False)
class DiskFile:
    """A file that was written, as it is mapped; one that is fetched is so when it is first read."""

    disk: Disk
    number: int
    nbytes: int

    @property
    def known(self) -> npt.NDArray[Any]:
        """What the join knows of each row."""
        return self.mapped[0]

    @property
    def rows(self) -> list[pa.RecordBatch]:
        """The users' rows of each input."""
        return self.mapped[1]

    @cached_property
    def mapped(self) -> tuple[npt.NDArray[Any], list[pa.RecordBatch]]:
        """Both of them."""
        path = self.disk.folder.file(self.number)
        if self.disk.fetch is not None and not path.exists():
            self.disk.fetch(self.number, path)
        with pa.memory_map(str(path)) as source:
            known, *inputs = from_ipc(source.read_buffer()).columns
        records = np.frombuffer(known.values.buffers()[1], self.disk.record, len(known.values))
        return records, [pa.RecordBatch.from_struct_array(part.values) for part in inputs]


@dataclass
class Disk:
    """The folder of a run. It goes with the join, unless a snapshot refers to it.

    Attributes:
        to: the folder in which it is made.
        record: what the join knows of a row.
        most: the most bytes that were in use at once.
        written: the bytes written so far.
        fetch: brings a file that is elsewhere; None where all are here.
    """

    to: str
    record: np.dtype[Any]
    most: int = 0
    written: int = 0
    fetch: Fetch | None = None
    files: dict[int, DiskFile] = field(default_factory=dict)
    next_file: int = 0
    referred: set[int] = field(default_factory=set)
    """Files that the last snapshot refers to."""
    referred_before: set[int] = field(default_factory=set)
    """Files that the one before refers to: it is needed until the last one is known to be safe."""
    before: RunFolder | None = None
    """The folder of the run whose snapshot this one goes on from."""
    outdated: list[RunFolder] = field(default_factory=list)
    """Folders of earlier runs, of which the next snapshot needs nothing."""

    def __post_init__(self) -> None:
        self.folder = RunFolder.create(self.to)
        self._removal = weakref.finalize(self, self.folder.remove, self.to)

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
        path = self.folder.file(number)
        try:
            with pa.OSFile(str(path), "wb") as sink:
                write_ipc(sink, batch)
                nbytes = sink.tell()
        except OSError as error:
            path.unlink(missing_ok=True)
            raise SpillError(
                f".spill(): {len(known):,} rows could not be written to {self.to!r} ({error}); "
                "make room there, name another folder, or keep more rows in memory with .keep()"
            ) from error
        self.next_file += 1
        file = self.files[number] = DiskFile(self, number, nbytes)
        file.mapped  # noqa: B018 - rows outlive the folder
        self.written += file.nbytes
        self.most = max(self.most, self.nbytes)
        return file

    def drop(self, number: int) -> None:
        """Give up a file of which nothing is needed any more."""
        del self.files[number]
        if number not in self.referred | self.referred_before:
            self.folder.file(number).unlink(missing_ok=True)

    def keep_files(self) -> None:
        """Let the files in use stay: a snapshot refers to them, which is not written yet.

        So the files of the last one stay as well, until this is said the next time. Those of the
        one before the last, be it of another run, go.
        """
        for number in self.referred_before - self.referred - self.files.keys():
            self.folder.file(number).unlink(missing_ok=True)
        self.referred_before, self.referred = self.referred, set(self.files)
        self._removal.detach()
        for folder in self.outdated:
            folder.remove(self.to)
        self.outdated = [] if self.before is None else [self.before]
        self.before = None

    def saved(self) -> dict[str, Any]:
        """What a snapshot says of the files."""
        earlier = [*self.outdated, *([] if self.before is None else [self.before])]
        return {
            "folder": self.folder.saved(),
            "earlier": [folder.saved() for folder in earlier],
            "files": [[file.number, file.nbytes] for file in self.files.values()],
            "next": self.next_file,
            "most": self.most,
            "written": self.written,
        }

    def go_on(self, said: dict[str, Any], fetch: Fetch | None = None) -> None:
        """Take over the files that a snapshot refers to; those of the run that made it stay.

        Args:
            said: what the snapshot says of them.
            fetch: brings a file when it is read, where they are not in a folder.
        """
        self.fetch = fetch
        self.files = {number: DiskFile(self, number, nbytes) for number, nbytes in said["files"]}
        self.next_file, self.most, self.written = said["next"], said["most"], said["written"]
        if fetch is None:
            self._link_files(said)

    def _link_files(self, said: dict[str, Any]) -> None:
        """Let the files of the folder that a snapshot names be in this one too."""
        self.before = RunFolder.from_saved(said["folder"])
        self.outdated = [RunFolder.from_saved(folder) for folder in said["earlier"]]
        if self.files and not self.before.is_genuine:
            raise StateError(
                f"the state refers to rows that were spilled to {str(self.before.path)!r}, where"
                f" the file {OWNER!r} of the run is missing or another's; bring the folder back,"
                " or start anew"
            )
        for number, file in self.files.items():
            old = self.before.file(number)
            try:
                _link(old, self.folder.file(number))
                file.mapped  # noqa: B018 - a file that cannot be read is told of now
            except (OSError, pa.ArrowInvalid, StopIteration) as error:
                raise StateError(
                    f"the state refers to rows that were spilled to {str(old)!r}, which cannot be "
                    f"read ({error}); bring the file back, or start anew"
                ) from error

    def leave(self) -> None:
        """Remove the folder of this run at once, unless a snapshot refers to it."""
        self._removal()

    def close(self) -> None:
        """Remove all files, those of the runs before included."""
        self._removal.detach()
        for folder in [self.folder, *self.outdated, *([self.before] if self.before else [])]:
            folder.remove(self.to)
        self.before, self.outdated = None, []


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
