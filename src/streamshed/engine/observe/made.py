"""The results that a row has made: they are known, and need not be estimated.

A row is tallied as it comes, by what it would make if nothing were shed. Then it makes some of
these results. What its key knows of its results is no less than that, on every level: in the mean
that changes nothing (a difference estimator), but what varies by lot is only what was missed.
"""

from __future__ import annotations

import numpy as np

from streamshed.engine.observe.state import GROUPS, HIDDEN, LOTS, PREDICTED, SPREADS, STEP_PLACE
from streamshed.kernels.compiling import kernel


@kernel
def take_in_hand(loss):  # type: ignore[no-untyped-def]
    """Begin with a row, of which nothing is known."""
    hand = loss.hand[0]
    hand.top = 1
    hand.first = 0.0
    hand.seen = 0.0
    hand.slack = 0.0
    hand.believed = 0.0
    loss.known[0] = 0.0


@kernel
def spread_by(loss, what, group, more):  # type: ignore[no-untyped-def]
    """Let the sum of a group of keys spread by so much more."""
    loss.spread[what * GROUPS + group] += more
    loss.step_spread[(loss.numbers[STEP_PLACE] * SPREADS + what) * GROUPS + group] += more


@kernel
def credit(loss, made):  # type: ignore[no-untyped-def]
    """Let the tallies know how many results the row at hand has made."""
    hand = loss.hand[0]
    least = made - min(hand.slack, max(0.0, made - hand.first))
    exact, spread, before, weight, more = 0.0, 0.0, 0.0, 1.0, 0.0
    for level in range(hand.top):
        more = max(0.0, least - loss.known[level])
        exact += weight * (more - before)
        spread += weight * (more - before) * np.sqrt(1.0 - 1.0 / weight)
        before = more
        weight *= 2.0
    last = loss.known[hand.top - 1]
    # What the sketch alone predicts is less by what was made of it.
    unseen = more - max(0.0, least - hand.seen)
    certain = max(0.0, least - hand.first)
    seen = max(0.0, least - hand.seen)
    _change(loss.total, 0, exact, certain, seen, unseen)
    _change(loss.steps, loss.numbers[STEP_PLACE], exact, certain, seen, unseen)
    if spread != 0:
        spread_by(loss, LOTS, hand.group, spread)
    if unseen != 0:
        spread_by(loss, PREDICTED, hand.group, unseen)
    believed = min(hand.believed, made - last)
    if believed > 0:
        _disbelieve(loss, believed)


@kernel
def _change(tallies, place, exact, certain, seen, unseen):  # type: ignore[no-untyped-def]
    tallies[place].exact += exact
    tallies[place].certain += certain
    tallies[place].seen += seen
    tallies[place].unseen += unseen


@kernel
def _disbelieve(loss, believed):  # type: ignore[no-untyped-def]
    """Take back what may have been hidden, as far as it was made."""
    hand, place = loss.hand[0], loss.numbers[STEP_PLACE]
    loss.total[0].hidden -= hand.weight * believed
    loss.steps[place].hidden -= hand.weight * believed
    spread_by(loss, HIDDEN, hand.group, -hand.doubt * believed)
