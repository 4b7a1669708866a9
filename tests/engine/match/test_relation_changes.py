"""A relation that changes for ever takes the room of what is valid, not of all that ever was."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import merged
from streamshed.engine.match import relation_matcher, running_relation
from streamshed.engine.operator import Operator
from streamshed.kernels.core import KEYS_USED
from streamshed.policies import Importance

VALID = 300
"""Facts that are valid at a time."""
CHANGES = 300_000
TUPLES = 20_000
BATCH = 1_000
"""Rows of a stream that are handed over together, and changes."""
WINDOW, LATE = 50, 5


@cache
def data() -> tuple[pa.Table, pa.Table, dict[str, pa.Table]]:
    """Changes with values that never come back, the intervals that they mean, and two streams."""
    random = np.random.default_rng(7)
    number = np.arange(CHANGES // 2)
    inserted = number * TUPLES // number.size
    begin = np.where(number < VALID, 0, inserted)
    ended = np.append(inserted[VALID:], np.full(VALID, -1))
    a, b = number, number + number % 3
    facts = pa.table({"f": number, "a": a, "b": b, "begin": begin})
    facts = facts.append_column("end", pa.array(ended, mask=ended < 0))
    gone = np.flatnonzero(ended >= 0)
    news = pa.table(
        {
            "f": np.append(number, gone),
            "a": np.append(a, a[gone]),
            "b": np.append(b, b[gone]),
            "time": np.append(begin, ended[gone]),
            "change": ["insert"] * number.size + ["delete"] * gone.size,
        }
    )
    order = np.argsort(news.column("time").to_numpy(), kind="stable")
    time = np.arange(TUPLES)
    newest = number.size * (time + 1) // TUPLES
    streams = {}
    for name, column, value in (("r", "a", a), ("s", "b", b)):
        near = np.clip(newest - random.integers(0, 2 * VALID, TUPLES), 0, number.size - 1)
        streams[name] = pa.table(
            {"ts": time, column: value[near], "worth": random.integers(1, 9, TUPLES)}
        )
    return news.take(pa.array(order)), facts, streams


def joined(changes: pa.Table, columns: tuple[str, ...] = ("r", "s", "relation")) -> ss.Join:
    return (
        ss.join("r", "s")
        .within(WINDOW, time="ts", late=LATE, clock="max")
        .through(ss.relation(changes=pieces(changes)), r="a", s="b")
        .weigh(column="worth")
        .select(*columns)
    )


def pieces(changes: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from changes.to_batches(max_chunksize=BATCH)


def run(join: ss.Join, restart_at: tuple[int, ...] = ()) -> Iterator[tuple[Operator, list[int]]]:
    """The join, batch by batch, and the facts of its results so far."""
    changes, _, streams = data()
    plan = join.plan({name: table.schema for name, table in streams.items()})
    operator = build_operator(plan)
    found: list[int] = []
    for start in range(0, TUPLES, BATCH):
        parts = [
            operator.read(position, table.slice(start, BATCH).combine_chunks().to_batches()[0])
            for position, table in enumerate(streams.values())
        ]
        for block in operator.process(merged(parts)):
            if isinstance(block, Block):
                rows = operator.results(block)
                found += rows.column("relation").field("f").to_pylist()
        operator.compact()
        yield operator, found
        if start in restart_at:
            saved = Snapshot.from_bytes(operator.snapshot().to_bytes())
            fresh = joined(changes).keep(rows=WINDOW).shed(Importance(matches="now"))
            plan = fresh.plan({name: table.schema for name, table in streams.items()})
            operator = restore_operator(plan, saved)


def exactly() -> list[int]:
    """The facts of all results, by DuckDB."""
    _, facts, streams = data()
    con = duckdb.connect()
    for name, table in {"f": facts, **streams}.items():
        con.register(name, table)
    return [
        fact
        for (fact,) in con.execute(f"""
            SELECT f.f FROM f, r, s WHERE r.a = f.a AND s.b = f.b
            AND f.begin <= r.ts AND (f."end" IS NULL OR r.ts < f."end")
            AND f.begin <= s.ts AND (f."end" IS NULL OR s.ts < f."end")
            AND abs(r.ts - s.ts) <= {WINDOW}""").fetchall()
    ]


READ = 20_000
"""Changes that are read together, and a few more."""
MOST = 4 * (VALID + WINDOW * CHANGES // 2 // TUPLES) + 2 * (4096 + READ)
"""Facts that are valid, or were within the window; twice; those that come meanwhile. In the course
of time there are three times as many."""


def small(operator: Operator) -> None:
    relation = operator.matcher.relation
    assert relation.count < MOST
    assert relation.payload.rows < MOST
    assert relation.used < 4 * MOST
    assert relation.facts.entries.size < 16 * MOST
    assert relation.facts.numbers[KEYS_USED] < 2 * MOST
    assert relation.facts.keys.size < 40 * MOST
    assert relation.facts.table.size < 16 * MOST


def test_facts_that_ended_long_ago_give_their_room_back() -> None:
    bytes_by_batch = []
    for operator, found in run(joined(data()[0])):  # noqa: B007
        small(operator)
        bytes_by_batch.append(operator.matcher.relation.nbytes())
    assert sorted(found) == sorted(exactly())
    assert operator.ledger().importance is not None
    # It is now more, now less, but not twice as much in the second half of the run.
    assert max(bytes_by_batch[10:]) <= 1.6 * max(bytes_by_batch[:10])


def test_they_do_so_after_a_restart_too() -> None:
    policy = Importance(matches="now")
    join = joined(data()[0]).keep(rows=WINDOW).shed(policy)
    for whole, expected in run(join):  # noqa: B007
        small(whole)
    again = joined(data()[0]).keep(rows=WINDOW).shed(policy)
    for operator, found in run(again, restart_at=(3 * BATCH, 15 * BATCH)):  # noqa: B007
        small(operator)
    assert found == expected
    assert operator.ledger().streams == whole.ledger().streams
    assert operator.ledger().importance == whole.ledger().importance


@pytest.mark.parametrize("columns", [("time",), ("r.ts",)])
def test_results_without_columns_of_the_relation_keep_none_of_its_rows(
    columns: tuple[str, ...],
) -> None:
    _, _, streams = data()
    join = joined(data()[0], columns)
    operator = build_operator(join.plan({name: table.schema for name, table in streams.items()}))
    for start in range(0, TUPLES, BATCH):
        parts = [
            operator.read(position, table.slice(start, BATCH).combine_chunks().to_batches()[0])
            for position, table in enumerate(streams.values())
        ]
        for block in operator.process(merged(parts)):
            assert isinstance(block, Block)
            assert operator.results(block).num_rows == len(block.time)
    assert operator.matcher.relation.payload.rows == 0
    assert operator.ledger().results == len(exactly())


def test_what_changes_need_is_compiled_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors get the kernels of a driver, which sees no changes."""
    changes, _, streams = data()
    plan = joined(changes.slice(0, 10)).plan({name: t.schema for name, t in streams.items()})
    join, called = build_operator(plan), []
    kernels = {relation_matcher: ["change_until"], running_relation: ["widths", "widen"]}
    kernels[running_relation] += ["pack", "renumber"]
    for module, names in kernels.items():
        for name in names:
            kernel = getattr(module, name)
            spy = lambda *args, name=name, kernel=kernel: called.append(name) or kernel(*args)  # noqa: E731
            monkeypatch.setattr(module, name, spy)
    join.warm()
    assert {*called} == {name for names in kernels.values() for name in names}
