"""Joins in clusters on Spark: exact where all clusters are probed, and learning whom to probe."""

from __future__ import annotations

import itertools
import json
import math
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
from streamshed.spark.processor import TOTALS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


Made = tuple[int, frozenset[int]]
"""A result: its newcomer, and the other members."""


def expected(batches: list[pa.Table], at_least: int = 2) -> Counter[Made]:
    """What definition 2 says of all rows: the newcomer and one member of each other sensor."""
    made: Counter[Made] = Counter()
    before: list[dict[str, Any]] = []
    for batch in batches:
        for one in sorted(batch.to_pylist(), key=lambda row: (row["ts"], row["cluster"])):
            by_sensor: dict[int, list[int]] = {}
            for other in before:
                if (
                    other["k"] == one["k"]
                    and other["sensor"] != one["sensor"]
                    and abs(other["ts"] - one["ts"]) <= WINDOW
                ):
                    by_sensor.setdefault(other["sensor"], []).append(other["row"])
            if 1 + len(by_sensor) >= at_least:
                for members in itertools.product(*by_sensor.values()):
                    made[one["row"], frozenset(members)] += 1
            before.append(one)
    return made


def extended(table: pa.Table) -> dict[Made, int | None]:
    """By result the newcomer of those that it extends."""
    newcomer = {row["update"]: row["members"][0]["row"] for row in table.to_pylist()}
    # An update that is extended has made results itself: who is named is there.
    return {
        made: None if row["extends"] is None else newcomer[row["extends"]]
        for row, made in zip(table.to_pylist(), listed(table), strict=True)
    }


def listed(table: pa.Table) -> list[Made]:
    """By newcomer the other members of each result."""
    return [
        (members[0]["row"], frozenset(member["row"] for member in members[1:]))
        for members in table["members"].to_pylist()
    ]


class Query:
    """A join in clusters over files."""

    def __init__(self, spark: SparkSession, folder: Path, join: ss.Join = JOIN) -> None:
        self.spark, self.files, self.join = spark, Files(folder), join
        self.bytes: list[int] = []

    def run(
        self, batches: list[pa.Table], relevance: Relevance | None = None
    ) -> Counter[tuple[int, frozenset[int]]]:
        """Go on with some batches; returns all results so far."""
        self.files.write([{"readings": batch} for batch in batches])
        frame = clustered_frame(self.files, self.spark, relevance, self.join)
        ran = self.files.finish(frame)
        self.ledger, self.table = ran.ledger, ran.table
        for progress in ran.query.recentProgress:
            observed = json.loads(progress.json)["observedMetrics"].values()
            place = TOTALS.index("shuffle_bytes")
            told = [one["counts"] for one in observed if "counts" in one]
            self.bytes += [sum(counts[place] for counts in one) for one in told]
        return Counter(listed(ran.table))


def test_where_all_clusters_are_probed_each_result_is_made_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = in_batches(readings(1, moving=True), 3)
    query = Query(spark, tmp_path)
    query.run(batches[:2])
    assert query.run(batches[2:]) == expected(batches)
    assert query.ledger.streams["sensor"].arrived == 240  # guests are not counted


def test_results_and_updates_are_those_of_the_join_in_one_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    windows = {0: 6, 1: 13, 5: 2}
    join = ss.join(by="sensor").on("k").partial(at_least=3)
    join = join.within(windows, otherwise=WINDOW, time="ts", late=100)
    batches = in_batches(readings(4, 500, moving=True), 4)
    batches[2], batches[3] = batches[3], batches[2]  # partners may be newer
    query = Query(spark, tmp_path, join)
    query.run(batches[:1])
    made = query.run(batches[1:])
    order = [("ts", "ascending"), ("cluster", "ascending")]
    with join.open({"input": batches[0].schema}) as here:
        parts = [here.push(input=batch.sort_by(order)) for batch in batches]
    whole = pa.concat_tables([part for part in parts if part.num_rows])
    assert made == Counter(listed(whole))
    assert extended(query.table) == extended(whole)
    several = [{*map(str, row)} for row in _clusters(query.table)]
    assert any(len(row) > 2 for row in several)


def _clusters(table: pa.Table) -> list[list[int]]:
    """The clusters of the members of each result."""
    return [[member["cluster"] for member in row] for row in table["members"].to_pylist()]


def test_members_of_several_clusters_count_together(spark: SparkSession) -> None:
    from streamshed.spark import clustered

    # One match in each of two clusters: with at_least=3 neither has a result by itself.
    rows = pa.table({"sensor": [1, 2, 3], "cluster": [0, 1, 2], "k": [7] * 3, "ts": [1, 2, 3]})
    for least, made in ((3, 1), (4, 0)):
        join = (
            JOIN.partial(at_least=least)
            .weigh(column="ts")
            .select("members.cluster", "members.sensor")
        )
        frame = clustered(join, spark.createDataFrame(rows), cluster="cluster", clusters=3)
        found = frame.toArrow().to_pylist()
        assert len(found) == made
    join = JOIN.partial(at_least=3).weigh(column="ts")
    (one,) = clustered(join, spark.createDataFrame(rows), cluster="cluster", clusters=3).collect()
    assert [member.sensor for member in one.members] == [3, 2, 1]
    assert (one.key, one.time, one.importance, one.extends) == (7, 3, 1.0, None)


def test_many_results_of_one_newcomer_are_made_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from streamshed.spark import cluster_results

    monkeypatch.setattr(cluster_results, "AT_ONCE", 5)
    table = readings(5, 60, keys=3)
    plan = JOIN.plan({"input": table.schema})
    inner = cluster_results.in_one_cluster(plan)
    rows = table.to_batches()[0]
    numbered = pa.RecordBatch.from_arrays(
        [*rows.columns, rows["row"], pa.array([b"\xff"] * 60)], schema=inner.streams[0].schema
    )
    # The newcomers are rows 50 to 59, and each has met all rows of its key before them.
    keys, sensors = rows["k"].to_numpy(), rows["sensor"].to_numpy()
    met = [
        (new, old)
        for new in range(50, 60)
        for old in range(50)
        if keys[old] == keys[new] and sensors[old] != sensors[new]
    ]
    met += [(new, new) for new in {new for new, _ in met}]
    pairs = pa.RecordBatch.from_arrays(
        [
            pa.array([new for new, _ in met]),
            numbered.to_struct_array().take(pa.array([old for _, old in met])),
        ],
        schema=cluster_results.pairs_schema(inner),
    )
    halves = [pairs.slice(0, 40), pairs]  # what is told twice counts once
    blocks = list(cluster_results.Met.read(plan, "cluster", halves).blocks())
    made = Counter(
        (int(block.members[start]), frozenset(block.members[start + 1 : end].tolist()))
        for block in blocks
        for start, end in zip([0, *block.ends[:-1].tolist()], block.ends.tolist(), strict=True)
    )
    assert len(made) == sum(made.values())
    of_newcomer = Counter(new for new, _ in made.elements())
    groups: dict[int, Counter[int]] = {}
    for new, old in met:
        if new != old:
            groups.setdefault(new, Counter())[int(sensors[old])] += 1
    assert sorted(of_newcomer.values()) == sorted(
        math.prod(group.values()) for group in groups.values()
    )


def test_rows_in_any_order_and_one_batch(spark: SparkSession) -> None:
    from streamshed.spark import clustered

    table = readings(2)
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    frame = clustered(JOIN, spark.createDataFrame(shuffled), cluster="cluster", clusters=CLUSTERS)
    assert Counter(listed(frame.toArrow())) == expected([shuffled])


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
    for query in (whole, every):
        _check_extends(query.table)
    assert whole.bytes[0] == every.bytes[0]
    assert sum(whole.bytes[4:]) < 0.9 * sum(every.bytes[4:])


def _check_extends(table: pa.Table) -> None:
    """A result extends one that was made of its other members, by the last of them, if any was."""
    made: dict[int, list[frozenset[int]]] = {}
    for new, others in listed(table):
        made.setdefault(new, []).append(others | {new})
    found = extended(table)
    assert any(extends is not None for extends in found.values())
    for (new, others), extends in found.items():
        whole = [old for old in others if any(others <= other for other in made.get(old, []))]
        enough = len(others) >= 2  # as many members as a result of the join has at least
        assert extends in ((enough and whole) or [None]), (new, others)


@pytest.mark.parametrize(
    ("join", "options", "said"),
    [
        (ss.join("a", "b").on("k").within(5, time="ts"), {}, "clusters are of streams that a"),
        (JOIN.keep(total=2), {}, r"\.keep\(total=2\) is less than one row for each"),
        (JOIN.keep(memory="9 MB"), {}, r"\.keep\(memory=…\) was said, but a join in clusters has"),
        (JOIN.keep(total=9).spill(to="folder"), {}, r"\.spill\(\) was said"),
        (ss.join(by="sensor").on("k").last(9), {}, r"\.last\(\) was said"),
        (JOIN.first(per="key"), {}, r"\.first\(\) was said"),
        (JOIN.factorised(), {}, r"\.factorised\(\) was said"),
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
    from streamshed.spark.cluster_results import in_one_cluster
    from streamshed.spark.sharding import Sharding

    table = readings(1, 6).set_column(1, "cluster", pa.array([0, 1, 2, 0, 7, 1]))
    plan = JOIN.plan({"input": table.schema})
    pack = ClusterPack(0, in_one_cluster(plan), Sharding(partitions=3, shards=3), cluster="cluster")
    rows = table.append_column("shard", table["cluster"]).to_batches()[0]
    with pytest.raises(InputError, match="the cluster 7 of a row is no number from 0 to 2"):
        list(pack(iter([rows])))


@pytest.mark.parametrize(
    ("batch", "part", "rows", "said"),
    [
        (1, 0, 1 << 24, "a partition of the input has 16,777,217 rows"),
        (1, 4096, 0, "the input has a partition 4,096"),
        (1 << 27, 0, 0, "this is batch 134217728"),
        (None, 0, 1 << 51, "has 2,251,799,813,685,249 rows"),
    ],
)
def test_numbers_that_run_out_are_told(batch: int | None, part: int, rows: int, said: str) -> None:
    from streamshed.spark.cluster_results import numbers

    with pytest.raises(InputError, match=said):
        numbers(batch, part, rows, 1)
