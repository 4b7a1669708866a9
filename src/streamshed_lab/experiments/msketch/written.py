"""BJoin step by step, as the sequence (R1 ⋈ R2) ⋈ R3 of binary joins that it stands for.

A row is worth as many partners as its value had in the last tumbling window of what it is joined
with. For R3 that is the result of R1 ⋈ R2, not R2 alone: a value of R2 counts as often as it was
joined with a row of R1. The policy `pairwise` counts the rows of R2 (`third="R2"`, where this is
the same); to count results of a part of the join is no policy's business there. As there, what a
row promises is found when it comes, and anew when a tumbling window begins; so in the first one,
where counts grow from row to row, rows stand by what was known when they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Third = Literal["R2", "R1 ⋈ R2"]
Ints = npt.NDArray[np.int64]
FIRST, SECOND, THIRD = range(3)


class Tumbling:
    """How often values came, in the tumbling window at hand and in the last one.

    Args:
        values: how many there are.
    """

    def __init__(self, values: int) -> None:
        self.current: Ints = np.zeros(values, np.int64)
        self.last: Ints | None = None

    def tumble(self) -> None:
        """Begin a new window."""
        self.last, self.current = self.current, np.zeros_like(self.current)

    def known(self) -> Ints:
        """By value, how often it came: to the last window, or to the first as far as it went."""
        return self.current if self.last is None else self.last


class Window:
    """The rows of a relation that are held, in the order of their arrival.

    Of each its joined value and the other one, its time, and how many partners it promised.
    """

    def __init__(self) -> None:
        self.one: Ints = np.empty(0, np.int64)
        self.two: Ints = np.empty(0, np.int64)
        self.time: Ints = np.empty(0, np.int64)
        self.promised: Ints = np.empty(0, np.int64)

    def keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Keep some rows only."""
        self.one, self.two, self.time = self.one[chosen], self.two[chosen], self.time[chosen]
        self.promised = self.promised[chosen]

    def append(self, one: int, two: int, time: int, promised: int) -> None:
        """Store a row."""
        self.one, self.two = np.append(self.one, one), np.append(self.two, two)
        self.time, self.promised = np.append(self.time, time), np.append(self.promised, promised)


def results_of_bjoin(
    tables: Mapping[str, pa.Table], window: int, rows: int, third: Third, values: int = 1024
) -> int:
    """The results of r1.a1 = r2.a1, r2.a2 = r3.a1 where each window has so many rows.

    Args:
        tables: r1, r2 and r3, of which one row comes in each second.
        window: in seconds.
        rows: that each window may hold.
        third: what the values of R3 are counted in.
        values: of an attribute, numbered from 0.
    """
    held = [Window() for _ in tables]
    came = [Tumbling(values) for _ in tables]  # R1 by a1; R2 by a1; what R3 meets by a2
    results, piece = 0, 0
    for now, relation, one, two in _in_order(tables):
        if now // window != piece:
            piece = now // window
            for counted in came:
                counted.tumble()
            for stored, counted in zip(held, _partners(came), strict=True):
                stored.promised = counted.known()[stored.one]
        for stored in held:
            if stored.time.size and stored.time[0] < now - window:
                stored.keep(stored.time >= now - window)
        results += _arrive(held, came, relation, one, two, third)
        promised = int(_partners(came)[relation].known()[one])
        if _make_room(held[relation], promised, rows):
            held[relation].append(one, two, now, promised)
    return results


def _partners(came: list[Tumbling]) -> list[Tumbling]:
    """By relation, where the partners of its values are counted."""
    return [came[SECOND], came[FIRST], came[THIRD]]


def _in_order(tables: Mapping[str, pa.Table]) -> list[tuple[int, int, int, int]]:
    """Time, relation, the joined value and the other one of all rows."""
    found = []
    for relation, table in enumerate(tables.values()):
        columns = [table[name].to_pylist() for name in ("time", "a1", "a2")]
        found += [(time, relation, a1, a2) for time, a1, a2 in zip(*columns, strict=True)]
    return sorted(found)


def _arrive(
    held: list[Window], came: list[Tumbling], relation: int, one: int, two: int, third: Third
) -> int:
    """Count the results of a newcomer, and its values for those that are joined with it."""
    first, second, last = held
    if relation == THIRD:
        met = second.one[second.two == one]
        return int((met[:, None] == first.one).sum())
    came[relation].current[one] += 1
    if relation == FIRST:
        met = second.two[second.one == one]
        if third == "R1 ⋈ R2":
            np.add.at(came[THIRD].current, met, 1)
        return int((met[:, None] == last.one).sum())
    partners = int((first.one == one).sum())
    came[THIRD].current[two] += partners if third == "R1 ⋈ R2" else 1
    return partners * int((last.one == two).sum())


def _make_room(own: Window, promised: int, rows: int) -> bool:
    """Whether there is room for a newcomer: the row with the fewest partners leaves, or it does."""
    if own.one.size < rows:
        return True
    lowest = int(np.argmin(own.promised))  # of equals the one that came first
    if promised < own.promised[lowest]:
        return False
    own.keep(np.arange(own.one.size) != lowest)
    return True
