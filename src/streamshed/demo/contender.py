"""One join of the burst, in a process of its own: it tells of every batch in a line of JSON.

Each join has a process, so that the memory that the system counts is its own and nobody else's.
"""

from __future__ import annotations

import contextlib
import json
import select
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from streamshed.demo import WINDOW, funnel
from streamshed.spark.chained import chained
from streamshed.spark.daemon import DAEMON
from streamshed.spark.progress import ledgers_and_budgets
from streamshed.spark.shared_memory import sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMAS = {
    "impressions": "session long, ts timestamp, ad long",
    "clicks": "session long, ts timestamp, ad long",
    "orders": "session long, ts timestamp, price double",
}
TRIGGER = "2 seconds"
HEAP = "1g"

_STORE = "spark.sql.streaming.stateStore."
_SETTINGS = {
    "spark.driver.memory": HEAP,
    "spark.python.daemon.module": DAEMON,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    f"{_STORE}providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STORE}rocksdb.changelogCheckpointing.enabled": "true",
}
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


def main(folder: Path, budget: str, policy: str = "density") -> None:
    """Run a join of the files that come into a folder, until the standard input is closed.

    Args:
        folder: it has a folder for each stream.
        budget: the rows that the join may keep; "none" for all; "spark" for Spark's own join.
        policy: that evicts rows where there is a budget.
    """
    builder = SparkSession.builder.appName("streamshed demo").master("local[*]")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()
    streams = {
        name: spark.readStream.schema(schema).parquet(str(folder / name))
        for name, schema in SCHEMAS.items()
    }
    if budget == "spark":
        frame = _sparks(spark, streams)
    else:
        join = funnel() if budget == "none" else funnel().keep(total=int(budget)).shed(policy)
        frame = join.stream(streams)
    writer = frame.writeStream.format("parquet").option("path", str(folder / "results"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(processingTime=TRIGGER).start()
    try:
        _tell(query)
    finally:
        query.stop()
        spark.stop()
        sweep()


def _sparks(spark: SparkSession, streams: dict[str, DataFrame]) -> DataFrame:
    """Spark's own join: the smallest streams first, its state in the newest format there is."""
    for version in ("4", "3"):
        with contextlib.suppress(PySparkException):  # older releases refuse the number
            spark.conf.set(_FORMAT, version)
            break
    ordered = {name: streams[name] for name in reversed(SCHEMAS)}
    frame = chained(ordered, "session", "ts", WINDOW)
    return frame.observe("results", f.count(f.lit(1)).alias("results"))


def _tell(query: StreamingQuery) -> None:
    """Print what each batch did, until nobody listens any more or the query fails."""
    last, results = -1, 0
    while query.isActive and not select.select([sys.stdin], [], [], 0.1)[0]:
        newest = query.lastProgress
        if newest is None or newest["batchId"] == last:
            continue
        for progress in query.recentProgress:
            if progress["batchId"] > last and progress["numInputRows"]:
                last = progress["batchId"]
                told = _batch(progress, results)
                results = told["results"]
                print(json.dumps(told), flush=True)
    if (failure := query.exception()) is not None:
        print(json.dumps({"failed": str(failure).splitlines()[0]}), flush=True)


def _batch(progress: Mapping[str, Any], results: int) -> dict[str, Any]:
    """Where a query stands after a batch; of the batch alone are `rows` and `seconds`."""
    told = {"rows": progress["numInputRows"], "seconds": progress["batchDuration"] / 1e3}
    observed = progress["observedMetrics"]
    if (more := observed.get("results")) is not None:
        held = sum(operator["numRowsTotal"] for operator in progress["stateOperators"])
        return told | {"held": held, "results": results + more["results"]}
    ((accounts, _),) = ledgers_and_budgets(observed).values()
    told |= {
        "held": sum(stream.stored for stream in accounts.streams.values()),
        "results": accounts.results,
    }
    if (recall := accounts.recall) is not None:
        told |= {"recall": (recall.value, recall.low, recall.high)}
    return told


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
