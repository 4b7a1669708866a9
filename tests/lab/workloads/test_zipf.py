"""Keys of a Zipf distribution."""

import itertools

import numpy as np
import pytest
from scipy import stats

from streamshed import StreamshedError
from streamshed_lab.workloads import ZipfWorkload


def counts_by_rank(workload):
    """For each stream: how often the key of each rank came."""
    return [
        np.bincount(table["key"].to_numpy(), minlength=workload.keys)[ranking]
        for table, ranking in zip(workload.tables().values(), workload.rankings(), strict=True)
    ]


@pytest.mark.parametrize("popular", ["same", "own"])
@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, (2.0, 1.0, 0.5)])
def test_keys_follow_the_distribution_in_every_stream(skew, popular):
    workload = ZipfWorkload(streams=3, tuples=20_000, keys=500, skew=skew, popular=popular, seed=3)
    for counts, skew_of_stream in zip(counts_by_rank(workload), workload.skews, strict=True):
        expected = stats.zipfian(skew_of_stream, workload.keys).pmf(np.arange(500) + 1) * 20_000
        common = expected >= 5
        observed = np.append(counts[common], counts[~common].sum())
        wanted = np.append(expected[common], 20_000 - expected[common].sum())
        filled = wanted > 1e-6  # there may be no rare keys
        assert stats.chisquare(observed[filled], wanted[filled]).pvalue > 1e-4


def test_streams_share_their_popular_keys_or_have_their_own():
    same = ZipfWorkload(popular="same", seed=5).rankings()
    assert all((ranking == same[0]).all() for ranking in same)
    own = ZipfWorkload(popular="own", seed=5).rankings()
    for one, other in itertools.pairwise(own):
        places = np.argsort(one), np.argsort(other)
        assert abs(stats.spearmanr(*places).statistic) < 0.05


def test_draws_are_independent_of_each_other():
    workload = ZipfWorkload(streams=2, tuples=20_000, keys=50, skew=1.0, seed=6)
    places = np.argsort(workload.rankings()[0])
    first, second = (places[table["key"].to_numpy()] for table in workload.tables().values())
    # The two most popular keys against all others: in both streams at once, and one after another.
    for one, other in [(first, second), (first[1:], first[:-1])]:
        seen = stats.contingency.crosstab(np.minimum(one, 2), np.minimum(other, 2)).count
        assert stats.chi2_contingency(seen).pvalue > 1e-4


def test_the_rate_is_exact_and_streams_take_turns():
    tables = ZipfWorkload(streams=2, rate=12.5, tuples=1_000).tables()
    times = [table["time"].cast("int64").to_numpy() for table in tables.values()]
    assert all((np.diff(stream) == 80_000).all() for stream in times)
    assert (times[1] - times[0] == 40_000).all()


def test_a_seed_gives_the_same_streams_and_another_seed_other_popular_keys():
    assert ZipfWorkload(seed=1).tables() == ZipfWorkload(seed=1).tables()
    one, other = (ZipfWorkload(seed=seed).rankings()[0] for seed in (1, 2))
    assert set(one[:10].tolist()).isdisjoint(other[:10].tolist())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"streams": 1}, "streams must be 2 or more, got 1"),
        ({"tuples": 0}, "tuples must be 1 or more, got 0"),
        ({"rate": 0.0}, "rate must be more than 0 rows per second, got 0.0"),
        ({"keys": 0}, "keys must be 1 or more, got 0"),
        ({"skew": -1.0}, "skew must be 0 or more, one number or 5, as there are streams, got -1.0"),
        ({"skew": (1.0, 2.0)}, "as there are streams, got (1.0, 2.0)"),
        ({"popular": "none"}, 'popular must be "same" or "own", got \'none\''),
    ],
)
def test_what_makes_no_sense_is_refused(change, says):
    with pytest.raises(StreamshedError) as error:
        ZipfWorkload(**change)
    assert says in str(error.value)
