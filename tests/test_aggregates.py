"""Windowed aggregates of results: DuckDB's where nothing is missing, covered where it is."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.aggregates import UNKNOWN, Windows, aggregated
from streamshed.estimates import Estimate
from streamshed.policies import Sketch


def streams(seed: int, rows: int = 400, values: int = 20) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)
    return {
        name: pa.table(
            {
                "ts": np.arange(rows),
                "k": random.integers(0, values, rows),
                "v": random.normal(100, 15, rows),
                "s": ["text"] * rows,
            }
        )
        for name in "ab"
    }


JOIN = ss.join("a", "b").on("k").within(40, time="ts")


@pytest.mark.parametrize(("over", "every"), [(50, None), (50, 20), (30, 70)])
def test_without_shedding_they_are_duckdbs(over: int, every: int | None) -> None:
    done = JOIN.replay(streams(1))
    said = JOIN.aggregate("a.v", over=over, every=every, quantiles=(0.25, 0.5))
    found = said.replay(streams(1)).table
    (batch,) = said.replay_batches(streams(1))
    assert batch == found.combine_chunks().to_batches()[0]
    values = done.table["a"].combine_chunks().field("v")
    database = duckdb.connect()
    database.register("flat", pa.table({"v": values, "time": done.table["time"]}))
    for row in found.to_pylist():
        count, total, mean, low, middle = database.sql(
            "select count(*), coalesce(sum(v), 0), avg(v), quantile_disc(v, 0.25),"
            f" quantile_disc(v, 0.5) from flat where time > {row['begin']} and time <= {row['end']}"
        ).fetchall()[0]
        assert row["end"] - row["begin"] == over
        assert (row["results"], row["count"], row["count_low"]) == (count, count, count)
        assert row["sum"] == pytest.approx(total)
        if count:
            assert row["average"] == row["average_low"] == row["average_high"]
            assert row["average"] == pytest.approx(mean)
            assert (row["quantile_0.25"], row["quantile_0.5"]) == (low, middle)


def test_counts_and_sums_are_corrected_by_what_is_known_to_be_missing() -> None:
    data = streams(2)
    said = JOIN.aggregate("a.v", over=100)
    exact = said.replay(data).table
    shed = said.keep(rows=20).shed("random").estimate(rate=1).replay(data)
    assert shed.ledger.recall.value < 0.6
    found = shed.table
    wanted, made, said = (
        np.array(table[name][1:-1].to_pylist())
        for table, name in ((exact, "count"), (found, "results"), (found, "count"))
    )
    assert np.abs(said / wanted - 1).mean() < np.abs(made / wanted - 1).mean() / 2


def test_intervals_of_averages_cover_the_truth() -> None:
    covered = []
    for seed in range(15):
        data = streams(seed, rows=900)
        said = JOIN.aggregate("a.v", over=300)
        exact = said.replay(data).table
        found = said.keep(rows=20).shed("random").replay(data).table
        for truth, row in zip(exact.to_pylist(), found.to_pylist(), strict=True):
            if truth["results"] > 100:
                covered.append(row["average_low"] <= truth["average"] <= row["average_high"])
                assert row["quantile_0.5_low"] <= row["quantile_0.5"] <= row["quantile_0.5_high"]
    assert np.mean(covered) > 0.85


def test_what_is_no_sample_has_no_intervals() -> None:
    data = streams(3)
    for policy, known in (("oldest", False), ("random", True), (Sketch(objective="sample"), True)):
        said = JOIN.keep(rows=10).shed(policy).aggregate("a.v", over=100)
        row = said.replay(data).table.to_pylist()[1]
        assert (row["average_low"] is not None) == known


def test_where_nothing_is_known_of_what_is_missing_counts_are_those_made() -> None:
    table = pa.table({"a": [{"v": 1}, {"v": 3}], "time": [5, 6]})
    windows = Windows("a", "v", 10, 10, (), pa.int64())
    (row,) = aggregated(table, windows, False, lambda begin, end: UNKNOWN).to_pylist()
    assert (row["results"], row["count"], row["count_low"], row["sum"]) == (2, 2, None, 4)
    twice = Estimate(4.0, 2.0, 5.0)
    (row,) = aggregated(table, windows, False, lambda begin, end: twice).to_pylist()
    assert (row["count"], row["count_low"], row["count_high"]) == (4, 2, 5)


def test_timestamps_and_no_results() -> None:
    table = pa.table({"k": [1], "ts": pa.array([3_000_000], pa.timestamp("us")), "v": [2]})
    join = ss.join("a", "b").on("k").within("1 s", time="ts").aggregate("b.v", over="2 seconds")
    found = join.replay(a=table, b=table).table
    assert found["end"].to_pylist()[0].second == 4
    nothing = join.replay(a=table, b=table.slice(0, 0)).table
    assert nothing.num_rows == 0
    assert nothing.schema == found.schema


def test_nothing_but_the_column_is_kept() -> None:
    said = JOIN.aggregate("a.v", over=10)
    schema = streams(1)["a"].schema
    assert said.plan({"a": schema, "b": schema}).streams[0].schema.names == ["ts", "k", "v"]
    assert said.count(streams(1)).results == JOIN.count(streams(1)).results


def test_streams_may_have_dots_in_their_names() -> None:
    rows = pa.table({"k": [1], "ts": [1], "v": [2]})
    said = ss.join("a.x", "b").on("k").within(5, time="ts").aggregate("a.x.v", over=5)
    assert said.replay({"a.x": rows, "b": rows}).table["sum"].to_pylist() == [2.0]


def test_each_member_of_streams_that_a_column_names_counts() -> None:
    """They are those of the results, flattened."""
    rows = pa.table(
        {"s": list("abab"), "k": [1, 1, 1, 1], "ts": [1, 2, 9, 12], "v": [1, 2, None, 8]}
    )
    said = ss.join(by="s").on("k").within(5, time="ts")
    made = said.replay(rows).table.to_pylist()
    found = said.aggregate("members.v", over=10).replay(rows).table.to_pylist()
    for row in found:
        values = [
            member["v"]
            for result in made
            if row["begin"] < result["time"] <= row["end"]
            for member in result["members"]
            if member["v"] is not None
        ]
        assert (row["results"], row["sum"]) == (len(values), sum(values))
    assert sum(row["results"] for row in found) == 3


@pytest.mark.parametrize("shards", [None, 2])
def test_each_window_is_corrected_by_what_was_missed_in_it(shards: int | None) -> None:
    """In the middle the streams are ten times as fast, and most is shed."""
    random = np.random.default_rng(4)
    time = np.sort(np.concatenate([np.arange(900), random.integers(300, 600, 3_000)]))
    data = {
        name: pa.table({"ts": time, "k": random.integers(0, 90, len(time)), "v": time % 7})
        for name in "ab"
    }
    said = JOIN.aggregate("a.v", over=100, every=50)
    exact = said.replay(data).table
    shed = said.keep(rows=100).shed("random").estimate(rate=1)
    found = shed.replay(data, shards=shards).table
    made, wanted, count = (
        np.array(table[name].to_pylist())
        for table, name in ((found, "results"), (exact, "results"), (found, "count"))
    )
    parts = made / wanted
    assert parts.max() > 2 * parts.min()
    assert count.tolist() == pytest.approx(wanted.tolist())
    assert found["count_low"].to_pylist() == pytest.approx(count.tolist())


def test_a_sum_is_no_better_known_than_the_average() -> None:
    said = JOIN.aggregate("a.v", over=300)
    for policy, known in (("oldest", False), ("random", True)):
        row = said.keep(rows=20).shed(policy).replay(streams(5, 900)).table.to_pylist()[1]
        assert (row["sum_low"] is not None) == known
        if known:
            off = (row["sum_high"] - row["sum"]) / row["sum"]
            assert off >= (row["average_high"] - row["average"]) / row["average"] * 0.999
            assert row["sum_low"] < row["sum"] < row["sum_high"]


def test_windows_of_which_nothing_was_made_say_what_was_missed() -> None:
    table = pa.table({"a": [{"v": 1}, {"v": 3}], "time": [5, 25]})
    windows = Windows("a", "v", 10, 10, (), pa.int64())

    def exact(begin: int, end: int) -> Estimate:
        return Estimate(end / 5, end / 10, end / 2)

    found = aggregated(table, windows, False, exact).to_pylist()
    assert [row["count"] for row in found] == [2, 4, 6]
    assert [row["count_low"] for row in found] == [1, 2, 3]
    assert [row["sum"] for row in found] == [2, 0, 18]


def test_more_windows_than_anybody_reads_are_refused() -> None:
    rows = pa.table({"k": [1, 2], "ts": [5, 10**9], "v": [1, 2]})
    join = ss.join("a", "b").on("k").within(5, time="ts").aggregate("a.v", over=1)
    with pytest.raises(ss.SpecError, match=r"999,999,996 windows from .* 5, to .* longer `every`"):
        join.replay(a=rows, b=rows)


def test_integers_beyond_what_doubles_hold_are_rounded() -> None:
    rows = pa.table({"k": [1], "ts": [5], "v": [2**60 + 1]})
    join = ss.join("a", "b").on("k").within(5, time="ts")
    found = join.aggregate("a.v", over=10).replay(a=rows, b=rows)
    assert found.table["sum"].to_pylist() == [float(2**60)]
    assert join.weigh(column="v").replay(a=rows, b=rows).ledger.importance == float(2**60)
