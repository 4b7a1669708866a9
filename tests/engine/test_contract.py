"""What every policy and every kind of join must do, checked against the slow oracles."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import (
    driven,
    inputs,
    members,
    multiset,
    replayed,
    same_ledger,
    slow_generation,
    spec,
    within_budget,
)
from oracles.exact import judged
from oracles.rows import Workload
from oracles.simulator import simulate
from oracles.workloads import NAMED_ONLY, POLICIES, VARIANTS, generated, workloads
from streamshed.policies import NAMED, ByColumn, Importance


def check_exact(workload: Workload) -> None:
    results, _ = judged(workload)
    ours, ledger = replayed(workload)
    assert multiset(ours) == results
    assert ledger.balanced
    assert ledger.results == len(ours)


@slow_generation
@given(workloads(partial=False, budget=False))
def test_complete_joins_are_what_duckdb_says(workload: Workload) -> None:
    check_exact(workload)


@slow_generation
@given(workloads(partial=True, budget=False))
def test_partial_joins_are_what_duckdb_says(workload: Workload) -> None:
    check_exact(workload)


@slow_generation
@given(workloads(by=True, budget=False))
def test_joins_by_a_column_are_what_duckdb_says(workload: Workload) -> None:
    check_exact(workload)


@slow_generation
@given(workloads(by=True))
def test_results_say_which_earlier_ones_they_extend(workload: Workload) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # late rows are expected here
        table = spec(workload).replay(inputs(workload), order="arrival").table
    expected = simulate(workload).results
    found = zip(
        members(workload, table),
        table["update"].to_pylist(),
        table["extends"].to_pylist(),
        strict=True,
    )
    assert Counter((who, at, update, extends) for (who, at), update, extends in found) == Counter(
        (result.members, result.time, result.arrival, result.extends) for result in expected
    )
    for key, who in zip(table["key"].to_pylist(), table["members"].to_pylist(), strict=True):
        assert {member["k"] for member in who} == {key}


def test_every_policy_has_a_plain_version() -> None:
    # Importance counts in joins through a relation alone, see match/test_relation.py.
    assert {*NAMED, ByColumn.name} - {Importance.name} == set(POLICIES)


def check_decisions(workload: Workload, subset: bool = True) -> None:
    """The same results, the same fate of every tuple, and no result that the exact join has not."""
    expected = simulate(workload, trace=True)
    ours, ledger = replayed(workload)
    assert multiset(ours) == expected.multiset()
    same_ledger(ledger, expected.ledger)
    if subset and workload.at_least is None:
        # (Shedding a partner of a partial result makes a smaller one, not none.)
        exact, _ = judged(workload.unbounded())
        assert not multiset(ours) - exact


@pytest.mark.parametrize("policy", [*POLICIES, *VARIANTS])
def test_every_policy_decides_as_its_plain_version(policy: str) -> None:
    @settings(slow_generation, max_examples=120)
    @given(workloads(budget=True, policies=[policy]))
    def check(workload: Workload) -> None:
        check_decisions(workload)

    check()


@pytest.mark.parametrize("total", [5, 8])
def test_density_looks_again_at_keys_that_cannot_complete_in_small_windows(total: int) -> None:
    """All rows of such a window are in front, and what they promised is remembered there."""
    for seed in range(20):
        windows = [("time", 7), ("time", 34)]
        usual = {"streams": 2, "rows": 60, "keys": 8, "skew": 1.5, "span": 30}
        check_decisions(
            generated(seed, window=windows, keep_total=total, policy="density", **usual)
        )


def test_density_takes_the_first_of_equals_in_front() -> None:
    """Of rows that promise the same; with few keys there are many."""
    for seed in range(3):
        windows = [("time", 20), ("time", 7)]
        usual = {"streams": 2, "rows": 150, "keys": 4, "skew": 0.8, "span": 30}
        workload = generated(seed, window=windows, keep_total=70, policy="density", **usual)
        check_decisions(workload, subset=False)


def test_density_knows_a_key_whose_last_row_made_room_for_it() -> None:
    """What has expired by the newest time leaves for a newcomer, of the same key or not."""
    for seed in (2, 6, 9):
        windows = [("time", 7), ("time", 20)]
        usual = {"streams": 2, "rows": 100, "keys": 20, "span": 60}
        workload = generated(seed, window=windows, keep_rows=(9, 4), policy="density", **usual)
        check_decisions(workload, subset=False)


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy not in NAMED_ONLY])
def test_every_policy_decides_alike_when_streams_come_and_go(policy: str) -> None:
    @settings(slow_generation, max_examples=60)
    @given(workloads(by=True, budget=True, policies=[policy]))
    def check(workload: Workload) -> None:
        check_decisions(workload)

    check()


@pytest.mark.parametrize("policy", [*POLICIES, *VARIANTS])
def test_cuts_and_restarts_change_nothing(policy: str) -> None:
    @settings(slow_generation, max_examples=25)
    @given(workloads(budget=True, policies=[policy]), st.data())
    def check(workload: Workload, data: st.DataObject) -> None:
        count = len(workload.rows)
        cuts = sorted(data.draw(st.sets(st.integers(0, count), max_size=5)))
        expected = simulate(workload, trace=True)
        for restore in (False, True):
            for end, results, ledger, _ in driven(workload, cuts, restore=restore):  # noqa: B007
                assert ledger.balanced
                if end:
                    same_ledger(ledger, expected.trace[end - 1])
                    within_budget(workload, ledger)
            assert multiset(results) == expected.multiset()

    check()


@pytest.mark.parametrize("policy", [*POLICIES, *VARIANTS])
def test_after_every_single_arrival(policy: str) -> None:
    """Budget and ledger hold after any arrival, tuple by tuple as the plain version says."""
    workload = generated(
        5, streams=4, rows=60, keys=12, skew=0.5, disorder=6, nulls=0.05, late=4,
        window=("time", 20), keep_rows=(5, 3, 7, 1), policy=policy,
    )  # fmt: skip
    expected = simulate(workload, trace=True)
    steps = range(1, len(workload.rows))
    for end, _, ledger, _ in driven(workload, steps):
        same_ledger(ledger, expected.trace[end - 1])
        within_budget(workload, ledger)


@pytest.mark.parametrize("policy", [*POLICIES, *VARIANTS])
@pytest.mark.parametrize("seed", range(3))
def test_larger_workloads_decide_alike(policy: str, seed: int) -> None:
    workload = generated(
        seed, streams=3, rows=250, keys=50, disorder=10 * seed, nulls=0.02, late=8 * seed,
        window=("time", 80), policy=policy,
        **({"keep_total": 60} if seed == 1 else {"keep_rows": (25, 25, 25)}),
    )  # fmt: skip
    check_decisions(workload, subset=False)  # the exact result would be too large
