"""A join from Kafka to Kafka in a process of its own, to be killed; it goes on from its checkpoint.

python job.py feed BROKER FOLDER    # the rows of FOLDER/NAME.parquet into the topic NAME
python job.py join BROKER FOLDER    # three topics into the topic `results`
python job.py read BROKER FOLDER    # the topic `results` into FOLDER/results.parquet
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import streamshed as ss
from streaming import SETTINGS
from streamshed.spark import ledger

STREAMS = ("ads", "clicks", "orders")
SCHEMA = "id long, k long, ts timestamp"
BATCH = 300
"""Rows of a topic in a batch."""
JOINED = ss.join(*STREAMS).on("k").within("2 minutes", time="ts", late="1 minute")


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


def join(spark: SparkSession, broker: str, folder: Path) -> None:
    def stream(topic: str):
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        rows = reader.option("maxOffsetsPerTrigger", BATCH).load()
        return rows.select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("row")).select(
            "row.*"
        )

    joined = JOINED.stream({name: stream(name) for name in STREAMS}, shards=2)
    made = joined.select(
        f.to_json(f.struct(*(f.col(f"{name}.id").alias(name) for name in STREAMS))).alias("value")
    )
    writer = made.writeStream.format("kafka").option("kafka.bootstrap.servers", broker)
    writer = writer.option("topic", "results").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    query.awaitTermination()
    late = {name: one.late for name, one in ledger(query).streams.items()}
    (folder / "late").write_text(str(sum(late.values())))


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
    {"feed": feed, "join": join, "read": read}[sys.argv[1]](spark, sys.argv[2], Path(sys.argv[3]))
    spark.stop()
