"""Where a shard's state is: the state store, which is the truth, and a copy close at hand.

After each batch the state store has a new token. A running join, in this worker or on the shelf of
this machine, is used only if it carries the very token that the state store has: what a failed
attempt leaves behind, nobody will ever ask for.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamshed.operators.checkpoint import Head, Snapshot, from_ipc, to_ipc
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.plan import Plan
from streamshed.spark.shelf import Folder

HEAD = "token string, lineage string, version long, head binary"
SEGMENT_KEY = "stream int, number long"
SEGMENT = "rows binary"


@dataclass
class Live:
    """A running join, and where the next worker will find it."""

    join: KeyedJoin
    folder: Folder
    version: int = 0

    @property
    def lineage(self) -> str:
        """The name of the shard's state from its beginning."""
        return self.folder.lineage


_live: dict[str, Live] = {}
"""The joins that this worker process has left on the shelf and still has at hand, by token."""


class Store:
    """The state of one shard in Spark's state store."""

    def __init__(self, handle: Any) -> None:
        self.head = handle.getValueState("head", HEAD)
        self.segments = handle.getMapState("segments", SEGMENT_KEY, SEGMENT)
        self.live = handle.getMapState("live", SEGMENT_KEY, SEGMENT)

    def open(self, plan: Plan, keep: list[list[str]]) -> Live:
        """The join as the last batch left it, or a new one."""
        saved = self.head.get()
        if saved is None:
            folder = Folder.new(uuid.uuid4().hex)
            return Live(KeyedJoin(plan, keep, memory=folder.memory), folder)
        token, lineage, version, head = saved
        known = _live.pop(token, None)
        _live.clear()  # what is not asked for now has gone on elsewhere
        folder_left = Folder.take(lineage, token)
        if folder_left is not None:
            if known is not None and known.join.plan == plan:
                known.folder.path = known.folder.memory.folder = folder_left.path
                return known
            left = folder_left.read()
            join = KeyedJoin(plan, keep)
            if left is not None and join.left_by(left[1].head):
                join.attach(left[0], folder_left.memory.open, left[1])
                join.memory = folder_left.memory
                return Live(join, folder_left, version)
        folder = Folder.new(lineage)
        snapshot = self._read(bytes(head), folder)
        return Live(KeyedJoin.restore(plan, snapshot, keep, folder.memory), folder, version)

    def _read(self, head: bytes, folder: Folder) -> Snapshot:
        """All of the state from the state store; its segments are kept in the folder too."""
        snapshot = Snapshot(Head.from_bytes(head))
        for (stream, number), (rows,) in self.segments.iterator():
            blob = bytes(rows)
            folder.keep((stream, number), blob)
            snapshot.segments[stream, number] = from_ipc(blob)
        for (stream, number), (bitmap,) in self.live.iterator():
            snapshot.live[stream, number] = np.frombuffer(bytes(bitmap), np.uint8)
        return snapshot

    def save(self, state: Live) -> int:
        """Write what the batch has changed; returns the bytes written."""
        delta = state.join.seal()
        token = uuid.uuid4().hex
        state.version += 1
        head = delta.head.to_bytes()
        blobs = {name: to_ipc(rows) for name, rows in delta.segments.items()}
        for name in delta.removed:
            self.segments.removeKey(name)
            if self.live.containsKey(name):
                self.live.removeKey(name)
        for name, blob in blobs.items():
            self.segments.updateValue(name, (blob,))
        for name, bitmap in delta.live.items():
            self.live.updateValue(name, (bitmap.tobytes(),))
        self.head.update((token, state.lineage, state.version, head))
        state.folder.write(state.join.shape, head, blobs, delta.removed)
        state.folder.leave(token)
        _live[token] = state
        return len(head) + sum(map(len, blobs.values()))
