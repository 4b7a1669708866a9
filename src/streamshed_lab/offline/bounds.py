"""The most results that any policy could make, had it known what would come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamshed.errors import SpecError
from streamshed.join import Join
from streamshed.replay import Order
from streamshed_lab.offline.prices import priced
from streamshed_lab.offline.program import MOST_LISTED, Program, make_program
from streamshed_lab.offline.schedule import results_of, schedule
from streamshed_lab.offline.solver import Solved, entries, relaxed, whole
from streamshed_lab.offline.trace import read, uses_of

LARGE = 150_000
"""Entries of the program's matrices beyond which prices are sought step by step."""


@dataclass(frozen=True)
class Bound:
    """How many results can be made under a budget.

    Attributes:
        results: no way of shedding makes more.
        reached: a way of shedding was found that makes so many; the optimum is not below.
        unlimited: the results without a budget; where rows come out of order perhaps some too many.
        seconds: that it took.
    """

    results: int
    reached: int
    unlimited: int
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether the optimum is known: the bound is reached."""
        return self.results == self.reached

    def share(self, results: int) -> float:
        """The part of the bound that a run made; of the optimum it made at least this part.

        Examples:
            >>> Bound(results=200, reached=190, unlimited=500, seconds=0.1).share(150)
            0.75
        """
        return results / self.results if self.results else 1.0


def most_results(
    join: Join,
    data: Mapping[str, Any],
    *,
    order: Order = "time",
    exact: bool = False,
    seconds: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Bound:
    """Bound the results that any policy can make of these inputs under the join's budget.

    A policy decides after each arrival what to keep; what is shed never comes back, and a newcomer
    takes part in results before it is stored or refused. All that is taken as docs/meaning.md says,
    but for one liberty: rows outside the window by the newest time may stay when room is needed,
    which matters only where rows come out of order.

    Args:
        join: a complete join; its policy does not matter.
        data: the input of each stream, as `Join.replay` takes them.
        order: the order of the rows, as `Join.replay` takes it.
        exact: seek the optimum itself by integer programming. This is for small inputs: how long
            it takes cannot be foreseen.
        seconds: how long a solver may take; the bound is then what is known by then, or what
            prices say that are sought for as long again.
        progress: is told, line by line, what is being done.

    Raises:
        SpecError: for partial joins, and for more results than `exact` can look at.

    Examples:
        Either row of `a` is used once, but only one can be kept at a time:

        >>> import pyarrow as pa
        >>> from streamshed import join
        >>> a = pa.table({"k": [1, 2], "ts": [0, 1]})
        >>> b = pa.table({"k": [1, 2], "ts": [2, 3]})
        >>> joined = join("a", "b").on("k").within(9, time="ts").keep(rows=1)
        >>> bound = most_results(joined, {"a": a, "b": b})
        >>> bound.results, bound.exact, bound.unlimited
        (1, True, 2)
    """
    started = time.monotonic()
    say = progress or (lambda line: None)
    trace = read(join, data, order)
    program = make_program(trace, uses_of(trace))
    groups = program.needs.size
    say(
        f"{trace.time.size:,} rows, of {program.uses.row.size:,} uses in {groups.size:,} groups of"
        f" results; {program.room.size:,} moments at which the budget may bind"
    )
    unlimited = int(groups.sum() if program.single else program.uses.combinations().sum())
    if exact and not program.single:
        raise SpecError(
            f"exact=True looks at every result, but without a budget there are {unlimited:,}, more"
            f" than {MOST_LISTED:,}; leave it out for an upper bound, or give fewer rows"
        )
    most, parts = solved(program, exact, seconds)
    say(f"at most {most:,.1f} results; looking for a way to make them")
    reached = results_of(trace, program, schedule(trace, program, parts))
    # Results are whole; a sum of many may be off in its last digits.
    results = max(math.floor(most * (1 + 1e-9) + 1e-6), reached)
    return Bound(results, reached, unlimited, time.monotonic() - started)


def solved(program: Program, exact: bool, seconds: float | None) -> Solved:
    """Solve a program by whatever way suits its size.

    Args:
        program: what to solve.
        exact: in whole numbers.
        seconds: how long a solver may take.
    """
    if not (program.room.size and program.needs.size.size):
        return Solved(float(program.needs.size.sum()), np.ones(program.needs.size.size))
    if exact:
        return whole(program, seconds)
    found = relaxed(program, seconds) if entries(program) <= LARGE else None
    return found or priced(program, seconds)
