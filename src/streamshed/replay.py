"""The runtime in this process: a join over Arrow data, for tests, experiments and archives."""

from __future__ import annotations

import os
import sys
import warnings
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from streamshed.aggregates import UNKNOWN, WHOLE, Weights, aggregated
from streamshed.engine.blocks import Block, Late
from streamshed.engine.budget_parts import Passed
from streamshed.engine.build import build_bulk_operator, build_operator
from streamshed.engine.encoding import times_of
from streamshed.engine.feeds import Aligned, EncodedFeed, Piece, PlainFeed, in_step, pieces
from streamshed.engine.ingest import Ingest, InputRows, merged
from streamshed.engine.observe.marks import Marks
from streamshed.engine.observe.tallies import Floats, tally_of
from streamshed.engine.operator import CHUNK, Operator
from streamshed.engine.payload import PLACE_BITS, Places
from streamshed.engine.results import result_schema
from streamshed.errors import SpecError
from streamshed.estimates import Estimate, Tally
from streamshed.kernels.core import FATES, LATE, NEVER
from streamshed.ledger import Ledger
from streamshed.plan.plan import Plan
from streamshed.plan.resolve import make_plan
from streamshed.plan.routing import axes_of, by_one_key, check_shards
from streamshed.progress import Advance, progress
from streamshed.selection import TIME, Selection
from streamshed.shards import ShardRows, combined, divided, shard_rows
from streamshed.sources import Source, check_order, check_shared, open_source
from streamshed.spec import Spec

NOWHERE: Places = np.empty(0, np.int64)
"""The places of rows that are read, and kept nowhere."""

AHEAD = 2
"""Batches that are read before shards have joined those before them."""

Order = Literal["time", "arrival"]


class LateRowsWarning(UserWarning):
    """Rows came out of order in a join that was not told how late they may come."""


@dataclass(frozen=True)
class Replay:
    """The results of a replay.

    Attributes:
        table: the results as an Arrow table, with a struct column for each selected stream, and
            `time`, the time of the newest row; for a join that aggregates, its aggregates.
        ledger: the accounts of all rows.
        late: for each input the rows that were too late, with the columns that the join needs.

    Example:
        >>> import streamshed as ss
        >>> rows = pa.table({"k": [1, 1, 1], "ts": [10, 2, 9]})
        >>> joined = ss.join("a", "b").on("k").within(5, time="ts", late=3, clock="max")
        >>> result = joined.replay(a=rows, b=rows, order="arrival")
        >>> result.table.num_rows, result.late["a"]["ts"].to_pylist()
        (4, [2])
    """

    table: pa.Table
    ledger: Ledger
    late: Mapping[str, pa.Table]


def replay(
    spec: Spec, data: Mapping[str, Any], order: Order = "time", shards: int | None = None
) -> Replay:
    """Run a join over whole inputs, and gather its results.

    Args:
        spec: the join.
        data: the input of each stream.
        order: whether the rows of tables are joined in the order of their time, or as they stand.
        shards: in how many parts the join is done, each in a thread, as on Spark.
    """
    running = _Running(spec, data, order, shards)
    schema = running.schema
    table = pa.Table.from_batches(list(running.results()), schema)
    late = {
        source.name: pa.Table.from_batches(
            [rows for part in running.late or [] for rows in part[position]], source.schema
        )
        for position, source in enumerate(running.sources)
    }
    return Replay(table, running.ledger(), late)


class Batches(Iterator[pa.RecordBatch]):
    """The results of a join, made as they are asked for.

    Attributes:
        schema: the columns of a result.

    Example:
        >>> import streamshed as ss
        >>> rows = pa.table({"k": [1, 2, 1], "ts": [0, 5, 9]})
        >>> batches = ss.join("a", "b").on("k").within(5, time="ts").replay_batches(a=rows, b=rows)
        >>> batches.schema.names, [batch.num_rows for batch in batches]
        (['a', 'b', 'time'], [3])
    """

    def __init__(self, running: _Running) -> None:
        self.schema: pa.Schema = running.schema
        self._running = running
        self._results = running.results()

    def __next__(self) -> pa.RecordBatch:
        return next(self._results)

    @property
    def ledger(self) -> Ledger:
        """The ledger so far."""
        return self._running.ledger()


def replay_batches(
    spec: Spec,
    data: Mapping[str, Any],
    order: Order = "time",
    shards: int | None = None,
    chunk: int = CHUNK,
) -> Batches:
    """Run a join and hand out its results as they are made, for archives larger than memory.

    Args:
        spec: the join.
        data: the input of each stream.
        order: whether the rows of tables are joined in the order of their time, or as they stand.
        shards: in how many parts the join is done, each in a thread, as on Spark.
        chunk: rows of each input that are read at once.
    """
    return Batches(_Running(spec, data, order, shards, keep_late=False, chunk=chunk))


def count(
    spec: Spec,
    data: Mapping[str, Any],
    order: Order = "time",
    watch: Callable[[Operator], None] | None = None,
    chunk: int = CHUNK,
    shards: int | None = None,
) -> Ledger:
    """Run a join without building its results; returns the ledger, which counts them.

    Args:
        spec: the join.
        data: the input of each stream.
        order: whether the rows of tables are joined in the order of their time, or as they stand.
        watch: is shown the operator after each batch, instead of a progress bar.
        chunk: rows of each input that are read at once.
        shards: in how many parts the join is done, each in a thread, as on Spark.
    """
    running = _Running(spec, data, order, shards, True, False, watch, chunk)
    for _ in running.results():
        pass
    return running.ledger()


def open_inputs(
    spec: Spec, data: Mapping[str, Any], order: Order = "time", counting: bool = False
) -> tuple[Plan, list[Source]]:
    """The plan of a join, and its inputs in the order of the streams, with the columns it needs.

    Args:
        spec: the join.
        data: the input of each stream.
        order: whether the rows of tables come in the order of their time, or as they stand.
        counting: whether results are counted only; what they would be made of is checked all the
            same.
    """
    check_order(order, "replay")
    check_shared(data)
    opened = {name: open_source(name, value) for name, value in data.items()}
    schemas = {name: source.schema for name, source in opened.items()}
    if counting:
        if spec.selection is not None or spec.aggregation is not None:
            make_plan(spec, schemas)
        only_time = Selection.of((TIME,), spec.names())
        spec = replace(spec, selection=only_time, aggregation=None)
    plan = make_plan(spec, schemas)
    sources = []
    for stream in plan.streams:
        source = opened[stream.name].of(stream.schema)
        if order == "time" and source.whole and stream.time is not None:
            source = _in_order_of_time(source, stream.time, plan.time_type)
        sources.append(source)
    return plan, sources


def _in_order_of_time(source: Source, column: str, kind: pa.DataType) -> Source:
    """The same table with its rows in the order of time, those without a time last."""
    where = f"stream {source.name!r}, column {column!r}"
    parts = [times_of(rows.column(0), kind, where) for rows in source.read([column])]
    times = np.concatenate([np.empty(0, np.int64), *(time for time, _ in parts)])
    null = np.concatenate(
        [np.empty(0, np.bool_), *(n if n.size else np.zeros(t.size, np.bool_) for t, n in parts)]
    )
    if not null.any() and (times[1:] >= times[:-1]).all():
        return source
    order = pa.array(np.lexsort((times, null)))

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        whole = pa.Table.from_batches(source.read(columns))
        yield from whole.take(order).combine_chunks().to_batches()

    return replace(source, read=read)


class _Running:
    """A join on its way through its inputs."""

    def __init__(
        self,
        spec: Spec,
        data: Mapping[str, Any],
        order: Order,
        shards: int | None = None,
        counting: bool = False,
        keep_late: bool = True,
        watch: Callable[[Operator], None] | None = None,
        chunk: int = CHUNK,
    ) -> None:
        self.spec = spec
        plan, self.sources = open_inputs(spec, data, order, counting)
        if plan.throttle is not None and plan.throttle.wall:
            raise SpecError(
                ".throttle('keep up') is for live data, on Spark or by .open(); replay has all rows"
                " at once: give .throttle(cpu=…) or .throttle(comparisons_per_second=…)"
            )
        _check_parts(plan, shards)
        self.plan = plan
        labels = tuple(range(shards or 1))
        self.whole = all(source.whole for source in self.sources)
        at_once = self.whole and len(labels) == 1 and order == "time" and watch is None
        # By equalities the results of a span of time are held together: not if they may be many.
        if at_once and (keep_late or counting or not plan.graph):
            self.parts = [build_bulk_operator(plan, whole=keep_late)]
        else:
            plans = [plan] if len(labels) == 1 else divided(plan, labels, os.cpu_count() or 1)
            self.parts = [build_operator(part, whole=keep_late) for part in plans]
        # Keys that may have equal hashes are told apart only when results are built.
        if counting and not self.parts[0].checked:
            for part in self.parts:
                part.count_only()
        self.counting = counting
        self.marks: dict[Operator, Marks] = {}
        self.known: dict[Operator, list[tuple[int, Floats]]] = {}
        if plan.aggregates is not None:
            lengths = plan.aggregates.over, plan.aggregates.every
            for part in self.parts:
                if part.loss is not None:
                    self.marks[part] = Marks(part, part.loss, *lengths)
                    self.known[part] = []
        self.watch = watch
        bulk = self.parts[0].bulk
        self.chunk = chunk if bulk is None else bulk.at_once
        self.late: list[list[list[pa.RecordBatch]]] | None = None
        if keep_late:
            self.late = [[[] for _ in self.sources] for _ in self.parts]
        if self.whole and len(labels) == 1:
            self.parts[0].expect(sum(source.rows or 0 for source in self.sources))

    @property
    def schema(self) -> pa.Schema:
        """The columns of results, or of their aggregates."""
        plan = self.plan
        return result_schema(plan) if plan.aggregates is None else plan.aggregates.schema

    def ledger(self) -> Ledger:
        """What became of the rows so far."""
        return self.parts[0].ledger() if len(self.parts) == 1 else combined(self.parts)

    def results(self) -> Iterator[pa.RecordBatch]:
        """The results as they are made; or their aggregates, once all results are known."""
        plan = self.plan
        if plan.aggregates is None:
            yield from self._results()
            return
        made = pa.Table.from_batches(list(self._results()), result_schema(plan))
        yield from aggregated(made, plan.aggregates, self._sampled(), self._exact).to_batches()

    def _exact(self, begin: int, end: int) -> Estimate | Weights:
        """The results of a window without shedding."""
        if not self.known:
            return UNKNOWN if self.ledger().recall is None else WHOLE
        tally = Tally()
        for known in self.known.values():
            first, last = (bisect_right(known, time, key=itemgetter(0)) for time in (begin, end))
            if last > first:
                tally += tally_of([told for _, told in known[first:last]])
        return tally.estimate()

    def _sampled(self) -> bool:
        """Whether the results are all there are, or meant as a sample of them."""
        if self.plan.throttle is not None:
            return False
        return all(part.shed == 0 for part in self.parts) or self.plan.policy.makes_sample

    def _results(self) -> Iterator[pa.RecordBatch]:
        """The results as they are made."""
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(closing(part))
            advance = stack.enter_context(self._progress())
            if len(self.parts) == 1:
                yield from self._alone(self.parts[0], advance)
            else:
                threads = [ThreadPoolExecutor(1) for _ in self.parts]
                for thread in threads:
                    stack.callback(thread.shutdown, cancel_futures=True)
                yield from self._in_threads(threads, advance)
        self._warn()

    def _progress(self) -> AbstractContextManager[Advance]:
        """A progress bar, unless somebody else watches."""
        if self.watch is not None:
            return nullcontext(lambda _: None)
        known = [source.rows for source in self.sources if source.rows is not None]
        return progress("replay", sum(known) if len(known) == len(self.sources) else None, "rows")

    def _alone(self, part: Operator, advance: Advance) -> Iterator[pa.RecordBatch]:
        """The results of a join that is not divided."""
        feeds = [EncodedFeed(part, *feed) for feed in self._feeds()]
        for rows in in_step(feeds, map if part.bulk is None else part.bulk.map):
            yield from self._handed_out(part, self._processed(part, rows))
            if not self.whole:
                part.compact()
            advance(sum(own.time.size for own in rows))
            if self.watch is not None:
                self.watch(part)
        yield from self._handed_out(part, part.finish())

    def _in_threads(
        self, threads: Sequence[Executor], advance: Advance
    ) -> Iterator[pa.RecordBatch]:
        """The results of all shards, which know the time of all rows after each batch.

        Each has a thread, which takes one batch after the other. The next are read meanwhile.
        """
        newest = [NEVER] * len(self.sources)
        encoder = Ingest(self.plan)
        own = self.parts[0].parts
        leader = None if own is None else own.apart()  # what all shards are told is found once
        working: deque[list[Future[list[pa.RecordBatch]]]] = deque()
        feeds = [PlainFeed(self.plan, *feed) for feed in self._feeds()]
        for steps in _worth_the_while(in_step(feeds), self.chunk):
            known = zip(newest, *([one.newest for one in step] for step in steps), strict=True)
            newest = [max(of) for of in known]
            sharded = [
                shard_rows(encoder, position, one, len(self.parts))
                for step in steps
                for position, one in enumerate(step)
            ]
            streams, counted = zip(*sharded, strict=True)
            passed = None if leader is None else leader.see(filter(None, counted), max(newest))
            working.append(
                [
                    thread.submit(self._shard, part, rows, passed, newest)
                    for thread, part, *rows in zip(threads, self.parts, *streams, strict=True)
                ]
            )
            if len(working) > AHEAD:
                yield from _results_of(working.popleft())
            advance(sum(one.rows.num_rows for step in steps for one in step))
        working.append(
            [
                thread.submit(self._end, part, newest)
                for thread, part in zip(threads, self.parts, strict=True)
            ]
        )
        for batch_results in working:
            yield from _results_of(batch_results)

    def _feeds(self) -> Iterator[tuple[int, pa.Schema, Iterator[Piece]]]:
        """The position of each input, the schema of its rows, and these."""
        for position, source in enumerate(self.sources):
            yield position, source.schema, pieces(position, source, self.chunk, self._keep)

    def _keep(self, position: int, rows: pa.RecordBatch) -> int | None:
        """Let all parts keep rows that are all in memory; returns the place of the first."""
        if not self.whole:
            return None
        for part in self.parts:
            part.payload[position].sharers = len(self.parts)
            segment = part.payload[position].put(rows)
        return segment << PLACE_BITS

    def _shard(
        self,
        part: Operator,
        batch: Sequence[ShardRows],
        passed: Passed | None,
        newest: Sequence[int],
    ) -> list[pa.RecordBatch]:
        """What a shard makes of its rows of a batch."""
        if passed is not None:
            part.pass_in_batch(passed)
        arrived: list[list[InputRows]] = [[] for _ in self.sources]
        for own in batch:
            if own.order.size:
                arrived[own.position].append(own.arrive(part))
        read = [InputRows.concatenated(rows) for rows in arrived if rows]
        made = [*self._found(part, self._processed(part, read))] if read else []
        part.end_batch([[time] for time in newest])
        made += self._found(part, part.left())
        if not self.whole:
            part.compact()
        return made

    def _end(self, part: Operator, newest: Sequence[int]) -> list[pa.RecordBatch]:
        """What a shard makes at the end of the input."""
        part.advance([[time] for time in newest])
        return [*self._found(part, part.left()), *self._found(part, part.finish())]

    def _handed_out(
        self, part: Operator, found: Iterator[Block | Late]
    ) -> Iterator[pa.RecordBatch]:
        """Results as users see them; those of a join in bulk are built several at a time."""
        bulk = part.bulk
        while bulk is not None and (some := [*islice(found, bulk.threads)]):
            blocks = [one for one in some if isinstance(one, Block)]
            built = bulk.map(part.build, blocks)
            for block, (rows, true) in zip(blocks, built, strict=True):
                yield from self._chosen(part.account_for(block, rows, true))
        yield from self._found(part, found)

    def _processed(self, part: Operator, rows: Sequence[InputRows]) -> Iterator[Block | Late]:
        """Let a shard process rows; if aggregates have to know when, in parts."""
        if part not in self.marks:
            yield from part.process_inputs(rows)
            return
        marks = self.marks[part]
        for some in marks.parts(merged(rows)):
            yield from part.process(some)
            self.known[part].append(marks.note())

    def _found(self, part: Operator, found: Iterator[Block | Late]) -> Iterator[pa.RecordBatch]:
        for one in found:
            if isinstance(one, Late):
                self._keep_late(part, one)
            elif not part.counting:
                yield from self._chosen(part.results(one))

    def _chosen(self, results: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Results that are asked for, if there are any."""
        if not self.counting and results.num_rows:
            yield results

    def _keep_late(self, part: Operator, late: Late) -> None:
        if self.late is not None:
            kept = self.late[self.parts.index(part)]
            for position, rows in part.late_rows(late):
                kept[position].append(rows)

    def _warn(self) -> None:
        windows = self.spec.time_windows
        if windows is None or windows.late or not any(map(_has_late_rows, self.parts)):
            return
        late = {name: stream.late for name, stream in self.ledger().accounts.items() if stream.late}
        if late:
            worst = max(late, key=lambda name: late[name])
            warnings.warn(
                f"rows came out of order: {sum(late.values()):,} were left out as late"
                f" ({late[worst]:,} of stream {worst!r}); allow for it, as in"
                " .within(…, late='30 seconds'), or give tables, which are joined in the order of"
                " time",
                LateRowsWarning,
                stacklevel=_level_of_caller(),
            )


def _check_parts(plan: Plan, shards: int | None) -> None:
    """Refuse shards of a join whose rows would have to be copied to several, or go to disk."""
    check_shards(plan, shards)
    if shards is None or shards == 1:
        return
    apart = plan.through is not None and not by_one_key(plan, plan.through)
    reasons = {
        "streams share no key": bool(axes_of(plan)),
        "streams meet through a relation": apart,
        "rows are spilled to disk": plan.spill is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise SpecError(
                f"shards is {shards}, but {reason}, and replay runs such joins in one part;"
                " leave shards out"
            )


def _has_late_rows(part: Operator) -> bool:
    """Whether any row came late; the whole ledger takes longer to make."""
    return bool(part.core.counts.reshape(-1, FATES)[:, LATE].any() or part.others[LATE])


def _level_of_caller() -> int:
    """How many frames up the first one outside this package is, seen from whoever asks."""
    level, frame = 0, sys._getframe()
    while frame.f_globals["__name__"].startswith("streamshed.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level


def _worth_the_while(steps: Iterator[list[Aligned]], least: int) -> Iterator[list[list[Aligned]]]:
    """Steps of all inputs, several at once where they have few rows together.

    Inputs whose pieces end at slightly different times go on one after the other, by a few rows.
    """
    waiting: list[list[Aligned]] = []
    for step in steps:
        waiting.append(step)
        if sum(one.rows.num_rows for some in waiting for one in some) >= least:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _results_of(working: Sequence[Future[list[pa.RecordBatch]]]) -> Iterator[pa.RecordBatch]:
    """The results of a batch, shard by shard."""
    for one in working:
        yield from one.result()
