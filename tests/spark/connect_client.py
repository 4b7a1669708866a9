"""Joins of a client of Spark Connect, in a process of its own: Spark has one kind of session."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

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
