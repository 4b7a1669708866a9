"""Joins in several parts: as on Spark, in threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from harness import inputs, spec
from oracles.rows import Workload
from oracles.workloads import generated
from streaming import counts, rows
from streamshed.shards import shards_by_key, split


def drawn(**settings: Any) -> Workload:
    return generated(4, rows=300, keys=40, skew=0.5, window=("time", 30), **settings)


@pytest.mark.parametrize("chunk", [7, 1 << 16])
@pytest.mark.parametrize("kind", ["exact", "late and nulls", "by a column"])
def test_shards_make_what_one_join_makes(kind: str, chunk: int) -> None:
    """Without a budget; whatever is read at once."""
    from streamshed import replay
    from streamshed.join import spec_of

    workload = {
        "exact": drawn(),
        "late and nulls": drawn(disorder=3, late=5, nulls=0.05),
        "by a column": drawn(streams=5, by=True, at_least=2),
    }[kind]
    join, data = spec(workload), inputs(workload)
    if kind == "by a column":
        join = join.select("key", "members")  # each shard counts updates for itself
    whole, parts = join.replay(data, order="arrival"), join.replay(data, order="arrival", shards=3)
    assert rows(parts.table) == rows(whole.table)
    assert parts.ledger.results == whole.ledger.results > 0
    assert parts.ledger.balanced
    assert counts(parts.ledger) == counts(whole.ledger)
    counted = replay.count(spec_of(join), data, "arrival", chunk=chunk, shards=3)
    assert counted.results == whole.ledger.results
    assert counts(counted) == counts(whole.ledger)


@pytest.mark.parametrize("budget", [{"keep_rows": (9, 6, 12)}, {"keep_total": 20}])
def test_shards_share_the_budget(budget: dict[str, Any]) -> None:
    workload = drawn(**budget, policy="random")
    data = inputs(workload)
    parts = spec(workload).replay(data, shards=3)
    assert parts.ledger == spec(workload).replay(data, shards=3).ledger
    assert parts.ledger.balanced
    stored = [stream.stored for stream in parts.ledger.streams.values()]
    assert all(stream.shed for stream in parts.ledger.streams.values())
    assert sum(stored) <= sum(workload.keep_rows or [20])
    exact = rows(spec(workload.unbounded()).replay(data).table)
    assert all(row in exact for row in rows(parts.table))
    assert 0 < parts.ledger.results < len(exact)


def test_estimates_of_shards_are_added() -> None:
    workload = replace(drawn(keep_rows=(9, 6, 12), policy="random"), rate=1.0)
    parts = spec(workload).replay(inputs(workload), shards=3)
    exact = spec(workload.unbounded()).replay(inputs(workload)).ledger.results
    assert parts.ledger.missed is not None
    assert parts.ledger.missed.value == exact - parts.ledger.results > 0
    assert parts.ledger.recall is not None


def test_inputs_that_are_read_once_are_read_once() -> None:
    workload = drawn()
    data = inputs(workload)
    once = {name: table.to_reader(13) for name, table in data.items()}
    made = spec(workload).replay_batches(once, shards=2)
    found = pa.Table.from_batches(list(made), made.schema)
    expected = spec(workload).replay(data, order="arrival")
    assert rows(found) == rows(expected.table)
    assert made.ledger.results == expected.ledger.results


def test_tables_are_shared_by_shards_and_read_as_they_would_be_once() -> None:
    workload = drawn(keep_rows=(9, 6, 12), policy="random", nulls=0.05)
    data = inputs(workload)
    shared = spec(workload).replay(data, order="arrival", shards=3)
    once = {name: table.to_reader(1 << 16) for name, table in data.items()}
    copied = spec(workload).replay(once, shards=3)
    assert shared.table.to_pylist() == copied.table.to_pylist() != []
    assert counts(shared.ledger) == counts(copied.ledger)
    assert 0 < shared.ledger.payload_bytes <= sum(table.nbytes for table in data.values())


def test_an_error_in_a_shard_ends_the_join() -> None:
    good = pa.record_batch({"k": [1, 2, 3], "ts": [1, 2, 3]})
    bad = pa.record_batch({"k": [1, 2, 3], "ts": [4, 2**62, 6]})
    join = ss.join("a", "b").on("k").within(5, time="ts")
    with pytest.raises(ss.InputError, match="stream 'b', column 'ts': the time"):
        join.replay(a=pa.Table.from_batches([good]), b=pa.Table.from_batches([bad]), shards=2)


@pytest.mark.parametrize("shards", [1, 2])
def test_an_error_in_a_shard_says_which_row_of_the_input_it_is(shards: int) -> None:
    """Whatever was read at once, and whichever shard the rows before it went to."""
    from streamshed import replay
    from streamshed.join import spec_of

    numbers = np.arange(90)
    good = pa.table({"k": numbers % 7, "v": numbers / 2, "ts": numbers})
    values = np.where(numbers == 71, np.nan, numbers / 2)
    bad = good.set_column(1, "v", pa.array(values))
    join = ss.join("a", "b").on("k", ss.near("v", 1.0)).within(5, time="ts")
    with pytest.raises(ss.InputError, match="stream 'b', column 'v', row 71: nan"):
        replay.count(spec_of(join), {"a": good, "b": bad}, "arrival", chunk=20, shards=shards)


def test_rows_of_a_key_are_in_one_shard_whatever_the_seed() -> None:
    table = pa.record_batch({"k": np.arange(10_000) % 500, "ts": np.arange(10_000)})
    join = ss.join("a", "b").on("k").within(5, time="ts")
    found = []
    for seed in (0, 7):
        plan = join.seed(seed).plan({"a": table.schema, "b": table.schema})
        shard = shards_by_key(plan.streams[0], table, 3)
        found.append(shard)
        parts = [set(part["k"].to_pylist()) for part in split(table, shard, 3)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 500
        assert min(map(len, parts)) > 100
    assert (found[0] == found[1]).all()


def test_what_cannot_be_done_in_shards_says_so() -> None:
    table = pa.table({"k": [1], "ts": [1], "x": [1.0]})
    join, data = ss.join("a", "b").within(5, time="ts"), {"a": table, "b": table}
    near = join.on(ss.near("x", 1.0))
    with pytest.raises(ss.SpecError, match=r"shards is 2, but streams share no key, .* leave"):
        near.replay(data, shards=2)
    with pytest.raises(ss.SpecError, match=r"shards is 2, but rows are spilled to disk"):
        join.on("k").keep(total=9).spill(to="/nowhere").replay(data, shards=2)
    facts = pa.table({"p": [1], "q": [1]})
    through = join.on("k").through(facts, a="p", b="q")
    with pytest.raises(ss.SpecError, match="shards is 2, but streams meet through a relation"):
        through.replay(data, shards=2)
    with pytest.raises(ss.SpecError, match=r"shards is 0; give a whole number from 1 to 1,024"):
        join.on("k").replay(data, shards=0)
    with pytest.raises(ss.SpecError, match=r"shards is 1000000; give .* from 1 to 1,024"):
        join.on("k").replay(data, shards=10**6)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("lacks", ["k", "w"])
def test_rows_that_are_filtered_move_no_clock(shards: int, lacks: str) -> None:
    """Neither without a key nor without an importance, in however many shards."""
    from streamshed import replay
    from streamshed.join import spec_of

    times = [0, 900, 5, 6]
    rows = {"k": [1, 2, 1, 1], "w": [1.0, 1.0, 1.0, 1.0], "ts": times}
    a = pa.table(rows | {lacks: [*rows[lacks][:1], None, *rows[lacks][2:]]})
    b = pa.table({"k": [1, 1], "w": [1.0, 1.0], "ts": [5, 7]})
    join = ss.join("a", "b").on("k").within(10, time="ts", late=5, clock="max").weigh(column="w")
    given = {"a": a, "b": b}
    ledger = replay.count(spec_of(join), given, "arrival", chunk=1, shards=shards)
    assert ledger.results == 6
    assert ledger.streams["a"].filtered == 1
    assert ledger.streams["a"].late == ledger.streams["b"].late == 0
