"""Joins in clusters on Spark: exact where all clusters are probed, and learning whom to probe."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from clusters import CLUSTERS, JOIN, RELEVANCE, WINDOW, clustered_frame, in_batches, readings
from streaming import Files
from streamshed.errors import InputError, SpecError
from streamshed.relevance import Relevance

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def expected(batches: list[pa.Table]) -> Counter[tuple[int, frozenset[int]]]:
    """What definition 2 says of each cluster: the newcomer and one member of each other sensor."""
    made: Counter[tuple[int, frozenset[int]]] = Counter()
    before: list[dict[str, Any]] = []
    for batch in batches:
        for one in sorted(batch.to_pylist(), key=lambda row: (row["ts"], row["cluster"])):
            for cluster in range(CLUSTERS):
                by_sensor: dict[int, list[int]] = {}
                for other in before:
                    if (
                        other["cluster"] == cluster
                        and other["k"] == one["k"]
                        and other["sensor"] != one["sensor"]
                        and abs(other["ts"] - one["ts"]) <= WINDOW
                    ):
                        by_sensor.setdefault(other["sensor"], []).append(other["row"])
                if by_sensor:
                    for members in itertools.product(*by_sensor.values()):
                        made[one["row"], frozenset(members)] += 1
            before.append(one)
    return made


class Query:
    """A join in clusters over files."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.files = spark, Files(folder)
        self.bytes: list[int] = []

    def run(
        self, batches: list[pa.Table], relevance: Relevance | None = None
    ) -> Counter[tuple[int, frozenset[int]]]:
        """Go on with some batches; returns all results so far."""
        self.files.write([{"readings": batch} for batch in batches])
        ran = self.files.finish(clustered_frame(self.files, self.spark, relevance))
        self.ledger = ran.ledger
        for progress in ran.query.recentProgress:
            observed = json.loads(progress.json)["observedMetrics"].get("streamshed")
            if observed:
                self.bytes.append(observed["shuffle_bytes"])
        return results(ran.table)


def results(table: pa.Table) -> Counter[tuple[int, frozenset[int]]]:
    """By newcomer the other members of each result."""
    return Counter(
        (members[0]["row"], frozenset(member["row"] for member in members[1:]))
        for members in table["members"].to_pylist()
    )


def test_where_all_clusters_are_probed_each_result_is_made_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = in_batches(readings(1), 3)
    query = Query(spark, tmp_path)
    query.run(batches[:2])
    assert query.run(batches[2:]) == expected(batches)
    assert query.ledger.streams["sensor"].arrived == 240  # guests are not counted


def test_rows_in_any_order_and_one_batch(spark: SparkSession) -> None:
    from streamshed.spark import clustered

    table = readings(2)
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    frame = clustered(JOIN, spark.createDataFrame(shuffled), cluster="cluster", clusters=CLUSTERS)
    assert results(frame.toArrow()) == expected([shuffled])


@pytest.mark.slow
def test_relevance_is_learned_and_survives_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    batches = in_batches(readings(3, 900, keys=12, paired=True), 9)
    whole, halves, every = (Query(spark, tmp_path / name) for name in ("one", "two", "all"))
    made = whole.run(batches, relevance=RELEVANCE)
    halves.run(batches[:4], relevance=RELEVANCE)
    assert halves.run(batches[4:], relevance=RELEVANCE) == made
    assert halves.bytes == whole.bytes
    exact = every.run(batches)
    assert exact == expected(batches)
    assert max(made.values()) == 1
    assert made.keys() <= exact.keys()
    # Nothing is lost, as clusters 0 and 1 go on to probe each other; but cluster 2 is left alone.
    assert sum(made.values()) > 0.98 * sum(exact.values())
    assert whole.bytes[0] == every.bytes[0]
    assert sum(whole.bytes[4:]) < 0.9 * sum(every.bytes[4:])


@pytest.mark.parametrize(
    ("join", "options", "said"),
    [
        (ss.join("a", "b").on("k").within(5, time="ts"), {}, "clusters are of streams that a"),
        (JOIN.keep(total=9), {}, r"\.keep\(\) was said, but clusters have no budgets"),
        (ss.join(by="sensor").on("k").last(9), {}, r"\.last\(\) was said"),
        (JOIN, {"clusters": 0}, "clusters is 0; give a whole number of at least 1"),
        (JOIN, {"relevance": Relevance()}, "give both, or neither"),
        (JOIN, {"notes_to": "folder"}, "give both, or neither"),
        (JOIN.select("members.row"), {}, "is not among those that are kept"),
        (JOIN, {"cluster": "name"}, "give a column of whole numbers, from 0"),
    ],
)
def test_what_cannot_be_is_refused(
    spark: SparkSession, join: ss.Join, options: dict[str, Any], said: str
) -> None:
    from streamshed.spark import clustered

    table = readings(1, 3).append_column("name", pa.array(["x", "y", "z"]))
    given = {"cluster": "cluster", "clusters": CLUSTERS} | options
    with pytest.raises(SpecError, match=said):
        clustered(join, spark.createDataFrame(table), **given)


def test_a_cluster_that_is_not_there_is_named() -> None:
    from streamshed.spark.cluster_join import ClusterPack
    from streamshed.spark.sharding import Sharding

    table = readings(1, 6).set_column(1, "cluster", pa.array([0, 1, 2, 0, 7, 1]))
    plan = JOIN.plan({"input": table.schema})
    pack = ClusterPack(0, plan, Sharding(partitions=3, shards=3), cluster="cluster")
    rows = table.to_batches()[0]
    with pytest.raises(InputError, match="the cluster 7 of a row is no number from 0 to 2"):
        list(pack.guests(rows, rows.column("cluster").to_numpy()))
