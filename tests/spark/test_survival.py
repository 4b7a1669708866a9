"""Queries that are killed and go on: nothing is lost, nothing is done twice."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clusters import in_batches, readings
from queries import (
    BATCHES,
    CLUSTERED,
    KEYED,
    KEYS,
    POLLED,
    POLLED_WINDOW,
    SPILLED,
    SPILLING_WINDOW,
    STREAMED,
    THROUGH,
    change_pairs,
    check,
    joined,
    logged,
    newest,
    polled_batches,
    running,
    spilled_batches,
    struck,
    versions_of,
    waits,
    workload,
    write_changes,
    written,
)
from streaming import Files, counts, cut, replayed, rows, whole
from streamshed.spark.savepoint import write_savepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def check_replayed(folder: Path, policy: str) -> None:
    expected = replayed(joined(policy), cut(workload(policy), BATCHES))
    check(folder, expected.table, expected.ledger)


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return written(tmp_path, request.node.callspec.params["policy"]).folder


@pytest.mark.parametrize("policy", ["exact", "existence", "output"])
def test_tasks_that_fail_once_are_done_once(folder: Path, policy: str) -> None:
    disturbances = ["1 before die", "2 within die", "3 after die", "4 within die", "4 after die"]
    options = [word for said in disturbances for word in ("--disturb", *said.split())]
    with running(folder, policy, "--master", "local[2,4]", *options) as query:
        query.finish()
    assert len(list(folder.glob("_struck-*"))) == len(disturbances)
    check_replayed(folder, policy)


@pytest.mark.parametrize("policy", ["exact", "random", THROUGH, STREAMED])
def test_a_worker_is_killed(folder: Path, policy: str) -> None:
    moments = [(1, "before"), (2, "within"), (4, "after")]
    with running(folder, policy, "--master", "local[2,4]", *waits(*moments)) as query:
        for batch, moment in moments:
            query.wait_for(struck(folder, batch, moment))
            worker = int((folder / f"_struck-{batch}-{moment}").read_text())
            os.kill(worker, signal.SIGKILL)
        query.finish()
    check_replayed(folder, policy)


@pytest.mark.parametrize("policy", ["exact", "existence", "random", STREAMED])
def test_the_driver_is_killed_again_and_again(folder: Path, policy: str) -> None:
    with running(folder, policy) as query:
        query.wait_for(logged(folder, "offsets", 1))
    with running(folder, policy, "--disturb", "2", "within", "wait") as query:
        query.wait_for(struck(folder, 2, "within"))
    with running(folder, policy, "--disturb", "3", "after", "wait") as query:
        query.wait_for(struck(folder, 3, "after"))
    with running(folder, policy) as query:
        query.wait_for(logged(folder, "commits", 3))
    with running(folder, policy) as query:
        query.finish()
    check_replayed(folder, policy)


@pytest.mark.parametrize("policy", ["exact", KEYED])
def test_savepoints_between_kills(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    """The driver is killed before and after each; two shards become three, and then one."""
    batches = cut(workload(policy), BATCHES)
    each = BATCHES // 3
    folders = [tmp_path / shards for shards in "231"]
    for number, folder in enumerate(folders):
        some = batches[number * each : (number + 1) * each]
        Files(folder).write(some)
        if policy == KEYED:
            since = newest(batches[number * each - 1]) if number else -1
            write_changes(joined(policy), some, folder, since)
        options = ["--shards", folder.name]
        if number:
            options += ["--resume", str(tmp_path / f"savepoint-{number}")]
        with running(folder, policy, *options, "--disturb", "1", "within", "wait") as query:
            query.wait_for(struck(folder, 1, "within"))
        with running(folder, policy, *options) as query:
            query.finish()
        to = str(tmp_path / f"savepoint-{number + 1}")
        write_savepoint(spark, str(folder / "_checkpoint"), to)
    expected = replayed(joined(policy), batches)
    left = pa.concat_tables([pq.read_table(folder / "_results.parquet") for folder in folders])
    assert rows(left, expected.table.schema) == rows(expected.table)
    said = json.loads((folders[-1] / "_ledger.json").read_text())
    assert said["results"] == expected.ledger.results
    if policy == "exact":  # through facts that end, what a shard filters another lets expire
        assert said["streams"] == counts(expected.ledger)
    arrived = {name: stream.arrived for name, stream in expected.ledger.streams.items()}
    assert {name: fates[0] for name, fates in said["streams"].items()} == arrived
    assert all(fates[0] == sum(fates[1:]) for fates in said["streams"].values())


def test_budgets_follow_the_rows_whatever_is_killed(tmp_path: Path) -> None:
    """A worker and then the driver: the parts are those of replay all the same."""
    batches = cut(workload("random"), BATCHES)
    calm, troubled = tmp_path / "calm", tmp_path / "troubled"
    for folder in (calm, troubled):
        Files(folder).write(batches)
    with running(calm, "random", "--shards", "2") as query:
        query.finish()
    retried = ["--shards", "2", "--master", "local[2,4]", *waits((1, "after"))]
    with running(troubled, "random", *retried) as query:
        query.wait_for(struck(troubled, 1, "after"))
        os.kill(int((troubled / "_struck-1-after").read_text()), signal.SIGKILL)
        query.wait_for(logged(troubled, "offsets", 3))
    with running(troubled, "random", "--shards", "2") as query:
        query.finish()
    join, tables = joined("random"), whole(batches)
    expected = join.replay(tables, order="arrival", shards=2)
    for folder in (calm, troubled):
        left = pq.read_table(folder / "_results.parquet")
        assert rows(left, expected.table.schema) == rows(expected.table)
    assert (calm / "_ledger.json").read_text() == (troubled / "_ledger.json").read_text()


def test_what_waits_on_disk_is_made_once_whatever_is_killed(tmp_path: Path) -> None:
    """Rows that meet nobody drain the disk; then the results are those of DuckDB, each once."""
    batches = spilled_batches()
    Files(tmp_path).write(batches)
    with running(tmp_path, SPILLED, "--shards", "2", *waits((2, "within"))) as query:
        query.wait_for(struck(tmp_path, 2, "within"))
    moments = [(3, "before"), (4, "within"), (6, "after")]
    options = ["--shards", "2", "--master", "local[2,4]", *waits(*moments)]
    with running(tmp_path, SPILLED, *options) as query:
        for batch, moment in moments:
            query.wait_for(struck(tmp_path, batch, moment))
            os.kill(int((tmp_path / f"_struck-{batch}-{moment}").read_text()), signal.SIGKILL)
        query.wait_for(logged(tmp_path, "offsets", 7))
    with running(tmp_path, SPILLED, "--shards", "2") as query:
        query.finish()
    left = pq.read_table(tmp_path / "_results.parquet")
    made = Counter((row["a"]["n"], row["b"]["n"]) for row in left.to_pylist())
    found = duckdb.connect()
    for name, table in whole(batches).items():
        found.register(name, table)
    within = f"abs(a.ts - b.ts) <= {SPILLING_WINDOW}"
    found.execute(f"SELECT a.n, b.n FROM a JOIN b USING (k) WHERE {within}")
    expected = Counter(found.fetchall())
    assert made == expected
    said = json.loads((tmp_path / "_ledger.json").read_text())
    assert said["results"] == expected.total()


def test_batches_keep_the_version_of_a_table_whatever_is_killed(tmp_path: Path) -> None:
    """The table changes while a batch waits, and counts, before the batch is done again."""
    batches = polled_batches()
    Files(tmp_path).write(batches)
    change_pairs(tmp_path, 0, counts=False)
    moments = [(1, "within"), (3, "after")]
    options = ["--shards", "4", "--master", "local[2,4]", *waits(*moments)]
    with running(tmp_path, POLLED, *options) as query:
        query.wait_for(struck(tmp_path, 1, "within"))
        change_pairs(tmp_path, 1)
        os.kill(int((tmp_path / "_struck-1-within").read_text()), signal.SIGKILL)
        query.wait_for(struck(tmp_path, 3, "after"))
        change_pairs(tmp_path, 2)
    change_pairs(tmp_path, 3, counts=False)
    with running(tmp_path, POLLED, "--shards", "4") as query:
        query.finish()
    versions, used = versions_of(tmp_path), []
    for batch in range(BATCHES):
        said = (tmp_path / "_checkpoint" / "offsets" / str(batch)).read_text().splitlines()[1]
        moment = json.loads(said)["batchTimestampMs"]
        used.append(sum(since <= moment for since in versions) - 1)
    assert used[:4] == [0, 0, 1, 1]
    assert used[4] in (2, 3)
    left = pq.read_table(tmp_path / "_results.parquet").to_pylist()
    made = Counter((row["r"]["n"], row["s"]["n"], row["relation"]["number"]) for row in left)
    rows_of = [whole(batches)[name].to_pylist() for name in "rs"]
    expected = Counter(
        (r["n"], s["n"], number)
        for r in rows_of[0]
        for s in rows_of[1]
        if abs(r["ts"] - s["ts"]) <= POLLED_WINDOW
        for number in [used[max(r["n"], s["n"]) // 40]]
        if (r["k"] + number) % KEYS == s["k"]
    )
    assert made == expected


def test_clusters_learn_the_same_whatever_is_killed(tmp_path: Path) -> None:
    batches = in_batches(readings(5, 600, keys=12, paired=True), BATCHES)
    calm, troubled = tmp_path / "calm", tmp_path / "troubled"
    for folder in (calm, troubled):
        Files(folder).write([{"readings": batch} for batch in batches])
    with running(calm, CLUSTERED) as query:
        query.finish()
    with running(troubled, CLUSTERED, "--disturb", "2", "within", "wait") as query:
        query.wait_for(struck(troubled, 2, "within"))
    moments = [(3, "before"), (4, "after")]
    with running(troubled, CLUSTERED, "--master", "local[2,4]", *waits(*moments)) as query:
        for batch, moment in moments:
            query.wait_for(struck(troubled, batch, moment))
            os.kill(int((troubled / f"_struck-{batch}-{moment}").read_text()), signal.SIGKILL)
        query.finish()
    left = [pq.read_table(folder / "_results.parquet") for folder in (calm, troubled)]
    assert rows(left[0]) == rows(left[1])
    assert (calm / "_ledger.json").read_text() == (troubled / "_ledger.json").read_text()
    notes = {path.name: path.read_bytes() for path in (calm / "_notes").glob("*.npy")}
    assert notes
    assert notes == {path.name: path.read_bytes() for path in (troubled / "_notes").glob("*.npy")}
