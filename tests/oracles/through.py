"""Joins through a relation (docs/meaning.md), on lists; and without a budget, in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from . import exact
from .rows import Key, Member, Row, Stream, Workload, arrival_order, tables
from .rules import RULES, Held, Rule
from .simulator import Fate, Ledger, Simulation, _Run
from .workloads import workloads

FOR_EVER = 2**62
POLICIES = ("random", "oldest", "column", "alone", "at arrival", "now", "gained", "density")
ALPHA, BETA = 4.0, 0.5
"""Powers of two: then no order of summing makes a difference."""


class Fact(NamedTuple):
    """A row of the relation: its keys by stream, and from when up to when it is valid."""

    keys: tuple[Key, ...]
    begin: int | None
    end: int | None


class Change(NamedTuple):
    """A row that is inserted or deleted."""

    time: int
    insert: bool
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Star:
    """Streams, and the relation by way of which they are joined.

    A row's `worth` is its importance. `timed`: whether the relation has columns for validity.
    """

    workload: Workload
    facts: tuple[Fact, ...]
    changes: tuple[Change, ...] | None = None
    timed: bool = True
    policy: str = "oldest"

    def relation(self) -> pa.Table:
        """The rows that are there from the start; `f` numbers them."""
        columns = self._columns([fact.keys for fact in self.facts], 0)
        if self.timed:
            columns["begin"] = pa.array([fact.begin for fact in self.facts], pa.int64())
            columns["end"] = pa.array([fact.end for fact in self.facts], pa.int64())
        return pa.table(columns)

    def news(self) -> pa.Table | None:
        """The changes; `f` goes on numbering."""
        if self.changes is None:
            return None
        columns = self._columns([change.keys for change in self.changes], len(self.facts))
        columns["time"] = pa.array([change.time for change in self.changes], pa.int64())
        kinds = ["insert" if change.insert else "delete" for change in self.changes]
        columns["change"] = pa.array(kinds, pa.string())
        return pa.table(columns)

    def _columns(self, keys: list[tuple[Key, ...]], first: int) -> dict[str, pa.Array]:
        kind = next(iter(tables(self.workload).values())).schema.field("k").type
        columns = {
            f"k{p}": pa.array([key[p] for key in keys], kind)
            for p in range(len(self.workload.names))
        }
        return columns | {"f": pa.array(range(first, first + len(keys)), pa.int64())}


@dataclass
class Valid:
    """A fact in the course of time."""

    number: int
    keys: tuple[Key, ...]
    begin: int
    end: int

    def at(self, time: int) -> bool:
        """Whether it is valid at a time."""
        return self.begin <= time < self.end


Made = tuple[int, tuple[Member, ...], int, float]
"""The fact, the members, the time and the importance of a result."""


def initial(star: Star) -> list[Valid]:
    """The facts that are there from the start."""
    return [
        Valid(
            number,
            fact.keys,
            -FOR_EVER if fact.begin is None or not star.timed else fact.begin,
            FOR_EVER if fact.end is None or not star.timed else fact.end,
        )
        for number, fact in enumerate(star.facts)
    ]


def make_change(facts: list[Valid], change: Change, number: int) -> None:
    """An insertion is valid from then on; a deletion ends all that are valid and equal it."""
    if change.insert:
        facts.append(Valid(number, change.keys, change.time, FOR_EVER))
        return
    for fact in facts:
        if fact.keys == change.keys and fact.at(change.time):
            fact.end = change.time


def judged(star: Star) -> Counter[Made]:
    """All results of a join without a budget, by DuckDB. (Row windows are not for it to judge.)"""
    # A row without importance is filtered as one without a key is.
    rows = [row if row.worth is not None else row._replace(key=None) for row in star.workload.rows]
    workload = replace(star.workload, rows=tuple(rows))
    if not rows:
        return Counter()
    facts = initial(star)
    for number, change in enumerate(star.changes or ()):
        make_change(facts, change, len(star.facts) + number)
    con = exact._database()
    exact._arrivals(con, workload)
    exact._take(con, workload, exact._fates(con, workload))
    many = range(len(workload.names))
    kind = next(iter(tables(workload).values())).schema.field("k").type
    columns = {f"k{p}": pa.array([fact.keys[p] for fact in facts], kind) for p in many}
    for name in ("number", "begin", "end"):
        columns[f"{name}_"] = pa.array([getattr(fact, name) for fact in facts], pa.int64())
    con.register("facts", pa.table(columns))
    conditions = [
        f"s{p}.position = {p} AND s{p}.k = f.k{p}"
        f" AND f.begin_ <= s{p}.time AND s{p}.time < f.end_"
        f" AND made - s{p}.time <= {workload.windows[p][1]} AND last < s{p}.ends"
        for p in many
    ]
    made = f"greatest({', '.join(f's{p}.time' for p in many)})"
    last = f"greatest({', '.join(f's{p}.arrival' for p in many)})"
    where = " AND ".join(conditions).replace("made", made).replace("last", last)
    found = con.execute(f"""
        SELECT f.number_, {made}, {", ".join(f"s{p}.row" for p in many)}
        FROM facts AS f, {", ".join(f"taken AS s{p}" for p in many)}
        WHERE {where}""").fetchall()
    weight = {(row.stream, row.row): float(row.worth or 0) for row in workload.rows}
    results: Counter[Made] = Counter()
    for number, time, *rows in found:
        members = tuple(sorted(zip(workload.names, rows, strict=True)))
        results[number, members, time, min(weight[member] for member in members)] += 1
    return results


class Importance(Rule):
    """The lowest priority, then importance, then matches, then the oldest."""

    kind = "alone"

    def __init__(self, run: StarRun) -> None:
        """Start with empty windows."""
        super().__init__(run.workload, run.windows)
        self.run = run
        self.arrived: dict[Held, int] = {}
        self.value: dict[Held, tuple[float, float]] = {}  # priority, and when it was that
        self.newcomer: Held | None = None

    def arrives(self, newcomer: Held) -> None:
        """Count whom it matches."""
        self.newcomer = newcomer
        self.arrived[newcomer] = self.run.matches(newcomer)
        self.raised: set[Held] = set()

    def made(self, members: list[Held]) -> None:
        """Who takes part in a result gains by it, once for each newcomer."""
        for held in members:
            if self.kind == "gained" and held is not self.newcomer and held not in self.raised:
                self.raised.add(held)
                priority, since = self.value[held]
                now = self.run.now()
                before = max(0.0, priority - BETA * max(0, now - 1 - since))
                _, window = self.workload.window(held.stream)
                left = held.time + window - now + 1
                gained = float(held.worth or 0) * self.matches(held) * left / ALPHA
                self.value[held] = before + gained, now

    def matches(self, held: Held) -> int:
        """Whom it matches now; the newcomer counts for others from its arrival on."""
        return self.run.matches(held, self.newcomer)

    def standing(self, held: Held) -> tuple[float, float, int]:
        """Priority, importance, matches."""
        importance = float(held.worth or 0)
        if self.kind == "alone":
            return importance, importance, 0
        if self.kind == "at arrival":
            return importance * self.arrived[held], importance, self.arrived[held]
        matches = self.matches(held)
        if self.kind == "now" or held not in self.value:
            return importance * matches, importance, matches
        priority, since = self.value[held]
        return max(0.0, priority - BETA * (self.run.now() - since)), importance, matches

    def refuses(self, window: list[Held], newcomer: Held) -> bool:
        """Refused when it stands below all."""
        return self.standing(newcomer) < min(map(self.standing, window))

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """The lowest, and of these the oldest."""
        return min(window, key=lambda held: (*self.standing(held), held.age))

    def stored(self, held: Held) -> None:
        """It begins with importance times matches."""
        self.newcomer = None
        self.value[held] = float(held.worth or 0) * self.run.matches(held), self.run.now()


class RelationDensity(Rule):
    """The least importance expected, as it was when last looked at; then the oldest."""

    def __init__(self, run: StarRun) -> None:
        """Start with nothing known."""
        super().__init__(run.workload, run.windows)
        self.run = run
        self.flow: dict[tuple[int, Key], tuple[float, float, int]] = {}
        self.value: dict[Held, float] = {}
        self.looked: dict[Held, int] = {}
        windows = self.workload.windows
        times = [length for kind, length in windows if kind == "time"]
        rows = sum(length for kind, length in windows if kind == "last")
        self.horizon = max(1, max(times) if times else rows)

    def now(self, newcomer: Held) -> int:
        """The newest time, or the number of the latest arrival."""
        return self.run.now() if self.timed else newcomer.arrival

    @property
    def timed(self) -> bool:
        """Whether there is a time window."""
        return any(kind == "time" for kind, _ in self.workload.windows)

    def remaining(self, last: int, newcomer: Held) -> float:
        """What is left of a count."""
        return max(0.0, 1 - (self.now(newcomer) - last) / (6 * self.horizon))

    def arrives(self, newcomer: Held) -> None:
        """Every arrival counts, whatever becomes of it."""
        value = self.run.position(newcomer), newcomer.key
        count, weight, last = self.flow.get(value, (0.0, 0.0, 0))
        left = self.remaining(last, newcomer)
        worth = float(newcomer.worth or 0)
        self.flow[value] = count * left + 1, weight * left + worth, self.now(newcomer)
        self.newcomer = newcomer
        self.value[newcomer] = self.density(newcomer)

    def density(self, held: Held) -> float:
        """What a tuple promises in a window's length."""
        total = 0.0
        for fact in sorted(self.run.ties(held), key=lambda fact: fact.begin):
            many, worth = 1.0, float(held.worth or 0)
            for position, key in enumerate(fact.keys):
                if position != self.run.position(held):
                    count, weight, last = self.flow.get((position, key), (0.0, 0.0, 0))
                    many *= count * self.remaining(last, self.newcomer) / 6
                    worth = min(worth, weight / count if count else 0.0)
            total += many * worth
        return total

    def refuses(self, window: list[Held], newcomer: Held) -> bool:
        """Refused when it promises less than the lowest, which are looked at again before."""
        for _ in range(8):
            lowest = self.lowest(window)
            if self.looked.get(lowest) == newcomer.arrival:
                break
            self.looked[lowest] = newcomer.arrival
            self.value[lowest] = self.density(lowest)
        return self.value[newcomer] < self.value[self.lowest(window)]

    def lowest(self, window: list[Held]) -> Held:
        """The one that promises the least."""
        return min(window, key=lambda held: (self.value[held], held.age))

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """The lowest."""
        return self.lowest(window)

    def stored(self, held: Held) -> None:
        """It was looked at when it came."""
        self.looked[held] = held.arrival


def _importance(kind: str) -> Callable[[StarRun], Rule]:
    return type(kind, (Importance,), {"kind": kind})


STAR_RULES: dict[str, Callable[[StarRun], Rule]] = {
    **{
        name: (lambda run, rule=RULES[name]: rule(run.workload, run.windows))
        for name in ("random", "oldest", "column")
    },
    **{kind: _importance(kind) for kind in ("alone", "at arrival", "now", "gained")},
    "density": RelationDensity,
}


class StarRun(_Run):
    """The life of a tuple in a join through a relation."""

    def __init__(self, star: Star) -> None:
        super().__init__(replace(star.workload, policy="oldest"))
        self.star = star
        self.facts = initial(star)
        self.coming = list(enumerate(star.changes or (), start=len(star.facts)))
        self.rule = self.outcome.rule = STAR_RULES[star.policy](self)
        self.results: list[Made] = []

    def now(self) -> int:
        return max(self.newest.values(), default=0) if self.workload.timed else 0

    def position(self, held: Held) -> int:
        return self.workload.position(held.stream)

    def ties(self, held: Held) -> list[Valid]:
        """The facts that were valid for a tuple when it came."""
        key = self.position(held)
        return [f for f in self.facts if f.keys[key] == held.key and f.at(held.time)]

    def matches(self, held: Held, newcomer: Held | None = None) -> int:
        """Stored tuples of other streams, once for each fact by way of which they match."""
        others = [o for name, window in self.windows.items() for o in window]
        if newcomer is not None and newcomer is not held:
            others.append(newcomer)
        return sum(
            fact.keys[self.position(other)] == other.key and fact.at(other.time)
            for fact in self.ties(held)
            for other in others
            if other.stream != held.stream
        )

    def arrive(self, number: int, row: Row) -> None:
        account = self.ledger[row.stream]
        account.arrived += 1
        if row.key is None or row.time is None or row.worth is None:
            account.filtered += 1
            return
        while self.coming and self.coming[0][1].time <= row.time:
            number_of, change = self.coming.pop(0)
            make_change(self.facts, change, number_of)
        if self.clock is not None and row.time < self.clock - self.workload.late:
            account.late += 1
            return
        self.newest[row.stream] = max(self.newest.get(row.stream, row.time), row.time)
        if self.first is None:
            self.first = row.time
        self.advance()
        self.expire(number)
        self.let_go()
        t = Held(row.stream, row.key, row.time, row.row, row.worth, number, 0)
        if not self.ties(t):
            account.filtered += 1
            return
        t.number = self.numbers[row.stream]
        self.numbers[row.stream] += 1
        self.rule.arrives(t)
        self.complete(t)
        self.expire_rows(t)
        if len(self.workload.names) == 1:
            account.expired += 1
            return
        if not self.admitted(t):
            if isinstance(self.rule, Importance):
                self.rule.newcomer = None
            return
        self.windows[t.stream].append(t)
        account.stored += 1
        self.rule.stored(t)

    def let_go(self) -> None:
        """Rule 8: who matches no fact that is valid for what may still come."""
        if self.clock is None:
            return
        useless = []
        for name, window in self.windows.items():
            for held in window if self.workload.window(name)[0] == "time" else []:
                until = max(fact.end for fact in self.ties(held))
                if until <= self.clock - self.workload.late:
                    useless.append((until, held.age, held))
        for _, _, held in sorted(useless, key=lambda entry: entry[:2]):
            self.take(held)
            self.ledger[held.stream].filtered += 1

    def complete(self, t: Held) -> None:
        """All results that a tuple completes."""
        for fact in self.ties(t):
            partners = [
                [
                    held
                    for held in self.windows[name]
                    if fact.keys[self.workload.position(name)] == held.key and fact.at(held.time)
                ]
                for name in self.workload.names
                if name != t.stream
            ]
            for choice in product(*partners):
                members = [*choice, t]
                if self.within(members):
                    self.rule.made(members)
                    named = tuple(sorted((held.stream, held.row) for held in members))
                    importance = min(float(held.worth or 0) for held in members)
                    latest = max(held.time for held in members)
                    self.results.append((fact.number, named, latest, importance))


@dataclass
class Outcome:
    """What became of a join through a relation."""

    results: list[Made]
    simulation: Simulation
    trace: list[dict[Stream, Ledger]] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)


def simulate(star: Star) -> Outcome:
    """Process every tuple in its order."""
    run = StarRun(star)
    outcome = Outcome(run.results, run.outcome, fates=run.outcome.fates)
    for number, row in enumerate(arrival_order(star.workload)):
        run.arrive(number, row)
        outcome.trace.append({s: replace(e) for s, e in run.ledger.items()})
    return outcome


@st.composite
def stars(
    draw: st.DrawFn,
    *,
    budget: bool,
    windows: tuple[str, ...] = ("time", "last", "mixed"),
    policies: tuple[str, ...] = POLICIES,
    most_streams: int = 4,
) -> Star:
    """Small joins through a relation: dynamic or not, with few facts or many, doubled or none."""
    workload = draw(
        workloads(
            partial=False,
            budget=budget,
            policies=["oldest"],
            windows=windows,
            max_streams=most_streams,
            max_rows=20,
        )
    )
    if not budget and draw(st.integers(0, 4)) == 4:
        workload = _alone(workload)
    rows = [
        row._replace(worth=None if row.worth is None else abs(row.worth)) for row in workload.rows
    ]
    workload = replace(workload, rows=tuple(rows))
    keys = sorted({row.key for row in rows if row.key is not None}) or [0]
    times = sorted({row.time for row in rows if row.time is not None}) or [0]
    key = st.tuples(*[st.sampled_from(keys)] * len(workload.names))
    timed = workload.timed and draw(st.booleans())
    least = draw(st.integers(0, 12))
    facts = draw(st.lists(_facts(key, times if timed else None), min_size=least, max_size=15))
    changes = None
    if workload.timed and draw(st.booleans()):
        known = st.sampled_from([fact.keys for fact in facts]) if facts else key
        change = st.builds(Change, _around(times), st.booleans(), st.one_of(key, known))
        listed = draw(st.lists(change, max_size=15))
        changes = tuple(sorted(listed, key=lambda change: change.time))
    policy = draw(st.sampled_from(policies)) if budget else "oldest"
    return Star(workload, tuple(facts), changes, timed, policy)


def _around(times: list[int]) -> st.SearchStrategy[int]:
    return st.tuples(st.sampled_from(times), st.integers(-1, 1)).map(sum)


def _facts(key: st.SearchStrategy[Any], times: list[int] | None) -> st.SearchStrategy[Fact]:
    if times is None:
        return st.builds(Fact, key, st.none(), st.none())
    bound = st.one_of(_around(times), st.none())
    return st.builds(Fact, key, bound, bound).filter(
        lambda fact: fact.begin is None or fact.end is None or fact.begin < fact.end
    )


def _alone(workload: Workload) -> Workload:
    """The first stream alone."""
    name = workload.names[0]
    rows = tuple(row for row in workload.rows if row.stream == name)
    return replace(workload, names=(name,), rows=rows, windows=workload.windows[:1])


def batches(star: Star) -> Iterator[pa.RecordBatch]:
    """The changes one at a time, as a stream of them comes."""
    news = star.news()
    assert news is not None
    for row in range(news.num_rows):
        yield from news.slice(row, 1).to_batches()
