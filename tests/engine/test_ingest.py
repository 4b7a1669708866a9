"""What a join takes in: kinds of inputs, keys and times of every type, and what is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import TWO, pairs, stream
from streamshed import InputError, join
from streamshed.engine.build import build_operator


def _saved(rows, path):
    pq.write_table(rows, path, row_group_size=50)
    return path


def _with_empty(rows):
    for batch in rows.to_batches(50):
        yield batch.slice(0, 0)
        yield batch


READ = {
    "table": lambda rows, _: rows,
    "table of chunks": lambda rows, _: pa.Table.from_batches(rows.to_batches(7)),
    "record batch": lambda rows, _: rows.combine_chunks().to_batches()[0],
    "reader": lambda rows, _: pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(9)),
    "pandas": lambda rows, _: rows.to_pandas(),
    "Polars": lambda rows, _: pl.from_arrow(rows),
    "lazy Polars": lambda rows, _: pl.from_arrow(rows).lazy(),
    "DuckDB": lambda rows, _: duckdb.sql("select * from rows"),
    "path": _saved,
    "path as text": lambda rows, path: str(_saved(rows, path)),
    "iterator": lambda rows, _: iter(rows.to_batches(1)),
    "generator with an empty batch": lambda rows, _: _with_empty(rows),
    "list of tables": lambda rows, _: [rows.slice(0, 100), rows.slice(100)],
}


@pytest.mark.parametrize("kind", READ)
def test_every_kind_of_input_gives_the_same(kind, tmp_path):
    a, b = stream(1), stream(2)
    expected = TWO.replay(a=a, b=b)
    assert expected.table.num_rows > 50
    done = TWO.replay(
        a=READ[kind](a, tmp_path / "a.parquet"), b=READ[kind](b, tmp_path / "b.parquet")
    )
    assert done.table.to_pylist() == expected.table.to_pylist()
    assert done.ledger.streams == expected.ledger.streams


def test_inputs_of_different_kinds_and_of_many_pieces():
    """More rows than are held at once: those that have left are let go of, those that wait not."""
    random = np.random.default_rng(5)
    rows = 150_000
    a, b = (
        pa.table({"k": random.integers(0, 2_000, rows), "ts": np.arange(rows), "row": range(rows)})
        for _ in range(2)
    )
    sparse = pa.table({"k": b["k"][:500], "ts": np.arange(500) * 300, "row": range(500)})
    said = join("a", "b").on("k").within(900, time="ts")

    def reader(table, size):
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(size))

    for other in (b, sparse):
        whole = said.replay(a=a, b=other)
        assert whole.table.num_rows > 400
        for one, two in [
            (reader(a, 1_000), other),
            (a, reader(other, 70_000)),
            (reader(a, 100_000), reader(other, 100)),
        ]:
            done = said.replay(a=one, b=two)
            assert done.table.equals(whole.table)
            assert done.ledger.payload_bytes < whole.ledger.payload_bytes
        assert said.count(a=reader(a, 1_000), b=reader(other, 999)).results == whole.ledger.results


def test_one_mapping_or_one_input_by_position():
    a, b = stream(1), stream(2)
    assert TWO.replay({"b": b, "a": a}).table == TWO.replay(a=a, b=b).table
    both = pa.concat_tables(
        [rows.append_column("who", pa.array([name] * 300)) for name, rows in [("a", a), ("b", b)]]
    ).sort_by([("ts", "ascending"), ("who", "ascending"), ("row", "ascending")])
    done = join(by="who").on("k").within(5, time="ts").replay(both)
    found = Counter(
        tuple(sorted((member["who"], member["row"]) for member in result["members"]))
        for result in done.table.to_pylist()
    )
    expected = Counter((("a", i), ("b", j)) for i, j in pairs(TWO.replay(a=a, b=b).table))
    assert found == expected


def test_streams_that_are_empty():
    a, none = stream(1), stream(2).slice(0, 0)
    for inputs in ({"a": a, "b": none}, {"a": none, "b": a}, {"a": none, "b": none}):
        done = TWO.replay(inputs)
        assert done.table.num_rows == 0
        assert done.table.column_names == ["a", "b", "time"]
        assert done.ledger.balanced
        assert TWO.count(inputs).results == 0
        assert list(TWO.replay_batches(inputs)) == []


DAY = datetime(2024, 5, 1, tzinfo=UTC)


KEYS = {
    "int32 and int64": (pa.int32(), pa.int64(), [1, 2, -3]),
    "int8 and uint64": (pa.int8(), pa.uint64(), [1, 2, 100]),
    "uint64": (pa.uint64(), pa.uint64(), [0, 2**63 + 1, 2**64 - 1]),
    "string and large_string": (pa.string(), pa.large_string(), ["", "a", "aaaaaaaaaaaaaaaa"]),
    "string and dictionary": (pa.string(), pa.dictionary(pa.int8(), pa.string()), ["x", "y", "z"]),
    "string_view": (pa.string_view(), pa.string(), ["x", "yyyyyyyyyyyyyyyyyyyyy", "z"]),
    "binary": (pa.binary(), pa.binary(2), [b"\0\0", b"\0\1", b"ab"]),
    "timestamps of two units": (
        pa.timestamp("s", "UTC"),
        pa.timestamp("ns", "Asia/Tokyo"),
        [DAY, DAY + timedelta(seconds=1), DAY + timedelta(days=1)],
    ),
    "decimals of two scales": (
        pa.decimal128(10, 2),
        pa.decimal128(12, 1),
        [Decimal("1.5"), Decimal("-2.0"), Decimal("12345.5")],
    ),
    "boolean": (pa.bool_(), pa.bool_(), [True, False]),
    "dates": (pa.date32(), pa.date64(), [date(2024, 5, 1), date(1969, 12, 31), date(2024, 5, 2)]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_are_compared_by_value(kind):
    one, other, values = KEYS[kind]
    random = np.random.default_rng(0)
    a, b = ([values[i] for i in random.integers(0, len(values), 20)] for _ in range(2))
    a[3] = b[4] = None
    done = TWO.within(100, time="ts").replay(
        a=pa.table({"k": pa.array(a, one), "ts": range(20), "row": range(20)}),
        b=pa.table({"k": pa.array(b, other), "ts": range(20), "row": range(20)}),
    )
    expected = Counter(
        (i, j)
        for i, j in itertools.product(range(20), repeat=2)
        if a[i] is not None and a[i] == b[j]
    )
    assert Counter(pairs(done.table)) == expected
    assert [done.ledger.streams[name].filtered for name in "ab"] == [1, 1]


def test_keys_of_several_columns_with_different_names():
    random = np.random.default_rng(1)
    whole, text = random.integers(0, 4, (2, 40)), random.choice(["x", "y", "xy"], (2, 40))
    said = join("a", "b").on(a=["i", "s"], b=["number", "word"]).within(100, time="ts")
    done = said.replay(
        a=pa.table({"i": whole[0], "s": text[0], "ts": range(40), "row": range(40)}),
        b=pa.table(
            {
                "word": pa.array(text[1]).dictionary_encode(),
                "number": whole[1].astype(np.int16),
                "ts": range(40),
                "row": range(40),
            }
        ),
    )
    expected = {
        (i, j)
        for i, j in itertools.product(range(40), repeat=2)
        if whole[0][i] == whole[1][j] and text[0][i] == text[1][j]
    }
    assert set(pairs(done.table)) == expected
    assert done.table.num_rows == len(expected)


def test_nulls_in_keys_and_times_are_filtered_and_never_match():
    words = pa.array(["x", None])  # the null is in the dictionary, not in the indices
    rows = pa.table(
        {
            "k": pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0, None], pa.int8()), words),
            "ts": pa.array([1, 2, 3, None, 5]),
            "row": range(5),
        }
    )
    done = TWO.replay(a=rows, b=rows)
    assert pairs(done.table) == [(0, 0)]
    for account in done.ledger.streams.values():
        assert (account.arrived, account.filtered, account.stored) == (5, 4, 1)


def test_times_of_different_types():
    seconds = pa.array([0, 10, 20], pa.timestamp("s"))
    nanoseconds = pa.array([1_999, 10_000_000_001, 99_000_000_000], pa.timestamp("ns"))
    done = (
        join("a", "b")
        .on("k")
        .within("1 s", time={"a": "t", "b": "u"})
        .replay(
            a=pa.table({"k": [1, 1, 1], "t": seconds, "row": range(3)}),
            b=pa.table({"k": [1, 1, 1], "u": nanoseconds, "row": range(3)}),
        )
    )
    assert pairs(done.table) == [(0, 0), (1, 1)]
    assert done.table["time"].type == pa.timestamp("us")
    assert done.table["time"].to_pylist()[0] == datetime(1970, 1, 1, microsecond=1)


def test_the_users_columns_come_out_as_they_went_in():
    other = pa.table(
        {
            "k": pa.array([1, 2, 3]),
            "ts": pa.array([1, 2, 3]),
            "list": pa.array([[1, None], [], None], pa.list_(pa.int8())),
            "struct": pa.array([{"x": 1, "y": ["a"]}, None, {"x": None, "y": []}]),
            "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int32())),
            "binary": pa.array([b"\0", b"", None]),
            "decimal": pa.array([Decimal("1.10"), None, Decimal("-3.00")], pa.decimal128(9, 2)),
            "dictionary": pa.array(["u", None, "u"]).dictionary_encode(),
            "null": pa.nulls(3),
            "float": pa.array([1.5, float("inf"), None], pa.float32()),
        }
    )
    done = TWO.replay(a=other, b=other.slice(0, 3))
    for name in "ab":
        assert done.table[name].type == pa.struct(list(other.schema))
        assert done.table[name].to_pylist() == other.to_pylist()


def test_views_come_out_as_what_can_be_taken():
    """Arrow cannot pick rows of its view types, which Polars hands over."""
    nested = pa.map_(pa.string_view(), pa.struct({"x": pa.list_(pa.binary_view())}))
    kinds = {"k": pa.string_view(), "ts": pa.int64(), "nested": nested}
    values = [{"k": "x", "ts": 1, "nested": [("a", {"x": [b"b", None]})]}]
    views = pa.Table.from_pylist(values, pa.schema(kinds))
    done = TWO.replay(a=views, b=iter(views.to_batches()))
    assert done.table["a"].type.field("k").type == pa.large_string()
    for name in "ab":
        assert done.table[name].to_pylist() == values


GOOD = pa.table({"k": [1], "ts": [1]})


def later(batch):
    return iter([GOOD.to_batches()[0], batch])


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"a": GOOD}, ["no input", "'b'", "give one for each"]),
        ({"a": GOOD, "b": GOOD, "c": GOOD}, ["no stream 'c'", "'a', 'b'"]),
        ({"a": GOOD, "b": pa.table({"k": [1]})}, ["'b' has no column 'ts'", "time", "'k'"]),
        ({"a": GOOD, "b": pa.table({"x": [1], "ts": [1]})}, ["'b' has no column 'k'", "key"]),
        (
            {"a": pa.table({"k": [1.5], "ts": [1]}), "b": GOOD},
            ["column 'k' of stream 'a'", "double", "cast it to a decimal or an integer"],
        ),
        (
            {"a": GOOD, "b": pa.table({"k": ["x"], "ts": [1]})},
            ["column 'k' of stream 'a'", "column 'k' of stream 'b'", "string", "cast one"],
        ),
        (
            {"a": GOOD, "b": pa.table({"k": [1], "ts": ["noon"]})},
            ["column 'ts' of stream 'b'", "string", "cast it to a timestamp"],
        ),
        (
            {"a": pa.table({"k": [1], "ts": pa.array([2**64 - 5], pa.uint64())}), "b": GOOD},
            ["stream 'a'", "column 'ts'", str(2**64 - 5), "use times that fit int64"],
        ),
        (
            {"a": GOOD, "b": pa.table({"k": [1], "ts": [-(2**61) - 1]})},
            ["stream 'b'", "column 'ts'", str(-(2**61) - 1), "coarser unit"],
        ),
        ({"a": 7, "b": GOOD}, ["stream 'a'", "a int cannot be read", "Parquet"]),
        ({"a": GOOD, "b": "nowhere.parquet"}, ["stream 'b'", "nowhere.parquet", "check the path"]),
        ({"a": GOOD, "b": iter([])}, ["stream 'b'", "no batches", "RecordBatchReader"]),
        ({"a": iter([1, 2]), "b": GOOD}, ["stream 'a'", "gives a int", "record batches"]),
        (
            {"a": GOOD, "b": later(pa.record_batch({"k": ["x"], "ts": [1]}))},
            ["stream 'b'", "k: string", "the first had k: int64"],
        ),
        ({"a": GOOD, "b": later("rows")}, ["stream 'b'", "it has str", "k: int64"]),
    ],
)
def test_data_that_cannot_be_joined_is_refused(inputs, words):
    with pytest.raises(InputError) as error:
        TWO.replay(inputs)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("given", [GOOD.to_reader, lambda: iter(GOOD.to_batches())])
@pytest.mark.parametrize("run", [TWO.replay, TWO.replay_batches, TWO.count])
def test_one_reader_does_not_serve_two_streams(run, given):
    once = given()
    with pytest.raises(InputError, match=r"'a' and 'b' were given the same .* give each stream"):
        run(a=once, b=once)


def test_keys_that_the_common_type_cannot_hold():
    far = pa.table({"k": pa.array([10**13], pa.timestamp("s")), "ts": [1]})
    near = pa.table({"k": pa.array([1], pa.timestamp("ns")), "ts": [1]})
    with pytest.raises(InputError, match=r"stream 'a', column 'k': a key .*fit timestamp\[ns\]"):
        TWO.replay(a=far, b=near)


def test_inputs_by_position_are_not_guessed_at():
    with pytest.raises(InputError, match=r"by position.*'a', 'b'.*replay\(a=…"):
        TWO.replay(GOOD)
    with pytest.raises(InputError, match=r"both by position and by name"):
        TWO.replay({"a": GOOD}, b=GOOD)


def test_rows_that_cannot_be_read_change_nothing():
    operator = build_operator(TWO.plan({"a": GOOD.schema, "b": GOOD.schema}))
    operator.read(0, GOOD.to_batches()[0])
    before = (operator.ledger(), list(operator.ingest.rows_seen), list(operator.ingest.newest))
    bad = pa.record_batch({"k": [1, 2], "ts": [5, 2**62]})
    with pytest.raises(InputError, match="2\\^61"):
        operator.read(0, bad)
    after = (operator.ledger(), list(operator.ingest.rows_seen), list(operator.ingest.newest))
    assert before == after


def test_pandas_rows_have_no_index_column():
    frame = pd.DataFrame({"k": [1], "ts": [1]}, index=pd.Index([17], name="index"))
    assert TWO.replay(a=frame, b=frame).table["a"].type.names == ["k", "ts"]


def test_dictionaries_of_times_are_read() -> None:
    times = pa.array([1, 2], pa.timestamp("ms")).dictionary_encode()
    rows = pa.table({"k": [1, 2], "ts": times, "day": pa.array([1, 1], pa.date32())})
    rows = rows.append_column("days", rows["day"].dictionary_encode())
    done = join("a", "b").on("k").within("10 s", time="ts").replay(a=rows, b=rows)
    assert done.table.num_rows == 2
