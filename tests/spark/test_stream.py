"""Joins on Spark make what replay makes, whatever happens to the query."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import streamshed as ss
from harness import spec
from oracles.rows import Workload
from oracles.workloads import POLICIES, generated
from streaming import Files, check_same, counts, cut, replayed, rows, whole
from streamshed.plan.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

slow = pytest.mark.slow
PAIR = ss.join("a", "b").on("k").within(30, time="ts", late=5)


def bounded(policy: str, **settings: Any) -> Workload:
    """Streams in order of time, with more rows than they may hold."""
    drawn = generated(3, rows=60, keys=12, skew=0.5, window=("time", 30), policy=policy)
    return replace(drawn, **{"seed": 5, "keep_rows": (9, 6, 12), **settings})


def table(*numbers: tuple[int, int]) -> pa.Table:
    """Rows of keys and times, numbered."""
    keys, times = zip(*numbers, strict=True) if numbers else ((), ())
    kinds = [("k", pa.int64()), ("ts", pa.int64()), ("row", pa.int64())]
    columns = [pa.array(column, pa.int64()) for column in (keys, times, range(len(keys)))]
    return pa.table(columns, schema=pa.schema(kinds))


def frames(spark: SparkSession, tables: dict[str, pa.Table]) -> dict[str, DataFrame]:
    """Batch DataFrames of Arrow tables."""
    return {name: spark.createDataFrame(rows) for name, rows in tables.items()}


# -- the same as replay ------------------------------------------------------------------------


LONG = pytest.mark.slow


@pytest.mark.parametrize("policy", ["oldest", "column", pytest.param("frequency", marks=LONG)])
def test_a_policy_decides_as_in_replay(spark: SparkSession, files: Files, policy: str) -> None:
    workload = bounded(policy)
    batches = cut(workload, 2)
    files.write(batches)
    check_same(files.run(spark, spec(workload), shards=1), replayed(spec(workload), batches))


@pytest.mark.parametrize(
    "policy",
    [
        "exact",
        "existence",
        "density",
        *(pytest.param(p, marks=LONG) for p in ("random", "output", "sketch", "pairwise")),
    ],
)
def test_a_restart_changes_nothing(spark: SparkSession, files: Files, policy: str) -> None:
    workload = bounded("oldest").unbounded() if policy == "exact" else bounded(policy)
    batches = cut(workload, 3)
    files.write(batches[:2])
    half = files.run(spark, spec(workload), shards=1)
    check_same(half, replayed(spec(workload), batches[:2]))
    files.write(batches[2:])
    check_same(files.run(spark, spec(workload), shards=1), replayed(spec(workload), batches))


def test_every_policy_is_covered() -> None:
    assert set(POLICIES) == {
        "oldest", "frequency", "column", "existence", "random", "output", "density", "sketch",
        "pairwise",
    }  # fmt: skip


def test_shards_late_rows_nulls_and_many_files(spark: SparkSession, files: Files) -> None:
    workload = generated(
        4, rows=60, keys=12, disorder=5, late=5, nulls=0.05, window=("time", 30)
    )  # fmt: skip
    batches = [cut(workload, 3)[0]]
    for batch in cut(workload, 3)[1:]:
        # The clock is far past the time of these.
        early = {n: t.slice(0, 2).set_column(1, "ts", [[-90, -80]]) for n, t in batch.items()}
        batches.append({n: pa.concat_tables([early[n], t]) for n, t in batch.items() if n != "c"})
        batches[-1]["c"] = batch["c"]
    files.write(batches, files=2)
    join = spec(workload)
    expected = replayed(join, batches)
    assert [expected.ledger.streams[name].late for name in "abc"] == [4, 4, 0]
    assert all(expected.ledger.streams[name].filtered for name in "abc")
    late = files.folder / "_late"
    ran = files.run(spark, join, files.frames(spark, files=2), shards=2, late_to=str(late))
    check_same(ran, expected)
    for name in "ab":
        found = pq.read_table(late / name)
        assert rows(found, expected.late[name].schema) == rows(expected.late[name])
    assert not (late / "c").exists()


def test_a_shard_that_never_sees_a_stream_has_its_time(spark: SparkSession, files: Files) -> None:
    """One key is in one shard; of stream `b` all other shards see nothing, but they forget too."""
    times = pa.array(range(60))
    batches = [
        {
            "a": pa.table({"k": pa.array(range(60)), "ts": pc.add(times, first)}),
            "b": pa.table({"k": pa.array([7] * 60), "ts": pc.add(times, first)}),
        }
        for first in (0, 60)
    ]
    files.write(batches)
    expected = replayed(PAIR, batches)
    assert expected.ledger.streams["a"].stored == 36
    check_same(files.run(spark, PAIR, shards=2), expected)


@pytest.mark.parametrize("budget", [{"keep_rows": (5, 2, 7)}, {"keep_rows": None, "keep_total": 9}])
def test_shards_share_the_budget(spark: SparkSession, files: Files, budget: dict[str, Any]) -> None:
    workload = bounded("random", **budget)
    files.write(cut(workload, 2))
    ran = files.run(spark, spec(workload), shards=2)
    stored = [ran.ledger.streams[name].stored for name in "abc"]
    if workload.keep_rows is not None:
        assert all(most <= least for most, least in zip(stored, workload.keep_rows, strict=True))
    assert sum(stored) <= sum(workload.keep_rows or [9])
    assert ran.ledger.balanced
    assert all(ran.ledger.streams[name].arrived == 60 for name in "abc")
    exact = rows(replayed(spec(workload.unbounded()), cut(workload, 2)).table)
    assert ran.ledger.results == ran.table.num_rows > 0
    assert all(result in exact for result in rows(ran.table))


@pytest.mark.parametrize(
    ("policy", "shards"),
    [
        ("exact", 3),
        ("oldest", 2),
        ("density", 2),
        *(pytest.param(p, 2, marks=LONG) for p in ("random", "output", "existence", "frequency")),
    ],
)
def test_replay_in_shards_makes_what_spark_makes(
    spark: SparkSession, files: Files, policy: str, shards: int
) -> None:
    """Row for row: keys, budgets and random numbers are divided in the same way."""
    workload = bounded("oldest").unbounded() if policy == "exact" else bounded(policy)
    batches = cut(workload, 2)
    files.write(batches)
    ran = files.run(spark, spec(workload), shards=shards)
    expected = spec(workload).replay(whole(batches), order="arrival", shards=shards)
    assert rows(ran.table, expected.table.schema) == rows(expected.table)
    assert ran.ledger.results == expected.ledger.results > 0
    for name, stream in ran.ledger.streams.items():
        assert stream.arrived == expected.ledger.streams[name].arrived
        assert stream.stored == expected.ledger.streams[name].stored


def test_budgets_follow_the_rows_as_in_replay(
    spark: SparkSession, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a restart, and however the rows are cut into batches."""
    random, weights = np.random.default_rng(3), 1 / np.arange(1, 41)
    drawn = [random.choice(40, 600, p=weights / weights.sum()) for _ in "ab"]
    times, bounds = np.arange(600), (0, 130, 460, 600)
    batches = [
        {n: pa.table({"k": k[i:j], "ts": times[i:j]}) for n, k in zip("ab", drawn, strict=True)}
        for i, j in pairwise(bounds)
    ]
    join = PAIR.within(60, time="ts").keep(total=20).shed("frequency")
    files.write(batches[:2])
    files.run(spark, join, shards=2)
    files.write(batches[2:])
    ran = files.run(spark, join, shards=2)
    expected = join.replay(whole(batches), shards=2)
    assert rows(ran.table, expected.table.schema) == rows(expected.table)
    assert ran.ledger.balanced
    assert sum(stream.stored for stream in ran.ledger.streams.values()) <= 20
    monkeypatch.setattr(Plan, "moments", None)
    assert ran.ledger.results > join.replay(whole(batches), shards=2).ledger.results


def test_the_sample_is_that_of_replay(spark: SparkSession, files: Files) -> None:
    """Saved, and read again after a restart."""
    drawn = generated(6, rows=800, keys=150, skew=0.5, window=("time", 60), policy="random")
    workload = replace(drawn, keep_rows=(20, 20, 20), rate=0.25)
    batches = cut(workload, 3)
    files.write(batches[:2])
    files.run(spark, spec(workload), shards=1)
    files.write(batches[2:])
    ran = files.run(spark, spec(workload), shards=1)
    check_same(ran, replayed(spec(workload), batches))
    assert ran.ledger.sample_bytes > 0
    assert ran.ledger.missed is not None
    assert ran.ledger.missed.value > 0


def test_estimates_of_shards_are_added(spark: SparkSession, files: Files) -> None:
    workload = bounded("random", rate=1.0)
    batches = cut(workload, 2)
    files.write(batches)
    ran = files.run(spark, spec(workload), shards=2)
    assert ran.ledger.missed is not None
    exact = replayed(spec(workload.unbounded()), batches).ledger.results
    assert ran.ledger.missed.value == exact - ran.ledger.results > 0


@pytest.mark.parametrize("kind", ["partial", "by", "last", "both", "mixed"])
def test_kinds_of_joins(spark: SparkSession, files: Files, kind: str) -> None:
    """Of which those with row windows are done by one shard, and the others by two."""
    workload = {
        "partial": generated(5, rows=40, keys=12, window=("time", 20), at_least=2),
        "by": generated(6, streams=7, rows=120, keys=12, window=("time", 20), by=True, at_least=2),
        "last": generated(7, rows=40, keys=6, window=("last", 5)),
        "both": generated(9, rows=40, keys=6, window=("time", 20), lasts=(5, None, 8)),
        "mixed": generated(
            8, rows=40, keys=6, window=[("last", 5), ("time", 20), ("last", 3)],
            keep_total=8, policy="output",
        ),
    }[kind]  # fmt: skip
    join = spec(workload)
    if kind == "by":
        join = join.select("key", "members")  # each shard counts updates for itself
    batches = cut(workload, 2)
    files.write(batches)
    ran = files.run(spark, join)
    check_same(ran, replayed(join, batches))
    if workload.by:
        assert list(ran.ledger.streams) == ["stream"]


# -- batches of all sizes ----------------------------------------------------------------------


def test_empty_large_and_silent(spark: SparkSession, files: Files) -> None:
    usual = generated(9, rows=30, keys=12, window=("time", 1000))
    large = generated(10, rows=300, keys=90, window=("time", 1000))
    later = _at(range(40, 340), cut(large, 1)[0])
    last = _at(range(350, 380), cut(usual, 1)[0])
    nothing = {name: rows.slice(0, 0) for name, rows in later.items()}
    batches = [
        {**cut(usual, 1)[0], "b": nothing["b"]},
        nothing,
        later,
        {name: last[name] for name in "ab"},
    ]
    files.write(batches)
    expected = replayed(spec(usual), batches)
    assert expected.table.num_rows
    check_same(files.run(spark, spec(usual)), expected)


def _at(times: range, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    return {name: rows.set_column(1, "ts", pa.array(times)) for name, rows in tables.items()}


def test_a_row_of_ten_megabytes(spark: SparkSession, files: Files) -> None:
    payload = pa.array([b"x" * 10_000_000], pa.binary())
    one = table((1, 1)).append_column("payload", payload)
    files.write([{"a": one, "b": table((1, 2))}, {"a": one.slice(0, 0), "b": table((1, 3))}])
    ran = files.run(spark, PAIR)
    assert ran.ledger.results == ran.table.num_rows == 2
    for result in ran.table.column("a"):
        assert result["payload"].as_py() == payload[0].as_py()


# -- types -------------------------------------------------------------------------------------


def test_columns_of_every_type_pass_untouched(spark: SparkSession, files: Files) -> None:
    start = datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "k": (pa.string(), ["x", "y"]),
        "ts": (pa.timestamp("us", "UTC"), [start, start + timedelta(seconds=1)]),
        "nested": (
            pa.struct([("n", pa.int32()), ("deep", pa.struct([("s", pa.string())]))]),
            [{"n": 1, "deep": {"s": "é"}}, {"n": None, "deep": None}],
        ),
        "list": (pa.list_(pa.struct([("f", pa.float32())])), [[{"f": 0.5}, None], []]),
        "map": (pa.map_(pa.string(), pa.list_(pa.int16())), [[("a", [1, None])], None]),
        "decimal": (pa.decimal128(38, 10), [Decimal("-1234567890.0123456789"), Decimal(7)]),
        "local": (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59), None]),
        "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
        "bytes": (pa.binary(), [b"\0\xff", b""]),
        "yes": (pa.bool_(), [True, None]),
        "small": (pa.int8(), [-128, 127]),
        "real": (pa.float64(), [float("inf"), -0.0]),
        "none": (pa.string(), [None, None]),
        "dotted.name with `ticks`": (pa.int32(), [1, 2]),
    }
    given = pa.table({name: pa.array(cells, kind) for name, (kind, cells) in columns.items()})
    files.write([{"a": given, "b": given}, {"a": given, "b": given.slice(0, 0)}])
    join = ss.join("a", "b").on("k").within("1 minute", time="ts", late="1 minute")
    ran = files.run(spark, join)
    assert ran.table.num_rows == 4
    for result in ran.table.to_pylist():
        expected = given.to_pylist()[["x", "y"].index(result["a"]["k"])]
        assert result == {"a": expected, "b": expected, "time": expected["ts"]}


@pytest.mark.parametrize(
    "kinds",
    [
        [("x", pa.int32()), ("y", pa.int64())],
        [("x", pa.decimal128(9, 2)), ("x", pa.decimal128(20, 4))],
        [("an x", pa.timestamp("us", "UTC")), ("a.y", pa.timestamp("us", "UTC"))],
        [("x", pa.string()), ("y", pa.string()), ("x2", pa.date32()), ("y2", pa.date32())],
        [("x", pa.bool_()), ("y", pa.bool_()), ("x2", pa.binary()), ("y2", pa.binary())],
    ],
    ids=["int", "decimal", "timestamp", "string and date", "boolean and binary"],
)
def test_keys_of_every_type_meet(spark: SparkSession, kinds: list[tuple[str, pa.DataType]]) -> None:
    """Also when they have other names and types in each stream; here on batch DataFrames."""
    data = {}
    for position, name in enumerate("ab"):
        mine = kinds[position::2]
        values = {column: _values(kind) for column, kind in mine}
        data[name] = pa.table({**values, "ts": range(8), "row": range(8)})
    join = ss.join("a", "b").on(
        a=[name for name, _ in kinds[::2]], b=[name for name, _ in kinds[1::2]]
    )
    join = join.within(100, time="ts")
    expected = join.replay(data).table
    assert expected.num_rows >= 6
    result = join.stream(frames(spark, data), shards=2)
    assert not result.isStreaming
    assert rows(result.toArrow(), expected.schema) == rows(expected)


def _values(kind: pa.DataType) -> pa.Array:
    numbers = [1, 2, 3, 4, 5, None, 1, -6]
    if pa.types.is_boolean(kind) or pa.types.is_binary(kind):
        pick = {True: [True, False], False: [b"", b"\1\0"]}[pa.types.is_boolean(kind)]
        return pa.array([None if n is None else pick[n % 2] for n in numbers], kind)
    if pa.types.is_string(kind):
        return pa.array([None if n is None else "é" * n for n in numbers], kind)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.array(numbers, pa.int64()).cast(pa.timestamp("s", "UTC")).cast(kind, safe=False)
    if pa.types.is_decimal(kind):
        return pa.array([None if n is None else Decimal(n) for n in numbers], kind)
    return pa.array(numbers, kind)


# -- what is refused before anything starts ----------------------------------------------------


def test_inputs_that_cannot_be_joined(spark: SparkSession, files: Files) -> None:
    from streamshed.spark import ledger

    files.write([{"a": table((1, 1)), "b": table((1, 1))}])
    streams = files.frames(spark)
    with pytest.raises(
        ss.InputError, match=r"stream 'b' a Table was given instead of a Spark DataFrame.*replay"
    ):
        PAIR.stream(a=streams["a"], b=table((1, 1)))
    with pytest.raises(ss.InputError, match="no stream 'c' in the join"):
        PAIR.stream(**streams, c=streams["a"])
    with pytest.raises(ss.InputError, match="no input was given for stream 'b'"):
        PAIR.stream(a=streams["a"])
    with pytest.raises(ss.InputError, match=r"stream 'a'.*'key'"):
        PAIR.on("key").stream(streams)
    with pytest.raises(ss.InputError, match=r"stream 'a'.*'time'"):
        PAIR.within(1, time="time").stream(streams)
    with pytest.raises(ss.InputError, match="both by position and by name"):
        PAIR.stream(streams, a=streams["a"])
    with pytest.raises(ss.InputError, match="one input was given by position"):
        PAIR.stream(streams["a"])
    with pytest.raises(ss.SpecError, match=r"rates is \{'a': 4\}, but .* leave it out"):
        PAIR.stream(streams, rates={"a": 4})
    with pytest.raises(ss.InputError, match=r"ledger\(\): a DataFrame was given; give the query"):
        ledger(PAIR.stream(streams))
    assert not spark.streams.active


def test_shards_that_cannot_be(spark: SparkSession) -> None:
    data = frames(spark, {"a": table((1, 1)), "b": table((1, 1))})
    for wrong in (0, -1, True, 1.5, "2", 1_025):
        with pytest.raises(ss.SpecError, match=r"shards is .*; give a whole number from 1"):
            PAIR.stream(data, shards=wrong)
    with pytest.raises(ss.SpecError, match="shards is 4, but the smallest budget is 3 rows"):
        PAIR.keep(rows={"a": 3}).stream(data, shards=4)
    with pytest.raises(ss.SpecError, match="shards is 2, but the smallest budget is 1 rows"):
        PAIR.keep(total=1).stream(data, shards=2)
    with pytest.raises(ss.SpecError, match=r"shards is 2, but \.last\(…\) counts the rows"):
        ss.join("a", "b").on("k").last(3).stream(data, shards=2)


def test_the_state_store_is_rocksdb(spark: SparkSession) -> None:
    session = spark.newSession()
    setting = "spark.sql.streaming.stateStore.providerClass"
    session.conf.unset(setting)
    data = frames(session, {"a": table((1, 1)), "b": table((1, 1))})
    PAIR.stream(data)
    assert session.conf.get(setting).endswith("RocksDBStateStoreProvider")
    session.conf.set(setting, "org.example.OtherStateStoreProvider")
    with pytest.raises(ss.SpecError, match=r"org\.example\.Other.*needs RocksDB; set spark\.sql"):
        PAIR.stream(data)


# -- the ledger of a query ---------------------------------------------------------------------


def test_the_ledger_batch_by_batch(
    spark: SparkSession, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    from streamshed.spark import LedgerListener, ledger

    workload = bounded("oldest")
    batches = cut(workload, 2)
    files.write(batches)
    frame = spec(workload).stream(files.frames(spark), shards=1)
    listener = LedgerListener()
    spark.streams.addListener(listener)
    try:
        with caplog.at_level(logging.INFO, logger="streamshed.spark"):
            query = files.start(frame)
            query.awaitTermination()
            until = time.monotonic() + 20
            while len(caplog.messages) < 2 and time.monotonic() < until:
                time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert [message.split(" of ")[0] for message in caplog.messages] == ["batch 0", "batch 1"]
    for done, message in enumerate(caplog.messages, 1):
        assert message.endswith(str(replayed(spec(workload), batches[:done]).ledger))
    found = ledger(query)
    assert found is not None
    assert counts(found) == counts(replayed(spec(workload), batches).ledger)
    assert found.state_bytes > 0
    assert found.payload_bytes > 0


def test_a_budget_in_bytes_is_kept_and_told(spark: SparkSession, files: Files) -> None:
    from streamshed.spark import ledger

    workload = bounded("oldest")
    said = spec(workload).keep(memory="3 kB").estimate(rate=0)
    batches = cut(workload, 2)
    files.write(batches)
    query = files.start(said.stream(files.frames(spark), shards=1))
    query.awaitTermination()
    found, here = ledger(query), replayed(said, batches).ledger
    assert found is not None
    assert counts(found) == counts(here)
    assert (found.held_bytes, found.peak_bytes) == (here.held_bytes, here.peak_bytes)
    assert 1_500 < found.peak_bytes <= 3_000
    assert sum(stream.shed for stream in found.streams.values()) > 0


# -- failures and restarts ---------------------------------------------------------------------


def test_a_batch_done_again_leaves_no_trace_of_the_first_time(
    spark: SparkSession, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import cloudpickle
    from pyspark.errors import StreamingQueryException

    import disturbances
    from streamshed.spark import streaming

    cloudpickle.register_pickle_by_value(disturbances)
    early = table((1, -90), (2, -80))
    batches = [
        {"a": table((1, 1), (2, 2)), "b": table((1, 1), (2, 2))},
        {"a": pa.concat_tables([early, table((1, 3))]), "b": table((2, 3), (1, 4))},
    ]
    files.write(batches)
    again = disturbances.Disturbance(1, "after", "die", tmp_path / "_marker")
    monkeypatch.setattr(
        streaming, "JoinProcessor", lambda *args: disturbances.DisturbedProcessor([again], *args)
    )
    late = str(tmp_path / "_late")
    with pytest.raises(StreamingQueryException, match="after of batch 1"):
        files.run(spark, PAIR, shards=1, late_to=late)
    expected = replayed(PAIR, batches)
    check_same(files.run(spark, PAIR, shards=1, late_to=late), expected)
    assert rows(pq.read_table(tmp_path / "_late" / "a")) == rows(expected.late["a"])


@pytest.mark.slow
def test_another_join_on_an_old_checkpoint(spark: SparkSession, files: Files) -> None:
    from pyspark.errors import StreamingQueryException

    def pair(*numbers: tuple[int, int]) -> dict[str, pa.Table]:
        return {name: table(*numbers).append_column("l", [[7] * len(numbers)]) for name in "ab"}

    batches = [pair((1, 1), (2, 2)), pair((1, 3))]
    files.write(batches[:1])
    files.run(spark, PAIR, shards=1)
    files.write(batches[1:])
    source = files.frames(spark)
    renamed = ss.join("a", "c").on("k").within(30, time="ts", late=5)
    for changed, inputs, said in [
        (PAIR.on("l"), source, "key was 'k; k' and is 'l; l'"),
        (renamed, {"a": source["a"], "c": source["b"]}, "streams was 'a, b' and is 'a, c'"),
        (PAIR.within(40, time="ts", late=5), source, r"windows was '\[30, 30\], late 5' and is"),
    ]:
        with pytest.raises(
            StreamingQueryException, match=f"(?s)StateError: the state was made by .*{said}"
        ):
            files.run(spark, changed, inputs, shards=1)
    check_same(files.run(spark, PAIR, shards=1), replayed(PAIR, batches))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PAIR.keep(rows=3), PAIR.keep(rows=2).shed(column="row")),
        (PAIR.keep(rows=2), PAIR.keep(rows=2).shed(column="row")),
    ],
    ids=["budget", "policy"],
)
def test_another_budget_or_policy_on_an_old_checkpoint(
    spark: SparkSession, files: Files, before: ss.Join, after: ss.Join
) -> None:
    many = table(*((key, key) for key in range(5)))
    files.write([{"a": many, "b": many}])
    files.run(spark, before, shards=1)
    # By its number the new row of a is worth least, so that an older one meets that of b.
    files.write([{"a": table((9, 9)), "b": table((3, 10))}])
    ran = files.run(spark, after, shards=1)
    assert ran.ledger.balanced
    assert [stream.arrived for stream in ran.ledger.streams.values()] == [6, 6]
    assert all(stream.stored <= 2 for stream in ran.ledger.streams.values())
    assert ran.table.num_rows == 6


def test_another_number_of_shards_on_an_old_checkpoint(spark: SparkSession, files: Files) -> None:
    """A shard would not find the rows that were kept for it under another label."""
    from pyspark.errors import StreamingQueryException

    files.write([{"a": table((1, 1), (2, 2)), "b": table((1, 1), (2, 2))}])
    files.run(spark, PAIR, shards=2)
    files.write([{"a": table((1, 3)), "b": table((2, 3))}])
    with pytest.raises(
        StreamingQueryException,
        match=r"(?s)StateError: .*made with shards=2, and now there are 1 .*shards=2\), or move",
    ):
        files.run(spark, PAIR, shards=1)


@pytest.mark.parametrize("shards", [None, pytest.param(2, marks=slow)])
def test_later_runs_follow_the_shards_of_the_first(
    spark: SparkSession, files: Files, shards: int | None
) -> None:
    """As on another cluster, where the session has other partitions."""
    batches = [
        {"a": table((1, 1), (2, 2), (3, 2)), "b": table((1, 1), (2, 2))},
        {"a": table((1, 3)), "b": table((2, 3), (3, 4))},
    ]
    files.write(batches[:1])
    files.run(spark, PAIR, shards=shards)
    files.write(batches[1:])
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", 3)
    check_same(files.run(other, PAIR, shards=shards), replayed(PAIR, batches))


def test_a_session_is_told_of_what_is_set(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else is set, and no job is started."""
    session = spark.newSession()
    chain = ss.join("a", "b", "c").on("a.k = b.k", "b.t = c.t").within(5, time="t")
    frame = session.createDataFrame([(1, 1)], "k long, t long")
    jobs = spark.sparkContext.statusTracker()
    before, known = session.conf.getAll, len(jobs.getJobIdsForGroup(None))
    with caplog.at_level("WARNING", logger="streamshed.spark"):
        chain.stream(dict.fromkeys("abc", frame))
    changed = {n for n, value in session.conf.getAll.items() if before.get(n) != value}
    assert changed == {"spark.sql.streaming.stateStore.providerClass"}
    assert "joins need RocksDB: spark.sql.streaming.stateStore.providerClass is" in caplog.text
    assert len(jobs.getJobIdsForGroup(None)) == known
    assert spark.streams.active == []
