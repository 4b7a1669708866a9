"""The choice of what to keep, as a linear program.

**Variables**, all between 0 and 1. For each use of a row: whether the row is kept at least until
then (so a later use is at most an earlier one). For each group of results: which part of it is
made. A group is a single result, or all that one arrival completes.

**Constraints.** A single result is made only if each of its members is kept until it is completed.
For all results of an arrival, and for each stream, the sum of that over the results says: as every
result has one member in the stream, they are at most the sum, over the stream's rows, of the
results that a row can stand in, each counted as far as the row is kept. An arrival can stand with
at most as many rows of a stream as the stream may hold, so that no more are counted. After each
arrival, the rows kept for a use that is still to come are at most the budget.

Every way of shedding satisfies these with 0 and 1, and its results are at most the sum over the
groups of their size times the part made: so the largest such sum over all solutions, whole or not,
is an upper bound. Where all results are single, the solutions in whole numbers are exactly the ways
of shedding, and the largest sum over these is the optimum.

A budget need not be stated after every arrival. Between two moments at which rows may go, the last
is the fullest; and moments with no more useful rows than the budget cannot bind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from streamshed_lab.offline.trace import Floats, Ints, Trace, Uses, listed_results

MOST_LISTED = 30_000
"""Results that are looked at one by one; beyond that the busiest arrivals are taken whole."""


class Needs(NamedTuple):
    """What groups of results need: for each stream but the arrival's own, some of its rows."""

    size: Floats
    """Of each group: its results, or what they are worth."""
    group: Ints
    """Of each need: the group."""
    stream: Ints
    """Of each need: the stream."""
    use: Ints
    """Of each need: the use of a row; a group has several in a stream if it has several results."""
    part: Floats
    """Of each need: the part of the group that this row can stand in."""


@dataclass(frozen=True)
class Program:
    """Choose for each use whether the row is kept until then, and for each group the part made."""

    uses: Uses
    needs: Needs
    listed: int
    """How many of the groups, the first ones, are single results."""
    room: Floats
    """The budget at each moment that matters, pool by pool."""
    first: Ints
    """For each use the first moment from the use before it, or from the row's arrival."""
    past: Ints
    """For each use the first moment that it has behind it."""
    asks: Any
    """A matrix: for each group and stream the part that can be made with the rows kept."""
    asker: Ints
    """The group of each row of this matrix."""

    @property
    def single(self) -> bool:
        """Whether all results are single, so that whole numbers give the optimum."""
        return self.listed == self.needs.size.size

    def again(self) -> Ints:
        """The uses whose row has a use before."""
        row = self.uses.row
        places: Ints = np.flatnonzero(row[1:] == row[:-1]) + 1
        return places


def make_program(trace: Trace, uses: Uses) -> Program:
    """State the choice of what to keep."""
    combinations = uses.combinations()
    fewest = np.argsort(combinations, kind="stable")
    listed = np.zeros(combinations.size, np.bool_)
    listed[fewest[np.cumsum(combinations[fewest]) <= MOST_LISTED]] = True
    single = _single(trace, uses, listed)
    whole = _whole(trace, uses, ~listed)
    needs = Needs._make(np.concatenate(pair) for pair in zip(single, whole, strict=True))
    needs.group[single.group.size :] += single.size.size
    return stated(trace, uses, needs, single.size.size)


def stated(trace: Trace, uses: Uses, needs: Needs, listed: int) -> Program:
    """State the choice, once it is known what groups of results need.

    Args:
        trace: the rows.
        uses: of the rows.
        needs: of the groups.
        listed: how many of the groups, the first ones, are single results.
    """
    streams = len(trace.lasts)
    told, which = np.unique(needs.group * streams + needs.stream, return_inverse=True)
    asks = (needs.part, (which, needs.use))
    room, first, past = _moments(trace, uses)
    return Program(
        uses=uses,
        needs=needs,
        listed=listed,
        room=room,
        first=first,
        past=past,
        asks=scipy.sparse.coo_array(asks, shape=(told.size, uses.row.size)).tocsr(),
        asker=told // streams,
    )


def _single(trace: Trace, uses: Uses, arrivals: npt.NDArray[np.bool_]) -> Needs:
    """The results of some arrivals, one by one."""
    members = listed_results(trace, uses, arrivals)
    result, stream = np.nonzero(members >= 0)
    use = members[result, stream]
    return Needs(np.ones(len(members)), result, stream, use, np.ones(result.size))


def _whole(trace: Trace, uses: Uses, arrivals: npt.NDArray[np.bool_]) -> Needs:
    """The results of some arrivals, all of an arrival together."""
    held = [trace.time.size if budget is None else budget for budget in trace.budgets]
    most = np.array(held if len(held) > 1 else held * len(trace.lasts))
    counted = np.minimum(uses.candidates, most)
    chosen = np.flatnonzero(arrivals)
    group = np.zeros(arrivals.size, np.int64)
    group[chosen] = np.arange(chosen.size)
    use = np.flatnonzero(arrivals[uses.arrival])
    arrival, stream = uses.arrival[use], trace.stream[uses.row[use]]
    size = np.prod(counted[chosen], axis=1, dtype=np.float64)
    return Needs(size, group[arrival], stream, use, 1.0 / counted[arrival, stream])


def _moments(trace: Trace, uses: Uses) -> tuple[Floats, Ints, Ints]:
    """The moments at which a budget may bind, and for each use those from the use before."""
    begin = uses.row.copy()
    again = np.flatnonzero(uses.row[1:] == uses.row[:-1]) + 1
    begin[again] = uses.arrival[again - 1]
    first, past = np.zeros_like(begin), np.zeros_like(begin)
    room = np.empty(0)
    for pool, budget in enumerate(trace.budgets):
        mine = np.flatnonzero(trace.pool[uses.row] == pool)
        if budget is None or not mine.size:
            continue
        # A row may be wanted until after the last arrival.
        fullest = _fullest(begin[mine], uses.arrival[mine], trace.time.size + 1, budget)
        first[mine] = room.size + np.searchsorted(fullest, begin[mine])
        past[mine] = room.size + np.searchsorted(fullest, uses.arrival[mine])
        room = np.concatenate([room, np.full(fullest.size, float(budget))])
    return room, first, past


def _fullest(begin: Ints, end: Ints, arrivals: int, budget: int) -> Ints:
    """The arrivals after which a pool may be fuller than its budget, and fuller than around them.

    What is held becomes less only at an end. So the fullest moments are those before an end with a
    begin since the end before.
    """
    begins = np.bincount(begin, minlength=arrivals)
    held = np.cumsum(begins - np.bincount(end, minlength=arrivals))
    ends = np.unique(end)
    begun = np.concatenate([[0], np.cumsum(begins)])
    since = np.concatenate([[0], begun[ends[:-1]]])
    peaks = ends[begun[ends] > since] - 1
    fullest: Ints = peaks[held[peaks] > budget]
    return fullest
