"""Joins of a client of Spark Connect, in a process of its own: Spark has one kind of session."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import streamshed as ss
from queries import BATCHES, THROUGH, joined, workload
from streaming import Files, check_same, cut, replayed, rows
from streamshed.spark import LedgerListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def connected(address: str) -> SparkSession:
    """A session of a server."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(address).getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def run(spark: SparkSession, folder: Path) -> None:
    """Joins by a key and through a relation, of streams and of batches, and by the clock."""
    for name, policy in (("key", "exact"), ("relation", THROUGH)):
        batches = cut(workload(policy), BATCHES)
        files = Files(folder / name)
        files.write(batches)
        check_same(files.run(spark, joined(policy)), replayed(joined(policy), batches))
        print(name)

    join, batches = joined("exact"), cut(workload("exact"), 1)
    whole = {name: spark.createDataFrame(table) for name, table in batches[0].items()}
    expected = replayed(join, batches).table
    assert rows(join.stream(whole).toArrow(), expected.schema) == rows(expected)
    print("batch")

    files = Files(folder / "wall")
    files.write(batches)
    ran = files.run(spark, join.throttle("keep up"))
    assert ran.ledger.capacity is not None
    assert ran.ledger.balanced
    print("wall")

    polled(spark, folder)
    print("polled")


def polled(spark: SparkSession, folder: Path) -> None:
    """A relation that is read anew while a query runs, and after it has been started again."""
    table, versions, files = folder / "pairs.parquet", folder / "versions", Files(folder / "polled")
    pairs = ss.relation(str(table), refresh="1 second", versions=str(versions))
    join = ss.join("r", "s").on(r="x", s="y").within(100, time="ts").through(pairs, r="a", s="b")

    def change(facts: dict[str, list], count: int) -> None:
        """Write the table, and wait until it counts."""
        pq.write_table(pa.table(facts), new := table.with_suffix(".new"))
        os.replace(new, table)
        until = time.monotonic() + 60
        while count and len([*versions.glob("since-*")]) < count:
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(2.1 if count else 0)

    def bring(ts: int) -> None:
        x, y = pa.array([1, 2, 3]), pa.array(["p", "q", "r"])
        files.write(
            [{"r": pa.table({"ts": [ts] * 3, "x": x}), "s": pa.table({"ts": [ts] * 3, "y": y})}]
        )

    change({"a": [1, 2], "b": ["p", "q"], "note": ["one", "two"]}, 0)
    bring(1)
    frame = join.stream(files.frames(spark), shards=4)
    writing = frame.writeStream.option("checkpointLocation", str(files.folder / "_checkpoint"))
    query = writing.format("parquet").start(str(files.folder / "_out"))
    query.processAllAvailable()
    change({"a": [1, 3], "b": ["q", "r"], "note": ["ONE", "THREE"]}, 2)
    bring(200)
    query.processAllAvailable()
    query.stop()
    bring(400)
    made = files.run(spark, join, shards=4).table.to_pylist()
    found = sorted((row["r"]["ts"], row["s"]["ts"], row["relation"]["note"]) for row in made)
    after = [(ts, ts, note) for ts in (200, 400) for note in ("ONE", "THREE")]
    assert found == [(1, 1, "one"), (1, 1, "two"), *after], found


def main(address: str, folder: Path) -> None:
    spark = connected(address)
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("streamshed.spark").addHandler(handler)
    logging.getLogger("streamshed.spark").setLevel("INFO")
    listener = LedgerListener()
    spark.streams.addListener(listener)
    try:
        run(spark, folder)
    finally:  # its thread would keep this process alive
        spark.streams.removeListener(listener)
    assert any("batch 0 of" in said and "results" in said for said in heard), heard
    print("listener")


if __name__ == "__main__":
    code = 0
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)  # threads of the client may wait for the server for ever
