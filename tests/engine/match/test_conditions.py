"""Joins on any condition: what DuckDB says, what the plain version says."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamshed as ss
from harness import (
    Result,
    members,
    mostly_slow,
    multiset,
    piece,
    same_ledger,
    slow_generation,
    windowed,
    within_budget,
)
from oracles.pairs import POLICIES, Alike, Compared, compared, judged, simulate
from oracles.rows import Workload, arrival_order
from oracles.workloads import generated
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.ledger import Ledger

KINDS = ("near", "cosine", "inner_product", "where")


def spec(case: Compared) -> ss.Join:
    workload = case.workload
    join = ss.join(*map(str, workload.names)).on(*case.alike.said()).seed(workload.seed)
    join = windowed(join, workload)
    if workload.bounded:
        column = workload.policy == "column"
        join = join.shed(column="worth") if column else join.shed(workload.policy)
    return join


def replayed(case: Compared) -> tuple[list[Result], Ledger]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # late rows are expected here
        done = spec(case).replay(case.inputs(), order="arrival")
    return members(case.workload, done.table), done.ledger


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_what_duckdb_says(kind: str) -> None:
    @settings(slow_generation, max_examples=80)
    @given(compared(kind, budget=False))
    def check(case: Compared) -> None:
        ours, ledger = replayed(case)
        assert multiset(ours) == judged(case)
        assert ledger.balanced
        assert ledger.results == len(ours)

    check()


def check_decisions(case: Compared) -> None:
    expected = simulate(case)
    ours, ledger = replayed(case)
    assert multiset(ours) == expected.multiset()
    same_ledger(ledger, expected.ledger)


@pytest.mark.parametrize("policy", mostly_slow(POLICIES, "oldest"))
def test_every_policy_decides_as_its_plain_version(policy: str) -> None:
    @settings(slow_generation, max_examples=80)
    @given(compared("near", budget=True, policies=[policy]))
    def check(case: Compared) -> None:
        check_decisions(case)

    check()


@pytest.mark.parametrize("kind", mostly_slow(KINDS, "near"))
def test_cuts_and_restarts_change_nothing(kind: str) -> None:
    @settings(slow_generation, max_examples=25)
    @given(compared(kind, budget=True, policies=["random"]), st.data())
    def check(case: Compared, data: st.DataObject) -> None:
        workload = case.workload
        cuts = sorted(data.draw(st.sets(st.integers(0, len(workload.rows)), max_size=5)))
        expected = simulate(case)
        order, tables = arrival_order(workload), case.inputs()
        plan = spec(case).plan({name: rows.schema for name, rows in tables.items()})
        for restore in (False, True):
            operator, results, start = build_operator(plan), [], 0
            for end in [*cuts, len(order)]:
                for found in operator.process(piece(operator, workload, tables, order[start:end])):
                    if isinstance(found, Block):
                        results.extend(members(workload, operator.results(found)))
                operator.compact()
                start = end
                assert operator.ledger().balanced
                if end:
                    same_ledger(operator.ledger(), expected.trace[end - 1])
                    within_budget(workload, operator.ledger())
                if restore:
                    saved = Snapshot.from_bytes(operator.snapshot().to_bytes())
                    operator = restore_operator(plan, saved)
            assert multiset(results) == expected.multiset()

    check()


@pytest.mark.parametrize("kind", mostly_slow(KINDS, "near"))
def test_larger_workloads_decide_alike(kind: str) -> None:
    """Enough rows for basic windows to be closed, to be put together and to go."""
    for seed in range(3):
        workload = generated(
            seed, streams=2, rows=450, keys=600, disorder=40 * seed, nulls=0.02, late=30 * seed,
            window=("time", (300, 250, 5)[seed]), policy="random",
            **({"keep_total": 160} if seed else {}),
        )  # fmt: skip
        least = {"near": 0.5, "cosine": 0.99, "inner_product": 3.0, "where": 0.0}[kind]
        check_decisions(Compared(workload, Alike(kind, least)))


@pytest.mark.parametrize("kind", ["near", "cosine"])
def test_windows_of_many_rows_are_what_duckdb_says(kind: str) -> None:
    """Enough rows for basic windows to be full."""
    workload = generated(1, streams=2, rows=4000, keys=9000, disorder=50, late=60,
                         window=("time", 3000))  # fmt: skip
    case = Compared(workload, Alike(kind, {"near": 1.0, "cosine": 0.99}[kind]))
    if kind == "near":
        assert multiset(replayed(case)[0]) == judged(case)
    else:
        vectors = {name: _wide(rows) for name, rows in case.inputs().items()}
        done = spec(case).replay(vectors, order="arrival")
        assert done.ledger.results == _counted(workload, vectors)


def _wide(rows: pa.Table) -> pa.Table:
    """The same with random vectors of many elements."""
    random = np.random.default_rng(rows.num_rows)
    few = random.standard_normal((40, 32)).astype(np.float32)
    noise = 0.1 * random.standard_normal((rows.num_rows, 32)).astype(np.float32)
    vectors = few[random.integers(0, 40, rows.num_rows)] + noise
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 32)
    return rows.set_column(rows.schema.get_field_index("vec"), "vec", column)


def _counted(workload: Workload, inputs: dict[str, pa.Table]) -> int:
    """Pairs within their windows with a large cosine, by plain products; none is late."""
    (a, b) = inputs.values()
    (_, window) = workload.windows[0]
    left, right = (np.stack(rows["vec"].to_numpy()).astype(np.float64) for rows in (a, b))
    product = left @ right.T
    scale = np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1))
    apart = np.abs(np.subtract.outer(a["ts"].to_numpy(), b["ts"].to_numpy()))
    return int(((product >= 0.99 * scale) & (apart <= window)).sum())


def table(**columns: object) -> pa.Table:
    return pa.table({"ts": pa.array([1, 2], pa.int64()), **columns})


def joined(condition: object, **columns: object) -> None:
    rows = table(**columns)
    ss.join("a", "b").on(condition).within(5, time="ts").replay(a=rows, b=rows)


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(ss.InputError, match="stream 'a', column 'v', row 1: nan cannot be comp"):
        joined(ss.near("v", 1), v=[1.0, np.nan])
    with pytest.raises(ss.InputError, match="row 0: inf cannot be compared"):
        joined(ss.where(lambda a, b: a.v < b.v, "v"), v=[np.inf, 1.0])
    with pytest.raises(ss.InputError, match="column 'v' of stream 'a' is of type string, which n"):
        joined(ss.near("v", 1), v=["x", "y"])


def test_vectors_of_different_lengths_are_refused() -> None:
    vectors = pa.array([[1.0, 2.0], [1.0]])
    with pytest.raises(ss.InputError, match="'a', column 'v', row 1: the vector has 1 elements, a"):
        joined(ss.cosine("v", at_least=0.5), v=vectors)
    with pytest.raises(ss.InputError, match="row 0: the vector has 0 elements"):
        joined(ss.cosine("v", at_least=0.5), v=pa.array([[], []], pa.list_(pa.float64())))
    with pytest.raises(ss.InputError, match="row 1: nan cannot be compared"):
        joined(ss.cosine("v", at_least=0.5), v=pa.array([[1.0, 2.0], [np.nan, 1.0]]))
    with pytest.raises(ss.InputError, match="a vector has a null among its elements"):
        joined(ss.cosine("v", at_least=0.5), v=pa.array([[1.0, 2.0], [None, 1.0]]))
    with pytest.raises(ss.InputError, match="which is no vector; make it a list of numbers"):
        joined(ss.cosine("v", at_least=0.5), v=[1.0, 2.0])
    short, long = table(v=pa.array([[1.0], [1.0]])), table(v=pa.array([[1.0, 1.0]] * 2))
    with pytest.raises(ss.InputError, match="stream 'b', column 'v', row 0: the vector has 2 elem"):
        ss.join("a", "b").on(ss.cosine("v", at_least=0.5)).last(5).replay(a=short, b=long)


def test_a_function_that_raises_stops_the_join_at_that_row() -> None:
    def picky(one: object, other: object) -> bool:
        if other.v == 2:  # type: ignore[attr-defined]
            raise ValueError("two is too much")
        return True

    rows = pa.table({"ts": [1, 2, 3], "v": [1, 2, 3]})
    join = ss.join("a", "b").on(ss.where(picky, "v")).within(5, time="ts")
    batches = join.replay_batches(a=rows, b=rows)
    first = next(batches)
    assert first.num_rows == 2  # a1 with b1, a2 with b1
    with pytest.raises(ss.InputError, match=r"stream 'b': where\(picky, 'v'\) raised an error"):
        next(batches)
    assert batches.ledger.balanced
    assert batches.ledger.streams["b"].arrived == 1
    assert batches.ledger.results == 2


def test_a_function_that_cannot_be_compiled_is_refused() -> None:
    with pytest.raises(ss.SpecError, match="the function 'odd' cannot be compiled for rows"):
        joined(ss.where(odd, "v"), v=[1.0, 2.0])
    with pytest.raises(ss.SpecError, match=r"there is no field 'w'; read fields as in one\.v"):
        joined(ss.where(lambda a, b: a.w < b.w, "v"), v=[1.0, 2.0])
    with pytest.raises(ss.SpecError, match="No implementation of function") as raised:
        joined(ss.where(lambda a, b: abs(a - b) < 1, "v"), v=[1.0, 2.0])
    assert len(str(raised.value)) < 500
    assert "\x1b" not in str(raised.value)
    with pytest.raises(ss.SpecError, match="returns float64 for two rows; let it return True or"):
        joined(ss.where(lambda a, b: a.v - b.v, "v"), v=[1.0, 2.0])


def odd(one: object, other: object) -> bool:
    return one.w == other.w  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (lambda: ss.near("v", -1), "the distance is -1; give a number of 0 or more"),
        (lambda: ss.near("v", float("nan")), "the distance is nan; give a finite number"),
        (lambda: ss.near({}, 1), "the mapping for the column is empty"),
        (lambda: ss.cosine("v", at_least=2), "`at_least` is 2; give a number from -1 to 1"),
        (lambda: ss.where(3, "v"), "3 is no function"),
        (lambda: ss.where(odd), "no column was named; name those that the function uses"),
        (lambda: ss.where(odd, "a b"), "'a b' cannot be a field of a member; rename it"),
        (
            lambda: ss.join("a", "b").on(ss.near("v", 1), ss.near("w", 1)),
            "were both given; give one such condition",
        ),
        (
            lambda: ss.join("a", "b").on(ss.near({"a": "v", "x": "w"}, 1)),
            "there is no stream 'x'",
        ),
        (lambda: ss.join("a", "b").on(ss.near({"a": "v"}, 1)), "no column was named for 'b'"),
        (lambda: ss.join(by="s").on(ss.near("v", 1)), "named by the column 's'"),
    ],
)
def test_conditions_that_cannot_be(said: object, message: str) -> None:
    with pytest.raises(ss.SpecError, match=message):
        said()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda join: join.partial(), ".partial.. cannot be combined with .on.. by a condition"),
        (lambda join: join.shed("sketch"), "'sketch'.* ranks rows by equal columns"),
        (lambda join: join.shed("pairwise"), "'pairwise'.* ranks rows by equal columns"),
        (
            lambda join: join.through(pa.table({"x": [1], "y": [2]}), a="x", b="y"),
            ".through.. cannot be combined with .on.near",
        ),
    ],
)
def test_what_such_joins_cannot_do_yet(change: object, message: str) -> None:
    join = change(ss.join("a", "b").on(ss.near("v", 1)).last(5).keep(rows=3))  # type: ignore[operator]
    with pytest.raises(ss.SpecError, match=message):
        join.plan({name: table(v=[1.0, 2.0]).schema for name in "ab"})


def test_columns_of_other_names_by_stream() -> None:
    a, b = table(x=[1.0, 5.0]), table(y=[1.5, 9.0])
    join = ss.join("a", "b").on(ss.near({"a": "x", "b": "y"}, 0.5)).last(5)
    assert repr(join) == "join('a', 'b').on(near({'a': 'x', 'b': 'y'}, 0.5)).last(5)"
    done = join.select("a.ts").replay(a=a, b=b)
    assert done.table.to_pylist() == [{"a": {"ts": 1}, "time": 0}]
    assert done.ledger.comparisons == 4


def test_vectors_may_begin_with_nulls() -> None:
    """How long vectors are is known only when the first one comes."""
    kind = pa.list_(pa.float64())
    nulls = pa.record_batch({"ts": [1, 2], "v": pa.array([None, None], kind)})
    later = pa.record_batch({"ts": [3, 4], "v": pa.array([[1.0, 0.0], [0.0, 1.0]], kind)})
    join = ss.join("a", "b").on(ss.cosine("v", at_least=0.9)).within(5, time="ts")
    batches = [nulls, later]
    done = join.replay(
        a=pa.RecordBatchReader.from_batches(nulls.schema, batches),
        b=pa.RecordBatchReader.from_batches(nulls.schema, batches),
    )
    assert [(row["a"]["ts"], row["b"]["ts"]) for row in done.table.to_pylist()] == [(3, 3), (4, 4)]
    assert done.ledger.streams["a"].filtered == 2
