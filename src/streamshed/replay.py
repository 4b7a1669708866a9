"""The runtime in this process: a join over Arrow data, for tests, experiments and archives."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from streamshed.aggregates import Weights, aggregated
from streamshed.columns import no_rows
from streamshed.engine.batch import Batch
from streamshed.engine.build import build_bulk_operator, build_operator
from streamshed.engine.ingest import InputRows, merged, times_of
from streamshed.engine.operator import CHUNK, Block, Late, Operator
from streamshed.engine.payload import Payload, Places, places_in
from streamshed.engine.results import result_schema
from streamshed.errors import SpecError
from streamshed.ledger import Ledger
from streamshed.plan.plan import Plan
from streamshed.plan.resolve import make_plan
from streamshed.selection import TIME, Selection
from streamshed.shards import Found, Shards, check_replay_shards
from streamshed.sources import Source, check_shared, open_source
from streamshed.spec import Spec

NOWHERE: Places = np.empty(0, np.int64)

Order = Literal["time", "arrival"]


class LateRowsWarning(UserWarning):
    """Rows came out of order in a join that was not told how late they may come."""


@dataclass(frozen=True)
class Replay:
    """What a replay has made.

    Attributes:
        table: the results: one struct column for each stream, as far as selected, and `time`, that
            of the newest member; or, of a join that aggregates, its aggregates.
        ledger: what became of every row.
        late: for each input the rows that came too late, with the columns that the join needs.
    """

    table: pa.Table
    ledger: Ledger
    late: Mapping[str, pa.Table]


def replay(spec: Spec, data: Mapping[str, Any], order: Order = "time", shards: int = 1) -> Replay:
    """Run a join over whole inputs, and gather its results.

    Args:
        spec: the join.
        data: the input of each stream.
        order: whether the rows of tables are joined in the order of their time, or as they stand.
        shards: the parts in which the join is done, each with its part of the budget.
    """
    running = _Running(spec, data, order, shards=shards)
    schema = running.schema
    table = pa.Table.from_batches(list(running.results()), schema)
    late = {
        source.name: pa.Table.from_batches(found, source.schema)
        for source, found in zip(running.sources, running.late or [], strict=True)
    }
    return Replay(table, running.ledger(), late)


class Batches(Iterator[pa.RecordBatch]):
    """The results of a join, made as they are asked for.

    Attributes:
        schema: the columns of a result.
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


def replay_batches(spec: Spec, data: Mapping[str, Any], order: Order = "time") -> Batches:
    """Run a join and hand out its results as they are made, for archives larger than memory."""
    return Batches(_Running(spec, data, order, keep_late=False))


def count(
    spec: Spec,
    data: Mapping[str, Any],
    order: Order = "time",
    watch: Callable[[Operator], None] | None = None,
    chunk: int = CHUNK,
) -> Ledger:
    """Run a join without building its results; returns the ledger, which counts them.

    Args:
        spec: the join.
        data: the input of each stream.
        order: whether the rows of tables are joined in the order of their time, or as they stand.
        watch: is shown the operator after each batch, instead of a progress bar.
        chunk: rows of each input that are read at once.
    """
    running = _Running(spec, data, order, True, False, watch, chunk)
    for _ in running.results():
        pass
    return running.ledger()


def open_inputs(
    spec: Spec, data: Mapping[str, Any], order: Order = "time"
) -> tuple[Plan, list[Source]]:
    """The plan of a join, and its inputs in the order of the streams, with the columns it needs.

    Args:
        spec: the join.
        data: the input of each stream.
        order: whether the rows of tables come in the order of their time, or as they stand.
    """
    if order not in ("time", "arrival"):
        raise SpecError(
            f"`order` is {order!r}; give 'time' or 'arrival'. If a stream is named so, give the "
            "inputs in a mapping, as in replay({'order': …})"
        )
    check_shared(data)
    opened = {name: open_source(name, value) for name, value in data.items()}
    plan = make_plan(spec, {name: source.schema for name, source in opened.items()})
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
        counting: bool = False,
        keep_late: bool = True,
        watch: Callable[[Operator], None] | None = None,
        chunk: int = CHUNK,
        shards: int = 1,
    ) -> None:
        self.spec = spec
        if counting:
            only_time = Selection.of((TIME,), spec.names())
            spec = replace(spec, selection=only_time, aggregation=None)
        plan, self.sources = open_inputs(spec, data, order)
        if plan.throttle is not None and plan.throttle.wall:
            raise SpecError(
                ".throttle('keep up') is for live data, on Spark or by .open(); replay has all rows"
                " at once: give .throttle(cpu=…) or .throttle(comparisons_per_second=…)"
            )
        self.whole = all(source.whole for source in self.sources)
        number = check_replay_shards(plan, shards, self.whole)
        at_once = self.whole and order == "time" and watch is None and number == 1
        # By equalities the results of a span of time are held together: not if they may be many.
        at_once = at_once and (keep_late or counting or not plan.graph)
        if at_once:
            self.operator = build_bulk_operator(plan, whole=keep_late)
        else:
            self.operator = build_operator(plan, whole=keep_late)
        # Keys that may have equal hashes are told apart only when results are built.
        if counting and not self.operator.checked:
            self.operator.count_only()
        self.counting = counting
        self.watch = watch
        self.chunk = chunk
        if self.operator.bulk is not None:
            self.chunk = self.operator.bulk.at_once
        self.late: list[list[pa.RecordBatch]] | None = None
        if keep_late:
            self.late = [[] for _ in self.sources]
        if self.whole:
            self.operator.expect(sum(source.rows or 0 for source in self.sources))
        self.shards = None if number == 1 else Shards(plan, number, self.operator)

    def ledger(self) -> Ledger:
        """The accounts as they stand."""
        return self.operator.ledger() if self.shards is None else self.shards.ledger()

    @property
    def schema(self) -> pa.Schema:
        """The columns of results, or of their aggregates."""
        plan = self.operator.plan
        return result_schema(plan) if plan.aggregates is None else plan.aggregates.schema

    def results(self) -> Iterator[pa.RecordBatch]:
        """The results as they are made; or their aggregates, once all results are known."""
        plan = self.operator.plan
        if plan.aggregates is None:
            yield from self._results()
            return
        made = pa.Table.from_batches(list(self._results()), result_schema(plan))
        weights = Weights.by(self.ledger().recall)
        yield from aggregated(made, plan.aggregates, weights, self._sampled()).to_batches()

    def _sampled(self) -> bool:
        """Whether the results are all there are, or meant as a sample of them."""
        plan = self.operator.plan
        if plan.throttle is not None:
            return False
        shed = self.operator.shed if self.shards is None else self.shards.shed
        return shed == 0 or plan.policy.makes_sample

    def _results(self) -> Iterator[pa.RecordBatch]:
        """The results as they are made."""
        feeds = [
            _Feed(position, source, self.operator, self.whole, self.chunk)
            for position, source in enumerate(self.sources)
        ]
        shown = self.sources if self.watch is None else []
        with _progress(shown) as advance, closing(self.shards or self.operator):
            for batch in _batches(feeds, self.operator):
                if self.shards is not None:
                    yield from self._of_shards(self.shards.process(batch))
                    advance(batch.time.size)
                    continue
                yield from self._handed_out(self.operator.process(batch))
                if not self.whole:
                    self.operator.compact()
                advance(batch.time.size)
                if self.watch is not None:
                    self.watch(self.operator)
            if self.shards is not None:
                yield from self._of_shards(self.shards.finish())
            else:
                yield from self._handed_out(self.operator.finish())
        self._warn()

    def _of_shards(self, found: Iterator[Found]) -> Iterator[pa.RecordBatch]:
        """Results of shards; rows that came too late are kept aside."""
        for of_shard in found:
            for one in of_shard:
                if isinstance(one, pa.RecordBatch):
                    yield from self._chosen(one)
                elif self.late is not None:
                    position, rows = one
                    self.late[position].append(rows)

    def _handed_out(self, found: Iterator[Block | Late]) -> Iterator[pa.RecordBatch]:
        """Results as users see them; those of a join in bulk are built several at a time."""
        bulk = self.operator.bulk
        while bulk is not None and (some := [*islice(found, bulk.threads)]):
            blocks = [one for one in some if isinstance(one, Block)]
            built = bulk.map(self.operator.build, blocks)
            for block, (rows, true) in zip(blocks, built, strict=True):
                yield from self._chosen(self.operator.account_for(block, rows, true))
        yield from self._found(found)

    def _found(self, found: Iterator[Block | Late]) -> Iterator[pa.RecordBatch]:
        for one in found:
            if isinstance(one, Late):
                self._keep_late(one)
            elif not self.operator.counting:
                yield from self._made(one)

    def _made(self, block: Block) -> Iterator[pa.RecordBatch]:
        yield from self._chosen(self.operator.results(block))

    def _chosen(self, results: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Results that are asked for, if there are any."""
        if not self.counting and results.num_rows:
            yield results

    def _keep_late(self, late: Late) -> None:
        if self.late is not None:
            for position, rows in self.operator.late_rows(late):
                self.late[position].append(rows)

    def _warn(self) -> None:
        windows = self.spec.time_windows
        late = {name: stream.late for name, stream in self.ledger().accounts.items() if stream.late}
        if late and windows is not None and windows.late == 0:
            worst = max(late, key=lambda name: late[name])
            warnings.warn(
                f"rows came out of order: {sum(late.values()):,} were left out as late"
                f" ({late[worst]:,} of stream {worst!r}); allow for it, as in"
                " .within(…, late='30 seconds'), or give tables, which are joined in the order of"
                " time",
                LateRowsWarning,
                stacklevel=_level_of_caller(),
            )


def _level_of_caller() -> int:
    """How many frames up the first one outside this package is, seen from whoever asks."""
    level, frame = 0, sys._getframe()
    while frame.f_globals["__name__"].startswith("streamshed.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level


def _batches(feeds: Sequence[_Feed], operator: Operator) -> Iterator[Batch]:
    """Batches in the order of arrival: the streams advance together."""
    bulk = operator.bulk
    while True:
        if bulk is None:
            for feed in feeds:
                feed.fill()
        else:
            bulk.map(_Feed.fill, feeds)
        waiting = [feed for feed in feeds if not feed.at_end]
        # The stream whose known part ends first bounds what can be merged now.
        bound = min(((feed.reach(), feed.position) for feed in waiting), default=None)
        parts = [feed.ready(bound) for feed in feeds]
        if bound is None and not any(part.time.size for part in parts):
            return
        yield merged(parts) if bulk is None else bulk.merge(parts)


@dataclass
class _Feed:
    """One input: the part of it that is read and waits for the other streams.

    Inputs that are all in memory are handed to the operator's payload as they are. Others are
    handed over row by row as they are processed, so that rows that have left can be let go of.
    """

    position: int
    source: Source
    operator: Operator
    whole: bool
    chunk: int
    at_end: bool = False
    pending: InputRows | None = None
    rows: pa.RecordBatch | None = None
    chunks: Iterator[tuple[pa.RecordBatch, Places]] = field(init=False)
    following: tuple[pa.RecordBatch, Places] | None = field(init=False)

    def __post_init__(self) -> None:
        self.chunks = self._chunks()
        self.following = next(self.chunks, None)

    def _chunks(self) -> Iterator[tuple[pa.RecordBatch, Places]]:
        """The rows in pieces of a good size, with their places if they have any yet."""
        for rows in self.source.batches():
            segment = self._payload().put(rows) if self.whole else None
            for start in range(0, rows.num_rows, self.chunk):
                piece = rows.slice(start, self.chunk)
                place = np.arange(start, start + piece.num_rows, dtype=np.int64)
                yield piece, NOWHERE if segment is None else places_in(segment, place)

    def _payload(self) -> Payload:
        return self.operator.payload[self.position]

    def fill(self) -> None:
        """Read on if nothing waits."""
        if self.pending is None:
            self._read(no_rows(self.source.schema), NOWHERE)
        while (
            self.following is not None and self.pending is not None and not len(self.pending.time)
        ):
            self._read(*self.following)
            self.following = next(self.chunks, None)
        self.at_end = self.following is None

    def _read(self, rows: pa.RecordBatch, places: Places) -> None:
        self.rows = rows
        self.pending = self.operator.ingest.read(self.position, rows, places)

    def reach(self) -> int:
        """How far in time the known part of this stream goes."""
        assert self.pending is not None
        return int(self.pending.arrival_time[-1])

    def ready(self, bound: tuple[int, int] | None) -> InputRows:
        """Take the rows that no row still unread can come before.

        Args:
            bound: how far the slowest stream is known, and its position; None if all are read.
        """
        assert self.pending is not None
        assert self.rows is not None
        pending = self.pending
        cut = pending.time.size
        if bound is not None:
            reach, position = bound
            side: Literal["left", "right"] = "right" if self.position <= position else "left"
            cut = int(np.searchsorted(pending.arrival_time, reach, side))
        self.pending = pending.part(cut, pending.time.size)
        taken = pending.part(0, cut)
        if cut and not self.whole:
            taken = taken._replace(payload=self._payload().add(self.rows.slice(0, cut)))
            self.rows = self.rows.slice(cut)
        return taken


class _Advance(Protocol):
    def __call__(self, rows: int) -> None: ...


@contextmanager
def _progress(sources: Sequence[Source]) -> Iterator[_Advance]:
    """A progress bar on a terminal, once the work has taken a second."""
    started = time.monotonic()
    shown: list[Any] = []
    done = 0

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        if sources and not shown and sys.stderr.isatty() and time.monotonic() - started > 1:
            known = [source.rows for source in sources if source.rows is not None]
            shown.extend(_bar(sum(known) if len(known) == len(sources) else None))
        if shown:
            shown[0].update(shown[1], completed=done)

    try:
        yield advance
    finally:
        if shown:
            shown[0].stop()


def _bar(total: int | None) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("replay", BarColumn(), MofNCompleteColumn(), "rows", TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task("replay", total=total)
