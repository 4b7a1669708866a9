"""Where a shard's state is: the state store, which is the truth, and copies close at hand.

After each batch the state store has a new token. A copy of the state, in this worker's memory or in
files of this machine, is used only if it carries the very token that the state store has: a failed
attempt leaves a copy that nobody will ever ask for.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamshed.operators.checkpoint import (
    Delta,
    Head,
    SegmentName,
    Snapshot,
    from_ipc,
    to_ipc,
)
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.plan import Plan

HEAD = "token string, lineage string, version long, head binary"
SEGMENT_KEY = "stream int, number long"
SEGMENT = "rows binary"

_FORGOTTEN = 3600.0
"""Seconds after which files that nobody has touched belong to a query that is gone."""


@dataclass
class Live:
    """A running join and the token under which it may be used."""

    join: KeyedJoin
    token: str
    lineage: str
    version: int


_live: dict[str, Live] = {}
"""The joins that this worker process holds, by lineage (one for each shard of a query)."""


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
            return Live(KeyedJoin(plan, keep), "", uuid.uuid4().hex, 0)
        token, lineage, version, head = saved
        held = _live.pop(lineage, None)
        if held is not None and held.token == token:
            return held
        files = Files(lineage)
        snapshot = files.read(token)
        if snapshot is None:
            snapshot = self._read(bytes(head))
            files.write_all(token, snapshot)
        return Live(KeyedJoin.restore(plan, snapshot, keep), token, lineage, version)

    def _read(self, head: bytes) -> Snapshot:
        snapshot = Snapshot(Head.from_bytes(head))
        for (stream, number), (rows,) in self.segments.iterator():
            snapshot.segments[stream, number] = from_ipc(bytes(rows))
        for (stream, number), (bitmap,) in self.live.iterator():
            snapshot.live[stream, number] = np.frombuffer(bytes(bitmap), np.uint8)
        return snapshot

    def save(self, state: Live) -> int:
        """Write what the batch has changed; returns the bytes written."""
        delta = state.join.seal()
        before, state.token = state.token, uuid.uuid4().hex
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
        self.head.update((state.token, state.lineage, state.version, head))
        Files(state.lineage).write(before, state.token, head, blobs, delta)
        _live[state.lineage] = state
        return len(head) + sum(map(len, blobs.values()))


class Files:
    """A copy of a shard's state in files of this machine, for whichever worker comes next."""

    def __init__(self, lineage: str) -> None:
        user = os.getuid() if hasattr(os, "getuid") else 0
        self.base = Path(tempfile.gettempdir()) / f"streamshed-{user}"
        self.folder = self.base / lineage

    def read(self, token: str) -> Snapshot | None:
        """The state that carries the token, if it is here and whole."""
        try:
            if (self.folder / "token").read_text() != token:
                return None
            names = json.loads((self.folder / "names").read_text())
            snapshot = Snapshot(Head.from_bytes((self.folder / "head").read_bytes()))
            for stream, number in names["segments"]:
                data = pa.memory_map(str(self._path("segment", (stream, number)))).read_buffer()
                snapshot.segments[stream, number] = from_ipc(data)
            for stream, number in names["live"]:
                bitmap = self._path("live", (stream, number)).read_bytes()
                snapshot.live[stream, number] = np.frombuffer(bitmap, np.uint8)
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return None
        return snapshot

    def write_all(self, token: str, snapshot: Snapshot) -> None:
        """Make the copy anew."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._forget_others()
        delta = Delta(snapshot.head, snapshot.segments, snapshot.live, [])
        blobs = {name: to_ipc(rows) for name, rows in snapshot.segments.items()}
        self.write("", token, snapshot.head.to_bytes(), blobs, delta)

    def write(
        self,
        before: str,
        token: str,
        head: bytes,
        blobs: dict[SegmentName, bytes],
        delta: Delta,
    ) -> None:
        """Bring the copy from one token to the next; a copy that cannot be written is no copy."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            names: dict[str, list[list[int]]] = {"segments": [], "live": []}
            mark = self.folder / "token"
            if before:
                if not mark.exists() or mark.read_text() != before:
                    return
                names = json.loads((self.folder / "names").read_text())
            # Without a token nobody reads: it is taken away first and put back last.
            mark.unlink(missing_ok=True)
            removed = [list(name) for name in delta.removed]
            for name in delta.removed:
                self._path("segment", name).unlink(missing_ok=True)
                self._path("live", name).unlink(missing_ok=True)
            for name, blob in blobs.items():
                self._path("segment", name).write_bytes(blob)
            for name, bitmap in delta.live.items():
                self._path("live", name).write_bytes(bitmap.tobytes())
            for kind, new in (("segments", blobs), ("live", delta.live)):
                kept = [name for name in names[kind] if name not in removed]
                names[kind] = kept + [list(name) for name in new if list(name) not in kept]
            (self.folder / "names").write_text(json.dumps(names))
            (self.folder / "head").write_bytes(head)
            mark.write_text(token)

    def _path(self, kind: str, name: SegmentName) -> Path:
        return self.folder / f"{kind}-{name[0]}-{name[1]}"

    def _forget_others(self) -> None:
        """Remove the files of queries that are gone."""
        with contextlib.suppress(OSError):
            for folder in self.base.iterdir():
                mark = folder / "token"
                touched = mark.stat().st_mtime if mark.exists() else folder.stat().st_mtime
                if time.time() - touched > _FORGOTTEN:
                    shutil.rmtree(folder, ignore_errors=True)
