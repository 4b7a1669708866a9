"""The engine, driven by the oracles' workloads."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

import streamshed as ss
from oracles.graph import Graph
from oracles.rows import Member, Row, Workload, arrival_order, table, tables
from oracles.sketch import EXPECTING
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import InputRows, merged
from streamshed.engine.operator import Operator
from streamshed.ledger import Ledger

Result = tuple[tuple[Member, ...], int]


def spec(workload: Workload) -> ss.Join:
    """The join that a workload's settings describe, in the words of a user."""
    join = ss.join(by="stream") if workload.by else ss.join(*map(str, workload.names))
    join = join.on("k").seed(workload.seed)
    if workload.by:
        kind, size = workload.windows[0]
        if kind == "time":
            own = dict(workload.own)
            said = {"duration": own, "otherwise": size} if own else {"duration": size}
            join = join.within(**said, time="ts", late=workload.late, ahead=workload.ahead)
        if workload.last("") is not None:
            join = join.last(workload.last(""))
    else:
        return _shedding(windowed(join, workload), workload)
    return _shedding(bounded(join, workload), workload)


def windowed(join: ss.Join, workload: Workload) -> ss.Join:
    """A join of named streams with the windows and the budget of a workload."""
    times = {n: w for n, (kind, w) in _windows(workload) if kind == "time"}
    lasts = {str(n): workload.last(n) for n in workload.names if workload.last(n) is not None}
    if times:
        join = join.within(
            times, time="ts", late=workload.late, clock=workload.clock, idle=workload.idle
        )
    if lasts:
        join = join.last(lasts)
    return bounded(join, workload)


def bounded(join: ss.Join, workload: Workload) -> ss.Join:
    """A join with the budget of a workload."""
    if workload.keep_total is not None:
        join = join.keep(total=workload.keep_total)
    if workload.keep_rows is not None:
        rows = {n: r for n, r in zip(workload.names, workload.keep_rows, strict=True) if r}
        join = join.keep(rows={str(name): count for name, count in rows.items()})
    return join


TUNED: dict[str, ss.policies.Policy] = {
    "sketch, sample": ss.policies.Sketch(objective="sample"),
    "sketch, aging": ss.policies.Sketch(aging=True),
    "pairwise, life": ss.policies.Pairwise(life=True),
    "sketch, queue as written": ss.policies.Sketch(queue="paper"),
    "pairwise, queue as written": ss.policies.Pairwise(queue="paper"),
    "existence, completed": ss.policies.Existence(completed="first"),
    "frequency, window": ss.policies.Frequency(scope="window"),
}
"""Policies with other parameters than their names alone stand for."""


def shedding(join: ss.Join, policy: str) -> ss.Join:
    """A join that sheds by a policy of the oracles."""
    return join.shed(column="worth") if policy == "column" else join.shed(TUNED.get(policy, policy))


def _shedding(join: ss.Join, workload: Workload) -> ss.Join:
    if workload.at_least is not None:
        join = join.partial(at_least=workload.at_least)
    if workload.bounded:
        join = shedding(join, workload.policy)
        join = join.estimate(rate=workload.rate)
    return join


def _windows(workload: Workload) -> list[tuple[str, tuple[str, int]]]:
    return [(str(n), w) for n, w in zip(workload.names, workload.windows, strict=True)]


def inputs(workload: Workload) -> dict[str, pa.Table]:
    """The workload's data as replay takes it."""
    if workload.by:
        return {"input": table(workload)}
    return {str(name): rows for name, rows in tables(workload).items()}


def replayed(workload: Workload) -> tuple[list[Result], Ledger]:
    """Results in the order of being made, and the ledger, by replay."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # late rows are expected here
        done = spec(workload).replay(inputs(workload), order="arrival")
    return members(workload, done.table), done.ledger


def members(workload: Workload, results: pa.Table | pa.RecordBatch) -> list[Result]:
    """Results as (members, time), in their order."""
    found: list[Result] = []
    for result in results.to_pylist():
        if workload.by:
            who = [(member["stream"], member["row"]) for member in result["members"]]
        else:
            who = [(n, result[str(n)]["row"]) for n in workload.names if result[str(n)] is not None]
        found.append((tuple(sorted(who)), result["time"]))
    return found


def multiset(results: Sequence[Result]) -> Counter[Result]:
    """Results without their order."""
    return Counter(results)


def driven(
    workload: Workload,
    cuts: Sequence[int],
    restore: bool = False,
    join: ss.Join | None = None,
    data: dict[str, pa.Table] | None = None,
) -> Iterator[tuple[int, list[Result], Ledger, Operator]]:
    """The operator itself, fed in pieces that end at the cuts of the arrival order.

    After each piece: how many tuples have been processed, the results so far, the ledger. With
    `restore`, the operator is thrown away between pieces and made anew from its snapshot's bytes.
    The join and the data are the workload's, unless others are given.
    """
    data = inputs(workload) if data is None else data
    plan = (join or spec(workload)).plan({name: rows.schema for name, rows in data.items()})
    operator = build_operator(plan)
    order = arrival_order(workload)
    results: list[Result] = []
    start = 0
    for end in [*cuts, len(order)]:
        for found in operator.process(piece(operator, workload, data, order[start:end])):
            if isinstance(found, Block):
                results.extend(members(workload, operator.results(found)))
        operator.compact()
        start = end
        yield end, results, operator.ledger(), operator
        if restore:
            saved = Snapshot.from_bytes(operator.snapshot().to_bytes())
            operator = restore_operator(plan, saved)


def piece(
    operator: Operator, workload: Workload, data: dict[str, pa.Table], rows: Sequence[Row]
) -> object:
    """Rows in the order of their arrival, as the operator takes them."""
    parts: list[InputRows] = []
    for position, name in enumerate(data):
        if workload.by:
            first = operator.ingest.rows_seen[0]
            part = data[name].slice(first, len(rows))
        else:
            chosen = [row.row for row in rows if str(row.stream) == name]
            part = data[name].take(pa.array(chosen, pa.int64()))
        batch = part.combine_chunks().to_batches()
        empty = pa.RecordBatch.from_pylist([], schema=part.schema)
        parts.append(operator.read(position, batch[0] if batch else empty))
    if len(parts) > 1:
        # Within a piece the oracle's order is kept: the running maximum alone would not do for an
        # arbitrary interleaving.
        places: dict[str, list[int]] = {name: [] for name in data}
        for place, row in enumerate(rows):
            places[str(row.stream)].append(place)
        parts = [
            part._replace(arrival_time=np.array(places[name], np.int64))
            for part, name in zip(parts, data, strict=True)
        ]
    return merged(parts)


slow_generation = settings(
    max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

COUNTS = ("arrived", "stored", "expired", "shed", "filtered", "late", "queued")


def same_ledger(ours: Ledger, theirs: Mapping[Any, Any]) -> None:
    """Assert that each stream has the counts that the oracle gives it."""
    for name, stream in theirs.items():
        expected = [getattr(stream, count) for count in COUNTS]
        if any(expected):
            found = ours.streams[name]
            assert [getattr(found, count) for count in COUNTS] == expected, name


def within_budget(workload: Workload, ledger: Ledger) -> None:
    """Assert that no more is stored than the workload's budget allows."""
    stored = {name: stream.stored for name, stream in ledger.streams.items()}
    if workload.keep_total is not None:
        assert sum(stored.values()) <= workload.keep_total
    if workload.keep_rows is not None:
        for name, most in zip(workload.names, workload.keep_rows, strict=True):
            assert most is None or stored[name] <= most


def mostly_slow(values: Sequence[str], *quick: str) -> list[Any]:
    """Parameters of which only some are in `make test`: each compiles a loop of its own."""
    slow = pytest.mark.slow
    return [one if one in quick else pytest.param(one, marks=slow) for one in values]


GRAPH_POLICIES = ("random", "oldest", "column", *EXPECTING)
"""The policies that have a plain version for joins by a graph of equalities."""


def graph_spec(graph: Graph) -> ss.Join:
    """The join by equalities that a graph's workload describes."""
    workload = graph.workload
    join = ss.join(*map(str, workload.names)).on(*graph.conditions()).seed(workload.seed)
    join = windowed(join, workload)
    return shedding(join, workload.policy) if workload.bounded else join


# -- two small streams ----------------------------------------------------------------------------

TWO = ss.join("a", "b").on("k").within(5, time="ts")


def stream(seed: int, rows: int = 300, keys: int = 30) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, rows, rows))
    key = [f"k{number}" for number in random.integers(0, keys, rows)]
    return pa.table({"k": key, "ts": times, "row": np.arange(rows)})


def pairs(results: pa.Table) -> list[tuple[int, int]]:
    """The rows of both members, in the order of the results."""
    return [(result["a"]["row"], result["b"]["row"]) for result in results.to_pylist()]
