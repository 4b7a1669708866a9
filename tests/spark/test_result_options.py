"""Order in time, rows without a match, first results, outputs of all partners: as in a session."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamshed as ss
from state_handle import Handle
from streaming import Files, rows
from streamshed.engine.checkpoint import from_ipc
from streamshed.spark.blobs import Pack
from streamshed.spark.processor import FATES, TOTALS, JoinProcessor
from streamshed.spark.sharding import Sharding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, END, WINDOW = 200, 300, 40
PAIR = ss.join("a", "b").on("k").within(WINDOW, time="ts")
ONE = Sharding(partitions=1)
FACTS = pa.table({"p": np.arange(400) % 60, "q": np.arange(400) % 199})


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


@pytest.mark.parametrize("memory", ["on", "off"])
@pytest.mark.parametrize(
    "say",
    [
        lambda join: join.unmatched("a", "b"),
        lambda join: join.unmatched("a", "b").keep(total=30).shed("oldest"),
        lambda join: join.in_order("a", "b", strictly=True),
        lambda join: join.first(per="b", last_touch=True).unmatched("b"),
        lambda join: join.first(per="key"),
        lambda join: join.factorised(),
        lambda join: join.on(ss.near("row", 9)).between("b", "a", -5, 20),
        lambda join: join.on(a="k", b="row").through(FACTS, a="p", b="q").in_order("b", "a"),
    ],
    ids=[
        "unmatched",
        "unmatched under a budget",
        "in order",
        "last touch",
        "per key",
        "factorised",
        "between, by a condition",
        "in order, through a relation",
    ],
)
def test_a_shard_makes_what_a_session_makes(
    say: Callable[[ss.Join], ss.Join], memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without shared memory each batch begins with what the state store keeps.

    Results are made one by one there, as wide ones would be.
    """
    monkeypatch.setenv("STREAMSHED_SHARED_MEMORY", memory)
    if memory == "off":
        monkeypatch.setattr("streamshed.spark.processor.RESULTS_BYTES", 1)
    join = say(PAIR)
    expected, accounts = pushed(join)
    plan = join.plan({name: part.schema for name, part in DATA.items()})
    handle, made = Handle(), []
    for batch in BATCHES:
        processor = JoinProcessor(plan, ONE)
        processor.init(handle)
        packed = []
        for position, part in enumerate(batch.values()):
            numbered = part.append_column("shard", pa.array([0] * len(part)))
            rows_of = numbered.combine_chunks().to_batches()
            packed += Pack(position, plan, ONE)(iter(rows_of))
        blobs = pa.Table.from_batches(packed).to_pandas()
        made += processor.handleInputRows((0,), iter([blobs]), None)
    found = [from_ipc(blob) for frame in made for blob in frame.rows if blob is not None]
    assert rows(pa.Table.from_batches(found, expected.schema)) == rows(expected)
    counts = dict(zip(FATES, made[-1].counts[0][len(TOTALS) :], strict=False))
    for name in ("arrived", "stored", "expired", "shed", "unmatched", "uncertain"):
        assert counts[name] == getattr(accounts.streams["a"], name)


@pytest.mark.parametrize("join", [PAIR.unmatched("a", "b"), PAIR.factorised()], ids=str)
def test_a_query_makes_what_a_session_makes(
    join: ss.Join, spark: SparkSession, files: Files
) -> None:
    """The query is stopped and started again after the first batch."""
    expected, accounts = pushed(join)
    files.write(BATCHES[:1])
    files.run(spark, join, shards=2)
    files.write(BATCHES[1:])
    ran = files.run(spark, join, shards=2)
    assert rows(ran.table, expected.schema) == rows(expected)
    assert ran.ledger.streams == accounts.streams
    assert ran.ledger.results == accounts.results
    assert all(stream.peak >= stream.stored for stream in ran.ledger.streams.values())


@pytest.mark.parametrize(
    "say",
    [
        lambda join: join.on(ss.near("row", 9)),
        lambda join: join.on(a="k", b="row").through(FACTS, a="p", b="q"),
    ],
    ids=["condition", "relation"],
)
def test_joins_without_a_shared_key_have_an_order(
    spark: SparkSession, files: Files, say: Callable[[ss.Join], ss.Join]
) -> None:
    join = say(PAIR).in_order("a", "b", strictly=True).between("b", "a", 3, 25)
    expected, accounts = pushed(join)
    files.write(BATCHES[:2])
    files.run(spark, join, shards=2)
    files.write(BATCHES[2:])
    ran = files.run(spark, join, shards=2)
    assert rows(ran.table, expected.schema) == rows(expected)
    assert ran.ledger.results == accounts.results > 20


def test_a_frame_that_does_not_stream_is_a_table(spark: SparkSession, files: Files) -> None:
    users = pa.table({"k": range(0, 60, 2), "name": [f"n{i}" for i in range(30)]})
    join = ss.join("a", "b", "users").on("k").within(WINDOW, time="ts")
    files.write(BATCHES)
    frames = files.frames(spark) | {"users": spark.createDataFrame(users)}
    ran = files.run(spark, join, frames=frames, shards=2)
    expected = join.replay(DATA | {"users": ss.table(users)})
    assert rows(ran.table, expected.table.schema) == rows(expected.table)
    assert ran.ledger.results == expected.ledger.results > 50


@pytest.mark.parametrize("shards", [1, 2])
def test_a_table_is_read_anew_while_a_query_runs(
    spark: SparkSession, files: Files, tmp_path: Path, shards: int
) -> None:
    """Batches that begin after a change match what the table has then, old rows and new."""
    users, late = pa.table({"k": [1, 2], "name": ["one", "two"]}), pa.table({"k": [2, 3]})
    place = tmp_path / "_users"
    place.mkdir()
    pq.write_table(users, place / "0.parquet")
    join = ss.join("a", "users", "b").on("k").within(WINDOW, time="ts")
    files.write([{n: pa.table({"k": [1, 2, 3], "ts": [1, 1, 1]}) for n in "ab"}])
    table = ss.table(spark.read.parquet(str(place)), refresh="1 second")
    frame = join.stream({**files.frames(spark), "users": table}, shards=shards)
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(files.folder / "_out"))
        .option("checkpointLocation", str(files.folder / "_checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        pq.write_table(late.append_column("name", pa.array(["TWO", "THREE"])), place / "1.parquet")
        (place / "0.parquet").unlink()
        time.sleep(6)  # the table is read every second, and counts two seconds later
        files.write([{"b": pa.table({"k": [1, 2, 3], "ts": [9, 9, 9]})}])
        query.processAllAvailable()
    finally:
        query.stop()
    made = files.results(frame).to_pylist()
    found = sorted((row["a"]["ts"], row["b"]["ts"], row["users"]["name"]) for row in made)
    # The row of user 3 had no match when it came, and was filtered.
    assert found == [(1, 1, "one"), (1, 1, "two"), (1, 9, "TWO")]


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
