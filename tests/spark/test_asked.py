"""Order in time, rows without a match and first results on Spark: what a session makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streaming import Files, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, END, WINDOW = 200, 300, 40
PAIR = ss.join("a", "b").on("k").within(WINDOW, time="ts")


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = pa.array(rng.integers(0, 60, ROWS), mask=np.arange(ROWS) % 13 == 0)
    columns = {"k": keys, "ts": np.sort(rng.integers(0, END, ROWS)), "row": np.arange(ROWS)}
    return pa.table(columns)


DATA = {name: table(seed) for seed, name in enumerate("ab")}
BATCHES = [
    {name: part.filter(pa.array(part["ts"].to_numpy() // 100 == i)) for name, part in DATA.items()}
    for i in range(3)
]


def pushed(join: ss.Join) -> tuple[pa.Table, ss.Ledger]:
    """What a session makes of the same batches, which have not ended."""
    session = join.open({name: part.schema for name, part in DATA.items()})
    return pa.concat_tables([session.push(batch) for batch in BATCHES]), session.ledger


@pytest.mark.parametrize(
    ("say", "shards"),
    [
        (lambda join: join.unmatched("a", "b"), 2),
        (lambda join: join.unmatched("a", "b").keep(total=30).shed("oldest"), 1),
        (lambda join: join.in_order("a", "b", strictly=True), 2),
        (lambda join: join.first(per="b", last_touch=True).unmatched("b"), 2),
        (lambda join: join.first(per="key"), 2),
    ],
    ids=["unmatched", "unmatched under a budget", "in order", "last touch", "per key"],
)
def test_a_query_makes_what_a_session_makes(
    spark: SparkSession, files: Files, say: Callable[[ss.Join], ss.Join], shards: int
) -> None:
    """The query is stopped and started again after the first batch."""
    join = say(PAIR)
    expected, accounts = pushed(join)
    files.write(BATCHES[:1])
    files.run(spark, join, shards=shards)
    files.write(BATCHES[1:])
    ran = files.run(spark, join, shards=shards)
    assert rows(ran.table, expected.schema) == rows(expected)
    assert ran.ledger.streams == accounts.streams
    assert ran.ledger.results == accounts.results
    assert all(stream.peak >= stream.stored for stream in ran.ledger.streams.values())


def test_a_frame_that_does_not_stream_is_a_table(spark: SparkSession, files: Files) -> None:
    users = pa.table({"k": range(0, 60, 2), "name": [f"n{i}" for i in range(30)]})
    join = ss.join("a", "b", "users").on("k").within(WINDOW, time="ts")
    files.write(BATCHES)
    frames = files.frames(spark) | {"users": spark.createDataFrame(users)}
    ran = files.run(spark, join, frames=frames, shards=2)
    expected = join.replay(DATA | {"users": ss.table(users)})
    assert rows(ran.table, expected.table.schema) == rows(expected.table)
    assert ran.ledger.results == expected.ledger.results > 50


def test_frames_that_do_not_stream_make_the_outer_join_of_sql(spark: SparkSession) -> None:
    frames = {name: spark.createDataFrame(part) for name, part in DATA.items()}
    made = PAIR.unmatched("a", "b").stream(frames).toArrow().to_pylist()
    found = [tuple(row[s] and int(row[s]["row"]) for s in "ab") for row in made]
    con = duckdb.connect()
    for name, part in DATA.items():
        con.register(name, part)
    on = f"a.k = b.k AND abs(a.ts - b.ts) <= {WINDOW}"
    outer = con.sql(f"SELECT a.row, b.row FROM a FULL JOIN b ON {on}").fetchall()
    assert sorted(found, key=repr) == sorted(outer, key=repr)
    assert all(row["certain"] for row in made)
