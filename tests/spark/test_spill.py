"""Joins that spill on Spark make every result once, whoever goes on with a shard."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamshed as ss
from queries import spilled_batches, spilled_join
from state_handle import Handle
from streaming import whole
from streamshed.engine.blocks import Block
from streamshed.engine.ingest import in_order_of_time, merged
from streamshed.spark import shared_memory, spilling, store
from streamshed.spark.sharding import Sharding

ONE = Sharding(partitions=1)
WINDOW = 400


@pytest.fixture(autouse=True)
def base(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_memory, "_base", lambda: tmp_path / "cache")
    monkeypatch.setattr(store, "_live", {})


def rows(seed: int, size: int, start: int) -> pa.RecordBatch:
    random = np.random.default_rng([seed, start])
    times = np.sort(random.integers(start, start + size, size))
    keys = random.integers(0, 40, size)
    return pa.record_batch({"k": keys, "ts": times, "n": np.arange(start, start + size)})


def joined(to: Path) -> ss.Join:
    return ss.join("a", "b").on("k").within(WINDOW, time="ts").keep(total=120).spill(to=str(to))


def exact(a: pa.Table, b: pa.Table) -> Counter:
    found = duckdb.sql(
        f"SELECT a.n, b.n FROM a JOIN b USING (k) WHERE abs(a.ts - b.ts) <= {WINDOW}"
    )
    return Counter(found.fetchall())


def paths(state: store.Live) -> list[Path]:
    """Where the worker that has a join would have its files of spilled rows."""
    return list(spilling.files_of(state.join).values())


@pytest.mark.parametrize("lost", ["nothing", "worker", "batch"])
def test_nothing_is_lost_or_made_twice(lost: str, tmp_path, monkeypatch) -> None:
    """Workers forget, and batches are done again from the state store as it was."""
    monkeypatch.setattr(store, "PART", 700)  # so that files have several parts
    parts = [(rows(1, 60, 60 * batch), rows(2, 60, 60 * batch)) for batch in range(20)]
    plan = joined(tmp_path / "disk").plan({"a": parts[0][0].schema, "b": parts[0][1].schema})
    handle, made, files, unread = Handle(), Counter(), 0, 0

    def processed(batch: int) -> tuple[list[tuple[int, int]], store.Live]:
        state = store.Store(handle, ONE).open(plan)
        if lost == "worker" and batch % 2 == 0:
            assert not any(path.exists() for path in paths(state))
        read = [in_order_of_time(state.join.read(i, some)) for i, some in enumerate(parts[batch])]
        ending = state.join.finish() if batch == len(parts) - 1 else ()
        results = [
            state.join.results(found)
            for found in itertools.chain(state.join.process(merged(read)), ending)
            if isinstance(found, Block)
        ]
        store.Store(handle, ONE).save(state)
        state.join.ledger()
        return [(r["a"]["n"], r["b"]["n"]) for some in results for r in some.to_pylist()], state

    for batch in range(len(parts)):
        if lost == "batch" and batch % 3 == 2:  # an attempt whose state is never committed
            committed = dict(handle.values)
            processed(batch)
            handle.values = committed
        results, state = processed(batch)
        made.update(results)
        kept = {key[1] for key in handle.values if key[0] == spilling.SPILLED}
        files += len(kept)
        unread += sum(not path.exists() for path in paths(state))
        memory = int(state.join.core.pools["held"].sum())
        assert memory <= 120
        if lost == "worker" and batch % 2:
            store._live.clear()
            del state
    assert files > len(parts)  # most batches leave something on disk
    assert (unread > 0) == (lost != "nothing")  # which nobody reads who does not need it
    a, b = (pa.Table.from_batches(side) for side in zip(*parts, strict=True))
    assert made == exact(a, b)


def test_folders_of_workers_that_are_gone_are_removed(tmp_path, monkeypatch) -> None:
    schema = rows(1, 1, 0).schema
    plan = joined(tmp_path).plan({"a": schema, "b": schema})
    monkeypatch.setattr(spilling.socket, "gethostname", lambda: "here")
    gone, other = (tmp_path / f"streamshed-worker-{host}-1-7" for host in ("here", "there"))
    users = tmp_path / "streamshed-worker-here-notes"
    for folder in (gone, other, users):
        folder.mkdir()
    own = spilling.on_this_worker(plan)
    assert not gone.exists()
    assert other.exists()
    assert users.exists()
    assert own == spilling.on_this_worker(plan)
    assert Path(own.spill.to).parent == tmp_path
    assert replace(own, spill=plan.spill) == plan


def frames_of(spark, folder: Path, sides: dict[str, list[pa.RecordBatch]], streaming: bool) -> dict:
    """The sides as files, a file for each batch."""
    found = {}
    for name, batches in sides.items():
        (folder / name).mkdir(exist_ok=True)
        for number, some in enumerate(batches):
            path = folder / name / f"{number:02d}.parquet"
            if not path.exists():
                pq.write_table(pa.Table.from_batches([some]), path)
        reader = spark.readStream.option("maxFilesPerTrigger", 1) if streaming else spark.read
        found[name] = reader.schema("k long, ts long, n long").parquet(str(folder / name))
    return found


@pytest.mark.spark
def test_inputs_that_end_make_all_results(spark, tmp_path) -> None:
    sides = {name: [rows(seed, 300, 0)] for name, seed in (("a", 1), ("b", 2))}
    frames = frames_of(spark, tmp_path, sides, streaming=False)
    made = joined(tmp_path / "disk").stream(frames, shards=2).selectExpr("a.n", "b.n").collect()
    assert Counter(map(tuple, made)) == exact(*map(pa.Table.from_batches, sides.values()))


@pytest.mark.spark
def test_a_query_that_spills_goes_on_after_restarts(spark, files) -> None:
    """What it has not made waits on disk; rows that meet nobody bring credit for all of it."""
    batches = spilled_batches()
    join, before = spilled_join(files.folder / "_disk"), 0
    for start, end in ((0, 3), (3, 6), (6, 8)):
        files.write(batches[start:end])
        shared_memory.clear()
        ran = files.run(spark, join, shards=2)
        made = Counter((row["a"]["n"], row["b"]["n"]) for row in ran.table.to_pylist())
        expected = exact(*whole(batches[:end]).values())
        assert ran.ledger.results == made.total() > before
        assert not made - expected
        assert ran.ledger.spilled.results > 0
        assert ran.ledger.shed_by == {}
        assert (ran.ledger.spilled.rows > 0) == (end < len(batches))
        before = made.total()
    assert made == expected


@pytest.mark.spark
def test_what_joins_that_spill_cannot_do_on_spark(spark, tmp_path) -> None:
    frames = {name: spark.createDataFrame([(1, 2, 3)], "k long, ts long, n long") for name in "ab"}
    with pytest.raises(ss.InputError, match=r"\.spill\(\) and resume="):
        joined(tmp_path).stream(frames, resume=str(tmp_path))
    with pytest.raises(ss.SpecError, match=r"\.spill\(\) with \.aggregate\(\).*close"):
        joined(tmp_path).aggregate("a.n", over=60).stream(frames)
