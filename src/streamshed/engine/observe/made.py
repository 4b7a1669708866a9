"""The results that a row has made: they are known, and need not be estimated.

A row is tallied as it comes, by what it would make if nothing were shed. Then it makes some of
these results. What it made of each level is taken off for all that it stood for, and added once: in
the mean that changes nothing (a difference estimator), but what varies by lot is only what was
missed.
"""

from __future__ import annotations

import numpy as np

from streamshed.engine.observe.state import GROUPS, STEP_PLACE
from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import NONE


@kernel
def take_in_hand(loss, likely):  # type: ignore[no-untyped-def]
    """Begin with a row: nothing is seen of it, but what the sketch says."""
    hand = loss.hand[0]
    hand.top = 0
    hand.seen = 0.0
    hand.slack = 0.0
    hand.likely = likely
    hand.level = NONE
    hand.believed = 0.0


@kernel
def credit(loss, made):  # type: ignore[no-untyped-def]
    """Let the tallies know how many results the row at hand has made.

    Which level they are of is not known: as many as fit are taken to be of the lowest ones, which
    every key knows that is deep enough for them.
    """
    hand = loss.hand[0]
    exact, certain, spread, left, weight = made, made, 0.0, made, 1.0
    for level in range(hand.top):
        most = loss.more[level] + (hand.slack if level == 0 else 0.0)
        part = min(left, most)
        left -= part
        exact -= weight * part
        spread -= weight * part * np.sqrt(1.0 - 1.0 / weight)
        if level == 0:
            certain -= part
        weight *= 2.0
    known = min(made, hand.likely)
    if known > 0:
        spread += _know(loss, known)
    _change(loss.total, 0, exact, certain, max(0.0, made - hand.seen))
    _change(loss.steps, loss.numbers[STEP_PLACE], exact, certain, max(0.0, made - hand.seen))
    if spread != 0:
        loss.spread[hand.group] += spread
        loss.step_spread[loss.numbers[STEP_PLACE] * 2 * GROUPS + hand.group] += spread
    believed = min(hand.believed, made - hand.seen)
    if believed > 0:
        _disbelieve(loss, believed)


@kernel
def _change(tallies, place, exact, certain, seen):  # type: ignore[no-untyped-def]
    tallies[place].exact += exact
    tallies[place].certain += certain
    tallies[place].seen += seen


@kernel
def _know(loss, known):  # type: ignore[no-untyped-def]
    """Take back what the sketch alone said of results that were made; returns the spread."""
    hand, place = loss.hand[0], loss.numbers[STEP_PLACE]
    if hand.level == NONE:
        loss.total[0].exact -= known
        loss.total[0].unseen -= known
        loss.steps[place].exact -= known
        loss.steps[place].unseen -= known
        return 0.0
    weight = 2.0**hand.level
    loss.total[0].exact += (weight - 1.0) * known
    loss.steps[place].exact += (weight - 1.0) * known
    return weight * known * np.sqrt(1.0 - 1.0 / weight)


@kernel
def _disbelieve(loss, believed):  # type: ignore[no-untyped-def]
    """Take back what may have been hidden, as far as it was made."""
    hand, place = loss.hand[0], loss.numbers[STEP_PLACE]
    loss.total[0].hidden -= hand.weight * believed
    loss.steps[place].hidden -= hand.weight * believed
    loss.spread[GROUPS + hand.group] -= hand.doubt * believed
    loss.step_spread[(place * 2 + 1) * GROUPS + hand.group] -= hand.doubt * believed
