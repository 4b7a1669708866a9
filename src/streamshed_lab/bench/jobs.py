"""What it takes to run a join in earnest: tuning it, starting its job, and looking at its page.

Tuning tries five policies with six budgets on an archive of a shop's funnel; what it recommends on
the first half of the archive is then tried on the second. The job is the same funnel from files, a
process of its own each time, beside Spark's own join of the same files. The page looks at a running
query, with a browser's connection open, and at one with the ledgers of a thousand streams.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

import streamshed as ss
from streamshed.demo import funnel
from streamshed.demo.workload import FunnelWorkload
from streamshed.page import serve
from streamshed.page.server import _Watched
from streamshed.spark.processor import FATES, SHED_BY, TOTALS
from streamshed.terminal import prepare_spark
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.timing import wall_time

TUNING_BAR = 60.0
POINTS_BAR = 2.0
START_BAR = 5.0
PAGE_BAR = 1.0
UPDATE_BAR = 1.0

POLICIES = ("density", "output", "existence", "random", "oldest")
WANTED = (0.8, 0.9, 0.95)
LEDGERS = 1_000
MINUTES = 97
"""Of the archive: both halves are several windows long."""
PATIENCE = 300.0


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    prepare_spark()
    yield from _tuning(400 if quick else 2_600, progress)
    yield from _ledgers(progress)
    with TemporaryDirectory() as folder:
        yield from _starting(Path(folder), 1 if quick else 3, progress)
        yield from _page(Path(folder), 8.0 if quick else 30.0, progress)


# -- tuning ---------------------------------------------------------------------------------------


def _tuning(sessions: int, progress: Progress) -> Iterator[Measurement]:
    tables = FunnelWorkload(sessions=sessions, minutes=MINUTES).tables()
    rows = sum(table.num_rows for table in tables.values())
    join, setting = funnel(), f"{rows:,} rows"
    progress(f"tuning: {setting}")
    join.tune({name: table.slice(0, 2_000) for name, table in tables.items()}, policies=POLICIES)
    seconds = wall_time(lambda: join.tune(tables, recall=WANTED[-1], policies=POLICIES))
    yield Measurement(
        f"tune, {len(POLICIES)} policies × 6 budgets, {setting}, by the clock on the wall",
        seconds,
        "s",
        bar=TUNING_BAR,
        at_most=True,
    )
    first = halved(tables)
    exact = results_after(join, tables, first)
    for wanted in WANTED:
        progress(f"tuning for a recall of {wanted:.0%} on the first half")
        best = join.tune(first, recall=wanted, policies=POLICIES).join
        recall = results_after(best, tables, first) / exact
        yield Measurement(
            f"recall on the second half, off the {wanted:.0%} wanted, {setting}",
            100 * abs(recall - wanted),
            "points",
            bar=POINTS_BAR,
            at_most=True,
        )


def halved(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The rows of the first half of the time."""
    middle = max(table["ts"][-1].value for table in tables.values()) // 2
    return {
        name: table.filter(pa.compute.less(table["ts"].cast(pa.int64()), middle))
        for name, table in tables.items()
    }


def results_after(
    join: ss.Join, tables: Mapping[str, pa.Table], first: Mapping[str, pa.Table]
) -> int:
    """Results that a join makes after the first part of its inputs."""
    return join.count(tables).results - join.count(first).results


# -- starting a job -------------------------------------------------------------------------------

JOB = """
checkpoint = "checkpoint"

[join]
on = "session"
within = {{ duration = "10 minutes", time = "ts" }}
keep = {{ total = 100_000 }}

[sink]
format = "noop"

[spark]
master = "local[2]"
conf = {{ "spark.ui.enabled" = false }}
{sources}
"""
SOURCE = """
[sources.{name}]
format = "parquet"
path = "{folder}/{name}"
"""
BARE = """
import sys
from pyspark.sql import SparkSession, functions as f

files, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", 4)
    .config("spark.log.level", "WARN")
    .config(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    .getOrCreate()
)


def stream(name):
    path = f"{files}/{name}"
    read = spark.readStream.schema(spark.read.parquet(path).schema).parquet(path)
    read = read.withWatermark("ts", "0 seconds")
    return read.select(*(f.col(column).alias(f"{name}_{column}") for column in read.columns))


def near(one, other):
    return f.expr(
        f"{one}_session = {other}_session and {one}_ts >= {other}_ts - interval 10 minutes"
        f" and {one}_ts <= {other}_ts + interval 10 minutes"
    )


joined = stream("clicks").join(stream("orders"), near("clicks", "orders"))
# Spark joins no further while two columns carry the mark of an event's time.
joined = joined.withColumn("orders_ts", f.col("orders_ts").alias("orders_ts", metadata={}))
joined = joined.join(stream("impressions"), near("clicks", "impressions"))
query = joined.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
query.awaitTermination()
"""
"""The same join by Spark alone."""


def _starting(folder: Path, repeats: int, progress: Progress) -> Iterator[Measurement]:
    files = folder / "files"
    for _ in FunnelWorkload(sessions=200, minutes=2).write(files):
        pass
    sources = "".join(
        SOURCE.format(name=name, folder=files) for name in ("impressions", "clicks", "orders")
    )
    (folder / "bare.py").write_text(BARE)

    def job(number: int) -> list[str]:
        here = folder / f"job-{number}"
        here.mkdir()
        (here / "job.toml").write_text(JOB.format(sources=sources))
        return [sys.executable, "-m", "streamshed.cli", "run", str(here / "job.toml")]

    def bare(number: int) -> list[str]:
        here = folder / f"bare-{number}"
        return [sys.executable, str(folder / "bare.py"), str(files), str(here / "checkpoint")]

    progress("starting a job: its kernels are compiled")
    _until_first_batch(job(0), folder / "job-0" / "checkpoint")
    times: dict[str, list[float]] = {"job": [], "bare": []}
    commands: dict[str, Callable[[int], list[str]]] = {"job": job, "bare": bare}
    for number in range(1, repeats + 1):
        for name, command in commands.items():
            progress(f"starting a job, {number} of {repeats}: {name}")
            checkpoint = folder / f"{name}-{number}" / "checkpoint"
            times[name].append(_until_first_batch(command(number), checkpoint))
    best = {name: min(seconds) for name, seconds in times.items()}
    yield Measurement("Spark's own join, from its start to the end of the first batch",
                      best["bare"], "s")  # fmt: skip
    yield Measurement("streamshed run, from its start to the end of the first batch",
                      best["job"], "s")  # fmt: skip
    yield Measurement(
        "streamshed run, first batch later than that of Spark's own join",
        best["job"] - best["bare"],
        "s",
        bar=START_BAR,
        at_most=True,
    )


def _until_first_batch(command: list[str], checkpoint: Path) -> float:
    """The seconds from the start of a process until its query has committed a batch."""
    log = checkpoint.parent.with_suffix(".log")
    with log.open("wb") as out:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        while not (checkpoint / "commits" / "0").exists():
            if process.poll() is not None or time.perf_counter() - started > PATIENCE:
                raise RuntimeError(f"no batch was done: {log.read_text()[-2_000:]}")
            time.sleep(0.02)
        return time.perf_counter() - started
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# -- the page -------------------------------------------------------------------------------------


def _shown(watched: _Watched) -> str:
    """Look at a query, and return what the page is told of its last batch."""
    watched.look()
    return json.dumps([*watched.batches][-1])


def _ledgers(progress: Progress) -> Iterator[Measurement]:
    """What a batch costs the page whose progress has the ledgers of very many streams."""
    progress(f"the page: {LEDGERS:,} ledgers")
    told = json.dumps(_told(LEDGERS))
    query = _Told()
    watched = _Watched(query)  # type: ignore[arg-type]
    best = float("inf")
    for batch in range(5):
        query.last = json.loads(told) | {"batchId": batch}
        best = min(best, wall_time(lambda: _shown(watched)))
    yield Measurement(
        f"an update of the page with the ledgers of {LEDGERS:,} streams",
        best,
        "s",
        bar=UPDATE_BAR,
        at_most=True,
    )


class _Told:
    """A query that says what it is told to."""

    name, id, runId = "told", "1", "1"  # noqa: N815 - Spark's names
    isActive = True  # noqa: N815
    status: Mapping[str, Any] = {"message": ""}
    last: Mapping[str, Any] = {}

    @property
    def lastProgress(self) -> Mapping[str, Any]:  # noqa: N802
        return self.last

    @property
    def recentProgress(self) -> list[Mapping[str, Any]]:  # noqa: N802
        return [self.last]


def _told(streams: int) -> dict[str, Any]:
    """The progress of a batch with the accounts of so many streams."""
    names = [f"s{number}" for number in range(streams)]
    fates = [7] * (streams * len(FATES))
    told = {
        "about": json.dumps({"streams": names, "rows": None, "bytes": None}),
        "counts": [[0] * len(TOTALS) + fates + [0] * len(SHED_BY)],
        **{what: [] for what in ("sampled", "importance", "paced", "spilled")},
    }
    return {
        "batchId": 0,
        "timestamp": "2027-01-15T08:00:00.000Z",
        "numInputRows": streams,
        "durationMs": {"triggerExecution": 500},
        "observedMetrics": {"streamshed 1: streams": told},
    }


def _page(folder: Path, seconds: float, progress: Progress) -> Iterator[Measurement]:
    """The time of a core that this process needs for a page, with a browser looking."""
    job = ss.Job(
        sources={name: {"format": "rate", "options": {"rowsPerSecond": 200}} for name in "ab"},
        join=ss.join("a", "b").on("value").within("1 minute", time="timestamp").keep(total=5_000),
        sink={"format": "noop"},
        checkpoint=str(folder / "rates"),
        trigger={"processingTime": "1 second"},
        spark={"master": "local[2]", "conf": {"spark.ui.enabled": False}},
    )
    progress("the page: a running job")
    session = job.session(**{"spark.log.level": "OFF"})
    try:
        query = job.start(session)
        while not query.recentProgress:
            time.sleep(0.1)
        alone = _processor_share(seconds)
        with serve(query, port=0) as page:
            looking = threading.Thread(target=_look, args=(f"{page.url}events",), daemon=True)
            looking.start()
            time.sleep(2.0)
            shown = _processor_share(seconds)
        query.stop()
    finally:
        session.stop()
    yield Measurement(
        "the page of a running job, with a browser looking",
        100 * (shown - alone),
        "% of a core",
        bar=PAGE_BAR,
        at_most=True,
    )


def _processor_share(seconds: float) -> float:
    """The part of a core that this process takes."""
    before, started = time.process_time(), time.perf_counter()
    time.sleep(seconds)
    return (time.process_time() - before) / (time.perf_counter() - started)


def _look(url: str) -> None:
    """Read what the page tells, as a browser does, until it ends."""
    try:
        with urllib.request.urlopen(url) as events:
            while events.readline():
                pass
    except OSError:  # the page has been closed
        return
