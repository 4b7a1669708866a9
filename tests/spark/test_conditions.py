"""Joins on any condition on Spark make what replay makes, and what DuckDB says."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from harness import members, multiset
from oracles.pairs import Alike, Compared, judged
from oracles.workloads import generated
from streaming import Batch, Files, check_same, cut, replayed, rows

pytest.importorskip("pyspark")

from streamshed.plan.routing import axes_of, copies
from streamshed.spark.hypercube import shards_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST = {"near": 1.0, "cosine": 0.6, "inner_product": 1.0, "where": 0.0}


def compared(kind: str, least: float | None = None, **settings: object) -> Compared:
    drawn = {"streams": 3, "rows": 60, "keys": 60, "window": ("time", 25)} | settings
    return Compared(generated(4, **drawn), Alike(kind, LEAST[kind] if least is None else least))


def joined(case: Compared) -> ss.Join:
    names = [str(name) for name in case.workload.names]
    said = case.alike.said()
    if case.alike.kind == "where":  # workers do not know the modules of the tests
        said = (ss.where(lambda one, other: one.v <= other.v and other.v < one.v + 3, "v"),)
    return ss.join(*names).on(*said).within(25, time="ts")


def batches(case: Compared, count: int) -> list[Batch]:
    """The streams in batches, in the order of time."""
    whole = case.inputs()
    parts = []
    for part in cut(case.workload, count):
        numbers = {name: part[name]["row"].to_pylist() for name in whole}
        parts.append({name: whole[name].take(numbers[name]) for name in whole})
    return parts


@pytest.mark.parametrize("kind", ["near", pytest.param("cosine", marks=pytest.mark.slow)])
def test_a_restart_changes_nothing(spark: SparkSession, files: Files, kind: str) -> None:
    case = compared(kind, keys=30)
    join, parts = joined(case), batches(case, 3)
    files.write(parts[:2])
    check_same(files.run(spark, join, shards=1), replayed(join, parts[:2]))
    files.write(parts[2:])
    check_same(files.run(spark, join, shards=1), replayed(join, parts))


def test_with_a_key_the_work_is_done_in_parts(spark: SparkSession, files: Files) -> None:
    case = compared("near", keys=30)
    case = replace(case, alike=replace(case.alike, keyed=True))
    join, parts = joined(case), batches(case, 2)
    files.write(parts)
    expected = replayed(join, parts)
    assert rows(files.run(spark, join, shards=2).table, expected.table.schema) == rows(
        expected.table
    )


@pytest.mark.parametrize(
    ("case", "shards"),
    [
        (compared("near"), 3),
        (compared("near", keys=400, streams=2), 4),
        (compared("near", 0.0, keys=8), 2),
        pytest.param(compared("where", rows=40), 4, marks=pytest.mark.slow, id="where-4"),
        (compared("cosine", streams=2), 2),
        (compared("inner_product"), 6),
    ],
    ids=lambda given: given.alike.kind if isinstance(given, Compared) else given,
)
def test_every_combination_is_made_once(spark: SparkSession, case: Compared, shards: int) -> None:
    """All that DuckDB says, none twice, whatever the number of shards."""
    frames = {name: spark.createDataFrame(table) for name, table in case.inputs().items()}
    table = joined(case).stream(frames, shards=shards).toArrow()
    found = multiset(members(case.workload, table))
    assert found == judged(case)
    assert len(found) > 20


def test_the_work_is_divided_and_survives_a_restart(spark: SparkSession, files: Files) -> None:
    case = compared("near", keys=400, rows=120)
    parts = batches(case, 3)
    join = joined(case).throttle(comparisons_per_second=1e9).seed(2)
    files.write(parts[:2])
    files.run(spark, join, shards=2)
    files.write(parts[2:])
    ran = files.run(spark, join, shards=2)
    assert multiset(members(case.workload, ran.table)) == judged(case)
    assert ran.ledger.balanced
    arrived = {name: stream.arrived for name, stream in ran.ledger.streams.items()}
    assert arrived["a"] == 120  # rows of the first stream own their results, and are not copied
    assert 120 < arrived["b"] < 170
    assert 120 < arrived["c"] < 170


def test_numbers_within_the_distance_meet_in_the_cell_of_the_first(spark: SparkSession) -> None:
    """Also where differences are rounded: as far apart as they may be, and of any size."""
    from pyspark.sql import functions as f

    random = np.random.default_rng(3)
    size = 10.0 ** random.integers(-3, 18, 3000) * random.choice([-1, 1], 3000)
    one = size * random.random(3000)
    apart = np.where(random.random(3000) < 0.5, 0.3, 0.3 * random.random(3000))
    other = one + apart * random.choice([-1, 1], 3000)
    kept = np.abs(one - other) <= 0.3
    table = pa.table({"ts": np.arange(3000)[kept], "v": one[kept], "w": other[kept]})
    join = ss.join("a", "b").on(ss.near({"a": "v", "b": "w"}, 0.3)).within(5, time="ts")
    plan = join.plan({"a": table.schema, "b": table.schema})
    assert axes_of(plan) == [[0], [0]]
    frame = spark.createDataFrame(table)
    columns = {name: f.col(name) for name in table.column_names}
    for shards in (2, 5):
        split = replace(plan, shares=(shards,))
        placed = frame.select(*(shards_of(split, place, columns) for place in range(2))).toArrow()
        owners, others = (column.to_pylist() for column in placed.columns)
        assert len(owners) > 1000
        for owner, copied in zip(owners, others, strict=True):
            assert len(owner) == 1
            assert owner[0] in copied
            assert len(copied) == len({*copied}) <= shards
        assert {owner[0] for owner in owners} == {*range(shards)}


def test_streams_are_the_axes_where_any_two_rows_may_meet(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    case = compared("where")
    tables = case.inputs()
    plan = joined(case).plan({name: table.schema for name, table in tables.items()})
    own, shares = axes_of(plan), (3, 1, 2)
    assert own == [[0], [1], [2]]
    split = replace(plan, shares=shares)
    placed = []
    for position, table in enumerate(tables.values()):
        frame = spark.createDataFrame(table)
        columns = {name: f.col(name) for name in table.column_names}
        arrays = frame.select(shards_of(split, position, columns)).toArrow().column(0).to_pylist()
        placed.append([set(array) for array in arrays])
    assert sum(len(found) for of_stream in placed for found in of_stream) == sum(
        60 * prod(shares) / shares[position] for position in range(3)
    ) == 60 * copies(own, [1, 1, 1], shares)  # fmt: skip
    for a in placed[0][:10]:
        for b in placed[1][:10]:
            for c in placed[2][:10]:
                assert len(a & b & c) == 1
