"""Three short streams, and what DuckDB joins of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import streamshed as ss

ROWS, END, WINDOW = 300, 700, 60
NAMES = "abc"


def table(seed: int, disorder: int = 0, keys: int = 40) -> pa.Table:
    rng = np.random.default_rng(seed)
    time = np.sort(rng.integers(0, END, ROWS))
    time = time[np.argsort(time + rng.integers(0, disorder + 1, ROWS), kind="stable")]
    columns = {"k": rng.integers(0, keys, ROWS), "x": rng.integers(0, 20, ROWS), "ts": time}
    return pa.table(columns | {"row": np.arange(ROWS)})


SORTED = {name: table(seed) for seed, name in enumerate(NAMES)}
SHUFFLED = {name: table(seed, disorder=9) for seed, name in enumerate(NAMES)}
SPARSE = {name: table(seed, keys=300) for seed, name in enumerate("ab")}
BASE = ss.join("a", "b", "c").on("k").within(WINDOW, time="ts")
PAIR = ss.join("a", "b").on("k").within(WINDOW, time="ts")
BUDGETS: list[Callable[[ss.Join], ss.Join]] = [
    lambda join: join,
    lambda join: join.keep(total=40).shed("oldest"),
]


def rows(results: pa.Table) -> Counter:
    """The row numbers of members, None where there is none."""
    found = (
        tuple(None if row.get(name) is None else row[name]["row"] for name in NAMES if name in row)
        for row in results.to_pylist()
    )
    return Counter(found)


def asked(query: str, data: dict[str, pa.Table] = SORTED) -> Counter:
    con = duckdb.connect()
    for name, part in data.items():
        con.register(name, part)
    return Counter(con.sql(query).fetchall())


SAME = "FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k"
PAIRS = "FROM a JOIN b ON a.k = b.k JOIN c ON b.x = c.x"
NEAR = f"greatest(a.ts, b.ts, c.ts) - least(a.ts, b.ts, c.ts) <= {WINDOW}"


def exact(where: str = "true", data: dict[str, pa.Table] = SORTED, on: str = SAME) -> Counter:
    return asked(f"SELECT a.row, b.row, c.row {on} WHERE {NEAR} AND {where}", data)


def pushed(join: ss.Join, data: dict[str, pa.Table], restart: bool) -> tuple[pa.Table, Any]:
    """What a session makes that is fed in pieces, and goes on from its state after each."""
    schemas = {name: part.schema for name, part in data.items()}
    made, session = [], join.open(schemas)
    for start in range(0, END, 97):
        if restart:
            session = join.open(schemas, state=session.snapshot())
        now = {name: part["ts"].to_numpy() // 97 == start // 97 for name, part in data.items()}
        made.append(session.push({n: part.filter(pa.array(now[n])) for n, part in data.items()}))
    made.append(session.finish())
    return pa.concat_tables(made), session.ledger


def pair(data: dict[str, pa.Table]) -> dict[str, pa.Table]:
    return {name: data[name] for name in "ab"}


ORDERS: list[tuple[Callable[[ss.Join], ss.Join], str]] = [
    (lambda join: join.in_order("a", "b", "c"), "a.ts <= b.ts AND b.ts <= c.ts"),
    (lambda join: join.in_order("c", "a", strictly=True), "c.ts < a.ts"),
    (
        lambda join: join.between("b", "a", 5, 30).between("c", "b", 0, 10),
        "b.ts - a.ts BETWEEN 5 AND 30 AND c.ts - b.ts BETWEEN 0 AND 10",
    ),
    (
        lambda join: join.between("b", "a", -20, 10).between("c", "b", -40, -5),
        "b.ts - a.ts BETWEEN -20 AND 10 AND c.ts - b.ts BETWEEN -40 AND -5",
    ),
]
