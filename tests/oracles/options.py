"""Order in time, rows without a match and first results as plain Python: docs/meaning.md, slowly.

A `Case` is a small join with some of these options, its rows in batches, and a budget or none.
`expected` says what it makes where nothing is shed: every combination is tried.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise, product
from typing import Any

import pyarrow as pa

import streamshed as ss

SCHEMA = pa.schema([(name, pa.int64()) for name in ("k", "x", "ts", "row")])
FACTS = {
    "p": [0, 1, 2, 0, 1, 2, 2, 0],
    "q": [0, 1, 2, 1, 2, 0, 2, 0],
    "r": [0, 1, 2, 2, 0, 1, 2, 1],
}
KINDS = ("key", "near", "equalities", "relation")

Row = dict[str, Any]
Members = tuple[Row, ...]


@dataclass
class Case:
    """A join, its rows, and what was asked, in a form that plain Python understands."""

    kind: str
    names: str
    windows: dict[str, int]
    late: int
    clock: str
    idle: int | None
    join: ss.Join
    batches: list[dict[str, list[Row]]]
    bounds: list[tuple[str, str, int]] = field(default_factory=list)
    """How much later than a row of the second stream one of the first may be."""
    unmatched: tuple[str, ...] = ()
    first: str | None = None
    last_touch: bool = False
    bounded: bool = False

    def tables(self) -> Iterator[dict[str, pa.Table]]:
        """The batches as Arrow tables."""
        for batch in self.batches:
            yield {name: pa.Table.from_pylist(rows, SCHEMA) for name, rows in batch.items()}

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        return dict.fromkeys(self.names, SCHEMA)


@dataclass
class Expected:
    """What a join makes where nothing is shed."""

    results: Counter
    """By the row numbers of their members."""
    possible: Counter
    """The same without `.first`."""
    unmatched: dict[tuple[str, int], int]
    """The batch with which a row without a match is handed out; after the last: at the end."""
    late: Counter


# -- cases ----------------------------------------------------------------------------------------


def drawn(seed: int, budget: bool) -> Case:
    """A case; the same for the same seed."""
    rng = random.Random(seed)
    kind = rng.choice([*["key"] * 7, *KINDS[1:]])
    names = "abc" if kind in KINDS[2:] or rng.random() < 1 / 3 else "ab"
    windows = {name: rng.choice([0, 3, 8, 15, 30]) for name in names}
    if rng.random() < 0.4:
        windows = dict.fromkeys(names, rng.choice([5, 12, 30]))
    late, idle = rng.choice([0, 0, 2, 6, 15]), rng.choice([None, None, None, 10])
    clock = rng.choice(["min", "min", "min", "max"])
    more: dict[str, Any] = {} if idle is None else {"idle": idle}
    join = _matching(kind, names).within(windows, time="ts", late=late, clock=clock, **more)
    batches = _batches(rng, names, nulls=kind == "key" and rng.random() < 0.3)
    case = Case(kind, names, windows, late, clock, idle, join.seed(rng.randrange(9)), batches)
    _order(case, rng)
    if kind == "key":
        _choose(case, rng)
    if budget:
        amount, unit = rng.choice([1, 3, 6, 12]), rng.choice(["total", "rows"])
        case.join = case.join.keep(**{unit: amount}).shed("oldest").estimate(rate=1)
        case.bounded = True
    return case


def _matching(kind: str, names: str) -> ss.Join:
    join = ss.join(*names)
    if kind == "near":
        return join.on(ss.near("k", 1))
    if kind == "equalities":
        return join.on("a.k = b.k", "b.x = c.x")
    if kind == "relation":
        return join.on(a="k", b="x", c="k").through(pa.table(FACTS), a="p", b="q", c="r")
    return join.on("k")


def _batches(rng: random.Random, names: str, nulls: bool) -> list[dict[str, list[Row]]]:
    """Rows nearly in the order of time, cut into batches by their number."""
    rows, most = {}, rng.randrange(4, 28)
    for name in names:
        times = sorted(rng.randrange(60) for _ in range(rng.randrange(most + 1)))
        times.sort(key=lambda time: time + rng.randrange(rng.choice([1, 12])))
        rows[name] = [
            {
                "k": None if nulls and rng.random() < 0.1 else rng.randrange(4),
                "x": rng.randrange(3),
                "ts": None if nulls and rng.random() < 0.05 else time,
                "row": number,
            }
            for number, time in enumerate(times)
        ]
    cuts = [0, *sorted(rng.sample(range(1, 30), rng.randrange(6))), 99]
    return [{name: part[low:high] for name, part in rows.items()} for low, high in pairwise(cuts)]


def _order(case: Case, rng: random.Random) -> None:
    if rng.random() < 0.4:
        order = rng.sample(case.names, rng.randrange(2, len(case.names) + 1))
        strictly = rng.random() < 0.5
        case.join = case.join.in_order(*order, strictly=strictly)
        for place, one in enumerate(order):
            case.bounds += [(one, other, -int(strictly)) for other in order[place + 1 :]]
    if rng.random() < 0.35:
        later, earlier = rng.sample(case.names, 2)
        least = rng.randrange(-10, 8)
        most = least + rng.randrange(15)
        case.join = case.join.between(later, earlier, least, most)
        case.bounds += [(later, earlier, most), (earlier, later, -least)]


def _choose(case: Case, rng: random.Random) -> None:
    if rng.random() < 0.6:
        case.unmatched = tuple(rng.sample(case.names, rng.randrange(1, len(case.names) + 1)))
        case.join = case.join.unmatched(*case.unmatched)
    if rng.random() < 0.4:
        case.first = rng.choice(["key", *case.names])
        case.last_touch = case.first != "key" and rng.random() < 0.5
        case.join = case.join.first(per=case.first, last_touch=case.last_touch)
        if case.last_touch:
            others = [name for name in case.names if name != case.first]
            case.bounds += [(other, case.first, 0) for other in others]


# -- what they make -------------------------------------------------------------------------------


def expected(case: Case, windows: dict[str, int]) -> Expected:
    """What a case makes where nothing is shed.

    Args:
        case: the join and its rows.
        windows: those that its bounds leave, after which rows expire.
    """
    joined, filtered, late, clocks = _arrived(case)
    every = [
        members
        for members in product(*([row for row in joined if row["s"] == n] for n in case.names))
        for _ in range(_matches(case, members))
    ]
    made = every if case.first is None else _first(case, every, windows)
    matched = {(row["s"], row["row"]) for members in made for row in members}
    alone = {}
    for row in joined:
        name, last = row["s"], row["ts"] + windows[row["s"]] + case.late
        if name in case.unmatched and (name, row["row"]) not in matched:
            batches = range(row["batch"], len(clocks))
            closed = (b for b in batches if clocks[b] is not None and clocks[b] > last)
            alone[name, row["row"]] = next(closed, len(clocks))
    alone |= {(r["s"], r["row"]): r["batch"] for r in filtered if r["s"] in case.unmatched}
    return Expected(_numbers(made), _numbers(every), alone, late)


def _numbers(made: list[Members]) -> Counter:
    return Counter(tuple(row["row"] for row in members) for members in made)


def _arrived(case: Case) -> tuple[list[Row], list[Row], Counter, list[int | None]]:
    """The rows that are joined, those with a null, how many are late, and the clock by batch."""
    newest: dict[str, int | None] = dict.fromkeys(case.names)
    clock: int | None = None
    joined: list[Row] = []
    filtered: list[Row] = []
    late: Counter = Counter()
    clocks: list[int | None] = []
    begun: int | None = None
    number = 0
    for batch, rows in enumerate(case.batches):
        order = [
            (99 if row["ts"] is None else row["ts"], place, row["row"], row)
            for place, name in enumerate(case.names)
            for row in rows[name]
        ]
        for time, place, _, given in sorted(order, key=lambda one: one[:3]):
            name = case.names[place]
            row = {**given, "s": name, "batch": batch, "number": number}
            number += 1
            if row["ts"] is None or row["k"] is None:
                filtered.append(row)
                continue
            if clock is not None and time < clock - case.late:
                late[name] += 1
                continue
            begun = time if begun is None else begun
            newest[name] = time if newest[name] is None else max(newest[name], time)
            now = _clock(case, newest, begun)
            clock = now if clock is None or now is None else max(clock, now)
            if _is_matchable(case, row):
                joined.append(row)
        clocks.append(clock)
    return joined, filtered, late, clocks


def _clock(case: Case, newest: dict[str, int | None], begun: int) -> int | None:
    top = max(time for time in newest.values() if time is not None)
    if case.clock == "max":
        return top
    active = [
        time
        for time in newest.values()
        if case.idle is None or top - (begun if time is None else time) <= case.idle
    ]
    return None if None in active else min(active)  # type: ignore[type-var]


def _is_matchable(case: Case, row: Row) -> bool:
    """Whether a fact has the key of a row."""
    if case.kind != "relation":
        return True
    column = FACTS["pqr"["abc".index(row["s"])]]
    return row["x" if row["s"] == "b" else "k"] in column


def _matches(case: Case, members: Members) -> int:
    """How many results a combination makes."""
    at = dict(zip(case.names, (row["ts"] for row in members), strict=True))
    if any(max(at.values()) - at[name] > case.windows[name] for name in case.names):
        return 0
    if any(at[later] - at[earlier] > most for later, earlier, most in case.bounds):
        return 0
    keys = [row["k"] for row in members]
    if case.kind == "near":
        return int(max(keys) - min(keys) <= 1)
    if case.kind == "equalities":
        return int(keys[0] == keys[1] and members[1]["x"] == members[2]["x"])
    if case.kind == "relation":
        return [*zip(*FACTS.values(), strict=True)].count((keys[0], members[1]["x"], keys[2]))
    return int(len({*keys}) == 1)


def _first(case: Case, every: list[Members], windows: dict[str, int]) -> list[Members]:
    """The first result of each key, or of each row of a stream."""
    until: dict[int, int] = {}
    made: dict[int, Members] = {}
    chosen: list[Members] = []

    def completed(members: Members) -> int:
        return max(row["number"] for row in members)

    def age(members: Members) -> list[tuple[int, int]]:
        sign = -1 if case.last_touch else 1
        return [(sign * row["ts"], sign * row["number"]) for row in members]

    for _, group in groupby(sorted(every, key=completed), completed):
        found = list(group)
        newcomer = max(found[0], key=lambda row: row["number"])
        if case.first == "key":
            if newcomer["ts"] > until.get(newcomer["k"], -1):
                best = min(found, key=age)
                until[newcomer["k"]] = max(row["ts"] + windows[row["s"]] for row in best)
                chosen.append(best)
            continue
        place = case.names.index(case.first or "")
        for number in {members[place]["number"] for members in found} - {*made}:
            own = [members for members in found if members[place]["number"] == number]
            made[number] = min(own, key=age)
            chosen.append(made[number])
    return chosen
