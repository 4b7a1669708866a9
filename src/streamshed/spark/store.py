"""Where a shard's state is: the state store, which is the truth, and a copy close at hand.

After each batch the state store has a new token. A running join, in this worker or in the shared
memory of this machine, is used only if it carries the very token that the state store has: what a
failed attempt leaves behind, nobody will ever ask for.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import (
    LOG,
    ArrayLog,
    Head,
    SegmentName,
    Snapshot,
    from_ipc,
    ipc_buffer,
)
from streamshed.engine.operator import Operator
from streamshed.engine.restore import attach, can_attach
from streamshed.engine.saving import head_of
from streamshed.kernels.core import NEVER, Memory
from streamshed.plan.plan import Plan
from streamshed.spark.changes import CHANGES, changes_of, in_effect
from streamshed.spark.deferred import KEY, STATE, VALUE
from streamshed.spark.sharding import Sharding
from streamshed.spark.shared_memory import CacheFolder

HEAD = (-1, 0, 0)
"""The key of the head's first part; what it is about is the token and where the rest is."""
_LOG = "log"
"""Where the head says how to read the log of the arrays."""
PART = 1 << 18
"""Bytes that are written at once: Java's memory takes large arrays badly."""


@dataclass
class Live:
    """A running join, and where the next worker will find it."""

    join: Operator
    folder: CacheFolder
    version: int = 0
    parts: dict[SegmentName, int] = field(default_factory=dict)
    """In how many parts each segment is in the state store, and the head."""
    log: ArrayLog = field(default_factory=ArrayLog)
    """The arrays as they are in the state store."""
    changes: int = 0
    """How many times changes of the relation have come with a batch."""
    latest: int = NEVER
    """The time of the last of them."""
    came: list[pa.RecordBatch] = field(default_factory=list)
    """Those that came with this batch."""

    def change(self, changes: list[pa.RecordBatch]) -> None:
        """Give the join changes of its relation, and keep them for those who go on from here."""
        streamed = changes_of(self.join.plan)
        assert streamed is not None
        rows, self.latest = in_effect(self.join, changes, self.latest)
        streamed.waiting.append(rows)
        self.came.append(rows)

    @property
    def lineage(self) -> str:
        """The name of the shard's state from its beginning."""
        return self.folder.lineage


class Begin(Protocol):
    """Builds the join of a plan, its arrays in some memory."""

    def __call__(self, plan: Plan, *, memory: Memory) -> Operator:
        """Build it."""


_live: dict[str, Live] = {}
"""The joins that this worker process has released and still has at hand, by token."""


def snapshot_of(entries: Iterable[tuple[tuple[int, int, int], bytes]]) -> Snapshot:
    """The state of a shard, of the entries that the state store has of it."""
    return _state_of(entries)[0]


def _state_of(
    entries: Iterable[tuple[tuple[int, int, int], bytes]],
) -> tuple[Snapshot, list[pa.RecordBatch]]:
    """The state of a shard, and the changes of its relation that came with the batches so far."""
    found: dict[SegmentName, dict[int, bytes]] = {}
    for (stream, number, part), some in entries:
        found.setdefault((stream, number), {})[part] = bytes(some)
    head = found.pop(HEAD[:2])
    snapshot = Snapshot(Head.from_bytes(b"".join(head[part] for part in range(len(head)))))
    log: dict[int, pa.RecordBatch] = {}
    changes: dict[int, pa.RecordBatch] = {}
    for name, parts in found.items():
        rows = from_ipc(b"".join(parts[part] for part in range(len(parts))))
        kind = {LOG: log, CHANGES: changes}.get(name[0])
        if kind is None:
            snapshot.segments[name] = rows
        else:
            kind[name[1]] = rows
    snapshot.head.arrays.update(ArrayLog.read(snapshot.head.numbers[_LOG], log))
    return snapshot, [changes[number] for number in sorted(changes)]


class Store:
    """The state of one shard in Spark's state store.

    Args:
        handle: Spark's, of the stateful operator.
        sharding: the shards of the join.
    """

    def __init__(self, handle: Any, sharding: Sharding) -> None:
        self.sharding = sharding
        self.state = handle.getMapState(STATE, KEY, VALUE)

    def open(self, plan: Plan, begin: Begin = build_operator) -> Live:
        """The join as the last batch left it, or a new one.

        Args:
            plan: the join.
            begin: builds a new one, if need be.
        """
        saved = self.state.getValue(HEAD)
        if saved is None:
            folder = CacheFolder.create(uuid.uuid4().hex)
            return Live(begin(plan, memory=folder.memory), folder)
        about = json.loads(saved[0])
        if "sharding" in about:
            self.sharding.check(about["sharding"])
        token, lineage, version = about["token"], about["lineage"], about["version"]
        changed = tuple(about.get("changes", (0, NEVER)))
        parts = {(stream, number): count for stream, number, count in about["parts"]}
        known = _live.pop(token, None)
        _live.clear()  # what is not asked for now has gone on elsewhere
        known = known if known is not None and known.join.plan == plan else None
        if known is not None and known.folder.path is None:
            return known  # in the memory of this process, where no other can change it
        cached = CacheFolder.acquire(lineage, token)
        if cached is not None:
            if known is not None:
                known.folder.memory.folder = cached.path
                return known
            left = cached.read()
            join = build_operator(plan)
            if left is not None and can_attach(join, left[1].head):
                attach(join, left[0], cached.memory.open, left[1])
                join.memory = cached.memory
                log = ArrayLog.from_saved(left[1].head.numbers[_LOG], head_of(join).arrays)
                return Live(join, cached, version, parts, log)
        folder = CacheFolder.create(lineage)
        snapshot = self._read(folder, plan)
        log = ArrayLog.from_saved(snapshot.head.numbers[_LOG], snapshot.head.arrays)
        join = restore_operator(plan, snapshot, folder.memory)
        return Live(join, folder, version, parts, log, *changed)

    def _read(self, folder: CacheFolder, plan: Plan) -> Snapshot:
        """All of the state from the state store; its segments are kept in the folder too."""
        snapshot, changes = _state_of((key, some) for key, (_, some) in self.state.iterator())
        if (streamed := changes_of(plan)) is not None:
            streamed.waiting.extend(changes)
        for name, rows in snapshot.segments.items():
            folder.write_segment(name, rows)
        return snapshot

    def save(self, state: Live) -> int:
        """Write what the batch has changed; returns the bytes written."""
        delta = state.join.seal()
        token = uuid.uuid4().hex
        state.version += 1
        entry, outdated = state.log.add(delta.head.arrays)
        numbers = delta.head.numbers | {_LOG: state.log.saved()}
        told = replace(delta.head, numbers=numbers)
        head = replace(told, arrays={}).to_bytes()
        for name in (*delta.removed, *outdated):
            for part in range(state.parts.pop(name)):
                self.state.removeKey((*name, part))
        written = len(head)
        came = {(CHANGES, state.changes + i): rows for i, rows in enumerate(state.came)}
        state.changes, state.came = state.changes + len(came), []
        for name, rows in {**delta.segments, **entry, **came}.items():
            blob = ipc_buffer(rows, compressed=True)
            written += blob.size
            self._write(state, name, blob)
        before = state.parts.get(HEAD[:2], 0)
        self._write(state, HEAD[:2], pa.py_buffer(head))
        for part in range(state.parts[HEAD[:2]], before):
            self.state.removeKey((*HEAD[:2], part))
        about = {
            "token": token,
            "lineage": state.lineage,
            "version": state.version,
            "sharding": self.sharding.recorded(),
            "parts": [(*name, count) for name, count in state.parts.items()],
            "changes": (state.changes, state.latest),
        }
        self.state.updateValue(HEAD, (json.dumps(about), head[:PART]))
        state.folder.write(state.join.shape, told.names_alone().to_bytes(), delta)
        state.folder.release(token)
        _live[token] = state
        return written

    def _write(self, state: Live, name: SegmentName, blob: pa.Buffer) -> None:
        """Write bytes in parts."""
        starts = range(0, blob.size, PART)
        state.parts[name] = len(starts)
        for part, start in enumerate(starts):
            some = blob.slice(start, min(PART, blob.size - start))
            if (*name, part) != HEAD:  # which is written last, with what it is about
                self.state.updateValue((*name, part), ("", some.to_pybytes()))
