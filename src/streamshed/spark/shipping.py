"""What executors get as files, which each fetches once: compiled kernels, and a relation.

The rows of a relation, its changes and its index are written here, once. Spark hands every executor
a copy of the files; all its workers see the same memory, and what a worker changes in the index is
its own.
"""

from __future__ import annotations

import atexit
import hashlib
import mmap
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import SparkFiles

from streamshed.columns import no_rows
from streamshed.engine.ingest import key_hash
from streamshed.engine.match.fact_index import CODE_WORDS, Facts, FactSettings
from streamshed.engine.match.running_relation import Index, RunningRelation
from streamshed.kernels import cache
from streamshed.plan.plan import Plan, RelationPlan
from streamshed.relations import Relation
from streamshed.sources import Source
from streamshed.spark.settings import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALIGNED = 64
_ARRAYS = ("keys", "table", "numbers", "entries", "bounds")
"""Of the index."""


_written: dict[str, Path] = {}
"""The files that this process has written, by their names; a client of Spark Connect gets none."""


def _path_of(file: str) -> Path:
    """Where a file is in this process."""
    if file in _written:
        return _written[file]
    root = Path(SparkFiles.getRootDirectory())
    # Files of a session of Spark Connect are in a folder of its own, which streams are not told.
    return next((path for path in (root / file, *root.glob(f"*/{file}")) if path.exists()), root)


def _hand_out(path: Path, session: SparkSession) -> None:
    """Let every executor have a copy of a file, whose name says what it holds."""
    _written[path.name] = path
    context = context_of(session)
    if context is None:  # Spark Connect
        session.addArtifacts(str(path), file=True)
    elif not any(known.endswith(f"/{path.name}") for known in context.listFiles):
        context.addFile(str(path))


def _folder() -> Path:
    """A folder for files to hand out, removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="streamshed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


# -- kernels --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernels:
    """The compiled kernels of a join, for workers that would compile them otherwise.

    Attributes:
        file: an archive that every executor has a copy of; None where workers share our cache.
    """

    file: str | None = None

    def adopt(self) -> None:
        """Take them in, once in a process."""
        if self.file is not None and self.file not in _adopted:
            _adopted.add(self.file)
            cache.adopt(_path_of(self.file).read_bytes())


_adopted: set[str] = set()


def ship_kernels(session: SparkSession) -> Kernels:
    """Hand out the kernels that this process has used, where workers do not share its cache."""
    context = context_of(session)
    if context is not None and context.master.startswith("local[") and cache.writable_folder():
        return Kernels()
    packed = cache.export()
    name = f"streamshed-{hashlib.sha256(packed).hexdigest()[:32]}.zip"
    path = _written.get(name) or _folder() / name
    path.write_bytes(packed)
    _hand_out(path, session)
    return Kernels(name)


# -- relations ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shipped:
    """Data in a file that every executor has a copy of.

    Attributes:
        file: its name.
        schema: its columns.
        rows: how many.
    """

    file: str
    schema: pa.Schema
    rows: int

    def source(self, name: str) -> Source:
        """The rows, where they are in memory, as an input."""

        def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
            with pa.memory_map(str(_path_of(self.file))) as mapped:
                file = pa.ipc.open_file(mapped)
                for number in range(file.num_record_batches):
                    yield file.get_batch(number).select(columns)

        return Source(name, self.schema, read, whole=False, rows=self.rows)


@dataclass(frozen=True, eq=False, repr=False)
class ShippedRelation(Relation):
    """A relation whose rows and changes are in such files; changes without end are not."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShippedRelation) and self._told() == other._told()

    def __hash__(self) -> int:
        return hash(self._told())

    def _told(self) -> tuple[object, ...]:
        return tuple(
            data.file if isinstance(data, Shipped) else data for data in (self.data, self.changes)
        )

    @cached_property
    def rows(self) -> Source | None:
        """The rows that are there from the start."""
        return None if self.data is None else self.data.source(self.name)

    @cached_property
    def news(self) -> Source | None:
        """The changes."""
        if isinstance(self.changes, Shipped):
            return self.changes.source(self.name)
        return super().news


@dataclass(frozen=True)
class ShippedIndex:
    """The index of a relation in such a file.

    Attributes:
        file: its name.
        streams: how many streams meet the relation.
        used: places of the index that are in use.
        arrays: for each its name, its type, its size, and where it begins.
    """

    file: str
    streams: int
    used: int
    arrays: tuple[tuple[str, str, int, int], ...]

    def __call__(self) -> Index:
        """The index, mapped; pages that are written to become this process's own."""
        with _path_of(self.file).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        arrays: dict[str, Any] = {
            name: np.frombuffer(mapped, np.dtype(kind), size, start)
            for name, kind, size, start in self.arrays
        }
        return Index(Facts(FactSettings(CODE_WORDS, self.streams), **arrays), self.used)


def ship(plan: Plan, session: SparkSession, shards: int) -> tuple[Plan, Cells | None]:
    """The same plan, with its relation in files that every executor will have.

    Where several streams meet in several shards, each has files with facts of its own.
    """
    if plan.through is None:
        return plan, None
    told = _Writer(_folder(), session)
    relation, token = plan.through.relation, uuid.uuid4().hex
    rows = None if relation.data is None else relation.table(plan.through.schema)
    news = None
    if relation.news is not None and not relation.grows:
        source = relation.news.of(relation.change_schema(plan.through.schema))
        news = pa.Table.from_batches(source.batches(), source.schema).combine_chunks()
        news = (news.to_batches() or [no_rows(source.schema)])[0]
    if shards == 1 or len(plan.streams) == 1:
        return replace(plan, through=told.relation(plan, token, rows, news)), None
    facts = [part for part in (rows, news) if part is not None]
    axis, owners = _divided(plan, facts, shards)
    of = dict(zip(map(id, facts), owners, strict=True))

    def own(part: pa.RecordBatch | None, shard: int) -> pa.RecordBatch | None:
        return None if part is None else part.filter(pa.array(of[id(part)] == shard))

    parts = tuple(
        told.relation(plan, f"{token}-{shard}", own(rows, shard), own(news, shard))
        for shard in range(shards)
    )
    routes = {
        position: told.routes(f"{token}-routes-{position}", *_routes(plan, position, facts, owners))
        for position in range(len(plan.streams))
        if position != axis
    }
    # Whole it is nowhere; who asks for its schema may take any part.
    return replace(plan, through=parts[0]), Cells(axis, parts, routes)


def _divided(
    plan: Plan, facts: list[pa.RecordBatch], shards: int
) -> tuple[int, list[npt.NDArray[np.int32]]]:
    """The stream by whose keys facts are divided, with the fewest copies, and each one's shard."""
    found = []
    for axis in range(len(plan.streams)):
        hashed = [_hashes(plan, axis, part) for part in facts]
        owners = [(hashes % np.uint64(shards)).astype(np.int32) for hashes in hashed]
        copies = sum(
            len(_routes(plan, other, facts, owners)[0])
            for other in range(len(plan.streams))
            if other != axis
        )
        found.append((copies, axis, owners))
    _, axis, owners = min(found, key=lambda one: one[:2])
    return axis, owners


def _hashes(plan: Plan, position: int, facts: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """The hashes of the keys by which facts match the rows of a stream."""
    assert plan.through is not None
    types = plan.streams[position].key_types
    return key_hash(facts, plan.through.keys[position], types, plan.secret)[0]


def _routes(
    plan: Plan,
    position: int,
    facts: list[pa.RecordBatch],
    owners: list[npt.NDArray[np.int32]],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """The hashes of keys of a stream, in order, each with a shard that has facts for it."""
    pairs = np.empty(sum(map(len, owners)), [("hash", np.uint64), ("shard", np.int32)])
    pairs["hash"] = np.concatenate([_hashes(plan, position, part) for part in facts])
    pairs["shard"] = np.concatenate(owners)
    pairs = np.unique(pairs)
    return np.ascontiguousarray(pairs["hash"]), np.ascontiguousarray(pairs["shard"])


@dataclass(frozen=True)
class Routes:
    """Which shards have facts for a key, in a file that every executor has a copy of."""

    file: str
    pairs: int

    @cached_property
    def arrays(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        """The hashes of keys, in order, and the shard of each; a key may be there several times."""
        data = _path_of(self.file).read_bytes()
        return (
            np.frombuffer(data, np.uint64, self.pairs),
            np.frombuffer(data, np.int32, self.pairs, 8 * self.pairs),
        )


@dataclass(frozen=True)
class Cells:
    """How the facts of a relation are divided among shards, and rows follow them.

    A result has one fact, whose shard makes it. A row goes to all shards that have facts for its
    key, whenever these are valid; if there are none, to any one, where it is filtered.

    Attributes:
        axis: the stream by whose keys facts are divided: its rows go to one shard each.
        parts: the facts of each shard.
        routes: for each other stream the shards of its keys.
    """

    axis: int
    parts: tuple[RelationPlan, ...]
    routes: Mapping[int, Routes]

    def shards_of(
        self, position: int, hashed: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Where rows of a stream go, by the hashes of their keys: places of rows, and shards."""
        rows = np.arange(len(hashed))
        alone = (hashed % np.uint64(len(self.parts))).astype(np.int32)
        if position == self.axis:
            return rows, alone
        known, shards = self.routes[position].arrays
        low, high = (np.searchsorted(known, hashed, side) for side in ("left", "right"))
        copies = np.maximum(high - low, 1)
        of, shard = np.repeat(rows, copies), np.repeat(alone, copies)
        place = np.repeat(low - np.cumsum(copies) + copies, copies) + np.arange(len(of))
        found = (high > low)[of]
        shard[found] = shards[place[found]]
        return of, shard


@dataclass(frozen=True)
class _Writer:
    folder: Path
    session: SparkSession

    def table(self, name: str, rows: pa.RecordBatch) -> Shipped:
        path = self.folder / name
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_batch(rows)
        _hand_out(path, self.session)
        return Shipped(name, rows.schema, rows.num_rows)

    def relation(
        self, plan: Plan, token: str, rows: pa.RecordBatch | None, news: pa.RecordBatch | None
    ) -> RelationPlan:
        """A relation in files: its rows, its changes, and its index."""
        assert plan.through is not None
        relation = plan.through.relation
        shipped = ShippedRelation(
            None if rows is None else self.table(f"{token}-rows", rows),
            relation.name,
            plan.through.begin,
            plan.through.end,
            # Changes without end are read on by each worker itself.
            relation.changes if news is None else self.table(f"{token}-changes", news),
            relation.time,
            relation.change,
        )
        through = replace(plan.through, relation=shipped)
        index = RunningRelation(replace(plan, through=through))
        return replace(through, index=self.index(f"{token}-index", index))

    def routes(
        self, name: str, hashes: npt.NDArray[np.uint64], shards: npt.NDArray[np.int32]
    ) -> Routes:
        path = self.folder / name
        path.write_bytes(hashes.tobytes() + shards.tobytes())
        _hand_out(path, self.session)
        return Routes(name, len(hashes))

    def index(self, name: str, relation: RunningRelation) -> ShippedIndex:
        path, places = self.folder / name, []
        facts = relation.facts
        with path.open("wb") as file:
            for part in _ARRAYS:
                array = getattr(facts, part)
                file.write(b"\0" * (-file.tell() % _ALIGNED))
                places.append((part, array.dtype.str, array.size, file.tell()))
                file.write(array.data)
            file.write(b"\0")  # a file of nothing cannot be mapped
        _hand_out(path, self.session)
        return ShippedIndex(name, facts.settings.streams, relation.used, tuple(places))
