"""A join in several parts, its shards: the plan of each, the rows of each, the accounts of all.

Spark runs the shards of a join in tasks, and replay in threads. Both divide rows, budgets and
random numbers in the way that is written here, and so make the same results.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.accounts import estimates
from streamshed.engine.budget_parts import Counted, count_rows
from streamshed.engine.encoding import key_hash, times_of
from streamshed.engine.feeds import Aligned
from streamshed.engine.ingest import EncodedRows, Ingest, InputRows
from streamshed.kernels.hashing import secret_of
from streamshed.kernels.merge import order_by_shard
from streamshed.ledger import Ledger, StreamLedger
from streamshed.plan.plan import BudgetPart, Plan, RelationPlan, StreamPlan, ThrottlePlan

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

_ROUTING = secret_of(0)
"""By which keys are divided. It is not that of the join's own tables, or each shard would have keys
of a kind; and a join with another seed finds its rows where they are."""


# -- plans ----------------------------------------------------------------------------------------


def divided(
    plan: Plan,
    labels: tuple[int, ...],
    cores: int,
    relations: Sequence[RelationPlan] | None = None,
) -> list[Plan]:
    """The plan of each shard: its part of budget and work, and its own random numbers.

    Args:
        plan: the join.
        labels: of the shards.
        cores: how many shards run at once.
        relations: the part of the relation that each shard has, where it is divided.
    """
    shards = len(labels)

    def part(whole: int | None, shard: int) -> int | None:
        return None if whole is None else parts_of(whole, shards)[shard]

    return [
        replace(
            plan,
            streams=tuple(replace(s, rows=part(s.rows, shard)) for s in plan.streams),
            total=part(plan.total, shard),
            memory=plan.memory and replace(plan.memory, nbytes=plan.memory.nbytes // shards),
            throttle=plan.throttle and _part_of_work(plan.throttle, shards, cores),
            through=plan.through if relations is None else relations[shard],
            queue=plan.queue
            and replace(
                plan.queue,
                rows=max(1, part(plan.queue.rows, shard) or 0),
                gap=plan.queue.gap * shards,
            ),
            seed=(plan.seed + shard) % 2**64,
            shards=labels,
            part=_part_that_follows(plan, shard, shards),
        )
        for shard in range(shards)
    ]


def _part_that_follows(plan: Plan, shard: int, shards: int) -> BudgetPart | None:
    """The part of a shard in budgets that follow the rows, if they do."""
    if shards == 1 or plan.moments is None:
        return None
    rows = [stream.rows for stream in plan.streams]
    budgets = (plan.total,) if all(own is None for own in rows) else tuple(rows)
    least = len(plan.streams) if plan.at_least is None else plan.at_least
    return BudgetPart(shard, shards, plan.moments, budgets, least)


def parts_of(whole: int, shards: int) -> list[int]:
    """The part of each shard in a budget.

    Examples:
        >>> parts_of(8, 3)
        [3, 3, 2]
    """
    return [whole // shards + (shard < whole % shards) for shard in range(shards)]


def _part_of_work(throttle: ThrottlePlan, shards: int, cores: int) -> ThrottlePlan:
    """The part of each shard in the work; of a core's time each has as much as was said.

    By the clock on the wall shards have less where they take turns.
    """
    if throttle.wall and throttle.share is not None:
        return replace(throttle, share=throttle.share * min(1.0, cores / shards))
    if throttle.capacity is None:
        return throttle
    return replace(throttle, capacity=throttle.capacity / shards)


# -- rows -----------------------------------------------------------------------------------------


def shards_by_key(stream: StreamPlan, rows: pa.RecordBatch, shards: int) -> npt.NDArray[np.int64]:
    """The number of the shard of each row, by its key."""
    hashed = routing_hash(rows, stream.key, stream.key_types)
    return (hashed % np.uint64(shards)).astype(np.int64)


def routing_hash(
    rows: pa.RecordBatch, columns: Sequence[str], types: Sequence[pa.DataType]
) -> npt.NDArray[np.uint64]:
    """The hash of keys by which shards are found, the same in every run."""
    return key_hash(rows, columns, types, _ROUTING)[0]


def split(
    rows: pa.RecordBatch, shard: npt.NDArray[np.integer[Any]], shards: int
) -> list[pa.RecordBatch]:
    """The rows of each shard, in the order in which they stand.

    Examples:
        >>> parts = split(pa.record_batch({"k": [1, 2, 3]}), np.array([1, 0, 1]), 2)
        >>> [part["k"].to_pylist() for part in parts]
        [[2], [1, 3]]
    """
    if shards == 1:
        return [rows]
    order = np.argsort(shard, kind="stable")
    rows = rows.take(pa.array(order))
    bounds = np.searchsorted(shard[order], np.arange(shards + 1))
    return [
        rows.slice(start, end - start)
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]


class ShardRows(NamedTuple):
    """What a shard gets of some rows of an input, which all shards share."""

    position: int
    """That of the input."""
    first: int | None
    """The place of the first of all rows, if the payload keeps them already."""
    rows: pa.RecordBatch
    encoded: EncodedRows
    order: npt.NDArray[np.int64]
    """Which of them its own are."""

    def arrive(self, join: Operator) -> InputRows:
        """Let the shard's own rows arrive."""
        with join.timed():
            if self.first is None:
                places = join.payload[self.position].add(self.rows.take(pa.array(self.order)))
            else:
                places = self.order + self.first
            return join.ingest.arrive(self.position, self.encoded.take(self.order), places)


def counted_rows(plan: Plan, position: int, rows: pa.RecordBatch, shards: int) -> Counted | None:
    """The rows of an input as shards are told them; None where budgets do not follow them.

    Args:
        plan: the join.
        position: of the input.
        rows: of all shards.
        shards: how many there are.
    """
    if shards == 1 or plan.moments is None:
        return None
    stream = plan.streams[position]
    hashed, no_key = key_hash(rows, stream.key, stream.key_types, _ROUTING)
    assert stream.time is not None
    where = f"stream {stream.name!r}, column {stream.time!r}"
    time, no_time = times_of(rows.column(stream.time), plan.time_type, where)
    return count_rows(position, hashed, no_key, time, no_time, plan.moments, shards)


def shard_rows(
    ingest: Ingest, position: int, aligned: Aligned, shards: int
) -> tuple[list[ShardRows], Counted | None]:
    """The rows of each shard as the loop takes them, in the order in which they stand.

    Returns them, and what `counted_rows` says of all.

    Args:
        ingest: encodes rows; those of all shards are encoded alike.
        position: of the input.
        aligned: the rows of all shards.
        shards: how many there are.
    """
    stream, every, counted = ingest.plan.streams[position], ingest.plan.moments, None
    rows, first = aligned.rows, aligned.place
    order, starts = np.empty(rows.num_rows, np.int64), np.empty(shards + 1, np.int64)
    hashed, no_key = key_hash(rows, stream.key, stream.key_types, _ROUTING)
    encoded = ingest.encode(position, rows)
    ingest.rows_seen[position] += rows.num_rows  # so that errors say where a value stands
    if every is not None:
        time, no_time = encoded.rows.time, encoded.no_time
        counted = count_rows(position, hashed, no_key, time, no_time, every, shards)
    order_by_shard(hashed, starts, order)  # type: ignore[no-untyped-call]
    own = (order[start:end] for start, end in pairwise(starts.tolist()))
    return [ShardRows(position, first, rows, encoded, of) for of in own], counted


# -- accounts -------------------------------------------------------------------------------------

ADDED = (
    "results",
    "state_bytes",
    "payload_bytes",
    "held_bytes",
    "peak_bytes",
    "sample_bytes",
    "relation_bytes",
)
"""What is simply added."""


def combined(shards: Sequence[Operator]) -> Ledger:
    """The accounts of all shards of a join together."""
    parts = [shard.ledger() for shard in shards]
    names = dict.fromkeys(name for part in parts for name in part.streams)
    shed_by = dict.fromkeys(policy for part in parts for policy in part.shed_by)
    throttles = [part.throttle for part in parts if part.throttle is not None]
    harvests = [part.harvest for part in parts if part.harvest is not None]
    return replace(
        parts[0],
        streams={
            name: added([p.streams.get(name, StreamLedger()) for p in parts]) for name in names
        },
        others=added([part.others for part in parts]),
        **{name: sum(getattr(part, name) for part in parts) for name in ADDED},
        **estimates(
            _summed(shard.tally() for shard in shards),
            _summed(shard.tally(lately=True) for shard in shards),
            _summed(shard.key_tally() for shard in shards),
        ),
        sample_rate=min(part.sample_rate for part in parts),
        shed_by={policy: sum(part.shed_by.get(policy, 0) for part in parts) for policy in shed_by},
        importance=_total([part.importance for part in parts]),
        comparisons=_total([part.comparisons for part in parts]),
        throttle=sum(throttles) / len(throttles) if throttles else None,
        capacity=_total([part.capacity for part in parts]),
        harvest=sum(harvests) / len(harvests) if harvests else None,
    )


def added(streams: Sequence[StreamLedger]) -> StreamLedger:
    """The accounts of a stream in several shards together."""
    return StreamLedger(*map(sum, zip(*map(astuple, streams), strict=True)))


def _total(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _summed(tallies: Iterable[Any]) -> Any:
    known = [tally for tally in tallies if tally is not None]
    return reduce(operator.add, known) if known else None
