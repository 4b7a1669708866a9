"""The state of a join as plain data: what has changed since the last time, and all of it.

A checkpoint has a *head* (clocks and counts, and the arrays that components keep) and *segments* of
the users' rows, written once. Of the arrays only what has changed is written (`ArrayLog`): among
them are flags that say which of these rows are stored, or, if something is kept of each row, a list
of them. Everything else, the key table above all, is made anew from the rows when a join is
restored.
"""

from __future__ import annotations

import io
import json
import secrets
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.errors import StateError

VERSION = 14
"""The layout of a checkpoint; a later release that changes it says how to read the older ones."""

TIME = "__time"
"""The column of a stored segment that holds the time where the user's columns do not tell it."""

ARRIVAL = "__arrival"
"""The column of a stored segment that holds the numbers of arrival, if rows are not listed."""

STORED_FLAGS = "stored"
"""The array with a bit for each row of a segment, which says whether it is stored, if rows are not
listed."""
ROWS, KEYS, MARKS = "rows", "keys", "marks"
"""The arrays that list the stored rows, if something is kept of rows or keys: where each is, the
numbers of their keys, and what the policy has marked each with."""

NAMES = "names."
NUMBERS = NAMES + "number"
"""What the arrays of streams' names are called, and that of their numbers."""
_TYPE, _BUFFERS = NAMES + "type", 3

MAY_CHANGE = {"budget", "policy", "seed", "estimate"}
"""What may be changed between two runs: it takes effect, and the rows that are stored stay."""

OPTIONAL = ("queue", "shares", "attributes", "bounds", "unmatched", "first")
"""What a state says of the join that made it only if that has any."""

SegmentName = tuple[int, int]
"""The position of the input, and the segment's number there."""

Fetch = Callable[[int, Path], None]
"""Writes the file of spilled rows that has a number to a path."""


@dataclass(frozen=True)
class Head:
    """All of a state but the rows."""

    about: dict[str, str]
    numbers: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]

    @property
    def names(self) -> dict[Any, int]:
        """The streams named by a column that are known, and their numbers."""
        return _names_in(self.arrays) if NUMBERS in self.arrays else {}

    def names_alone(self) -> Head:
        """The same without arrays, but for those of the names."""
        arrays = {n: array for n, array in self.arrays.items() if n.startswith(NAMES)}
        return replace(self, arrays=arrays)

    def changed(self, about: dict[str, str]) -> set[str]:
        """The parts of a join that are other now than when the state was made.

        Columns that the state holds and the join no longer needs are no such part.

        Raises:
            StateError: if the state cannot serve the join; it says what has changed.
        """
        parts = [*about, *(part for part in OPTIONAL if part in self.about and part not in about)]
        changed = {part for part in parts if self.about.get(part) != about.get(part)}
        if changed - MAY_CHANGE:
            said = "; ".join(
                f"{part} was {self.about[part]!r} and is {about.get(part, 'none')!r}"
                if part in self.about
                else f"it kept no {part}"
                for part in parts
                if part in changed - MAY_CHANGE
            )
            raise StateError(
                f"the state was made by another join: {said}. Restore it with the join that made"
                " it, or start anew"
            )
        return changed

    def to_bytes(self) -> bytes:
        """The head as bytes."""
        words = {"version": VERSION, "about": self.about, "numbers": self.numbers}
        parts = dict(self.arrays)
        parts["head"] = np.frombuffer(json.dumps(words).encode(), np.uint8)
        return _archive(parts, compressed=True)

    @classmethod
    def from_bytes(cls, data: bytes) -> Head:
        """The head that `to_bytes` wrote."""
        try:
            with pa.CompressedInputStream(pa.BufferReader(data), "lz4") as stream:
                parts = _arrays(stream.read())
            words = json.loads(parts.pop("head").tobytes())
            version = words["version"]
        except _UNREADABLE as error:
            raise StateError(
                f"these {len(data):,} bytes are not a complete state of a join ({error}); give all"
                " the bytes of the snapshot, or start anew"
            ) from error
        if version != VERSION:
            raise StateError(
                f"the state has layout {version}, and this release reads {VERSION};"
                " use the release that wrote it, or start anew"
            )
        return cls(words["about"], words["numbers"], parts)


@dataclass(frozen=True)
class Delta:
    """What a checkpoint has to write."""

    head: Head
    segments: dict[SegmentName, pa.RecordBatch]
    removed: list[SegmentName]


@dataclass
class Snapshot:
    """A whole state: every delta so far, one after the other."""

    head: Head
    segments: dict[SegmentName, pa.RecordBatch] = field(default_factory=dict)
    fetch: Fetch | None = None
    """Brings the files of spilled rows, if they are not where the head says."""

    def to_bytes(self) -> bytes:
        """The snapshot as bytes, for a file or another process."""
        parts = {"head": np.frombuffer(self.head.to_bytes(), np.uint8)}
        for (position, number), segment in self.segments.items():
            parts[f"segment.{position}.{number}"] = np.frombuffer(to_ipc(segment), np.uint8)
        return _archive(parts, compressed=False)

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """The snapshot that `to_bytes` wrote."""
        try:
            parts = _arrays(data)
            head = parts.pop("head").tobytes()
        except _UNREADABLE as error:
            raise StateError(
                f"these {len(data):,} bytes are not a complete snapshot ({error}); give all the"
                " bytes of the snapshot, or start anew"
            ) from error
        snapshot = cls(Head.from_bytes(head))
        for name, part in parts.items():
            _, position, number = name.split(".")
            snapshot.segments[int(position), int(number)] = from_ipc(part.tobytes())
        return snapshot


# -- names of streams -----------------------------------------------------------------------------


def names_as_arrays(names: dict[Any, int]) -> dict[str, npt.NDArray[Any]]:
    """Names of streams and their numbers as arrays, at whose ends new names stand.

    So what a batch writes of them does not depend on how many there are.
    """
    large = any(isinstance(name, int) and name >= 2**63 for name in names)
    values = pa.array([*names], pa.uint64() if large else None)
    parts = [pa.schema([("name", values.type)]).serialize(), *values.buffers()]
    parts += [None] * (1 + _BUFFERS - len(parts))
    titles = [_TYPE, *(f"{NAMES}{number}" for number in range(_BUFFERS))]
    return {NUMBERS: np.array([*names.values()], np.int32)} | {
        title: np.frombuffer(b"" if part is None else part, np.uint8)
        for title, part in zip(titles, parts, strict=True)
    }


def _names_in(arrays: dict[str, npt.NDArray[Any]]) -> dict[Any, int]:
    """The names that `names_as_arrays` made arrays of."""
    kind = pa.ipc.read_schema(pa.py_buffer(arrays[_TYPE])).field("name").type
    buffers = [pa.py_buffer(arrays[f"{NAMES}{number}"]) for number in range(kind.num_buffers)]
    if buffers[0].size == 0:  # none of them is null
        buffers[0] = None
    numbers = arrays[NUMBERS].tolist()
    names = pa.Array.from_buffers(kind, len(numbers), buffers).to_pylist()
    return dict(zip(names, numbers, strict=True))


# -- arrays of which a part changes ---------------------------------------------------------------

BLOCK = 64
"""Bytes of an array that are written together."""
AT_LEAST = 64
"""Blocks that are written again with each entry at least, so that there are never many entries."""
LOG = -2
"""What stands for the position of an input in the names of a log's entries."""
_FACTOR, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)

Blocks = npt.NDArray[np.uint64]
"""An array as words, a row for each block."""


class ArrayLog:
    """Arrays written as a log: each entry has the blocks that changed since the last one.

    Besides, an entry has half as many blocks that did not change, round and round; what is in an
    entry is in later ones when the round has come to where it was then, and the entry is removed.
    So what is written is in proportion to what changed, and the log is at most about three times
    as long as the arrays. Which blocks changed is known by a hash of each.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.hashes: dict[str, Blocks] = {}
        self.entries: dict[int, list[int]] = {}
        """For each entry the round, and how far it was: the array, and the block."""
        self.following = 0
        self.at = [0, 0, 0]
        self._seed = np.uint64(secrets.randbits(64))
        self._zero = self._hashed(np.zeros((1, BLOCK // 8), np.uint64))[0]

    def add(
        self, arrays: dict[str, npt.NDArray[Any]]
    ) -> tuple[dict[SegmentName, pa.RecordBatch], list[SegmentName]]:
        """Write what has changed; returns the new entry, if any, and the names of those removed."""
        removed = list(self.entries) if self.kinds != _kinds(arrays) else []
        if self.kinds != _kinds(arrays):  # the arrays of another join
            self.kinds, self.hashes, self.entries = _kinds(arrays), {}, {}
            self.at = [self.at[0] + 1, 0, 0]
        blocks, changed, known = [], [], []
        for name, array in arrays.items():
            before = self.hashes.get(name, np.empty(0, np.uint64))
            now = _blocks(array, len(before))
            hashes = self._hashed(now)
            differs = hashes != self._zero
            differs[: len(before)] = hashes[: len(before)] != before
            self.hashes[name] = hashes
            blocks.append(now)
            changed.append(differs)
            known.append(hashes != self._zero)
        self.sizes = {name: len(array) for name, array in arrays.items()}
        if not any(differs.any() for differs in changed):
            return {}, [(LOG, number) for number in removed]
        again = self._turn([len(now) for now in blocks], sum(int(d.sum()) for d in changed))
        ids, contents = [], []
        for index, (now, differs, some) in enumerate(zip(blocks, changed, known, strict=True)):
            for start, end in again.get(index, []):
                differs[start:end] |= some[start:end]
            chosen = np.flatnonzero(differs)
            ids.append(chosen + (index << 32))
            contents.append(now[chosen])
        number, self.following = self.following, self.following + 1
        self.entries[number] = list(self.at)
        lap, *place = self.at
        done = [n for n, at in self.entries.items() if [at[0] + 1, *at[1:]] <= [lap, *place]]
        for old in done:
            del self.entries[old]
        entry = pa.record_batch({"block": np.concatenate(ids), "bytes": _binary(contents)})
        return {(LOG, number): entry}, [(LOG, old) for old in removed + done]

    def _turn(self, sizes: list[int], blocks: int) -> dict[int, list[tuple[int, int]]]:
        """Go on in the round by so many blocks; returns which of each array are written again."""
        left = min(max(AT_LEAST, blocks // 2), sum(sizes))
        lap, index, block = self.at
        again: dict[int, list[tuple[int, int]]] = {}
        while left > 0:
            step = max(0, min(left, sizes[index] - block))
            again.setdefault(index, []).append((block, block + step))
            left, block = left - step, block + step
            if block >= sizes[index]:
                index, block = index + 1, 0
            if index == len(sizes):
                lap, index = lap + 1, 0
        self.at = [lap, index, block]
        return again

    def saved(self) -> dict[str, Any]:
        """What is needed to read the arrays, and to go on, as JSON can say it."""
        arrays = [[name, kind, self.sizes[name]] for name, kind in self.kinds.items()]
        entries = [[number, *at] for number, at in self.entries.items()]
        return {"arrays": arrays, "entries": entries, "next": self.following, "at": self.at}

    @classmethod
    def from_saved(cls, said: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> ArrayLog:
        """The log of which `saved` said so much, and the arrays as they are in it."""
        log = cls()
        log.kinds = {name: kind for name, kind, _ in said["arrays"]}
        log.sizes = {name: size for name, _, size in said["arrays"]}
        log.hashes = {name: log._hashed(_blocks(arrays[name])) for name in log.kinds}
        log.entries = {number: at for number, *at in said["entries"]}
        log.following, log.at = said["next"], said["at"]
        return log

    @staticmethod
    def read(
        said: dict[str, Any], entries: dict[int, pa.RecordBatch]
    ) -> dict[str, npt.NDArray[Any]]:
        """The arrays that the entries of a log hold, as `saved` says."""
        kinds = [(name, _dtype(kind), size) for name, kind, size in said["arrays"]]
        blocks = [_blocks(np.zeros(size, kind)) for _, kind, size in kinds]
        for _, entry in sorted(entries.items()):
            ids = entry.column("block").to_numpy()
            words = np.frombuffer(entry.column("bytes").buffers()[1], np.uint64)
            words = words.reshape(-1, BLOCK // 8)[: len(ids)]
            ends = np.searchsorted(ids >> 32, np.arange(len(blocks) + 1))
            for into, start, end in zip(blocks, ends[:-1], ends[1:], strict=True):
                chosen = ids[start:end] & 0xFFFFFFFF
                there = chosen < len(into)  # the array may have been longer
                into[chosen[there]] = words[start:end][there]
        return {
            name: into.reshape(-1).view(np.uint8)[: size * kind.itemsize].view(kind)
            for (name, kind, size), into in zip(kinds, blocks, strict=True)
        }

    def _hashed(self, blocks: Blocks) -> Blocks:
        """A hash of each block; the seed is of this process alone."""
        hashes = np.full(len(blocks), self._seed)
        with np.errstate(over="ignore"):
            for word in range(BLOCK // 8):
                hashes ^= blocks[:, word]
                hashes *= _FACTOR
                hashes ^= hashes >> _32
        return hashes


def _kinds(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, str]:
    """The types of arrays, as JSON."""
    describe = np.lib.format.dtype_to_descr
    return {name: json.dumps(describe(array.dtype)) for name, array in arrays.items()}


def _dtype(kind: str) -> np.dtype[Any]:
    said = json.loads(kind)
    if isinstance(said, list):
        said = [tuple(part) for part in said]
    found: np.dtype[Any] = np.lib.format.descr_to_dtype(said)
    return found


def _blocks(array: npt.NDArray[Any], at_least: int = 0) -> Blocks:
    """An array as blocks of words, the last of them filled up with zeros."""
    blocks = np.zeros((max(at_least, -(-array.nbytes // BLOCK)), BLOCK // 8), np.uint64)
    blocks.reshape(-1).view(np.uint8)[: array.nbytes] = array.view(np.uint8)
    return blocks


def _binary(contents: list[Blocks]) -> pa.Array:
    words = np.concatenate(contents)
    return pa.Array.from_buffers(pa.binary(BLOCK), len(words), [None, pa.py_buffer(words)])


_UNREADABLE = (ValueError, OSError, KeyError, EOFError, TypeError, zipfile.BadZipFile)
"""What comes of bytes that were never written here, or were cut off."""


def _archive(parts: dict[str, npt.NDArray[Any]], compressed: bool) -> bytes:
    """Arrays in an archive; a policy's tables are zeros for the most part."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **parts)
    if not compressed:
        return buffer.getvalue()
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(buffer.getbuffer())
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _arrays(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an archive that `numpy.savez` wrote."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {
            name.removesuffix(".npy"): np.lib.format.read_array(
                io.BytesIO(file.read(name)), allow_pickle=False
            )
            for name in file.namelist()
        }


def to_ipc(batch: pa.RecordBatch) -> bytes:
    """A record batch as Arrow IPC bytes."""
    return ipc_buffer(batch).to_pybytes()  # type: ignore[no-any-return]


def ipc_buffer(batch: pa.RecordBatch, compressed: bool = False) -> pa.Buffer:
    """The same, not copied once more."""
    sink = pa.BufferOutputStream()
    write_ipc(sink, batch, compressed)
    return sink.getvalue()


def write_ipc(sink: pa.NativeFile, batch: pa.RecordBatch, compressed: bool = False) -> None:
    """Write a record batch as Arrow IPC bytes."""
    options = pa.ipc.IpcWriteOptions(compression="lz4" if compressed else None)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def from_ipc(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """The record batch of Arrow IPC bytes, without copying them unless they are compressed."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
