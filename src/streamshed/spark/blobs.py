"""Rows travel through Spark as blobs: Arrow IPC bytes of many rows of one stream for one shard.

Spark hands rows to Python one by one or in small batches, and its state API row by row; a few large
binaries pass through all of that at the speed of memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.columns import no_rows
from streamshed.engine.checkpoint import from_ipc, ipc_buffer
from streamshed.engine.ingest import newest_time
from streamshed.kernels.core import NEVER
from streamshed.plan.plan import Plan
from streamshed.shards import counted_rows, routing_hash, shards_by_key, split
from streamshed.spark.changes import CHANGES
from streamshed.spark.sharding import Sharding
from streamshed.spark.shipping import Kernels
from streamshed.spark.workers import begin_task, end_task

PACKED = "shard long, stream int, part int, number int, newest long, rows binary"
"""A blob: its shard and stream, its place in the order of the stream's rows in the batch, and the
newest time of all rows that were packed together with it, whatever their shards."""

GUESTS = -1
"""The stream of a blob of rows that are stored elsewhere, and only probe in the shard."""

COUNTED = -2
"""The stream of a blob of what all shards are told of each other's rows, where budgets follow."""

BLOB_BYTES = 448 << 10
"""The most bytes of a blob, unless a single row has more. Java takes each as one array, several
times, and its garbage collector takes arrays badly that are larger than half a region, 512 KB where
it has 1 GB: then it lets its heap grow."""
_BLOB_ROWS_BYTES = 8 << 20
"""The most bytes of the rows of a blob, which may be compressed well."""
_COUNTS = BLOB_BYTES // 20
"""Counts in a blob: each takes 20 bytes at most, and mostly one or two."""
_PACKED_ROWS, _PACKED_BYTES = 1 << 18, 8 << 20
"""Rows and bytes that are packed at once: a worker holds them several times."""


def to_blob(rows: pa.RecordBatch) -> bytes:
    """Rows as a blob, compressed: Java holds a batch's blobs several times on their way."""
    return ipc_buffer(rows, compressed=True).to_pybytes()  # type: ignore[no-any-return]


def to_blobs(rows: pa.RecordBatch, most: int = BLOB_BYTES) -> Iterator[bytes]:
    """The rows as blobs of so many bytes at most, or of one row; no rows are a blob, too.

    Args:
        rows: the rows, in order.
        most: bytes of a blob.

    Examples:
        >>> wide = pa.record_batch({"text": ["x" * 1000] * 3 + ["y"] * 3})
        >>> sum(from_ipc(blob).num_rows for blob in to_blobs(wide, most=600))
        6
    """
    count, start = rows.num_rows, 0
    most_rows = max(1, count * _BLOB_ROWS_BYTES // max(1, rows.nbytes))
    step = max(1, min(count, count * most // max(1, rows.nbytes)))
    while True:
        some = rows.slice(start, step)
        blob = to_blob(some)
        # How well rows are compressed is known by trying; some stay below, for rows differ.
        fitting = max(1, some.num_rows * most * 7 // (8 * len(blob)))
        if len(blob) > most and some.num_rows > 1:
            step = min(fitting, some.num_rows - 1)
            continue
        yield blob
        start, step = start + some.num_rows, min(fitting, most_rows)
        if start >= count:
            return


@dataclass(frozen=True)
class Pack:
    """Turns the rows of one stream into blobs, one or more for each shard.

    The columns are those of the schema in its order, whatever they are called.
    Every shard gets a blob of every part, an empty one if need be: so each shard takes part in each
    batch, and its accounts are in the batch's progress.

    Attributes:
        position: of the stream.
        plan: the join.
        sharding: the shards.
        by_key: whether the shard of a row follows from its key; otherwise the last column, after
            those of the schema, has its number.
        kernels: those that workers need not compile.
    """

    position: int
    plan: Plan
    sharding: Sharding
    by_key: bool = False
    kernels: Kernels = field(default_factory=Kernels)

    @property
    def schema(self) -> pa.Schema:
        """The columns that are packed."""
        return self.plan.streams[self.position].schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack the rows of one part of the input."""
        from pyspark import TaskContext

        self.kernels.adopt()
        begin_task()
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        numbers = itertools.count()
        waiting: list[pa.RecordBatch] = []
        rows = nbytes = total = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            nbytes += batch.nbytes
            total += batch.nbytes
            if rows >= _PACKED_ROWS or nbytes >= _PACKED_BYTES:
                yield self._packed(waiting, part, numbers)
                waiting, rows, nbytes = [], 0, 0
        yield self._packed(waiting, part, numbers)
        del waiting
        end_task(total)

    def _packed(
        self, batches: list[pa.RecordBatch], part: int, numbers: Iterator[int]
    ) -> pa.RecordBatch:
        labels = self.sharding.in_task().labels
        blobs: list[pa.RecordBatch] = []
        newest = NEVER
        guests: list[tuple[int, pa.RecordBatch]] = []
        counted = None
        if batches:
            whole = pa.concat_batches(batches)
            rows = pa.RecordBatch.from_arrays(
                [in_type(whole.column(i), field.type) for i, field in enumerate(self.schema)],
                schema=self.schema,
            )
            newest = newest_time(self.plan, self.position, rows)
            counted = counted_rows(self.plan, self.position, rows, len(labels))
            rows, shard = self._placed(rows, whole, len(labels))
            guests = list(self.guests(rows, shard))
            blobs = split(rows, shard, len(labels))
        else:
            empty = no_rows(self.schema)
            blobs = [empty for _ in labels]
        own = zip(labels, itertools.repeat(self.position), blobs, strict=False)
        visiting = ((labels[shard], GUESTS, rows) for shard, rows in guests)
        packed = [
            (label, stream, blob)
            for label, stream, rows in itertools.chain(own, visiting)
            for blob in to_blobs(rows)
        ]
        if counted is not None:
            told = [to_blob(some.as_rows()) for some in counted.split(_COUNTS)]
            packed += [(label, COUNTED, blob) for label in labels for blob in told]
        count = len(packed)
        shards, streams, data = zip(*packed, strict=True)
        return pa.record_batch(
            {
                "shard": pa.array(shards, pa.int64()),
                "stream": pa.array(streams, pa.int32()),
                "part": pa.array([part] * count, pa.int32()),
                "number": pa.array(itertools.islice(numbers, count), pa.int32()),
                "newest": pa.array([newest] * count, pa.int64()),
                "rows": pa.array(data, pa.binary()),
            }
        )

    def _placed(
        self, rows: pa.RecordBatch, whole: pa.RecordBatch, shards: int
    ) -> tuple[pa.RecordBatch, npt.NDArray[Any]]:
        """The rows, copied where they belong to several shards, and the number of each one's."""
        cells, stream = self.sharding.cells, self.plan.streams[self.position]
        if cells is not None:
            hashed = routing_hash(rows, stream.key, stream.key_types)
            of, shard = cells.shards_of(self.position, hashed)
            return rows.take(pa.array(of)), shard
        if self.by_key:
            return rows, shards_by_key(stream, rows, shards)
        return rows, whole.column(len(self.schema)).to_numpy()

    def guests(
        self, rows: pa.RecordBatch, shard: npt.NDArray[np.int32]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Rows that also go, to probe only, to shards that are not theirs.

        Args:
            rows: all rows.
            shard: the number of the shard of each.
        """
        return iter(())


@dataclass(frozen=True)
class PackChanges:
    """Turns changes into blobs, the same for every shard."""

    schema: pa.Schema
    sharding: Sharding

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack the changes of one part of the input."""
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        numbers = itertools.count()
        labels = self.sharding.in_task().labels
        for batch in batches:
            rows = batch.cast(self.schema)
            for blob in to_blobs(rows):
                number = next(numbers)
                yield pa.record_batch(
                    {
                        "shard": pa.array(labels, pa.int64()),
                        "stream": pa.array([CHANGES] * len(labels), pa.int32()),
                        "part": pa.array([part] * len(labels), pa.int32()),
                        "number": pa.array([number] * len(labels), pa.int32()),
                        "newest": pa.array([NEVER] * len(labels), pa.int64()),
                        "rows": pa.array([blob] * len(labels), pa.binary()),
                    }
                )


@dataclass(frozen=True)
class Unpack:
    """Turns blobs of results into rows."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack the blobs of one part."""
        begin_task()
        total = 0
        for batch in batches:
            for blob in batch.column("rows"):
                rows = from_ipc(blob.as_buffer())
                total += rows.nbytes
                yield rows
        end_task(total)


def in_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in the type of the plan: Spark names another time zone for the same instants."""
    return column if column.type.equals(kind) else column.cast(kind)
