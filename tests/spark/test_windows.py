"""Aggregates on Spark: those of replay, window by window."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss

pytest.importorskip("pyspark")

from streaming import Files, replayed
from streamshed.aggregates import Windows
from streamshed.spark.windows import VALUES, Condense, Summarise

JOIN = ss.join("a", "b").on("k").within(40, time="ts")


def batches(seed: int, kind: pa.DataType, many: int = 3, size: int = 200) -> list[dict]:
    random = np.random.default_rng(seed)
    unit = 1 if kind == pa.int64() else 1_000_000

    def table(first: int) -> pa.Table:
        times = pa.array(np.arange(first, first + size) * unit).view(kind)
        values = pa.array(random.normal(100, 15, size), mask=random.random(size) < 0.05)
        return pa.table({"ts": times, "k": random.integers(0, 10, size), "v": values})

    return [{name: table(batch * size) for name in "ab"} for batch in range(many)]


def ran(spark, files: Files, join: ss.Join, data: list[dict]) -> pa.Table:
    files.write(data)
    frame = join.stream(files.frames(spark))
    files.start(frame).awaitTermination()
    return files.results(frame)


@pytest.mark.parametrize(
    ("join", "over", "every"),
    [(JOIN, 50, None), (JOIN.within("40 s", time="ts"), "60 s", "25 s"), (JOIN, 30, 70)],
)
def test_windows_that_are_over_are_those_of_replay(spark, files, join, over, every):
    data = batches(1, pa.timestamp("us") if isinstance(over, str) else pa.int64())
    said = join.aggregate("a.v", over=over, every=every)
    expected = replayed(said, data).table
    found = ran(spark, files, said, data).cast(expected.schema)
    found = found.sort_by("end").to_pylist()
    ends = [row.pop("end") for row in found]
    assert len(ends) >= expected.num_rows / 2
    wanted = {row.pop("end"): row for row in expected.to_pylist()}
    for end, row in zip(ends, found, strict=True):
        assert row.pop("begin") == wanted[end].pop("begin")
        assert row == pytest.approx(wanted[end])


def test_without_streaming_every_window_is_there_and_counts_are_corrected(spark):
    data = batches(2, pa.int64(), many=1, size=400)
    frames = {name: spark.createDataFrame(table) for name, table in data[0].items()}
    said = JOIN.aggregate("a.v", over=100)
    exact = replayed(said, data).table
    found = said.stream(frames).toArrow().sort_by("end")
    assert found["count"].to_pylist() == exact["count"].to_pylist()
    assert found["count_high"].to_pylist() == exact["count"].to_pylist()
    shed = said.keep(rows=20).shed("random").estimate(rate=1)
    found = shed.stream(frames).toArrow().sort_by("end")
    wanted, made, said = (
        np.array(table[name].to_pylist()[1:])
        for table, name in ((exact, "count"), (found, "results"), (found, "count"))
    )
    assert (made < wanted).all()
    assert np.abs(said / wanted - 1).mean() < np.abs(made / wanted - 1).mean() / 2
    assert None not in found["average_low"].to_pylist()


def test_each_window_is_corrected_by_what_was_missed_in_it(spark, files):
    """As in replay, though no shard and no batch knows all of a window; streams burst midway."""
    random = np.random.default_rng(4)
    time = np.sort(np.concatenate([np.arange(900), random.integers(300, 600, 3_000)]))
    value = pa.array(time % 7, mask=random.random(len(time)) < 0.05)
    whole = {
        name: pa.table({"ts": time, "k": random.integers(0, 90, len(time)), "v": value})
        for name in "ab"
    }
    cuts = np.searchsorted(time, [0, 250, 450, 520, 900]).tolist()
    data = [
        {name: table.slice(first, last - first) for name, table in whole.items()}
        for first, last in pairwise(cuts)
    ]
    shed = JOIN.keep(rows=100).shed("random").aggregate("a.v", over=100, every=50)
    wanted = {row["end"]: row for row in shed.replay(whole, shards=2).table.to_pylist()}
    files.write(data)
    frame = shed.stream(files.frames(spark), shards=2)
    files.start(frame).awaitTermination()
    found = files.results(frame).to_pylist()
    assert len(found) >= len(wanted) / 2
    corrected = []
    for row in found:
        expected = wanted[row["end"]]
        for name in ("results", "count", "count_low", "count_high", "average"):
            assert row[name] == pytest.approx(expected[name])
        corrected.append(row["count"] / row["results"])
    assert max(corrected) > 2 * min(corrected)


def test_a_window_of_rows_must_be_told_how_long_to_wait(spark):
    frames = {
        name: spark.createDataFrame([(1, 1, 2.0)], "ts long, k long, v double") for name in "ab"
    }
    join = ss.join("a", "b").on("k").last(5, time="ts")
    with pytest.raises(ss.SpecError, match=r"a row window.*`wait`.*wait='1 minute'"):
        join.aggregate("a.v", over=10).stream(frames)
    assert join.aggregate("a.v", over=10, wait=3).stream(frames).count() == 1


@pytest.mark.parametrize(("over", "every"), [(160, 160), (160, 50), (30, 70)])
def test_many_results_are_condensed_and_say_the_same(over: int, every: int) -> None:
    """Counts, sums and averages stay; a quantile moves by less than a part of the ranks."""
    random = np.random.default_rng(3)
    size = 200_000
    number, value = random.integers(-100, 500, size), random.normal(50, 9, size)
    value = pa.array(value, mask=random.random(size) < 0.1)
    columns = {"number": number, "value": value, "made": np.ones(size, np.int64)}
    columns["known"] = pa.nulls(size, pa.list_(pa.float64()))
    kinds = Windows("a", "v", over, every, (0.5, 0.9), pa.int64())
    (found,) = Condense(kinds)(iter([pa.record_batch(columns)]))
    assert found.num_rows < size / 2
    assert found.schema.names == list(VALUES)
    many = value.is_valid().cast(pa.int64())
    whole = pa.record_batch(columns | {"many": many}).select(list(VALUES))
    for end in (0, every, 2 * every):
        said = []
        for rows in (whole, found):
            chosen = (rows["number"].to_numpy() > end - over) & (rows["number"].to_numpy() <= end)
            struct = pa.StructArray.from_arrays(rows.columns, rows.schema.names)
            said.append(Summarise(kinds, True, True)._window(end, struct.filter(pa.array(chosen))))
        exact, condensed = said
        assert condensed["results"] == exact["results"] > 0
        for name in ("count", "sum", "average"):
            for bound in ("", "_low", "_high"):
                assert condensed[name + bound] == pytest.approx(exact[name + bound], rel=1e-2)
            assert condensed[name] == pytest.approx(exact[name])
        assert condensed["quantile_0.5"] == pytest.approx(exact["quantile_0.5"], abs=0.1)


def test_names_may_have_dots(spark):
    rows = [(1, 1, 2.0), (9, 1, 3.0), (2, 1, 4.0)]
    frame = spark.createDataFrame(rows, ["ts", "k", "v.x"])
    said = ss.join("a.b", "c").on("k").within(5, time="ts").aggregate("a.b.v.x", over=10)
    made = said.stream({"a.b": frame, "c": frame}, shards=1).toArrow()
    assert made["results"].to_pylist() == [5]
