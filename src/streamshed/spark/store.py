"""Where a shard's state is: the state store, which is the truth, and a copy close at hand.

After each batch the state store has a new token. A running join, in this worker or on the shelf of
this machine, is used only if it carries the very token that the state store has: what a failed
attempt leaves behind, nobody will ever ask for.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Head, SegmentName, Snapshot, from_ipc, ipc_buffer
from streamshed.engine.operator import Operator
from streamshed.plan.plan import Plan
from streamshed.spark.shelf import Folder

KEY = "stream int, number long, part int"
VALUE = "about string, bytes binary"
"""One map holds everything: each state that Spark opens costs as much as a thousand rows."""

HEAD = (-1, 0, 0)
"""The key of the head; what it is about is its token and where the rest is."""
BITMAP = -1
"""The part of a segment's key under which is written which of its rows are still wanted."""
PART = 1 << 18
"""Bytes of a segment that are written at once: Java's memory takes large arrays badly."""


@dataclass
class Live:
    """A running join, and where the next worker will find it."""

    join: Operator
    folder: Folder
    version: int = 0
    parts: dict[SegmentName, int] = field(default_factory=dict)
    """In how many parts each segment is in the state store."""

    @property
    def lineage(self) -> str:
        """The name of the shard's state from its beginning."""
        return self.folder.lineage


_live: dict[str, Live] = {}
"""The joins that this worker process has left on the shelf and still has at hand, by token."""


class Store:
    """The state of one shard in Spark's state store."""

    def __init__(self, handle: Any) -> None:
        self.state = handle.getMapState("join", KEY, VALUE)

    def open(self, plan: Plan) -> Live:
        """The join as the last batch left it, or a new one."""
        saved = self.state.getValue(HEAD)
        if saved is None:
            folder = Folder.new(uuid.uuid4().hex)
            return Live(build_operator(plan, memory=folder.memory), folder)
        about = json.loads(saved[0])
        token, lineage, version = about["token"], about["lineage"], about["version"]
        parts = {(stream, number): count for stream, number, count in about["parts"]}
        known = _live.pop(token, None)
        _live.clear()  # what is not asked for now has gone on elsewhere
        folder_left = Folder.take(lineage, token)
        if folder_left is not None:
            if known is not None and known.join.plan == plan:
                known.folder.path = known.folder.memory.folder = folder_left.path
                return known
            left = folder_left.read()
            join = build_operator(plan)
            if left is not None and join.can_attach(left[1].head):
                join.attach(left[0], folder_left.memory.open, left[1])
                join.memory = folder_left.memory
                return Live(join, folder_left, version, parts)
        folder = Folder.new(lineage)
        snapshot = self._read(folder)
        join = restore_operator(plan, snapshot, folder.memory)
        return Live(join, folder, version, parts)

    def _read(self, folder: Folder) -> Snapshot:
        """All of the state from the state store; its segments are kept in the folder too."""
        found: dict[SegmentName, dict[int, bytes]] = {}
        for (stream, number, part), (_, some) in self.state.iterator():
            found.setdefault((stream, number), {})[part] = bytes(some)
        snapshot = Snapshot(Head.from_bytes(found.pop(HEAD[:2])[0]))
        for name, parts in found.items():
            bitmap = parts.pop(BITMAP, None)
            if bitmap is not None:
                snapshot.live[name] = np.frombuffer(bitmap, np.uint8)
            rows = from_ipc(b"".join(parts[part] for part in range(len(parts))))
            folder.keep(name, rows)
            snapshot.segments[name] = rows
        return snapshot

    def save(self, state: Live) -> int:
        """Write what the batch has changed; returns the bytes written."""
        delta = state.join.seal()
        token = uuid.uuid4().hex
        state.version += 1
        head = delta.head.to_bytes()
        for name in delta.removed:
            for part in range(BITMAP, state.parts.pop(name)):
                self.state.removeKey((*name, part))
        written = len(head)
        for name, rows in delta.segments.items():
            blob = ipc_buffer(rows, compressed=True)
            written += blob.size
            starts = range(0, blob.size, PART)
            state.parts[name] = len(starts)
            for part, start in enumerate(starts):
                some = blob.slice(start, min(PART, blob.size - start))
                self._write((*name, part), some.to_pybytes())
        for name, bitmap in delta.live.items():
            self._write((*name, BITMAP), bitmap.tobytes())
        about = {
            "token": token,
            "lineage": state.lineage,
            "version": state.version,
            "parts": [(*name, count) for name, count in state.parts.items()],
        }
        self._write(HEAD, head, json.dumps(about))
        state.folder.write(state.join.shape, head, delta)
        state.folder.leave(token)
        _live[token] = state
        return written

    def _write(self, key: tuple[int, int, int], some: bytes, about: str = "") -> None:
        self.state.updateValue(key, (about, some))
