"""The benchmark beside Spark's own join, in small: above all, the results are the same."""

from __future__ import annotations

import pytest

from streamshed_lab.bench.spark import MEMORY, ROCKSDB, THIRD, WINDOW, SparkBench, first_batches

pytestmark = pytest.mark.slow
KINDS = ("on RocksDB", "in memory")


@pytest.fixture
def bench(spark, tmp_path):
    return SparkBench(spark, tmp_path, lambda line: None)


def test_the_exact_join_has_the_results_of_sparks_own(bench):
    found = list(bench.exact(1_000, THIRD, 5, {ROCKSDB: 5, MEMORY: 6}, rounds=1))
    named = {measurement.name: measurement for measurement in found}
    assert len(named) == len(found)
    setting = "exact, 3 × 1,000 rows a batch, windows of 3 batches"
    assert named[f"results of 5 batches, {setting}"].value > 0
    same = [measurement for measurement in found if "less those" in measurement.name]
    assert [measurement.value for measurement in same] == [0, 0]
    assert all(measurement.value > 0 for measurement in found if measurement not in same)
    bars = [named[f"streamshed over Spark's own join {kind}, {setting}"].bar for kind in KINDS]
    assert bars == [12, 5]


def test_windows_of_a_batch_have_bars_of_their_own(bench):
    found = list(bench.exact(1_000, WINDOW, 3, {MEMORY: 3}, rounds=1))
    (over,) = (one for one in found if one.name.startswith("streamshed over"))
    assert over.bar == 2.8
    assert over.name.endswith("windows of a batch")


def test_small_batches_and_workers_that_share_nothing(bench):
    found = [*bench.small(10, batches=2, rounds=1), *bench.unshared(1_000, batches=3)]
    assert all(measurement.value > 0 for measurement in found)
    assert [one.name.split(",")[0] for one in found if one.unit == "ms"] == [
        "time of a batch: streamshed",
        "time of a batch: a query without state",
        "time of a batch: Spark's own join of two streams",
    ]


def test_first_batches_are_those_of_processes_of_their_own(tmp_path):
    *times, less = first_batches(tmp_path, rounds=1, progress=lambda line: None)
    ours, theirs = (one.value for one in times)
    assert less.value == ours - theirs
    assert min(ours, theirs) > 0.5


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
