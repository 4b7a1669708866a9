"""The optimum by the memory states that are possible (OSSJ), or by a linear program."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.errors import SpecError, StreamshedError
from streamshed_lab.offline.bounds import solved
from streamshed_lab.offline.program import Needs, stated
from streamshed_lab.offline.schedule import schedule
from streamshed_lab.offline.star.plans import Budget, Plan
from streamshed_lab.offline.star.reading import Filter, Star
from streamshed_lab.offline.star.search_states import MOST_SLOTS, Steps, best_path
from streamshed_lab.offline.trace import Floats, Ints, Trace, Uses

Objective = Literal["importance", "results"]
Ties = Literal["most", "least"]

MOST_STATES = 50_000_000
"""States that are remembered for the way back, 16 bytes each."""


def optimum(
    star: Star,
    budget: Budget,
    *,
    of: Objective = "importance",
    ties: Ties = "most",
    filtered: Filter = "relation",
    beam: int | None = None,
) -> Plan:
    """Find the best way of shedding by dynamic programming over memory states.

    Results with a tuple of one stream that is stored do not depend on what is stored of the other.
    So each stream has a graph of its own, unless they share their memory; and what meets at once
    needs none.

    Args:
        star: what there is to decide.
        budget: how many tuples may be held.
        of: what is to be as large as can be: the importance of the results (OSSJ), or their number
            (the optimum of size, SJA-S).
        ties: among ways that are equally good by number, the most or the least important one is
            taken; by importance always the one with the most results.
        filtered: what is not stored at all, or dropped early, being of no use (`Star.ends`). The
            optimum is the same; there are fewer states.
        beam: keep so many states after each arrival, not all; the plan is then not known to be
            optimal, only to be possible.

    Raises:
        StreamshedError: if there are too many states.

    Examples:
        >>> import pyarrow as pa
        >>> from streamshed_lab.offline.star import read_star
        >>> r = pa.table({"time": [0, 1], "a": [1, 2], "importance": [5.0, 4.0]})
        >>> s = pa.table({"time": [2, 3], "b": [1, 2], "importance": [3.0, 9.0]})
        >>> pairs = pa.table({"a": [1, 2], "b": [1, 2]})
        >>> star = read_star({"r": r, "s": s}, pairs, through={"r": "a", "s": "b"}, lifetime=9)
        >>> print(optimum(star, Budget(rows=1)).path())
        1 results, importance 4
        time      0  r {0}                     s {}
        time      1  r {1}                     s {}
        time      2  r {1}                     s {2}
        time      3  r {1}                     s {2}
    """
    if of not in ("importance", "results") or ties not in ("most", "least"):
        raise SpecError(
            f"of must be 'importance' or 'results', ties 'most' or 'least'; got {of!r}, {ties!r}"
        )
    results = star.results.astype(np.float64)
    sign = 1.0 if ties == "most" else -1.0
    gain, tie = (star.worth, results) if of == "importance" else (results, sign * star.worth)
    until = np.arange(star.time.size)
    pools, ends = budget.pools(star), star.ends(filtered)
    states = 0
    for pool, places in enumerate(budget.places):
        mine = np.flatnonzero((pools == pool) & (ends > until))
        window = _window(star, mine, ends, gain, tie)
        widest = MOST_STATES if beam is None else max(beam, 1)
        path = best_path(window.steps, places, widest, MOST_STATES)
        states += int(path.states)
        if path.held.size < mine.size:
            raise StreamshedError(
                f"more than {MOST_STATES:,} memory states are possible; give beam=, such as"
                " beam=1000, for a plan that may not be the best one, or take near_optimum(), which"
                " does not list them"
            )
        until[mine] = _until(window, path.held, mine, ends)
    return Plan.made(star, budget, until, states, beam is None)


class Near(NamedTuple):
    """What no way of shedding exceeds, and a way that comes near it or reaches it."""

    most: float
    plan: Plan


def near_optimum(
    star: Star, budget: Budget, *, of: Objective = "importance", seconds: float | None = None
) -> Near:
    """Bound the optimum by a linear program, where there are too many memory states to list.

    A use of a tuple takes a place from its arrival until then, and earns what it is worth. With two
    streams nothing else is asked of a result, so that the program is a flow: its best
    value is the optimum, and a solution in whole numbers is among the best.

    Args:
        star: what there is to decide.
        budget: how many tuples may be held.
        of: what is to be as large as can be, as for `optimum`.
        seconds: how long the solver may take; after that the bound is what prices say.
    """
    use = np.flatnonzero(star.worth > 0) if of == "importance" else np.arange(star.row.size)
    trace = Trace(
        stream=star.stream,
        time=star.time,
        key=np.zeros_like(star.stream),  # what is equal is in the relation
        pool=budget.pools(star),
        budgets=list(budget.places),
        windows=np.full(2, star.lifetime - 1),
        lasts=[None, None],
        ordered=True,
    )
    uses = Uses(star.row[use], star.arrival[use], np.empty((0, 2), np.int64))
    each = np.arange(use.size)
    worth = star.worth[use] if of == "importance" else star.results[use].astype(np.float64)
    needs = Needs(worth, each, star.stream[uses.row], each, np.ones(use.size))
    program = stated(trace, uses, needs, use.size)
    most, parts = solved(program, False, seconds)
    plan = Plan.made(star, budget, schedule(trace, program, parts), 0, optimal=False)
    at_once = star.at_once.importance if of == "importance" else star.at_once.results
    reached = plan.importance if of == "importance" else plan.results
    most += at_once
    exact = most - reached <= 1e-9 * most + 1e-6
    return Near(max(most, reached), replace(plan, optimal=exact))


class _Window(NamedTuple):
    """The arrivals of a pool's tuples as steps."""

    steps: Steps
    end: Ints
    """Of each tuple: the step at which it has ended."""


def _window(star: Star, mine: Ints, ends: Ints, gain: Floats, tie: Floats) -> _Window:
    """Lay out the tuples that may be stored in a pool, and what they gain at which step."""
    end = np.searchsorted(mine, ends[mine])
    slot, ended = _slots(end)
    of_pool = np.zeros(star.time.size, np.bool_)
    of_pool[mine] = True
    use = np.flatnonzero(of_pool[star.row])
    # A use finds what is held after the last step before it.
    step = np.searchsorted(mine, star.arrival[use]) - 1
    in_turn = np.argsort(step, kind="stable")
    use = use[in_turn]
    holder = np.searchsorted(mine, star.row[use])
    coming: Floats = np.bincount(holder, gain[use], minlength=mine.size).astype(np.float64)
    starts = np.concatenate([[0], np.cumsum(np.bincount(step, minlength=mine.size))])
    steps = Steps(
        slot=slot,
        ended=ended,
        coming=coming,
        starts=starts,
        holder=slot[holder],
        gain=gain[use],
        tie=tie[use],
    )
    return _Window(steps, end)


def _slots(end: Ints) -> tuple[Ints, npt.NDArray[np.uint64]]:
    """Give each tuple a slot until it ends, and say for each step which slots become free."""
    slot = np.empty(end.size, np.int64)
    ended = np.zeros(end.size, np.uint64)
    free = list(range(MOST_SLOTS))
    leaving: dict[int, list[int]] = {}
    for step, last in enumerate(end.tolist()):
        for left in leaving.pop(step, []):
            free.append(left)
            ended[step] |= np.uint64(1 << left)
        if not free:
            raise StreamshedError(
                f"more than {MOST_SLOTS} tuples are of use at a time, too many to list what memory"
                " may hold; say filtered='future', or take near_optimum(), which does not list it"
            )
        slot[step] = free.pop()
        leaving.setdefault(last, []).append(int(slot[step]))
    return slot, ended


def _until(window: _Window, held: npt.NDArray[np.uint64], mine: Ints, ends: Ints) -> Ints:
    """For each tuple of a pool the arrival until which a path keeps it."""
    until = ends[mine]
    states = held.tolist()
    slots, end = window.steps.slot.tolist(), window.end.tolist()
    for step, slot in enumerate(slots):
        for later in range(step, end[step]):
            if not states[later] >> slot & 1:
                until[step] = mine[later]
                break
    return until
