"""The join on Spark, beside Spark's own joins and a pipeline that does nothing.

Three streams come as files, one file of each in every batch; windows are of sixty seconds, a third
of that passes in a batch. All contenders read the same files in one Spark, one after the other.
Times are medians over the last batches, when the windows are full. Spark's own join holds rows for
two windows, and needs more batches to come to rest.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import streamshed as ss
from streamshed.join import spec_of
from streamshed.spark import ledger
from streamshed.spark.chained import chained
from streamshed.spark.processor import ACCOUNTS, made
from streamshed.spark.shared_memory import clear
from streamshed.spark.streaming import pipeline, prepared
from streamshed.terminal import prepare_spark
from streamshed_lab.bench import Measurement, Progress

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.query import StreamingQuery

STREAMS = ("a", "b", "c")
PASSES = 20
"""Seconds that pass in a batch."""
WINDOW = 60
PATIENCE = 420
"""Seconds after which a query is stopped. Spark's own join in memory may never come to its end:
with windows of millions of rows Java's memory is full, and all time goes into making room."""
STEADY = 3
"""The last batches, which are timed: the windows are full by then."""

OVER_ROCKSDB_BAR = 5.0
OVER_MEMORY_BAR = 2.5
OVER_NOTHING_BAR = 1.35
STATE_BAR = 0.5
GROWTH_BAR = 1.1
RESTART_BAR = 10.0

_STORE = "spark.sql.streaming.stateStore.providerClass"
_STORES = "org.apache.spark.sql.execution.streaming.state."
ROCKSDB = _STORES + "RocksDBStateStoreProvider"
MEMORY = _STORES + "HDFSBackedStateStoreProvider"


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    with TemporaryDirectory() as folder, local_spark(Path(folder), progress) as session:
        bench = SparkBench(session, Path(folder), progress)
        slow = 5 if quick else 9
        yield from bench.exact(100_000, 6, {ROCKSDB: slow, MEMORY: 9}, rounds=2 if quick else 4)
        yield from bench.bounded(100_000, batches=22)
        yield from bench.restart(100_000, stored=1_000_000)
        if not quick:
            yield from bench.exact(1_000_000, 6, {ROCKSDB: 4, MEMORY: 5}, rounds=1)


def _gigabytes() -> int:
    """The memory that Java may have: half of the machine's, so that Spark's own join has enough."""
    return max(4, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**31)


@contextmanager
def local_spark(folder: Path, progress: Progress) -> Iterator[SparkSession]:
    """A Spark of its own."""
    prepare_spark()
    progress("starting Spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("streamshed bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", f"{_gigabytes()}g")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


@dataclass(frozen=True)
class _Run:
    """What a query did, batch by batch."""

    seconds: list[float]
    stopped: bool
    """Whether it was stopped before its end, because it took too long."""
    results: list[int]
    rows: int
    store_bytes: list[int]
    memory_bytes: list[int]
    stored: list[int]

    @property
    def steady(self) -> float:
        """The seconds of a batch once everything runs."""
        return statistics.median(self.seconds[-STEADY:])

    @property
    def rate(self) -> float:
        """Rows in a second."""
        return self.rows / self.steady


class SparkBench:
    """The contenders, and the files that all of them read."""

    def __init__(self, session: SparkSession, folder: Path, progress: Progress) -> None:
        self.session = session
        self.folder = folder
        self.progress = progress
        self.checkpoints = 0

    # -- what is measured ------------------------------------------------------------------------

    def exact(
        self, rows: int, batches: int, spark_batches: dict[str, int], rounds: int
    ) -> Iterator[Measurement]:
        """The exact join, beside Spark's own with both state stores, and beside doing nothing.

        Args:
            rows: of each stream in a batch.
            batches: how many.
            spark_batches: how many Spark's own joins do, by their state store.
            rounds: how often the join and the pipeline that does nothing take turns.
        """
        setting = f"exact, 3 × {rows:,} rows a batch"
        files = self._files(rows, max(batches, *spark_batches.values()))
        turns = []
        for turn in range(rounds):  # in turns: Java gets faster while it runs
            said = f"{setting}, round {turn + 1} of {rounds}"
            ours = self._ours(_join(), files, batches, f"{said}: streamshed")
            nothing = self._nothing(files, batches, f"{said}: a pipeline that does nothing")
            turns.append((ours, nothing))
        ours = min((ours for ours, _ in turns), key=lambda done: done.steady)
        nothing = min((nothing for _, nothing in turns), key=lambda done: done.steady)
        rocks = self._own(
            ROCKSDB, files, spark_batches[ROCKSDB], f"{setting}: Spark's join on RocksDB"
        )
        yield Measurement(f"streamshed, {setting}", ours.rate, "rows/s")
        made = f"results of {len(ours.results)} batches, {setting}"
        yield Measurement(made, sum(ours.results), "results")
        yield Measurement(f"a pipeline that does nothing, {setting}", nothing.rate, "rows/s")
        yield Measurement(
            f"time of a batch over that of a pipeline that does nothing, {setting}",
            ours.steady / nothing.steady,
            "times",
            bar=OVER_NOTHING_BAR,
            at_most=True,
        )
        yield from _beside(setting, "on RocksDB", ours, rocks, OVER_ROCKSDB_BAR)
        both = min(len(ours.seconds), len(rocks.seconds))
        yield from _beside_state(
            f"state store, after {both} batches, {setting}",
            ours.store_bytes[both - 1],
            rocks.store_bytes[both - 1],
        )
        # The last, for it may take all the memory there is.
        memory = self._own(
            MEMORY, files, spark_batches[MEMORY], f"{setting}: Spark's join in memory"
        )
        yield from _beside(setting, "in memory", ours, memory, OVER_MEMORY_BAR)
        both = min(len(ours.seconds), len(memory.seconds))
        yield from _beside_state(
            f"memory, after {both} batches, {setting}",
            ours.memory_bytes[both - 1],
            memory.memory_bytes[both - 1],
        )

    def bounded(self, rows: int, batches: int) -> Iterator[Measurement]:
        """The join within a tenth of the rows that it needs, batch after batch."""
        budget = rows * WINDOW // PASSES // 10
        setting = f"{budget:,} rows kept of each stream, 3 × {rows:,} rows a batch"
        files = self._files(rows, batches)
        done = self._ours(_join().keep(rows=budget), files, batches, f"{setting}: streamshed")
        yield Measurement(f"streamshed, {setting}", done.rate, "rows/s")
        yield Measurement(
            f"most rows stored of a stream in {len(done.seconds)} batches, {setting}",
            max(done.stored),
            "rows",
            bar=budget,
            at_most=True,
        )
        yield Measurement(f"most of the state store, {setting}", max(done.store_bytes), "bytes")
        early, late = done.seconds[4:9], done.seconds[-5:]
        yield Measurement(
            f"time of batches {len(done.seconds) - 4} to {len(done.seconds)} over 5 to 9,"
            f" {setting}",
            statistics.median(late) / statistics.median(early),
            "times",
            bar=GROWTH_BAR,
            at_most=True,
        )

    def restart(self, rows: int, stored: int) -> Iterator[Measurement]:
        """A query goes on from its checkpoint, and nothing else is left of it."""
        batches = -(-stored // (rows * len(STREAMS)))
        join = _join(window=PASSES * (batches + 2))
        files = self._files(rows, batches + 1)
        checkpoint = self._checkpoint()
        self.progress(f"restart: storing {stored:,} rows")
        _finish(self._start(join.stream(self._sources(files, batches)), checkpoint))
        clear()
        self.progress("restart: going on")
        began = time.perf_counter()
        query = self._start(join.stream(self._sources(files, batches + 1)), checkpoint)
        _finish(query)
        took = time.perf_counter() - began
        accounts = ledger(query)
        assert accounts is not None
        before = sum(stream.stored for stream in accounts.streams.values()) - rows * len(STREAMS)
        yield Measurement(
            f"restart from a checkpoint with {before:,} rows, a batch of {3 * rows:,} included",
            took,
            "s",
            bar=RESTART_BAR,
            at_most=True,
        )

    def in_shards(self, rows: int, shards: int, batches: int) -> float:
        """The seconds of a batch of the exact join in so many shards, a partition for each."""
        self.progress(f"{shards} shards, 3 × {rows:,} rows a batch")
        self.session.conf.set("spark.sql.shuffle.partitions", shards)
        self.session.conf.set(_STORE, ROCKSDB)
        files = self._files(rows, batches)
        frame = _join().stream(self._sources(files, batches), shards=shards)
        return self._run(frame).steady

    def outer(self, rows: int, batches: int, bar: float) -> Iterator[Measurement]:
        """Rows of a without a match in b, beside Spark's left outer join on RocksDB."""
        setting = f"left outer join, 2 × {rows:,} rows a batch"
        files = self._files(rows, batches)
        pair = STREAMS[:2]
        join = ss.join(*pair).on("key").within(f"{WINDOW} seconds", time="time").unmatched("a")
        self.progress(f"{setting}: streamshed")
        self.session.conf.set(_STORE, ROCKSDB)
        sources = self._sources(files, batches)
        ours = self._run(join.stream({name: sources[name] for name in pair}))
        self.progress(f"{setting}: Spark's join on RocksDB")
        sources = self._sources(files, batches)
        within = f"{WINDOW} seconds"
        own = chained({name: sources[name] for name in pair}, "key", "time", within, "left_outer")
        theirs = self._run(own)
        yield Measurement(f"streamshed, {setting}", ours.rate, "rows/s")
        yield Measurement(f"Spark's own on RocksDB, {setting}", theirs.rate, "rows/s")
        name = f"streamshed over Spark's own on RocksDB, {setting}"
        yield Measurement(name, ours.rate / theirs.rate, "times", bar=bar)
        made, other = sum(ours.results), sum(theirs.results)
        name = f"results by the last batch, less those of Spark's own, {setting}"
        yield Measurement(name, made - other, "results", bar=0)

    # -- the contenders --------------------------------------------------------------------------

    def _ours(self, join: ss.Join, files: Path, batches: int, said: str) -> _Run:
        self.progress(said)
        self.session.conf.set(_STORE, ROCKSDB)
        return self._run(join.stream(self._sources(files, batches)))

    def _nothing(self, files: Path, batches: int, said: str) -> _Run:
        self.progress(said)
        self.session.conf.set(_STORE, ROCKSDB)
        plan, frames, sharding = prepared(spec_of(_join()), self._sources(files, batches), None)
        return self._run(pipeline(plan, frames, sharding, _Idle()))

    def _own(self, store: str, files: Path, batches: int, said: str) -> _Run:
        self.progress(said)
        self.session.conf.set(_STORE, store)
        return self._run(chained(self._sources(files, batches), "key", "time", f"{WINDOW} seconds"))

    def _run(self, frame: DataFrame) -> _Run:
        counted = frame.observe("made", f.count(f.lit(1)).alias("results"))
        return _finish(self._start(counted, self._checkpoint()))

    def _start(self, frame: DataFrame, checkpoint: Path) -> StreamingQuery:
        return (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def _checkpoint(self) -> Path:
        """A new folder; the former one is of no use any more."""
        shutil.rmtree(self.folder / f"checkpoint-{self.checkpoints}", ignore_errors=True)
        self.checkpoints += 1
        return self.folder / f"checkpoint-{self.checkpoints}"

    # -- the files -------------------------------------------------------------------------------

    def _files(self, rows: int, batches: int) -> Path:
        """The streams as files, a file of each for every batch."""
        folder = self.folder / f"{rows}"
        for position, stream in enumerate(STREAMS):
            (folder / stream).mkdir(parents=True, exist_ok=True)
            for batch in range(batches):
                path = folder / stream / f"{batch:03d}.parquet"
                if path.exists():
                    continue
                random = np.random.default_rng([rows, position, batch])
                begin = batch * PASSES * 1_000_000
                times = np.sort(random.integers(begin, begin + PASSES * 1_000_000, rows))
                table = pa.table(
                    {
                        "key": random.integers(0, 10 * rows, rows),
                        "time": pa.array(times, pa.timestamp("us", tz="UTC")),
                        "value": random.random(rows),
                        "number": np.arange(batch * rows, (batch + 1) * rows),
                    }
                )
                pq.write_table(table, path)
                os.utime(path, (batch, batch))  # the order in which Spark takes them
        return folder

    def _sources(self, files: Path, batches: int) -> dict[str, DataFrame]:
        """The first so many files of each stream, one in every batch."""
        found = {}
        for stream in STREAMS:
            paths = sorted((files / stream).iterdir())[:batches]
            schema = self.session.read.parquet(str(paths[0])).schema
            chosen = "{" + ",".join(path.name for path in paths) + "}"
            found[stream] = (
                self.session.readStream.schema(schema)
                .option("maxFilesPerTrigger", 1)
                .parquet(str(files / stream / chosen))
            )
        return found


class _Idle(StatefulProcessor):
    """Takes the blobs of a shard and says how many bytes they were."""

    def init(self, handle: Any) -> None:
        """Open a state, as an operator that has one does."""
        self.seen = handle.getValueState("seen", "bytes long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Count, and nothing else."""
        size = sum(len(blob) for frame in rows for blob in frame.rows)
        self.seen.update((size,))
        yield made(ACCOUNTS, counts=[])

    def close(self) -> None:
        """Nothing to close."""


def _join(window: int = WINDOW) -> ss.Join:
    return ss.join(*STREAMS).on("key").within(f"{window} seconds", time="time")


def _finish(query: StreamingQuery) -> _Run:
    """Wait for the end of a query, but not for ever; returns what its progress tells."""
    stopped = not query.awaitTermination(PATIENCE)
    if stopped:
        query.stop()
    done = [batch for batch in query.recentProgress if batch["numInputRows"] > 0]
    operators = [batch["stateOperators"] for batch in done]
    observed = [batch["observedMetrics"] for batch in done]
    accounts = [metrics["streamshed"].asDict() for metrics in observed if "streamshed" in metrics]
    accounts = [account for account in accounts if account["results"] is not None]
    return _Run(
        seconds=[batch["durationMs"]["triggerExecution"] / 1000 for batch in done],
        stopped=stopped,
        results=[metrics["made"]["results"] for metrics in observed if "made" in metrics],
        rows=int(statistics.median(batch["numInputRows"] for batch in done)),
        store_bytes=[
            sum(operator["customMetrics"].get("rocksdbSstFileSize", 0) for operator in batch)
            for batch in operators
        ],
        memory_bytes=[
            int(account["state_bytes"]) + int(account["payload_bytes"]) for account in accounts
        ]
        or [sum(operator["memoryUsedBytes"] for operator in batch) for batch in operators],
        stored=[
            max(int(batch.get(f"{stream}.stored") or 0) for stream in STREAMS) for batch in accounts
        ],
    )


def _beside(setting: str, kind: str, ours: _Run, theirs: _Run, bar: float) -> Iterator[Measurement]:
    """How fast Spark's own join is, how much faster ours, and whether results are as many."""
    ended = f", stopped in batch {len(theirs.seconds) + 1}" if theirs.stopped else ""
    yield Measurement(f"Spark's own join {kind}{ended}, {setting}", theirs.rate, "rows/s")
    yield Measurement(
        f"streamshed over Spark's own join {kind}, {setting}",
        ours.rate / theirs.rate,
        "times",
        bar=bar,
    )
    both = min(len(ours.results), len(theirs.results))
    made, other = sum(ours.results[:both]), sum(theirs.results[:both])
    yield Measurement(
        f"results of streamshed less those of Spark {kind}, {setting}",
        abs(made - other),
        "results",
        bar=0,
        at_most=True,
    )


def _beside_state(what: str, ours: int, theirs: int) -> Iterator[Measurement]:
    """The bytes of both."""
    yield Measurement(f"{what}: streamshed", ours, "bytes")
    yield Measurement(f"{what}: Spark's own join", theirs, "bytes")
    yield Measurement(
        f"{what}: streamshed over Spark's own join",
        ours / theirs,
        "times",
        bar=STATE_BAR,
        at_most=True,
    )
