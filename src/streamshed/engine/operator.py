"""A running join: its components put together, driven batch by batch, saved and restored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.accounts import ledger_of
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
    MOMENT,
    MOST,
    NEXT,
    NO_NUMBERS,
    PROBED,
    STAGE,
    UNWEIGHTED,
    Batch,
    allocate_work,
)
from streamshed.engine.blocks import Block, Late
from streamshed.engine.budget_parts import BudgetParts, Counted, Passed
from streamshed.engine.checkpoint import Delta, Snapshot
from streamshed.engine.clock import agreed_time
from streamshed.engine.collisions import Collisions
from streamshed.engine.component import Component
from streamshed.engine.factorised import allocate_factorised
from streamshed.engine.gate.hooks import InMemory, NoQueue, Unthrottled
from streamshed.engine.gate.queue import ArrivalQueue
from streamshed.engine.gate.throttle import Controller
from streamshed.engine.gate.throttle_state import LOOP, REST
from streamshed.engine.ingest import Ingest, InputRows, merged
from streamshed.engine.loop import (
    CROWDED,
    DONE,
    DUE,
    ROUND_OVER,
    advance,
    evict_to_budget,
    pass_moments,
    restore_rows,
    run,
    withdraw,
)
from streamshed.engine.match.matcher import Matcher
from streamshed.engine.match.relation_matcher import RelationMatcher
from streamshed.engine.observe.estimator import LossEstimator, is_estimated
from streamshed.engine.observe.hooks import NotEstimated
from streamshed.engine.observe.tallies import Estimator
from streamshed.engine.outputs import without_collisions
from streamshed.engine.payload import Payload, Places, warm_gathering
from streamshed.engine.restore import (
    CORE,
    POLICY,
    Rows,
    State,
    in_order,
    link_unused,
    live_rows,
)
from streamshed.engine.results import NO_UPDATES, UPDATES, build_results
from streamshed.engine.saving import compact, seal, snapshot
from streamshed.engine.sink import LATECOMERS, MADE, MEMBERS, NO_MEMBERS, allocate_buffer
from streamshed.engine.unmatched import hand_out_stored
from streamshed.estimates import KeyTally, Tally
from streamshed.kernels.core import (
    BOUNDLESS,
    FATES,
    KEYS_USED,
    LEFT,
    MOST_AT_ONCE,
    MOST_KEYS,
    NEWEST,
    NONE,
    RESULTS,
    ROWS_USED,
    SHED,
    Field,
    Memory,
    Shape,
    core_layout,
    grown,
    make,
)
from streamshed.ledger import Ledger
from streamshed.plan.plan import Plan, WindowPlan
from streamshed.policies import Exact, Policy
from streamshed.selection import KEY

if TYPE_CHECKING:
    from streamshed.engine.bulk.bulk import Bulk
    from streamshed.engine.gate.spill import DiskSpill
    from streamshed.engine.match.running_relation import RunningRelation

CHUNK = MOST_AT_ONCE
OUTPUT = 1 << 16
"""Results in the output buffer."""
FEW_KEYS = 1 << 10
"""With a budget, the directory of keys has room for so many more before rows are processed. Most
rows share keys, or find the number of a key free; if these do not, it grows amid the rows."""


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
        self.parts: BudgetParts | None = None
        if plan.part is not None:
            self.parts = BudgetParts(plan.part, self.shape, memory)
            self.keep_to_part()
        self.spill: DiskSpill | None = None
        self.router: Any = InMemory()
        self.work = allocate_work(0, lanes, plan.by is not None)
        width = self.core.settings.width
        # Where members may have the hash of other keys, a partial result may be without them.
        settled = self.checked and plan.at_least and not plan.factorised
        self.collisions = Collisions(plan) if settled else None
        self.out: Any = self._buffer(max(width, self._width_for(self.shape)))
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
        found = self.matcher, self.loss, self.throttle, self.queue, self.spill, self.parts
        return [component for component in found if component is not None]

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
        self.matcher.warm(self)
        link_unused(self.core)
        evict_to_budget(self.core, self.matcher.quiet, self.state)
        advance(self.core, self.matcher.quiet, self.state, NO_NUMBERS)
        if self.plan.moments is not None:  # what shards need is compiled before there are any
            self._pass_moments()
        warm_gathering()
        seal(self)

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

    def process_inputs(self, inputs: Sequence[InputRows]) -> Iterator[Block | Late]:
        """Process rows of several inputs in the order of their arrival."""
        if self.bulk is None:
            yield from self.process(merged(inputs))
            return
        self.processed += sum(rows.time.size for rows in inputs)
        yield from self.bulk.process(inputs)

    def process(self, batch: Batch) -> Iterator[Block | Late]:
        """Process rows in their order; results come in blocks as they are made."""
        size = batch.time.size
        self.processed += size
        if self.bulk is not None:
            yield from self.bulk.process(batch)
            return
        for start in range(0, size, CHUNK):
            part = batch.part(start, min(start + CHUNK, size))
            self._make_room(part.time.size, FEW_KEYS if self.plan.bounded else None)
            yield from self._timed(self._run(part))

    def begin_batch(self, counted: Sequence[Counted], newest: int) -> None:
        """Tell a shard the rows of all shards, where budgets follow them.

        Args:
            counted: the rows of all inputs.
            newest: the newest time of all, `NEVER` if there is none.
        """
        if self.parts is not None:
            self.pass_in_batch(self.parts.see(counted, newest))

    def pass_in_batch(self, passed: Passed) -> None:
        """Tell a shard which moments the rows of a batch will pass."""
        assert self.parts is not None
        self.work.cursor[MOMENT] = 0
        self.work = self.work._replace(moments=self.parts.take(passed))

    def end_batch(self, seen: Sequence[Sequence[int]]) -> None:
        """Let time go on at the end of a batch.

        Where budgets follow the rows it does at moments, wherever the rows are cut into batches.

        Args:
            seen: for each input the newest times of its partitions, `NEVER` if not known.
        """
        if self.parts is None:
            self.advance(seen)
        else:
            self._pass_moments()

    def keep_to_part(self) -> None:
        """Let the budgets be those of this shard now, where they follow the rows."""
        if self.parts is not None:
            self.core.pools["budget"] = self.parts.budgets
            self.core.pools["limit"] = self.parts.limits

    def _pass_moments(self) -> None:
        """Go past the moments that no row of the batch has reached here."""
        pass_moments(self.core, self.matcher.quiet, self.state, self.work)

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

    @property
    def has_left(self) -> bool:
        """Whether rows without a match have left that are not handed out yet."""
        return bool(self.core.numbers[LEFT])

    def left(self) -> Iterator[Block]:
        """Hand out the rows without a match that have left."""
        if number := int(self.core.numbers[LEFT]):
            self.core.numbers[LEFT] = 0
            left = self.core.left[:number].copy()
            members = np.full((number, len(self.plan.streams)), NONE, np.int64)
            members[np.arange(number), left["stream"]] = left["payload"]
            ends = np.arange(1, number + 1) * len(self.plan.streams)
            certain = left["certain"].astype(np.bool_)
            yield Block(left["time"], members.ravel(), ends, self.payload, certain=certain)

    def _block(self, made: int) -> Block:
        """The results in the output buffer."""
        partial = self.collisions is not None
        known = partial or self.plan.factorised
        self.left_unfinished = bool(partial and self.work.cursor[STAGE] == PROBED)
        block = Block(
            self.out.results["time"][:made].copy(),
            self.out.payload[: self.out.filled[MEMBERS]].copy(),
            self.out.results["end"][:made].copy(),
            self.payload,
            self.out.importance[:made].copy(),
            self.out.results[list(UPDATES)][:made].copy() if self.plan.by else NO_UPDATES,
            self.out.members[: self.out.filled[MEMBERS]].copy() if known else NO_MEMBERS,
            self.left_unfinished,
            factorised=self.plan.factorised,
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
            if status == CROWDED:
                self._grow(replace(self.shape, table=2 * self.shape.table))
                self.core.numbers[MOST_KEYS] = self._most_keys()
                continue
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
        self.out = self._buffer(0, results=0)
        self.shape = replace(self.shape, unmatched=False)
        self.core = self.core._replace(left=self.core.left[:0].copy())

    def finish(self) -> Iterator[Block | Late]:
        """There is no more input: make what results are still to be made."""
        if self.bulk is not None:
            yield from self.bulk.finish()
        if self.spill is not None:
            yield from self.spill.finish()
        if self.plan.unmatched:
            # Who only counts them needs no order.
            used = self.core.rows[: self.core.numbers[ROWS_USED]]
            stored = live_rows(used) if self.counting else in_order(self.core)
            hand_out_stored(self.core, stored)
            yield from self.left()

    def close(self, referred: bool = False) -> None:
        """Give back what the join has outside of memory, and its threads.

        Args:
            referred: whether to leave the files that a snapshot refers to.
        """
        if self.bulk is not None:
            self.bulk.close()
        if self.spill is not None:
            self.spill.close(referred)

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

    def _make_room(self, rows: int, new_keys: int | None = None) -> None:
        """Let the arrays grow so that the loop never runs out of room for rows that will come.

        Args:
            rows: how many.
            new_keys: how many keys these may bring before the loop asks for a larger directory, if
                it does; by default each may have its own.
        """
        core, plan, old = self.core, self.plan, self.shape
        if self.queue is not None:  # those that wait may be processed with the rows that come
            rows += self.queue.places
        held, budget = core.pools["held"], self._highest_budgets()
        stored, fullest = int(held.sum()), int(held.max())
        most = max(allowed(budget), self.restored)
        room = enough(old.rows, max(stored + rows, self.expected // 4), most)
        streams = enough(old.streams, self.ingest.names.size) if plan.by else old.streams
        disordered = self.ingest.disorder > 0
        disorder = int(core.sizes.max()) + rows if disordered else 0
        fullest = enough(old.held, fullest + rows, max(int(budget.max()), self.restored))
        new_keys = rows if new_keys is None else min(rows, new_keys)
        keys = min(room, int(core.numbers[KEYS_USED]) + new_keys)
        shape = replace(
            old,
            rows=room,
            keys=room + 1,
            table=max(old.table, directory(keys, plan.bounded)),
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
        self.core.numbers[MOST_KEYS] = self._most_keys()
        if plan.windows is not None:
            self._place(plan.windows)

    def _most_keys(self) -> int:
        """The keys beyond which the directory is too full: two thirds, if there may be so many."""
        bounded = self.plan.bounded
        enough = not bounded or directory(self.shape.keys, bounded) <= self.shape.table
        return BOUNDLESS if enough else 2 * self.shape.table // 3

    def _highest_budgets(self) -> npt.NDArray[np.int64]:
        """By pool the highest budget in this batch."""
        budgets: npt.NDArray[np.int64] = self.core.pools["budget"]
        if self.parts is None:
            return budgets
        first = 1 + self.shape.lanes
        told = self.work.moments[:-1, first : first + len(budgets)]
        return np.vstack([budgets, told]).max(axis=0) if told.size else budgets

    def _grow(self, shape: Shape) -> None:
        """Give the arrays the room of a shape."""
        self.core = roomier(self.core, shape, self.memory, CORE)
        self.state = grown(self.state, self.policy.layout(shape), shape, self.memory, POLICY)
        cursor, moments = self.work.cursor, self.work.moments  # this may be amid a batch
        self.work_in(shape)
        self.work.cursor[:] = cursor
        self.work = self.work._replace(moments=moments)

    def work_in(self, shape: Shape) -> None:
        """Have room to work on arrays that have the room of a shape."""
        self.work = allocate_work(shape.rows, shape.streams, self.plan.by is not None)
        if not self.counting and self._most_members(shape) > self.out.payload.size:
            self.out = self._buffer(self._width_for(shape))
        self.shape = shape

    def _most_members(self, shape: Shape) -> int:
        """The most members that a result may have where their number varies."""
        if self.plan.factorised:
            return 1 + shape.rows
        return 1 + shape.streams if self.plan.by is not None else 0

    def _width_for(self, shape: Shape) -> int:
        """How wide results have to be thought so that the buffer has room for any one of them."""
        return 1 + self._most_members(shape) // OUTPUT

    def _buffer(self, width: int, results: int = OUTPUT) -> Any:
        """An output buffer for results of a width."""
        if self.plan.factorised:
            return allocate_factorised(results, width, CHUNK)
        partial = self.collisions is not None
        return allocate_buffer(results, width, CHUNK, self.plan.weighed, partial)

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
        candidates, importance = block.stands_for, block.importance.sum()
        collisions = self.collisions if block.certain is None else None
        if collisions is not None and collisions.concern(block, true):
            block = collisions.settle(block, self.core)
            batch, _ = build_results(self.plan, block, False, self._relation())
        elif not true.all() and block.factorised:
            block = without_collisions(self.plan, block, true)
        elif not true.all():
            weights = block.importance[true] if block.importance.size else UNWEIGHTED
            block = block._replace(time=block.time[true], importance=weights)
        self.rejected += candidates - block.stands_for
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

    def payload_bytes(self) -> int:
        """The bytes of the users' rows that are kept, those included that are not needed."""
        return sum(payload.nbytes() for payload in self.payload)

    @property
    def shed(self) -> int:
        """Rows shed so far, those that waited in a queue included."""
        waited = 0 if self.queue is None else sum(shed for _, shed in self.queue.counts())
        left = int(self.core.counts.reshape(-1, FATES)[:, SHED].sum())
        return left + waited + int(self.others[SHED])

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
        met = int(self.work.cursor[MOST])  # room that no partners have had was never touched
        partners = self.work.partners.itemsize * met * (2 if self.plan.by else 1)
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

    def ledger(self) -> Ledger:
        """The accounts as they stand."""
        return ledger_of(self)

    # -- checkpoints -----------------------------------------------------------------------------

    def compact(self) -> None:
        """Let go of users' rows that nobody can ask for any more, when there are many."""
        compact(self)

    def seal(self) -> Delta:
        """Let go of all rows that have left; returns what has changed since the last time."""
        return seal(self)

    def snapshot(self) -> Snapshot:
        """All that is needed to go on later, or elsewhere, as if nothing had happened."""
        return snapshot(self)

    def own_states(self) -> list[State]:
        """The arrays of store and policy: by their prefix, and how they are laid out."""

        def of(state: Any, layout: dict[str, Field]) -> dict[str, npt.NDArray[Any]]:
            return {name: getattr(state, name) for name in layout}

        policy, core = self.policy.layout(self.shape), core_layout()
        return [(CORE, of(self.core, core), core), (POLICY, of(self.state, policy), policy)]

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

    def about(self) -> dict[str, str]:
        """What a state of the join depends on, in words."""
        plan = self.plan
        about = plan.about() | {"estimate": "none" if self.loss is None else str(plan.rate)}
        return about if self.spill is None else about | {"budget": self.spill.budget_in_words}


def _as_block(found: Block | Late) -> Block:
    assert isinstance(found, Block), "a row that was late has not been kept"
    return found
