"""Relations of every kind, and what is said of those that cannot serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamshed as ss
from streamshed.errors import InputError, SpecError
from streamshed.policies import Importance, RelationDensity

R = pa.table({"ts": [1, 2, 3], "x": [1, 2, 3], "weight": [1.0, 2.0, 3.0]})
S = pa.table({"ts": [1, 2, 3], "y": ["p", "q", "q"], "weight": [3.0, 2.0, 1.0]})
PAIRS = pa.table({"a": [1, 2, 2], "b": ["p", "q", "q"], "note": ["u", "v", "w"]})
JOIN = ss.join("r", "s").on(r="x", s="y").within(5, time="ts")
NEWS = {"a": [3], "b": ["q"], "note": ["z"], "time": [0], "change": ["insert"]}


def notes(relation: Any) -> list[tuple[int, int, str]]:
    table = JOIN.through(relation, r="a", s="b").replay(r=R, s=S).table
    return sorted((x["r"]["ts"], x["s"]["ts"], x["relation"]["note"]) for x in table.to_pylist())


INSERTED = PAIRS.append_column("time", pa.array([0] * 3)).append_column(
    "change", pa.array(["insert"] * 3)
)
EXPECTED = [(1, 1, "u"), (2, 2, "v"), (2, 2, "w"), (2, 3, "v"), (2, 3, "w")]


def test_all_kinds_of_relations_are_read(tmp_path: Path) -> None:
    pq.write_table(PAIRS, tmp_path / "pairs.parquet")
    con = duckdb.connect()
    con.register("pairs", PAIRS)
    for relation in (
        PAIRS,
        PAIRS.to_batches()[0],
        PAIRS.to_reader(),
        iter(PAIRS.to_batches(max_chunksize=1)),
        pd.DataFrame(PAIRS.to_pydict()),
        pl.DataFrame(PAIRS.to_pydict()),
        con.sql("select * from pairs"),
        str(tmp_path / "pairs.parquet"),
        ss.relation(
            changes=pa.table({**PAIRS.to_pydict(), "time": [0] * 3, "change": ["insert"] * 3})
        ),
    ):
        assert notes(relation) == EXPECTED, type(relation)


def test_a_join_can_be_replayed_again() -> None:
    join = JOIN.through(PAIRS.to_reader(), r="a", s="b")
    assert join.count(r=R, s=S).results == join.count(r=R, s=S).results == len(EXPECTED)


def test_names_of_the_columns_are_the_user_s() -> None:
    timed = PAIRS.append_column("since", pa.array([None, 0, 3])).append_column(
        "until", pa.array([2, None, None])
    )
    relation = ss.relation(timed, name="pair", begin="since", end="until")
    done = JOIN.through(relation, r="a", s="b").select("pair.note", "r.ts").replay(r=R, s=S)
    assert done.table.schema.names == ["r", "pair", "time"]
    assert [(x["r"]["ts"], x["pair"]["note"]) for x in done.table.to_pylist()] == [
        (1, "u"),
        (2, "v"),
        (2, "v"),
    ]


@pytest.mark.slow
def test_timestamps_bound_validity_as_numbers_do() -> None:
    seconds = pa.timestamp("s")
    r, s = (t.set_column(0, "ts", t.column("ts").cast(seconds)) for t in (R, S))
    pairs = PAIRS.append_column("end", pa.array([1, 3, None]).cast(seconds))
    join = ss.join("r", "s").on(r="x", s="y").within("5 s", time="ts")
    done = join.through(pairs, r="a", s="b").weigh(column="weight").keep(rows=2)
    done = done.shed(Importance(gain_loss=(10, 1))).replay(r=r, s=s)
    assert [x["relation"]["note"] for x in done.table.to_pylist()] == ["v", "w", "w"]


def test_a_column_without_a_key_of_its_own_is_named_as_the_relation_s() -> None:
    r, s = R.rename_columns(["ts", "a", "weight"]), S.rename_columns(["ts", "b", "weight"])
    join = ss.join("r", "s").within(5, time="ts").through(PAIRS, r="a", s="b")
    assert join.count(r=r, s=s).results == len(EXPECTED)


def test_many_results_of_one_arrival_do_not_fit_the_buffer_at_once() -> None:
    many = 300
    r = pa.table({"ts": [0] * many, "x": [1] * many})
    s = pa.table({"ts": [0] * many, "y": [7] * many})
    pairs = pa.table({"a": [1, 1], "b": [7, 7]})
    done = JOIN.through(pairs, r="a", s="b").replay(r=r, s=s)
    assert done.table.num_rows == done.ledger.results == 2 * many * many


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda: JOIN.through(None, r="a", s="b"), ["None", "relation(…)"]),
        (ss.relation, ["neither rows nor changes"]),
        (lambda: ss.relation(PAIRS, name=""), ["the name", "''"]),
        (lambda: ss.relation(PAIRS, begin=3), ["`begin`", "3"]),
        (lambda: JOIN.through(PAIRS), ["no column of the relation", "r='a'"]),
        (lambda: JOIN.through(PAIRS, r="a"), ["'s'", "every stream"]),
        (lambda: JOIN.through(PAIRS, r="a", s="b", t="c"), ["'t'", "'r', 's'"]),
        (lambda: JOIN.through(ss.relation(PAIRS, name="r"), r="a", s="b"), ["'r'", "name='facts'"]),
        (
            lambda: ss.join(by="k").through(PAIRS, r="a"),
            ["'k'", "streams with names"],
        ),
        (lambda: JOIN.weigh(column={"r": "w"}), ["'r'", "not for 's'"]),
        (lambda: Importance(matches="then"), ["'then'", "'at arrival' or 'now'"]),
        (lambda: Importance(gain_loss=(0, 1)), ["(0, 1)", "α above 0"]),
        (lambda: Importance(gain_loss=3), ["3", "gain_loss=(10, 0.5)"]),
        (lambda: Importance(matches="now", gain_loss=(1, 1)), ["one of the two"]),
    ],
)
def test_what_cannot_be_is_refused_at_once(say: Any, words: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        say()
    for word in words:
        assert word in str(error.value)


THROUGH = JOIN.through(PAIRS, r="a", s="b")
WEIGHED = THROUGH.weigh(column="weight").keep(rows=2)


@pytest.mark.parametrize(
    ("join", "words"),
    [
        (THROUGH.partial(at_least=2), [".partial()", "a key that all streams share"]),
        (THROUGH.keep(rows=2).shed("existence"), ["'existence'", "share none", "'importance'"]),
        (THROUGH.keep(rows=2).shed("importance"), [".weigh()"]),
        (JOIN.through(PAIRS, r=["a", "b"], s="b"), ["stream 'r' has 1", "names 2", "'a', 'b'"]),
        (ss.join("r").on("x").last(5), ["'r'", "at least two", ".through()"]),
        (
            WEIGHED.within({"r": 5}, time="ts").last({"s": 5}, time="ts").shed(
                Importance(gain_loss=(1, 1))
            ),
            ["gain_loss", ".within()", "matches='now'"],
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_planned(join: ss.Join, words: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        join.plan({name: {"r": R, "s": S}[name].schema for name in join._spec.streams})
    for word in words:
        assert word in str(error.value)


def test_the_policy_that_decides_where_none_is_named() -> None:
    schemas = {"r": R.schema, "s": S.schema}
    for join, policy in (
        (WEIGHED, RelationDensity()),
        (WEIGHED.estimate(rate=0), RelationDensity()),
        (WEIGHED.shed("density"), RelationDensity()),
        (WEIGHED.shed("importance"), Importance()),
        (THROUGH.keep(rows=2), RelationDensity()),
    ):
        assert join.plan(schemas).policy == policy


def with_bounds(begin: list[Any], end: list[Any]) -> pa.Table:
    return PAIRS.append_column("begin", pa.array(begin)).append_column("end", pa.array(end))


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        (7, ["relation 'relation'", "int", "Arrow table"]),
        ("no.parquet", ["relation 'relation'", "no.parquet"]),
        (PAIRS.drop(["b"]), ["relation 'relation' has no column 'b'", "'a', 'note'"]),
        (ss.relation(PAIRS, name="pairs", end="to"), ["relation 'pairs'", "'to'", "end"]),
        (
            PAIRS.set_column(0, "a", pa.array([1, None, None])),
            ["relation 'relation'", "'a'", "2 of the rows", "row 1", "leave out rows"],
        ),
        (
            with_bounds([0, 1, 5], [1, 2, 5]),
            ["row 2", "from 5", "'begin'", "to 5", "'end'", "end after it begins"],
        ),
        (
            PAIRS.set_column(0, "a", pa.array(["1", "2", "3"])),
            ["column 'x' of stream 'r'", "column 'a' of relation 'relation'", "cast"],
        ),
        (
            with_bounds(["a", "b", "c"], [1, 2, 3]),
            ["column 'begin' of relation 'relation'", "cannot be a time"],
        ),
        (
            ss.relation(PAIRS, changes=pa.table(NEWS).drop(["b"])),
            ["the changes of relation 'relation' has no column 'b'"],
        ),
        (
            ss.relation(PAIRS, changes=pa.table({**NEWS, "change": ["upsert"]})),
            ["'change'", "'upsert'", "'insert' or 'delete'"],
        ),
        (
            ss.relation(PAIRS, changes=pa.table({**NEWS, "change": [1]})),
            ["'change'", "int64", "'insert' and 'delete'"],
        ),
        (
            ss.relation(PAIRS, changes=pa.table({**NEWS, "time": pa.array([None], pa.int64())})),
            ["'time'", "has no time"],
        ),
        (
            ss.relation(
                PAIRS,
                changes=pa.table({n: v * 2 for n, v in NEWS.items()}).set_column(
                    3, "time", pa.array([2, 1])
                ),
            ),
            ["'time'", "1", "order of time"],
        ),
    ],
)
def test_relations_that_cannot_serve(relation: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        JOIN.through(relation, r="a", s="b").replay(r=R, s=S)
    for word in words:
        assert word in str(error.value), str(error.value)


def test_an_importance_below_nothing_is_refused() -> None:
    bad = R.set_column(2, "weight", pa.array([1.0, -1.0, 3.0]))
    with pytest.raises(InputError, match=r"'r'.*'weight'.*-1\.0"):
        THROUGH.weigh(column="weight").replay(r=bad, s=S)
    with pytest.raises(InputError, match=r"'y' of stream 's'.*string.*number"):
        THROUGH.weigh(column={"r": "weight", "s": "y"}).replay(r=R, s=S)


def test_validity_needs_streams_with_times() -> None:
    with pytest.raises(SpecError, match=r"'end' of relation.*no time.*time='ts'"):
        ss.join("r", "s").on(r="x", s="y").last(5).through(
            with_bounds([0, 0, 0], [1, 1, 1]).drop(["begin"]), r="a", s="b"
        ).replay(r=R, s=S)
