"""One shard of a join inside Spark's stateful operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, fields, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from streamshed.engine.batch import Batch
from streamshed.engine.blocks import Block
from streamshed.engine.budget_parts import Counted
from streamshed.engine.checkpoint import from_ipc
from streamshed.engine.ingest import InputRows, in_order_of_time, merged
from streamshed.engine.observe.marks import Marks
from streamshed.engine.operator import Operator
from streamshed.engine.results import result_schema
from streamshed.kernels.core import NEVER
from streamshed.ledger import Ledger, StreamLedger
from streamshed.plan.plan import Plan
from streamshed.policies import NAMED, ByColumn
from streamshed.shards import ADDED, divided
from streamshed.spark.blobs import COUNTED, to_blobs
from streamshed.spark.changes import CHANGES, with_own_changes
from streamshed.spark.late import LateFiles, late_warning, logger
from streamshed.spark.savepoint import Resumed, Savepoint
from streamshed.spark.sharding import Sharding
from streamshed.spark.shipping import Kernels
from streamshed.spark.store import Live, Store
from streamshed.spark.windows import KNOWN, known_row, with_nothing_known
from streamshed.spark.workers import begin_task, end_task

OUTPUT = (
    "rows binary, counts array<long>, sampled array<double>, importance double,"
    " paced array<double>, spilled array<double>, combined array<double>"
)
"""Blobs of results, and with the last of a shard and batch, or alone, the shard's accounts, what
its sample says, how important its results are, what its throttle is, what it has spilled, and of
joins in clusters what the batch would make of all clusters together."""

TOTALS = (*ADDED, "comparisons", "shuffle_bytes", "written_bytes", "nanoseconds")
"""What the accounts hold before the counts of each stream; after them, `SHED_BY`. The last three
are those of a batch: bytes of rows that came, and of state that was written, and its time."""

Blob = tuple[int, int, int, int, bytes]
"""A blob: its stream, part and number, the newest time that is known with it, and its rows."""
_NOTHING = dict.fromkeys(
    ("rows", "counts", "sampled", "importance", "paced", "spilled", "combined")
)
SENT_BYTES = 4 << 20
"""Bytes of blobs that are sent to Java at once: each time takes some milliseconds."""

RESULTS_BYTES = 8 << 20
"""Bytes of results that are made at once, about: they are copied several times on their way."""

FATES = tuple(field.name for field in fields(StreamLedger))
"""What can become of rows."""

SHED_BY = (*sorted(NAMED), ByColumn.name, "throttle", "deadline")
"""The policies by which rows may be shed, and what else may."""


class JoinProcessor(StatefulProcessor):
    """Runs the join on the blobs of a shard.

    Args:
        plan: the join.
        sharding: its shards.
        late_to: the folder for rows that come too late, if any.
        ends: whether there is one batch only, after which nothing comes.
        resume: the savepoint whose rows it begins with, if any; they come as the initial state.
    """

    kernels = Kernels()
    """Those that workers need not compile."""

    def __init__(
        self,
        plan: Plan,
        sharding: Sharding,
        late_to: str | None = None,
        ends: bool = False,
        resume: Savepoint | None = None,
    ) -> None:
        self.ends = ends
        self.plan = plan
        self.sharding = sharding
        self.late_to = late_to
        self.resume = resume
        self.refreshed = sharding.versions is not None
        self.held: dict[int, dict[int, list[bytes]]] = {}

    def init(self, handle: Any) -> None:
        """Open the state, and plan each shard."""
        sharding = self.sharding.in_task()
        self.store = Store(handle, sharding)
        self.plans = self.plan_shards(sharding)

    def plan_shards(self, sharding: Sharding) -> dict[int, Plan]:
        """The plan of each shard, by its label."""
        return shard_plans(self.plan, sharding)

    def handleInitialState(  # noqa: N802 - Spark's name
        self,
        key: Any,
        initialState: pd.DataFrame,  # noqa: N803 - Spark's name
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> None:
        """Take rows of a savepoint that belong to a shard, which its first batch begins with."""
        for row in initialState.itertuples(index=False):
            of_shard = self.held.setdefault(int(key[0]), {})
            of_shard.setdefault(row.stream, []).append(bytes(row.rows))

    def _begin(self, label: int) -> Callable[[Live], None]:
        """What is done with the join of a shard that has no state yet."""
        if self.resume is None:
            return lambda live: None
        first = label == next(iter(self.plans))
        return Resumed(self.resume, first, self.held.pop(label, {}))

    def _plan_at(self, label: int, blob: Any) -> Plan:
        """The plan of a shard in the batch of a blob: a table may have been read anew."""
        plan, versions = self.plans[label], self.sharding.versions
        parts = None if versions is None else versions.at(blob.moment)
        if parts is None:
            return plan
        shard = [*self.plans].index(label)
        return replace(plan, through=parts[shard if len(parts) > 1 else 0])

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Process the blobs of one shard in one batch."""
        self.kernels.adopt()  # not before: Spark opens the state on the driver too, without files
        begin_task()
        label = int(key[0])
        came = [row for frame in rows for row in frame.itertuples(index=False)]
        blobs = sorted(
            (row.stream, row.part, row.number, row.newest, bytes(row.rows)) for row in came
        )
        plan = self._plan_at(label, came[0])
        self.moment = came[0].moment if plan.on_wall else None
        received = sum(len(row.rows) for row in came)
        del came
        started = time.perf_counter_ns()
        state = self.store.open(with_own_changes(plan), self._begin(label))
        if changes := [from_ipc(data) for stream, *_, data in blobs if stream == CHANGES]:
            state.change(changes)
            blobs = [blob for blob in blobs if blob[0] != CHANGES]
        self._begin_batch(state.join, blobs)
        blobs = [blob for blob in blobs if blob[0] != COUNTED]
        late = LateFiles(self.late_to, state.lineage, state.version) if self.late_to else None
        late_before = _late(state.join.ledger())
        waiting: list[bytes] = []
        with state.join.timed():
            for results in self.results(label, state.join, blobs, late):
                for blob in to_blobs(self._in_full(results)):
                    waiting.append(blob)
                    if sum(map(len, waiting)) > SENT_BYTES:
                        yield only_blobs(waiting[:-1])
                        del waiting[:-1]
            if late is not None:
                late.close()
            written = self.store.save(state)
        spent = time.perf_counter_ns() - started
        ledger = state.join.ledger()
        if (said := late_warning(late_before, _late(ledger), late is not None)) is not None:
            logger.warning("shard %s: %s", list(self.plans).index(label), said)
        told = self.told(label, state.join, _accounts(state.join, ledger, received, written, spent))
        end_task(received)
        if waiting[:-1]:
            yield only_blobs(waiting[:-1])
        yield made(rows=waiting[-1] if waiting else None, **told)

    def told(self, label: int, join: Operator, counts: list[int | None]) -> dict[str, Any]:
        """The accounts of a shard, by column of the output.

        Args:
            label: of the shard.
            join: the shard's.
            counts: what it has counted.
        """
        ledger = join.ledger()
        pace = [ledger.throttle, ledger.capacity, ledger.harvest]
        return {
            "counts": counts,
            "sampled": _sampled(join),
            "importance": ledger.importance,
            "paced": None if ledger.throttle is None else pace,
            "spilled": _spilled(ledger),
        }

    def _begin_batch(self, join: Operator, blobs: list[Blob]) -> None:
        """Tell the shard what is known of the rows of all shards."""
        told = [data for stream, *_, data in blobs if stream == COUNTED]
        counted = [Counted.of_rows(from_ipc(data)) for data in told]
        join.begin_batch(counted, max((newest for *_, newest, _ in blobs), default=NEVER))

    def results(
        self,
        label: int,
        join: Operator,
        blobs: list[Blob],
        late: LateFiles | None,
    ) -> Iterator[pa.RecordBatch]:
        """The results of the blobs of a shard."""
        parts: list[list[InputRows]] = [[] for _ in join.plan.streams]
        newest: list[dict[int, int]] = [{} for _ in parts]
        for position, part, _, time_seen, data in blobs:
            newest[position][part] = max(newest[position].get(part, NEVER), time_seen)
            rows = from_ipc(data)
            if rows.num_rows:
                parts[position].append(join.read(position, rows))
        waiting = [in_order_of_time(InputRows.concatenated(tuples)) for tuples in parts if tuples]
        if waiting:
            batch = merged(waiting)
            if join.queue is not None and self.moment is not None:
                join.queue.come_until(batch.time.size, self.moment)
            yield from self._made_and_told(label, join, batch, late)
        join.end_batch([[*times.values()] for times in newest])
        for block in join.left():
            yield from _results(join, block)
        if self.ends:
            join.advance([[*times.values()] for times in newest])
            for found in join.finish():
                if isinstance(found, Block):
                    yield from _results(join, found)

    def _made_and_told(
        self, label: int, join: Operator, batch: Batch, late: LateFiles | None
    ) -> Iterator[pa.RecordBatch]:
        """The results, and if they are aggregated what is known of those of each window."""
        windows = join.plan.aggregates
        if windows is None or join.loss is None:
            yield from self.made(join, batch, late)
            return
        marks = Marks(join, join.loss, windows.over, windows.every)
        for part in marks.parts(batch):
            yield from self.made(join, part, late)
            yield known_row(result_schema(join.plan), label, *marks.note())

    def made(
        self,
        join: Operator,
        batch: Batch,
        late: LateFiles | None,
        note: Callable[[Block], None] = lambda block: None,
    ) -> Iterator[pa.RecordBatch]:
        """What a join makes of tuples; late ones are written, and each block is noted."""
        for found in join.process(batch):
            if isinstance(found, Block):
                if len(found.time):
                    note(found)
                yield from _results(join, found)
            elif late is not None:
                for position, late_rows in join.late_rows(found):
                    late.write(join.plan.streams[position].name, late_rows)

    def _in_full(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Results with all columns: where they are aggregated there is one more."""
        if self.plan.aggregates is None or KNOWN in results.schema.names:
            return results
        return with_nothing_known(results)

    def close(self) -> None:
        """Nothing to close, the state store is Spark's; every shard has had rows, maybe none."""
        assert not self.held, "a shard was given rows of a savepoint, and no batch"


def _results(join: Operator, block: Block) -> Iterator[pa.RecordBatch]:
    """The results of a block, piece by piece if rows are wide."""
    row = sum(payload.nbytes() / max(1, payload.rows) for payload in join.payload)
    for part in block.split(max(1, int(RESULTS_BYTES / max(1.0, row)))):
        results = join.results(part)
        if results.num_rows:
            yield results


def made(**told: Any) -> pd.DataFrame:
    """A row of the output, of which some columns are told.

    Spark sends each DataFrame to Java as soon as it is made, but all plain rows of a shard at once.
    """
    return pd.DataFrame([_NOTHING | told], dtype=object)


def only_blobs(blobs: Sequence[bytes]) -> pd.DataFrame:
    """Rows of the output that have blobs of results and nothing else."""
    return pd.DataFrame([_NOTHING | {"rows": blob} for blob in blobs], dtype=object)


def _late(ledger: Ledger) -> dict[object, int]:
    """The rows of each stream that came too late."""
    return {name: stream.late for name, stream in ledger.accounts.items()}


def _accounts(
    join: Operator, ledger: Ledger, received: int, written: int, spent: int
) -> list[int | None]:
    counts = np.array([astuple(stream) for stream in ledger.accounts.values()], np.int64)
    if join.plan.by is not None:
        counts = counts.reshape(-1, len(FATES)).sum(axis=0)
    totals = [getattr(ledger, name) for name in TOTALS[:-3]]
    shed = [ledger.shed_by.get(policy, 0) for policy in SHED_BY]
    return [*totals, received, written, spent, *counts.ravel().tolist(), *shed]


def _sampled(join: Operator) -> list[float] | None:
    """The sample's rate, and its tallies as plain numbers; None if nothing is estimated."""
    tally, lately = join.tally(), join.tally(lately=True)
    if tally is None or lately is None:
        return None
    keys = join.key_tally()
    counted = [] if keys is None else astuple(keys)
    return [join.sample_rate, *astuple(tally), *astuple(lately), *counted]


def _spilled(ledger: Ledger) -> list[float] | None:
    """What was spilled as plain numbers, delays added; None if nothing can be."""
    spilled = ledger.spilled
    if spilled is None:
        return None
    return [float(n) for n in astuple(replace(spilled, delay=spilled.delay * spilled.results))]


def shard_plans(plan: Plan, sharding: Sharding) -> dict[int, Plan]:
    """The plan of each shard, by its label."""
    relations = None if sharding.cells is None else sharding.cells.parts
    labels = sharding.labels
    plans = divided(plan, labels, sharding.cores, relations)
    return dict(zip(labels, plans, strict=True))
