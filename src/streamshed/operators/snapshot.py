"""A join between two batches, as plain data that can be kept and sent."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.errors import StateError
from streamshed.kernels.core import Shape

VERSION = 1
"""The layout of a snapshot; a later release that changes it says how to read the older ones."""


@dataclass(frozen=True)
class Snapshot:
    """The arrays, the users' rows, and how far the inputs have come."""

    about: dict[str, str]
    shape: Shape
    arrays: dict[str, npt.NDArray[Any]]
    segments: list[dict[int, pa.RecordBatch]]
    next_segments: list[int]
    rows_seen: list[int]
    newest: list[int]
    disorder: int
    names: list[Any]
    rejected: int

    def check(self, about: dict[str, str]) -> None:
        """Raise a `StateError` that says what has changed, if the join is another."""
        changed = [
            f"{part} was {self.about.get(part)!r} and is {now!r}"
            for part, now in about.items()
            if self.about.get(part) != now
        ]
        if changed:
            raise StateError(
                "the snapshot was made by another join: "
                + "; ".join(changed)
                + ". Restore it with the join that made it, or start anew"
            )

    def to_bytes(self) -> bytes:
        """The snapshot as bytes, for a file or another process."""
        head = {
            "version": VERSION,
            "about": self.about,
            "shape": asdict(self.shape),
            "segments": [list(segments) for segments in self.segments],
            "next_segments": self.next_segments,
            "rows_seen": self.rows_seen,
            "newest": self.newest,
            "disorder": self.disorder,
            "rejected": self.rejected,
        }
        parts = dict(self.arrays)
        parts["head"] = _bytes(json.dumps(head).encode())
        parts["names"] = _bytes(_ipc(pa.record_batch({"name": pa.array(self.names)})))
        for position, segments in enumerate(self.segments):
            for number, segment in segments.items():
                parts[f"segment.{position}.{number}"] = _bytes(_ipc(segment))
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **parts)  # type: ignore[arg-type]
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """The snapshot that `to_bytes` wrote."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                parts = {name: file[name] for name in file.files}
            head = json.loads(parts.pop("head").tobytes())
        except (ValueError, OSError, KeyError, EOFError) as error:
            raise StateError(f"these bytes are no snapshot ({error}); start anew") from error
        if head["version"] != VERSION:
            raise StateError(
                f"the snapshot has layout {head['version']}, and this release reads {VERSION};"
                " use the release that wrote it, or start anew"
            )
        names = _batch(parts.pop("names")).column("name").to_pylist()
        segments = [
            {number: _batch(parts.pop(f"segment.{position}.{number}")) for number in numbers}
            for position, numbers in enumerate(head["segments"])
        ]
        return cls(
            about=head["about"],
            shape=Shape(**head["shape"]),
            arrays=parts,
            segments=segments,
            next_segments=head["next_segments"],
            rows_seen=head["rows_seen"],
            newest=head["newest"],
            disorder=head["disorder"],
            names=names,
            rejected=head["rejected"],
        )


def _bytes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _batch(data: npt.NDArray[np.uint8]) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(data.tobytes())) as reader:
        return reader.read_next_batch()
