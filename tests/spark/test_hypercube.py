"""Joins by equalities on Spark: every combination in one shard, and the results of replay."""

from __future__ import annotations

import json
from itertools import product
from math import prod

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss

pytest.importorskip("pyspark")

from streaming import Files, check_same, on_the_wall, replayed
from streaming import rows as rows_of
from streamshed.join import spec_of
from streamshed.plan.routing import best_shares, copies
from streamshed.spark.hypercube import offsets, steps
from streamshed.spark.streaming import prepared

SHAPES = {
    "chain": [[0], [0, 1], [1]],
    "chain of four": [[0], [0, 1], [1, 2], [2]],
    "star": [[0, 1, 2], [0], [1], [2]],
    "triangle": [[0, 1], [1, 2], [0, 2]],
    "composite": [[0, 1, 2], [0, 1], [2]],
    "one key": [[0], [0], [0]],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shares", [*product((1, 2, 3), repeat=2), (4, 1), (2, 5)])
def test_every_combination_meets_in_exactly_one_shard(shape, shares):
    own = SHAPES[shape]
    axes = 1 + max(number for numbers in own for number in numbers)
    shares = tuple((*shares, 2, 1)[:axes])
    far = steps(shares)
    for coordinates in product(*map(range, shares)):
        shards = [
            {sum(coordinates[n] * far[n] for n in numbers) + offset
             for offset in offsets(numbers, shares)}
            for numbers in own
        ]  # fmt: skip
        expected = sum(place * step for place, step in zip(coordinates, far, strict=True))
        assert set.intersection(*shards) == {expected}
        for numbers, found in zip(own, shards, strict=True):
            copied = prod(share for n, share in enumerate(shares) if n not in numbers)
            assert len(found) == copied == len(offsets(numbers, shares))
            assert max(found) < prod(shares)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shards", [1, 2, 4, 6, 12])
def test_shares_make_the_fewest_copies(shape, shards):
    own = SHAPES[shape]
    axes = 1 + max(number for numbers in own for number in numbers)
    for rates in ([1.0] * len(own), [10.0 ** (i % 3) for i in range(len(own))]):
        found = best_shares(own, rates, shards)
        assert prod(found) == shards
        every = [s for s in product(range(1, shards + 1), repeat=axes) if prod(s) == shards]
        assert copies(own, rates, found) == min(copies(own, rates, s) for s in every)


def test_a_shared_attribute_needs_no_copies():
    assert copies(SHAPES["one key"], [1, 1, 1], best_shares(SHAPES["one key"], [1, 1, 1], 8)) == 3


JOIN = (
    ss.join("a", "b", "c").on("a.x = b.x", "b.y = c.y", "c.z = a.z").within(25, time="ts", late=3)
)


def batches(count: int) -> list[dict[str, pa.Table]]:
    random = np.random.default_rng(4)
    rows = 60

    def part(first: int) -> pa.Table:
        values = {name: random.integers(0, 4, rows) for name in "xyz"}
        ts = np.arange(first, first + rows)
        return pa.table({"ts": ts, "row": ts, **values})

    return [{name: part(rows * batch) for name in "abc"} for batch in range(count)]


def results(table: pa.Table) -> list[tuple[int, ...]]:
    return sorted(tuple(r[n]["row"] for n in "abc") for r in table.to_pylist())


@pytest.mark.spark
def test_shards_make_the_results_of_replay(spark, files: Files) -> None:
    data = batches(3)
    files.write(data)
    expected = replayed(JOIN, data)
    ran = files.run(spark, JOIN, shards=4)
    assert results(ran.table) == results(expected.table)
    assert len(results(ran.table)) == len({*results(ran.table)}) > 100
    made = {name: stream.arrived for name, stream in ran.ledger.streams.items()}
    assert made == {"a": 360, "b": 180, "c": 360}  # shares of 2 for x and y, which b has both


@pytest.mark.slow
@pytest.mark.spark
def test_one_shard_sheds_as_replay_does_and_goes_on_after_a_restart(spark, files: Files) -> None:
    data = batches(3)
    join = JOIN.keep(rows=12).shed("sketch").seed(3)
    files.write(data[:2])
    check_same(files.run(spark, join, shards=1), replayed(join, data[:2]))
    files.write(data[2:])
    check_same(files.run(spark, join, shards=1), replayed(join, data))


@pytest.mark.spark
@pytest.mark.slow
def test_a_queue_goes_by_the_clock_on_the_wall_also_after_a_restart(spark, files: Files) -> None:
    data = batches(3)
    join = JOIN.queue(rows=20).throttle(rows_per_second=20)
    files.write(data[:1])
    half = files.run(spark, join, shards=1)
    check_same(half, on_the_wall(join, data[:1], [0]))
    assert sum(stream.queued for stream in half.ledger.streams.values()) == 20
    assert sum(stream.shed for stream in half.ledger.streams.values()) == 3 * 60 - 21
    files.write(data[1:])
    whole = files.run(spark, join, shards=1)
    logs = [(files.folder / "_checkpoint" / "offsets" / str(i)).read_text() for i in range(3)]
    moments = [json.loads(log.splitlines()[1])["batchTimestampMs"] * 1e3 for log in logs]
    check_same(whole, on_the_wall(join, data, moments))
    taken = sum(stream.stored + stream.expired for stream in whole.ledger.streams.values())
    assert 21 < taken <= 2 + (moments[2] - moments[0]) * 20e-6


@pytest.mark.slow
@pytest.mark.spark
def test_a_queue_is_divided_among_shards(spark, files: Files) -> None:
    join = ss.join("a", "b", "c").on("x").within(25, time="ts")
    files.write(batches(1))
    slow = join.queue(rows=21).throttle(rows_per_second=1)
    ran = files.run(spark, slow, shards=2)
    assert ran.ledger.balanced
    assert sum(stream.arrived for stream in ran.ledger.streams.values()) == 180
    assert sum(stream.queued for stream in ran.ledger.streams.values()) == 21
    assert sum(stream.stored for stream in ran.ledger.streams.values()) == 2


@pytest.mark.spark
def test_rows_that_do_not_stream_wait_in_the_time_of_the_join(spark) -> None:
    join = ss.join("a", "b").on("x").within(25, time="ts").queue(rows=5)
    slow = join.throttle(rows_per_second=0.5)
    data = {name: batches(1)[0][name] for name in "ab"}
    frames = {name: spark.createDataFrame(rows.to_pandas()) for name, rows in data.items()}
    found = slow.stream(frames, shards=1).toArrow()
    expected = slow.replay(data).table
    assert rows_of(found, expected.schema) == rows_of(expected)
    assert len(found) > 0


def test_rates_that_are_told_decide_the_shares(spark, files):
    join = spec_of(ss.join("a", "b", "c").on("a.x = b.x", "b.y = c.y").within(50, time="ts"))
    empty = pa.table({"ts": pa.array([], pa.int64()), "x": pa.array([], pa.int64())})
    empty = empty.append_column("y", pa.array([], pa.int64()))
    files.write([dict.fromkeys("abc", empty)])
    frames = files.frames(spark)
    assert prepared(join, frames, 4)[0].shares == (2, 2)
    assert prepared(join, frames, 4, {"a": 100, "b": 1, "c": 1})[0].shares == (4, 1)
    for wrong in ({"a": 1}, {"a": 1, "b": 0, "c": 1}):
        with pytest.raises(ss.SpecError, match="'a', 'b', 'c' a number above 0"):
            prepared(join, frames, 4, wrong)
