"""Streams told apart by a column: windows of their own, updates, and very many of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import merged

SAID = ss.join(by="sensor").on("key").within({"b": 100}, otherwise=10, time="time")


def table(*rows: tuple[str, int, int]) -> pa.Table:
    sensor, key, time = zip(*rows, strict=True)
    return pa.table({"sensor": sensor, "key": key, "time": time})


def updates(done: pa.Table) -> list[tuple[list[str], int, int | None]]:
    return [
        ([member["sensor"] for member in row["members"]], row["update"], row["extends"])
        for row in done.to_pylist()
    ]


def test_windows_by_values_of_the_column():
    rows = table(("a", 1, 0), ("b", 1, 1), ("c", 1, 10), ("c", 1, 50), ("d", 1, 102))
    done = SAID.replay(rows)
    assert updates(done.table) == [
        (["b", "a"], 1, None),
        (["c", "b", "a"], 2, 1),
        (["c", "b"], 3, None),
    ]
    assert {name: stream.stored for name, stream in done.ledger.streams.items()} == {
        "a": 0,
        "b": 0,
        "c": 0,
        "d": 1,
    }


def test_updates_go_on_after_a_restart():
    random = np.random.default_rng(1)
    rows = pa.table(
        {
            "sensor": pa.array(random.choice(list("abcdefg"), 400)).dictionary_encode(),
            "key": random.integers(0, 5, 400),
            "time": np.arange(400) - random.integers(0, 4, 400),
        }
    )
    said = (
        ss.join(by="sensor").on("key").within({"b": 20, "c": 3}, otherwise=8, time="time", late=4)
    )
    expected = said.replay(rows, order="arrival").table
    assert expected["extends"].null_count not in (0, len(expected))
    plan = said.plan({"in": rows.schema})
    found = []
    join = build_operator(plan)
    for start in range(0, 400, 37):
        part = rows.slice(start, 37).combine_chunks().to_batches()[0]
        tuples = join.read(0, part)
        for block in join.process(merged([tuples])):
            if isinstance(block, Block):
                found.append(join.results(block))
        join = restore_operator(plan, Snapshot.from_bytes(join.snapshot().to_bytes()))
    assert pa.Table.from_batches(found).equals(expected.combine_chunks())


def test_windows_cannot_change_in_mid_stream():
    rows = table(("a", 1, 0), ("b", 1, 1))
    join = build_operator(SAID.plan({"in": rows.schema}))
    other = ss.join(by="sensor").on("key").within({"a": 100}, otherwise=10, time="time")
    with pytest.raises(ss.StateError, match="windows was"):
        restore_operator(other.plan({"in": rows.schema}), join.snapshot())


def test_equal_windows_are_one():
    schema = table(("a", 1, 0)).schema
    same = ss.join(by="sensor").on("key").within({"a": 10}, otherwise=10, time="time")
    assert same.plan({"in": schema}).windows is None
    assert SAID.plan({"in": schema}).windows is not None
    assert SAID.plan({"in": schema}).streams[0].window == 100


def test_keys_of_several_columns_are_structs():
    rows = table(("a", 1, 0), ("b", 1, 1)).append_column("floor", pa.array(["x", "x"]))
    said = ss.join(by="sensor").on("key", "floor").within(10, time="time")
    (row,) = said.select("key", "extends").replay(rows).table.to_pylist()
    assert row == {"key": {"key": 1, "floor": "x"}, "time": 1, "extends": None}
    assert said.select("update", "members.sensor").replay(rows).table.to_pylist() == [
        {"time": 1, "members": [{"sensor": "b"}, {"sensor": "a"}], "update": 1}
    ]
    with pytest.raises(ss.SpecError, match=r"'key\.x' is no column of the results"):
        said.select("key.x")


def test_a_hundred_thousand_streams_that_come_and_go():
    """Each sensor reads twice: with its neighbour, and long after alone."""
    count = 100_000
    sensor, step = np.arange(count), np.arange(count)
    rows = pa.table(
        {
            "sensor": np.concatenate([sensor, sensor]),
            "key": np.concatenate([step // 2, count + step]),
            "time": np.concatenate([step, count + step]),
        }
    )
    ledger = ss.join(by="sensor").on("key").within(10, time="time").count(rows)
    assert ledger.results == count // 2
    assert len(ledger.streams) == count
    assert sum(stream.stored for stream in ledger.streams.values()) == 11


@pytest.mark.parametrize(
    "streams",
    [
        # The hour that comes twice: Python takes the two for the same.
        pa.array(
            [1_603_585_800_000_000, 1_603_589_400_000_000], pa.timestamp("us", "Europe/Berlin")
        ),
        pa.array([1, 2], pa.timestamp("ns")),
        pa.array([1, 2], pa.date32()),
        pa.array([1, 2**64 - 1], pa.uint64()),
    ],
    ids=lambda streams: str(streams.type),
)
def test_streams_are_told_apart_by_what_is_in_the_column(streams: pa.Array) -> None:
    said = ss.join(by="s").on("k").within(100, time="ts", late=5)
    rows = pa.table({"s": streams, "k": [1, 1], "ts": [0, 1]})
    done = said.replay(rows)
    assert done.ledger.results == 1
    assert len(done.ledger.streams) == 2
    plan = said.plan({"input": rows.schema})
    operator, made = build_operator(plan), 0
    for part in (*rows.to_batches(1), *rows.to_batches(1)):
        operator = restore_operator(plan, Snapshot.from_bytes(operator.snapshot().to_bytes()))
        for found in operator.process(merged([operator.read(0, part)])):
            assert isinstance(found, Block)
            made += operator.results(found).num_rows
    assert made == 1 + 1 + 2  # with every row of the other one that has come
    assert len(operator.ledger().streams) == 2
