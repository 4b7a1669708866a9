"""A running join: its components put together, driven batch by batch, saved and restored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.columns import shown_names
from streamshed.engine.allocation import (
    allowed,
    directory,
    empty_core,
    enough,
    first_shape,
    roomier,
)
from streamshed.engine.batch import (
    AT,
    IDLE,
    NEXT,
    NO_NUMBERS,
    PROBED,
    STAGE,
    UNWEIGHTED,
    Batch,
    allocate_work,
)
from streamshed.engine.checkpoint import (
    KEYS,
    MARKS,
    ROWS,
    TIME,
    Delta,
    Head,
    SegmentName,
    Snapshot,
    names_as_arrays,
)
from streamshed.engine.clock import agreed_time
from streamshed.engine.collisions import Collisions
from streamshed.engine.compaction import Compaction, compact_segments
from streamshed.engine.component import Arrays, Component
from streamshed.engine.gate.hooks import InMemory, NoQueue, Unthrottled
from streamshed.engine.gate.queue import ArrivalQueue
from streamshed.engine.gate.throttle import Controller
from streamshed.engine.gate.throttle_state import LOOP, REST
from streamshed.engine.ingest import Ingest, InputRows, StreamNames
from streamshed.engine.loop import (
    DONE,
    DUE,
    ROUND_OVER,
    advance,
    evict_to_budget,
    read_marks,
    restore_rows,
    run,
    withdraw,
)
from streamshed.engine.match.matcher import Matcher
from streamshed.engine.match.relation_matcher import RelationMatcher
from streamshed.engine.observe.estimator import LossEstimator, is_estimated
from streamshed.engine.observe.hooks import NotEstimated
from streamshed.engine.observe.tallies import Estimator
from streamshed.engine.payload import Payload, Places
from streamshed.engine.restore import (
    OF_KEYS,
    STORED_ROW,
    Rows,
    in_order,
    in_use,
    kept,
    link_unused,
    list_rows,
    read_again,
)
from streamshed.engine.results import NO_UPDATES, UPDATES, build_results
from streamshed.engine.sink import LATECOMERS, MADE, MEMBERS, NO_MEMBERS, allocate_buffer
from streamshed.engine.unmatched import hand_out_stored
from streamshed.estimates import KeyTally, Tally
from streamshed.kernels.core import (
    ARRIVALS,
    ARRIVED,
    CLOCK,
    FATES,
    FIRST_SEEN,
    KEYS_USED,
    LEFT,
    MOST_AT_ONCE,
    NEWEST,
    NONE,
    OVERDUE,
    PEAK,
    PEAK_BYTES,
    RESULTS,
    ROW,
    ROWS_USED,
    RUN_ROWS,
    RUN_STREAM,
    RUN_TIME,
    SHED,
    STORED,
    TOTAL_IMPORTANCE,
    Field,
    Memory,
    Shape,
    core_layout,
    grown,
    make,
)
from streamshed.ledger import Keys, Ledger, StreamLedger
from streamshed.plan.plan import Plan, WindowPlan
from streamshed.policies import Exact, Policy
from streamshed.selection import KEY

if TYPE_CHECKING:
    from streamshed.engine.bulk import Bulk
    from streamshed.engine.gate.spill import DiskSpill
    from streamshed.engine.match.running_relation import RunningRelation

CHUNK = MOST_AT_ONCE
OUTPUT = 1 << 16
"""Results in the output buffer."""
GONE = 1 << 10
"""Streams told apart by a column are forgotten when so many, and half of all, are gone."""

CORE, POLICY = "core.", "policy."
"""What the names of the arrays begin with."""


class Block(NamedTuple):
    """Some results: for each its time, and the places of its members' rows.

    `ends` says where each result's members end where their number varies; `updates` which arrivals
    made the results, and which they extend, where a column names the streams; `payload` where the
    members' rows are kept. In a partial join whose keys have to be checked, `known` has what is
    known of each member, and `unfinished` whether more results of the last arrival follow. Of rows
    without a match `certain` says whether they have none for sure; it is None where members match.
    """

    time: npt.NDArray[np.int64]
    members: Places
    ends: npt.NDArray[np.int64]
    payload: Sequence[Payload]
    importance: npt.NDArray[np.float64] = UNWEIGHTED
    updates: npt.NDArray[Any] = NO_UPDATES
    known: npt.NDArray[Any] = NO_MEMBERS
    unfinished: bool = False
    certain: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Late:
    """Rows that came too late: of which stream, and where they are kept."""

    stream: npt.NDArray[np.int32]
    payload: Places


class Operator:
    """A running join.

    `streamshed.engine.build.build_operator` puts it together.

    Args:
        plan: the join, checked against its inputs.
        ingest: reads its inputs.
        matcher: finds the partners of rows.
        whole: whether all columns of the plan are kept: checkpoints and late rows need them.
        memory: where the arrays are.

    Attributes:
        counting: whether results are only counted, and not handed out.
    """

    def __init__(
        self, plan: Plan, ingest: Ingest, matcher: Matcher, whole: bool, memory: Memory
    ) -> None:
        self.plan, self.ingest, self.matcher, self.memory = plan, ingest, matcher, memory
        self.checked = matcher.is_checked
        with_keys = self.checked or KEY in plan.besides
        timed = bool(plan.unmatched)
        self.payload = [Payload(stream.kept(with_keys, whole, timed)) for stream in plan.streams]
        self.policy: Policy = plan.policy if plan.bounded else Exact()
        self.shape = first_shape(plan)
        lanes = self.shape.lanes
        self.core = empty_core(plan, self.shape, memory, CORE)
        layout = self.policy.layout(self.shape)
        self.state: Any = make(self.policy.state, layout, self.shape, memory, POLICY)
        self.policy.prepare(self.state, plan)
        self.loss: Estimator | None = None
        if is_estimated(plan) and plan.makes_products:
            self.loss = LossEstimator(plan, self.shape, memory)
        self.observer: Any = NotEstimated()
        self.throttle: Controller | None = None
        if plan.throttle is not None:
            self.throttle = Controller(plan, plan.throttle, self.shape, memory)
        self.queue: ArrivalQueue | None = None
        if plan.queue is not None:
            self.queue = ArrivalQueue(plan, plan.queue, ingest, self.shape, memory)
        self.spill: DiskSpill | None = None
        self.router: Any = InMemory()
        self.work = allocate_work(0, lanes, plan.by is not None)
        width = self.core.settings.width
        # Where members may have the hash of other keys, a partial result may be without them.
        self.collisions = Collisions(plan) if self.checked and plan.at_least else None
        self.out: Any = self._buffer(width)
        self.left_unfinished = False
        self.rejected = 0
        self.rejected_importance = 0.0
        self.expected = 0
        self.counting = False
        self.restored = 0
        self.processed = 0
        self.others = np.zeros(FATES, np.int64)
        self.warmed = plan.throttle is None or plan.throttle.share is None
        self.failed: Exception | None = None
        self.bulk: Bulk | None = None

    @property
    def components(self) -> list[Component]:
        """The components that have arrays of their own, besides the store and the policy."""
        parts = self.matcher, self.loss, self.throttle, self.queue, self.spill
        return [component for component in parts if component is not None]

    @property
    def sample_rate(self) -> float:
        """The part of all keys that is followed at least; 0 if nothing is estimated."""
        return 0.0 if self.loss is None else self.loss.rate

    def warm(self) -> None:
        """Have everything compiled that this join will need, by running it on nothing."""
        nothing = self.ingest.empty_batch()
        self._make_room(1)
        if self.loss is not None:
            self.loss.warm(self.core, nothing)
        list(self._run(nothing))
        if self.plan.unmatched:
            hand_out_stored(self.core, NO_NUMBERS)
        for anew in (True, False):
            self.store_again(Rows(nothing, NO_NUMBERS), anew)
        link_unused(self.core)
        evict_to_budget(self.core, self.matcher.quiet, self.state)
        advance(self.core, self.matcher.quiet, self.state, NO_NUMBERS)
        self.seal()

    # -- what comes in ---------------------------------------------------------------------------

    def read(self, position: int, rows: pa.RecordBatch, places: Places | None = None) -> InputRows:
        """Take rows of the input at a position, in the order of their arrival.

        Args:
            position: which input.
            rows: the rows, with the schema of the plan.
            places: where the payload keeps the rows already, if it does.
        """
        with self.timed():
            read = self.ingest.read(position, rows, NO_NUMBERS)
            kept = self.payload[position].add(rows) if places is None else places
            return read._replace(payload=kept)

    def process(self, batch: Batch) -> Iterator[Block | Late]:
        """Process rows in their order; results come in blocks as they are made."""
        size = batch.time.size
        self.processed += size
        if self.bulk is not None:
            yield from self.bulk.process(batch)
            return
        for start in range(0, size, CHUNK):
            part = batch.part(start, min(start + CHUNK, size))
            self._make_room(part.time.size)
            yield from self._timed(self._run(part))

    def _timed(self, found: Iterator[Block | Late]) -> Iterator[Block | Late]:
        """Count the time that results take, but not that of whoever takes them."""
        while True:
            with self.timed():
                one = next(found, None)
            if one is None:
                return
            yield one

    def timed(self, pace: int | None = REST) -> AbstractContextManager[None]:
        """Count the time that is taken, if the work of the join is bounded."""
        return nullcontext() if self.throttle is None else self.throttle.timed(pace)

    def timed_loop(self) -> AbstractContextManager[None]:
        """Count the time that is taken as the loop's own."""
        return self.timed(LOOP)

    def _run(self, batch: Batch, holding: bool = False) -> Iterator[Block | Late]:
        """Process rows; if holding, leave results in the sink as long as there is room."""
        for part in self.matcher.pieces(self, batch):
            status = None
            while status != DONE:
                status = self.run_loop(part)
                due = status == ROUND_OVER and self.spill is not None and self.spill.end_round()
                if (status == ROUND_OVER and not due) or (status == DONE and holding):
                    continue  # what was made can wait until there is more of it
                yield from self._found()
                if due and self.spill is not None:
                    yield from self.spill.join_spilled()
            if self.failed is not None:
                self.refuse(part)
        self.matcher.on_processed(self)

    def run_on(self, batches: Iterator[Batch]) -> Iterator[Block]:
        """The results of rows for which there is room, and of which none can be late."""
        for batch in batches:
            yield from map(_as_block, self._run(batch, holding=True))
        yield from map(_as_block, self._found())

    def make_room(self, rows: int, on_the_way: int = CHUNK) -> None:
        """Make room for rows beyond those of the batch at hand."""
        self._make_room(rows + on_the_way)

    def _found(self) -> Iterator[Block | Late]:
        """Hand out what is in the sink, and empty it."""
        late = self.out.late[: self.out.filled[LATECOMERS]]
        found: list[Block | Late] = []
        if late.size:
            found.append(Late(late["stream"].copy(), late["payload"].copy()))
        made = int(self.out.filled[MADE])
        if made or self.left_unfinished:
            found.append(self._block(made))
        self.out.filled[:] = 0
        yield from found
        yield from self.left()

    def left(self) -> Iterator[Block]:
        """Hand out the rows without a match that have left."""
        if number := int(self.core.numbers[LEFT]):
            self.core.numbers[LEFT] = 0
            if self.counting:
                return
            left = self.core.left[:number].copy()
            members = np.full((number, len(self.plan.streams)), NONE, np.int64)
            members[np.arange(number), left["stream"]] = left["payload"]
            ends = np.arange(1, number + 1) * len(self.plan.streams)
            certain = left["certain"].astype(np.bool_)
            yield Block(left["time"], members.ravel(), ends, self.payload, certain=certain)

    def _block(self, made: int) -> Block:
        """The results in the output buffer."""
        partial = self.collisions is not None
        self.left_unfinished = bool(partial and self.work.cursor[STAGE] == PROBED)
        block = Block(
            self.out.results["time"][:made].copy(),
            self.out.payload[: self.out.filled[MEMBERS]].copy(),
            self.out.results["end"][:made].copy(),
            self.payload,
            self.out.importance[:made].copy(),
            self.out.results[list(UPDATES)][:made].copy() if self.plan.by else NO_UPDATES,
            self.out.members[: self.out.filled[MEMBERS]].copy() if partial else NO_MEMBERS,
            self.left_unfinished,
        )
        if self.spill is not None and not self.checked:
            self.spill.note_emitted(block)
        return block

    def run_loop(self, batch: Batch) -> int:
        """Let the loop run until the batch is done, or something is to be done outside."""
        if not self.warmed:  # what is compiled, or read from a cache, is no work
            self.warmed = True
            with self.timed(None):
                self._call(Batch.empty(batch))
        while True:
            with self.timed_loop():
                status = self._call(batch)
            if status != DUE:
                return status
            assert self.throttle is not None
            time = int(self._rows(batch).time[self.work.cursor[AT]])
            self.throttle.adapt(self.matcher.known(self), time)

    def _rows(self, batch: Batch) -> Batch:
        """The rows that the loop processes: those that come, or those that wait."""
        return batch if self.queue is None else self.queue.state.rows

    def _call(self, batch: Batch) -> int:
        compiled = self.matcher.specialise(run)
        parts = (
            self.core,
            self.matcher.state,
            self.state,
            self.observer if self.loss is None else self.loss.state,
            Unthrottled() if self.throttle is None else self.throttle.state,
            NoQueue() if self.queue is None else self.queue.state,
            self.router,
            batch,
            self.work,
            self.out,
        )
        if compiled is run:
            return compiled(*parts)
        try:
            return compiled(*parts)
        except Exception as error:  # the user's function may raise anything
            self.failed = error
            return DONE

    def refuse(self, batch: Batch) -> None:
        """Stop at a row whose comparison has failed, as if it had not come."""
        error, self.failed = self.failed, None
        assert error is not None
        rows, at = self._rows(batch), int(self.work.cursor[AT])
        withdraw(self.core, rows, at)
        self.work.cursor[[NEXT, STAGE]] = 0
        raise self.matcher.explain_failure(rows, at, error) from error

    def count_only(self) -> None:
        """Let results be counted, and not handed out."""
        self.counting = True
        self.out = allocate_buffer(0, 0, CHUNK, self.plan.weighed)

    def finish(self) -> Iterator[Block | Late]:
        """There is no more input: make what results are still to be made."""
        if self.bulk is not None:
            yield from self.bulk.finish()
        if self.spill is not None:
            yield from self.spill.finish()
        if self.plan.unmatched:
            hand_out_stored(self.core, in_order(self.core))
            yield from self.left()

    def close(self) -> None:
        """Give back what the join has outside of memory, and its threads."""
        if self.bulk is not None:
            self.bulk.close()
        if self.spill is not None:
            self.spill.close()

    def advance(self, seen: Sequence[Sequence[int]]) -> None:
        """Let time go on between batches.

        A part of a join sees a part of the rows; what it holds expires by the time of all, unless
        some wait in a queue, who would be late then.

        Args:
            seen: for each input the newest times of its partitions, `NEVER` if not known.
        """
        here, ahead = int(self.core.numbers[NEWEST]), self.plan.ahead
        newest = np.array([agreed_time(times, here, ahead) for times in seen], np.int64)
        if self.core.settings.timed and (self.queue is None or not self.queue.waiting):
            advance(self.core, self.matcher.quiet, self.state, newest)

    def expect(self, rows: int) -> None:
        """Say how many rows will come, so that the arrays need not grow; unused room is free."""
        self.expected = rows
        if self.bulk is not None:
            self.bulk.begin(rows)

    # -- room ------------------------------------------------------------------------------------

    def _make_room(self, rows: int) -> None:
        """Let the arrays grow so that the loop never runs out of room for rows that will come."""
        core, plan, old = self.core, self.plan, self.shape
        if self.queue is not None:  # those that wait may be processed with the rows that come
            rows += self.queue.places
        held, budget = core.pools["held"], core.pools["budget"]
        stored, fullest = int(held.sum()), int(held.max())
        most = max(allowed(budget), self.restored)
        room = enough(old.rows, max(stored + rows, self.expected // 4), most)
        streams = enough(old.streams, self.ingest.names.size) if plan.by else old.streams
        disordered = self.ingest.disorder > 0
        disorder = int(core.sizes.max()) + rows if disordered else 0
        fullest = enough(old.held, fullest + rows, max(int(budget.max()), self.restored))
        shape = replace(
            old,
            rows=room,
            keys=room + 1,
            table=max(old.table, directory(min(room, int(core.numbers[KEYS_USED]) + rows))),
            streams=streams,
            recent=streams * (plan.streams[0].last or 0) if plan.by else old.recent,
            held=fullest if plan.bounded else 0,
            disorder=enough(old.disorder, disorder, room),
            out_of_order=disordered,
        )
        if shape != old:
            self._grow(shape)
        for component in self.components:
            component.grow(self.shape, rows)
        if plan.windows is not None:
            self._place(plan.windows)

    def _grow(self, shape: Shape) -> None:
        """Give the arrays the room of a shape."""
        self.core = roomier(self.core, shape, self.memory, CORE)
        self.state = grown(self.state, self.policy.layout(shape), shape, self.memory, POLICY)
        by = self.plan.by is not None
        cursor = self.work.cursor  # this may be in the middle of a batch
        self.work = allocate_work(shape.rows, shape.streams, by)
        self.work.cursor[:] = cursor
        if by and not self.counting and shape.streams + 1 > self.out.payload.size:
            width = 1 + shape.streams // OUTPUT
            self.out = self._buffer(width)
        self.shape = shape

    def _buffer(self, width: int) -> Any:
        """An output buffer for results of a width."""
        partial = self.collisions is not None
        return allocate_buffer(OUTPUT, width, CHUNK, self.plan.weighed, partial)

    def _place(self, windows: WindowPlan) -> None:
        """Give the streams that are new the windows that were said of them."""
        own, streams = dict(windows.named), self.ingest.names
        numbers = [streams.number[name] for name in streams.new]
        self.core.sweep[numbers] = [own.get(name, windows.otherwise) for name in streams.new]
        streams.new = []

    # -- what comes out --------------------------------------------------------------------------

    def results(self, block: Block) -> pa.RecordBatch:
        """The results of a block, checked on the true keys: a struct for each stream, and time."""
        with self.timed():
            return self.account_for(block, *self.build(block))

    def build(self, block: Block) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """The results of a block, and which candidates were results; several threads may ask."""
        return build_results(self.plan, block, self.checked, self._relation())

    def account_for(
        self, block: Block, batch: pa.RecordBatch, true: npt.NDArray[np.bool_]
    ) -> pa.RecordBatch:
        """Count results that were built; returns them, without what collided."""
        candidates, importance = len(block.time), block.importance.sum()
        collisions = self.collisions if block.certain is None else None
        if collisions is not None and collisions.concern(block, true):
            block = collisions.settle(block, self.core)
            batch, _ = build_results(self.plan, block, False, self._relation())
        elif not true.all():
            weights = block.importance[true] if block.importance.size else UNWEIGHTED
            block = block._replace(time=block.time[true], importance=weights)
        self.rejected += candidates - len(block.time)
        self.rejected_importance += float(importance - block.importance.sum())
        if self.spill is not None and self.checked:
            self.spill.note_emitted(block)
        return batch

    def _relation(self) -> RunningRelation | None:
        return self.matcher.relation if isinstance(self.matcher, RelationMatcher) else None

    def late_rows(self, late: Late) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that came too late, input by input."""
        inputs = np.zeros_like(late.stream) if self.plan.by else late.stream
        for position in np.unique(inputs).tolist():
            yield position, self.payload[position].take(late.payload[inputs == position])

    def ledger(self) -> Ledger:
        """The accounts as they stand."""
        if self.spill is not None:
            self.spill.settle_accounts()
        ledger = Ledger(
            self._streams(),
            results=self.made,
            others=_stream_ledger(self.others.tolist()),
            state_bytes=self.state_bytes(),
            payload_bytes=self.payload_bytes(),
            held_bytes=self._counted(self._held_bytes()),
            peak_bytes=self._counted(int(self.core.numbers[PEAK_BYTES])),
            shed_by=self.shed_by(),
            **self._estimates(),
        )
        if self.plan.weighed:
            total = float(self.core.totals[TOTAL_IMPORTANCE]) - self.rejected_importance
            ledger = replace(ledger, importance=total)
        if self.matcher.comparisons is not None:
            ledger = replace(ledger, comparisons=self.matcher.comparisons)
        if isinstance(self.matcher, RelationMatcher):
            ledger = replace(ledger, relation_bytes=self.matcher.relation.nbytes())
        if self.throttle is not None:
            ledger = self.throttle.account(ledger)
        if self.spill is not None:
            ledger = replace(ledger, spilled=self.spill.account())
        return ledger

    def _held_bytes(self) -> int:
        """The bytes of the rows in memory, where the budget is in bytes."""
        noted = 0 if self.spill is None else self.spill.noted_bytes
        return int(self.core.pools["bytes"].sum()) + noted

    def payload_bytes(self) -> int:
        """The bytes of the users' rows that are kept, those included that are not needed."""
        return sum(payload.nbytes() for payload in self.payload)

    def _counted(self, of_rows: int) -> int:
        """What counts against a budget in bytes, given what rows take."""
        return 0 if self.plan.memory is None else self.plan.memory.tables + of_rows

    def _streams(self) -> dict[Any, StreamLedger]:
        """What became of the rows of each stream."""
        counts = self.core.counts.reshape(-1, FATES).tolist()
        numbers: dict[Any, int] = {s.name: i for i, s in enumerate(self.plan.streams)}
        if self.plan.by is not None:
            kind = self.plan.streams[0].schema.field(self.plan.by).type
            known = self.ingest.names.number
            shown = shown_names([*known], kind)
            numbers = dict(zip(shown, known.values(), strict=True))
        streams = {
            name: _stream_ledger(counts[number])
            for name, number in numbers.items()
            if number < len(counts)  # who was read may not have arrived yet
        }
        if self.work.cursor[STAGE] != IDLE:  # whose results are still handed out is yet to come
            streams = {name: replace(s, arrived=s.settled) for name, s in streams.items()}
        if self.queue is not None:
            waiting = self.queue.counts()
            for name, stream in streams.items():
                waits, shed = waiting[numbers[name]]
                streams[name] = replace(
                    stream,
                    arrived=stream.arrived + waits + shed,
                    shed=stream.shed + shed,
                    queued=stream.queued + waits,
                )
        return streams

    def shed_by(self) -> dict[str, int]:
        """How many rows were shed by the policy, and how many for other reasons."""
        if self.spill is not None:
            return self.spill.shed_by(self.shed)
        dropped = 0 if self.throttle is None else self.throttle.dropped
        shed = {self.policy.name: self.shed - dropped} if self.plan.bounded else {}
        return shed | ({"throttle": dropped} if dropped else {})

    @property
    def shed(self) -> int:
        """Rows shed so far, those that waited in a queue included."""
        waited = 0 if self.queue is None else sum(shed for _, shed in self.queue.counts())
        left = int(self.core.counts.reshape(-1, FATES)[:, SHED].sum())
        return left + waited + int(self.others[SHED])

    def _estimates(self) -> dict[str, Any]:
        """What the sample says, if there is one or nothing is missed."""
        tally, lately, keys = self.tally(), self.tally(lately=True), self.key_tally()
        return {
            "missed": tally and tally.missed(),
            "missed_lately": lately and lately.missed(),
            "keys": keys and Keys(keys.made(), keys.exact()),
            "sample_rate": self.sample_rate,
            "sample_bytes": 0 if self.loss is None else self.loss.nbytes(self.shape),
        }

    @property
    def made(self) -> int:
        """Results made so far."""
        return int(self.core.numbers[RESULTS]) - self.rejected

    def tally(self, lately: bool = False) -> Tally | None:
        """What is known of all results so far, or lately; None if they are not estimated."""
        if self.throttle is None and self.shed == 0:
            if self.loss is None and self.plan.bounded:
                return None
            made = 0.0 if lately else float(self.made)
            return Tally(exact=made, certain=made, seen=made, made=made)
        if self.loss is None:
            return None
        if lately:
            return self.loss.tally_lately(self.core)
        return self.loss.tally(self.made)

    def key_tally(self) -> KeyTally | None:
        """What is known of the keys that have results; None if they are not counted."""
        return None if self.loss is None else self.loss.key_tally()

    def state_bytes(self) -> int:
        """Bytes in use: the key table, the rows' bookkeeping, the policy's state, room to work."""
        used = self.used()
        partners = np.dtype(np.int32).itemsize * used.rows * (2 if self.plan.by else 1)
        own = used.nbytes(core_layout()) + used.nbytes(self.policy.layout(self.shape))
        others = [component for component in self.components if component is not self.loss]
        bulk = 0 if self.bulk is None else self.bulk.bytes_used
        return partners + own + bulk + sum(component.nbytes(used) for component in others)

    def used(self) -> Shape:
        """The part of the room that is or was in use: rows and keys are numbered from 0."""
        return replace(
            self.shape,
            rows=int(self.core.numbers[ROWS_USED]),
            keys=int(self.core.numbers[KEYS_USED]),
            held=min(self.shape.held, int(self.core.pools["held"].max())),
            disorder=min(self.shape.disorder, int(self.core.sizes.max())),
        )

    def with_waiting(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Times of rows, and of those that wait."""
        if self.queue is None:
            return times
        waiting = self.queue.state.rows.time[self.queue.places_in_order()]
        return np.concatenate([times, waiting])

    # -- checkpoints -----------------------------------------------------------------------------

    def compact(self) -> None:
        """Let go of users' rows that nobody can ask for any more, when there are many."""
        stored = int(self.core.pools["held"].sum())
        if sum(payload.rows for payload in self.payload) > 2 * stored + CHUNK:
            self._compact(whole=False)
        elif (memory := self.plan.memory) is not None:
            needed = int(self.core.pools["bytes"].sum()) - memory.each * stored
            if self.payload_bytes() > needed + memory.nbytes // 8:
                self._compact(whole=True)

    def _compact(self, whole: bool) -> list[Compaction]:
        """Let go of all users' rows that have left; returns what has changed in each input."""
        if self.spill is not None:
            self.spill.flush_noted()
        self._forget_streams()
        holders = self._holders()
        changes = compact_segments(holders, self.payload, self.plan.by is not None, whole)
        self._take_places(holders)
        return changes

    def seal(self, whole: bool = False) -> Delta:
        """Let go of all rows that have left; returns what has changed since the last time.

        Args:
            whole: put all rows together anew, so that the change is the whole state.
        """
        if self.work.cursor[STAGE] != IDLE or self.work.cursor[NEXT]:
            raise AssertionError("a join is sealed between batches, not within one")
        segments: dict[SegmentName, pa.RecordBatch] = {}
        removed: list[SegmentName] = []
        changes = self._compact(whole)
        for position, (payload, change) in enumerate(zip(self.payload, changes, strict=True)):
            if change.new is not None:
                segment = payload.segments[change.new]
                if self.plan.streams[position].time is None:
                    times = self._holders()["time"][change.rows]
                    segment = segment.append_column(TIME, pa.array(times))
                segments[position, change.new] = segment
            removed += [(position, number) for number in change.removed]
        return Delta(self.head(), segments, removed)

    def _forget_streams(self) -> None:
        """Forget streams told apart by a column that are gone, if they are many.

        Otherwise names that never come again would be kept, and written, for ever. Their counts go
        on in one account.
        """
        names = self.ingest.names
        if len(names.number) < GONE or self.processed != self.ingest.rows_seen[0]:
            return
        counts = self.core.counts.reshape(-1, FATES)
        gone = counts[:, STORED] == 0
        gone[names.free] = False
        gone[names.size :] = False
        if self.core.numbers[RUN_ROWS]:
            gone[self.core.numbers[RUN_STREAM]] = False
        if isinstance(self.loss, LossEstimator):
            gone[self.loss.followed_streams()] = False
        if self.queue is not None:
            gone &= np.array([waits == 0 for waits, _ in self.queue.counts()])[: len(gone)]
        if gone.sum() < max(GONE, len(names.number) // 2):
            return
        if self.queue is not None:
            self.others[[ARRIVED, SHED]] += self.queue.forget_shed(gone)
        self.others += counts[gone].sum(axis=0)
        counts[gone] = 0
        if isinstance(self.loss, LossEstimator):
            self.loss.forget_streams(gone)
        if self.spill is not None:
            self.spill.forget_streams(gone)
        if self.core.recent.size:
            self.core.recent.reshape(len(counts), -1)["arrival"][gone] = NONE
        names.forget(np.flatnonzero(gone))

    def _holders(self) -> npt.NDArray[Any]:
        """All that holds users' rows: the rows that are stored, and those that wait."""
        stored = self.core.rows[: self.core.numbers[ROWS_USED]]
        if self.queue is None:
            return stored
        order = self.queue.places_in_order()
        waiting = np.zeros(len(order), ROW)
        for name in ("stream", "time", "payload"):
            waiting[name] = getattr(self.queue.state.rows, name)[order]
        return np.concatenate([stored, waiting])

    def _take_places(self, holders: npt.NDArray[Any]) -> None:
        """Take over where users' rows are now, as their holders know."""
        if self.queue is not None:
            used = int(self.core.numbers[ROWS_USED])
            self.core.rows["payload"][:used] = holders["payload"][:used]
            order = self.queue.places_in_order()
            self.queue.state.rows.payload[order] = holders["payload"][used:]

    def head(self) -> Head:
        """All of the state but the users' rows."""
        used = int(self.core.numbers[ROWS_USED])
        rows, keys = np.zeros(used, STORED_ROW), np.zeros(used, np.int32)
        list_rows(self.core, rows, keys)
        stored = np.flatnonzero(rows["number"])
        arrays = {
            "numbers": self.core.numbers.copy(),
            "newest": self.core.lanes["newest"].copy(),
            ROWS: rows,
        }
        for name, array, form in kept(self._states()):
            if len(array) == 0 and name.startswith(CORE):
                continue  # of a feature that is not used
            arrays[name] = in_use(array, form, self.shape.lanes, stored, keys)
            if form.per in OF_KEYS:
                arrays[KEYS] = keys
        if self.plan.bounded and self.policy.marks != "none":
            marks = np.zeros(used, np.int64)
            found = marks[stored]
            read_marks(self.core, self.state, stored, found)
            marks[stored] = found
            arrays[MARKS] = marks
        numbers = {
            "rows_seen": self.ingest.rows_seen,
            "newest": self.ingest.newest,
            "disorder": self.ingest.disorder,
            "others": self.others.tolist(),
            "rejected": self.rejected,
            "rejected_importance": self.rejected_importance,
            "next_segments": [payload.next_segment for payload in self.payload],
            "sealed": [list(payload.sealed.items()) for payload in self.payload],
            **{component.prefix: component.save() for component in self.components},
        }
        if self.plan.by is not None:
            arrays |= names_as_arrays(self.ingest.names.number)
        return Head(self._about(), numbers, arrays)

    def _own_states(self) -> list[State]:
        """The arrays of store and policy: by their prefix, and how they are laid out."""

        def of(state: Any, layout: dict[str, Field]) -> dict[str, npt.NDArray[Any]]:
            return {name: getattr(state, name) for name in layout}

        policy, core = self.policy.layout(self.shape), core_layout()
        return [(CORE, of(self.core, core), core), (POLICY, of(self.state, policy), policy)]

    def _states(self) -> list[State]:
        """The same with those of all components."""
        others = ((c.prefix, c.kept_arrays(), c.layout()) for c in self.components)
        return [*self._own_states(), *others]

    def snapshot(self) -> Snapshot:
        """All that is needed to go on later, or elsewhere, as if nothing had happened."""
        delta = self.seal(whole=True)
        if self.spill is not None:
            self.spill.keep_files()
        return Snapshot(delta.head, delta.segments)

    def restore(self, snapshot: Snapshot) -> None:
        """Be as the join was when the snapshot was taken; this one has seen nothing yet."""
        head = snapshot.head
        changed = head.changed(self._about())
        self._resume(head)
        rows = read_again(self.ingest, self.payload, snapshot)
        self._resume(head)  # what was read again was not seen again
        self._restore(head, rows, changed)

    def _restore(self, head: Head, rows: Rows, changed: set[str]) -> None:
        """Store rows again as a head says; under another policy they are newcomers."""
        anew = bool(changed - {"estimate"})
        numbers = head.arrays["numbers"]
        # There may be more rows than the budget allows now, for a moment.
        self.restored = int(numbers[ROWS_USED])
        self._make_room(self.restored)
        self.core.lanes["newest"] = head.arrays["newest"]
        kept = [CLOCK, NEWEST, FIRST_SEEN, ARRIVALS, RESULTS, OVERDUE]
        kept += [RUN_ROWS, RUN_STREAM, RUN_TIME, PEAK_BYTES]
        self.core.numbers[kept] = numbers[kept]
        self._reserve(self.restored, rows.keys)
        if not anew:
            self._put_back(head)
        for component in self.components:
            if component is not self.loss:
                _load(component.prefix, component.arrays(), component.layout(), head.arrays)
        if MARKS in head.arrays:
            rows = rows._replace(marks=head.arrays[MARKS][rows.rows])
        self.store_again(rows, anew)
        link_unused(self.core)
        for prefix, arrays, layout in self._own_states():
            if anew and prefix == POLICY:
                continue
            # What is kept of each row was put back with it.
            rest = {name: form for name, form in layout.items() if form.per != "row"}
            _load(prefix, arrays, rest, head.arrays)
        if self.loss is not None and not self.loss.restore(head.arrays, changed):
            known = self.loss.prefix + "total" in head.arrays
            self.loss.begin_anew(self.core, rows, self.made, known)
        if self.spill is not None:
            entered = head.arrays[self.spill.prefix + "entered"]
            self.spill.restore(head.numbers[self.spill.prefix], entered, "budget" in changed)
        elif anew:
            evict_to_budget(self.core, self.matcher.quiet, self.state)

    def _put_back(self, head: Head) -> None:
        """Put back what the policy knew of each row: rows are numbered by their arrival again."""
        for name, form in self.policy.layout(self.shape).items():
            if form.kept and form.per == "row":
                saved = head.arrays[POLICY + name]
                getattr(self.state, name)[: len(saved)] = saved

    def _reserve(self, rows: int, keys: npt.NDArray[np.int64]) -> None:
        """Let rows and keys have the numbers again that they had: none of them is used yet."""
        used = int(keys.max(initial=NONE)) + 1
        self.core.numbers[[ROWS_USED, KEYS_USED]] = rows, used
        self.core.rows["arrival"][:rows] = NONE
        self.core.keys[: used * self.core.settings.key_words] = 0

    def store_again(self, rows: Rows, anew: bool) -> None:
        """Store rows in the order of their arrival, anew if the policy takes them as newcomers."""
        self.matcher.before_restore(self, self.with_waiting(rows.batch.time))
        done = 0
        for part in self.matcher.restore_pieces(rows.batch):
            these = slice(done, done + part.time.size)
            known = (rows.arrivals, rows.rows, rows.keys, rows.marks)
            arrivals, numbers, keys, marks = (np.ascontiguousarray(of[these]) for of in known)
            matcher = self.matcher.quiet
            restore_rows(self.core, matcher, self.state, part, arrivals, numbers, keys, marks, anew)
            done += part.time.size

    def can_attach(self, head: Head) -> bool:
        """Whether the very same join has left a state, so that its arrays can be taken over."""
        if head.changed(self._about()) or self.spill is not None:
            return False
        return self.matcher.can_attach(head.numbers.get(self.matcher.prefix, {}))

    def attach(self, shape: Shape, arrays: Arrays, snapshot: Snapshot) -> None:
        """Go on with the arrays that another process has left, and the rows that belong to them.

        Args:
            shape: the room that the arrays have.
            arrays: gives the array of a name.
            snapshot: the head and the segments; what has left them is known from the arrays.
        """

        def left(prefix: str, layout: dict[str, Field]) -> dict[str, Any]:
            return {n: arrays(prefix + n, np.dtype(form.dtype)) for n, form in layout.items()}

        self.shape = shape
        self.core = self.core._replace(**left(CORE, core_layout()))
        self.state = self.state._replace(**left(POLICY, self.policy.layout(shape)))
        self.work = allocate_work(shape.rows, shape.streams, self.plan.by is not None)
        head = snapshot.head
        self._resume(head)
        for component in self.components:
            component.attach(shape, arrays, head.numbers[component.prefix])
        for position, sealed in enumerate(head.numbers["sealed"]):
            payload = self.payload[position]
            for number, wanted in sealed:
                stored = snapshot.segments[position, number]
                payload.unseal(number, stored.select(payload.schema.names), wanted)

    def _about(self) -> dict[str, str]:
        plan = self.plan
        about = plan.about() | {"estimate": "none" if self.loss is None else str(plan.rate)}
        return about if self.spill is None else about | {"budget": self.spill.budget_in_words}

    def _resume(self, head: Head) -> None:
        """Take up the numbers of a head that are not in the arrays."""
        self.ingest.names = StreamNames(head.names)
        self.ingest.rows_seen = list(head.numbers["rows_seen"])
        self.processed = sum(self.ingest.rows_seen)
        self.others = np.array(head.numbers["others"], np.int64)
        self.ingest.newest = list(head.numbers["newest"])
        self.ingest.disorder = head.numbers["disorder"]
        self.rejected = head.numbers["rejected"]
        self.rejected_importance = head.numbers["rejected_importance"]
        for component in self.components:
            component.load(head.numbers.get(component.prefix, {}))
        for payload, following in zip(self.payload, head.numbers["next_segments"], strict=True):
            payload.next_segment = following


def _stream_ledger(counts: list[int]) -> StreamLedger:
    """The ledger of a stream of which none is queued, by the counts of the store."""
    return StreamLedger(*[*counts[:PEAK], 0, *counts[PEAK:]])


def _as_block(found: Block | Late) -> Block:
    assert isinstance(found, Block), "a row that was late has not been kept"
    return found


State = tuple[str, dict[str, npt.NDArray[Any]], dict[str, Field]]
"""What the names of some arrays begin with, the arrays by name, and how they are laid out."""


def _load(
    prefix: str,
    arrays: dict[str, npt.NDArray[Any]],
    layout: dict[str, Field],
    saved: dict[str, npt.NDArray[Any]],
) -> None:
    """Put back what a checkpoint kept of arrays; they may have more room than was in use."""
    for name, form in layout.items():
        if form.kept and prefix + name in saved:
            used = min(len(arrays[name]), len(saved[prefix + name]))
            arrays[name][:used] = saved[prefix + name][:used]
