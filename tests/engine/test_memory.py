"""Budgets in bytes: measured as Arrow measures, hard after every row, ranked by byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamshed as ss
from streamshed.engine.batch import MOST, Work, allocate_work
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import merged
from streamshed.engine.operator import Operator
from streamshed.engine.restore import in_order
from streamshed.engine.row_sizes import payload_bytes
from streamshed.kernels.core import ROWS_USED
from streamshed.plan.capabilities import KINDS, Kind
from streamshed.sizes import describe_bytes, parse_bytes
from streamshed.spark.processor import shard_plans
from streamshed.spark.sharding import Sharding

ROWS, WINDOW, FITS = 150, 60, 25


def table(seed: int) -> pa.Table:
    """Rows of very different sizes."""
    random = np.random.default_rng(seed)
    sizes = (random.pareto(1.0, ROWS) * 40).astype(int) % 3_000
    return pa.table(
        {
            "k": random.integers(0, 12, ROWS),
            "x": random.integers(0, 12, ROWS),
            "v": random.random(ROWS) * 12,
            "w": random.random(ROWS),
            "ts": np.sort(random.integers(0, 300, ROWS)),
            "row": np.arange(ROWS),
            "text": ["x" * int(size) for size in sizes],
            "list": [[1.5] * int(size % 9) for size in sizes],
        }
    )


NAMED = {name: table(seed) for seed, name in enumerate("abc")}
TOGETHER = pa.concat_tables(
    [rows.append_column("stream", pa.array([name] * ROWS)) for name, rows in NAMED.items()]
).sort_by([("ts", "ascending"), ("stream", "ascending")])
FACTS = pa.table({"p": range(12), "q": [*range(1, 12), 0], "r": range(12)})
JOINS: dict[Kind, ss.Join] = {
    "shared key": ss.join("a", "b", "c").on("k"),
    "equalities": ss.join("a", "b", "c").on("a.k = b.k", "b.x = c.x"),
    "condition": ss.join("a", "b", "c").on(ss.near("v", 0.5)),
    "relation": ss.join("a", "b", "c").on(a="k", b="x", c="k").through(FACTS, a="p", b="q", c="r"),
    "streams by a column": ss.join(by="stream").on("k").partial(at_least=2),
}
CASES = [(kind, "density") for kind in KINDS] + [
    pytest.param("shared key", policy, marks=pytest.mark.slow)
    for policy in ("random", "oldest", "frequency", "output", "existence", "importance")
]


def inputs(kind: Kind) -> dict[str, pa.Table]:
    return {"input": TOGETHER} if kind == "streams by a column" else NAMED


def schemas(kind: Kind) -> dict[str, pa.Schema]:
    return {name: rows.schema for name, rows in inputs(kind).items()}


def bounded(kind: Kind, policy: str) -> ss.Join:
    """A join with a budget for a few rows beyond its own tables."""
    said = JOINS[kind].within(WINDOW, time="ts").shed(policy).seed(3)
    said = said.weigh(column="w") if policy == "importance" else said
    small = said.keep(memory="3 MB").plan(schemas(kind)).memory
    return said.keep(memory=small.tables + FITS * (small.each + 300))


def driven(
    join: ss.Join, kind: Kind, step: int, restart: bool = False
) -> Iterator[tuple[Operator, Counter]]:
    """The join after each piece of its inputs, and its results so far."""
    operator, found = build_operator(plan := join.plan(schemas(kind))), Counter()
    for start in range(0, 300, step):
        parts = []
        for position, rows in enumerate(inputs(kind).values()):
            times = rows["ts"].to_numpy()
            chosen = rows.filter(pa.array((times >= start) & (times < start + step)))
            parts += [
                operator.read(position, batch) for batch in chosen.combine_chunks().to_batches()
            ]
        if parts:
            for block in operator.process(merged(parts)):
                if isinstance(block, Block):
                    found.update(map(str, operator.results(block).to_pylist()))
        operator.compact()
        yield operator, found
        if restart:
            saved = Snapshot.from_bytes(operator.snapshot().to_bytes())
            operator = restore_operator(plan, saved)


def measured(operator: Operator) -> int:
    """The bytes of the rows that are stored, as Arrow says."""
    rows = operator.core.rows[in_order(operator.core)]
    by = operator.plan.by is not None
    streams = np.zeros(len(rows), int) if by else rows["stream"]
    return sum(
        payload.take(rows["payload"][streams == position]).nbytes
        for position, payload in enumerate(operator.payload)
    )


@pytest.mark.parametrize(("kind", "policy"), CASES)
def test_the_budget_is_hard_whatever_the_kind_and_the_policy(kind: Kind, policy: str) -> None:
    join = bounded(kind, policy)
    most = 0
    for operator, results in driven(join, kind, 1):
        memory, ledger = operator.plan.memory, operator.ledger()
        stored = sum(stream.stored for stream in ledger.streams.values())
        held = measured(operator) + memory.each * stored + memory.tables
        assert held <= ledger.held_bytes + 64  # what the arrays of Arrow have once
        assert ledger.held_bytes <= ledger.peak_bytes <= memory.nbytes
        used = int(operator.core.numbers[ROWS_USED])
        assert operator.state_bytes() <= memory.tables + memory.each * max(1, used)
        assert ledger.balanced
        made = sum(results.values())
        most = max(most, ledger.held_bytes)
    assert most > 0.7 * memory.nbytes
    assert sum(stream.shed for stream in ledger.streams.values()) > 50
    assert made > 0
    for step, restart in ((300, False), (37, True)):
        *_, (then, found) = driven(join, kind, step, restart)
        assert then.ledger().streams == ledger.streams
        assert then.ledger().peak_bytes == ledger.peak_bytes
        assert found == results or kind == "streams by a column"


@pytest.mark.parametrize("kind", KINDS)
def test_room_for_partners_counts_as_far_as_it_was_touched(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def marked(rows: int, streams: int, by: bool) -> Work:
        work = allocate_work(rows, streams, by)
        work.partners[:] = -2
        return work

    monkeypatch.setattr("streamshed.engine.operator.allocate_work", marked)
    *_, (operator, _) = driven(bounded(kind, "density"), kind, 300)
    touched = np.count_nonzero(operator.work.partners != -2)
    most = operator.work.cursor[MOST]
    assert (most > 0) == (kind != "equalities")  # where these are enumerated one by one
    assert touched == (2 * most if operator.plan.by else most)
    before = operator.state_bytes()
    operator.work.cursor[MOST] = 0
    assert before - operator.state_bytes() == touched * operator.work.partners.itemsize


def test_a_budget_for_everything_sheds_nothing() -> None:
    join = JOINS["shared key"].within(WINDOW, time="ts")
    exact, kept = join.replay(NAMED), join.keep(memory="100 MB").replay(NAMED)
    assert kept.table.equals(exact.table)
    assert kept.ledger.streams == exact.ledger.streams


def two(sizes: list[int], **columns: list) -> dict[str, pa.Table]:
    """Rows of a stream with payload of some sizes, and another stream without rows."""
    rows = pa.table(
        {
            "k": columns.pop("k", list(range(len(sizes)))),
            "ts": range(len(sizes)),
            "w": columns.pop("w", [1.0] * len(sizes)),
            "text": ["x" * size for size in sizes],
        }
    )
    return {"a": rows, "b": rows.slice(0, 0)}


def kept(join: ss.Join, rows: dict[str, pa.Table], fit: list[int]) -> list[int]:
    """Which rows of the first stream are kept if some of them would just fit together."""
    schemas = {name: table.schema for name, table in rows.items()}
    said = join.within(1_000, time="ts").estimate(rate=0)
    small = said.keep(memory="3 MB").plan(schemas).memory
    sizes = small.each + payload_bytes(rows["a"].to_batches()[0])
    session = said.keep(memory=small.tables + int(sizes[fit].sum())).open(schemas)
    session.push(rows)
    core = session._operator.core
    return core.rows["time"][in_order(core)].tolist()


def test_a_row_larger_than_the_budget_is_shed_and_disturbs_no_other() -> None:
    rows = two([100, 100, 10_000, 100])
    assert kept(ss.join("a", "b").on("k").shed("oldest"), rows, [0, 1, 3]) == [0, 1, 3]


def test_several_leave_for_one() -> None:
    rows = two([100, 100, 100, 100, 1_200])
    assert kept(ss.join("a", "b").on("k").shed("oldest"), rows, [3, 4]) == [3, 4]


def test_equal_promise_is_ranked_by_bytes() -> None:
    join = ss.join("a", "b").on("k").weigh(column="w").shed("importance")
    assert kept(join, two([200, 900, 200, 200, 200]), [0, 1, 2]) == [0, 2, 3, 4]
    # Nine times as important, the large one stays; one of twice the importance is refused.
    rows = two([200, 900, 200, 200, 900], w=[1.0, 9.0, 1.0, 1.0, 2.0])
    assert kept(join, rows, [0, 1, 2]) == [1, 2, 3]


def test_keys_are_ranked_by_the_bytes_of_their_rows() -> None:
    rows = two([600, 600, 100, 100, 100, 100], k=[1, 1, 2, 2, 3, 4])
    assert kept(ss.join("a", "b").on("k").shed("frequency"), rows, [0, 1, 2, 3])[1:] == [2, 3, 4, 5]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_rows_are_as_large_as_arrow_says(data: st.DataObject) -> None:
    texts = st.lists(st.none() | st.text(max_size=20), min_size=1, max_size=30)
    values = data.draw(texts)
    column = pa.array(values, pa.string())
    lists = [None if v is None else [{"n": 1, "s": v}] * (len(v) % 3) for v in values]
    nested = pa.list_(pa.struct([("n", pa.int64()), ("s", pa.string())]))
    columns = {
        "text": column,
        "large": column.cast(pa.large_string()),
        "binary": column.cast(pa.binary()),
        "code": column.dictionary_encode(),
        "flag": pa.array([v is None for v in values]),
        "number": pa.array([None if v is None else len(v) for v in values], pa.int16()),
        "fixed": pa.array([[1.0, 2.0]] * len(values), pa.list_(pa.float32(), 2)),
        "nested": pa.array(lists, nested),
        "view": pa.array(lists, pa.list_view(nested.value_type)),
        "nothing": pa.nulls(len(values)),
        "decimal": pa.array([1] * len(values)).cast(pa.decimal128(20, 0)),
    }
    names = data.draw(st.lists(st.sampled_from([*columns]), min_size=1, unique=True))
    rows = pa.record_batch({name: columns[name] for name in names})
    sizes = payload_bytes(rows)
    plain = [name for name in names if name != "code"]
    assert sizes.sum() + 8 * 4 * len(plain) >= rows.select(plain).nbytes
    start = data.draw(st.integers(0, len(values) - 1))
    assert payload_bytes(rows.slice(start)).tolist() == sizes[start:].tolist()
    copied = pa.Table.from_batches([rows]).take(list(range(start, len(values))))
    again = payload_bytes(copied.combine_chunks().to_batches()[0])
    assert again.tolist() == sizes[start:].tolist()


def test_what_is_said_of_memory() -> None:
    join = ss.join("a", "b").on("k").within(5, time="ts")
    assert repr(join.keep(memory="0.5 GB")).endswith(".keep(memory='500 MB')")
    assert parse_bytes("2 KiB", "it") == 2048
    assert describe_bytes(1_234) == 1_234
    for wrong, words in (
        ("many", "give a number and a unit"),
        ("5 parsecs", "give a number and a unit"),
        (0, "whole number, 1 or more"),
        ("0 MB", "whole number, 1 or more"),
        (2.5, "whole number"),
    ):
        with pytest.raises(ss.SpecError, match=words):
            join.keep(memory=wrong)
    with pytest.raises(ss.SpecError, match="give exactly one of them"):
        join.keep(memory="1 GB", total=5)
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
    with pytest.raises(ss.SpecError, match=r"1.0 kB is less than the .* that the tables of"):
        join.keep(memory="1 kB").plan({"a": schema, "b": schema})
    said = join.keep(memory="500 MB").explain(a=schema, b=schema, shards=4)
    assert "all windows together: 500.0 MB. In each of 4 shards: 125.0 MB" in said
    assert "stored rows are evicted by 'density', for each byte (the default)" in said


def test_shards_divide_the_bytes() -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
    join = ss.join("a", "b").on("k").within(5, time="ts").keep(memory=10_000_001)
    plans = shard_plans(join.plan({"a": schema, "b": schema}), Sharding(3)).values()
    assert [plan.memory.nbytes for plan in plans] == [3_333_333] * 3
    for plan in plans:
        assert 0 < build_operator(plan).plan.memory.for_rows < plan.memory.nbytes
    little = join.keep(memory="4 MB").plan({"a": schema, "b": schema})
    with pytest.raises(ss.SpecError, match="in each shard; give more, or fewer shards"):
        build_operator(next(iter(shard_plans(little, Sharding(9)).values())))
