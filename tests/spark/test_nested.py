"""Joins on any condition on Spark make what replay makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import streamshed as ss
from oracles.pairs import Alike, Compared
from oracles.workloads import generated
from streaming import Batch, Files, check_same, cut, replayed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batches(kind: str, keyed: bool, count: int) -> tuple[ss.Join, list[Batch]]:
    """A join, and its streams in batches, in the order of time."""
    workload = generated(4, streams=3, rows=60, keys=30, window=("time", 25))
    least = {"near": 1.0, "cosine": 0.6}[kind]
    case = Compared(workload, Alike(kind, least, keyed))
    join = ss.join("a", "b", "c").on(*case.alike.said()).within(25, time="ts")
    whole = case.inputs()
    parts = []
    for part in cut(workload, count):
        numbers = {name: part[name]["row"].to_pylist() for name in whole}
        parts.append({name: whole[name].take(numbers[name]) for name in whole})
    return join, parts


@pytest.mark.parametrize("kind", ["near", "cosine"])
def test_a_restart_changes_nothing(spark: SparkSession, files: Files, kind: str) -> None:
    join, parts = batches(kind, keyed=False, count=3)
    files.write(parts[:2])
    check_same(files.run(spark, join), replayed(join, parts[:2]))
    files.write(parts[2:])
    check_same(files.run(spark, join), replayed(join, parts))


def test_with_a_key_the_work_is_done_in_parts(spark: SparkSession, files: Files) -> None:
    join, parts = batches("near", keyed=True, count=2)
    files.write(parts)
    expected = replayed(join, parts)
    assert rows(files.run(spark, join, shards=2).table, expected.table.schema) == rows(
        expected.table
    )


def test_without_a_key_there_is_one_part(spark: SparkSession) -> None:
    join, parts = batches("near", keyed=False, count=1)
    frames = {name: spark.createDataFrame(table) for name, table in parts[0].items()}
    with pytest.raises(ss.SpecError, match="shards is 2, but any two rows may meet by near"):
        join.stream(frames, shards=2)
