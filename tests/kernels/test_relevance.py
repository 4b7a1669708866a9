"""Relevance feedback: the paper's rule, its bounds, and sequences drawn by it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.kernels.compiling import driver
from streamshed.kernels.relevance import (
    EVEN,
    PLAIN,
    SHARE,
    chance_factor,
    choose_parties,
    feed_back,
)


@driver
def chances(row, own, reading):
    """The chance of each party to be probed for a row of `own`, whose own is 0."""
    factor = chance_factor(row, own, reading)
    found = np.empty(row.size)
    for party in range(row.size):
        found[party] = 0.0 if party == own else min(1.0, factor * row[party])
    return found


@driver
def learn(row, chosen, weights, least):
    """Take a note of feedback into a row, in place."""
    feed_back(row, chosen, weights, chosen.size, least)


@driver
def drawn_sequence(row, own, reading, seed, arrival):
    """The probing sequence of an arrival."""
    chosen = np.empty(row.size, np.int64)
    count = choose_parties(row, own, reading, np.uint64(seed), arrival, chosen)
    return chosen[:count]


@given(
    row=st.lists(st.floats(0.02, 1.0), min_size=2, max_size=8),
    data=st.data(),
)
def test_relevance_moves_by_weights_less_their_mean_within_bounds(row, data):
    parties = data.draw(st.lists(st.integers(0, len(row) - 1), unique=True))
    weights = data.draw(st.lists(st.floats(0, 1), min_size=len(parties), max_size=len(parties)))
    moved = np.array(row)
    learn(moved, np.array(parties, np.int64), np.array(weights), 0.02)
    expected = list(row)
    for party, weight in zip(parties, weights, strict=True):
        expected[party] += weight - sum(weights) / len(weights)
        expected[party] = min(1.0, max(0.02, expected[party]))
    assert moved == pytest.approx(expected)


def test_chances_by_each_reading():
    row = np.array([0.5, 0.1, 0.4, 0.3])
    assert chances(row, 0, SHARE) == pytest.approx([0, 0.125, 0.5, 0.375])
    assert chances(row, 0, PLAIN) == pytest.approx([0, 0.1, 0.4, 0.3])
    assert chances(row, 0, EVEN) == pytest.approx([0, 0.375, 1.0, 1.0])


@pytest.mark.parametrize("reading", [SHARE, PLAIN, EVEN])
def test_sequences_are_drawn_by_chance_and_again_the_same(reading):
    row = np.array([0.2, 0.9, 0.05, 0.5, 0.3])
    counts = np.zeros(5)
    for arrival in range(4_000):
        sequence = drawn_sequence(row, 1, reading, 7, arrival)
        assert (sequence == drawn_sequence(row, 1, reading, 7, arrival)).all()
        # In a ring that begins after the owner.
        assert (np.diff((sequence - 2) % 5) > 0).all()
        counts[sequence] += 1
    assert counts / 4_000 == pytest.approx(chances(row, 1, reading), abs=0.03)


def test_one_who_is_forgotten_returns():
    row, other = np.array([0.5, 0.5, 0.5]), np.array([1, 2])
    for _ in range(10):
        learn(row, other, np.array([1.0, 0.0]), 0.02)
    assert row.tolist() == [0.5, 1.0, 0.02]
    # Its turn comes now and then, and what it then contributes counts at once.
    drawn = [2 in drawn_sequence(row, 0, SHARE, 1, arrival) for arrival in range(2_000)]
    assert any(drawn)
    learn(row, other, np.array([0.0, 1.0]), 0.02)
    assert row.tolist() == pytest.approx([0.5, 0.5, 0.52])
