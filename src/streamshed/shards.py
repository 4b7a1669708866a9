"""A join in this process in several shards, side by side on threads.

The rows of a key are all in one shard; each shard is a join of its own with its part of the budget,
as on Spark. Compiled code does not hold Python's lock, so that shards work at the same time, while
the next batch is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa

from streamshed.arguments import positive
from streamshed.engine.batch import Batch
from streamshed.engine.build import build_operator
from streamshed.engine.bulk import cores
from streamshed.engine.operator import Late, Operator
from streamshed.errors import SpecError
from streamshed.kernels.core import NEVER
from streamshed.ledger import Keys, Ledger, StreamLedger
from streamshed.plan.plan import Plan
from streamshed.plan.routing import check_shards, plan_of_shard

Found = list[pa.RecordBatch | tuple[int, pa.RecordBatch]]
"""What a shard makes of a batch: results, and rows of an input that came too late."""


class Shards:
    """The shards of a join, each an operator, and what they make of the rows of all.

    Args:
        plan: the whole join.
        shards: how many shards there are.
        front: reads the inputs, and keeps the users' rows for all shards.
    """

    def __init__(self, plan: Plan, shards: int, front: Operator) -> None:
        labels = tuple(range(shards))
        self.plan, self.front = plan, front
        self.joins = [self._join(plan_of_shard(plan, shard, labels)) for shard in labels]
        self.pool = ThreadPoolExecutor(min(shards, cores()))
        self.at_work: list[Future[Found]] = []

    def _join(self, plan: Plan) -> Operator:
        join = build_operator(plan)
        join.payload, join.ingest = self.front.payload, self.front.ingest
        join.expect(self.front.expected // len(plan.shards))
        return join

    def count_only(self) -> None:
        """Let results be counted, and not handed out."""
        for join in self.joins:
            join.count_only()

    def process(self, batch: Batch) -> Iterator[Found]:
        """Let the shards begin with a batch; returns what they made of the one before it."""
        parts = self._split(batch)
        seen = self._newest(batch)
        yield from self._finished()
        self.at_work = [
            self.pool.submit(_work, join, part, seen)
            for join, part in zip(self.joins, parts, strict=True)
        ]

    def finish(self) -> Iterator[Found]:
        """There is no more input: make what results are still to be made."""
        yield from self._finished()
        yield from self.pool.map(_finish, self.joins)

    def close(self) -> None:
        """Give back what the shards have outside of memory."""
        self.pool.shutdown()
        for join in self.joins:
            join.close()

    def _finished(self) -> Iterator[Found]:
        found = [shard.result() for shard in self.at_work]
        self.at_work = []
        yield from found

    def _split(self, batch: Batch) -> list[Batch]:
        """The rows of each shard, by the hash of their keys."""
        shard = batch.hash % np.uint64(len(self.joins))
        size = batch.time.size
        places = [np.flatnonzero(shard == number) for number in range(len(self.joins))]
        return [
            Batch._make(column[place] if len(column) == size else column for column in batch)
            for place in places
        ]

    def _newest(self, batch: Batch) -> list[list[int]]:
        """The newest time of each input in a batch: shards that see none of it hear of it."""
        known = ~batch.null if batch.null.size else np.ones(batch.time.size, np.bool_)
        inputs = np.zeros_like(batch.stream) if self.plan.by is not None else batch.stream
        newest = np.full(len(self.plan.streams), NEVER)
        np.maximum.at(newest, inputs[known], batch.time[known])
        return [[int(time)] for time in newest]

    @property
    def shed(self) -> int:
        """Rows shed so far."""
        return sum(join.shed for join in self.joins)

    def ledger(self) -> Ledger:
        """The accounts of all shards together."""
        ledgers = [join.ledger() for join in self.joins]
        summed = {
            name: sum(getattr(ledger, name) for ledger in ledgers)
            for name in ("results", "state_bytes", "held_bytes", "peak_bytes", "sample_bytes")
        }
        comparisons = [ledger.comparisons for ledger in ledgers if ledger.comparisons is not None]
        weights = [ledger.importance for ledger in ledgers if ledger.importance is not None]
        names = dict.fromkeys(name for ledger in ledgers for name in ledger.streams)
        return replace(
            ledgers[0],
            streams={
                name: _summed(
                    [ledger.streams[name] for ledger in ledgers if name in ledger.streams]
                )
                for name in names
            },
            others=_summed([ledger.others for ledger in ledgers]),
            shed_by={
                name: sum(ledger.shed_by.get(name, 0) for ledger in ledgers)
                for name in dict.fromkeys(name for ledger in ledgers for name in ledger.shed_by)
            },
            comparisons=sum(comparisons) if comparisons else None,
            importance=sum(weights) if weights else None,
            **summed,
            **self._estimates(),
        )

    def _estimates(self) -> dict[str, Any]:
        """What the samples of all shards say together."""
        tally = _sum_if_known([join.tally() for join in self.joins])
        lately = _sum_if_known([join.tally(lately=True) for join in self.joins])
        keys = _sum_if_known([join.key_tally() for join in self.joins])
        return {
            "missed": tally and tally.missed(),
            "missed_lately": lately and lately.missed(),
            "keys": keys and Keys(keys.made(), keys.exact()),
            "sample_rate": min(join.sample_rate for join in self.joins),
        }


def check_replay_shards(plan: Plan, shards: object, whole: bool) -> int:
    """Refuse a number of shards into which a join cannot be divided in this process.

    Args:
        plan: the join.
        shards: what was said.
        whole: whether all inputs are tables or frames.
    """
    number = positive(shards, "replay(): `shards`")
    if number == 1:
        return number
    check_shards(plan, number)
    if not plan.by_whole_keys:
        raise SpecError(
            f"shards is {number}, but the streams of this join share no key by which rows could be"
            " divided among threads; leave shards out, or join on Spark, which copies rows"
        )
    if plan.spill is not None:
        raise SpecError(
            f"shards is {number}, but .spill(…) divides its rows into partitions itself; leave"
            " shards out"
        )
    if plan.windows is not None:
        raise SpecError(
            f"shards is {number}, but streams named by a column have windows of their own here;"
            " leave shards out, or give one window for all"
        )
    if not whole:
        raise SpecError(
            f"shards is {number}, but an input is read as it comes; give tables or frames, or leave"
            " shards out"
        )
    return number


def _work(join: Operator, batch: Batch, seen: Sequence[Sequence[int]]) -> Found:
    """What a shard makes of its rows; then its clock goes on by the time of all shards."""
    found: Found = []
    for one in join.process(batch):
        if isinstance(one, Late):
            found += join.late_rows(one)
        elif not join.counting:
            found.append(join.results(one))
    join.advance(seen)
    return found + [join.results(block) for block in join.left()]


def _finish(join: Operator) -> Found:
    return [join.results(one) for one in join.finish() if not isinstance(one, Late)]


def _sum_if_known(tallies: Sequence[Any]) -> Any:
    """The sum of what all shards know; None if one of them does not."""
    return None if any(tally is None for tally in tallies) else reduce(add, tallies)


def _summed(accounts: Sequence[StreamLedger]) -> StreamLedger:
    """The accounts of one stream in several shards."""
    names = [part.name for part in fields(StreamLedger)]
    return StreamLedger(*(sum(getattr(one, name) for one in accounts) for name in names))
