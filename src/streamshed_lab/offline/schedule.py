"""A way of shedding near the optimum: it shows how much of an upper bound can be had."""

from __future__ import annotations

import numpy as np

from streamshed_lab.offline.program import Program
from streamshed_lab.offline.trace import Floats, Ints, Trace


def schedule(trace: Trace, program: Program, parts: Floats) -> Ints:
    """Decide for each row how long it is kept, by a solution of the program that is not whole.

    The groups of which the solution makes the largest part are served first, among equals those
    that take the least memory for a result. The rows of a group are kept where there is room; a
    single result that cannot have all of them takes none.

    Args:
        trace: the rows.
        program: what is to be decided.
        parts: the part made of each group.

    Returns:
        For each row the arrival until which it is kept; its own if it is not stored.
    """
    uses, needs = program.uses, program.needs
    until = np.arange(trace.time.size)
    free = [
        np.full(trace.time.size, trace.time.size if budget is None else budget, np.int64)
        for budget in trace.budgets
    ]
    memory = np.bincount(
        needs.group, (uses.arrival - uses.row)[needs.use], minlength=needs.size.size
    )
    by_group = np.argsort(needs.group, kind="stable")
    ends = np.cumsum(np.bincount(needs.group, minlength=needs.size.size))
    for group in np.lexsort((memory / needs.size, -np.round(parts, 6))).tolist():
        asked = needs.use[by_group[ends[group - 1] if group else 0 : ends[group]]]
        arrival = int(uses.arrival[asked[0]])
        granted = []
        for row in uses.row[asked].tolist():
            begin = int(until[row])
            room = free[trace.pool[row]][begin:arrival]
            if room.size and room.min() > 0:
                room -= 1
                until[row] = arrival
                granted.append((row, begin))
            elif room.size and group < program.listed:
                for taken, before in granted:
                    free[trace.pool[taken]][before:arrival] += 1
                    until[taken] = before
                break
    return until


def results_of(trace: Trace, program: Program, until: Ints) -> int:
    """Count the results of a schedule.

    Where rows come out of order, only the results that are listed can be told apart from
    combinations that are none: the others are not counted.
    """
    uses, needs = program.uses, program.needs
    kept = until[uses.row] >= uses.arrival
    if program.single or not trace.ordered:
        lost = np.bincount(needs.group, ~kept[needs.use], minlength=needs.size.size)
        return int(np.sum(lost[: program.listed] == 0))
    rows, streams = uses.candidates.shape
    meeting = uses.arrival[kept] * streams + trace.stream[uses.row[kept]]
    met = np.bincount(meeting, minlength=rows * streams).reshape(rows, streams)
    met[np.arange(rows), trace.stream] = 1
    return int(np.prod(met, axis=1, dtype=np.float64).sum())
