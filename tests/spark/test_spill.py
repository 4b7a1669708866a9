"""Spilling is refused on Spark, which keeps state on disk already."""

from __future__ import annotations

import pytest

import streamshed as ss


@pytest.mark.spark
def test_spilling_is_refused_with_the_way_out(spark) -> None:
    rows = spark.createDataFrame([(1, 2)], "k long, ts long")
    join = ss.join("a", "b").on("k").within(5, time="ts").keep(total=9).spill(to="/nowhere")
    with pytest.raises(ss.SpecError, match=r"\.spill\(\).*RocksDB.*\.keep\(\)"):
        join.stream(a=rows, b=rows)
