"""A join in two levels: clusters of streams as shards, which probe each other (SNJoin*).

A row is stored in the shard of its own cluster, and is sent as a guest, which only probes, to those
others that relevance chooses. Shards hand out which rows have met; the results are made of that, in
`streamshed.spark.cluster_results`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from streamshed import columns
from streamshed.engine.checkpoint import from_ipc
from streamshed.engine.encoding import key_hash, times_of
from streamshed.engine.ingest import InputRows, merged
from streamshed.engine.observe.estimator import is_estimated
from streamshed.engine.operator import Operator
from streamshed.engine.results import result_schema
from streamshed.errors import InputError, SpecError
from streamshed.join import spec_of
from streamshed.kernels.core import NEVER
from streamshed.plan.plan import Plan
from streamshed.relevance import Relevance
from streamshed.shards import divided
from streamshed.spark.blobs import GUESTS, PACKED, Pack, in_type
from streamshed.spark.cluster_results import (
    NEWCOMER,
    NUMBER,
    PROBED,
    Combine,
    are_set,
    bits_of,
    in_one_cluster,
    numbers,
    of_all_clusters,
    pairs_of,
    pairs_schema,
)
from streamshed.spark.folders import checked_folder
from streamshed.spark.late import LateFiles
from streamshed.spark.notes import Notes, batch_number
from streamshed.spark.processor import TOTALS, JoinProcessor
from streamshed.spark.progress import counted
from streamshed.spark.sharding import Sharding
from streamshed.spark.streaming import compiled, needed_columns, prepared, processed
from streamshed.spark.types import struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamshed.join import Join
    from streamshed.spec import Spec

Ints = npt.NDArray[np.int64]


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
    """Join streams named by a column in clusters, one shard each; see docs/network.md.

    Args:
        join: the join: `join(by=…)` with time windows, and perhaps `.keep(total=…)`, of which each
            cluster gets an equal part.
        frame: the rows of all streams.
        cluster: the column with the number of a row's cluster, from 0.
        clusters: the number of clusters.
        relevance: how each cluster learns which others its rows probe; by default all of them.
        notes_to: a folder for what the clusters learn, which all executors can read and write, and
            no other query uses. Required with `relevance`.
        late_to: a folder for rows that are too late.
    """
    spec = spec_of(join)
    late_to = None if late_to is None else checked_folder(late_to, "late_to")
    _check(spec, clusters, relevance, notes_to)
    plan, (source,), sharding = prepared(spec, {"input": frame}, clusters)
    _check_column(plan, cluster)
    inner = in_one_cluster(plan)
    compiled(inner)
    notes = None
    if relevance is not None and notes_to is not None:
        notes = Notes(notes_to, relevance, clusters)
    needed, number_of = needed_columns(source, plan, 0)
    shard = f.coalesce(f.col(number_of[cluster]), f.lit(-1)).cast("int")
    whole: Plan | None = None
    sampled: tuple[str, ...] = ()
    if is_estimated(inner):
        whole = of_all_clusters(inner, plan, cluster)
        sampled = tuple(whole.streams[0].schema.names)
        sharding = replace(sharding, shards=clusters + 1)
    pack = ClusterPack(0, inner, sharding, cluster=cluster, sampled=sampled, notes=notes)
    packed = needed.withColumn("shard", shard).mapInArrow(pack, PACKED)
    processor = ClusterProcessor(inner, sharding, cluster, notes, late_to, whole)
    pairs = processed(inner, packed, processor, pairs_schema(inner))
    # As many partitions whatever the session says: notes are named after them.
    together = pairs.repartition(clusters, NEWCOMER)
    made = together.mapInArrow(Combine(plan, cluster, notes), struct_of(result_schema(plan)))
    return counted(made)


def _check(spec: Spec, clusters: int, relevance: Relevance | None, notes_to: str | None) -> None:
    """Refuse what joins in clusters cannot do."""
    if spec.by is None:
        raise SpecError(
            f"the streams are {', '.join(map(repr, spec.streams))}, by name, but clusters are of"
            " streams that a column names, as in join(by='sensor')"
        )
    memory = None if spec.budget is None else spec.budget.memory
    for said, method in (
        (memory, ".keep(memory=…)"),
        (spec.spilled, ".spill()"),
        (spec.row_windows, ".last()"),
        (spec.first, ".first()"),
        (spec.factorised or None, ".factorised()"),
        (spec.aggregation, ".aggregate()"),
        (spec.throttled, ".throttle()"),
        (spec.queue_rows, ".queue()"),
    ):
        if said is not None:
            raise SpecError(
                f"{method} was said, but a join in clusters has time windows, and no budget but"
                " .keep(total=…); leave it out, or join with .stream()"
            )
    if isinstance(clusters, bool) or not isinstance(clusters, int) or clusters < 1:
        raise SpecError(f"clusters is {clusters!r}; give a whole number of at least 1")
    if spec.budget is not None and spec.budget.total is not None and spec.budget.total < clusters:
        raise SpecError(
            f"clusters is {clusters}, but .keep(total={spec.budget.total}) is less than one row for"
            " each of them; give fewer clusters, or a larger budget"
        )
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
        sampled: the columns with which all rows also go to a last shard, that of the sample; none
            if there is no such shard.
        notes: what is known of relevance; if None, all clusters are probed.
    """

    cluster: str = ""
    sampled: tuple[str, ...] = ()
    notes: Notes | None = None

    @property
    def clusters(self) -> int:
        """How many there are."""
        return self.sharding.count - bool(self.sampled)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Number the rows of one part of the input, choose whom they probe, and pack them."""
        return super().__call__(self._numbered(batches))

    def _numbered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows with what `in_one_cluster` gives them, before the number of their shard."""
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        batch, first = batch_number(), 0
        of_user = list(self.schema)[:-2]
        for rows in batches:
            *columns, shard = rows.columns
            columns = [in_type(c, field.type) for c, field in zip(columns, of_user, strict=True)]
            typed = pa.RecordBatch.from_arrays(columns, schema=pa.schema(of_user))
            number = numbers(batch, part, first, rows.num_rows)
            first += rows.num_rows
            columns += [pa.array(number), self._probed(typed), shard]
            yield pa.RecordBatch.from_arrays(columns, names=[*self.schema.names, "shard"])

    def _probed(self, rows: pa.RecordBatch) -> pa.Array:
        """Which clusters each row probes, its own among them, bit by bit."""
        stream, count = self.plan.streams[0], self.clusters
        own = rows.column(self.cluster)
        wrong = pc.fill_null(pc.or_(pc.less(own, 0), pc.greater_equal(own, count)), True)
        if pc.any(wrong).as_py():
            value = own.filter(wrong)[0].as_py()
            raise InputError(
                f"stream {stream.name!r}, column {self.cluster!r}: the cluster {value} of a row is"
                f" no number from 0 to {count - 1}; make it one, or give more clusters"
            )
        clusters = own.cast(pa.int64()).to_numpy()
        probed = np.zeros((rows.num_rows, count), np.bool_)
        if self.notes is None:
            probed[:] = True
        else:
            hashed, _ = key_hash(rows, stream.key, stream.key_types, self.plan.secret)
            assert stream.time is not None
            times, _ = times_of(rows.column(stream.time), self.plan.time_type, repr(stream.time))
            relevance, matrices = self.notes.relevance, self.notes.matrices(batch_number())
            probed[relevance.visits(matrices, clusters, hashed, times, self.plan.seed)] = True
            probed[np.arange(rows.num_rows), clusters] = True
        bits = np.packbits(probed, axis=1)
        return pa.array([row.tobytes() for row in bits], pa.binary())

    def guests(
        self, rows: pa.RecordBatch, shard: npt.NDArray[np.int32]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that go to each other cluster, and to the sample of all."""
        probed = bits_of(rows.column(PROBED), rows.num_rows)
        if self.sampled:
            yield self.clusters, rows.select(self.sampled)
        for target in range(self.clusters):
            chosen = np.flatnonzero(are_set(probed, target) & (shard != target))
            if chosen.size:
                yield target, rows.take(pa.array(chosen))


class ClusterProcessor(JoinProcessor):
    """Joins the rows of a cluster, and lets guests probe them.

    If what is missed is estimated, all rows also come to a last shard, which stores none of them,
    and tells by its sample what the join of all clusters would make.

    Args:
        plan: the join.
        sharding: the clusters, which are its shards, and that of the sample.
        cluster: the column that says to which cluster a row belongs.
        notes: where to leave what is learned of relevance, if anything is.
        late_to: the folder for rows that come too late, if any.
        whole: the join of the sample, if there is one.
    """

    def __init__(
        self,
        plan: Plan,
        sharding: Sharding,
        cluster: str,
        notes: Notes | None,
        late_to: str | None,
        whole: Plan | None = None,
    ) -> None:
        super().__init__(plan, sharding, late_to)
        self.cluster = cluster
        self.notes = notes
        self.whole = whole

    def plan_shards(self, sharding: Sharding) -> dict[int, Plan]:
        """The plan of each cluster, and of the sample."""
        if self.whole is None:
            return super().plan_shards(sharding)
        labels = sharding.labels
        clusters = divided(self.plan, labels[:-1], sharding.cores)
        return dict(zip(labels, [*clusters, self.whole], strict=True))

    def _is_sample(self, label: int) -> bool:
        return self.plans[label] is self.whole

    def results(
        self,
        label: int,
        join: Operator,
        blobs: list[tuple[int, int, int, int, bytes]],
        late: LateFiles | None,
    ) -> Iterator[pa.RecordBatch]:
        """Whom the rows of a cluster and its guests met there."""
        arrived = _Arrived.read(join, blobs, self.cluster)
        if self._is_sample(label):
            self._tally(join, arrived)
            return
        schema = pairs_schema(self.plan)
        without = None if late is None else _WithoutNumbers(late)
        for results in self.made(join, merged([arrived.tuples]), without):
            yield pairs_of(results, schema)
        join.advance([[*arrived.newest.values()]])
        batch = batch_number()
        if self.notes is not None and batch is not None:
            shard = list(self.plans).index(label)
            self.notes.write(batch, shard, arrived.guests(self.notes))

    def _tally(self, join: Operator, arrived: _Arrived) -> None:
        """Let the sample see the rows of a batch, and note what they would make."""
        assert join.loss is not None
        before = join.loss.sums_so_far()
        stored = arrived.tuples._replace(visiting=np.empty(0, np.bool_))
        for _ in join.process(merged([stored])):
            pass  # of the one row that is stored
        join.advance([[*arrived.newest.values()]])
        # What was made is counted where results are: it may have members of several clusters.
        self.combined = join.loss.known_since(before, shed=True, made=0.0).tolist()

    def told(self, label: int, join: Operator, counts: list[int | None]) -> dict[str, Any]:
        """The accounts of a cluster; of the sample, what it takes, and what it has tallied."""
        if not self._is_sample(label):
            return super().told(label, join, counts)
        taken = [0 if name == "results" else n for name, n in zip(TOTALS, counts, strict=False)]
        counts = [*taken, *[0] * (len(counts) - len(TOTALS))]
        return {"counts": counts, "combined": self.combined}


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
        numbered: list[Ints] = []
        newest: dict[int, int] = {}
        for stream, part, _, seen, data in blobs:
            newest[part] = max(newest.get(part, NEVER), seen)
            rows = from_ipc(data).select(join.plan.streams[0].schema.names)
            guests = np.full(rows.num_rows, stream == GUESTS)
            parts.append(join.read(0, rows)._replace(visiting=guests))
            clusters.append(rows.column(cluster).cast(pa.int64()).to_numpy())
            numbered.append(rows.column(NUMBER).to_numpy())
        tuples, of_rows = InputRows.concatenated(parts), np.concatenate(clusters)
        # Of two rows of one time, each cluster must take the same for the earlier one.
        order = np.lexsort((np.concatenate(numbered), of_rows, tuples.time))
        ordered = InputRows._make(column[order] if column.size else column for column in tuples)
        return cls(ordered._replace(arrival_time=ordered.time), of_rows[order], newest)

    def guests(self, notes: Notes) -> Ints:
        """How many guests came, by (cluster, class)."""
        classes, guests = notes.relevance.classes, self.tuples.visiting
        place = self.cluster * classes + notes.relevance.classes_of(self.tuples.hash)
        found = np.bincount(place[guests], minlength=notes.shards * classes)
        return found.reshape(notes.shards, classes)


class _WithoutNumbers(LateFiles):
    """Writes late rows as they came, without what joins in clusters give them."""

    def __init__(self, files: LateFiles) -> None:
        self.files = files

    def write(self, stream: str, rows: pa.RecordBatch) -> None:
        self.files.write(stream, rows.drop_columns([NUMBER, PROBED]))
