"""What a join is charged for: comparisons alone, or results and adaptation too.

The paper measures the output of a machine, whose time goes into comparisons, into making results,
and into setting harvest fractions. Here a machine is one that keeps up with the full, nonaligned
join of three streams at 100 tuples a second, and no more:

* A *comparison* is one evaluation of a condition in nested loops.
* A *result* costs so many comparisons as one does here, where all rows of a window are visited
  (`where`) and results are made in full: found by least squares over some joins.
* An *adaptation* takes the time of figure 8: 10 ms for m = 5 and n = 20, and otherwise by its
  complexity, n · m⁴. (Ours takes a hundredth of that; a comparison takes still less of the
  paper's.) RandomDrop, whose rates are fixed, does not adapt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed_lab.experiments.grubjoin.pacing import EPSILON, WINDOW, Span, watched
from streamshed_lab.workloads import LaggingWorkload

PAPERS_ADAPTATION = 0.010
"""Seconds that an adaptation takes for 5 streams and 20 basic windows (figure 8)."""
ROUNDS = 2
"""Times that a run is repeated until what it is charged for agrees with what it makes."""
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


@cache
def measured_costs(rounds: int = 3) -> Mapping[str, float]:
    """Seconds that a comparison, its condition, a result and a row take, in nested loops."""
    rows, seconds = [], []
    for lags, rate, times in (
        ((0.0, 0.0, 0.0), 40.0, 1),
        ((0.0, 5.0, 15.0), 60.0, 1),
        ((0.0, 0.0, 0.0), 60.0, 1),
        ((0.0, 0.0, 0.0), 80.0, 1),
        ((0.0, 5.0, 15.0), 60.0, 10),
    ):
        work = LaggingWorkload(lags=lags, rate=rate, seconds=2 * WINDOW, seed=1)
        tables = {
            name: table.append_column("times", pa.array(np.full(table.num_rows, times)))
            for name, table in work.tables().items()
        }
        join = ss.join(*tables).on(ss.where(repeated, "value", "times"))
        join = join.within(f"{WINDOW:g} seconds", time="time", clock="max")
        found = []
        for _ in range(rounds + 1):
            begin = time.process_time()
            ledger = join.replay(tables).ledger
            found.append(time.process_time() - begin)
        comparisons = float(ledger.comparisons or 0)
        came = sum(table.num_rows for table in tables.values())
        rows.append([comparisons, comparisons * (times - 1), ledger.results, came])
        seconds.append(min(found[1:]))
    # Relative errors count: the joins differ in size.
    scaled = np.array(rows) / np.array(seconds)[:, None]
    fit = np.maximum(np.linalg.lstsq(scaled, np.ones(len(seconds)), rcond=None)[0], 0.0)
    return dict(zip(("comparison", "again", "result", "row"), fit.tolist(), strict=True))


def result_charge() -> Charge:
    """All that is charged, with results at what they cost here."""
    costs = measured_costs()
    return Charge(costs["result"] / max(costs["comparison"], 1e-12), adaptation=True)


def repeated_cost(times: int) -> float:
    """How many times as long a comparison takes with its condition evaluated so many times."""
    costs = measured_costs()
    return 1.0 + (times - 1) * costs["again"] / max(costs["comparison"], 1e-12)


def charged_load(work: LaggingWorkload, charge: Charge, join: ss.Join) -> float:
    """The work of the full join in a second, once its windows are full."""
    (span,) = watched(join, work.tables(), [WINDOW, work.seconds])
    return (span.comparisons + charge.result * span.results) / (work.seconds - WINDOW)
