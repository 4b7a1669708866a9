"""Sensors in clusters, joined on Spark: what is sent if rows probe all clusters, or relevant ones.

    python examples/sensor_clusters.py FOLDER

The readings of 600 sensors are written to FOLDER, ten seconds in a file, and joined twice. The
bytes are those of the rows that shards receive, batch by batch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import streamshed as ss
from streamshed.relevance import Relevance
from streamshed.spark import clustered
from streamshed.spark.processor import TOTALS
from streamshed_lab.network import heed
from streamshed_lab.workloads import FieldWorkload

FIELD = FieldWorkload(sensors=600, seconds=60.0, reach=10.0, seed=1)
JOINED = ss.join(by="sensor").on("key").within("200 milliseconds", time="time").partial(at_least=2)
SCHEMA = "sensor long, key long, time timestamp, cluster long"


def write(folder: Path) -> int:
    """Write the readings, with the cluster of each sensor; returns how many clusters there are."""
    clusters = heed(FIELD.positions(), within=9.0, seed=1)
    table = FIELD.table()
    own = pa.array(clusters.cluster[table["sensor"].to_numpy()])
    table = table.append_column("cluster", own)
    folder.mkdir(parents=True)
    period = pc.divide(table["time"].cast(pa.int64()), 10_000_000)
    for number in range(6):
        pq.write_table(table.filter(pc.equal(period, number)), folder / f"{number:02d}.parquet")
    return len(clusters)


def run(spark: SparkSession, folder: Path, name: str, **options: object) -> None:
    readings = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    query = (
        clustered(JOINED, readings.parquet(str(folder / "readings")), cluster="cluster", **options)
        .writeStream.format("parquet")
        .option("path", str(folder / name / "results"))
        .option("checkpointLocation", str(folder / name / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = [json.loads(progress.json)["observedMetrics"] for progress in query.recentProgress]
    place = TOTALS.index("shuffle_bytes")
    shards = [join["counts"] for batch in told for join in batch.values() if "counts" in join]
    sent = [sum(counts[place] for counts in batch) for batch in shards]
    results = spark.read.parquet(str(folder / name / "results")).count()
    print(f"{name}: {results:,} results; bytes by batch: {' '.join(f'{n:,}' for n in sent)}")


def main(folder: Path) -> None:
    clusters = write(folder / "readings")
    builder = SparkSession.builder.appName("sensor clusters")
    # More than there are clusters would have nothing to do, and take their time for it.
    spark = builder.config("spark.sql.shuffle.partitions", clusters).getOrCreate()
    print(f"{clusters} clusters")
    run(spark, folder, "all", clusters=clusters)
    relevance = Relevance(chance="plain", base=1.0)
    notes = str(folder / "notes")
    run(spark, folder, "relevant", clusters=clusters, relevance=relevance, notes_to=notes)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
