"""Joins through a relation on Spark make what replay makes, whatever happens to the query."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamshed as ss
from databases import server
from oracles.rows import Workload
from oracles.workloads import generated
from queries import through, with_changes, write_changes
from streaming import Files, Ran, check_same, cut, replayed, rows
from streamshed.errors import InputError
from streamshed.join import spec_of
from streamshed.replay import Replay
from streamshed.spark import shipping
from streamshed.spark.processor import JoinProcessor
from streamshed.spark.streaming import prepared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def bounded() -> Workload:
    drawn = generated(3, rows=60, keys=12, skew=0.5, window=("time", 30), policy="oldest")
    return replace(drawn, seed=5, keep_rows=(9, 6, 12))


def check(ran: Ran, expected: Replay) -> None:
    check_same(ran, expected)
    assert expected.ledger.importance
    assert ran.ledger.importance == expected.ledger.importance
    assert ran.ledger.relation_bytes > 0


@pytest.mark.parametrize(("dynamic", "policy"), [(True, None), (False, "density")])
def test_a_restart_changes_nothing(
    spark: SparkSession, files: Files, dynamic: bool, policy: str | None
) -> None:
    workload = bounded()
    join = through(workload, dynamic)
    join = join.shed(policy) if policy else join
    batches = cut(workload, 4)
    files.write(batches[:3])
    check(files.run(spark, join), replayed(join, batches[:3]))
    files.write(batches[3:])
    check(files.run(spark, join), replayed(join, batches))


def test_a_batch_is_joined_too(spark: SparkSession) -> None:
    workload = bounded().unbounded()
    join = through(workload)
    batches = [cut(workload, 1)[0]]
    frames = {name: spark.createDataFrame(table) for name, table in batches[0].items()}
    expected = replayed(join, batches).table
    assert rows(join.stream(frames).toArrow(), expected.schema) == rows(expected)


R = pa.table({"ts": [1, 2, 3, 4], "x": [1, 2, 3, 2]})
PAIRS = pa.table({"a": [1, 2, 2, 9], "b": ["p", "q", "r", "s"], "note": ["u", "v", "w", "z"]})


def test_one_stream_alone_is_joined_in_as_many_shards_as_one_likes(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    """The relation comes as whatever it is: here a DataFrame, and a file."""
    pq.write_table(PAIRS, tmp_path / "_pairs.parquet")
    batches = [{"r": R.slice(0, 2)}, {"r": R.slice(2)}]
    files.write(batches)
    join = ss.join("r").on("x").within(0, time="ts")
    expected = replayed(join.through(PAIRS, r="a"), batches)
    assert expected.ledger.results == 5
    frame = spark.createDataFrame(PAIRS)
    check_same(files.run(spark, join.through(frame, r="a"), shards=2), expected)
    frames = {"r": spark.createDataFrame(R)}
    read = join.through(str(tmp_path / "_pairs.parquet"), r="a").stream(frames, shards=2)
    assert rows(read.toArrow(), expected.table.schema) == rows(expected.table)


@pytest.mark.parametrize("dynamic", [True, False])
def test_facts_are_divided_among_shards(spark: SparkSession, files: Files, dynamic: bool) -> None:
    """A fact is in one shard, and rows are in those of their facts: results are those of replay."""
    workload = bounded().unbounded()
    join, batches = through(workload, dynamic), cut(workload, 2)
    files.write(batches)
    ran, expected = files.run(spark, join, shards=3), replayed(join, batches)
    assert rows(ran.table, expected.table.schema) == rows(expected.table)
    assert ran.ledger.results == expected.ledger.results > 0
    assert ran.ledger.importance == pytest.approx(expected.ledger.importance)
    assert ran.ledger.balanced
    for name, stream in ran.ledger.streams.items():
        assert stream.arrived >= expected.ledger.streams[name].arrived


def test_rows_are_found_where_they_are_with_another_seed(spark: SparkSession, files: Files) -> None:
    """Which shard has a fact follows from its key alone; another relation is refused."""
    workload = bounded().unbounded()
    join, batches = through(workload, dynamic=False), cut(workload, 4)
    files.write(batches[:2])
    files.run(spark, join, shards=3)
    files.write(batches[2:])
    ran = files.run(spark, join.seed(workload.seed + 1), shards=3)
    expected = replayed(join, batches)
    assert rows(ran.table, expected.table.schema) == rows(expected.table)
    files.write(batches[:1])
    said = join._spec.through_relation
    facts = said.relation.data.slice(0, 5)
    other = join.through(replace(said.relation, data=facts), **dict(said.columns.named))
    with pytest.raises(Exception, match=r"the relation has other rows or changes"):
        files.run(spark, other, shards=3)


def test_rows_go_to_the_shards_of_their_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    known = np.array([5, 5, 7], np.uint64), np.array([0, 2, 1], np.int32)
    routes = shipping.Routes("none", 0, 3)
    monkeypatch.setattr(shipping.Routes, "arrays", known)
    cells = shipping.Cells(0, (None,) * 3, {1: routes})
    hashed = np.array([7, 8, 5], np.uint64)
    alone = cells.shards_of(0, hashed)
    assert [found.tolist() for found in alone] == [[0, 1, 2], [1, 2, 2]]
    of, shard = cells.shards_of(1, hashed)
    assert [*zip(of.tolist(), shard.tolist(), strict=True)] == [(0, 1), (1, 2), (2, 0), (2, 2)]


def test_a_relation_does_not_stream(spark: SparkSession, files: Files) -> None:
    files.write([{"r": R}])
    streams = files.frames(spark)
    with pytest.raises(InputError, match=r"relation 'relation'.*streams.*spark\.read"):
        ss.join("r").on("x").within(0, time="ts").through(streams["r"], r="x").stream(streams)


def test_types_differ_between_streams(spark: SparkSession) -> None:
    s = pa.table({"ts": [1, 2, 3], "y": ["p", "q", "nothing"]})
    join = ss.join("r", "s").on(r="x", s="y").within(5, time="ts").through(PAIRS, r="a", s="b")
    data: dict[str, Any] = {"r": R, "s": s}
    frames = {name: spark.createDataFrame(table) for name, table in data.items()}
    expected = join.replay(data).table
    assert expected.num_rows == 3
    assert rows(join.stream(frames).toArrow(), expected.schema) == rows(expected)


def test_a_table_of_changes_is_read_on_by_the_workers(spark: SparkSession, files: Files) -> None:
    """A query that is started again knows what came meanwhile."""
    columns = 'a bigint, note text, "time" bigint, change text'
    with server() as database:
        database.run(
            "CREATE TABLE pairs AS SELECT 1::bigint AS a, 'there'::text AS note",
            f"CREATE TABLE log (version bigserial, {columns})",
            "INSERT INTO log (a, note, \"time\", change) VALUES (2, 'came', 2, 'insert')",
        )
        pairs = ss.relation(
            ss.postgres(database.url, "pairs"),
            changes=ss.postgres(database.url, "log", version="version", every=0),
        )
        join = ss.join("r").on("x").within(0, time="ts").through(pairs, r="a")
        files.write([{"r": R.slice(0, 2)}])
        first = files.run(spark, join, shards=1)
        assert sorted(x["relation"]["note"] for x in rows(first.table)) == ["came", "there"]
        database.run("INSERT INTO log (a, note, \"time\", change) VALUES (3, 'late', 3, 'insert')")
        files.write([{"r": R.slice(2)}])
        found = sorted(
            (x["r"]["ts"], x["relation"]["note"])
            for x in rows(files.run(spark, join, shards=1).table)
        )
    assert found == [(1, "there"), (2, "came"), (3, "late"), (4, "came")]


def test_no_password_is_in_a_plan(spark: SparkSession, files: Files) -> None:
    """The rows of a table are read here, and its URL stays here; a log would be read by workers."""
    from pyspark import cloudpickle

    files.write([{"r": R}])
    join = ss.join("r").on("x").within(0, time="ts")
    with server() as database:
        database.run(
            "CREATE TABLE pairs AS SELECT 1::bigint AS a, 'there'::text AS note",
            'CREATE TABLE log (version bigserial, a bigint, note text, "time" bigint, change text)',
        )
        url = database.url.replace("@", ":hunter2@")
        pairs = join.through(ss.relation(ss.postgres(url, "pairs")), r="a")
        plan, _, sharding = prepared(spec_of(pairs), files.frames(spark), shards=1)
        processor = JoinProcessor(plan, sharding)
        assert b"hunter2" not in cloudpickle.dumps(processor)
        for with_password in (url, f"{database.url}?password=hunter2"):
            log = ss.postgres(with_password, "log", version="version")
            logged = join.through(ss.relation(changes=log, name="pair"), r="a")
            with pytest.raises(ss.SpecError, match=r"'pair': .* hold the password .* PGPASSFILE"):
                logged.stream(files.frames(spark), shards=1)


# -- changes that stream -------------------------------------------------------------------------

FACTS = pa.table({"a": [1, 2], "note": ["one", "two"]})
KINDS = pa.schema(
    [("a", pa.int64()), ("note", pa.string()), ("time", pa.int64()), ("change", pa.string())]
)


def changed(*rows: tuple[int, str, int, str]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * 4
    return pa.table(
        [pa.array(c, k.type) for c, k in zip(columns, KINDS, strict=True)], schema=KINDS
    )


STEPS = [
    (R.slice(0, 2), changed((3, "three", 2, "insert"), (1, "one", 4, "delete"))),
    (pa.table({"ts": [3, 5], "x": [3, 1]}), changed((2, "two", 4, "delete"))),
    # What comes after its time holds from now on: the rows of before have been joined.
    (pa.table({"ts": [7, 8], "x": [2, 4]}), changed((4, "four", 3, "insert"))),
    (pa.table({"ts": [9], "x": [4]}), changed()),
]
MADE = [(1, "one"), (2, "two"), (3, "three"), (8, "four"), (9, "four")]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("batches", [1, 4])
def test_changes_come_as_a_streaming_frame(
    spark: SparkSession, files: Files, tmp_path: Path, shards: int, batches: int
) -> None:
    """The query is started again after each batch, or runs through: the same facts hold."""
    changes = Files(tmp_path / "_changes")
    found = []
    for start in range(0, len(STEPS), batches):
        step = STEPS[start : start + batches]
        files.write([{"r": rows_} for rows_, _ in step])
        changes.write([{"log": news} for _, news in step])
        facts = ss.relation(FACTS, changes=changes.frames(spark)["log"])
        join = ss.join("r").on("x").within(0, time="ts").through(facts, r="a")
        ran = files.run(spark, join, shards=shards)
        found = sorted((x["r"]["ts"], x["relation"]["note"]) for x in rows(ran.table))
    assert found == MADE
    assert ran.ledger.results == len(MADE)
    assert ran.ledger.balanced


def test_streams_meet_through_changes_that_stream(spark: SparkSession, files: Files) -> None:
    """Rows that are stored meet others through facts that come later, and after a restart."""
    workload = bounded().unbounded()
    join, batches = through(workload), cut(workload, 4)
    write_changes(join, batches, files.folder)
    for batch in batches:
        files.write([batch])
        ran = files.run(spark, with_changes(join, files.folder, spark), shards=1)
    expected = replayed(join, batches)
    assert expected.ledger.results > 0
    check(ran, expected)


def test_changes_that_stream_need_inputs_that_do(spark: SparkSession, tmp_path: Path) -> None:
    changes = Files(tmp_path)
    changes.write([{"log": changed((3, "three", 2, "insert"))}])
    facts = ss.relation(FACTS, changes=changes.frames(spark)["log"])
    join = ss.join("r").on("x").within(0, time="ts").through(facts, r="a")
    with pytest.raises(InputError, match=r"changes of relation 'relation' stream, and the inputs"):
        join.stream(r=spark.createDataFrame(R))
