"""Impressions, clicks and orders joined on Spark, as one writes it.

    python examples/ad_funnel.py FOLDER                       # Spark here, on all cores
    streamshed cluster python examples/ad_funnel.py FOLDER    # on a master and two workers

FOLDER has a folder of Parquet files for each stream; if there is none, it is made. The results and
the checkpoint go there too: files that are added later are joined by the next run, which goes on
where this one ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import streamshed as ss
from streamshed.demo.workload import FunnelWorkload
from streamshed.spark import ledger

SCHEMAS = {
    "impressions": "session long, ts timestamp, ad long",
    "clicks": "session long, ts timestamp, ad long",
    "orders": "session long, ts timestamp, price double",
}

JOINED = (
    ss.join(*SCHEMAS)
    .on("session")
    .within("10 minutes", time="ts")
    .keep(total=50_000)  # rows of all streams together
    .shed("output")
)


def main(folder: Path) -> None:
    if not folder.exists():
        for _ in FunnelWorkload(seed=1).write(folder):
            pass
    # Spark's own 200 partitions would cost 200 tasks in every batch; a few for each core do.
    builder = SparkSession.builder.appName("ad funnel").config("spark.sql.shuffle.partitions", 4)
    spark = builder.getOrCreate()
    streams = {
        name: spark.readStream.schema(schema).parquet(str(folder / name))
        for name, schema in SCHEMAS.items()
    }
    query = (
        JOINED.stream(streams)
        .writeStream.format("parquet")
        .option("path", str(folder / "results"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(ledger(query))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
