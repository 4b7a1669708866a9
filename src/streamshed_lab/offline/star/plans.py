"""Ways of shedding: who is kept until when, what that makes, and how close it is to the optimum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamshed.errors import SpecError
from streamshed_lab.offline.star.reading import Star
from streamshed_lab.offline.trace import Ints


@dataclass(frozen=True)
class Budget:
    """How many tuples may be held: each stream so many, or both together.

    The paper's memory M is `Budget(rows=M // 2)`.

    Examples:
        >>> Budget(rows=2).places
        (2, 2)
        >>> Budget(total=4).places
        (4,)
    """

    rows: int | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no budget."""
        said = [value for value in (self.rows, self.total) if value is not None]
        if len(said) != 1 or said[0] < 0:
            raise SpecError(
                f"a budget is rows= or total=, a number from 0; got rows={self.rows!r},"
                f" total={self.total!r}"
            )

    @property
    def places(self) -> tuple[int, ...]:
        """The places of each pool: a pool for each stream, or one for both."""
        if self.total is not None:
            return (self.total,)
        return (self.rows or 0,) * 2

    def pools(self, star: Star) -> Ints:
        """The pool of each tuple."""
        return star.stream if self.total is None else np.zeros_like(star.stream)


@dataclass(frozen=True)
class Plan:
    """A way of shedding.

    Attributes:
        star: what was to decide.
        budget: that it keeps to.
        results: that it makes.
        importance: of these results.
        until: for each tuple the arrival until which it is kept, its own if it is not stored.
        states: memory states that were looked at; 0 where none were.
        optimal: whether no way of shedding is better.
    """

    star: Star = field(repr=False)
    budget: Budget
    results: int
    importance: float
    until: Ints = field(repr=False)
    states: int
    optimal: bool

    @classmethod
    def made(cls, star: Star, budget: Budget, until: Ints, states: int, optimal: bool) -> Plan:
        """A plan, with what it makes."""
        total = star.made(until)
        return cls(star, budget, total.results, total.importance, until, states, optimal)

    def held(self) -> Iterator[tuple[int, Ints]]:
        """For each time what is held at its end: the arrival numbers of the tuples."""
        times = np.unique(self.star.time)
        ends = np.searchsorted(self.star.time, times, side="right")
        stored = np.flatnonzero(self.until > np.arange(self.until.size))
        leaves = self.until[stored]
        live: list[int] = []
        place = 0
        for time, end in zip(times.tolist(), ends.tolist(), strict=True):
            while place < stored.size and stored[place] < end:
                live.append(place)
                place += 1
            live = [known for known in live if leaves[known] >= end]
            yield time, stored[live]

    def memory(self) -> pa.Table:
        """The memory states of the path (algorithm 3.3): for each time who is held at its end.

        Returns:
            `time`, and for each stream, by its name, the times of the tuples held.
        """
        star = self.star
        columns: dict[str, list[object]] = {"time": [], star.names[0]: [], star.names[1]: []}
        for time, held in self.held():
            columns["time"].append(time)
            for position, name in enumerate(star.names):
                columns[name].append(star.time[held[star.stream[held] == position]].tolist())
        return pa.table(columns)

    def path(self) -> str:
        """The same as text, below a line that says what the plan makes."""
        one, other = self.star.names
        lines = [f"{self.results:,} results, importance {self.importance:,g}"]
        for row in self.memory().to_pylist():
            parts = (
                f"{name} {{{', '.join(map(str, row[name]))}}}".ljust(24) for name in (one, other)
            )
            lines.append(f"time {row['time']:>6}  {'  '.join(parts)}".rstrip())
        return "\n".join(lines)
