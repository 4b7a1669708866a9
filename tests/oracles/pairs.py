"""Joins by a condition between any two rows (docs/meaning.md), on lists; without a budget, in SQL.

What rows are compared by follows from a workload's keys: a number `v`, its parity `even`, and a
vector `vec`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import streamshed as ss
from streamshed.conditions import PairCondition

from . import exact
from .rows import Key, Row, Stream, Workload, arrival_order, tables
from .rules import Held
from .simulator import Simulation, _Run
from .workloads import workloads

POLICIES = ("random", "oldest", "column")
SCALE = 0.5


def rising(one: Any, other: Any) -> Any:
    """A condition that depends on the order of the streams."""
    return one.v <= other.v and other.v < one.v + 3


@dataclass(frozen=True)
class Alike:
    """A kind of condition, what it is given, and whether `even` must be equal besides."""

    kind: str
    least: float
    keyed: bool = False

    def said(self) -> tuple[Any, ...]:
        """As `.on` takes it."""
        return (*(("even",) if self.keyed else ()), self.condition())

    def condition(self) -> PairCondition:
        """The condition in the words of a user."""
        if self.kind == "near":
            return ss.near("v", self.least)
        if self.kind == "where":
            return ss.where(rising, "v")
        kind = ss.cosine if self.kind == "cosine" else ss.inner_product
        return kind("vec", at_least=self.least)

    def holds(self, one: Key, other: Key) -> bool:
        """Whether two keys agree, the first of the earlier stream."""
        if self.keyed and number(one) % 2 != number(other) % 2:
            return False
        v, w = number(one) * SCALE, number(other) * SCALE
        if self.kind == "near":
            return abs(v - w) <= self.least
        if self.kind == "where":
            return v <= w < v + 3
        a, b = vector(one), vector(other)
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        if self.kind == "inner_product":
            return dot >= self.least
        scale = math.hypot(*a) * math.hypot(*b)
        return scale > 0 and dot >= self.least * scale

    def sql(self, one: str, other: str) -> str:
        """The same of the rows of two tables of numbers `k`."""
        v, w = (f"{name}.k * {SCALE}::DOUBLE" for name in (one, other))
        a, b = (_list(f"{name}.k") for name in (one, other))
        said = {
            "near": f"abs({v} - {w}) <= {self.least}::DOUBLE",
            "where": f"{v} <= {w} AND {w} < {v} + 3",
            "inner_product": f"list_inner_product({a}, {b}) >= {self.least}",
            "cosine": f"list_inner_product({a}, {a}) > 0 AND list_inner_product({b}, {b}) > 0"
            f" AND list_cosine_similarity({a}, {b}) >= {self.least}",
        }[self.kind]
        return said + (f" AND {one}.k % 2 = {other}.k % 2" if self.keyed else "")


def number(key: Key) -> int:
    """The number of a key."""
    return key if isinstance(key, int) else int(key[1:])


def vector(key: Key) -> list[float]:
    """The vector of a key: now and then one of length 0."""
    n = number(key)
    return [float(n % 3 - 1), float(n // 3 % 3 - 1), float(n // 9 % 2)]


def _list(k: str) -> str:
    return f"[({k} % 3 - 1)::DOUBLE, ({k} // 3 % 3 - 1)::DOUBLE, ({k} // 9 % 2)::DOUBLE]"


@dataclass(frozen=True)
class Compared:
    """A workload, and how its rows are compared."""

    workload: Workload
    alike: Alike

    def inputs(self) -> dict[Stream, pa.Table]:
        """The tables, with what rows are compared by."""
        return {str(name): _with_values(rows) for name, rows in tables(self.workload).items()}


def _with_values(rows: pa.Table) -> pa.Table:
    keys = rows.column("k").to_pylist()
    numbers = [None if key is None else number(key) for key in keys]
    vectors = [None if key is None else vector(key) for key in keys]
    return rows.append_column(
        "v", pa.array([None if n is None else n * SCALE for n in numbers], pa.float64())
    ).append_column(
        "even", pa.array([None if n is None else n % 2 for n in numbers], pa.int64())
    ).append_column("vec", pa.array(vectors, pa.list_(pa.float32(), 3)))  # fmt: skip


class _PairRun(_Run):
    def __init__(self, compared: Compared) -> None:
        super().__init__(compared.workload)
        self.alike = compared.alike

    def completed(self, t: Held) -> list[list[Held]]:
        others = [window for name, window in self.windows.items() if name != t.stream]
        return [
            [*choice, t]
            for choice in product(*others)
            if self.within([*choice, t]) and self.all_agree([*choice, t])
        ]

    def all_agree(self, members: list[Held]) -> bool:
        ordered = sorted(members, key=lambda held: self.workload.position(held.stream))
        return all(self.alike.holds(a.key, b.key) for a, b in combinations(ordered, 2))


def simulate(compared: Compared) -> Simulation:
    """Process every tuple in arrival order."""
    run = _PairRun(compared)
    for arrival, row in enumerate(arrival_order(compared.workload)):
        run.arrive(arrival, row)
        run.outcome.trace.append({s: _copy(entry) for s, entry in run.outcome.ledger.items()})
    return run.outcome


def _copy(entry: Any) -> Any:
    return type(entry)(**vars(entry))


def judged(compared: Compared) -> exact.Results:
    """The results of a join without a budget, by DuckDB."""
    workload = compared.workload
    if not workload.rows:
        return Counter()
    rows = tuple(row._replace(key=_plain(row)) for row in workload.rows)
    return exact.judged_by(
        Workload(**{**vars(workload), "rows": rows}),
        [
            compared.alike.sql(f"s{p}", f"s{q}")
            for p, q in combinations(range(len(workload.names)), 2)
        ],
    )


def _plain(row: Row) -> int | None:
    return None if row.key is None else number(row.key)


LEAST = {
    "near": (0.0, 0.5, 0.7, 1.0, 4.0),
    "where": (0.0,),
    "cosine": (0.9, 0.6, 0.4, -0.3),
    "inner_product": (1.0, 2.0, 0.0, -1.0),
}


@st.composite
def compared(draw: st.DrawFn, kind: str, **settings: Any) -> Compared:
    """Small workloads, compared in some way."""
    many = draw(st.sampled_from([(2, 30), (3, 16), (4, 8)]))
    workload = draw(workloads(partial=False, max_streams=many[0], max_rows=many[1], **settings))
    least = draw(st.sampled_from(LEAST[kind]))
    return Compared(workload, Alike(kind, least, draw(st.booleans())))
