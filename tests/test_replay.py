"""The join over data in this process: every kind of input, every type of key, every refusal."""

from __future__ import annotations

import io
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

from streamshed import InputError, join
from streamshed.operators import intake
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.table_join import OUTPUT
from streamshed.replay import LateRowsWarning

TWO = join("a", "b").on("k").within(5, time="ts")


def stream(seed: int, rows: int = 300, keys: int = 30) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, rows, rows))
    key = [f"k{number}" for number in random.integers(0, keys, rows)]
    return pa.table({"k": key, "ts": times, "row": np.arange(rows)})


def pairs(results: pa.Table) -> list[tuple[int, int]]:
    """The rows of both members, in the order of the results."""
    return [(result["a"]["row"], result["b"]["row"]) for result in results.to_pylist()]


# -- kinds of input -------------------------------------------------------------------------------


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


# -- types ----------------------------------------------------------------------------------------

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


def test_streams_without_a_member_are_null():
    said = join("a", "b", "c").on("k").within(5, time="ts").partial(at_least=2)
    rows = pa.table({"k": [1], "ts": [1], "text": ["x"]})
    done = said.replay(a=rows, b=rows, c=rows.slice(0, 0))
    assert done.table.to_pylist() == [
        {"a": rows.to_pylist()[0], "b": rows.to_pylist()[0], "c": None, "time": 1}
    ]


# -- late rows ------------------------------------------------------------------------------------


def out_of_order():
    """The last row of a comes when both streams are at 9 at least."""
    a = pa.table({"k": [1, 1, 1, 1], "ts": [1, 9, 10, 3], "row": range(4)})
    return a, pa.table({"k": [1, 1], "ts": [1, 9], "row": range(2)})


def test_late_rows_are_kept_aside_and_warned_of():
    a, b = out_of_order()
    with pytest.warns(LateRowsWarning, match=r"1 were left out .*'a'.*late='30 seconds'") as found:
        done = TWO.replay(a=a, b=b)
    assert found[0].filename == __file__
    assert done.late["a"].to_pylist() == [{"k": 1, "ts": 3, "row": 3}]
    assert done.late["b"].schema == b.schema
    assert done.late["b"].num_rows == 0
    assert done.ledger.streams["a"].late == 1
    with pytest.warns(LateRowsWarning) as found:
        list(TWO.replay_batches(a=a, b=b))
    assert found[0].filename == __file__


def test_who_says_how_late_rows_may_come_is_not_warned():
    a, b = out_of_order()
    done = TWO.within(5, time="ts", late=2).replay(a=a, b=b)
    assert done.late["a"].num_rows == 1
    on_time = TWO.within(5, time="ts", late=6).replay(a=a, b=b)
    assert on_time.late["a"].num_rows == 0
    assert (3, 0) in pairs(on_time.table)


# -- refusals -------------------------------------------------------------------------------------

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


def test_keys_that_the_common_type_cannot_hold():
    far = pa.table({"k": pa.array([10**13], pa.timestamp("s")), "ts": [1]})
    near = pa.table({"k": pa.array([1], pa.timestamp("ns")), "ts": [1]})
    with pytest.raises(InputError, match=r"stream 'a', column 'k': a key .*fit timestamp\[ns\]"):
        TWO.replay(a=far, b=near)


def test_inputs_by_position_are_not_guessed_at():
    with pytest.raises(InputError, match=r"by position.*'a', 'b'.*replay\(a=…\)"):
        TWO.replay(GOOD)
    with pytest.raises(InputError, match=r"both by position and by name"):
        TWO.replay({"a": GOOD}, b=GOOD)


def test_rows_that_cannot_be_read_change_nothing():
    operator = KeyedJoin(TWO.plan({"a": GOOD.schema, "b": GOOD.schema}))
    operator.read(0, GOOD.to_batches()[0])
    before = (operator.ledger(), list(operator.intake.rows_seen), list(operator.intake.newest))
    bad = pa.record_batch({"k": [1, 2], "ts": [5, 2**62]})
    with pytest.raises(InputError, match="2\\^61"):
        operator.read(0, bad)
    after = (operator.ledger(), list(operator.intake.rows_seen), list(operator.intake.newest))
    assert before == after


# -- results as they are made ---------------------------------------------------------------------


def test_results_come_while_the_inputs_go_on():
    def forever(seed):
        random = np.random.default_rng(seed)
        for start in itertools.count(0, 2_000):
            rows = {"k": random.integers(0, 50, 2_000), "ts": np.arange(start, start + 2_000)}
            yield pa.record_batch(rows)

    batches = TWO.replay_batches(a=forever(1), b=forever(2))
    assert batches.schema.names == ["a", "b", "time"]
    assert batches.ledger.results == 0
    some = list(itertools.islice(batches, 5))
    assert all(batch.num_rows and batch.schema == batches.schema for batch in some)
    ledger = batches.ledger
    assert ledger.balanced
    assert ledger.results >= sum(batch.num_rows for batch in some)
    assert sum(stream.stored for stream in ledger.streams.values()) < 100


@pytest.mark.parametrize(("many", "more"), [(256, 256), (256, 257), (300, 250)])
def test_one_arrival_that_completes_more_than_the_output_holds(many, more):
    """Suspended and resumed: `many` × `more` results by each of two arrivals."""
    assert OUTPUT == 256 * 256
    said = join("a", "b", "c").on("k").within(1_000, time="ts")

    def same(rows, first):
        return pa.table({"k": [7] * rows, "ts": np.arange(rows) + first, "row": range(rows)})

    inputs = {"a": same(many, 0), "b": same(more, 0), "c": same(2, 500)}
    batches = list(said.replay_batches(inputs))
    assert len(batches) > 1
    table = pa.Table.from_batches(batches)
    made = zip(
        *(table[name].combine_chunks().field("row").to_pylist() for name in "abc"), strict=True
    )
    assert len(set(made)) == table.num_rows == 2 * many * more
    assert said.count(inputs).results == 2 * many * more


@pytest.mark.parametrize("room", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("partial", [False, True])
def test_the_output_buffer_cuts_nothing(room, partial, monkeypatch):
    said = join("a", "b", "c").on("k").within(20, time="ts")
    said = said.partial() if partial else said
    inputs = {name: stream(seed, rows=60, keys=6) for seed, name in enumerate("abc")}
    expected = said.replay(inputs)
    monkeypatch.setattr("streamshed.operators.table_join.OUTPUT", room)
    done = said.replay(inputs)
    assert done.table.equals(expected.table)
    assert done.ledger.results == expected.ledger.results == expected.table.num_rows


# -- hashes that collide --------------------------------------------------------------------------


@pytest.fixture
def colliding(monkeypatch):
    """Two hashes for all keys."""
    real = intake.key_hash

    def few(*arguments):
        hashed, null = real(*arguments)
        return hashed & np.uint64(1), null

    monkeypatch.setattr(intake, "key_hash", few)


@pytest.fixture
def honest():
    a, b = stream(1), stream(2)
    return TWO.replay(a=a, b=b)


def test_no_false_result_leaves_when_hashes_collide(honest, colliding):
    a, b = stream(1), stream(2)
    done = TWO.replay(a=a, b=b)
    assert Counter(pairs(done.table)) == Counter(pairs(honest.table))
    assert done.ledger.results == honest.ledger.results == done.table.num_rows
    assert TWO.count(a=a, b=b).results == honest.ledger.results


@pytest.mark.parametrize("chosen", [("a.row", "b.row"), ("time",)])
def test_nor_where_the_key_is_not_chosen(honest, colliding, chosen):
    a, b = stream(1), stream(2)
    done = TWO.select(*chosen).replay(a=a, b=b)
    assert Counter(done.table["time"].to_pylist()) == Counter(honest.table["time"].to_pylist())
    assert done.ledger.results == honest.ledger.results == done.table.num_rows
    if "time" not in chosen:
        assert Counter(pairs(done.table)) == Counter(pairs(honest.table))
    both = pa.concat_tables(
        [rows.append_column("who", pa.array([name] * 300)) for name, rows in [("a", a), ("b", b)]]
    ).sort_by("ts")
    told_apart = join(by="who").on("k").within(5, time="ts")
    expected = told_apart.replay(both).table
    for said in (told_apart.select("members.row"), told_apart.select("time")):
        assert said.replay(both).table["time"].equals(expected["time"])


def test_nor_where_results_are_partial(colliding):
    a, b = stream(1), stream(2)
    done = TWO.partial().replay(a=a, b=b)
    assert all(result["a"]["k"] == result["b"]["k"] for result in done.table.to_pylist())
    both = pa.concat_tables(
        [rows.append_column("who", pa.array([name] * 300)) for name, rows in [("a", a), ("b", b)]]
    ).sort_by("ts")
    done = join(by="who").on("k").within(5, time="ts").replay(both)
    assert done.ledger.results == done.table.num_rows
    for result in done.table.to_pylist():
        assert len({member["k"] for member in result["members"]}) == 1


# -- what rows are worth --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([5, 6, 7]), pa.array([1.5, 6.5, 100.5])),
        (pa.array([5, 6, 7], pa.uint64()), pa.array([1, 6, 2**63 + 5], pa.uint64())),
        (pa.array([5, 6, 7], pa.int8()), pa.array([1.5, 6.5, 100.5]).dictionary_encode()),
        (pa.array([5, 6, 7], pa.timestamp("ms")), pa.array([1500, 6500, 100500], "timestamp[us]")),
        (pa.array([Decimal("5.0"), Decimal("6.0"), Decimal("7.0")]), pa.array([1.5, 6.5, 100.5])),
    ],
)
def test_worths_of_different_types_that_compete(one, other):
    said = join("a", "b").on("k").last(10, time="ts").keep(total=2).shed(by="worth")
    a = pa.table({"k": [0, 0, 0], "ts": [1, 2, 3], "worth": one, "row": range(3)})
    b = pa.table({"k": [1, 1, 1], "ts": [4, 5, 6], "worth": other, "row": range(3)})
    ledger = said.count(a=a, b=b)
    # Kept of a: 6 and 7, until 100.5 (or 2**63 + 5) comes, and before it 6.5 where it is more.
    assert ledger.streams["b"].stored == 1
    assert ledger.streams["a"].stored == 1


# -- the rest -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(terminal, monkeypatch):
    out = Terminal() if terminal else io.StringIO()
    clock = itertools.count(0, 10)
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setattr("streamshed.replay.time.monotonic", lambda: next(clock))
    monkeypatch.setenv("TERM", "xterm")
    TWO.replay(a=stream(1), b=stream(2))
    assert ("replay" in out.getvalue()) is terminal
    assert ("600/600" in out.getvalue()) is terminal


@pytest.mark.parametrize("policy", [None, "oldest"])
def test_counting_is_replaying_without_results(policy):
    said = TWO if policy is None else TWO.keep(rows=4).shed(policy)
    inputs = {"a": stream(1), "b": stream(2)}
    ledger = said.count(inputs)
    assert ledger.streams == said.replay(inputs).ledger.streams
    assert ledger.results == said.replay(inputs).table.num_rows


def test_a_larger_skewed_join_is_what_duckdb_says():
    random = np.random.default_rng(7)
    rows, span, window = 20_000, 40_000, 1_200
    weights = np.arange(1, 2_001) ** -0.5

    def skewed():
        keys = random.choice(2_000, rows, p=weights / weights.sum())
        times = np.sort(random.integers(0, span, rows))
        return pa.table({"k": [f"key {k}" for k in keys], "ts": times, "row": np.arange(rows)})

    a, b, c = skewed(), skewed(), skewed()
    done = join("a", "b", "c").on("k").within(window, time="ts").replay(a=a, b=b, c=c)
    with duckdb.connect() as database:
        for name, table in {"a": a, "b": b, "c": c}.items():
            database.register(name, table)
        newest = "greatest(a.ts, b.ts, c.ts)"
        expected = database.sql(
            f"""
            select a.row, b.row, c.row, {newest} from a join b using (k) join c using (k)
            where {newest} - a.ts <= {window} and {newest} - b.ts <= {window}
              and {newest} - c.ts <= {window}
            order by all
            """
        ).fetchnumpy()
    members = [done.table[name].combine_chunks().field("row").to_numpy() for name in "abc"]
    ours = np.array([*members, done.table["time"].to_numpy()])
    ours = ours[:, np.lexsort(ours[::-1])]
    assert done.table.num_rows > 50_000
    assert np.array_equal(ours, np.array(list(expected.values())))


def test_pandas_rows_have_no_index_column():
    frame = pd.DataFrame({"k": [1], "ts": [1]}, index=pd.Index([17], name="index"))
    assert TWO.replay(a=frame, b=frame).table["a"].type.names == ["k", "ts"]


def test_who_lets_the_clock_begin_may_be_behind_it_and_expires_next() -> None:
    join = TWO.within(1, time="ts", idle=1)
    a = pa.table({"ts": [-1], "k": [0]})
    b = pa.table({"ts": [0, -3, 0], "k": pa.array([None, 0, 0], pa.int64())})
    ledger = join.count(a=a, b=b)
    assert (ledger.streams["b"].expired, ledger.streams["b"].stored) == (1, 1)
    assert ledger.results == 1


def test_dictionaries_of_times_are_read() -> None:
    times = pa.array([1, 2], pa.timestamp("ms")).dictionary_encode()
    rows = pa.table({"k": [1, 2], "ts": times, "day": pa.array([1, 1], pa.date32())})
    rows = rows.append_column("days", rows["day"].dictionary_encode())
    done = join("a", "b").on("k").within("10 s", time="ts").replay(a=rows, b=rows)
    assert done.table.num_rows == 2


def test_the_ledger_is_balanced_in_the_middle_of_the_results_of_a_row() -> None:
    rows = pa.table({"k": [1] * 700, "ts": [0] * 700})
    for said in (
        join("a", "b").on("k").within(5, time="ts"),
        join("a", "b").on("k").within(5, time="ts").keep(rows=600).shed("oldest"),
        join("a", "b").on("a.k = b.k").within(5, time="ts"),
    ):
        batches = said.replay_batches(a=rows, b=rows)
        for _ in batches:
            assert batches.ledger.balanced
