"""What executors get as files, which each fetches once: compiled kernels, and a relation.

The rows of a relation, its changes and its index are written here into one file. Spark hands every
executor a copy; all its workers see the same memory, and what a worker changes in the index is its
own.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import mmap
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import SparkFiles

from streamshed.columns import no_rows
from streamshed.database import Postgres
from streamshed.engine.match.fact_index import CODE_WORDS, Facts, FactSettings
from streamshed.engine.match.running_relation import RelationIndex, RunningRelation
from streamshed.errors import SpecError
from streamshed.kernels import kernel_files
from streamshed.plan.plan import Plan, RelationPlan
from streamshed.plan.routing import axes_of, by_one_key
from streamshed.relations import Relation
from streamshed.shards import routing_hash
from streamshed.sources import Source
from streamshed.spark.changes import StreamedChanges
from streamshed.spark.settings import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("streamshed.spark")

_ALIGNED = 64
_ARRAYS = ("keys", "table", "numbers", "entries", "bounds")
"""Of the index."""


_written: dict[str, Path] = {}
"""The files that this process has written, by their names; a client of Spark Connect gets none."""


def path_of(file: str) -> Path:
    """Where a file is in this process."""
    if file in _written:
        return _written[file]
    root = Path(SparkFiles.getRootDirectory())
    # Files of a session of Spark Connect are in a folder of its own, which streams are not told.
    return next((path for path in (root / file, *root.glob(f"*/{file}")) if path.exists()), root)


def hand_out(path: Path, session: SparkSession) -> None:
    """Let every executor have a copy of a file, whose name says what it holds."""
    _written[path.name] = path
    context = context_of(session)
    if context is None:  # Spark Connect
        session.addArtifacts(str(path), file=True)
    elif not any(known.endswith(f"/{path.name}") for known in context.listFiles):
        context.addFile(str(path))


def private_folder() -> Path:
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
            kernel_files.adopt(path_of(self.file).read_bytes())


_adopted: set[str] = set()


def ship_kernels(session: SparkSession) -> Kernels:
    """Hand out the kernels that this process has used, where workers do not share its cache."""
    context = context_of(session)
    if (
        context is not None
        and context.master.startswith("local[")
        and kernel_files.writable_folder()
    ):
        return Kernels()
    packed = kernel_files.export()
    name = f"streamshed-{hashlib.sha256(packed).hexdigest()[:32]}.zip"
    path = _written.get(name) or private_folder() / name
    path.write_bytes(packed)
    hand_out(path, session)
    return Kernels(name)


# -- relations ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shipped:
    """Data in a file that every executor has a copy of.

    Attributes:
        file: its name.
        start: where in the file they begin.
        size: how many bytes they are.
        schema: the columns.
        rows: how many.
    """

    file: str
    start: int
    size: int
    schema: pa.Schema
    rows: int

    def source(self, name: str) -> Source:
        """The rows, where they are in memory, as an input."""

        def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
            with pa.memory_map(str(path_of(self.file))) as mapped:
                mapped.seek(self.start)
                file = pa.ipc.open_file(mapped.read_buffer(self.size))
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
            (data.file, data.start) if isinstance(data, Shipped) else data
            for data in (self.data, self.changes)
        )

    @cached_property
    def rows(self) -> Source | None:
        """The rows that are there from the start."""
        return None if self.data is None else self.data.source(self.name)

    @cached_property
    def news(self) -> Source | None:
        """The changes."""
        if isinstance(self.changes, Shipped | StreamedChanges):
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

    def __call__(self) -> RelationIndex:
        """The index, mapped; pages that are written to become this process's own."""
        with path_of(self.file).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        arrays: dict[str, Any] = {
            name: np.frombuffer(mapped, np.dtype(kind), size, start)
            for name, kind, size, start in self.arrays
        }
        return RelationIndex(Facts(FactSettings(CODE_WORDS, self.streams), **arrays), self.used)


def ship(
    plan: Plan, rows: pa.RecordBatch | None, session: SparkSession, shards: int
) -> tuple[Plan, Cells | None]:
    """The same plan, with its relation in a file that every executor will have.

    Args:
        plan: the join.
        rows: those that its relation has from the start.
        session: of Spark.
        shards: in which each has facts of its own, if several streams meet; see `facts_apart`.
    """
    if plan.through is None:
        return plan, None
    _check_password(plan.through.relation)
    path = private_folder() / uuid.uuid4().hex
    with Writer(path, partial(hand_out, session=session)) as told:
        parts, cells = told.parts(plan, rows, facts_apart(plan, shards))
    return replace(plan, through=parts[0]), cells


def ship_table(rows: pa.RecordBatch, session: SparkSession) -> Shipped:
    """Rows in a file that every executor will have."""
    path = private_folder() / uuid.uuid4().hex
    with Writer(path, partial(hand_out, session=session)) as told:
        return told.table(rows)


def facts_apart(plan: Plan, shards: int) -> int:
    """In how many parts facts are divided, where a join is done in so many shards."""
    return 1 if len(plan.streams) == 1 or axes_of(plan) else shards


def _check_password(relation: Relation) -> None:
    """Refuse to send a password to executors: the plan is no place for it."""
    changes = relation.changes
    if isinstance(changes, Postgres) and changes.has_password:
        raise SpecError(
            f"relation {relation.name!r}: workers read its changes, {changes!r}, and the plan that"
            " Spark sends to them would hold the password that the URL has. Leave it out, and set"
            " PGPASSFILE or PGPASSWORD in the environment of the executors; or give the changes as"
            " a streaming DataFrame"
        )


def relation_rows(through: RelationPlan) -> pa.RecordBatch | None:
    """The rows that a relation has from the start."""
    relation = through.relation
    return None if relation.data is None else relation.table(through.schema)


def _changes(through: RelationPlan) -> pa.RecordBatch | None:
    """The changes of a relation, if they have an end."""
    relation = through.relation
    if relation.news is None or relation.grows:
        return None
    source = relation.news.of(relation.change_schema(through.schema))
    news = pa.Table.from_batches(source.batches(), source.schema).combine_chunks()
    return (news.to_batches() or [no_rows(source.schema)])[0]


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
    """The hashes of the keys by which facts match the rows of a stream, to find shards by."""
    assert plan.through is not None
    return routing_hash(facts, plan.through.keys[position], plan.streams[position].key_types)


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


def _digest_of(
    axis: int, pairs: Mapping[int, tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]]
) -> str:
    """What differs where rows of some key go to other shards."""
    found = hashlib.sha256(str(axis).encode())
    for hashes, shards in pairs.values():
        found.update(hashes.tobytes() + shards.tobytes())
    return found.hexdigest()[:32]


@dataclass(frozen=True)
class Routes:
    """Which shards have facts for a key, in a file that every executor has a copy of."""

    file: str
    start: int
    pairs: int

    @cached_property
    def arrays(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        """The hashes of keys, in order, and the shard of each; a key may be there several times."""
        path, split = path_of(self.file), self.start + 8 * self.pairs
        return (
            np.fromfile(path, np.uint64, self.pairs, offset=self.start),
            np.fromfile(path, np.int32, self.pairs, offset=split),
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
        digest: differs where rows go elsewhere; nothing where that follows from their keys alone.
    """

    axis: int
    parts: tuple[RelationPlan, ...]
    routes: Mapping[int, Routes]
    digest: str = ""

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


class Writer:
    """Writes a file that every executor will have a copy of, part by part.

    Args:
        path: of the file.
        hand_out: what is done with it in the end.
    """

    def __init__(self, path: Path, hand_out: Callable[[Path], None]) -> None:
        self.path, self.hand_out = path, hand_out
        self.file = path.open("wb")
        _written[path.name] = path  # what is in it is read here before it is whole

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.file.close()
        if kind is None:
            self.hand_out(self.path)

    def _begin(self) -> int:
        """Where the next part begins."""
        self.file.write(b"\0" * (-self.file.tell() % _ALIGNED))
        return self.file.tell()

    def parts(
        self, plan: Plan, rows: pa.RecordBatch | None, shards: int
    ) -> tuple[tuple[RelationPlan, ...], Cells | None]:
        """A relation: whole, or the facts of each shard, and how rows follow them."""
        assert plan.through is not None
        news = _changes(plan.through)
        if shards == 1:
            return (self._relation(plan, rows, news),), None
        facts = [part for part in (rows, news) if part is not None]
        axis, owners = _divided(plan, facts, shards)
        of = dict(zip(map(id, facts), owners, strict=True))

        def own(part: pa.RecordBatch | None, shard: int) -> pa.RecordBatch | None:
            return None if part is None else part.filter(pa.array(of[id(part)] == shard))

        parts = tuple(
            self._relation(plan, own(rows, shard), own(news, shard)) for shard in range(shards)
        )
        pairs = {
            position: _routes(plan, position, facts, owners)
            for position in range(len(plan.streams))
            if position != axis
        }
        routes = {position: self._routes(*found) for position, found in pairs.items()}
        apart = not by_one_key(plan, plan.through)
        return parts, Cells(axis, parts, routes, _digest_of(axis, pairs) if apart else "")

    def table(self, rows: pa.RecordBatch) -> Shipped:
        """A table."""
        start = self._begin()
        with pa.BufferOutputStream() as sink:
            with pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_batch(rows)
            data = sink.getvalue()
        self.file.write(data)
        self.file.flush()
        return Shipped(self.path.name, start, data.size, rows.schema, rows.num_rows)

    def _relation(
        self, plan: Plan, rows: pa.RecordBatch | None, news: pa.RecordBatch | None
    ) -> RelationPlan:
        """A relation: its rows, its changes, and its index."""
        assert plan.through is not None
        relation = plan.through.relation
        shipped = ShippedRelation(
            None if rows is None else self.table(rows),
            relation.name,
            plan.through.begin,
            plan.through.end,
            # Changes without end come with the batches, or are read on by each worker itself.
            relation.changes if news is None else self.table(news),
            relation.time,
            relation.change,
            relation.refresh,
        )
        through = replace(plan.through, relation=shipped)
        index = RunningRelation(replace(plan, through=through))
        return replace(through, index=self._index(index))

    def _routes(self, hashes: npt.NDArray[np.uint64], shards: npt.NDArray[np.int32]) -> Routes:
        start = self._begin()
        self.file.write(hashes.tobytes() + shards.tobytes())
        return Routes(self.path.name, start, len(hashes))

    def _index(self, relation: RunningRelation) -> ShippedIndex:
        facts, places = relation.facts, []
        for part in _ARRAYS:
            array = getattr(facts, part)
            places.append((part, array.dtype.str, array.size, self._begin()))
            self.file.write(array.data)
        self.file.write(b"\0")  # a file of nothing cannot be mapped
        return ShippedIndex(self.path.name, facts.settings.streams, relation.used, tuple(places))
