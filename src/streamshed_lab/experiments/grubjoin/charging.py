"""What a join is charged for: comparisons alone, or results and adaptation too.

The paper measures the output of a machine, whose time goes into comparisons, into making results,
and into setting harvest fractions. Here a machine is one that keeps up with the full, nonaligned
join of three streams at 100 rows a second, and no more:

* A *comparison* is one evaluation of a condition in nested loops.
* A *result* costs so many comparisons as one does here, where all rows of a window are visited
  (`where`) and results are made in full: the time of a join with results less that of a join with
  as many comparisons and none.
* An *adaptation* takes the time of figure 8: 10 ms for m = 5 and n = 20, and otherwise by its
  complexity, n · m⁴. (Ours takes a hundredth of that; a comparison takes still less of the
  paper's.) RandomDrop, whose rates are fixed, does not adapt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed_lab.experiments.grubjoin.pacing import EPSILON, WINDOW, Span, watched
from streamshed_lab.experiments.timing import least_times
from streamshed_lab.workloads import LaggingWorkload
from streamshed_lab.workloads.arrivals import SECOND, timestamps

PAPERS_ADAPTATION = 0.010
"""Seconds that an adaptation takes for 5 streams and 20 basic windows (figure 8)."""
ROUNDS = 2
"""Times that a run is repeated until what it is charged for agrees with what it makes."""
AGAIN = 10
"""Times that a condition is evaluated where it is measured what evaluating it takes."""
LEAST = 0.02
"""The part of all work that is left for comparisons, whatever results cost."""


class Charge(NamedTuple):
    """What is charged besides comparisons."""

    result: float = 0.0
    """Comparisons that a result costs as much as."""
    adaptation: bool = False


NOTHING = Charge()


def adaptation_seconds(streams: int, parts: float) -> float:
    """The time that one adaptation takes, of a second in which a machine does all it can.

    Examples:
        >>> adaptation_seconds(5, 20), round(adaptation_seconds(3, 10), 5)
        (0.01, 0.00065)
    """
    return PAPERS_ADAPTATION * (parts / 20) * (streams / 5) ** 4


def at_charge(
    run: Callable[[float], Span], work: float, length: float, charge: Charge, lost: float = 0.0
) -> Span:
    """What a join does that is given so much work, where results are charged.

    Args:
        run: the join, given comparisons that it may make in a second.
        work: in a second, in comparisons.
        length: of the run, in seconds.
        charge: what is charged.
        lost: the part of the time in which it adapts.
    """
    allowed = work * (1.0 - lost)
    span = run(allowed)
    comparisons = allowed
    for _ in range(ROUNDS if charge.result else 0):
        # The geometric mean: fewer comparisons make fewer results, which leaves more comparisons.
        left = max(LEAST * allowed, allowed - charge.result * span.results / length)
        comparisons = float(np.sqrt(comparisons * left))
        span = run(comparisons)
    return span


# -- what a result costs here ---------------------------------------------------------------------


def repeated(a: Any, b: Any) -> Any:
    """The ε-condition, evaluated as often as the rows say."""
    met, value = True, a.value
    nothing = b.value - b.value  # 0, which no compiler may know: else it evaluates once
    for _ in range(a.times):
        met = met & (abs(value - b.value) <= EPSILON)
        value += nothing
    return met


SIZE = 4_000
"""Rows of each of the two streams by which costs are measured; half of them fill a window."""
APART = 0.9 * EPSILON
"""Values that are so far apart agree; those that are twice as far do not."""


def cost_tables(meeting: float, times: int) -> dict[str, pa.Table]:
    """Three streams whose join is all comparisons, or results as well.

    The only row of `c` agrees with all others. So a newcomer of `a` or `b` has one choice, which is
    compared with all rows of the other window, by one evaluation each: a part `meeting` agrees.

    Args:
        meeting: the part of the rows of `b` that agree with those of `a`.
        times: how often a condition is evaluated.
    """
    random = np.random.default_rng(3)
    values = {
        "a": np.zeros(SIZE),
        "b": np.where(random.random(SIZE) < meeting, 0.0, 2 * APART),
        "c": np.full(1, APART),
    }
    seconds = {name: np.linspace(0, 2 * WINDOW, rows.size) for name, rows in values.items()}
    seconds["c"][0] = WINDOW
    return {
        name: pa.table(
            {
                "value": rows,
                "time": timestamps((seconds[name] * SECOND).astype(np.int64)),
                "times": np.full(rows.size, times),
            }
        )
        for name, rows in values.items()
    }


@cache
def measured_costs(rounds: int = 4) -> Mapping[str, float]:
    """Seconds that a comparison, its condition once more, and a result take, in nested loops.

    Each is the difference of two joins that differ in this alone, of which the least time of some
    rounds in turn counts.
    """
    seen, short = f"{WINDOW:g} seconds", "1 ms"
    plain = cost_tables(0.0, 1)
    joins: dict[str, tuple[Mapping[str, pa.Table], str]] = {
        "rows": (plain, short),
        "compared": (plain, seen),
        "again": (cost_tables(0.0, AGAIN), seen),
        "results": (cost_tables(0.1, 1), seen),
    }
    ledgers: dict[str, ss.Ledger] = {}

    def joined(name: str) -> None:
        tables, window = joins[name]
        join = ss.join(*tables).on(ss.where(repeated, "value", "times"))
        join = join.within(window, time="time", clock="max")
        ledgers[name] = join.replay(tables).ledger

    joined("compared")  # which compiles it
    spent = least_times(rounds, {name: partial(joined, name) for name in joins})
    made = {name: float(ledger.comparisons or 0) for name, ledger in ledgers.items()}
    comparison = (spent["compared"] - spent["rows"]) / (made["compared"] - made["rows"])
    more = comparison * (made["results"] - made["compared"])  # which is little
    result = (spent["results"] - spent["compared"] - more) / ledgers["results"].results
    return {
        "comparison": comparison,
        "again": max(0.0, spent["again"] - spent["compared"]) / ((AGAIN - 1) * made["again"]),
        "result": max(0.0, result),
    }


def result_charge() -> Charge:
    """All that is charged, with results at what they cost here."""
    costs = measured_costs()
    return Charge(costs["result"] / costs["comparison"], adaptation=True)


def repeated_cost(times: int) -> float:
    """How many times as long a comparison takes with its condition evaluated so many times."""
    costs = measured_costs()
    return 1.0 + (times - 1) * costs["again"] / costs["comparison"]


def charged_load(work: LaggingWorkload, charge: Charge, join: ss.Join) -> float:
    """The work of the full join in a second, once its windows are full."""
    (span,) = watched(join, work.tables(), [WINDOW, work.seconds])
    return (span.comparisons + charge.result * span.results) / (work.seconds - WINDOW)
