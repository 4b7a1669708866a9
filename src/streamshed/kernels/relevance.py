"""Relevance feedback: whom to probe, learned from who took part in results (SNJoin, section 4).

A *relevance matrix* (the paper's RFBM) has a row for each class of values, by hash, and a column
for each party that may be probed: a stream, or a cluster of streams. An entry is the relevance of
the party to rows of the class. All functions here work on one row of such a matrix.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import driver, kernel
from streamshed.kernels.hashing import fold
from streamshed.kernels.random import draw, mix

SHARE, PLAIN, EVEN = 0, 1, 2
"""How relevance becomes the chance to be probed: see `chance_factor`."""
MOST_RELEVANT = 1.0
"""The largest relevance: the paper speaks of percentages."""

_11 = np.uint64(11)
_UNIT = 2.0**-53


@kernel
def unit(word):  # type: ignore[no-untyped-def]
    """A random word as a number in [0, 1)."""
    return np.float64(word >> _11) * _UNIT


@kernel
def relevance_class(hashed, classes):  # type: ignore[no-untyped-def]
    """The row of a relevance matrix in which a value is: H of definition 3."""
    return np.int64(mix(hashed) % np.uint64(classes))


@kernel
def chance_factor(row, own, reading):  # type: ignore[no-untyped-def]
    """What the relevance of a party is multiplied by to give its chance, at most 1.

    `SHARE` is definition 4 to the letter: the chances of all others sum up to 1. `PLAIN` takes
    relevance itself for the chance, as its base value of "50 %" suggests. `EVEN` is definition 4
    times the number of others: if all are equally relevant, all are probed.
    """
    if reading == PLAIN:
        return 1.0
    total = 0.0
    for party in range(row.size):
        if party != own:
            total += row[party]
    if total <= 0.0:
        return 0.0
    return (row.size - 1) / total if reading == EVEN else 1.0 / total


@kernel
def choose_parties(row, own, reading, seed, arrival, chosen):  # type: ignore[no-untyped-def]
    """Draw a probing sequence: each other party by its chance, in a ring that begins after `own`.

    The draw of a party depends on the seed, the number of the arrival, and the party alone.

    Returns:
        How many were written to `chosen`.
    """
    factor = chance_factor(row, own, reading)
    word = draw(seed, arrival)
    count = 0
    for step in range(1, row.size):
        party = (own + step) % row.size
        if unit(draw(word, party)) < factor * row[party]:
            chosen[count] = party
            count += 1
    return count


@kernel
def feed_back(row, chosen, weights, count, least):  # type: ignore[no-untyped-def]
    """Move the relevance of the parties of a sequence by their weights less the mean weight.

    The update rule of section 4, but relevance stays between `least`, so that who is forgotten can
    return, and 1.
    """
    mean = 0.0
    for i in range(count):
        mean += weights[i]
    mean /= max(count, 1)
    for i in range(count):
        moved = row[chosen[i]] + weights[i] - mean
        row[chosen[i]] = min(MOST_RELEVANT, max(least, moved))


@driver
def classes_of(hashed, classes):  # type: ignore[no-untyped-def]
    """The row of a relevance matrix in which each value is."""
    found = np.empty(hashed.size, np.int64)
    for i in range(hashed.size):
        found[i] = relevance_class(hashed[i], classes)
    return found


@driver
def visits_of(relevance, own, hashed, times, reading, seed):  # type: ignore[no-untyped-def]
    """Draw the probing sequences of many rows.

    Args:
        relevance: the matrix of each party.
        own: the party of each row.
        hashed: the hash of the value of each.
        times: of each, as words; draws depend on value and time.
        reading: how relevance becomes a chance.
        seed: of the draws.

    Returns:
        The rows that are sent to another party, each as often as it is, and to which.
    """
    parties = relevance.shape[2]
    chosen = np.empty(parties, np.int64)
    rows = np.empty(own.size * parties, np.int32)
    targets = np.empty(own.size * parties, np.int32)
    filled = 0
    for i in range(own.size):
        row = relevance[own[i], relevance_class(hashed[i], relevance.shape[1])]
        word = fold(hashed[i], times[i])
        count = choose_parties(row, own[i], reading, np.uint64(seed), word, chosen)
        for step in range(count):
            rows[filled] = i
            targets[filled] = chosen[step]
            filled += 1
    return rows[:filled], targets[:filled]


@driver
def learn_notes(relevance, probed, matched, least):  # type: ignore[no-untyped-def]
    """Take many notes into the matrices, in place: one for each party and class.

    Args:
        relevance: the matrix of each party.
        probed: by (party that was probed, party that probed, class), how many rows.
        matched: those of them that made a result there; their part is the weight.
        least: the floor.
    """
    parties = relevance.shape[2]
    chosen, weights = np.empty(parties, np.int64), np.empty(parties)
    for own in range(parties):
        for found in range(relevance.shape[1]):
            count = 0
            for party in range(parties):
                if probed[party, own, found] > 0:
                    chosen[count] = party
                    weights[count] = matched[party, own, found] / probed[party, own, found]
                    count += 1
            feed_back(relevance[own, found], chosen, weights, count, least)
