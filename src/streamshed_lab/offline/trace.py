"""What a clairvoyant knows: all rows in the order of their arrival, and where each is of use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.columns import no_rows
from streamshed.engine.batch import Batch
from streamshed.engine.blocks import Late
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import InputRows, merged
from streamshed.engine.operator import Operator
from streamshed.engine.payload import Places
from streamshed.errors import SpecError, StreamshedError
from streamshed.join import Join, spec_of
from streamshed.kernels.core import BOUNDLESS
from streamshed.plan.plan import Plan
from streamshed.replay import Order, open_inputs
from streamshed.sources import Source

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NOWHERE: Places = np.empty(0, np.int64)

MOST_PAIRS = 50_000_000
"""Pairs of rows that could meet: beyond this the work no longer fits an ordinary memory."""


class Trace(NamedTuple):
    """The rows that take part, in the order of their arrival: row *i* is the *i*-th arrival."""

    stream: Ints
    time: Ints
    key: Ints
    """Numbered from 0: rows with equal keys have equal numbers."""
    pool: Ints
    """The budget that a row counts against."""
    budgets: list[int | None]
    """Of each pool."""
    windows: Ints
    """Of each stream: the length of its time window, BOUNDLESS for row windows."""
    lasts: list[int | None]
    """Of each stream: the rows of its row window."""
    ordered: bool
    """Whether no row is older than one that arrived before it."""


class Uses(NamedTuple):
    """Which rows are of use to which arrivals, by (row, arrival).

    A row is of use to an arrival of another stream with which it may stand in a result: it must
    then have been kept from its own arrival until this one.
    """

    row: Ints
    arrival: Ints
    candidates: Ints
    """For each arrival and stream: how many rows of the stream are of use to it (for its own: 1).
    """

    def combinations(self) -> Floats:
        """For each arrival the results that it completes if nothing was shed.

        Where rows come out of order these may be a few too many: each member is then within
        the window of the arrival, but perhaps not of another member.
        """
        count: Floats = np.prod(self.candidates, axis=1, dtype=np.float64)
        return count


def read(join: Join, data: Mapping[str, Any], order: Order = "time") -> Trace:
    """Take the inputs of a join as a replay would, in the order of time or of arrival.

    Raises:
        SpecError: for partial joins, whose results change when a member is shed, and for joins
            through a relation.
    """
    spec = spec_of(join.select("time"))
    if spec.through_relation is not None:
        raise SpecError(
            "the most results are known for joins on a shared key, and this one goes .through() a"
            " relation; for two streams see streamshed_lab.offline.star"
        )
    if spec.graph() is not None:
        raise SpecError(
            "the most results are known for joins on a shared key, and these streams are joined by"
            " equalities between pairs; name one key, as in .on('k')"
        )
    if spec.by is not None or spec.at_least is not None:
        raise SpecError(
            "the most results are known for complete joins only, and this one is partial"
            f" ({'streams named by a column' if spec.by else '.partial()'}); give a join of"
            " named streams without .partial()"
        )
    if spec.budget is not None and spec.budget.memory is not None:
        raise SpecError(
            "the most results are known for budgets in rows, and this one is in bytes; use"
            " .keep(rows=…) or .keep(total=…)"
        )
    plan, sources = open_inputs(spec, data, order)
    operator = _unbounded(plan)
    parts = [_rows(operator, position, source) for position, source in enumerate(sources)]
    batch = merged(parts)
    taken = ~batch.null if batch.null.size else np.ones(batch.time.size, np.bool_)
    times = batch.time[taken]
    if np.any(times[1:] < times[:-1]):
        taken[_late(operator, batch)] = False
    return _trace(plan, batch, np.flatnonzero(taken))


def _unbounded(plan: Plan) -> Operator:
    """The join without its budget, and without its rows."""
    streams = tuple(replace(stream, rows=None) for stream in plan.streams)
    unbounded = replace(plan, streams=streams, total=None)
    return build_operator(unbounded, whole=False)


def _rows(operator: Operator, position: int, source: Source) -> InputRows:
    nothing = no_rows(source.schema)
    whole = InputRows.concatenated(
        [operator.ingest.read(position, rows, NOWHERE) for rows in (nothing, *source.batches())]
    )
    return whole._replace(payload=np.zeros(whole.time.size, np.int64))


def _late(operator: Operator, batch: Batch) -> Ints:
    """The arrivals that come too late, by the word of the join's own loop.

    Lateness does not depend on what is stored. So the loop is run without a budget, on keys that
    never meet.
    """
    numbers = np.arange(batch.time.size)
    apart = batch._replace(hash=numbers.astype(np.uint64), payload=numbers)
    found = [late.payload for late in operator.process(apart) if isinstance(late, Late)]
    return np.concatenate([*found, np.empty(0, np.int64)])


def _trace(plan: Plan, batch: Batch, taken: Ints) -> Trace:
    stream = batch.stream[taken].astype(np.int64)
    time = batch.time[taken]
    budgets = [plan.total] if plan.total is not None else [row.rows for row in plan.streams]
    windows = [BOUNDLESS if row.window is None else row.window for row in plan.streams]
    return Trace(
        stream=stream,
        time=time,
        key=np.unique(batch.hash[taken], return_inverse=True)[1].astype(np.int64),
        pool=stream if plan.total is None else np.zeros_like(stream),
        budgets=list(budgets),
        windows=np.array(windows, np.int64),
        lasts=[row.last for row in plan.streams],
        ordered=bool(np.all(time[1:] >= time[:-1])),
    )


def uses_of(trace: Trace) -> Uses:
    """Find which rows are of use to which arrivals."""
    row, arrival = _meetings(trace)
    rows, streams = trace.time.size, len(trace.lasts)
    meeting = arrival * streams + trace.stream[row]
    candidates = np.bincount(meeting, minlength=rows * streams).reshape(rows, streams)
    candidates[np.arange(rows), trace.stream] = 1
    complete = np.all(candidates > 0, axis=1)
    candidates[~complete] = 0
    kept = complete[arrival]
    return Uses(row[kept], arrival[kept], candidates)


def _meetings(trace: Trace) -> tuple[Ints, Ints]:
    """Pairs of a row and a later arrival of its key, each within the other's window."""
    rows = trace.time.size
    by_key = np.argsort(trace.key, kind="stable")
    # Rows of a key stand together, in the order of arrival: those that a row may meet follow it.
    standing = trace.key[by_key] * rows + by_key
    ends = np.searchsorted(standing, trace.key[by_key] * rows + _ends(trace)[by_key])
    following = np.maximum(ends - np.arange(1, rows + 1), 0)
    pairs = int(following.sum())
    if pairs > MOST_PAIRS:
        raise StreamshedError(
            f"{pairs:,} pairs of rows have equal keys within a window, more than the"
            f" {MOST_PAIRS:,} that can be planned for at once; give fewer rows or shorter windows"
        )
    row = np.repeat(by_key, following)
    first = np.repeat(np.cumsum(following) - following, following)
    place = np.repeat(np.arange(1, rows + 1), following) + np.arange(pairs) - first
    arrival = by_key[place]
    meet = trace.stream[row] != trace.stream[arrival]
    newest = np.maximum(trace.time[row], trace.time[arrival])
    for one in (row, arrival):
        meet &= newest - trace.time[one] <= trace.windows[trace.stream[one]]
    row, arrival = row[meet], arrival[meet]
    order = np.lexsort((arrival, row))
    return row[order], arrival[order]


def _ends(trace: Trace) -> Ints:
    """For each row the first arrival from which on no other is within its window.

    The clock need not be followed: an arrival *t* that is not late leaves it at the larger of
    time(t) and what it was, at most time(t) + late. So a row that it lets expire is older than *t*
    by more than its window, and could not stand in a result with it anyway.
    """
    rows = trace.time.size
    soonest = np.minimum.accumulate(trace.time[::-1])[::-1]  # the oldest row still to come
    ends = np.searchsorted(soonest, trace.time + trace.windows[trace.stream], side="right")
    for stream, last in enumerate(trace.lasts):
        if last is not None:
            mine = np.flatnonzero(trace.stream == stream)
            ends[mine] = rows
            ends[mine[:-last]] = mine[last:]
    return ends


def listed_results(trace: Trace, uses: Uses, arrivals: npt.NDArray[np.bool_]) -> Ints:
    """List the results that some arrivals complete if nothing was shed.

    Returns:
        For each result and stream the use of its member; -1 for the stream of the arrival.
    """
    rows, streams = uses.candidates.shape
    own = trace.stream
    by_arrival = np.lexsort((trace.stream[uses.row], uses.arrival))
    stored = uses.candidates.copy()
    stored[np.arange(rows), own] = 0
    start = (np.cumsum(stored) - stored.ravel()).reshape(rows, streams)
    each = np.where(arrivals, uses.combinations(), 0).astype(np.int64)
    arrival = np.repeat(np.arange(rows), each)
    number = np.arange(arrival.size) - np.repeat(np.cumsum(each) - each, each)
    members = np.full((arrival.size, streams), -1, np.int64)
    for stream in range(streams):
        choices = uses.candidates[arrival, stream]
        other = own[arrival] != stream
        place = start[arrival, stream] + number % np.maximum(choices, 1)
        members[other, stream] = by_arrival[place[other]]
        number //= np.maximum(choices, 1)
    if trace.ordered:
        return members
    times = np.repeat(trace.time[arrival][:, None], streams, axis=1)
    times[members >= 0] = trace.time[uses.row[members[members >= 0]]]
    return members[np.all(times.max(axis=1)[:, None] - times <= trace.windows, axis=1)]
