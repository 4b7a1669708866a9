"""Exact joins in bulk: the results and accounts of the loop, in its order, whatever the parts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed import join
from streamshed.engine.build import build_operator
from streamshed.engine.bulk import bulk, by_equalities, by_key, spans
from streamshed.engine.bulk.bulk import joins_at_once
from streamshed.engine.bulk.by_equalities import GraphBulk
from streamshed.engine.bulk.by_key import KeyBulk
from streamshed.engine.ingest import merged

KEYS = st.none() | st.integers(0, 3)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 30)), max_size=25)


@st.composite
def inputs(draw):
    """Two to four streams in the order of time, with keys that are numbers or text."""
    names = "abcd"[: draw(st.integers(2, 4))]
    kind = draw(st.sampled_from([pa.int64(), pa.string()]))
    tables = {}
    for name in names:
        rows = sorted(draw(ROWS), key=lambda row: row[1])
        keys = [None if key is None else str(key) for key, _ in rows]
        columns = {"k": pa.array(keys).cast(kind), "ts": pa.array([t for _, t in rows], pa.int64())}
        tables[name] = pa.table({**columns, "row": pa.array(range(len(rows)), pa.int64())})
    return tables


@st.composite
def joins(draw, names):
    windows = {name: draw(st.integers(0, 15)) for name in names}
    if draw(st.booleans()):
        windows = dict.fromkeys(names, windows[names[0]])
    clock = draw(st.sampled_from(["min", "max"]))
    late = draw(st.sampled_from([0, 4]))
    return join(*names).on("k").within(windows, time="ts", clock=clock, late=late)


@st.composite
def cases(draw):
    tables = draw(inputs())
    return tables, draw(joins([*tables]))


def in_bulk(said, tables, threads, part, at_once, cuts):
    """The results and the ledger of a join in bulk, whose input comes in pieces."""
    plan = said.plan({name: table.schema for name, table in tables.items()})
    operator = build_operator(plan)
    kind = GraphBulk if plan.graph else KeyBulk
    operator.bulk = kind(operator, threads, part, at_once)
    operator.expect(1)
    parts = [
        operator.read(position, table.combine_chunks().to_batches(max_chunksize=1 << 20)[0])
        for position, table in enumerate(tables.values())
        if table.num_rows
    ]
    batch = merged(parts) if parts else operator.ingest.empty_batch()
    edges = sorted({0, batch.time.size, *(cut for cut in cuts if cut < batch.time.size)})
    found = []
    for start, end in pairwise(edges):
        found += [operator.results(one) for one in operator.process(batch.part(start, end))]
    found += [operator.results(one) for one in operator.finish()]
    rows = [row for results in found for row in results.to_pylist()]
    return rows, operator.ledger()


@settings(deadline=None, max_examples=150)
@given(
    cases(),
    st.integers(1, 3),
    st.sampled_from([1, 4, 1 << 15]),
    st.sampled_from([1, 20, 1 << 22]),
    st.lists(st.integers(1, 60), max_size=3),
)
def test_the_loop_makes_the_same(case, threads, part, at_once, cuts):
    tables, said = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "FEW", 0)
        patch.setattr(by_key, "FEW", 0)
        patch.setattr(by_key, "BLOCK", 3)
        rows, ledger = in_bulk(said, tables, threads, part, at_once, cuts)
    looped = said.replay(tables, order="arrival")  # as they stand, they are in the order of time
    assert rows == looped.table.to_pylist()
    assert ledger.streams == looped.ledger.streams
    assert ledger.results == looped.ledger.results
    for name, stream in ledger.streams.items():
        assert stream.stored <= stream.peak <= looped.ledger.streams[name].peak


def test_replay_joins_tables_in_bulk():
    rows = pa.table({"k": [i % 50 for i in range(3_000)], "ts": range(3_000)})
    said = join("a", "b", "c").on("k").within(100, time="ts")
    at_once, looped = (
        said.replay(a=rows, b=rows, c=rows),
        said.replay(a=rows, b=rows, c=rows, order="arrival"),
    )
    assert at_once.table.equals(looped.table.cast(at_once.table.schema))
    assert at_once.ledger.state_bytes > 0
    assert said.count(a=rows, b=rows, c=rows).results == at_once.table.num_rows
    assert pa.Table.from_batches(said.replay_batches(a=rows, b=rows, c=rows)).equals(at_once.table)


def test_the_next_join_takes_the_memory_of_the_last_unless_it_is_much(monkeypatch):
    rows = pa.table({"k": [i % 50 for i in range(3_000)], "ts": range(3_000)})
    said = join("a", "b").on("k").within(100, time="ts")
    first = said.replay(a=rows, b=rows).table
    wider = join("a", "b", "c").on("k").within(100, time="ts")
    looped = wider.replay(a=rows, b=rows, c=rows, order="arrival").table
    assert wider.replay(a=rows, b=rows, c=rows).table.equals(looped)  # more rows: others
    assert said.replay(a=rows, b=rows).table.equals(first)
    (left,) = bulk._SPARE
    arrays = {name: array.ctypes.data for name, array in left.items()}
    assert said.replay(a=rows, b=rows).table.equals(first)
    (left,) = bulk._SPARE
    assert {name: array.ctypes.data for name, array in left.items()} == arrays
    monkeypatch.setattr(bulk, "SPARE_BYTES", 1_000)
    said.replay(a=rows, b=rows)
    assert not bulk._SPARE


def test_rows_of_one_key_make_more_results_than_a_block_holds():
    rows = pa.table({"k": [1] * 120, "ts": range(120)})
    said = join("a", "b", "c").on("k").within(120, time="ts")
    table = said.replay(a=rows, b=rows, c=rows).table
    assert table.num_rows == 120**3
    assert table["time"].to_pylist() == sorted(table["time"].to_pylist())


@pytest.mark.parametrize(
    "other",
    [
        lambda said: said.keep(rows=5),
        lambda said: said.partial(at_least=2),
        lambda said: said.first(per="key"),
        lambda said: said.in_order("a", "b"),
        lambda said: said.unmatched("a"),
        lambda said: said.throttle(comparisons_per_second=10),
        lambda _: join("a", "b").on("k").last(5),
    ],
)
def test_other_joins_go_through_the_loop(other):
    rows = pa.table({"k": [1], "ts": pa.array([1], pa.timestamp("s"))})
    exact = join("a", "b").on("k").within("5 s", time="ts")
    schemas = {"a": rows.schema, "b": rows.schema}
    assert joins_at_once(exact.plan(schemas))
    assert not joins_at_once(other(exact).plan(schemas))


def test_spans_of_time_are_merged_as_the_whole():
    plan = join("a", "b").on("k").within(5, time="ts")
    rows = pa.record_batch({"k": [1, 1, 1, 1, 1], "ts": [1, 2, 2, 2, 3]})
    operator = build_operator(plan.plan({"a": rows.schema, "b": rows.schema}))
    parts = [operator.read(position, rows) for position in (0, 1)]
    once = merged(parts)
    for number in (2, 3, 5):
        again = merged(parts, number)
        assert all((one == other).all() for one, other in zip(once, again, strict=True))


# -- equalities between pairs ---------------------------------------------------------------------

GRAPHS = {
    "chain": ("a.x = b.x", "b.y = c.y"),
    "triangle": ("a.x = b.x", "b.y = c.y", "c.x = a.y"),
    "two columns": ("a.x = b.x", "a.y = b.y", "b.x = c.x"),
    "star": ("a.x = b.x", "a.y = c.y", "a.x = d.y"),
}
PAIRS = st.lists(st.tuples(KEYS, KEYS, st.integers(0, 30)), max_size=25)


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(sorted(GRAPHS)),
    st.data(),
    st.integers(1, 3),
    st.sampled_from([1, 1 << 15]),
    st.sampled_from([1, 20, 1 << 22]),
    st.sampled_from([1, 3, 128]),
    st.lists(st.integers(1, 60), max_size=3),
)
def test_the_loop_makes_the_same_by_equalities(graph, data, threads, part, at_once, entered, cuts):
    names = sorted({side[0] for said in GRAPHS[graph] for side in said.split(" = ")})
    tables = {}
    for name in names:
        rows = sorted(data.draw(PAIRS), key=lambda row: row[2])
        columns = zip(*rows, strict=True) if rows else ([], [], [])
        found = {c: pa.array(v, pa.int64()) for c, v in zip("xyt", columns, strict=True)}
        tables[name] = pa.table({**found, "row": pa.array(range(len(rows)), pa.int64())})
    windows = {name: data.draw(st.integers(0, 15)) for name in names}
    said = join(*names).on(*GRAPHS[graph]).within(windows, time="t")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "FEW", 0)
        patch.setattr(by_equalities, "BLOCK", 2)
        patch.setattr(by_equalities, "SMALLEST_TABLE", 2)
        patch.setattr(spans, "AT_ONCE", entered)
        rows, ledger = in_bulk(said, tables, threads, part, at_once, cuts)
    looped = said.replay(tables, order="arrival")
    assert sorted(map(str, rows)) == sorted(map(str, looped.table.to_pylist()))
    assert [row["time"] for row in rows] == looped.table["time"].to_pylist()
    assert ledger.streams == looped.ledger.streams
    assert ledger.results == looped.ledger.results


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(0, 40), max_size=60).map(sorted),
    st.integers(0, 60),
    st.integers(0, 40),
    st.integers(1, 20),
    st.integers(1, 30),
)
def test_spans_of_time_follow_each_other(times, known, window, threads, part):
    tables = {name: pa.table({"x": [0], "t": [0]}) for name in "ab"}
    said = join("a", "b").on("a.x = b.x", "a.t = b.t").within(window, time="t")
    operator = build_operator(said.plan({name: rows.schema for name, rows in tables.items()}))
    known = min(known, len(times))
    spans = GraphBulk(operator, threads, part)._spans(np.array(times, np.int64), known)
    edges = [start for start, _ in spans] + [len(times)]
    assert edges[0] == known
    assert [end for _, end in spans] == edges[1:]
    assert all(start < end for start, end in spans)
    assert len(spans) <= threads


def test_spans_are_as_many_as_threads_and_the_last_is_no_single_row():
    said = join("a", "b").on("a.x = b.x", "a.y = b.y").within(10, time="t")
    schema = pa.schema({"x": pa.int64(), "y": pa.int64(), "t": pa.int64()})
    operator = build_operator(said.plan({"a": schema, "b": schema}))
    first, last = GraphBulk(operator, 2, 100)._spans(np.arange(9_999), 0)
    assert first[1] - first[0] > last[1] - last[0] > 3_000  # who joins the last moves the clock
