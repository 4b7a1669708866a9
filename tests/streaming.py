"""Streaming queries over files: what is written as a batch is processed as one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import streamshed as ss
from harness import inputs
from oracles.rows import Workload, arrival_order
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import merged
from streamshed.engine.results import result_schema
from streamshed.ledger import Ledger
from streamshed.replay import Replay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Batch = Mapping[str, pa.Table]
FATES = ("arrived", "stored", "expired", "shed", "filtered", "late", "queued")
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A short run gains nothing from the second compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m",
    "spark.log.level": "OFF",
    # Kernels write memory unchecked: a worker that dies of it says where it was.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}


def session(master: str = "local[2]") -> SparkSession:
    """A small Spark in this process."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def cut(workload: Workload, batches: int) -> list[dict[str, pa.Table]]:
    """A workload's tables in batches of equal size, in the order of arrival.

    If every stream is in order of time, Spark and replay process its rows in the same order.
    """
    whole = inputs(workload)
    count = len(workload.rows)
    bounds = [(count * i // batches, count * (i + 1) // batches) for i in range(batches)]
    if workload.by:
        return [{n: t.slice(start, end - start) for n, t in whole.items()} for start, end in bounds]
    order = arrival_order(workload)
    return [
        {
            name: rows.take([row.row for row in order[start:end] if str(row.stream) == name])
            for name, rows in whole.items()
        }
        for start, end in bounds
    ]


def whole(batches: Sequence[Batch]) -> dict[str, pa.Table]:
    """The batches put together again, as replay takes them."""
    names = dict.fromkeys(name for batch in batches for name in batch)
    return {n: pa.concat_tables([batch[n] for batch in batches if n in batch]) for n in names}


def replayed(join: ss.Join, batches: Sequence[Batch]) -> Replay:
    """What replay makes of the batches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # late rows are expected in some
        return join.replay(whole(batches), order="arrival")


@dataclass
class Ran:
    """What a query has left behind."""

    table: pa.Table
    ledger: Ledger
    query: StreamingQuery = field(repr=False)


@dataclass
class Files:
    """The inputs of a query, its checkpoint and its output, in one folder."""

    folder: Path
    written: int = 0

    def write(self, batches: Sequence[Batch], files: int = 1) -> None:
        """Add batches: for each stream so many files of each, or none if the stream is silent."""
        for batch in batches:
            for name, table in batch.items():
                place = self.folder / name
                place.mkdir(parents=True, exist_ok=True)
                for part in range(files):
                    start, end = (table.num_rows * i // files for i in (part, part + 1))
                    file = place / f"{self.written:04d}-{part}.parquet"
                    pq.write_table(table.slice(start, end - start), file)
                    # Spark reads files by their age.
                    age = 1_000_000 + self.written * files + part
                    os.utime(file, (age, age))
            self.written += 1

    def frames(self, spark: SparkSession, files: int = 1) -> dict[str, DataFrame]:
        """The streaming DataFrame of each stream, a batch at a time."""
        from streamshed.spark.types import struct_of

        frames = {}
        for place in sorted(self.folder.glob("[!_]*")):
            schema = struct_of(pq.read_schema(min(place.iterdir())))
            read = spark.readStream.schema(schema).option("maxFilesPerTrigger", files)
            frames[place.name] = read.parquet(str(place))
        return frames

    def start(self, frame: DataFrame) -> StreamingQuery:
        """Start a query over all that is there."""
        return (
            frame.writeStream.format("parquet")
            .option("path", str(self.folder / "_out"))
            .option("checkpointLocation", str(self.folder / "_checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    def results(self, frame: DataFrame) -> pa.Table:
        """What the sink holds, all batches together."""
        read = frame.sparkSession.read.schema(frame.schema)
        return read.parquet(str(self.folder / "_out")).toArrow()

    def run(
        self,
        spark: SparkSession,
        join: ss.Join,
        frames: Mapping[str, DataFrame] | None = None,
        **options: Any,
    ) -> Ran:
        """Run the join to the end of the files that are there, or go on where it stood."""
        frame = join.stream(self.frames(spark) if frames is None else frames, **options)
        return self.finish(frame)

    def finish(self, frame: DataFrame) -> Ran:
        """Run a query to the end of the files that are there, or go on where it stood."""
        from streamshed.spark import ledger

        query = self.start(frame)
        query.awaitTermination()
        accounts = ledger(query)
        assert accounts is not None
        return Ran(self.results(frame), accounts, query)


def on_the_wall(join: ss.Join, batches: Sequence[Batch], moments: Sequence[float]) -> Replay:
    """What a join with a queue makes of batches that end at moments on the wall, in microseconds.

    It can go by that clock on Spark alone; this is its operator, without Spark.
    """
    whole_plan = join.plan({name: rows.schema for name, rows in whole(batches).items()})
    assert whole_plan.queue is not None
    plan = replace(whole_plan, queue=whole_plan.queue.by_wall())
    operator = build_operator(plan)
    made = []
    for batch, moment in zip(batches, moments, strict=True):
        parts = [
            operator.read(position, batch[stream.name].combine_chunks().to_batches()[0])
            for position, stream in enumerate(plan.streams)
            if stream.name in batch
        ]
        together = merged(parts)
        operator.queue.come_until(together.time.size, moment)
        found = operator.process(together)
        made += [operator.results(block) for block in found if isinstance(block, Block)]
    table = pa.Table.from_batches(made, result_schema(plan))
    return Replay(table, operator.ledger(), {})


def rows(table: pa.Table, schema: pa.Schema | None = None) -> list[dict[str, Any]]:
    """The rows of a table, in an order of their own."""
    found: list[dict[str, Any]] = (table.cast(schema) if schema else table).to_pylist()
    return sorted(found, key=repr)


def counts(ledger: Ledger, summed: bool = False) -> dict[str, list[int]]:
    """What became of the rows, stream by stream or of all streams together."""
    streams = {
        str(name): [getattr(stream, fate) for fate in FATES]
        for name, stream in ledger.streams.items()
    }
    return {"all": [sum(c) for c in zip(*streams.values(), strict=True)]} if summed else streams


def check_same(ran: Ran, expected: Replay) -> None:
    """The same results, row for row, and the same fate of every row."""
    summed = len(ran.ledger.streams) != len(expected.ledger.streams)
    assert rows(ran.table, expected.table.schema) == rows(expected.table)
    assert counts(ran.ledger, summed) == counts(expected.ledger, summed)
    assert ran.ledger.results == expected.ledger.results
    for estimate in ("missed", "missed_lately", "keys", "sample_rate"):
        assert getattr(ran.ledger, estimate) == getattr(expected.ledger, estimate)
    assert ran.ledger.balanced
