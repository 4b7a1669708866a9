"""The join on Spark, beside Spark's own joins, a pipeline that does nothing, and one without state.

Three streams come as files, one file of each in every batch; windows are of sixty seconds, of which
a third or all passes in a batch. All contenders read the same files in one Spark, one after the
other, except where a job's first batch is timed: there each has a process of its own. Times are
medians over the second half of all batches, when the windows are full. Spark's own join holds rows
for two windows, and needs more batches to come to rest. It runs at its best: changelog checkpoints,
and on RocksDB the newest format of its state. Python workers talk to Java through Unix domain
sockets, as docs/deployment.md recommends; no contender but streamshed and the pipeline that does
nothing has Python workers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import streamshed as ss
from streamshed.join import spec_of
from streamshed.spark import ledger
from streamshed.spark.chained import chained
from streamshed.spark.processor import made
from streamshed.spark.progress import ledgers_and_budgets
from streamshed.spark.shared_memory import SWITCH, clear
from streamshed.spark.streaming import compiled, pipeline, prepared
from streamshed.terminal import prepare_spark
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.timing import best_of

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.query import StreamingQuery

STREAMS = ("a", "b", "c")
WINDOW = 60
"""Seconds."""
THIRD = WINDOW // 3
"""Seconds that pass in a batch where a window has three of them."""
PATIENCE = 420
"""Seconds after which a query is stopped. Spark's own join in memory may never come to its end:
with windows of millions of rows Java's memory is full, and all time goes into making room."""

SMALL_OVER_STATELESS_BAR = 1.6
FIRST_BATCH_BAR = 3.0
OVER_NOTHING_BAR = {100: 1.2, 100_000: 1.2, 1_000_000: 1.35}
"""By the rows of a stream in a batch."""
STATE_BAR = 0.5
GROWTH_BAR = 1.1
RESTART_BAR = 10.0

_STORE = "spark.sql.streaming.stateStore.providerClass"
_STORES = "org.apache.spark.sql.execution.streaming.state."
ROCKSDB = _STORES + "RocksDBStateStoreProvider"
MEMORY = _STORES + "HDFSBackedStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"

OVER_OWN_BAR = {
    (WINDOW, MEMORY): 2.8,
    (WINDOW, ROCKSDB): 8.0,
    (THIRD, MEMORY): 5.0,
    (THIRD, ROCKSDB): 12.0,
}
"""By the seconds of a batch, and the state store of Spark's own join."""


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    with TemporaryDirectory() as folder:
        if not quick:
            yield from first_batches(Path(folder), rounds=2, progress=progress)
        with local_spark(Path(folder), progress) as session:
            bench = SparkBench(session, Path(folder), progress)
            if quick:
                yield from bench.small(100, batches=8, rounds=2)  # in the first round Java is cold
                yield from bench.exact(100_000, WINDOW, 5, {MEMORY: 5}, rounds=2)
                return
            yield from bench.small(100, batches=10, rounds=2)
            yield from bench.exact(100_000, WINDOW, 8, {ROCKSDB: 6, MEMORY: 10}, rounds=2)
            yield from bench.exact(100_000, THIRD, 8, {ROCKSDB: 7, MEMORY: 10}, rounds=1)
            yield from bench.unshared(100_000, batches=6)
            yield from bench.bounded(100_000, batches=14)
            yield from bench.restart(100_000, stored=1_000_000)
            yield from bench.exact(1_000_000, THIRD, 4, {}, rounds=1)


def _gigabytes() -> int:
    """The memory that Java may have: enough for Spark's own join, if the machine has it."""
    return max(4, min(6, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**31))


@contextmanager
def local_spark(folder: Path, progress: Progress) -> Iterator[SparkSession]:
    """A Spark of its own."""
    prepare_spark()
    progress("starting Spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("streamshed bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", f"{_gigabytes()}g")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config(_CHANGELOG, "true")
        .config(_UNIX_SOCKETS, "true")
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
        return statistics.median(self.seconds[len(self.seconds) // 2 :])

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

    def small(self, rows: int, batches: int, rounds: int) -> Iterator[Measurement]:
        """Batches of few rows, where nearly all time is that of Spark itself.

        Args:
            rows: of each stream in a batch.
            batches: how many.
            rounds: how often the contenders take turns.
        """
        setting = f"{len(STREAMS) * rows:,} rows a batch"
        files = self._files(rows, THIRD, batches)

        def stateless() -> _Run:
            self.progress(f"{setting}: a query without state")
            return self._run(reduce(DataFrame.union, self._sources(files, batches).values()))

        runs = {
            "streamshed": lambda: self._ours(
                measured_join(), files, batches, f"{setting}: streamshed"
            ),
            "a query without state": stateless,
            "a pipeline that does nothing": lambda: self._nothing(
                files, batches, f"{setting}: a pipeline that does nothing"
            ),
            "Spark's own join of two streams": lambda: self._own(
                ROCKSDB, files, batches, f"{setting}: Spark's two-way join", STREAMS[:2]
            ),
        }
        best = best_of(rounds, {name: _steady(one) for name, one in runs.items()})
        for name, seconds in best.items():
            yield Measurement(f"time of a batch: {name}, {setting}", 1000 * seconds, "ms")
        yield Measurement(
            f"time of a batch over that of a query without state, {setting}",
            best["streamshed"] / best["a query without state"],
            "times",
            bar=SMALL_OVER_STATELESS_BAR,
            at_most=True,
        )
        yield Measurement(
            f"time of a batch over that of a pipeline that does nothing, {setting}",
            best["streamshed"] / best["a pipeline that does nothing"],
            "times",
            bar=OVER_NOTHING_BAR.get(rows),
            at_most=True,
        )

    def exact(
        self, rows: int, passes: int, batches: int, own_batches: dict[str, int], rounds: int
    ) -> Iterator[Measurement]:
        """The exact join, beside Spark's own with both state stores, and beside doing nothing.

        Args:
            rows: of each stream in a batch.
            passes: seconds that pass in a batch.
            batches: how many.
            own_batches: how many Spark's own joins do, by their state store.
            rounds: how often the join and the pipeline that does nothing take turns.
        """
        setting = _setting(rows, passes)
        files = self._files(rows, passes, max(batches, *own_batches.values(), 0))
        turns = []
        for turn in range(rounds):  # in turns: Java gets faster while it runs
            said = f"{setting}, round {turn + 1} of {rounds}"
            ours = self._ours(measured_join(), files, batches, f"{said}: streamshed")
            nothing = self._nothing(files, batches, f"{said}: a pipeline that does nothing")
            turns.append((ours, nothing))
        ours = min((ours for ours, _ in turns), key=lambda done: done.steady)
        nothing = min((nothing for _, nothing in turns), key=lambda done: done.steady)
        yield Measurement(f"streamshed, {setting}", ours.rate, "rows/s")
        made = f"results of {len(ours.results)} batches, {setting}"
        yield Measurement(made, sum(ours.results), "results")
        yield Measurement(f"a pipeline that does nothing, {setting}", nothing.rate, "rows/s")
        yield Measurement(
            f"time of a batch over that of a pipeline that does nothing, {setting}",
            ours.steady / nothing.steady,
            "times",
            bar=OVER_NOTHING_BAR.get(rows),
            at_most=True,
        )
        for store, many in own_batches.items():  # memory last, for it may take all there is
            kind = "on RocksDB" if store == ROCKSDB else "in memory"
            own = self._own(store, files, many, f"{setting}: Spark's join {kind}")
            yield from _beside(setting, kind, ours, own, OVER_OWN_BAR[passes, store])
            both = min(len(ours.seconds), len(own.seconds)) - 1
            sizes = (
                ("state store", ours.store_bytes[both], own.store_bytes[both])
                if store == ROCKSDB
                else ("memory", ours.memory_bytes[both], own.memory_bytes[both])
            )
            what, mine, theirs = sizes
            yield from _beside_state(f"{what}, after {both + 1} batches, {setting}", mine, theirs)

    def unshared(self, rows: int, batches: int) -> Iterator[Measurement]:
        """The exact join where workers share no memory: most begin with the state store."""
        setting = _setting(rows, THIRD)
        files = self._files(rows, THIRD, batches)
        shared = self._ours(measured_join(), files, batches, f"{setting}: with shared memory")
        environment = self.session.sparkContext.environment
        environment[SWITCH] = "off"
        try:
            alone = self._ours(measured_join(), files, batches, f"{setting}: without shared memory")
        finally:
            del environment[SWITCH]
        yield Measurement(f"streamshed without shared memory, {setting}", alone.rate, "rows/s")
        yield Measurement(
            f"speed without shared memory over that with it, {setting}",
            alone.rate / shared.rate,
            "times",
        )

    def bounded(self, rows: int, batches: int) -> Iterator[Measurement]:
        """The join within a tenth of the rows that it needs, batch after batch."""
        budget = rows * WINDOW // THIRD // 10
        setting = f"{budget:,} rows kept of each stream, 3 × {rows:,} rows a batch"
        files = self._files(rows, THIRD, batches)
        kept = measured_join().keep(rows=budget)
        done = self._ours(kept, files, batches, f"{setting}: streamshed")
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
            f"time of the last 5 of {len(done.seconds)} batches over that of batches 5 to 9,"
            f" {setting}",
            statistics.median(late) / statistics.median(early),
            "times",
            bar=GROWTH_BAR,
            at_most=True,
        )

    def restart(self, rows: int, stored: int) -> Iterator[Measurement]:
        """A query goes on from its checkpoint, and nothing else is left of it."""
        batches = -(-stored // (rows * len(STREAMS)))
        join = measured_join(window=THIRD * (batches + 2))
        files = self._files(rows, THIRD, batches + 1)
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
        files = self._files(rows, THIRD, batches)
        frame = measured_join().stream(self._sources(files, batches), shards=shards)
        return self._run(frame).steady

    def outer(self, rows: int, batches: int, bar: float) -> Iterator[Measurement]:
        """Rows of a without a match in b, beside Spark's left outer join on RocksDB."""
        setting = f"left outer join, 2 × {rows:,} rows a batch"
        files = self._files(rows, THIRD, batches)
        pair = STREAMS[:2]
        join = ss.join(*pair).on("key").within(f"{WINDOW} seconds", time="time").unmatched("a")
        self.progress(f"{setting}: streamshed")
        self.session.conf.set(_STORE, ROCKSDB)
        sources = self._sources(files, batches)
        ours = self._run(join.stream({name: sources[name] for name in pair}))
        self.progress(f"{setting}: Spark's join on RocksDB")
        use_newest_format(self.session, ROCKSDB)
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
        spec = spec_of(measured_join())
        plan, frames, sharding = prepared(spec, self._sources(files, batches), None)
        return self._run(pipeline(plan, frames, sharding, _Idle()))

    def _own(
        self, store: str, files: Path, batches: int, said: str, streams: tuple[str, ...] = STREAMS
    ) -> _Run:
        self.progress(said)
        use_newest_format(self.session, store)
        sources = self._sources(files, batches)
        return self._run(own_join({name: sources[name] for name in streams}))

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

    def _files(self, rows: int, passes: int, batches: int) -> Path:
        """The streams as files, a file of each for every batch."""
        return written(self.folder, rows, passes, batches)

    def _sources(self, files: Path, batches: int) -> dict[str, DataFrame]:
        """The first so many files of each stream, one in every batch."""
        return sources(self.session, files, batches)


def written(folder: Path, rows: int, passes: int, batches: int) -> Path:
    """Write the streams as files, a file of each for every batch, unless they are there.

    Args:
        folder: for all files.
        rows: of each stream in a batch.
        passes: seconds that pass in a batch.
        batches: how many.
    """
    place = folder / f"{rows}-{passes}"
    for position, stream in enumerate(STREAMS):
        (place / stream).mkdir(parents=True, exist_ok=True)
        for batch in range(batches):
            path = place / stream / f"{batch:03d}.parquet"
            if path.exists():
                continue
            random = np.random.default_rng([rows, position, batch])
            begin, length = batch * passes * 1_000_000, passes * 1_000_000
            times = np.sort(random.integers(begin, begin + length, rows))
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
    return place


def sources(session: SparkSession, files: Path, batches: int) -> dict[str, DataFrame]:
    """The first so many files of each stream, one in every batch."""
    found = {}
    for stream in STREAMS:
        paths = sorted((files / stream).iterdir())[:batches]
        schema = session.read.parquet(str(paths[0])).schema
        chosen = "{" + ",".join(path.name for path in paths) + "}"
        found[stream] = (
            session.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(files / stream / chosen))
        )
    return found


def use_newest_format(session: SparkSession, store: str) -> None:
    """Choose the state store of Spark's own joins, and the best format of their state there."""
    session.conf.set(_STORE, store)
    session.conf.unset(_FORMAT)
    for version in ("4", "3") if store == ROCKSDB else ():
        with contextlib.suppress(PySparkException):  # older releases refuse the number
            session.conf.set(_FORMAT, version)
            return


def own_join(streams: dict[str, DataFrame]) -> DataFrame:
    """Spark's own join of streams."""
    return chained(streams, "key", "time", f"{WINDOW} seconds")


def first_batches(folder: Path, rounds: int, progress: Progress) -> Iterator[Measurement]:
    """The first batch of a job in a new process, beside that of Spark's own join.

    It counts from the call of `.stream()`, so that whatever is compiled or loaded counts too.
    """
    rows = 100_000
    files = written(folder, rows, THIRD, 1)
    schemas = {name: pq.read_schema(min((files / name).iterdir())) for name in STREAMS}
    progress("compiling what is not compiled yet")
    compiled(measured_join().plan(schemas))

    def took(contender: str) -> float:
        progress(f"first batch of a job: {contender}")
        command = [sys.executable, "-m", "streamshed_lab.bench.first_batch", contender, str(files)]
        variables = os.environ | {"PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        return float(done.stdout.split()[-1])

    names = ("streamshed", "Spark's own join")
    best = best_of(rounds, {name: partial(took, name) for name in names})
    setting = f"3 × {rows:,} rows, with compiled kernels at hand"
    for name, seconds in best.items():
        yield Measurement(f"first batch of a job: {name}, {setting}", seconds, "s")
    ours, theirs = best.values()
    yield Measurement(
        f"first batch of a job less that of Spark's own join, {setting}",
        ours - theirs,
        "s",
        bar=FIRST_BATCH_BAR,
        at_most=True,
    )


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
        yield made(counts=[])

    def close(self) -> None:
        """Nothing to close."""


def measured_join(window: int = WINDOW) -> ss.Join:
    """The join that is measured."""
    return ss.join(*STREAMS).on("key").within(f"{window} seconds", time="time")


def _steady(run: Callable[[], _Run]) -> Callable[[], float]:
    return lambda: run().steady


def _setting(rows: int, passes: int) -> str:
    batches = "a batch" if passes == WINDOW else f"{WINDOW // passes} batches"
    return f"exact, 3 × {rows:,} rows a batch, windows of {batches}"


def _finish(query: StreamingQuery) -> _Run:
    """Wait for the end of a query, but not for ever; returns what its progress tells."""
    stopped = not query.awaitTermination(PATIENCE)
    if stopped:
        query.stop()
    done = [batch for batch in query.recentProgress if batch["numInputRows"] > 0]
    operators = [batch["stateOperators"] for batch in done]
    observed = [batch["observedMetrics"] for batch in done]
    accounts = [
        ledger for metrics in observed for ledger, _ in ledgers_and_budgets(metrics).values()
    ]
    return _Run(
        seconds=[batch["durationMs"]["triggerExecution"] / 1000 for batch in done],
        stopped=stopped,
        results=[metrics["made"]["results"] for metrics in observed if "made" in metrics],
        rows=int(statistics.median(batch["numInputRows"] for batch in done)),
        store_bytes=[
            sum(operator["customMetrics"].get("rocksdbSstFileSize", 0) for operator in batch)
            for batch in operators
        ],
        memory_bytes=[one.state_bytes + one.payload_bytes for one in accounts]
        or [sum(operator["memoryUsedBytes"] for operator in batch) for batch in operators],
        stored=[max(stream.stored for stream in one.streams.values()) for one in accounts],
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
