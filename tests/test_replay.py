"""The join over data in this process: every kind of input, every type of key, every refusal."""

from __future__ import annotations

import io
import itertools
from collections import Counter
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from harness import TWO, pairs, stream
from streamshed import join
from streamshed.engine import ingest
from streamshed.engine.operator import OUTPUT
from streamshed.replay import LateRowsWarning


def test_streams_without_a_member_are_null():
    said = join("a", "b", "c").on("k").within(5, time="ts").partial(at_least=2)
    rows = pa.table({"k": [1], "ts": [1], "text": ["x"]})
    done = said.replay(a=rows, b=rows, c=rows.slice(0, 0))
    assert done.table.to_pylist() == [
        {"a": rows.to_pylist()[0], "b": rows.to_pylist()[0], "c": None, "time": 1}
    ]


def out_of_order():
    """The last row of a comes when both streams are at 9 at least."""
    a = pa.table({"k": [1, 1, 1, 1], "ts": [1, 9, 10, 3], "row": range(4)})
    return a, pa.table({"k": [1, 1], "ts": [1, 9], "row": range(2)})


def test_late_rows_are_kept_aside_and_warned_of():
    a, b = out_of_order()
    with pytest.warns(LateRowsWarning, match=r"1 were left out .*'a'.*late='30 seconds'") as found:
        done = TWO.replay(a=a, b=b, order="arrival")
    assert found[0].filename == __file__
    assert done.late["a"].to_pylist() == [{"k": 1, "ts": 3, "row": 3}]
    assert done.late["b"].schema == b.schema
    assert done.late["b"].num_rows == 0
    assert done.ledger.streams["a"].late == 1
    with pytest.warns(LateRowsWarning) as found:
        list(TWO.replay_batches(a=a, b=b, order="arrival"))
    assert found[0].filename == __file__


def test_who_says_how_late_rows_may_come_is_not_warned():
    a, b = out_of_order()
    done = TWO.within(5, time="ts", late=2).replay(a=a, b=b, order="arrival")
    assert done.late["a"].num_rows == 1
    on_time = TWO.within(5, time="ts", late=6).replay(a=a, b=b, order="arrival")
    assert on_time.late["a"].num_rows == 0
    assert (3, 0) in pairs(on_time.table)


def test_tables_are_joined_in_the_order_of_time():
    """However they stand; rows of equal times keep their order, and those without a time go last"""
    random = np.random.default_rng(3)
    rows = pa.table(
        {
            "k": random.integers(0, 5, 400),
            "ts": pa.array(np.sort(random.integers(0, 900, 400)), mask=random.random(400) < 0.05),
            "row": np.arange(400),
        }
    )
    shuffled = rows.take(random.permutation(400))
    expected = TWO.replay(a=rows, b=rows.slice(50))
    done = TWO.replay(a=shuffled, b=shuffled.filter(pc.greater_equal(shuffled["row"], 50)))
    assert sorted(pairs(done.table)) == sorted(pairs(expected.table))
    assert done.table["time"].equals(expected.table["time"])
    assert done.ledger.streams == expected.ledger.streams
    assert done.ledger.streams["a"].filtered == rows["ts"].null_count > 0
    # Rows of equal times arrive as they stand.
    same = pa.table({"k": [1, 1, 1], "ts": [9, 4, 4], "row": [0, 1, 2]})
    first = pa.table({"k": [1], "ts": [0], "row": [0]})
    made = TWO.replay(a=same, b=first).table["a"].to_pylist()
    assert [row["row"] for row in made] == [1, 2]


def test_readers_are_taken_as_they_come():
    a, b = out_of_order()
    for given in (a.to_reader, lambda: iter(a.to_batches())):
        with pytest.warns(LateRowsWarning):
            assert TWO.replay(a=given(), b=b).ledger.streams["a"].late == 1


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
    monkeypatch.setattr("streamshed.engine.operator.OUTPUT", room)
    done = said.replay(inputs)
    assert done.table.equals(expected.table)
    assert done.ledger.results == expected.ledger.results == expected.table.num_rows


@pytest.fixture
def colliding(monkeypatch):
    """Two hashes for all keys."""
    real = ingest.key_hash

    def few(*arguments):
        hashed, null = real(*arguments)
        return hashed & np.uint64(1), null

    monkeypatch.setattr(ingest, "key_hash", few)


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
    said = join("a", "b").on("k").last(10, time="ts").keep(total=2).shed(column="worth")
    a = pa.table({"k": [0, 0, 0], "ts": [1, 2, 3], "worth": one, "row": range(3)})
    b = pa.table({"k": [1, 1, 1], "ts": [4, 5, 6], "worth": other, "row": range(3)})
    ledger = said.count(a=a, b=b)
    # Kept of a: 6 and 7, until 100.5 (or 2**63 + 5) comes, and before it 6.5 where it is more.
    assert ledger.streams["b"].stored == 1
    assert ledger.streams["a"].stored == 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(terminal, monkeypatch):
    out = Terminal() if terminal else io.StringIO()
    clock = itertools.count(0, 10)
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setattr("streamshed.progress.monotonic", lambda: next(clock))
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


def test_who_lets_the_clock_begin_may_be_behind_it_and_expires_next() -> None:
    join = TWO.within(1, time="ts", idle=1)
    a = pa.table({"ts": [-1], "k": [0]})
    b = pa.table({"ts": [0, -3, 0], "k": pa.array([None, 0, 0], pa.int64())})
    ledger = join.count(a=a, b=b)
    assert (ledger.streams["b"].expired, ledger.streams["b"].stored) == (1, 1)
    assert ledger.results == 1


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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pl.Series(["x", "y", None], dtype=pl.Categorical), pl.Series(["y", "x", "z"])),
        (
            pl.Series(["x", "y"], dtype=pl.Enum(["y", "x"])),
            pl.Series(["y", "x"], dtype=pl.Categorical),
        ),
        (pl.Series([Decimal("1.50"), Decimal("-2")]), pa.array([Decimal("1.5"), Decimal("-2")])),
    ],
)
def test_keys_as_polars_has_them_match_by_value(one: Any, other: Any) -> None:
    """Dictionaries of views, and decimals of 38 digits, whatever their scale."""
    a = pl.DataFrame({"k": one, "ts": range(len(one)), "v": one})
    b = pa.table({"k": other, "ts": range(len(other))})
    found = TWO.replay(a=a, b=b)
    assert found.ledger.results == found.table.num_rows == 2
    assert all(row["a"]["k"] == row["a"]["v"] == row["b"]["k"] for row in found.table.to_pylist())
