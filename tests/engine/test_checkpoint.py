"""Stopping a join and going on elsewhere."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from streamshed import Join, StateError, join
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import VERSION, Head, Snapshot, names_as_arrays
from streamshed.engine.ingest import merged
from streamshed.engine.operator import Operator

SAID = join("a", "b").on("k").within(50, time="ts").keep(rows=40).shed("existence").seed(3)
SCHEMA = pa.schema({"k": pa.string(), "ts": pa.int64(), "text": pa.string()})


def plan(said: Join = SAID):
    return said.plan({"a": SCHEMA, "b": SCHEMA})


def rows(seed: int, start: int, count: int = 400) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    keys = [f"key {number}" for number in random.integers(0, 60, count)]
    times = start + np.sort(random.integers(0, count, count))
    return pa.record_batch([keys, times, [f"text {t}" for t in times]], schema=SCHEMA)


def fed(operator: Operator, part: int) -> list[dict]:
    """The results of another piece of both streams."""
    start = 400 * part
    parts = [operator.read(position, rows(2 * part + position, start)) for position in (0, 1)]
    return [
        result
        for found in operator.process(merged(parts))
        if isinstance(found, Block)
        for result in operator.results(found).to_pylist()
    ]


def test_a_join_goes_on_as_if_nothing_had_happened():
    whole, piecewise = build_operator(plan()), build_operator(plan())
    for part in range(4):
        assert fed(piecewise, part) == fed(whole, part) != []
        assert piecewise.ledger().streams == whole.ledger().streams
        assert piecewise.ledger().results == whole.ledger().results
        saved = piecewise.snapshot().to_bytes()
        piecewise = restore_operator(plan(), Snapshot.from_bytes(saved))


def test_a_budget_that_comes_and_goes_keeps_rows_that_were_written_once():
    """Without one, rows are flagged where they are; with one, they are listed by their numbers."""
    exact = join("a", "b").on("k").within(500, time="ts")
    ample = exact.keep(rows=10**6)
    whole, piecewise = build_operator(plan(exact)), build_operator(plan(exact))
    segments = {}
    for part, said in enumerate([exact, exact, ample, ample, exact, exact, exact]):
        assert fed(piecewise, part) == fed(whole, part) != []
        assert piecewise.ledger().streams == whole.ledger().streams
        delta = piecewise.seal()
        segments |= delta.segments
        for removed in delta.removed:
            del segments[removed]
        saved = Snapshot(delta.head, segments).to_bytes()
        piecewise = restore_operator(plan(said), Snapshot.from_bytes(saved))


def test_taking_a_snapshot_changes_nothing():
    one, other = build_operator(plan()), build_operator(plan())
    fed(one, 0)
    fed(other, 0)
    one.snapshot()
    one.snapshot()
    assert one.ledger().streams == other.ledger().streams
    assert fed(one, 1) == fed(other, 1)


def test_a_snapshot_of_nothing():
    restored = restore_operator(
        plan(), Snapshot.from_bytes(build_operator(plan()).snapshot().to_bytes())
    )
    assert fed(restored, 0) == fed(build_operator(plan()), 0)


@pytest.mark.parametrize("budget", [1_000, 20_000])
def test_a_snapshot_is_no_larger_than_twice_what_it_holds(budget):
    said = join("a", "b").on("k").within(10**6, time="ts").keep(rows=budget).shed("existence")
    operator = build_operator(plan(said))
    random = np.random.default_rng(0)
    for position in (0, 1):
        count = 3 * budget
        keys = [f"key {number}" for number in random.integers(0, count, count)]
        times = np.arange(count)
        batch = pa.record_batch([keys, times, [f"text {t}" for t in times]], schema=SCHEMA)
        for _ in operator.process(merged([operator.read(position, batch)])):
            pass
    saved = operator.snapshot().to_bytes()
    ledger = operator.ledger()  # the snapshot has let go of the rows that were shed
    assert len(saved) < 2 * (ledger.state_bytes + ledger.payload_bytes)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (SAID.within(60, time="ts"), ["windows was", "[50, 50]", "and is", "[60, 60]"]),
        (SAID.on("text"), ["key was", "'k; k'", "and is", "'text; text'"]),
        (SAID.partial(), ["members was", "'complete'", "and is", "'at least 2'"]),
    ],
)
def test_the_snapshot_of_another_join_is_refused(other, words):
    operator = build_operator(plan())
    fed(operator, 0)
    with pytest.raises(StateError) as error:
        restore_operator(plan(other), operator.snapshot())
    for word in ["another join", *words, "start anew"]:
        assert word in str(error.value)


def test_the_streams_of_another_join_are_refused():
    saved = build_operator(plan()).snapshot()
    other = join("a", "c").on("k").within(50, time="ts").keep(rows=40).shed("existence").seed(3)
    with pytest.raises(StateError, match=r"streams was 'a, b' and is 'a, c'"):
        restore_operator(other.plan({"a": SCHEMA, "c": SCHEMA}), saved)
    wider = SCHEMA.append(pa.field("more", pa.int8()))
    with pytest.raises(StateError, match=r"it kept no column 'more' of stream 'a'; .*start anew"):
        restore_operator(SAID.plan({"a": wider, "b": wider}), saved)
    other_type = SCHEMA.set(2, pa.field("text", pa.binary()))
    with pytest.raises(StateError, match=r"column 'text' of stream 'b' was 'string' and is 'bin"):
        restore_operator(SAID.plan({"a": SCHEMA, "b": other_type}), saved)


def test_fewer_columns_may_be_chosen_later_but_none_that_were_not_kept():
    said = join("a", "b").on("k").within(10**6, time="ts")
    chosen = said.select("a.text", "b.ts")
    whole = build_operator(plan(said))
    fed(whole, 0)
    snapshot = whole.snapshot()
    for part in (1, 2):
        # The state has segments with all columns, and later ones without.
        fewer = restore_operator(plan(chosen), snapshot)
        assert fed(fewer, part) == [
            {"a": {"text": made["a"]["text"]}, "b": {"ts": made["b"]["ts"]}, "time": made["time"]}
            for made in fed(whole, part)
        ]
        assert fewer.ledger().streams == whole.ledger().streams
        assert fewer.ledger().payload_bytes < whole.ledger().payload_bytes
        delta = fewer.seal()
        segments = snapshot.segments | delta.segments
        for removed in delta.removed:
            segments.pop(removed, None)
        snapshot = Snapshot(delta.head, segments)
    widths = {len(rows.schema) for (input, _), rows in snapshot.segments.items() if input == 1}
    assert widths == {4, 3}  # with the numbers of arrival
    for other in (said, said.select("b.text"), said.select("a", "b")):
        with pytest.raises(StateError, match=r"it kept no column 'text' of stream 'b'\. Restore"):
            restore_operator(plan(other), snapshot)
    again = restore_operator(plan(said.select("b.k", "a")), snapshot)
    assert list(fed(again, 3)[0]) == ["a", "b", "time"]


def test_a_policy_that_needs_a_column_that_was_not_kept_is_refused():
    number = SCHEMA.set(2, pa.field("text", pa.int8()))
    chosen = SAID.select("time")
    saved = build_operator(chosen.plan({"a": number, "b": number})).snapshot()
    by_column = chosen.shed(column={"a": "text", "b": "ts"})
    with pytest.raises(StateError, match=r"it kept no column 'text' of stream 'a'\. Restore"):
        restore_operator(by_column.plan({"a": number, "b": number}), saved)


def test_bytes_that_are_no_snapshot_are_refused():
    operator = build_operator(plan())
    fed(operator, 0)
    good = operator.snapshot().to_bytes()
    for bad in (b"", b"nonsense", good[:-1], good[: len(good) // 2], good[10:], b"PK" + good[2:50]):
        with pytest.raises(StateError, match=r"not a complete (snapshot|state) .*start anew"):
            Snapshot.from_bytes(bad)
    with pytest.raises(StateError, match=r"not a complete state of a join .*start anew"):
        Head.from_bytes(good)  # an archive, but not of a head


def test_the_snapshot_of_another_release_is_refused(monkeypatch):
    monkeypatch.setattr("streamshed.engine.checkpoint.VERSION", VERSION + 1)
    saved = build_operator(plan()).snapshot().to_bytes()
    monkeypatch.undo()
    with pytest.raises(StateError, match=rf"layout {VERSION + 1}, and .* reads {VERSION};.*wrote"):
        Snapshot.from_bytes(saved)


def test_a_snapshot_is_taken_between_batches():
    said = join("a", "b").on("k").within(10**6, time="ts")
    operator = build_operator(plan(said))
    same = pa.record_batch([["x"] * 400, list(range(400)), ["y"] * 400], schema=SCHEMA)
    parts = [operator.read(position, same) for position in (0, 1)]
    running = operator.process(merged(parts))  # 160,000 results: more than the output holds
    next(running)
    with pytest.raises(AssertionError, match="between batches"):
        operator.snapshot()
    assert sum(len(found.time) for found in running) + 2**16 == 160_000
    operator.snapshot()


def test_rows_and_units_of_time_are_different_windows():
    said = join("a", "b").on("k")
    made = said.within({"a": 10}, time="ts").last({"b": 5})
    operator = build_operator(plan(made))
    for other in (
        said.within({"a": 10, "b": 5}, time="ts"),
        said.within({"b": 5}, time="ts").last({"a": 10}),
    ):
        with pytest.raises(StateError, match="windows was"):
            restore_operator(plan(other), operator.snapshot())


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"": 0},
        {"b": 1, "a": 0, "ü" * 40: 7},
        {3: 0, -(2**63): 1},
        {2**64 - 1: 0, 0: 1},
        {True: 0, False: 1},
        {b"x": 0, None: 1},
        {Decimal("1.50"): 0, Decimal("22.1"): 1},
    ],
)
def test_names_of_streams_are_kept_as_arrays(names):
    head = Head({}, {}, names_as_arrays(names))
    assert Head.from_bytes(head.to_bytes()).names == head.names == names
