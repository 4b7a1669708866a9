"""The generator of the existence-pattern paper keeps what it promises."""

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from streamshed import StreamshedError
from streamshed_lab.workloads import ExistenceWorkload
from streamshed_lab.workloads.existence import SECOND, orders

# Small corners and the paper's own setting.
WORKLOADS = [
    ExistenceWorkload(seed=1),
    ExistenceWorkload(seed=2, spread=5.0, alpha=2.0),
    ExistenceWorkload(seed=3, spread=100.0, alpha=1.0, ranking="by_length"),
    ExistenceWorkload(seed=4, streams=3, rate=25.0, repertoire=4),
    ExistenceWorkload(seed=5, arrivals="poisson", spread=50.0),
    ExistenceWorkload(seed=6, streams=2, tuples=1, spread=0.01),
    ExistenceWorkload(seed=7, streams=7, tuples=500, spread=30.0),
]


def keys_and_times(workload):
    """Per stream: keys, and microseconds."""
    return {
        name: (table["key"].to_numpy(), table["time"].cast("int64").to_numpy())
        for name, table in workload.tables().items()
    }


def appearances(workload):
    """Key → [(time, stream number)], in the order of times."""
    seen = {}
    for number, (keys, times) in enumerate(keys_and_times(workload).values()):
        for key, at in zip(keys.tolist(), times.tolist(), strict=True):
            seen.setdefault(key, []).append((at, number))
    return {key: sorted(places) for key, places in seen.items()}


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_every_key_is_at_most_once_in_a_stream_of_the_said_length(workload):
    for keys, times in keys_and_times(workload).values():
        assert len(keys) == workload.tuples
        assert len(np.unique(keys)) == workload.tuples
        assert (np.diff(times) >= 0).all()
        assert times[0] >= 0
        assert times[-1] < workload.seconds * SECOND


@pytest.mark.parametrize("rate", [10.0, 12.5, 16.7, 25.0])
def test_regular_arrivals_keep_the_rate_exactly_and_streams_take_turns(rate):
    workload = ExistenceWorkload(rate=rate, streams=4, tuples=2_000)
    times = [at for _, at in keys_and_times(workload).values()]
    for stream in times:
        beats = np.arange(2_000) * (SECOND / rate) + stream[0]
        assert np.abs(stream - beats).max() <= 1
    merged = np.sort(np.concatenate(times))
    assert np.diff(merged).min() > 0.9 * SECOND / rate / 4


def test_poisson_arrivals_have_the_rate_and_exponential_gaps():
    workload = ExistenceWorkload(arrivals="poisson", seed=8)
    for _, times in keys_and_times(workload).values():
        gaps = np.diff(times) / SECOND
        assert gaps.mean() == pytest.approx(1 / workload.rate, rel=0.02)
        assert stats.kstest(gaps, stats.expon(scale=1 / workload.rate).cdf).pvalue > 1e-4


@pytest.mark.parametrize("spread", [5.0, 20.0, 50.0, 100.0])
@pytest.mark.parametrize("streams", [3, 5, 7])
def test_orders_are_kept_nearly_always(streams, spread):
    faithful = ExistenceWorkload(streams=streams, spread=spread, seed=1).faithfulness()
    # Seven appearances within five seconds leave hardly room for an order.
    assert faithful.orders_kept > (0.9 if (streams, spread) == (7, 5.0) else 0.95)
    assert faithful.rows_filled < 0.02
    assert faithful.keys_cut < spread * 10 / 10_000


def test_faithfulness_is_what_the_tables_show():
    workload = ExistenceWorkload(streams=4, spread=5.0, seed=3, tuples=2_000)
    drawn = dict(
        pair
        for table in workload.tables().values()
        for pair in zip(table["key"].to_pylist(), table["misc"].to_pylist(), strict=True)
    )
    kept = within = judged = 0
    for key, places in appearances(workload).items():
        order = [stream for stream in orders(4)[drawn[key]].tolist() if stream >= 0]
        if len(places) == len(order) > 1:
            judged += 1
            kept += [stream for _, stream in places] == order
            within += places[-1][0] - places[0][0] <= 5 * SECOND
    faithful = workload.faithfulness()
    assert kept / judged == faithful.orders_kept
    assert within / judged == faithful.spreads_kept


def test_drawn_times_keep_every_order_and_spread():
    faithful = ExistenceWorkload(arrivals="poisson", spread=50.0, seed=2).faithfulness()
    assert faithful.orders_kept == 1.0
    assert faithful.spreads_kept == 1.0


@pytest.mark.parametrize("spread", [5.0, 20.0, 100.0])
def test_regular_arrivals_exceed_the_spread_by_some_seconds_at_most(spread):
    for places in appearances(ExistenceWorkload(spread=spread, seed=9)).values():
        assert places[-1][0] - places[0][0] <= (spread + 10) * SECOND


@pytest.mark.parametrize(
    "workload",
    [
        ExistenceWorkload(seed=11),
        ExistenceWorkload(seed=12, alpha=1.0),
        ExistenceWorkload(seed=13, alpha=2.0),
        ExistenceWorkload(seed=14, alpha=1.0, ranking="by_length"),
        ExistenceWorkload(seed=15, repertoire=10),
    ],
    ids=str,
)
def test_orders_are_drawn_with_their_probabilities(workload):
    probability = workload.order_probabilities()
    assert probability.sum() == pytest.approx(1.0)
    counts = np.bincount(workload.drawn_orders(), minlength=len(probability))
    assert counts[probability == 0].sum() == 0
    # Rare orders are put together: a chi-square test wants several expected in each class.
    expected = probability * counts.sum()
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    kept = wanted > 0
    assert stats.chisquare(observed[kept], wanted[kept]).pvalue > 1e-4


def test_probabilities_are_zipf_over_a_ranking_of_the_seed():
    workload = ExistenceWorkload(alpha=1.5, seed=1)
    ranked = np.sort(workload.order_probabilities())[::-1]
    np.testing.assert_allclose(ranked[0] / ranked, np.arange(1, 326) ** 1.5)
    other = replace(workload, seed=2).order_probabilities()
    assert not np.array_equal(workload.order_probabilities(), other)


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_ranking_by_length_keeps_the_share_of_complete_orders(alpha):
    workload = ExistenceWorkload(alpha=alpha, ranking="by_length")
    complete = (orders(5) >= 0).all(axis=1)
    assert workload.order_probabilities()[complete].sum() == pytest.approx(120 / 325)


def test_a_seed_gives_the_same_streams_and_another_seed_others():
    one, again = ExistenceWorkload(seed=5).tables(), ExistenceWorkload(seed=5).tables()
    assert all(one[name].equals(again[name]) for name in one)
    assert not ExistenceWorkload(seed=6).tables()["s1"].equals(one["s1"])


def test_exact_results_are_the_keys_in_all_streams_within_the_window():
    workload = ExistenceWorkload(spread=50.0, seed=3, tuples=3_000)
    for window in (10.0, 30.0, 100.0):
        complete = [
            places[-1][0] - places[0][0] <= window * SECOND
            for places in appearances(workload).values()
            if len(places) == 5
        ]
        assert workload.exact_results(window) == sum(complete)


@pytest.mark.parametrize("spread", [5.0, 20.0, 50.0, 100.0])
def test_the_papers_setting_has_some_4400_exact_results(spread):
    assert ExistenceWorkload(spread=spread, seed=1).exact_results(100.0) == pytest.approx(
        4_400, rel=0.1
    )


def test_seven_streams_are_generated_quickly():
    orders(7)  # listed once, then known
    begin = time.perf_counter()
    ExistenceWorkload(streams=7, seed=1_000).tables()
    assert time.perf_counter() - begin < 2.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"streams": 1}, "streams must be 2 to 8"),
        ({"tuples": 0}, "tuples must be 1 or more, got 0"),
        ({"rate": 0.0}, "rate must be more than 0 rows per second, got 0.0"),
        ({"alpha": -1.0}, "alpha must be 0 or more, got -1.0"),
        ({"spread": 1_000.0}, "spread must be more than 0 and less than the trace's 1000 seconds"),
        ({"arrivals": "bursts"}, 'arrivals must be "regular" or "poisson", got \'bursts\''),
        ({"ranking": "none"}, "ranking must be"),
        ({"repertoire": 326}, 'repertoire must be None, or 1 to 325 with ranking="all", got 326'),
        ({"repertoire": 3, "ranking": "by_length"}, "repertoire must be None"),
    ],
)
def test_what_makes_no_sense_is_refused(change, says):
    with pytest.raises(StreamshedError) as error:
        ExistenceWorkload(**change)
    assert says in str(error.value)
