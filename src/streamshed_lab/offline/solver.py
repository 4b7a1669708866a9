"""The program handed to SciPy's solver HiGHS, as it is or in whole numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse

from streamshed_lab.offline.program import Program
from streamshed_lab.offline.trace import Floats, Ints


class Solved(NamedTuple):
    """An upper bound, and which part of each group a solution near it makes."""

    most: float
    parts: Floats


class _Matrices(NamedTuple):
    """Maximise worth·v with 0 ≤ v ≤ most, below·v ≤ 0 and equal·v = 0.

    The first variables are the groups, then come the uses, then how full the pools are.
    """

    worth: Floats
    most: Floats
    below: Any
    equal: Any

    def bound(self, below: Floats, equal: Floats) -> float:
        """An upper bound from prices of the constraints, valid whatever the prices are.

        A solution has worth·v ≤ (worth − below'·p − equal'·q)·v for all prices p ≥ 0 and q, and the
        right side is at most the sum of what is positive in the brackets, times `most`. So the
        solver's tolerances do not matter: it only proposes the prices.
        """
        rest = self.worth - self.below.T @ np.maximum(below, 0.0) - self.equal.T @ equal
        return float(np.maximum(rest, 0.0) @ self.most)


def entries(program: Program) -> int:
    """How large the program is, for the choice between ways to solve it."""
    return int(2 * program.uses.row.size + program.asks.nnz + 2 * program.room.size)


def relaxed(program: Program, seconds: float | None) -> Solved | None:
    """Solve the program as it is.

    Args:
        program: what to solve.
        seconds: after which to give up.
    """
    matrices = _matrices(program)
    scale = float(program.needs.size.max())
    found = scipy.optimize.linprog(
        -matrices.worth / scale,
        A_ub=matrices.below,
        b_ub=np.zeros(matrices.below.shape[0]),
        A_eq=matrices.equal,
        b_eq=np.zeros(matrices.equal.shape[0]),
        bounds=np.stack([np.zeros_like(matrices.most), matrices.most], axis=1),
        method="highs-ipm",
        options={"time_limit": seconds},
    )
    if found.x is None:
        return None
    prices = found.ineqlin.marginals, found.eqlin.marginals
    most = matrices.bound(*(-scale * price for price in prices))
    return Solved(most, found.x[: program.needs.size.size])


def whole(program: Program, seconds: float | None) -> Solved:
    """Solve the program in whole numbers.

    Args:
        program: what to solve; its results must all be single.
        seconds: after which to stop; the bound is then what is known by then.
    """
    column = _columns(program)
    variables = _variables(program, column)
    lasting = program.past - program.first
    use = np.repeat(np.arange(lasting.size), lasting)
    moment = np.arange(use.size) - np.repeat(np.cumsum(lasting) - lasting - program.first, lasting)
    # Stated moment by moment: what the solver makes of whole numbers needs the sums themselves.
    held = _matrix([(moment, column[use], 1.0)], (program.room.size, variables))
    worth = np.zeros(variables)
    worth[: program.needs.size.size] = -1.0
    found = scipy.optimize.milp(
        worth,
        integrality=np.ones(variables),
        bounds=scipy.optimize.Bounds(0, 1),
        constraints=[
            scipy.optimize.LinearConstraint(_orders(program, column, variables), -np.inf, 0),
            scipy.optimize.LinearConstraint(held, -np.inf, program.room),
        ],
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    groups = program.needs.size
    most = np.inf if found.mip_dual_bound is None else -found.mip_dual_bound
    parts = np.zeros(groups.size) if found.x is None else found.x[: groups.size]
    return Solved(min(most, float(groups.sum())), parts)


def _columns(program: Program) -> Ints:
    """The variable of each use.

    A row kept until a use for one single result, and for nothing later, is kept as far as the
    result is made: such a use needs no variable of its own. Where keys are unique, none does.
    """
    needs = program.needs
    alone = np.bincount(needs.use, minlength=program.uses.row.size) == 1
    alone[program.again() - 1] = False
    asked = np.flatnonzero(alone[needs.use] & (needs.group < program.listed))
    column = np.full(program.uses.row.size, -1, np.int64)
    column[needs.use[asked]] = needs.group[asked]
    own = column < 0
    column[own] = needs.size.size + np.arange(own.sum())
    return column


def _variables(program: Program, column: Ints) -> int:
    return max(program.needs.size.size, int(column.max()) + 1)


def _orders(program: Program, column: Ints, wide: int) -> Any:
    """What must not be above 0: a use over the one before, a group over what its rows allow."""
    later = program.again()
    nested = np.arange(later.size)
    asks = program.asks.tocoo()
    asked = later.size + np.arange(program.asker.size)
    return _matrix(
        [
            (nested, column[later], 1.0),
            (nested, column[later - 1], -1.0),
            (asked, program.asker, 1.0),
            (later.size + asks.row, column[asks.col], -asks.data),
        ],
        (later.size + asked.size, wide),
    )


def _matrices(program: Program) -> _Matrices:
    column = _columns(program)
    variables = _variables(program, column)
    moment = np.arange(program.room.size)
    wide = variables + moment.size
    lasts = np.flatnonzero(program.first < program.past)
    stops = lasts[program.past[lasts] < moment.size]
    # How full a pool is, as a change from moment to moment: a use then stands in two equations,
    # not in one for every moment that it lasts.
    filling = _matrix(
        [
            (program.first[lasts], column[lasts], 1.0),
            (program.past[stops], column[stops], -1.0),
            (moment, variables + moment, -1.0),
            (moment[1:], variables + moment[:-1], 1.0),
        ],
        (moment.size, wide),
    )
    return _Matrices(
        worth=np.concatenate([program.needs.size, np.zeros(wide - program.needs.size.size)]),
        most=np.concatenate([np.ones(variables), program.room]),
        below=_orders(program, column, wide),
        equal=filling,
    )


def _matrix(entries: list[tuple[Ints, Ints, Any]], shape: tuple[int, int]) -> Any:
    """A sparse matrix of (rows, columns, value or values); what falls together is added up."""
    rows, columns, values = zip(*entries, strict=True)
    filled = [np.broadcast_to(v, r.shape) for v, r in zip(values, rows, strict=True)]
    data = (np.concatenate(filled), (np.concatenate(rows), np.concatenate(columns)))
    return scipy.sparse.coo_array(data, shape=shape).tocsr()
