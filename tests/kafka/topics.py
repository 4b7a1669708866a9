"""What goes into the topics, and what comes out: each in a process of its own.

python topics.py feed BROKER FOLDER    # the rows of FOLDER/NAME.parquet into the topic NAME
python topics.py read BROKER FOLDER    # the topic `results` into FOLDER/results.json
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from streaming import SETTINGS


def session() -> SparkSession:
    jars = sorted(Path(os.environ["STREAMSHED_KAFKA"], "connector").glob("*.jar"))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(map(str, jars)))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def feed(spark: SparkSession, broker: str, folder: Path) -> None:
    for file in folder.glob("*.parquet"):
        rows = spark.read.parquet(str(file)).coalesce(1)
        told = f.to_json(f.struct(*rows.columns)).alias("value")
        rows = rows.select(
            told, (f.monotonically_increasing_id() % 2).cast("int").alias("partition")
        )
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", broker)
        writer.option("topic", file.stem).save()


def read(spark: SparkSession, broker: str, folder: Path) -> None:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker)
    rows = reader.option("subscribe", "results").load().selectExpr("cast(value as string)")
    lines = [row.value for row in rows.collect()]
    (folder / "results.json").write_text("\n".join(lines))


if __name__ == "__main__":
    spark = session()
    {"feed": feed, "read": read}[sys.argv[1]](spark, sys.argv[2], Path(sys.argv[3]))
    spark.stop()
