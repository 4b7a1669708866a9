"""The runtime in this process: a join over Arrow data, for tests, experiments and archives."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from streamshed.aggregates import Weights, Windows, aggregated
from streamshed.columns import no_rows
from streamshed.engine.batch import Batch
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import InputRows, merged
from streamshed.engine.operator import CHUNK, Block, Late, Operator
from streamshed.engine.payload import Payload, Places, places_in
from streamshed.engine.results import result_schema
from streamshed.errors import InputError, SpecError
from streamshed.join import Join
from streamshed.ledger import Ledger
from streamshed.sources import Source, open_source

NOWHERE: Places = np.empty(0, np.int64)


class LateRowsWarning(UserWarning):
    """Rows came out of order in a join that was not told how late they may come."""


@dataclass(frozen=True)
class Replay:
    """What a replay has made.

    Attributes:
        table: the results: one struct column for each stream, as far as selected, and `time`, that
            of completion.
        ledger: what became of every tuple.
        late: for each input the rows that came too late, with the columns that the join needs.
        sampled: whether the results are all there are, or meant as a sample of them.
    """

    table: pa.Table
    ledger: Ledger
    late: Mapping[str, pa.Table]
    sampled: bool = True

    def aggregate(
        self,
        of: str,
        over: str | timedelta | int,
        every: str | timedelta | int | None = None,
        quantiles: Sequence[float] = (0.25, 0.5, 0.75),
    ) -> pa.Table:
        """Count, sum and average a column of the results in windows of time, with quantiles.

        Args:
            of: the column, as in `"clicks.price"`.
            over: the length of a window.
            every: how far apart windows end, at multiples of this; as long as they are if not said.
            quantiles: the parts of results for which the value is asked up to which they lie.

        Returns:
            A row for each window (begin, end]: how many results it has; and, each with the bounds
            of a 95 % interval, `count`, `sum`, `average` and quantiles of all results, those that
            were shed included as far as that is known. Bounds are null where nothing is known.

        Examples:
            >>> import pyarrow as pa, streamshed as ss
            >>> rows = pa.table({"k": [1, 2, 1], "ts": [1, 2, 3], "v": [10, 20, 40]})
            >>> done = ss.join("a", "b").on("k").within(0, time="ts").replay(a=rows, b=rows)
            >>> done.aggregate("a.v", over=10)["average"].to_pylist()
            [23.333333333333332]
        """
        windows = Windows.of_results(self.table.schema, of, over, every, quantiles)
        return aggregated(self.table, windows, Weights.by(self.ledger.recall), self.sampled)


def replay(join: Join, data: Any, streams: Mapping[str, Any]) -> Replay:
    """Run a join over whole inputs, and gather its results.

    Args:
        join: what to do.
        data: the input whose streams a column tells apart, or a mapping from streams to inputs.
        streams: or the input of each stream. An input is an Arrow table, record batch or reader, a
            pandas or Polars frame, a DuckDB relation, the path of a Parquet file, or an iterator
            of record batches.
    """
    running = _Running(join, _sources(join, data, streams))
    batches = list(running.results())
    schema = result_schema(running.operator.plan)
    late = {
        source.name: pa.Table.from_batches(found, source.schema)
        for source, found in zip(running.sources, running.late or [], strict=True)
    }
    table = pa.Table.from_batches(batches, schema)
    plan = running.operator.plan
    whole = running.operator.shed == 0 and plan.throttle is None
    sampled = whole or (plan.policy.makes_sample and plan.throttle is None)
    return Replay(table, running.operator.ledger(), late, sampled)


class Batches(Iterator[pa.RecordBatch]):
    """The results of a join, made as they are asked for.

    Attributes:
        schema: the columns of a result.
    """

    def __init__(self, running: _Running) -> None:
        self.schema: pa.Schema = result_schema(running.operator.plan)
        self._running = running
        self._results = running.results()

    def __next__(self) -> pa.RecordBatch:
        return next(self._results)

    @property
    def ledger(self) -> Ledger:
        """What became of the rows so far."""
        return self._running.operator.ledger()


def replay_batches(join: Join, data: Any, streams: Mapping[str, Any]) -> Batches:
    """Run a join and hand out its results as they are made, for archives larger than memory."""
    return Batches(_Running(join, _sources(join, data, streams), keep_late=False))


def count(join: Join, data: Any, streams: Mapping[str, Any]) -> Ledger:
    """Run a join without building its results; returns the ledger, which counts them."""
    running = _Running(join, _sources(join, data, streams), counting=True, keep_late=False)
    for _ in running.results():
        pass
    return running.operator.ledger()


def _sources(join: Join, data: Any, streams: Mapping[str, Any]) -> list[Source]:
    """The inputs in the order of the join's streams; all that can be checked is checked here."""
    if data is not None and streams:
        raise InputError(
            "inputs were given both by position and by name; give them by name, as in"
            " replay(a=…, b=…), or one mapping or input by position"
        )
    given: Mapping[str, Any] = streams
    if data is not None:
        given = data if isinstance(data, Mapping) else {"input": data}
        if join.by is None and not isinstance(data, Mapping):
            raise InputError(
                f"one input was given by position, but the join has the streams"
                f" {', '.join(map(repr, join.streams))}; give each by its name, as in"
                f" replay({join.streams[0]}=…)"
            )
    opened = {name: open_source(name, value) for name, value in given.items()}
    join.plan({name: source.schema for name, source in opened.items()})
    return [opened[name] for name in (join.streams or opened)]


class _Running:
    """A join on its way through its inputs."""

    def __init__(
        self, join: Join, sources: list[Source], counting: bool = False, keep_late: bool = True
    ) -> None:
        self.join = join
        said = join.select("time") if counting else join
        plan = said.plan({source.name: source.schema for source in sources})
        if plan.throttle is not None and plan.throttle.wall:
            raise SpecError(
                ".throttle('keep up') is for rows that come as time goes by, on Spark; replay has "
                "them all at once: give .throttle(cpu=…) or .throttle(comparisons_per_second=…)"
            )
        self.operator = build_operator(plan, whole=keep_late)
        # Keys that may have equal hashes are told apart only when results are built.
        if counting and not self.operator.checked:
            self.operator.count_only()
        self.counting = counting
        self.late: list[list[pa.RecordBatch]] | None = [[] for _ in sources] if keep_late else None
        self.whole = all(source.whole for source in sources)
        self.sources = [
            source.of(stream.schema) for source, stream in zip(sources, plan.streams, strict=True)
        ]
        if self.whole:
            self.operator.expect(sum(source.rows or 0 for source in sources))

    def results(self) -> Iterator[pa.RecordBatch]:
        """The results, as they are made."""
        feeds = [
            _Feed(position, source, self.operator, self.whole)
            for position, source in enumerate(self.sources)
        ]
        with _progress(self.sources) as advance, closing(self.operator):
            for batch in _batches(feeds):
                yield from self._found(self.operator.process(batch))
                if not self.whole:
                    self.operator.compact()
                advance(batch.time.size)
            yield from self._found(self.operator.finish())
        self._warn()

    def _found(self, found: Iterator[Block | Late]) -> Iterator[pa.RecordBatch]:
        for one in found:
            if isinstance(one, Late):
                self._keep_late(one)
            elif not self.operator.counting:
                yield from self._made(one)

    def _made(self, block: Block) -> Iterator[pa.RecordBatch]:
        results = self.operator.results(block)
        if not self.counting and results.num_rows:
            yield results

    def _keep_late(self, late: Late) -> None:
        if self.late is not None:
            for position, rows in self.operator.late_rows(late):
                self.late[position].append(rows)

    def _warn(self) -> None:
        windows = self.join.time_windows
        late = {
            name: stream.late
            for name, stream in self.operator.ledger().streams.items()
            if stream.late
        }
        if late and windows is not None and windows.late == 0:
            worst = max(late, key=lambda name: late[name])
            warnings.warn(
                f"rows came out of order: {sum(late.values()):,} were left out as late"
                f" ({late[worst]:,} of stream {worst!r}); say how late rows may come, as in"
                " .within(…, late='30 seconds'), or sort them by time",
                LateRowsWarning,
                stacklevel=_level_of_caller(),
            )


def _level_of_caller() -> int:
    """How many frames up the first one outside this package is, seen from whoever asks."""
    level, frame = 0, sys._getframe()
    while frame.f_globals["__name__"].startswith("streamshed.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level


def _batches(feeds: Sequence[_Feed]) -> Iterator[Batch]:
    """Batches in the order of arrival: the streams advance together."""
    while True:
        for feed in feeds:
            feed.fill()
        waiting = [feed for feed in feeds if not feed.at_end]
        # The stream whose known part ends first bounds what can be merged now.
        bound = min(((feed.reach(), feed.position) for feed in waiting), default=None)
        parts = [feed.ready(bound) for feed in feeds]
        if bound is None and not any(part.time.size for part in parts):
            return
        yield merged(parts)


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
            for start in range(0, rows.num_rows, CHUNK):
                piece = rows.slice(start, CHUNK)
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
        """Take the tuples that no tuple still unread can come before.

        Args:
            bound: how far the slowest stream is known, and its position; None if all are read.
        """
        assert self.pending is not None
        assert self.rows is not None
        tuples = self.pending
        cut = tuples.time.size
        if bound is not None:
            reach, position = bound
            side: Literal["left", "right"] = "right" if self.position <= position else "left"
            cut = int(np.searchsorted(tuples.arrival_time, reach, side))
        self.pending = tuples.part(cut, tuples.time.size)
        taken = tuples.part(0, cut)
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
        if not shown and sys.stderr.isatty() and time.monotonic() - started > 1:
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
