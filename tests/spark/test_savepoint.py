"""A query that is stopped, and goes on in other shards as if nothing had happened."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import streamshed as ss
from queries import KEYED, joined, newest, with_changes, workload, write_changes
from streaming import Batch, Files, Ran, counts, cut, replayed, rows, whole
from streamshed import cli
from streamshed.shards import shards_by_key
from streamshed.spark import savepoint
from streamshed.spark.changes import StreamedChanges, StreamedRelation
from streamshed.spark.savepoint import write_savepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CUTS = (0, 1_990), (1_990, 2_000)
SAVED: dict[str, Path] = {}


@dataclass
class Stages:
    """Queries one after the other, each from the savepoint of the one before."""

    spark: SparkSession
    folder: Path

    def __post_init__(self) -> None:
        self.ran: list[Ran] = []

    def run(self, join: ss.Join, batches: list[Batch], shards: int, **options: Any) -> Ran:
        files = Files(self.folder / str(len(self.ran)))
        files.write(batches)
        if self.ran:
            options.setdefault("resume", str(self.folder / f"savepoint-{len(self.ran)}"))
        ran = files.run(self.spark, join, shards=shards, **options)
        self.ran.append(ran)
        to = self.folder / f"savepoint-{len(self.ran)}"
        self.held = write_savepoint(self.spark, str(files.folder / "_checkpoint"), str(to))
        return ran

    def results(self) -> pa.Table:
        return pa.concat_tables([ran.table for ran in self.ran])


@pytest.fixture
def stages(spark: SparkSession, tmp_path: Path) -> Stages:
    return Stages(spark, tmp_path)


def test_two_shards_then_three_then_one(stages: Stages) -> None:
    join, batches = joined("exact"), cut(workload("exact"), 6)
    for shards, start in ((2, 0), (3, 2), (1, 4)):
        ran = stages.run(join, batches[start : start + 2], shards)
    expected = replayed(join, batches)
    assert rows(stages.results(), expected.table.schema) == rows(expected.table)
    assert counts(ran.ledger) == counts(expected.ledger)
    assert ran.ledger.results == expected.ledger.results
    assert sum(stages.held.rows.values()) == sum(s.stored for s in ran.ledger.streams.values())
    assert [json.loads(said) for said in stages.held.sources] == [{"logOffset": 1}] * 3


@pytest.mark.parametrize(("columns", "shards"), [("ppp", (2, 3)), ("ppq", (4, 3))])
def test_joins_through_a_relation_go_on_in_other_shards(
    stages: Stages, columns: str, shards: tuple[int, int]
) -> None:
    """By a column that all streams have, and by others, where shards hold copies of rows."""
    facts = pa.table({"p": np.arange(9), "q": np.arange(9) * 2 % 9, "note": np.arange(9)})
    join, batches = joined("exact"), cut(workload("exact"), 4)
    join = join.through(facts, **dict(zip(batches[0], columns, strict=True)))
    stages.run(join, batches[:2], shards[0])
    ran = stages.run(join, batches[2:], shards[1])
    expected = replayed(join, batches)
    assert ran.ledger.results == expected.ledger.results > 0
    assert ran.ledger.balanced
    assert rows(stages.results(), expected.table.schema) == rows(expected.table)


def test_changes_that_stream_go_on_in_other_shards(stages: Stages, spark: SparkSession) -> None:
    """Two shards, then three, then one: what has changed stays so."""
    join, batches = joined(KEYED), cut(workload(KEYED), 6)
    for shards, start in ((2, 0), (3, 2), (1, 4)):
        folder, some = stages.folder / str(len(stages.ran)), batches[start : start + 2]
        write_changes(join, some, folder, newest(batches[start - 1]) if start else -1)
        ran = stages.run(with_changes(join, folder, spark), some, shards)
    expected = replayed(join, batches)
    assert rows(stages.results(), expected.table.schema) == rows(expected.table)
    assert ran.ledger.results == expected.ledger.results
    assert ran.ledger.balanced
    assert stages.held.changes == 10
    notes = {row["fact"]["note"] for row in stages.results().to_pylist()}
    assert {0, 3, 7, 8, 10} <= notes


def test_a_late_change_holds_as_in_the_shard_of_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savepoint, "ship_table", lambda rows, session: rows)
    keys, kinds = np.arange(20), ["insert"] * 20
    taken = {label: {"p": keys, "time": keys + label, "change": kinds} for label in (0, 100)}
    (tmp_path / "changes").mkdir()
    for label, columns in taken.items():
        pq.write_table(pa.table(columns), tmp_path / "changes" / f"{label}.parquet")
    changes = pa.table({**taken[0], "new": kinds})
    relation = ss.relation(pa.table({"p": [0], "new": ["x"]}), changes=changes)
    join = ss.join("a", "b").within(9, time="ts").through(relation, a="p", b="p")
    plan = join.plan(dict.fromkeys("ab", pa.schema([("p", pa.int64()), ("ts", pa.int64())])))
    told = {part.name: getattr(relation, part.name) for part in fields(ss.relations.Relation)}
    streamed = StreamedRelation(**told | {"changes": StreamedChanges("changes", changes.schema)})
    plan = replace(plan, through=replace(plan.through, relation=streamed))
    held = savepoint.Held({}, [], [0, 100], 20, {}, [], [], 0, 0.0)
    rows = savepoint._held_changes(None, str(tmp_path), held, plan)
    shard = shards_by_key(plan.streams[0], pa.record_batch({"p": keys}), 2)
    found = {row["p"]: (row["time"], row["new"]) for row in rows.to_pylist()}
    assert found == {key: (key + (0, 100)[shard[key]], None) for key in keys.tolist()}
    assert (np.diff(rows.column("time").to_numpy()) >= 0).all()


@pytest.mark.parametrize("columns", ["ppp", "ppq"])
def test_a_table_that_is_polled_goes_on_in_other_shards(
    stages: Stages, spark: SparkSession, columns: str
) -> None:
    """It is another one after each restart; an undisturbed query, of two shards, sees the same."""
    table, batches = stages.folder / "_facts.parquet", cut(workload("exact"), 6)
    undisturbed = Files(stages.folder / "undisturbed")
    relation = ss.relation(str(table), refresh="1 hour")
    join = joined("exact").through(relation, **dict(zip(batches[0], columns, strict=True)))
    for number, shards in enumerate((2, 3, 1)):
        keys = np.arange(6) * 2 + number
        pq.write_table(pa.table({"p": keys % 12, "q": keys % 5, "note": keys}), table)
        some = batches[2 * number : 2 * number + 2]
        ran = stages.run(join, some, shards)
        undisturbed.write(some)
        expected = undisturbed.run(spark, join, shards=2)
    assert rows(stages.results()) == rows(expected.table)
    assert ran.ledger.results == expected.ledger.results > 0
    assert ran.ledger.balanced


def test_shards_that_hold_more_than_others_go_on_with_it(stages: Stages) -> None:
    """Most rows have one key, and so most of the budget was its shard's."""
    random = np.random.default_rng(0)
    times = np.arange(2_000)
    often = {name: np.where(random.random(2_000) < 0.9, 7, times + 10) for name in "ab"}
    data = {name: pa.table({"k": keys, "ts": times}) for name, keys in often.items()}
    join = ss.join("a", "b").on("k").within(400, time="ts").keep(total=100).shed("random")
    before, after = ({n: t[start:end] for n, t in data.items()} for start, end in CUTS)
    stages.run(join, [before], 2)
    held = sum(stages.held.rows.values())
    stages.run(join, [after], 2)
    assert held <= 100
    assert 90 <= sum(stages.held.rows.values()) <= 100


@pytest.mark.slow
def test_under_a_budget_with_another_window_and_another_column(
    stages: Stages, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget holds in all shards together, rows that lack the column have null there."""
    monkeypatch.setattr(
        "streamshed.cli.savepoint.spark_session", lambda purpose: nullcontext(spark)
    )
    join, batches = joined("random"), cut(workload("random"), 3)
    before = stages.run(join, batches[:2], 1)
    checkpoint, to = stages.folder / "0" / "_checkpoint", stages.folder / "by-command"
    said = CliRunner().invoke(cli.app, ["savepoint", str(checkpoint), str(to)])
    held = sum(stream.stored for stream in before.ledger.streams.values())
    assert said.output == f"{held} rows of 1 shards in {to}\n"
    later = {n: t.append_column("new", pa.array([7] * len(t))) for n, t in batches[2].items()}
    wider = joined("random").within(40, time="ts")
    ran = stages.run(wider, [later], 2, resume=str(to))
    assert ran.ledger.balanced
    assert ran.ledger.results >= before.ledger.results
    arrived = {name: table.num_rows for name, table in whole(batches).items()}
    assert {name: s.arrived for name, s in ran.ledger.streams.items()} == arrived
    for stream, budget in zip(ran.ledger.streams.values(), (9, 6, 12), strict=True):
        assert stream.stored <= budget
    seen = {row["a"]["new"] for row in ran.table.to_pylist()}
    assert seen <= {None, 7}
    assert 7 in seen


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda join: join.on("row"), r"of another join: key was .*; give the join that made it"),
        (lambda join: join.throttle(cpu=0.5), r"work is bounded, and such joins cannot go on"),
    ],
)
def test_what_cannot_go_on_says_so(
    stages: Stages, spark: SparkSession, other: Any, said: str
) -> None:
    join, batches = joined("exact"), cut(workload("exact"), 1)
    if "savepoint" not in SAVED:
        stages.run(join, batches, 1)
        SAVED["savepoint"] = stages.folder / "savepoint-1"
    files = Files(stages.folder / "other")
    files.write(batches)
    with pytest.raises(ss.StreamshedError, match=said):
        other(join).stream(files.frames(spark), resume=str(SAVED["savepoint"]))
    with pytest.raises(ss.StateError, match=r"'nowhere', but there is no savepoint .*; write one"):
        join.stream(files.frames(spark), resume="nowhere")
    with pytest.raises(ss.InputError, match=r"there is a savepoint in .* already; give another"):
        write_savepoint(spark, "anything", str(SAVED["savepoint"]))
