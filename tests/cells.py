"""Joins drawn from the capability table, and the data that they are tried on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed.plan.capabilities import Kind

ROWS, WINDOW, LAST = 400, 60, 30
BOTH, LAST_OF_BOTH = "time and row windows of one stream", 20
"""In 60 units of time 24 rows come on average: so either window is the shorter one at times."""


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "k": rng.integers(0, 40, ROWS),
            "x": rng.integers(0, 40, ROWS),
            "v": rng.random(ROWS) * 40,
            "w": rng.random(ROWS),
            "ts": np.sort(rng.integers(0, 1_000, ROWS)),
            "row": np.arange(ROWS),
        }
    )


NAMED = {name: table(seed) for seed, name in enumerate("abc")}
TOGETHER = pa.concat_tables(
    [rows.append_column("stream", pa.array([name] * ROWS)) for name, rows in NAMED.items()]
).sort_by([("ts", "ascending"), ("stream", "ascending")])
FACTS = pa.table(
    {
        "p": np.random.default_rng(7).integers(0, 40, 60),
        "q": np.random.default_rng(8).integers(0, 40, 60),
        "r": np.random.default_rng(9).integers(0, 40, 60),
    }
)

BASES: dict[Kind, Callable[[], ss.Join]] = {
    "shared key": lambda: ss.join("a", "b", "c").on("k"),
    "equalities": lambda: ss.join("a", "b", "c").on("a.k = b.k", "b.x = c.x"),
    "condition": lambda: ss.join("a", "b", "c").on(ss.near("v", 0.5)),
    "relation": lambda: (
        ss.join("a", "b", "c").on(a="k", b="x", c="k").through(FACTS, a="p", b="q", c="r")
    ),
    "streams by a column": lambda: ss.join(by="stream").on("k").partial(at_least=2),
}


def in_bytes(join: ss.Join) -> ss.Join:
    """A budget for some thirty rows, besides the tables of the join."""
    tables = 144_500 if join._spec.pairwise is not None else 600
    if join._spec.unmatched:
        tables = 2_360_000  # what was shed, and room for rows to be handed out
    return join.keep(memory=tables + 9_000).shed("oldest").estimate(rate=0)


IN_BYTES = "`keep(memory=…)`"
FACTORISED = "one output for each arrival (`factorised`)"
SAYS: dict[str, Callable[[ss.Join], ss.Join]] = {
    "time windows": lambda join: join,
    "row windows": lambda join: join,
    "time and row windows of one stream": lambda join: join,
    "`keep(rows=…)`": lambda join: join.keep(rows=12),
    "`keep(total=…)`": lambda join: join.keep(total=30),
    IN_BYTES: in_bytes,
    "`queue` with a rate": lambda join: join.queue(rows=8).throttle(rows_per_second=0.6),
    "`throttle` by work or time": lambda join: join.throttle(comparisons_per_second=0.8, every=50),
    "partial results": lambda join: join.partial(at_least=2),
    "importance (`weigh`)": lambda join: join.weigh(column="w"),
    "`spill`": lambda join: join.keep(total=30).spill(to=tempfile.mkdtemp()),
    "order in time (`in_order`, `between`)": lambda join: join.in_order("a", "b"),
    "rows without a match (`unmatched`)": lambda join: join.unmatched("a", "b"),
    "first results (`first`)": lambda join: join.first(per="key"),
    FACTORISED: lambda join: join.factorised(),
    "selection": lambda join: join.select("time"),
    "aggregates": lambda join: join,  # of the same results, see `check_aggregates`
}


def expanded(outputs: pa.Table) -> list[dict[str, Any]]:
    """The results that outputs stand for: all choices of a member from each list."""
    found = []
    for output in outputs.to_pylist():
        lists = {name: members for name, members in output.items() if isinstance(members, list)}
        rest = {name: value for name, value in output.items() if name not in lists}
        if "members" in lists:
            first, *partners = lists["members"]
            by_stream: dict[str, list[Any]] = {}
            for partner in partners:
                by_stream.setdefault(partner["stream"], []).append(partner)
            found += [
                rest | {"members": [first, *chosen]} for chosen in product(*by_stream.values())
            ]
        else:
            choices = product(*(members or [None] for members in lists.values()))
            found += [dict(zip(lists, chosen, strict=True)) | rest for chosen in choices]
    return found


def said(kind: Kind, *features: str) -> ss.Join:
    """The join of a kind that asks for some features; by default it has time windows."""
    return asking(BASES[kind](), *features)


def asking(join: ss.Join, *features: str) -> ss.Join:
    """The join when it asks for some features; by default it has time windows."""
    if {"time windows", "row windows"} <= {*features}:
        join = join.within({"a": WINDOW}, time="ts").last({"b": LAST, "c": LAST}, time="ts")
    elif BOTH in features:
        join = join.within(WINDOW, time="ts").last(LAST_OF_BOTH)
    elif "row windows" in features:
        join = join.last(LAST, time="ts")
    else:
        join = join.within(WINDOW, time="ts")
    for feature in sorted(features, key=IN_BYTES.__eq__):  # the last: all others need memory
        join = SAYS[feature](join)
    return join.seed(3)


def data(kind: Kind) -> dict[str, pa.Table]:
    """The inputs of a join of a kind."""
    return {"input": TOGETHER} if kind == "streams by a column" else NAMED


def pieces(
    inputs: dict[str, pa.Table], starts: Sequence[int] = range(0, 1_000, 97)
) -> Iterator[list[tuple[int, pa.RecordBatch]]]:
    """The inputs in pieces that begin at some times: the position of each input, and its rows."""
    for start, end in pairwise([*starts, 1_000]):
        parts = []
        for position, rows in enumerate(inputs.values()):
            times = rows["ts"].to_numpy()
            chosen = rows.filter(pa.array((times >= start) & (times < end)))
            batch = chosen.combine_chunks().to_batches()
            if batch:
                parts.append((position, batch[0]))
        yield parts
