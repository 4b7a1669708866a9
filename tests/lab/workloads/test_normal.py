"""Normally distributed keys."""

import numpy as np
import pytest
from scipy import stats

from streamshed import StreamshedError
from streamshed_lab.workloads import NormalWorkload


@pytest.mark.parametrize("variance", [15.0, 35.0])
def test_keys_follow_the_rounded_normal_distribution_in_every_stream(variance):
    workload = NormalWorkload(variance=variance, seed=3)
    law = stats.norm(100, np.sqrt(variance))
    for table in workload.tables().values():
        keys, counts = np.unique(table["key"].to_numpy(), return_counts=True)
        expected = (law.cdf(keys + 0.5) - law.cdf(keys - 0.5)) * counts.sum()
        common = expected >= 5
        observed = np.append(counts[common], counts[~common].sum())
        wanted = np.append(expected[common], counts.sum() - expected[common].sum())
        assert stats.chisquare(observed, wanted).pvalue > 1e-4


def test_streams_are_independent_of_each_other():
    tables = NormalWorkload(seed=4).tables()
    keys = np.array([table["key"].to_numpy() for table in tables.values()])
    correlation = np.corrcoef(keys) - np.eye(len(keys))
    assert np.abs(correlation).max() < 0.05


def test_the_rate_is_exact():
    for table in NormalWorkload(rate=12.5, tuples=1_000).tables().values():
        times = table["time"].cast("int64").to_numpy()
        assert (np.diff(times) == 80_000).all()


def test_a_seed_gives_the_same_streams_and_another_seed_others():
    assert NormalWorkload(seed=1).tables() == NormalWorkload(seed=1).tables()
    assert NormalWorkload(seed=1).tables() != NormalWorkload(seed=2).tables()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"streams": 1}, "streams must be 2 or more, got 1"),
        ({"tuples": 0}, "tuples must be 1 or more, got 0"),
        ({"rate": -1.0}, "rate must be more than 0 rows per second, got -1.0"),
        ({"variance": 0.0}, "variance must be more than 0, got 0.0"),
    ],
)
def test_what_makes_no_sense_is_refused(change, says):
    with pytest.raises(StreamshedError) as error:
        NormalWorkload(**change)
    assert says in str(error.value)
