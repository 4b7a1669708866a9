"""What the sample says of the results that shedding costs, against what is true."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from engine import driven, replayed
from oracles.exact import judged
from oracles.rows import Workload
from oracles.sample import sampled
from oracles.workloads import POLICIES, generated, workloads
from streamshed.experiments.coverage import coverage, runs

slow_generation = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
told_apart = [policy for policy in POLICIES if policy != "existence"]


def truth(workload: Workload) -> int:
    """The number of results where nothing is shed, as DuckDB counts them."""
    return sum(judged(workload.unbounded())[0].values())


def check_exact(workload: Workload) -> None:
    results, ledger = replayed(replace(workload, rate=1.0))
    missed = truth(workload) - len(results)
    assert missed >= 0
    assert (ledger.missed.value, ledger.missed.low, ledger.missed.high) == (missed,) * 3
    recall = len(results) / (missed + len(results)) if missed else 1.0
    assert ledger.recall.value == pytest.approx(recall)


@pytest.mark.parametrize("policy", POLICIES)
def test_following_every_key_tells_exactly_what_is_missed(policy: str) -> None:
    @settings(slow_generation, max_examples=60)
    @given(workloads(budget=True, policies=[policy]))
    def check(workload: Workload) -> None:
        check_exact(workload)

    check()


@pytest.mark.parametrize("policy", told_apart)
def test_and_so_it_does_where_streams_come_and_go(policy: str) -> None:
    @settings(slow_generation, max_examples=30)
    @given(workloads(by=True, budget=True, policies=[policy]))
    def check(workload: Workload) -> None:
        check_exact(workload)

    check()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that are thinned out after few tuples, and have little room."""
    monkeypatch.setattr("streamshed.operators.sample.PATIENCE", 9)
    monkeypatch.setattr("streamshed.operators.sample.CAPACITY", 12)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("policy", POLICIES)
def test_keys_are_followed_as_the_plain_version_does(policy: str) -> None:
    @settings(slow_generation, max_examples=60)
    @given(workloads(budget=True, policies=[policy]), st.sampled_from([None, 0.3, 1 / 8]))
    def check(workload: Workload, rate: float | None) -> None:
        workload = replace(workload, rate=rate)
        expected = sampled(workload, rate or 1 / 32, 9, **({} if rate else {"capacity": 12}))
        *_, (_, _, ledger, operator) = driven(workload, [])
        said = operator.missed()
        assert ledger.sample_rate == expected.rate
        assert said.seen == expected.seen
        assert said.certain == expected.certain
        assert said.missed == pytest.approx(expected.missed)
        assert said.variance == pytest.approx(expected.variance, abs=1e-9)
        assert ledger.missed.low <= ledger.missed.value <= ledger.missed.high

    check()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("policy", POLICIES)
def test_cuts_and_restarts_change_no_estimate(policy: str) -> None:
    @settings(slow_generation, max_examples=20)
    @given(workloads(budget=True, policies=[policy]), st.data())
    def check(workload: Workload, data: st.DataObject) -> None:
        workload = replace(workload, rate=data.draw(st.sampled_from([None, 1.0, 0.5])))
        cuts = sorted(data.draw(st.sets(st.integers(0, len(workload.rows)), max_size=5)))
        *_, (_, _, whole, _) = driven(workload, [])
        for restore in (False, True):
            *_, (_, _, ledger, _) = driven(workload, cuts, restore=restore)
            assert ledger.missed == whole.missed
            assert ledger.missed_lately == whole.missed_lately
            assert ledger.sample_rate == whole.sample_rate

    check()


@pytest.mark.usefixtures("hasty")
def test_the_estimate_has_no_bias() -> None:
    """Over the seeds of the lots the mean is what is missed, and the variance what is said."""
    workload = generated(
        7, streams=3, rows=400, keys=80, skew=0.8, window=("time", 60), keep_rows=(12, 12, 12),
        policy="oldest", rate=0.25,
    )  # fmt: skip
    _, exact = replayed(replace(workload, rate=1.0))
    said = [replayed(replace(workload, seed=seed))[1].missed.value for seed in range(250)]
    assert min(said) < exact.missed.value < max(said)
    assert stats.ttest_1samp(said, exact.missed.value).pvalue > 0.01


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    found = list(runs(range(25), policies=["random"]))
    # Of 75 runs at 95 % each, this many fail more often than once in ten thousand trials.
    assert coverage(found) >= stats.binom.ppf(1e-4, len(found), 0.95) / len(found)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [None, 1 / 4, 1 / 16])
def test_intervals_cover_the_truth_under_every_policy(rate: float | None) -> None:
    found = list(runs(range(40), rate))
    assert len(found) >= 300
    assert 0.92 <= coverage(found) <= 0.98
