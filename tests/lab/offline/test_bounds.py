"""The bound against brute force over all ways of shedding, and against every policy."""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import streamshed as ss
from harness import inputs, replayed, spec
from oracles.exact import exact
from oracles.rows import Member, Workload, arrival_order
from oracles.workloads import POLICIES, generated, workloads
from streamshed_lab.offline import Bound, bounds, most_results, program, trace
from streamshed_lab.workloads import ExistenceWorkload, NormalWorkload

tiny = settings(
    max_examples=60,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


def bound(workload: Workload, **options: object) -> Bound:
    return most_results(spec(workload), inputs(workload), order="arrival", **options)  # type: ignore[arg-type]


def optimum(workload: Workload) -> int:
    """The most results over all ways of shedding, tried one after the other.

    What an unlimited join makes, DuckDB says. After each arrival all choices of what to keep are
    tried, of the rows that are still of use.
    """
    order: list[Member] = [(row.stream, row.row) for row in arrival_order(workload)]
    number = {member: place for place, member in enumerate(order)}
    completed = defaultdict(list)
    last_use: dict[Member, int] = {}
    for (members, _), times in exact(workload.unbounded()).items():
        assert times == 1
        done = max(number[member] for member in members)
        stored = frozenset(members) - {order[done]}
        completed[done].append(stored)
        for member in stored:
            last_use[member] = max(done, last_use.get(member, 0))

    def fits(kept: frozenset[Member]) -> bool:
        if workload.keep_total is not None:
            return len(kept) <= workload.keep_total
        budgets = zip(workload.names, workload.keep_rows or (), strict=False)
        return all(
            most is None or sum(stream == name for stream, _ in kept) <= most
            for name, most in budgets
        )

    @cache
    def most_from(place: int, kept: frozenset[Member]) -> int:
        if place == len(order):
            return 0
        made = sum(stored <= kept for stored in completed[place])
        there = kept | {order[place]}
        useful = frozenset(m for m in there if last_use.get(m, -1) > place)
        choices = [useful] if fits(useful) else [useful - {m} for m in useful]
        return made + max(most_from(place + 1, choice) for choice in choices if fits(choice))

    return most_from(0, frozenset())


@tiny
@given(workloads(partial=False, budget=True, max_streams=4, max_rows=6))
def test_the_optimum_is_that_of_brute_force(workload: Workload) -> None:
    best = optimum(workload)
    found = bound(workload, exact=True)
    assert found.exact
    assert found.results == best
    relaxed = bound(workload)
    assert relaxed.reached <= best <= relaxed.results


@pytest.mark.parametrize(("listed", "large"), [(0, 10**9), (0, 0), (8, 10**9), (10**9, 0)])
def test_every_bound_is_one(listed: int, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With results one by one or together, by the solver or by prices."""
    monkeypatch.setattr(program, "MOST_LISTED", listed)
    monkeypatch.setattr(bounds, "LARGE", large)

    @settings(tiny, max_examples=30)
    @given(workloads(partial=False, budget=True, max_streams=4, max_rows=8))
    def check(workload: Workload) -> None:
        found = bound(workload)
        assert found.reached <= optimum(workload) <= found.results <= found.unlimited

    check()


@settings(tiny, max_examples=30)
@given(workloads(partial=False, budget=True))
def test_no_policy_makes_more(workload: Workload) -> None:
    found = bound(workload)
    made, _ = replayed(workload)
    assert len(made) <= found.results
    assert found.reached <= found.results


@settings(tiny, max_examples=20)
@given(workloads(partial=False, budget=False))
def test_without_a_budget_all_results_can_be_made(workload: Workload) -> None:
    found = bound(workload)
    assert found.exact
    assert found.results == found.unlimited == sum(exact(workload).values())


def test_two_streams_are_solved_exactly() -> None:
    """With two streams the program is a flow, whose solutions are whole."""
    workload = generated(
        3, streams=2, rows=300, keys=40, skew=0.7, window=("time", 60), keep_rows=(9, 14)
    )
    found = bound(workload)
    assert found.exact
    assert found.results == bound(workload, exact=True).results
    assert found.results < found.unlimited


@pytest.mark.parametrize("spread", [40.0, 90.0])
def test_unique_keys_are_bounded_closely(spread: float) -> None:
    work = ExistenceWorkload(tuples=1000, spread=spread, seed=2)
    joined = ss.join(*work.names).on("key").within("100 seconds", time="time").keep(rows=40)
    found = most_results(joined, work.tables())
    assert found.unlimited == work.exact_results(100.0)
    assert 0.97 * found.results <= found.reached <= found.results < found.unlimited
    for policy in POLICIES:
        if policy != "column":
            assert joined.shed(policy).count(work.tables()).results <= found.reached


def test_keys_that_come_often_are_bounded_by_prices() -> None:
    work = NormalWorkload(streams=4, tuples=500, variance=15.0, seed=1)
    joined = ss.join(*work.names).on("key").within("10 seconds", time="time").keep(rows=40)
    lines: list[str] = []
    found = most_results(joined, work.tables(), progress=lines.append)
    exact_join = ss.join(*work.names).on("key").within("10 seconds", time="time")
    assert found.unlimited == exact_join.count(work.tables()).results
    assert 0.85 * found.results <= found.reached <= found.results < found.unlimited
    assert joined.shed("frequency").count(work.tables()).results <= found.reached
    assert len(lines) == 2
    hurried = most_results(joined, work.tables(), seconds=0.0)
    assert found.results <= hurried.results <= found.unlimited


def test_a_solver_without_time_still_bounds() -> None:
    work = ExistenceWorkload(tuples=1000, spread=90.0, seed=2)
    joined = ss.join(*work.names).on("key").within("100 seconds", time="time").keep(rows=40)
    for whole in (False, True):
        found = most_results(joined, work.tables(), exact=whole, seconds=0.0)
        assert found.reached <= found.results <= found.unlimited


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "streamshed_lab.offline")
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ss.StreamshedError, match=r"need SciPy: install streamshed\[lab\]"):
        importlib.import_module("streamshed_lab.offline")


def test_what_is_not_served_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    work = NormalWorkload(streams=3, tuples=50, variance=4.0)
    joined = ss.join(*work.names).on("key").within("9 seconds", time="time").keep(rows=5)
    with pytest.raises(ss.SpecError, match=r"complete joins only.*\.partial\(\).*named streams"):
        most_results(joined.partial(), work.tables())
    pairs = next(iter(work.tables().values()))
    met = dict.fromkeys(work.names, pairs.column_names[0])
    with pytest.raises(ss.SpecError, match=r"\.through\(\) a relation.*offline\.star"):
        most_results(joined.through(pairs, **met), work.tables())
    with pytest.raises(ss.SpecError, match=r"budgets in rows, .* in bytes"):
        most_results(joined.keep(memory="9 MB"), work.tables())
    apart = ss.join(by="s").on("key").within("9 seconds", time="time").keep(total=5)
    with pytest.raises(ss.SpecError, match="named by a column"):
        most_results(apart, {"input": work.tables()["s1"]})
    monkeypatch.setattr(program, "MOST_LISTED", 10)
    monkeypatch.setattr(bounds, "MOST_LISTED", 10)
    with pytest.raises(ss.SpecError, match=r"exact=True .* more than 10; leave it out"):
        most_results(joined, work.tables(), exact=True)
    monkeypatch.setattr(trace, "MOST_PAIRS", 10)
    with pytest.raises(ss.StreamshedError, match=r"pairs of rows .* than the 10 .*fewer rows"):
        most_results(joined, work.tables())


def test_rows_out_of_order_may_meet_without_a_result() -> None:
    """Each of the others is within the arrival's window, but they are not within each other's."""
    streams = {
        "a": pa.table({"k": [7, 0, 0], "ts": [0, 12, 13]}),
        "b": pa.table({"k": [7, 0, 0], "ts": [0, 4, 4]}),
        "c": pa.table({"k": [7, 9, 0], "ts": [0, 14, 8]}),
    }
    joined = ss.join(*streams).on("k").within(5, time="ts", late=9).keep(rows=1)
    made = joined.count(streams, order="arrival").results
    assert most_results(joined, streams, order="arrival").results == made == 1
