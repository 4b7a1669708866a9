"""Throttled joins, watched in the course of time, and the baseline that drops rows at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import streamshed as ss
from streamshed.columns import no_rows
from streamshed.engine.batch import Batch
from streamshed.engine.build import build_operator
from streamshed.engine.gate.harvest_fractions import Directions
from streamshed.engine.gate.random_drop import best_rates
from streamshed.engine.gate.throttle import Controller
from streamshed.engine.gate.throttle_state import (
    CAPACITY,
    NEXT_DUE,
    POPPED,
    PUSHED,
    SPENT,
    TAKEN,
    THROTTLE,
    TOLD,
)
from streamshed.engine.ingest import merged
from streamshed.engine.match.pairs import AGREED, COMPARED, TALLIES
from streamshed.engine.operator import Operator
from streamshed.kernels.core import NEWEST
from streamshed_lab.workloads import LaggingWorkload

SECOND = 1_000_000
WINDOW = 20.0
"""Seconds, of all streams."""
EPSILON = 1.0


@dataclass(frozen=True)
class Span:
    """What was done from a time to another.

    Attributes:
        results: made.
        comparisons: made in the time, those for which rows waited when it began included.
        arrived: rows that came.
        shed: rows that were dropped or shed.
        throttle: the part of the full join that was done at the end.
    """

    results: int
    comparisons: int
    arrived: int
    shed: int
    throttle: float


def epsilon_join(streams: Sequence[str]) -> ss.Join:
    """The join of section VI-B, without a throttle."""
    within = f"{WINDOW:g} seconds"
    join = ss.join(*streams).on(ss.near("value", EPSILON))
    return join.within(within, time="time", clock="max").select("time")


def watched(
    join: ss.Join,
    tables: Mapping[str, pa.Table],
    edges: Sequence[float],
    afresh: bool = False,
    unbounded: bool = False,
) -> list[Span]:
    """Run a join, and say what it has done between times.

    Args:
        join: what to do.
        tables: the streams, in the order of time.
        edges: the times, in seconds; the first span begins with the first of them.
        afresh: whether it then begins with a throttle of 1 again.
        unbounded: whether it has time for all until then, so that nobody waits.
    """
    plan = join.plan({name: table.schema for name, table in tables.items()})
    operator: Operator = build_operator(plan, whole=False)
    parts = [
        operator.read(position, _one_batch(table)) for position, table in enumerate(tables.values())
    ]
    batch = merged(parts)
    cuts = np.searchsorted(batch.time, [edge * SECOND for edge in edges])
    states, start = [], 0
    throttle, allowed = operator.throttle, np.inf
    if throttle is not None and unbounded:
        allowed = float(throttle.state.pace[CAPACITY])
        throttle.state.pace[CAPACITY] = np.inf
    for cut in cuts:
        piece = Batch._make(column[start:cut] for column in batch)
        for _ in operator.process(piece):
            pass
        states.append(_state(operator))
        if throttle is not None and start == 0:
            if afresh:
                throttle.state.pace[THROTTLE] = 1.0
            if unbounded:
                _bound(throttle, allowed, round(edges[0] * SECOND))
        start = cut
    return [
        Span(
            results=after.results - before.results,
            comparisons=after.comparisons - before.comparisons,
            arrived=after.arrived - before.arrived,
            shed=after.shed - before.shed,
            throttle=after.throttle,
        )
        for before, after in pairwise(states)
    ]


def _bound(throttle: Controller, allowed: float, time: int) -> None:
    """Bound the work of a join from a time on, as if it had not been looked at before."""
    state = throttle.state
    state.pace[[SPENT, TAKEN]] = 0.0
    state.pace[CAPACITY] = allowed
    state.told.reshape(-1, TOLD)[:, [PUSHED, POPPED]] = 0
    state.steps[NEXT_DUE] = time + throttle.throttle.every


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch; one without rows, which has none, as a batch without rows."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else no_rows(table.schema)


def _state(operator: Operator) -> Span:
    ledger = operator.ledger()
    waiting = 0.0
    if isinstance(operator, Operator) and operator.throttle is not None:
        waiting = operator.throttle.waiting(int(operator.core.numbers[NEWEST]))
    return Span(
        results=ledger.results,
        comparisons=(ledger.comparisons or 0) - round(waiting),
        arrived=sum(stream.arrived for stream in ledger.streams.values()),
        shed=sum(stream.shed for stream in ledger.streams.values()),
        throttle=1.0 if ledger.throttle is None else ledger.throttle,
    )


@cache
def full_span(work: LaggingWorkload) -> Span:
    """What the full join does, once its windows are full."""
    (span,) = watched(epsilon_join(work.names), work.tables(), [WINDOW, work.seconds])
    return span


def full_load(work: LaggingWorkload) -> float:
    """The comparisons of the full join in a second."""
    return full_span(work).comparisons / (work.seconds - WINDOW)


@cache
def selectivities(work: LaggingWorkload) -> tuple[tuple[float, ...], ...]:
    """By (direction, stream): the part of rows that agree, as the full join finds it."""
    join, tables = epsilon_join(work.names), work.tables()
    plan = join.plan({name: table.schema for name, table in tables.items()})
    operator = build_operator(plan, whole=False)
    parts = [
        operator.read(position, _one_batch(table)) for position, table in enumerate(tables.values())
    ]
    for _ in operator.process(merged(parts)):
        pass
    lanes = len(work.names)
    met = operator.matcher.state.selectivity.tallies.reshape(lanes, lanes, TALLIES).astype(
        np.float64
    )
    share = (met[:, :, AGREED] + 0.05) / (met[:, :, COMPARED] + 100.0)
    return tuple(map(tuple, share.tolist()))


def random_drop(work: LaggingWorkload, known: LaggingWorkload, comparisons: float) -> Span:
    """RandomDrop: the streams thinned out at the best rates, then joined in full.

    Args:
        work: the streams.
        known: like streams at a low rate, from which the selectivities are known.
        comparisons: what the join may cost in a second, once its windows are full. The estimate of
            the cost is scaled until this is met, to within a few percent.
    """
    rate = float(work.rates[-1][1])
    lanes = len(work.names)
    share = np.array(selectivities(known))
    by_share = [np.argsort(row, kind="stable") for row in share]
    orders = np.array([order[order != i] for i, order in enumerate(by_share)])
    directions = Directions(
        np.full(lanes, rate),
        np.full(orders.shape, rate * WINDOW),
        np.take_along_axis(share, orders, axis=1),
        np.ones(orders.shape, np.int64),
        np.ones((lanes, lanes - 1, 2)),
    )
    tables, scale = work.tables(), 1.0
    wanted = comparisons * (work.seconds - WINDOW)
    for _ in range(6):
        let_in = best_rates(directions, orders, comparisons * scale)
        (span,) = watched(
            epsilon_join(work.names), thinned(tables, let_in, work.seed), [WINDOW, work.seconds]
        )
        off = span.comparisons / wanted
        if abs(off - 1) < 0.02 or (off < 1 and (let_in >= 1).all()):
            break
        scale /= max(off, 0.1)  # where next to nothing is let in nothing may be compared
    return span


def thinned(
    tables: Mapping[str, pa.Table], let_in: npt.NDArray[np.float64], seed: int
) -> dict[str, pa.Table]:
    """Of each stream a random part."""
    random = np.random.default_rng([seed, 12])
    return {
        name: table.filter(pa.array(random.random(table.num_rows) < part))
        for (name, table), part in zip(tables.items(), let_in, strict=True)
    }
