"""The life of a tuple (docs/meaning.md), step by step, with lists and dicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal, NamedTuple

from .rows import Member, Newest, Row, Stream, Workload, arrival_order
from .rules import RULES, Held, Rule, Windows


class Result(NamedTuple):
    """A result: its members in order of (stream, row), its time, the arrival that made it.

    With streams named by a column also the arrival whose results it extends.
    """

    members: tuple[Member, ...]
    time: int
    arrival: int
    extends: int | None = None


class Fate(NamedTuple):
    """Who was shed for the newcomer with this arrival number (step 7)."""

    arrival: int
    victim: Member | Literal["refused"]


@dataclass
class Ledger:
    """The account of one stream; `stored` is what its window holds now."""

    arrived: int = 0
    stored: int = 0
    expired: int = 0
    shed: int = 0
    filtered: int = 0
    late: int = 0
    queued: int = 0

    @property
    def balanced(self) -> bool:
        """The identity that holds always, for every stream."""
        accounted = self.stored + self.expired + self.shed + self.filtered + self.late + self.queued
        return self.arrived == accounted


@dataclass
class Simulation:
    """What became of a workload.

    `results` are in the order of arrivals; within one arrival meaning.md sets no order. `clocks`
    and, when traced, `trace` have an entry for every arrival, as things stand after it.
    """

    results: list[Result] = field(default_factory=list)
    ledger: dict[Stream, Ledger] = field(default_factory=dict)
    fates: list[Fate] = field(default_factory=list)
    expiries: list[tuple[int, Member]] = field(default_factory=list)
    clocks: list[int | None] = field(default_factory=list)
    trace: list[dict[Stream, Ledger]] = field(default_factory=list)
    windows: Windows = field(default_factory=dict)
    rule: Rule | None = None

    def multiset(self) -> Counter[tuple[tuple[Member, ...], int]]:
        """The results as (members, time), whatever their order."""
        return Counter((result.members, result.time) for result in self.results)


def simulate(
    workload: Workload, trace: bool = False, order: Sequence[Row] | None = None
) -> Simulation:
    """Process every tuple in arrival order, or in a given one (a permutation of it)."""
    run = _Run(workload)
    for number, row in enumerate(arrival_order(workload) if order is None else order):
        run.arrive(number, row)
        run.outcome.clocks.append(run.clock)
        if trace:
            run.outcome.trace.append({s: replace(e) for s, e in run.outcome.ledger.items()})
    return run.outcome


class _Run:
    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.outcome = Simulation()
        self.ledger = self.outcome.ledger
        self.windows = self.outcome.windows
        self.newest: dict[Stream, int] = {}
        self.latest = Newest(workload)
        self.first: int | None = None
        self.clock: int | None = None
        self.numbers: Counter[Stream] = Counter()
        if not workload.by:
            for name in workload.names:
                self.meet(name)
        self.rule = self.outcome.rule = RULES[workload.policy](workload, self.windows)

    def meet(self, stream: Stream) -> None:
        """Open the account and the window of a stream; one told by a column starts unknown."""
        if stream not in self.ledger:
            self.ledger[stream] = Ledger()
            self.windows[stream] = []

    def arrive(self, number: int, row: Row) -> None:
        self.meet(row.stream)
        account = self.ledger[row.stream]
        # 1. Count
        account.arrived += 1
        # 2. Filter
        if row.key is None or row.time is None:
            account.filtered += 1
            return
        # 3. Late
        if self.clock is not None and row.time < self.clock - self.workload.late:
            account.late += 1
            return
        # 4. Advance
        self.newest[row.stream] = max(self.newest.get(row.stream, row.time), row.time)
        self.rule.time = self.latest.move(row.stream, row.time)
        if self.first is None:
            self.first = row.time
        self.advance()
        order = self.numbers[row.stream]
        self.numbers[row.stream] += 1
        t = Held(row.stream, row.key, row.time, row.row, row.worth, number, order)
        self.rule.advances(t)
        # 5. Expire
        self.expire(number)
        # 6. Probe and emit
        self.rule.arrives(t)
        for members in self.completed(t):
            self.emit(members, number)
        # 8, its last sentence: a row leaves its row window before the test for being full
        self.expire_rows(t)
        # 7. Admit and shed
        if not self.admitted(t):
            return
        # 8. Insert
        self.windows[t.stream].append(t)
        account.stored += 1
        self.rule.stored(t)

    def advance(self) -> None:
        """Compute the clock anew; it never goes back. Row windows alone need none."""
        shown = self.shown() if self.workload.timed else None
        if shown is not None and (self.clock is None or shown > self.clock):
            self.clock = shown

    def shown(self) -> int | None:
        """What the times seen make of the clock (The clock)."""
        if self.workload.by:
            return self.latest.time
        newest = max(self.newest.values())
        if self.workload.clock == "max":
            return newest
        idle = self.workload.idle
        watched = []
        for name in self.workload.names:
            if name in self.newest:
                if idle is None or newest - self.newest[name] <= idle:
                    watched.append(self.newest[name])
            elif idle is None or newest - self.first <= idle:
                return None
        return min(watched)

    def expire(self, number: int) -> None:
        """Step 5: stream by stream, or where a column tells them apart length by length."""
        if self.clock is None:
            return
        if self.workload.by:
            every = [held for window in self.windows.values() for held in window]
            sizes = sorted({self.workload.window(held.stream)[1] for held in every}, reverse=True)
            lanes = [[h for h in every if self.workload.window(h.stream)[1] == s] for s in sizes]
        else:
            lanes = [self.windows[name] for name in self.workload.names]
        for lane in lanes:
            for held in sorted(lane, key=lambda held: held.age):
                kind, size = self.workload.window(held.stream)
                if kind == "time" and self.clock - held.time > size + self.workload.late:
                    self.expiry(held, number)

    def expire_rows(self, t: Held) -> None:
        """Step 8: the rows that entered N or more rows of the stream before the newest one."""
        size = self.workload.last(t.stream)
        if size is not None:
            for held in list(self.windows[t.stream]):
                if t.number - held.number >= size:
                    self.expiry(held, t.arrival)

    def expiry(self, held: Held, number: int) -> None:
        self.take(held)
        self.ledger[held.stream].expired += 1
        self.outcome.expiries.append((number, (held.stream, held.row)))

    def take(self, held: Held) -> None:
        self.windows[held.stream].remove(held)
        self.ledger[held.stream].stored -= 1
        self.rule.left(held)

    def completed(self, t: Held) -> list[list[Held]]:
        """Step 6 (Results): the members of every result, the newcomer last."""
        matches = {
            name: [held for held in window if held.key == t.key]
            for name, window in self.windows.items()
            if name != t.stream
        }
        if self.workload.at_least is None:
            combinations = (
                [*choice, t] for choice in product(*(matches[name] for name in matches))
            )
            return [members for members in combinations if self.within(members)]
        partners = {
            name: [held for held in held_there if self.within([held, t])]
            for name, held_there in matches.items()
        }
        present = [there for there in partners.values() if there]
        if len(present) + 1 < self.workload.at_least:
            return []
        return [[*choice, t] for choice in product(*present)]

    def within(self, members: list[Held]) -> bool:
        """Whether every member is within its window; who is stored is within its row window."""
        latest = max(held.time for held in members)
        for held in members:
            kind, size = self.workload.window(held.stream)
            if kind == "time" and latest - held.time > size:
                return False
        return True

    def emit(self, members: list[Held], number: int) -> None:
        self.rule.made(members)
        named = tuple(sorted((held.stream, held.row) for held in members))
        latest = max(held.time for held in members)
        extends = self.extended(members[:-1]) if self.workload.by else None
        self.outcome.results.append(Result(named, latest, number, extends))

    def extended(self, others: list[Held]) -> int | None:
        """The arrival of the youngest of the others, if it made a result with all of them."""
        if len(others) < self.workload.at_least:
            return None
        youngest = max(held.arrival for held in others)
        wanted = {(held.stream, held.row) for held in others}
        earlier = [r for r in self.outcome.results if r.arrival == youngest]
        return youngest if any(wanted <= {*result.members} for result in earlier) else None

    def admitted(self, t: Held) -> bool:
        """Step 7; false when the newcomer is refused."""
        window = self.full_window(t)
        if window is None:
            return True
        outside = [held for held in window if self.outside(held)]
        if outside:
            victim = min(outside, key=lambda held: held.age)
        elif self.rule.refuses(window, t):
            self.ledger[t.stream].shed += 1
            self.outcome.fates.append(Fate(t.arrival, "refused"))
            return False
        else:
            victim = self.rule.victim(window, t)
        self.take(victim)
        self.ledger[victim.stream].shed += 1
        self.outcome.fates.append(Fate(t.arrival, (victim.stream, victim.row)))
        return True

    def outside(self, held: Held) -> bool:
        """Whether a tuple is outside its window by the newest time seen."""
        kind, size = self.workload.window(held.stream)
        newest = self.latest.time if self.workload.by else max(self.newest.values())
        return kind == "time" and newest - held.time > size

    def full_window(self, t: Held) -> list[Held] | None:
        """The full window that the newcomer would overflow (Budgets), if it is full."""
        if self.workload.keep_rows is not None:
            window = list(self.windows[t.stream])
            budget = self.workload.keep_rows[self.workload.position(t.stream)]
        else:
            window = [held for window in self.windows.values() for held in window]
            budget = self.workload.keep_total
        return window if budget is not None and len(window) >= budget else None
