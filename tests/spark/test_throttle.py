"""Joins on Spark whose work is bounded: as in replay, or by the clock of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streaming import Batch, Files, check_same, replayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000


def batches(count: int, rows: int, span: int, keys: int = 20) -> list[Batch]:
    """Two streams, with so many rows of each in a batch, which covers so many microseconds."""
    random = np.random.default_rng(8)
    found = []
    for batch in range(count):
        tables = {}
        for name in "ab":
            time = np.sort(random.integers(batch * span, (batch + 1) * span, rows))
            key = random.integers(0, keys, rows)
            row = np.arange(batch * rows, (batch + 1) * rows)
            tables[name] = pa.table({"ts": time.astype("datetime64[us]"), "k": key, "row": row})
        found.append(tables)
    return found


JOIN = ss.join("a", "b").on("k").within("10 seconds", time="ts").seed(4)


def test_work_is_bounded_as_in_replay(spark: SparkSession, files: Files) -> None:
    data = batches(3, 300, 10 * SECOND)
    join = JOIN.throttle(comparisons_per_second=150, part="2 seconds").estimate(rate=1)
    files.write(data[:2])
    check_same(files.run(spark, join, shards=1), replayed(join, data[:2]))
    files.write(data[2:])
    ran, expected = files.run(spark, join, shards=1), replayed(join, data)
    check_same(ran, expected)
    for told in ("comparisons", "throttle", "capacity", "harvest", "shed_by"):
        assert getattr(ran.ledger, told) == pytest.approx(getattr(expected.ledger, told))
    assert ran.ledger.throttle < 1
    assert ran.ledger.missed.value + ran.ledger.results == replayed(JOIN, data).ledger.results


def test_with_time_enough_a_join_keeps_up_with_all(spark: SparkSession, files: Files) -> None:
    data = batches(3, 200, 600 * SECOND)
    files.write(data)
    ran = files.run(spark, JOIN.throttle("keep up"), shards=2)
    assert ran.ledger.results == replayed(JOIN, data).ledger.results
    assert ran.ledger.throttle == 1
    assert ran.ledger.capacity > 0
    assert ran.ledger.comparisons > ran.ledger.results


def test_a_join_keeps_up_with_rows_that_come_fast(spark: SparkSession, files: Files) -> None:
    """Batches of rows that came within 20 ms, with half a million results each."""
    data = batches(4, 3000, 20_000)
    files.write(data)
    join = JOIN.within("20 ms", time="ts").select("time")
    ran = files.run(spark, join.throttle("keep up", every="2 ms"), shards=1)
    assert ran.ledger.balanced
    assert ran.ledger.throttle < 1
    assert ran.ledger.capacity > 0
    full = replayed(join, data).ledger.results
    assert 0 < ran.ledger.results < 0.7 * full
    low, high = ran.ledger.missed.low, ran.ledger.missed.high
    assert low < full - ran.ledger.results < high


def test_there_is_nothing_to_keep_up_with_in_a_batch_query(spark: SparkSession) -> None:
    frames = {name: spark.createDataFrame(table) for name, table in batches(1, 5, 10)[0].items()}
    with pytest.raises(
        ss.InputError, match="these inputs do not stream; read them with readStream, or"
    ):
        JOIN.throttle("keep up").stream(frames)
