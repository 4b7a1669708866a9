"""Scores from histograms: equations 2 and 4, against the true distribution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare, norm

from streamshed.engine.gate.window_scores import new_histograms, scores_of

LAGS, SPREADS = np.array([0.0, 4.0, 9.0]), np.array([0.0, 1.5, 2.5])


def filled(results: int) -> object:
    """Histograms of results whose members lag behind that of the first stream."""
    random = np.random.default_rng(3)
    histograms = new_histograms(np.array([20.0, 20.0, 20.0]), 2.0)
    for stream in (1, 2):
        for difference in random.normal(LAGS[stream], SPREADS[stream], results):
            bucket = int((difference - histograms.least) / histograms.width)
            histograms.counts[stream * histograms.buckets + bucket] += 1
    return histograms


@pytest.mark.parametrize(("direction", "stream"), [(0, 1), (0, 2), (1, 0), (2, 0)])
def test_scores_with_the_first_stream_are_the_true_counts(direction: int, stream: int) -> None:
    """A basic window holds as many results as the distribution of differences says."""
    results = 5000
    scores = scores_of(filled(results), direction, stream, 2.0, 10)
    lag = LAGS[direction] - LAGS[stream]
    difference = norm(lag, SPREADS[max(direction, stream)])
    expected = results * np.diff(difference.cdf(np.arange(11) * 2.0))
    enough = expected >= 5
    assert np.abs(scores - expected).sum() <= 0.05 * results + 10
    if enough.sum() > 1:
        seen = scores[enough]
        assert chisquare(seen, expected[enough] * seen.sum() / expected[enough].sum()).pvalue > 1e-3


@pytest.mark.parametrize(("direction", "stream"), [(1, 2), (2, 1)])
def test_scores_of_other_streams_follow_from_both_histograms(direction: int, stream: int) -> None:
    """Equation 4: the difference of two independent ones."""
    scores = scores_of(filled(5000), direction, stream, 2.0, 10)
    difference = norm(LAGS[direction] - LAGS[stream], np.hypot(*SPREADS[1:]))
    expected = np.diff(difference.cdf(np.arange(11) * 2.0))
    assert np.abs(scores / scores.sum() - expected / expected.sum()).sum() < 0.06
