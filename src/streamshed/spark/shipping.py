"""A relation on its way to the executors: files that each fetches once, and its workers map.

The rows, the changes and the index are written here, once. Spark hands every executor a copy of the
files; all its workers see the same memory, and what a worker changes in the index is its own.
"""

from __future__ import annotations

import atexit
import mmap
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import SparkFiles

from streamshed.engine.match.facts import CODE_WORDS, Facts, FactSettings
from streamshed.engine.match.relation_facts import Index, RunningRelation
from streamshed.plan.plan import Plan, RelationPlan
from streamshed.relations import Relation
from streamshed.sources import Source
from streamshed.spark.settings import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALIGNED = 64
_ARRAYS = ("keys", "table", "numbers", "entries", "bounds")
"""Of the index."""


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
            with pa.memory_map(SparkFiles.get(self.file)) as mapped:
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
        with open(SparkFiles.get(self.file), "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        arrays: dict[str, Any] = {
            name: np.frombuffer(mapped, np.dtype(kind), size, start)
            for name, kind, size, start in self.arrays
        }
        return Index(Facts(FactSettings(CODE_WORDS, self.streams), **arrays), self.used)


def ship(plan: Plan, session: SparkSession) -> Plan:
    """The same plan, with its relation in files that every executor will have."""
    if plan.through is None:
        return plan
    folder = Path(tempfile.mkdtemp(prefix="streamshed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    token = uuid.uuid4().hex
    told = _Writer(folder, session)
    relation = plan.through.relation
    data = changes = None
    if relation.data is not None:
        rows = relation.table(plan.through.schema)
        data = told.table(f"{token}-rows", rows.schema, [rows])
    if relation.grows:
        changes = relation.changes  # each worker reads them on by itself
    elif relation.news is not None:
        news = relation.news.of(relation.change_schema(plan.through.schema))
        changes = told.table(f"{token}-changes", news.schema, news.batches())
    shipped = ShippedRelation(
        data,
        relation.name,
        plan.through.begin,
        plan.through.end,
        changes,
        relation.time,
        relation.change,
    )
    through: RelationPlan = replace(plan.through, relation=shipped)
    index = RunningRelation(replace(plan, through=through))
    through = replace(through, index=told.index(f"{token}-index", index))
    return replace(plan, through=through)


@dataclass(frozen=True)
class _Writer:
    folder: Path
    session: SparkSession

    def table(self, name: str, schema: pa.Schema, batches: Any) -> Shipped:
        path, rows = self.folder / name, 0
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        self._add(path)
        return Shipped(name, schema, rows)

    def _add(self, path: Path) -> None:
        """Let every executor have a copy."""
        context = context_of(self.session)
        if context is None:  # Spark Connect
            self.session.addArtifacts(str(path), file=True)
        else:
            context.addFile(str(path))

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
        self._add(path)
        return ShippedIndex(name, facts.settings.streams, relation.used, tuple(places))
