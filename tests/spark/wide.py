"""A join of wide rows whose results are larger than Java's memory, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import streamshed as ss
from streaming import SETTINGS, Files


def main(folder: Path) -> None:
    """Join the files of a folder, and print how many results there are."""
    from pyspark.sql import SparkSession

    from streamshed.spark import ledger

    builder = SparkSession.builder.master("local[2]")
    for name, value in (SETTINGS | {"spark.driver.memory": "2g"}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    join = ss.join("a", "b", "c").on("k").within(1_000_000, time="ts")
    frame = join.stream(Files(folder).frames(spark))
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(folder / "_checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    accounts = ledger(query)
    assert accounts is not None
    print(accounts.results)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
