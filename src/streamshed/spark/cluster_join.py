"""A join in two levels: clusters of streams as shards, which probe each other (SNJoin*).

A row is stored in the shard of its own cluster, and is sent as a guest, which only probes, to those
others that relevance chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from streamshed import columns
from streamshed.engine.checkpoint import from_ipc
from streamshed.engine.ingest import InputRows, key_hash, merged, times_of
from streamshed.engine.operator import Block, Operator
from streamshed.errors import InputError, SpecError
from streamshed.join import spec_of
from streamshed.kernels.core import NEVER
from streamshed.plan.plan import Plan
from streamshed.relevance import Relevance
from streamshed.spark.blobs import GUESTS, PACKED, Pack
from streamshed.spark.late import LateFiles, checked_folder
from streamshed.spark.notes import Notes, batch_number
from streamshed.spark.processor import JoinProcessor
from streamshed.spark.sharding import Sharding
from streamshed.spark.streaming import compiled, needed_columns, prepared, processed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamshed.join import Join
    from streamshed.spec import Spec

Ints = npt.NDArray[np.int64]

EVERYONE = Relevance(classes=1, base=1.0, chance="plain")
"""By which all are probed, always."""


def clustered(
    join: Join,
    frame: DataFrame,
    *,
    cluster: str,
    clusters: int,
    relevance: Relevance | None = None,
    notes_to: str | None = None,
    late_to: str | None = None,
) -> DataFrame:
    """The join of streams named by a column, in clusters; see `docs/meaning.md`.

    Args:
        join: what to do: `join(by=…)` with time windows, and without a budget.
        frame: the rows of all streams.
        cluster: the column that says to which cluster a row belongs: a number from 0.
        clusters: how many there are.
        relevance: how each cluster learns which others its rows probe; all of them, unless said.
        notes_to: a folder for what is learned, which all executors can read and write, and no
            other query uses. It is needed where there is relevance.
        late_to: a folder for rows that come too late.
    """
    spec = spec_of(join)
    late_to = None if late_to is None else checked_folder(late_to)
    _check(spec, clusters, relevance, notes_to)
    plan, (source,), sharding = prepared(spec, {"input": frame}, clusters)
    _check_column(plan, cluster)
    compiled(plan)
    notes = None
    if relevance is not None and notes_to is not None:
        notes = Notes(notes_to, relevance, clusters)
    needed, number_of = needed_columns(source, plan, 0)
    shard = f.coalesce(f.col(number_of[cluster]), f.lit(-1)).cast("int")
    pack = ClusterPack(0, plan, sharding, cluster=cluster, notes=notes)
    packed = needed.withColumn("shard", shard).mapInArrow(pack, PACKED)
    processor = ClusterProcessor(plan, sharding, cluster, notes, late_to)
    return processed(plan, packed, processor)


def _check(spec: Spec, clusters: int, relevance: Relevance | None, notes_to: str | None) -> None:
    """Refuse what joins in clusters cannot do."""
    if spec.by is None:
        raise SpecError(
            f"the streams are {', '.join(map(repr, spec.streams))}, by name, but clusters are of"
            " streams that a column names, as in join(by='sensor')"
        )
    if spec.budget is not None or spec.row_windows is not None:
        said = ".keep()" if spec.budget is not None else ".last()"
        raise SpecError(
            f"{said} was said, but clusters have no budgets and no windows of rows yet; leave it"
            " out, or join with .stream()"
        )
    if isinstance(clusters, bool) or not isinstance(clusters, int) or clusters < 1:
        raise SpecError(f"clusters is {clusters!r}; give a whole number of at least 1")
    if (relevance is None) != (notes_to is None):
        raise SpecError(
            f"relevance is {relevance!r} and notes_to {notes_to!r}: what is learned is kept in a"
            " folder; give both, or neither"
        )


def _check_column(plan: Plan, cluster: str) -> None:
    stream = plan.streams[0]
    if cluster not in stream.schema.names:
        raise SpecError(
            f"the column {cluster!r}, which tells the clusters apart, is not among those that are"
            f" kept, {', '.join(stream.schema.names)}; choose it too, as in"
            f" .select('members.{cluster}', …)"
        )
    found = columns.find(stream.schema, stream.name, cluster, "cluster")
    if not pa.types.is_integer(found.type):
        raise SpecError(f"{found} is of type {found.type}; give a column of whole numbers, from 0")


@dataclass(frozen=True)
class ClusterPack(Pack):
    """Packs rows for their own clusters, and as guests for others.

    Attributes:
        cluster: the column that says to which cluster a row belongs.
        notes: what is known of relevance; if None, all clusters are probed.
    """

    cluster: str = ""
    notes: Notes | None = None

    def guests(
        self, rows: pa.RecordBatch, shard: npt.NDArray[np.int32]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that go to each other cluster."""
        count = self.sharding.count
        own = rows.column(self.cluster)
        wrong = pc.fill_null(pc.or_(pc.less(own, 0), pc.greater_equal(own, count)), True)
        if pc.any(wrong).as_py():
            value = own.filter(wrong)[0].as_py()
            raise InputError(
                f"stream {self.plan.streams[0].name!r}, column {self.cluster!r}: the cluster"
                f" {value} of a row is no number from 0 to {count - 1}; make it one, or give more"
                " clusters"
            )
        stream = self.plan.streams[0]
        hashed, _ = key_hash(rows, stream.key, stream.key_types, self.plan.secret)
        assert stream.time is not None
        times, _ = times_of(rows.column(stream.time), self.plan.time_type, repr(stream.time))
        if self.notes is not None:
            relevance, matrices = self.notes.relevance, self.notes.matrices(batch_number())
        else:
            relevance, matrices = EVERYONE, EVERYONE.matrix(count, count)
        clusters = own.cast(pa.int64()).to_numpy()
        visitors, targets = relevance.visits(matrices, clusters, hashed, times, self.plan.seed)
        for target in range(count):
            chosen = visitors[targets == target]
            if chosen.size:
                yield target, rows.take(pa.array(chosen))


class ClusterProcessor(JoinProcessor):
    """Joins the rows of a cluster, and lets guests probe them.

    Args:
        plan: the join.
        sharding: the clusters, which are its shards.
        cluster: the column that says to which cluster a row belongs.
        notes: where to leave what is learned of relevance, if anything is.
        late_to: the folder for rows that come too late, if any.
    """

    def __init__(
        self,
        plan: Plan,
        sharding: Sharding,
        cluster: str,
        notes: Notes | None,
        late_to: str | None,
    ) -> None:
        super().__init__(plan, sharding, late_to)
        self.cluster = cluster
        self.notes = notes

    def results(
        self,
        label: int,
        join: Operator,
        blobs: list[tuple[int, int, int, int, bytes]],
        late: LateFiles | None,
    ) -> Iterator[pa.RecordBatch]:
        """The results of the rows of a cluster and of its guests."""
        arrived = _Arrived.read(join, blobs, self.cluster)
        matched: list[Ints] = []

        def note(block: Block) -> None:
            # The newcomer is the first member of its results.
            firsts = np.concatenate([[0], block.ends[:-1]])
            matched.append(np.unique(block.members[firsts]))

        yield from self.made(join, merged([arrived.tuples]), late, note)
        join.advance([[*arrived.newest.values()]])
        batch = batch_number()
        if self.notes is not None and batch is not None:
            shard = list(self.plans).index(label)
            self.notes.write(batch, shard, *arrived.noted(self.notes, matched))


@dataclass
class _Arrived:
    """The rows of a batch in a cluster, guests among them, in the order that all clusters have."""

    tuples: InputRows
    cluster: Ints
    """Of each row."""
    newest: dict[int, int]
    """Of each partition of the input."""

    @classmethod
    def read(
        cls, join: Operator, blobs: list[tuple[int, int, int, int, bytes]], cluster: str
    ) -> _Arrived:
        parts: list[InputRows] = []
        clusters: list[Ints] = []
        newest: dict[int, int] = {}
        for stream, part, _, seen, data in blobs:
            newest[part] = max(newest.get(part, NEVER), seen)
            rows = from_ipc(data)
            guests = np.full(rows.num_rows, stream == GUESTS)
            parts.append(join.read(0, rows)._replace(visiting=guests))
            clusters.append(rows.column(cluster).cast(pa.int64()).to_numpy())
        tuples, of_rows = InputRows.concatenated(parts), np.concatenate(clusters)
        # Of two rows of one time, each cluster must take the same for the earlier one.
        order = np.lexsort((of_rows, tuples.time))
        ordered = InputRows._make(column[order] if column.size else column for column in tuples)
        return cls(ordered._replace(arrival_time=ordered.time), of_rows[order], newest)

    def noted(self, notes: Notes, matched: list[Ints]) -> tuple[Ints, Ints]:
        """How many guests came, by (cluster, class), and how many of them made a result."""
        guests = self.tuples.visiting
        classes = notes.relevance.classes
        place = self.cluster * classes + notes.relevance.classes_of(self.tuples.hash)
        made = np.isin(self.tuples.payload, np.concatenate([*matched, np.empty(0, np.int64)]))

        def counted(which: npt.NDArray[np.bool_]) -> Ints:
            found = np.bincount(place[which], minlength=notes.shards * classes)
            return found.reshape(notes.shards, classes)

        return counted(guests), counted(guests & made)
