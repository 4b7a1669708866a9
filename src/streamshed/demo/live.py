"""Three live streams joined on Spark with a budget too small for them, beside Spark's own join."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from streamshed.demo import funnel
from streamshed.demo.workloads import FunnelWorkload
from streamshed.errors import StreamshedError
from streamshed.estimates import Estimate
from streamshed.join import Join
from streamshed.spark import ledger
from streamshed.spark.chained import chained
from streamshed.spark.shared_memory import sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

PACE = 1.0
"""Seconds in which a minute of the streams goes by."""

_END = 75.0
"""When Spark's own join has to end, in seconds from the beginning of all; but it has"""
_LEAST = 20.0
"""seconds at least."""

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}
_RESULTS = "results"


@dataclass(frozen=True)
class Batch:
    """Where a query stands after a batch."""

    number: int
    rows: int
    """That the batch had, of all streams."""
    seconds: float
    """That it took."""
    held: int
    """Rows in the state."""
    shed: int
    """Rows that left for lack of room, up to now."""
    results: int
    """Up to now."""
    state_bytes: int
    recall: Estimate | None = None
    """The part of all results that were made, as the query itself estimates it."""


@dataclass(frozen=True)
class Outcome:
    """What a query did, from its beginning to its end."""

    batches: tuple[Batch, ...]
    trouble: str = ""
    """Why it did not come to the end of the streams."""

    @property
    def rows(self) -> int:
        """Rows in."""
        return sum(batch.rows for batch in self.batches)

    @property
    def results(self) -> int:
        """Results made."""
        return self.batches[-1].results if self.batches else 0

    @property
    def recall(self) -> Estimate | None:
        """The part of all results that were made, where the query estimates it."""
        return self.batches[-1].recall if self.batches else None

    @property
    def held(self) -> int:
        """The most rows in the state after a batch."""
        return max((batch.held for batch in self.batches), default=0)

    @property
    def state_bytes(self) -> int:
        """The most bytes of state after a batch."""
        return max((batch.state_bytes for batch in self.batches), default=0)

    @property
    def rows_per_second(self) -> float:
        """Of the time that batches took; waiting for rows does not count.

        Nor does the first batch, in which Spark and its workers get going, if there are others.
        """
        batches = self.batches[1:] or self.batches
        seconds = sum(batch.seconds for batch in batches)
        return sum(batch.rows for batch in batches) / seconds if seconds else 0.0


@dataclass(frozen=True)
class Comparison:
    """The join, Spark's own, and the number of results that there are."""

    ours: Outcome
    sparks: Outcome
    exact: int


def run(
    said: Join,
    workload: FunnelWorkload,
    tell: Callable[[str], None],
    show: Callable[[Batch], None],
) -> Comparison:
    """Run the join on live streams, then Spark's own on the same files.

    Args:
        said: the join of impressions, clicks and orders.
        workload: the streams.
        tell: is told what is being done.
        show: is shown each batch when it is done.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="streamshed-demo-") as name, _exact(workload) as exact:
        folder = Path(name)
        tell("starting Spark")
        with _session(folder) as spark:
            tell("compiling the join, unless it is cached")
            ours = _live(spark, said, workload, folder, tell, show)
            tell("the same files by Spark's own joins, one after the other")
            files = math.ceil(workload.minutes / len(ours.batches))
            until = max(started + _END, time.monotonic() + _LEAST)
            sparks = _own(spark, workload, folder, files, until, show)
        tell("counting the exact result")
        return Comparison(ours, sparks, exact.result())


# -- the two queries ------------------------------------------------------------------------------


def _live(
    spark: SparkSession,
    said: Join,
    workload: FunnelWorkload,
    folder: Path,
    tell: Callable[[str], None],
    show: Callable[[Batch], None],
) -> Outcome:
    """The join, while a thread writes the streams."""
    query = _started(said.stream(_streams(spark, workload, folder)), folder / "ours")
    tell(f"a minute of the streams comes in every {PACE:g} s, once the first batch is done")
    going, stop = threading.Event(), threading.Event()
    batches = []
    with ThreadPoolExecutor(1) as pool:
        fed = pool.submit(_feed, workload, folder, going, stop)
        try:
            for batch in _watched(query, _ours, lambda rows: fed.done() and rows >= fed.result()):
                going.set()
                batches.append(batch)
                show(batch)
        finally:
            stop.set()
            going.set()
            query.stop()
    return Outcome(tuple(batches))


def _feed(
    workload: FunnelWorkload, folder: Path, going: threading.Event, stop: threading.Event
) -> int:
    """Write a minute of the streams, and the others at their pace once it is going.

    Returns:
        How many rows there are.
    """
    rows = 0
    for written in workload.write(folder):
        rows += written
        going.wait()
        if stop.wait(PACE):
            break
    return rows


def _own(
    spark: SparkSession,
    workload: FunnelWorkload,
    folder: Path,
    files: int,
    until: float,
    show: Callable[[Batch], None],
) -> Outcome:
    """Spark's own join of the same files, so many at a time, until it is done or time is up."""
    frame = chained(_streams(spark, workload, folder, files), "session", "ts", "10 minutes")
    frame = frame.observe(_RESULTS, f.count(f.lit(1)).alias(_RESULTS))
    query = _started(frame, folder / "sparks", availableNow=True)
    batches = []
    trouble = ""
    try:
        for batch in _watched(query, _sparks, lambda rows: time.monotonic() > until):
            batches.append(batch)
            show(batch)
        if query.isActive:
            trouble = "stopped before it was done"
    except StreamshedError as error:
        trouble = f"which failed ({str(error).splitlines()[0]})"
    finally:
        query.stop()
    return Outcome(tuple(batches), trouble)


def _streams(
    spark: SparkSession, workload: FunnelWorkload, folder: Path, files: int | None = None
) -> dict[str, DataFrame]:
    """The streams as the files of them come in, or so many files of each at a time."""
    streams = {}
    for name, table in workload.tables().items():
        (folder / name).mkdir(exist_ok=True)
        reader = spark.readStream.schema(from_arrow_schema(table.schema))
        if files is not None:
            reader = reader.option("maxFilesPerTrigger", files)
        streams[name] = reader.parquet(str(folder / name))
    return streams


def _started(frame: DataFrame, folder: Path, **trigger: bool) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "results"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return (writer.trigger(**trigger) if trigger else writer).start()


# -- batch by batch -------------------------------------------------------------------------------


def _watched(
    query: StreamingQuery,
    read: Callable[[StreamingQuery, Mapping[str, Any], int], Batch],
    done: Callable[[int], bool],
) -> Iterator[Batch]:
    """The batches of a query as they are done, until it ends or enough rows have come."""
    last, rows, results = -1, 0, 0
    while True:
        going = query.isActive and not done(rows)
        for progress in query.recentProgress:
            if progress["batchId"] > last and progress["numInputRows"]:
                batch = read(query, progress, results)
                last, rows, results = batch.number, rows + batch.rows, batch.results
                yield batch
        if not going:
            break
        time.sleep(0.1)
    if (failure := query.exception()) is not None:
        raise StreamshedError(f"the query on Spark failed: {failure}")


def _ours(query: StreamingQuery, progress: Mapping[str, Any], _: int) -> Batch:
    accounts = ledger(query)
    assert accounts is not None
    streams = accounts.streams.values()
    return Batch(
        progress["batchId"],
        progress["numInputRows"],
        progress["durationMs"]["triggerExecution"] / 1000,
        held=sum(stream.stored for stream in streams),
        shed=sum(stream.shed for stream in streams),
        results=accounts.results,
        state_bytes=accounts.state_bytes + accounts.payload_bytes,
        recall=accounts.recall,
    )


def _sparks(_: StreamingQuery, progress: Mapping[str, Any], results: int) -> Batch:
    operators = progress["stateOperators"]
    return Batch(
        progress["batchId"],
        progress["numInputRows"],
        progress["durationMs"]["triggerExecution"] / 1000,
        held=sum(operator["numRowsTotal"] for operator in operators),
        shed=0,
        results=results + progress["observedMetrics"][_RESULTS][_RESULTS],
        state_bytes=sum(operator["customMetrics"]["rocksdbSstFileSize"] for operator in operators),
    )


# -- around them ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _exact(workload: FunnelWorkload) -> Iterator[Future[int]]:
    """The number of results without a budget, counted by another process in the meantime."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool.submit(_count, workload)


def _count(workload: FunnelWorkload) -> int:
    return funnel().count(workload.tables()).results


@contextlib.contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    """Spark where it is said to be, or else here on all cores; nothing is left of it at the end."""
    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "spark")
    builder = SparkSession.builder.appName("streamshed demo")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    with _errors_to(folder / "log"):
        spark = builder.getOrCreate()
    context = spark.sparkContext
    spark.conf.set("spark.sql.shuffle.partitions", context.defaultParallelism)
    gateway: Any = context._gateway
    try:
        yield spark
    finally:
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        sweep()


@contextlib.contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Let the processes that are started now write to a file what they write as errors.

    Spark's Python workers tell of every batch that they begin and end, whatever the log level.
    """
    before = os.dup(2)
    try:
        with log.open("wb") as opened:
            os.dup2(opened.fileno(), 2)
        yield
    except Exception as error:
        raise StreamshedError(f"Spark did not start: {log.read_text(errors='replace')}") from error
    finally:
        os.dup2(before, 2)
        os.close(before)
