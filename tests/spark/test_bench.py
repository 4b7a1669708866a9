"""The benchmark beside Spark's own join, in small: above all, the results are the same."""

from __future__ import annotations

import pytest

from streamshed_lab.bench.spark import MEMORY, ROCKSDB, SparkBench

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(spark, tmp_path):
    return SparkBench(spark, tmp_path, lambda line: None)


def test_the_exact_join_has_the_results_of_sparks_own(bench):
    found = list(bench.exact(1_000, 5, {ROCKSDB: 5, MEMORY: 6}, rounds=1))
    named = {measurement.name: measurement for measurement in found}
    assert len(named) == len(found)
    assert named["results of 5 batches, exact, 3 × 1,000 rows a batch"].value > 0
    same = [measurement for measurement in found if "less those" in measurement.name]
    assert [measurement.value for measurement in same] == [0, 0]
    assert all(measurement.value > 0 for measurement in found if measurement not in same)


def test_the_bounded_join_stays_within_its_budget(bench):
    found = list(bench.bounded(1_000, batches=10))
    (most,) = (measurement for measurement in found if measurement.name.startswith("most rows"))
    assert most.value == most.bar == 300


def test_a_restart_finds_all_rows(bench):
    (restart,) = bench.restart(1_000, stored=5_000)
    assert restart.name.startswith("restart from a checkpoint with 6,000 rows")


def test_a_batch_is_timed_in_any_number_of_shards(bench, spark):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        assert all(bench.in_shards(1_000, shards, batches=4) > 0 for shards in (1, 3))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
