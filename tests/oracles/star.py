"""Joins through a relation as Towne, Zhu, Zuzarte and Hou (2007) have them, by scanning everything.

Two streams, R and S, with one tuple each at times 0, 1, 2, …; a tuple of time *i* meets those of
the other stream up to time *i* + m − 1 (m is the lifetime) if a row of the relation F has the
values of both and was active, begin ≤ time < end, at both times (condition 6). A result is as
important as the less important of its members. Each stream has a window of M/2 tuples.

Where the paper is silent, this was decided:

* **Duplicates in F.** F has none in the paper (footnote 1). Here each row of F that lets a pair
  through makes a result, and a match, of its own, as in the join that is measured by this.
* **What happens at a time** (`order`). The paper's offline algorithm counts a replaced tuple out
  before the other stream's newcomer meets the window (lines 27 to 29), and lets the two newcomers
  meet without memory. `"together"` does so on line too, so that OSSJ bounds what is made: expire;
  drop what F has no use for; give priorities; let both windows shed; then newcomers meet what is
  left, and each other. `"in turn"` is how an operator goes, one tuple after another, R before S:
  expire; drop; meet what is stored; give priorities; store or shed.
* **The newcomer may be the victim** ("including the new stream tuple"), so a newcomer of the
  lowest priority is refused. It is the youngest, so that of equals the other goes.
* **Pre-filtering** takes no part in a window: who has no active row in F is not stored, even where
  there is room, and who has none left (rule 8) is dropped at the beginning of the time at which
  the last one ended, before any priorities are given.
* **Matches** mn() are counted by condition 6, in the other stream's window as it is when
  priorities are given: together, what is stored of it, not yet shed, and its newcomer unless that
  is filtered; in turn, what is stored. SIMPPROB counts once, when the tuple arrives; DIMPPROB
  whenever it has to choose a victim.
* **DGL** adds or subtracts once for each tuple of the other stream that arrives while the tuple is
  stored, filtered ones included, which is once at each time: together, before windows shed, for
  those stored before; in turn, when the arrival meets them. It "produces an output" if it matches
  this arrival, whether or not it is then shed; mn() counts this arrival along with what is stored.
  A newcomer's first priority is SIMPPROB's; together, what it makes with the other newcomer is in
  that.
* **Ties** of DIMPPROB and DGL by fewest matches go by mn() at the time of the choice; those of
  SIMPPROB by mn() at arrival (they are equal anyway, if priority and importance are).
* **α and β** of DGL have no values in the paper: they are parameters here. Of α = 10, 50, 200 and
  β = 0.2, 0.5, 1, 2, with a lifetime of 50 and importance from 1 to 10, two pairs put DGL first,
  in sum over three seeds, with 50 and with 100 values, M = 10 and 40, in both orders: 200 and 0.5,
  50 and 2. With α = 10 it falls behind SIMPPROB where there are 50 values, whatever β is.
* **RAND-S** pre-filters as the others do, and drops one of the window and the newcomer, each with
  the same probability.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

Order = Literal["together", "in turn"]
POLICIES = ("simp", "simpprob", "dimpprob", "dgl", "rand")
FOREVER = float("inf")


@dataclass(frozen=True, eq=False)
class Tuple:
    """A tuple of stream 0 (R) or 1 (S)."""

    stream: int
    time: int
    value: Any
    importance: float


@dataclass(frozen=True, eq=False)
class Fact:
    """A row of the relation, active at the times begin ≤ t < end; equal ones are two."""

    values: tuple[Any, Any]
    begin: float
    end: float

    def lets(self, one: Tuple) -> bool:
        """Whether it is a valid match of a tuple: the value, at the time of its arrival."""
        value = self.values[one.stream]
        return value is not None and value == one.value and self.begin <= one.time < self.end


@dataclass(frozen=True)
class Data:
    """Streams and a relation."""

    streams: tuple[tuple[Tuple, ...], tuple[Tuple, ...]]
    facts: tuple[Fact, ...]
    lifetime: int

    @cached_property
    def _valid(self) -> dict[Tuple, frozenset[Fact]]:
        by_value: dict[tuple[int, Any], list[Fact]] = {}
        for fact in self.facts:
            for stream, value in enumerate(fact.values):
                by_value.setdefault((stream, value), []).append(fact)
        return {
            one: frozenset(f for f in by_value.get((one.stream, one.value), ()) if f.lets(one))
            for stream in self.streams
            for one in stream
        }

    def valid(self, one: Tuple) -> frozenset[Fact]:
        """The rows of the relation that are valid matches of a tuple."""
        return self._valid[one]

    def useless(self, one: Tuple, time: int) -> bool:
        """Whether rule 8 drops it, or it was pre-filtered."""
        return all(fact.end <= time for fact in self.valid(one))

    def meet(self, one: Tuple, other: Tuple) -> int:
        """How many rows of the relation say condition 6, within the lifetime."""
        assert one.stream != other.stream
        if abs(one.time - other.time) >= self.lifetime:
            return 0
        return len(self.valid(one) & self.valid(other))

    def made(self, pairs: Iterable[tuple[Tuple, Tuple]]) -> list[tuple[Tuple, Tuple]]:
        """The results of some pairs: each as often as there are rows of the relation for it."""
        return [pair for pair in pairs for _ in range(self.meet(*pair))]

    def results(self) -> list[tuple[Tuple, Tuple]]:
        """The exact result."""
        r, s = self.streams
        return self.made((one, other) for one in r for other in s)


def importance(results: Sequence[tuple[Tuple, Tuple]]) -> float:
    """Of some results: the sum of the smaller importance of each."""
    return sum(min(one.importance, other.importance) for one, other in results)


def read(
    tables: dict[str, pa.Table], relation: pa.Table, through: dict[str, str], lifetime: int
) -> Data:
    """Take tables with `time` and `importance`, and a relation with `begin` and `end`."""
    streams = []
    for number, (name, column) in enumerate(through.items()):
        rows = tables[name].select(["time", column, "importance"]).to_pylist()
        streams.append(
            tuple(Tuple(number, row["time"], row[column], row["importance"]) for row in rows)
        )
    a, b = through.values()
    facts = []
    for row in relation.to_pylist():
        begin, end = row.get("begin"), row.get("end")
        facts.append(
            Fact(
                (row[a], row[b]),
                -FOREVER if begin is None else begin,
                FOREVER if end is None else end,
            )
        )
    return Data((streams[0], streams[1]), tuple(facts), lifetime)


@dataclass(eq=False)
class Stored:
    """A tuple in its window, or about to be."""

    tuple: Tuple
    priority: float
    matches: int


@dataclass
class Run:
    """What an online algorithm made and dropped."""

    results: list[tuple[Tuple, Tuple]] = field(default_factory=list)
    shed: list[Tuple] = field(default_factory=list)
    filtered: list[Tuple] = field(default_factory=list)
    fullest: int = 0

    @property
    def importance(self) -> float:
        """Of all results."""
        return importance(self.results)


@dataclass
class Simulator:
    """An online algorithm of section 3.2.

    Attributes:
        data: what arrives.
        policy: one of `POLICIES`.
        rows: of each window, M/2.
        order: what happens when, see above.
        alpha: of DGL.
        beta: of DGL.
        seed: of RAND-S.
    """

    data: Data
    policy: str
    rows: int
    order: Order = "together"
    alpha: float = 1.0
    beta: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Start with empty windows."""
        assert self.policy in POLICIES
        self.windows: tuple[list[Stored], list[Stored]] = ([], [])
        self.run = Run()
        self.random = random.Random(self.seed)

    def simulate(self) -> Run:
        """Let all tuples arrive."""
        times = sorted({one.time for stream in self.data.streams for one in stream})
        by_time = [{one.time: one for one in stream} for stream in self.data.streams]
        for time in times:
            arriving = [stream[time] for stream in by_time if time in stream]
            if self.order == "together":
                self._together(time, arriving)
            else:
                for one in arriving:
                    self._in_turn(time, one)
            held = max(len(window) for window in self.windows)
            self.run.fullest = max(self.run.fullest, held)
        return self.run

    def _together(self, time: int, arriving: list[Tuple]) -> None:
        self._clean(time)
        wanted = self._prefilter(arriving)
        seen = [[held.tuple for held in window] for window in self.windows]
        for one in wanted:
            seen[one.stream].append(one)
        for one in arriving:
            self._update(1 - one.stream, one, time, seen[one.stream])
        coming = [self._newcomer(one, seen[1 - one.stream]) for one in wanted]
        left = [[held.tuple for held in window] for window in self.windows]
        for new in coming:
            victim = self._store(new, seen[1 - new.tuple.stream])
            if victim is not None and victim is not new:
                left[new.tuple.stream].remove(victim.tuple)
        for one in wanted:
            self._emit(one, left[1 - one.stream])
        if len(wanted) == 2:
            self._emit(wanted[1], [wanted[0]])

    def _in_turn(self, time: int, one: Tuple) -> None:
        self._clean(time)
        other = [held.tuple for held in self.windows[1 - one.stream]]
        wanted = self._prefilter([one])
        self._update(1 - one.stream, one, time, [*(h.tuple for h in self.windows[one.stream]), one])
        if wanted:
            self._emit(one, other)
            self._store(self._newcomer(one, other), other)

    def _clean(self, time: int) -> None:
        """Let go of who has expired, and of whom rule 8 drops."""
        for window in self.windows:
            window[:] = [
                held
                for held in window
                if held.tuple.time + self.data.lifetime > time
                and not self.data.useless(held.tuple, time)
            ]

    def _prefilter(self, arriving: list[Tuple]) -> list[Tuple]:
        wanted = [one for one in arriving if self.data.valid(one)]
        self.run.filtered += [one for one in arriving if one not in wanted]
        return wanted

    def _matches(self, one: Tuple, others: Sequence[Tuple]) -> int:
        return sum(self.data.meet(one, other) for other in others)

    def _newcomer(self, one: Tuple, others: Sequence[Tuple]) -> Stored:
        matches = self._matches(one, others)
        priority = one.importance if self.policy == "simp" else one.importance * matches
        return Stored(one, priority, matches)

    def _update(self, stream: int, one: Tuple, time: int, others: Sequence[Tuple]) -> None:
        """DGL: the tuples stored in a stream gain or lose by an arrival of the other one."""
        if self.policy != "dgl":
            return
        for held in self.windows[stream]:
            held.matches = self._matches(held.tuple, others)
            if self.data.meet(held.tuple, one):
                left = held.tuple.time + self.data.lifetime - time
                gain = held.tuple.importance * held.matches * left / self.alpha
                held.priority += gain
            else:
                held.priority = max(held.priority - self.beta, 0)

    def _store(self, new: Stored, others: Sequence[Tuple]) -> Stored | None:
        """Store a newcomer; the victim, if the window was full."""
        window = self.windows[new.tuple.stream]
        window.append(new)
        if len(window) <= self.rows:
            return None
        victim = self._victim(window, others)
        window.remove(victim)
        self.run.shed.append(victim.tuple)
        return victim

    def _victim(self, window: list[Stored], others: Sequence[Tuple]) -> Stored:
        if self.policy == "rand":
            return self.random.choice(window)
        if self.policy == "simp":
            return min(window, key=lambda held: (held.priority, held.tuple.time))
        if self.policy in ("dimpprob", "dgl"):
            for held in window:
                held.matches = self._matches(held.tuple, others)
                if self.policy == "dimpprob":
                    held.priority = held.tuple.importance * held.matches
        return min(
            window,
            key=lambda held: (
                held.priority,
                held.tuple.importance,
                held.matches,
                held.tuple.time,
            ),
        )

    def _emit(self, one: Tuple, others: Sequence[Tuple]) -> None:
        self.run.results += self.data.made(
            (one, other) if one.stream == 0 else (other, one) for other in others
        )
