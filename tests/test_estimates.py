"""What the sample says of the results that shedding costs, against what is true."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import driven, replayed
from oracles.exact import judged
from oracles.rows import Workload
from oracles.workloads import POLICIES, workloads

slow_generation = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def truth(workload: Workload) -> int:
    """The number of results where nothing is shed, as DuckDB counts them."""
    return sum(judged(workload.unbounded())[0].values())


@pytest.mark.parametrize("policy", POLICIES)
def test_following_every_key_tells_exactly_what_is_missed(policy: str) -> None:
    @settings(slow_generation, max_examples=60)
    @given(workloads(budget=True, policies=[policy]))
    def check(workload: Workload) -> None:
        results, ledger = replayed(replace(workload, rate=1.0))
        missed = truth(workload) - len(results)
        assert missed >= 0
        assert (ledger.missed.value, ledger.missed.low, ledger.missed.high) == (missed,) * 3

    check()


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "existence"])
def test_and_so_it_does_where_streams_come_and_go(policy: str) -> None:
    @settings(slow_generation, max_examples=30)
    @given(workloads(by=True, budget=True, policies=[policy]))
    def check(workload: Workload) -> None:
        results, ledger = replayed(replace(workload, rate=1.0))
        assert ledger.missed.value == truth(workload) - len(results)

    check()


@pytest.mark.parametrize("policy", POLICIES)
def test_cuts_and_restarts_change_no_estimate(policy: str) -> None:
    @settings(slow_generation, max_examples=20)
    @given(workloads(budget=True, policies=[policy]), st.data())
    def check(workload: Workload, data: st.DataObject) -> None:
        workload = replace(workload, rate=data.draw(st.sampled_from([None, 1.0, 0.5])))
        cuts = sorted(data.draw(st.sets(st.integers(0, len(workload.rows)), max_size=5)))
        _, whole = replayed(workload)
        for restore in (False, True):
            *_, (_, _, ledger, _) = driven(workload, cuts, restore=restore)
            assert ledger.missed == whole.missed
            assert ledger.missed_lately == whole.missed_lately
            assert ledger.sample_rate == whole.sample_rate

    check()
