"""Spark's own joins, to which the join is compared, make what it makes without a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming import Files, rows
from streamshed.demo import funnel
from streamshed.demo.workload import FunnelWorkload
from streamshed.spark.chained import chained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_a_chain_of_joins_is_the_exact_join(spark: SparkSession, files: Files) -> None:
    workload = FunnelWorkload(sessions=60, minutes=20, seed=2)
    for _ in workload.write(files.folder):
        pass
    expected = funnel().replay(workload.tables()).table
    assert expected.num_rows > 100
    frame = chained(files.frames(spark, files=7), "session", "ts", "10 minutes")
    files.start(frame).awaitTermination()
    found = [
        {
            **{
                name: {
                    column: row[f"{name}_{column}"]
                    for column in expected.schema.field(name).type.names
                }
                for name in ("impressions", "clicks", "orders")
            },
            "time": max(row["impressions_ts"], row["clicks_ts"], row["orders_ts"]),
        }
        for row in files.results(frame).to_pylist()
    ]
    assert sorted(found, key=repr) == rows(expected)
