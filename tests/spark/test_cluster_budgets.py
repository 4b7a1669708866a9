"""Budgets of joins in clusters: each cluster has its part, and the ledger says what that cost.

Most tests drive the shards themselves, without Spark: what Spark adds is in the last one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from clusters import CLUSTERS, JOIN, WINDOW, clustered_frame, in_batches, readings
from streaming import Files
from streamshed.engine.build import build_operator
from streamshed.engine.observe.estimator import is_estimated
from streamshed.engine.observe.tallies import tally_of
from streamshed.estimates import Estimate
from streamshed.ledger import Ledger
from streamshed.policies import Importance
from streamshed.shards import combined, parts_of
from streamshed.spark import combined as combined_of
from streamshed.spark.cluster_join import ClusterPack, ClusterProcessor
from streamshed.spark.cluster_results import Combine, in_one_cluster, of_all_clusters
from streamshed.spark.sharding import Sharding

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Made = tuple[int, frozenset[int]]
"""A result: its newcomer, and the other members."""
POLICIES = ["density", "random", "oldest", "frequency", "output"]


@dataclass
class Ran:
    """What the clusters of a join made of one batch."""

    made: Counter[Made]
    ledger: Ledger
    parts: list[Ledger]
    """Of each cluster."""
    missed: Estimate | None
    """What all clusters together have missed, if that is estimated."""


def ran(join: ss.Join, table: pa.Table, combining: bool = True, only_sample: bool = False) -> Ran:
    """Run the clusters of a join one after the other, and combine what rows have met."""
    plan = join.plan({"input": table.schema})
    inner = in_one_cluster(plan)
    whole = of_all_clusters(inner, plan, "cluster") if is_estimated(inner) else None
    shards = CLUSTERS + (whole is not None)
    sharding = Sharding(shards, shards)
    sampled = () if whole is None else tuple(whole.streams[0].schema.names)
    pack = ClusterPack(0, inner, sharding, cluster="cluster", sampled=sampled)
    processor = ClusterProcessor(inner, sharding, "cluster", None, None, whole)
    (rows,) = table.append_column("shard", table["cluster"]).combine_chunks().to_batches()
    blobs: dict[int, list[Any]] = defaultdict(list)
    for packed in pack(iter([rows])):
        for row in packed.to_pylist():
            names = "stream", "part", "number", "newest", "rows"
            blobs[row["shard"]].append(tuple(row[name] for name in names))
    processor.plans = processor.plan_shards(sharding)
    clusters, pairs = [], []
    for label, part in processor.plans.items():
        shard = build_operator(part)
        if part is whole or not only_sample:
            pairs += processor.results(label, shard, sorted(blobs[label]), None)
        if part is not whole:
            clusters.append(shard)
    found = Combine(plan, "cluster", None)(iter(pairs)) if combining else ()
    made = Counter(
        (members[0]["row"], frozenset(member["row"] for member in members[1:]))
        for results in found
        for members in results.column("members").to_pylist()
    )
    missed = None
    if whole is not None:
        missed = replace(tally_of([processor.combined]), made=made.total()).missed()
    return Ran(made, combined(clusters), [shard.ledger() for shard in clusters], missed)


def expected(
    table: pa.Table, parts: list[int | None], combining: bool = True
) -> tuple[Counter[Made], int]:
    """The results if each cluster keeps its last rows, and what clusters find by themselves."""
    made: Counter[Made] = Counter()
    within = 0
    stored = [deque[dict[str, Any]](maxlen=part) for part in parts]
    for one in sorted(table.to_pylist(), key=lambda row: (row["ts"], row["cluster"], row["row"])):
        by_sensor: dict[int, list[int]] = {}
        for kept in stored:
            here: Counter[int] = Counter()
            for other in kept:
                near = one["ts"] - other["ts"] <= WINDOW
                if near and other["k"] == one["k"] and other["sensor"] != one["sensor"]:
                    by_sensor.setdefault(other["sensor"], []).append(other["row"])
                    here[other["sensor"]] += 1
            within += math.prod(here.values()) if here else 0
        if by_sensor and combining:
            for members in product(*by_sensor.values()):
                made[one["row"], frozenset(members)] += 1
        stored[one["cluster"]].append(one)
    return made, within


@pytest.mark.parametrize("total", [3, 20, 59])
def test_each_cluster_keeps_its_part(total: int) -> None:
    table = readings(7, 400, keys=15, moving=True)
    parts = parts_of(total, CLUSTERS)
    found = ran(JOIN.keep(total=total).shed("oldest"), table)
    assert (found.made, found.ledger.results) == expected(table, [*parts])
    for ledger, part in zip(found.parts, parts, strict=True):
        assert sum(stream.stored for stream in ledger.streams.values()) == part
    whole = [stream for stream in found.ledger.streams.values() if stream.arrived]
    assert all(stream.balanced for stream in whole)
    assert sum(stream.arrived for stream in whole) == table.num_rows  # guests are not counted


@pytest.mark.parametrize("policy", POLICIES)
def test_following_every_key_tells_exactly_what_is_missed(policy: str) -> None:
    """Guests count what they meet; taken for stored rows, they would seem to be missed."""
    for seed in range(4):
        table = readings(seed, 400, keys=15, moving=True)
        every, within = expected(table, [None] * CLUSTERS)
        found = ran(JOIN.keep(total=25).shed(policy).estimate(rate=1.0).seed(seed), table)
        assert max(found.made.values()) == 1
        missed = found.ledger.missed
        assert 0 < found.ledger.results < within
        assert {missed.low, missed.value, missed.high} == {within - found.ledger.results}
        lost = every.total() - found.made.total()
        assert found.made.total() > 0
        assert {found.missed.low, found.missed.value, found.missed.high} == {lost}
    unbounded = ran(JOIN, table)
    assert (unbounded.made, unbounded.ledger.results) == (every, within)


def test_guests_are_no_matches_once_they_have_gone() -> None:
    """What a row matches now decides who leaves: guests of a cluster leave no trace in it."""
    own = readings(11, 200, keys=10)
    own = own.filter(pa.array(np.asarray(own["cluster"]) == 0))
    join = JOIN.weigh(column="w").shed(Importance(matches="now"))
    own = own.append_column("w", pa.array(np.random.default_rng(3).random(own.num_rows)))
    guests = own.set_column(1, "cluster", pa.array(np.ones(own.num_rows, np.int64)))
    guests = guests.set_column(0, "sensor", pa.array(np.full(own.num_rows, 99)))
    guests = guests.set_column(4, "row", pa.array(np.arange(own.num_rows) + 1000))
    both = pa.concat_tables([own, guests])
    alone, visited = (ran(join.keep(total=24), table) for table in (own, both))
    of_own = Counter({made: n for made, n in visited.made.items() if made[0] < 1000})
    without = Counter()
    for (new, others), n in of_own.items():
        without[new, frozenset(row for row in others if row < 1000)] += n
    kept = {made for made in without if made[1]}
    assert kept == set(alone.made)
    assert visited.parts[0].streams[0].shed == alone.parts[0].streams[0].shed


def field(seed: int, count: int, keys: int, uneven: bool) -> pa.Table:
    """Readings of twelve sensors in three clusters; one key may make most results."""
    random = np.random.default_rng(seed)
    sensor = random.integers(0, 12, count)
    key = random.integers(0, keys, count)
    if uneven:
        key = np.where(random.random(count) < 0.04, 0, key)
    columns = {"sensor": sensor, "cluster": sensor % CLUSTERS, "k": key}
    return pa.table(columns | {"ts": np.arange(count) // 20, "row": np.arange(count)})


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("policy", ["density", "oldest"])
def test_the_estimate_has_no_bias_and_intervals_hold(
    policy: str, uneven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the seeds of the lots, against what the clusters find where nothing is shed.

    Where one key makes most results a sample of 64 entries is too small, as it is in a join in
    one place: it has no bias, but intervals of 95 % hold in three of four runs only.
    """
    for name in ("CAPACITY", "LARGE"):
        room = 256 if uneven else 64
        monkeypatch.setattr(f"streamshed.engine.observe.estimator.{name}", room)
    table = field(5, 3_000, 400 if uneven else 100, uneven)
    _, exact = expected(table, [None] * CLUSTERS, combining=False)
    join = JOIN.keep(total=150).shed(policy)
    ledgers = [ran(join.seed(CLUSTERS * seed), table, False).ledger for seed in range(100)]
    said = np.array([ledger.results + ledger.missed.value for ledger in ledgers])
    assert all(ledger.sample_rate < 1 for ledger in ledgers)
    assert abs(said.mean() - exact) < 3 * said.std(ddof=1) / math.sqrt(len(said))
    held = [ledger.missed.low <= exact - ledger.results <= ledger.missed.high for ledger in ledgers]
    assert np.mean(held) >= 0.9


def exact_results(table: pa.Table, at_least: int) -> int:
    """How many results the join in one place makes, whatever the clusters of their members."""
    found = 0
    before: dict[int, list[tuple[int, int]]] = defaultdict(list)
    columns = (table[name].to_pylist() for name in ("ts", "cluster", "row", "k", "sensor"))
    for ts, _, _, key, sensor in sorted(zip(*columns, strict=True)):
        near = [other for then, other in before[key] if ts - then <= WINDOW and other != sensor]
        of_each = Counter(near).values()
        if 1 + len(of_each) >= at_least:
            found += math.prod(of_each)
        before[key].append((ts, sensor))
    return found


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("at_least", [2, 4])
def test_the_estimate_of_all_clusters_has_no_bias_and_intervals_hold(
    at_least: int, uneven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the results whose members may come from several clusters, over the seeds of lots.

    About 400 rows are within a window. With room for 64 entries intervals hold in 83 to 86 of 100
    runs; and where one key makes most results, merged rows are off by a constant 1 % with 256.
    """
    for name in ("CAPACITY", "LARGE"):
        monkeypatch.setattr(f"streamshed.engine.observe.estimator.{name}", 512 if uneven else 160)
    table = field(5, 3_000, 400 if uneven else 100, uneven)
    exact = exact_results(table, at_least)
    join = JOIN.partial(at_least=at_least).keep(total=150).shed("oldest")
    found = [ran(join.seed(seed), table, False, only_sample=True).missed for seed in range(100)]
    said = np.array([missed.value for missed in found])
    assert said.std() > 0  # no more than a part of the keys is followed
    assert abs(said.mean() - exact) < 3 * said.std(ddof=1) / math.sqrt(len(said))
    assert np.mean([missed.low <= exact <= missed.high for missed in found]) >= 0.9


def test_a_budget_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = readings(7, 300, keys=15, moving=True)
    files = Files(tmp_path)
    files.write([{"readings": batch} for batch in in_batches(table, 3)])
    join = JOIN.keep(total=20).shed("oldest").estimate(rate=1.0)
    done = files.finish(clustered_frame(files, spark, None, join))
    made = Counter(
        (members[0]["row"], frozenset(member["row"] for member in members[1:]))
        for members in done.table["members"].to_pylist()
    )
    _, exact = expected(table, [None] * CLUSTERS)
    assert (made, done.ledger.results) == expected(table, [*parts_of(20, CLUSTERS)])
    assert done.ledger.missed.value == exact - done.ledger.results
    whole = combined_of(done.query)
    lost = exact_results(table, 2) - made.total()
    assert (whole.batches, whole.results) == (3, made.total())
    assert 0 < whole.missed.low == whole.missed.high == lost
    assert str(whole).startswith(f"{made.total():,} results in 3 batches\nrecall ")
    assert done.ledger.streams["sensor"].stored == 20
