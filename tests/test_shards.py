"""Replay in shards: each a join of its own, with its part of keys and budget, on threads."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from streamshed import SpecError, join
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import merged
from streamshed.plan.routing import plan_of_shard

ROWS = 4_000


def streams(seed=0, names="abc", keys=300):
    random = np.random.default_rng(seed)
    return {
        name: pa.table({"k": random.integers(0, keys, ROWS), "ts": np.arange(ROWS) * 3 + place})
        for place, name in enumerate(names)
    }


def as_set(table):
    return Counter(map(str, table.to_pylist()))


SAID = join("a", "b", "c").on("k").within(900, time="ts", clock="max").seed(3)

CHAIN = join("a", "b", "c").on("a.k = b.k", "b.ts = c.ts").within(5, time="ts")


@pytest.mark.parametrize("shards", [2, 3])
def test_without_a_budget_all_shards_make_what_one_makes(shards):
    tables = streams()
    whole, parts = SAID.replay(tables), SAID.replay(tables, shards=shards)
    assert as_set(whole.table) == as_set(parts.table)
    assert whole.ledger.streams == parts.ledger.streams
    assert whole.ledger.results == parts.ledger.results


@pytest.mark.parametrize("policy", ["random", "existence"])
def test_a_shard_is_a_join_of_its_own(policy):
    """The rows of a shard, joined alone under its plan, make what the shard makes."""
    tables, shards = streams(), 2
    said = SAID.keep(rows=60).shed(policy)
    done = said.replay(tables, shards=shards)
    plan = said.plan({name: table.schema for name, table in tables.items()})
    reader = build_operator(plan)
    alone = Counter()
    for shard in range(shards):
        operator = build_operator(plan_of_shard(plan, shard, tuple(range(shards))))
        assert [stream.rows for stream in operator.plan.streams] == [30, 30, 30]
        own = {
            name: table.filter(pa.array(_hashes(reader, place, table) % shards == shard))
            for place, (name, table) in enumerate(tables.items())
        }
        parts = [
            operator.read(place, table.combine_chunks().to_batches()[0])
            for place, table in enumerate(own.values())
        ]
        for block in operator.process(merged(parts)):
            alone += as_set(operator.results(block))
    assert as_set(done.table) == alone
    assert done.ledger.balanced
    assert done.ledger.shed_by[policy] > 0
    assert sum(stream.stored for stream in done.ledger.streams.values()) <= 180
    assert done.ledger.recall is not None


def _hashes(operator, place, table):
    rows = table.combine_chunks().to_batches()[0]
    return operator.ingest.read(place, rows, np.arange(len(rows))).hash


def test_shards_are_the_same_every_time():
    tables = streams()
    said = SAID.keep(rows=60).shed("random")
    once, again = (said.replay(tables, shards=4) for _ in range(2))
    assert once.table.equals(again.table)
    assert once.ledger == again.ledger


def test_late_rows_of_all_shards_are_kept_aside():
    tables = {name: table.take(list(range(ROWS))[::-1]) for name, table in streams().items()}
    said = SAID.within(900, time="ts", clock="max", late=5)
    done = said.replay(tables, shards=2, order="arrival")
    late = {name: stream.late for name, stream in done.ledger.streams.items()}
    assert {name: table.num_rows for name, table in done.late.items()} == late
    assert sum(late.values()) > ROWS


def test_streams_named_by_a_column():
    random = np.random.default_rng(1)
    rows = pa.table(
        {
            "s": random.integers(0, 5, ROWS),
            "k": random.integers(0, 200, ROWS),
            "ts": np.arange(ROWS),
        }
    )
    said = join(by="s").on("k").within(500, time="ts", clock="max")
    whole, parts = said.replay(rows), said.replay(rows, shards=2)
    assert whole.ledger.results == parts.ledger.results
    assert whole.ledger.streams == parts.ledger.streams


@pytest.mark.parametrize(
    ("said", "shards", "message"),
    [
        (SAID, 0, "`shards`"),
        (SAID.keep(rows=2), 3, "the smallest budget is 2 rows"),
        (
            join("a", "b", "c").on("a.k = b.k", "b.ts = c.ts").within(5, time="ts"),
            2,
            "share no key",
        ),
        (join("a", "b", "c").on("k").last(5), 2, "no single"),
    ],
)
def test_what_cannot_be_divided_is_refused(said, shards, message):
    with pytest.raises(SpecError, match=message):
        said.replay(streams(), shards=shards)


def test_readers_are_refused():
    tables = streams()
    readers = {name: table.to_reader() for name, table in tables.items()}
    with pytest.raises(SpecError, match="give tables or frames"):
        SAID.replay(readers, shards=2)
