"""Where a shard's state is: the state store, which is the truth, and a copy close at hand.

After each batch the state store has a new token. A running join, in this worker or in the shared
memory of this machine, is used only if it carries the very token that the state store has: what a
failed attempt leaves behind, nobody will ever ask for.

Each value that is read, written or removed is a message to Java and an answer, and takes a few
milliseconds whatever its size. So what a batch of few rows has to write is carried along in the
value of the head, until it is enough for a value of its own, a bundle. A batch then reads one value
and writes one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import (
    LOG,
    VERSION,
    ArrayLog,
    Delta,
    Head,
    SegmentName,
    Snapshot,
    from_ipc,
    ipc_buffer,
)
from streamshed.engine.operator import Operator
from streamshed.engine.restore import attach, can_attach
from streamshed.engine.saving import head_of
from streamshed.errors import StateError
from streamshed.kernels.core import NEVER
from streamshed.plan.plan import Plan
from streamshed.spark.changes import CHANGES, changes_of, in_effect
from streamshed.spark.deferred import KEY, STATE, VALUE
from streamshed.spark.sharding import Sharding
from streamshed.spark.shared_memory import CacheFolder
from streamshed.spark.spilling import (
    SPILLED,
    StoredFiles,
    files_of,
    on_this_worker,
)
from streamshed.spark.workers import AT_HAND

HEAD = (-1, 0, 0)
"""The key of the head's first part; what it is about is the token and where the rest is."""
_LOG = "log"
"""Where the head says how to read the log of the arrays."""
PART = 448 << 10
"""Bytes that are written at once: each part is a message to Java, whose memory takes arrays badly
that are larger than half a region of its garbage collector, 512 KB where it has 1 GB."""
CARRIED = 1 << 16
"""Bytes that the head's value carries along at most."""
_BUNDLE = -4
"""What stands for the position of an input in the names of bundles."""

Entry = tuple[tuple[int, int, int], tuple[str, bytes]]
"""What the state store has under a key: the head's first part says what it is about."""


@dataclass
class Placed:
    """Where the segments of a shard are in the state store."""

    parts: dict[SegmentName, int] = field(default_factory=dict)
    """In how many parts those are that have values of their own, the head, and the bundles."""
    carried: dict[SegmentName, bytes] = field(default_factory=dict)
    """Those that the head carries along."""
    bundles: dict[SegmentName, dict[SegmentName, tuple[int, int]]] = field(default_factory=dict)
    """For each bundle what is still needed of it: where each segment begins, and its size."""

    def said(self) -> dict[str, Any]:
        """The same as JSON can say it; the bytes of what is carried follow the head's."""
        return {
            "parts": [(*name, count) for name, count in self.parts.items()],
            "carried": [(*name, len(data)) for name, data in self.carried.items()],
            "bundles": [
                (number, [(*name, *place) for name, place in members.items()])
                for (_, number), members in self.bundles.items()
            ],
        }

    @classmethod
    def read(cls, about: dict[str, Any], head: bytes) -> Placed:
        """Where segments are, as the head's first part says.

        Args:
            about: what it is about.
            head: its bytes.
        """
        carried = about["carried"]
        at = len(head) - sum(size for *_, size in carried)
        placed = cls({(stream, number): count for stream, number, count in about["parts"]})
        for stream, number, size in carried:
            placed.carried[stream, number] = head[at : at + size]
            at += size
        for number, members in about["bundles"]:
            placed.bundles[_BUNDLE, number] = {
                (stream, segment): (start, size) for stream, segment, start, size in members
            }
        return placed

    def bundled(self, number: int) -> tuple[SegmentName, pa.Buffer]:
        """Make a bundle of all that is carried; returns its name and its bytes."""
        name, at = (_BUNDLE, number), 0
        self.bundles[name] = {}
        for member, data in self.carried.items():
            self.bundles[name][member] = at, len(data)
            at += len(data)
        data = b"".join(self.carried.values())
        self.carried = {}
        return name, pa.py_buffer(data)

    def remove(self, name: SegmentName) -> SegmentName | None:
        """Give up a segment; returns what has to be removed from the state store, if anything."""
        if self.carried.pop(name, None) is not None:
            return None
        if name in self.parts:
            return name
        bundle = next(bundle for bundle, members in self.bundles.items() if name in members)
        del self.bundles[bundle][name]
        if self.bundles[bundle]:
            return None
        del self.bundles[bundle]
        return bundle


@dataclass
class Live:
    """A running join, and where the next worker will find it."""

    join: Operator
    plan: Plan
    """What it was opened with."""
    folder: CacheFolder
    version: int = 0
    placed: Placed = field(default_factory=Placed)
    """Where segments are in the state store."""
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


class Stored(NamedTuple):
    """What the state store has of a shard."""

    snapshot: Snapshot
    changes: list[pa.RecordBatch]
    """Those of its relation that came with the batches so far."""
    sharding: dict[str, Any]
    """The shards of the join, as they were recorded."""


_live: dict[str, Live] = AT_HAND
"""The joins that this worker process has released and still has at hand, by token."""


def _of_this_layout(said: str) -> dict[str, Any]:
    """What the head's first part is about, if this release has written it."""
    about: dict[str, Any] = json.loads(said)
    if about.get("layout") != VERSION:
        raise StateError(
            f"the state has layout {about.get('layout', 'of an older release')}, and this release"
            f" reads {VERSION}; use the release that wrote it, or start anew"
        )
    return about


def stored(entries: Iterable[Entry]) -> Stored:
    """The state of a shard, of the entries that the state store has of it, without spilled rows."""
    found: dict[SegmentName, dict[int, bytes]] = {}
    about = ""
    for (stream, number, part), (said, some) in entries:
        if stream != SPILLED:
            found.setdefault((stream, number), {})[part] = bytes(some)
        about = said or about
    said_of = _of_this_layout(about)
    placed = Placed.read(said_of, found[HEAD[:2]][0])
    whole = {name: b"".join(of[part] for part in range(len(of))) for name, of in found.items()}
    head = whole.pop(HEAD[:2])
    carried = sum(map(len, placed.carried.values()))
    if carried:  # at the end of the only part
        head = head[:-carried]
    snapshot = Snapshot(Head.from_bytes(head))
    for bundle, members in placed.bundles.items():
        data = whole.pop(bundle)
        whole |= {name: data[start : start + size] for name, (start, size) in members.items()}
    log: dict[int, pa.RecordBatch] = {}
    changes: dict[int, pa.RecordBatch] = {}
    for name, data in (whole | placed.carried).items():
        rows = from_ipc(data)
        kind = {LOG: log, CHANGES: changes}.get(name[0])
        if kind is None:
            snapshot.segments[name] = rows
        else:
            kind[name[1]] = rows
    snapshot.head.arrays.update(ArrayLog.read(snapshot.head.numbers[_LOG], log))
    came = [changes[number] for number in sorted(changes)]
    return Stored(snapshot, came, said_of["sharding"])


class Store:
    """The state of one shard in Spark's state store.

    Args:
        handle: Spark's, of the stateful operator.
        sharding: the shards of the join.
    """

    def __init__(self, handle: Any, sharding: Sharding) -> None:
        self.sharding = sharding
        self.state = handle.getMapState(STATE, KEY, VALUE)

    def open(self, plan: Plan, begin: Callable[[Live], None] = lambda live: None) -> Live:
        """The join as the last batch left it, or a new one.

        Args:
            plan: the join.
            begin: what is done with a new one.
        """
        try:
            return self._opened(on_this_worker(plan), begin)
        except StateError as error:
            raise StateError(
                f"{error}. To change a window or add columns, move the rows to a new checkpoint:"
                " streamshed savepoint, then .stream(…, resume=…)"
            ) from error

    def _opened(self, plan: Plan, begin: Callable[[Live], None]) -> Live:
        saved = self.state.getValue(HEAD)
        if saved is None:
            folder = CacheFolder.create(uuid.uuid4().hex)
            live = Live(build_operator(plan, memory=folder.memory), plan, folder)
            begin(live)
            return live
        about = _of_this_layout(saved[0])
        self.sharding.check(about["sharding"])
        token, lineage, version = about["token"], about["lineage"], about["version"]
        placed = Placed.read(about, bytes(saved[1]))
        known = _live.pop(token, None)
        _live.clear()  # what is not asked for now has gone on elsewhere
        known = known if known is not None and known.plan == plan else None
        if known is not None and known.join.spill is not None:
            known.join.spill.aside.disk.fetch = self._spilled(known.placed)
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
                attach(join, left[0], cached.memory, left[1])
                log = ArrayLog.from_saved(left[1].head.numbers[_LOG], head_of(join).arrays)
                return Live(join, plan, cached, version, placed, log)
        folder = CacheFolder.create(lineage)
        snapshot = self._read(folder, plan, placed)
        log = ArrayLog.from_saved(snapshot.head.numbers[_LOG], snapshot.head.arrays)
        join = restore_operator(plan, snapshot, folder.memory)
        return Live(join, plan, folder, version, placed, log, *about["changes"])

    def _read(self, folder: CacheFolder, plan: Plan, placed: Placed) -> Snapshot:
        """All of the state from the state store; its segments are kept in the folder too."""
        entries = self.state.iterator() if plan.spill is None else self._entries(placed)
        snapshot, changes, _ = stored(entries)
        if (streamed := changes_of(plan)) is not None:
            streamed.waiting.extend(changes)
        for name, rows in snapshot.segments.items():
            folder.write_segment(name, rows)
        return snapshot if plan.spill is None else replace(snapshot, fetch=self._spilled(placed))

    def _entries(self, placed: Placed) -> Iterator[Entry]:
        """All that the state store has but for spilled rows, which wait there until needed."""
        for name, parts in placed.parts.items():
            if name[0] != SPILLED:
                for part in range(parts):
                    yield (*name, part), self.state.getValue((*name, part))

    def _spilled(self, placed: Placed) -> StoredFiles:
        """The files of spilled rows that the state store has now."""
        return StoredFiles(self.state, placed.parts)

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
            self._remove(state.placed, name)
        written = len(head)
        came = {(CHANGES, state.changes + i): rows for i, rows in enumerate(state.came)}
        state.changes, state.came = state.changes + len(came), []
        carried = state.placed.carried
        for name, rows in {**delta.segments, **entry, **came}.items():
            blob = ipc_buffer(rows, compressed=True)
            if blob.size < CARRIED // 4:
                carried[name] = blob.to_pybytes()
            else:
                written += self._write(state.placed, name, blob)
        written += self._save_files(state)
        along = sum(map(len, carried.values()))
        if along and (along > CARRIED or along + len(head) > PART):
            written += self._write(state.placed, *state.placed.bundled(state.version))
        before = state.placed.parts.get(HEAD[:2], 0)
        self._write(state.placed, HEAD[:2], pa.py_buffer(head))
        for part in range(state.placed.parts[HEAD[:2]], before):
            self.state.removeKey((*HEAD[:2], part))
        about = {
            "layout": VERSION,
            "token": token,
            "lineage": state.lineage,
            "version": state.version,
            "sharding": self.sharding.recorded(),
            "changes": (state.changes, state.latest),
            **state.placed.said(),
        }
        small = b"".join(state.placed.carried.values())
        written += len(small)
        self.state.updateValue(HEAD, (json.dumps(about), head[:PART] + small))
        state.folder.write(state.join.shape, told.names_alone().to_bytes(), delta)
        self._share(state, delta)
        state.folder.release(token)
        _live[token] = state
        return written

    def _share(self, state: Live, delta: Delta) -> None:
        """Use the rows in shared memory, and let go of the worker's own copy of them."""
        for name in delta.segments:
            if (rows := state.folder.mapped(name)) is not None:
                payload = state.join.payload[name[0]]
                payload.segments[name[1]] = rows.select(payload.schema.names)

    def _save_files(self, state: Live) -> int:
        """Write new files of spilled rows, and remove those that are gone; returns the bytes."""
        files = {(SPILLED, number): path for number, path in files_of(state.join).items()}
        known = {name for name in state.placed.parts if name[0] == SPILLED}
        for name in known - files.keys():
            self._remove(state.placed, name)
        written = 0
        for name in files.keys() - known:
            with pa.memory_map(str(files[name])) as file:
                written += self._write(state.placed, name, file.read_buffer())
        return written

    def _write(self, placed: Placed, name: SegmentName, blob: pa.Buffer) -> int:
        """Write bytes in parts; returns how many they are."""
        starts = range(0, blob.size, PART)
        placed.parts[name] = len(starts)
        for part, start in enumerate(starts):
            some = blob.slice(start, min(PART, blob.size - start))
            if (*name, part) != HEAD:  # which is written last, with what it is about
                self.state.updateValue((*name, part), ("", some.to_pybytes()))
        return blob.size  # type: ignore[no-any-return]

    def _remove(self, placed: Placed, name: SegmentName) -> None:
        """Remove a segment, as far as it has values of its own."""
        gone = placed.remove(name)
        if gone is not None:
            for part in range(placed.parts.pop(gone)):
                self.state.removeKey((*gone, part))
