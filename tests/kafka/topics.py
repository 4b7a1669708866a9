"""What goes into the topics, and what comes out: each in a process of its own.

python topics.py feed BROKER FOLDER    # the rows of FOLDER/NAME.parquet into the topic NAME
python topics.py read BROKER FOLDER    # the topic `results` into FOLDER/results.parquet
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from streaming import SETTINGS

STREAMS = ("ads", "clicks", "orders")


def session() -> SparkSession:
    jars = sorted(Path(os.environ["STREAMSHED_KAFKA"], "connector").glob("*.jar"))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(map(str, jars)))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def feed(spark: SparkSession, broker: str, folder: Path) -> None:
    for name in STREAMS:
        rows = spark.read.parquet(str(folder / f"{name}.parquet"))
        told = f.to_json(f.struct("id", "k", "ts")).alias("value")
        rows = rows.coalesce(1).select(told, (f.col("id") % 2).cast("int").alias("partition"))
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", broker)
        writer.option("topic", name).save()


def read(spark: SparkSession, broker: str, folder: Path) -> None:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker)
    rows = (
        reader.option("subscribe", "results")
        .load()
        .select(f.col("value").cast("string").alias("value"))
    )
    schema = ", ".join(f"{name} long" for name in STREAMS)
    found = rows.select(f.from_json("value", schema).alias("row")).select("row.*")
    found.write.parquet(str(folder / "results.parquet"))


if __name__ == "__main__":
    spark = session()
    {"feed": feed, "read": read}[sys.argv[1]](spark, sys.argv[2], Path(sys.argv[3]))
    spark.stop()
