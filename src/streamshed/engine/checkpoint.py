"""The state of a join as plain data: what has changed since the last time, and all of it.

A checkpoint has a *head* (clocks, counts, the policy's tables: small, written anew each time) and
*segments* of the users' rows, written once and struck off by bitmaps later. Everything else, the
key table above all, is made anew from the rows when a join is restored.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.errors import StateError

VERSION = 5
"""The layout of a checkpoint; a later release that changes it says how to read the older ones."""

ARRIVAL, MARK, TIME = "__arrival", "__mark", "__time"
"""Columns of a stored segment besides the user's: arrival number, the policy's mark, and the time
where the user's columns do not tell it."""

MAY_CHANGE = {"budget", "policy", "seed", "estimate"}
"""What may be changed between two runs: it takes effect, and the rows that are stored stay."""

OPTIONAL = ("queue", "shares", "attributes", "bounds", "unmatched", "first")
"""What a state says of the join that made it only if that has any."""

SegmentName = tuple[int, int]
"""The position of the input, and the segment's number there."""


@dataclass(frozen=True)
class Head:
    """All of a state but the rows."""

    about: dict[str, str]
    numbers: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    names: dict[Any, int]
    """The streams told apart by a column that are known, and their numbers."""

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
        large = any(isinstance(name, int) and name >= 2**63 for name in self.names)
        kind = pa.uint64() if large else None
        numbered = {"name": pa.array([*self.names], kind), "number": [*self.names.values()]}
        names = to_ipc(pa.record_batch(numbered))
        parts["names"] = np.frombuffer(names, np.uint8)
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
                f"these {len(data):,} bytes are no whole state of a join ({error}); give all the"
                " bytes that to_bytes wrote, or start anew"
            ) from error
        if version != VERSION:
            raise StateError(
                f"the state has layout {version}, and this release reads {VERSION};"
                " use the release that wrote it, or start anew"
            )
        named = from_ipc(parts.pop("names").tobytes())
        names = zip(*(column.to_pylist() for column in named.columns), strict=True)
        return cls(words["about"], words["numbers"], parts, dict(names))


@dataclass(frozen=True)
class Delta:
    """What a checkpoint has to write."""

    head: Head
    segments: dict[SegmentName, pa.RecordBatch]
    live: dict[SegmentName, npt.NDArray[np.uint8]]
    removed: list[SegmentName]


@dataclass
class Snapshot:
    """A whole state: every delta so far, one after the other."""

    head: Head
    segments: dict[SegmentName, pa.RecordBatch] = field(default_factory=dict)
    live: dict[SegmentName, npt.NDArray[np.uint8]] = field(default_factory=dict)

    def apply(self, delta: Delta) -> None:
        """Take in what has changed."""
        self.head = delta.head
        self.segments.update(delta.segments)
        self.live.update(delta.live)
        for name in delta.removed:
            self.segments.pop(name, None)
            self.live.pop(name, None)

    def to_bytes(self) -> bytes:
        """The snapshot as bytes, for a file or another process."""
        parts = {"head": np.frombuffer(self.head.to_bytes(), np.uint8)}
        for (position, number), segment in self.segments.items():
            parts[f"segment.{position}.{number}"] = np.frombuffer(to_ipc(segment), np.uint8)
        for (position, number), bitmap in self.live.items():
            parts[f"live.{position}.{number}"] = bitmap
        return _archive(parts, compressed=False)

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """The snapshot that `to_bytes` wrote."""
        try:
            parts = _arrays(data)
            head = parts.pop("head").tobytes()
        except _UNREADABLE as error:
            raise StateError(
                f"these {len(data):,} bytes are no whole snapshot ({error}); give all the bytes"
                " that to_bytes wrote, or start anew"
            ) from error
        snapshot = cls(Head.from_bytes(head))
        for name, part in parts.items():
            kind, position, number = name.split(".")
            where = int(position), int(number)
            if kind == "segment":
                snapshot.segments[where] = from_ipc(part.tobytes())
            else:
                snapshot.live[where] = part
        return snapshot


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
