"""The join on one shared key: the key table, driven batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.estimates import Tally
from streamshed.kernels.core import (
    ARRIVALS,
    BOUNDLESS,
    CLOCK,
    FATES,
    FIRST_SEEN,
    KEYS_USED,
    NEWEST,
    OVERDUE,
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
from streamshed.kernels.sampling import count_followed, sample_layout
from streamshed.ledger import Ledger, StreamLedger
from streamshed.operators.buffers import (
    EMITTING,
    LATECOMERS,
    MADE,
    MEMBERS,
    NEXT,
    WEIGHTLESS,
    Batch,
    out_room,
    work_room,
)
from streamshed.operators.checkpoint import ARRIVAL, MARK, TIME, Delta, Head, SegmentName, Snapshot
from streamshed.operators.following import follow_again
from streamshed.operators.intake import NOTHING, WORTHLESS, Intake, StreamNames, Tuples, needs_check
from streamshed.operators.keyed_loop import (
    DONE,
    advance,
    marks_of,
    readmit,
    rebuild,
    run,
    shed_down,
)
from streamshed.operators.payload import Payload, Places
from streamshed.operators.plan import Plan, WindowPlan
from streamshed.operators.restoring import (
    EMPTY,
    NO_TIMES,
    Rows,
    bare,
    find_recent,
    in_order,
    kept,
    owned,
    read_again,
    rows_again,
)
from streamshed.operators.results import NO_UPDATES, UPDATES, named_results, told_apart_results
from streamshed.operators.room import allowed, directory, empty_core, enough, roomier
from streamshed.operators.sample import (
    OF_ROWS,
    OF_SAMPLE,
    SAMPLE,
    SIEVE,
    TRUE,
    in_use,
    new_sample,
    places_of,
    sample_bytes,
    sample_room,
    tallied,
    tallied_lately,
)
from streamshed.operators.sealing import seal
from streamshed.policies import Exact, Policy
from streamshed.selection import KEY

CHUNK = 1 << 16
"""Tuples handed to the loop at once: room is made for so many before it starts."""
OUTPUT = 1 << 16
"""Results in the output buffer."""

CORE, POLICY, MARKS = "core.", "policy.", "marks"
"""What the names of the arrays begin with."""


class Block(NamedTuple):
    """Some results: for each its time, and the places of its members' rows.

    `ends` says where each result's members end where their number varies; `updates` which arrivals
    made the results, and which they extend, where streams are told apart by a column.
    """

    time: npt.NDArray[np.int64]
    members: Places
    ends: npt.NDArray[np.int64]
    importance: npt.NDArray[np.float64] = WEIGHTLESS
    updates: npt.NDArray[Any] = NO_UPDATES


@dataclass(frozen=True)
class Late:
    """Rows that came too late: which input, and where they stand in the batch."""

    stream: npt.NDArray[np.int32]
    payload: Places


class KeyedJoin:
    """A running join on one shared key.

    Args:
        plan: the join, checked against its inputs.
        whole: whether all columns of the plan are kept: checkpoints and late rows need them.
        memory: where the arrays are.
        policy: the one that sheds, where the plan leaves the choice open.
    """

    def __init__(
        self,
        plan: Plan,
        whole: bool = True,
        memory: Memory | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.plan = plan
        self.checked = self._is_checked()
        self.intake = Intake(plan)
        with_keys = self.checked or KEY in plan.besides
        self.payload = [Payload(stream.kept(with_keys, whole)) for stream in plan.streams]
        self.policy: Policy = policy or plan.policy if self.plan.bounded else Exact()
        self.memory = memory or Memory()
        self.rejected = 0
        self.expected = 0
        self._begin()

    def _is_checked(self) -> bool:
        """Whether results are checked on the true keys."""
        return any(needs_check(stream.key_types) for stream in self.plan.streams)

    def _begin(self) -> None:
        """Make everything that rows are stored in, and that the policy knows, empty."""
        plan = self.plan
        lanes = len(plan.streams)
        pools = lanes if any(stream.rows is not None for stream in plan.streams) else 1
        lasts = [stream.last or 0 for stream in plan.streams]
        self.shape = Shape(
            rows=0,
            keys=1,
            table=2,
            streams=lanes,
            lanes=lanes,
            sweeps=len(plan.windows.lengths) if plan.windows else lanes,
            pools=pools,
            held=0,
            recent=sum(lasts),
            disorder=0,
            out_of_order=False,
            budget=plan.total or sum(stream.rows or 0 for stream in plan.streams),
        )
        self.core = empty_core(plan, self.shape, self.memory, CORE)
        layout = self.policy.layout(self.shape)
        self.state: Any = make(self.policy.state, layout, self.shape, self.memory, POLICY)
        self.policy.prepare(self.state, plan)
        self.work = work_room(0, lanes, plan.by is not None)
        self.out = out_room(OUTPUT, lanes, CHUNK)
        self.sample = new_sample(plan, self.core, self.shape, self.memory, plan.policy.follows)
        self.restored = 0
        self.refollowed = 0
        self.placed = 0

    @property
    def sampling(self) -> bool:
        """Whether some keys are followed to estimate what is missed."""
        return self.sample_rate > 0

    @property
    def sample_rate(self) -> float:
        """The part of all keys that is followed now."""
        return float(self.sample.sieve[0]["rate"])

    # -- what comes in ---------------------------------------------------------------------------

    def read(self, position: int, rows: pa.RecordBatch, places: Places | None = None) -> Tuples:
        """Take rows of the input at a position, in the order of their arrival.

        Args:
            position: which input.
            rows: the rows, with the schema of the plan.
            places: where the payload keeps the rows already, if it does.
        """
        tuples = self.intake.read(position, rows, np.empty(0, np.int64))
        kept = self.payload[position].add(rows) if places is None else places
        return tuples._replace(payload=kept)

    def process(self, batch: Batch) -> Iterator[Block | Late]:
        """Process tuples in their order; results come in blocks as they are made."""
        size = batch.time.size
        for start in range(0, size, CHUNK):
            end = min(start + CHUNK, size)
            part = Batch(*(owned(column[start:end]) for column in batch))
            self._make_room(end - start, self._followed(part))
            yield from self._run(part)

    def _run(self, batch: Batch) -> Iterator[Block | Late]:
        status = None
        while status != DONE:
            self.out.filled[:] = 0
            status = self._loop(batch)
            late = self.out.late[: self.out.filled[LATECOMERS]]
            if late.size:
                yield Late(batch.stream[late], batch.payload[late])
            if made := self.out.filled[MADE]:
                yield self._block(int(made))

    def _loop(self, batch: Batch) -> int:
        """Let the loop run until the batch is done or the output buffer is full."""
        status: int = run(self.core, self.teller, self.sample, batch, self.work, self.out)
        return status

    def _block(self, made: int) -> Block:
        """The results in the output buffer."""
        return Block(
            self.out.results["time"][:made].copy(),
            self.out.payload[: self.out.filled[MEMBERS]].copy(),
            self.out.results["end"][:made].copy(),
            updates=self.out.results[list(UPDATES)][:made].copy() if self.plan.by else NO_UPDATES,
        )

    def finish(self) -> Iterator[Block | Late]:
        """There is no more input: make what results are still to be made."""
        yield from ()

    def close(self) -> None:
        """Give back what the join has outside of memory."""

    def advance(self, newest: npt.NDArray[np.int64]) -> None:
        """Let time go on between batches: for each input the newest time seen of it anywhere.

        A part of a join sees a part of the rows; what it holds expires by the time of all. A time
        that is not known is `NEVER`.
        """
        if self.core.settings.timed:
            advance(self.core, self.teller, newest)

    def expect(self, tuples: int) -> None:
        """Say how many tuples will come, so that the arrays need not grow; unused room is free."""
        self.expected = tuples

    def _followed(self, batch: Batch) -> int:
        """How many of the tuples to come may be followed; not counted where room is bounded."""
        if self.sampling and self.sample.sieve[0]["capacity"] == BOUNDLESS:
            return int(count_followed(self.sample, batch.hash))
        return batch.time.size

    def _make_room(self, tuples: int, followed: int) -> None:
        """Let the arrays grow so that the loop never runs out of room.

        Args:
            tuples: that will come.
            followed: those of them that may be of keys in the sample.
        """
        core, plan, old = self.core, self.plan, self.shape
        held, budget = core.pools["held"], core.pools["budget"]
        stored, fullest = int(held.sum()), int(held.max())
        # After a restart there may be more rows than the budget allows now, for a moment.
        most = max(allowed(budget), self.restored)
        rows = enough(old.rows, max(stored + tuples, self.expected // 4), most)
        streams = enough(old.streams, len(self.intake.names.number)) if plan.by else old.streams
        disordered = self.intake.disorder > 0
        disorder = int(core.sizes.max()) + tuples if disordered else 0
        shape = replace(
            old,
            rows=rows,
            keys=rows + 1,
            table=max(old.table, directory(min(rows, int(core.numbers[KEYS_USED]) + tuples))),
            streams=streams,
            recent=streams * (plan.streams[0].last or 0) if plan.by else old.recent,
            held=enough(old.held, fullest + tuples, max(int(budget.max()), self.restored))
            if self.plan.bounded
            else 0,
            disorder=enough(old.disorder, disorder, rows),
            out_of_order=disordered,
            **sample_room(self.sample, old, followed, self.refollowed, disordered),
        )
        if shape != old:
            self._grow(shape)
        if plan.windows is not None:
            self._place(plan.windows)

    def _grow(self, shape: Shape) -> None:
        """Give the arrays the room of a shape."""
        core = self.core
        self.core = roomier(core, shape, self.memory, CORE)
        true = roomier(self.sample.core, shape.of_sample, self.memory, TRUE)
        tallies = self.sample._replace(core=true)
        self.sample = grown(tallies, sample_layout(), shape, self.memory, SAMPLE)
        self.state = grown(self.state, self.policy.layout(shape), shape, self.memory, POLICY)
        by = self.plan.by is not None
        self.work = work_room(max(shape.rows, shape.sample_rows), shape.streams, by)
        if by and shape.streams + 1 > self.out.payload.size:
            self.out = out_room(OUTPUT, 1 + shape.streams // OUTPUT, CHUNK)
        self.shape = shape

    def _place(self, windows: WindowPlan) -> None:
        """Give the streams that are new the windows that were said of them."""
        own = dict(windows.named)
        names = list(islice(self.intake.names.number, self.placed, None))
        places = [own.get(name, windows.otherwise) for name in names]
        for core in (self.core, self.sample.core):
            core.sweep[self.placed : self.placed + len(places)] = places
        self.placed += len(places)

    def warm(self) -> None:
        """Have everything compiled that this join will need, by running it on nothing."""
        nothing = Batch(*EMPTY, NOTHING, WORTHLESS)
        self._make_room(1, 1)
        count_followed(self.sample, nothing.hash)
        list(self._run(nothing))
        self._warm_storing(nothing)
        shed_down(self.core, self.teller)
        advance(self.core, self.teller, NO_TIMES)
        follow_again(self.state, self.sample, nothing, NO_TIMES, False, False)
        self.seal()

    def _warm_storing(self, nothing: Batch) -> None:
        """Have compiled what stores rows again."""
        rebuild(self.core, self.state, nothing, NO_TIMES, NO_TIMES)
        readmit(self.core, self.state, nothing, NO_TIMES, NO_TIMES)

    def compact(self) -> None:
        """Let go of users' rows that nobody can ask for any more, when there are many."""
        stored = int(self.core.pools["held"].sum())
        if sum(payload.rows for payload in self.payload) > 2 * stored + CHUNK:
            self.seal()

    # -- what comes out --------------------------------------------------------------------------

    def results(self, block: Block) -> pa.RecordBatch:
        """The results of a block, checked on the true keys: a struct for each stream, and time."""
        about = (self.plan, self._kept_for(block), self.checked, block.time, block.members)
        if self.plan.by is None:
            batch, rejected = named_results(*about)
        else:
            batch, rejected = told_apart_results(*about, block.ends, block.updates)
        self.rejected += rejected
        return batch

    def _kept_for(self, block: Block) -> list[Payload]:
        """Where the rows of a block's results are kept."""
        return self.payload

    def late_rows(self, late: Late) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that came too late, input by input."""
        inputs = np.zeros_like(late.stream) if self.plan.by else late.stream
        for position in np.unique(inputs).tolist():
            yield position, self.payload[position].take(late.payload[inputs == position])

    def ledger(self) -> Ledger:
        """The accounts as they stand."""
        counts = self.core.counts.reshape(-1, FATES).tolist()
        names: list[Any] = [stream.name for stream in self.plan.streams]
        if self.plan.by is not None:
            names = list(self.intake.names.number)
        streams = {name: StreamLedger(*row) for name, row in zip(names, counts, strict=False)}
        return Ledger(
            streams,
            results=int(self.core.numbers[RESULTS]) - self.rejected,
            state_bytes=self.state_bytes(),
            payload_bytes=sum(payload.nbytes() for payload in self.payload),
            shed_by=self.shed_by(),
            **self._estimates(),
        )

    def shed_by(self) -> dict[str, int]:
        """How many rows were shed by each policy."""
        return {self.policy.name: self.shed} if self.plan.bounded else {}

    @property
    def shed(self) -> int:
        """Rows shed so far."""
        return int(self.core.counts.reshape(-1, FATES)[:, SHED].sum())

    def _estimates(self) -> dict[str, Any]:
        """What the sample says, if there is one or nothing is missed."""
        missed, lately = self.missed(), self.missed(lately=True)
        return {
            "missed": missed and missed.estimate(),
            "missed_lately": lately and lately.estimate(),
            "sample_rate": self.sample_rate,
            "sample_bytes": sample_bytes(self.sample, self.used()),
        }

    def missed(self, lately: bool = False) -> Tally | None:
        """What is known of the results missed so far, or lately; None if nothing is estimated."""
        if self.shed == 0:
            return Tally() if self.sampling or not self.plan.bounded else None
        if not self.sampling:
            return None
        if lately:
            return tallied_lately(self.sample, self.plan, self.core)
        return tallied(self.sample)

    def state_bytes(self) -> int:
        """Bytes in use: the key table, the rows' bookkeeping, the policy's state, room to work."""
        used = self.used()
        partners = np.dtype(np.int32).itemsize * used.rows * (2 if self.plan.by else 1)
        return partners + used.nbytes(core_layout()) + used.nbytes(self.policy.layout(self.shape))

    def used(self) -> Shape:
        """The part of the room that is or was in use: rows and keys are numbered from 0."""
        return replace(
            self.shape,
            rows=int(self.core.numbers[ROWS_USED]),
            keys=int(self.core.numbers[KEYS_USED]),
            held=min(self.shape.held, int(self.core.pools["held"].max())),
            disorder=min(self.shape.disorder, int(self.core.sizes.max())),
            sample_rows=int(self.sample.core.numbers[ROWS_USED]),
        )

    # -- stop and go on --------------------------------------------------------------------------

    def seal(self, whole: bool = False) -> Delta:
        """Let go of all rows that have left; returns what has changed since the last time.

        Args:
            whole: put all rows together anew, so that the change is the whole state.
        """
        if self.work.cursor[EMITTING] or self.work.cursor[NEXT]:
            raise AssertionError("a join is sealed between batches, not within one")
        holders = self._holders()
        changes = seal(holders, self.payload, self.plan.by is not None, whole)
        self._moved(holders)
        segments: dict[SegmentName, pa.RecordBatch] = {}
        live: dict[SegmentName, npt.NDArray[np.uint8]] = {}
        removed: list[SegmentName] = []
        for position, (payload, change) in enumerate(zip(self.payload, changes, strict=True)):
            if change.new is not None:
                segment = payload.segments[change.new]
                stored = self._stored_form(position, segment, change.rows, holders)
                segments[position, change.new] = stored
            live |= {(position, number): bitmap for number, bitmap in change.live.items()}
            removed += [(position, number) for number in change.removed]
        return Delta(self.head(), segments, live, removed)

    def _holders(self) -> npt.NDArray[Any]:
        """All that holds users' rows."""
        return self.core.rows[: self.core.numbers[ROWS_USED]]

    def _moved(self, holders: npt.NDArray[Any]) -> None:
        """Users' rows are in other places now, as their holders know."""

    def _stored_form(
        self,
        position: int,
        segment: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
        holders: npt.NDArray[Any],
    ) -> pa.RecordBatch:
        """A segment with what is needed to store its rows again."""
        stored = segment.append_column(ARRIVAL, pa.array(holders["arrival"][rows]))
        if self._marking == "fixed":
            stored = stored.append_column(MARK, pa.array(self.marks(rows)))
        if self.plan.streams[position].time is None:
            stored = stored.append_column(TIME, pa.array(holders["time"][rows]))
        return stored

    @property
    def _marking(self) -> str:
        """How the policy marks rows; where the choice of it is open the marks are all moving."""
        return self.plan.policy.marks if self.plan.bounded else "none"

    def marks(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The policy's marks of rows."""
        marks = np.zeros(len(rows), np.int64)
        marks_of(self.core, self.teller, rows, marks)
        return marks

    def head(self) -> Head:
        """All of the state but the rows."""
        arrays = {
            "numbers": self.core.numbers.copy(),
            "newest": self.core.lanes["newest"].copy(),
        }
        states = kept(self._states())
        moving = self._marking == "moving"
        rows = np.empty(0, np.int64)
        if moving or any(form.per in OF_ROWS for _, _, form in states):
            rows = in_order(self.core)  # not without need: there may be millions
        followed = in_order(self.sample.core)
        places = places_of(self.core, rows), places_of(self.sample.core, followed)
        if self.sampling:
            arrays["followed"] = bare(self.sample.core, followed)
        for name, array, form in states:
            arrays[name] = in_use(array, form, self.shape.lanes, *places)
        if moving:
            arrays[MARKS] = self.marks(rows)
        numbers = {
            "rows_seen": self.intake.rows_seen,
            "newest": self.intake.newest,
            "disorder": self.intake.disorder,
            "rejected": self.rejected,
            "next_segments": [payload.next_segment for payload in self.payload],
            "sealed": [list(payload.sealed.items()) for payload in self.payload],
        }
        return Head(self._about(), numbers, arrays, list(self.intake.names.number))

    def _states(self) -> list[tuple[str, Any, dict[str, Field]]]:
        states = [
            (CORE, self.core, core_layout()),
            (POLICY, self.state, self.policy.layout(self.shape)),
        ]
        return [*states, (SAMPLE, self.sample, sample_layout())] if self.sampling else states

    def snapshot(self) -> Snapshot:
        """All that is needed to go on later, or elsewhere, as if nothing had happened."""
        delta = self.seal(whole=True)
        return Snapshot(delta.head, delta.segments)

    @classmethod
    def restore(
        cls,
        plan: Plan,
        snapshot: Snapshot,
        memory: Memory | None = None,
    ) -> Self:
        """The join as it was when the snapshot was taken."""
        head = snapshot.head
        join = cls(plan, memory=memory, policy=cls._policy_of(head))
        changed = head.changed(join._about())
        join.intake.names = StreamNames({name: i for i, name in enumerate(head.names)})
        rows = read_again(join.intake, join.payload, snapshot)
        join._resume(head)
        join.take_up(head, rows, changed)
        return join

    @classmethod
    def _policy_of(cls, head: Head) -> Policy | None:
        """The policy that a state was made under, where the plan leaves the choice open."""
        return None

    def take_up(self, head: Head, rows: Rows, changed: set[str]) -> None:
        """Store rows again as a head says; under another policy they are newcomers."""
        anew = bool(changed - {"estimate"})
        followed, follows = rows.batch, rows.arrivals
        same_sample = self.sampling and not changed & {"estimate", "seed"}
        if same_sample:
            followed, follows, _ = rows_again(head.arrays["followed"])
        self.restored, self.refollowed = len(rows.arrivals), len(follows)
        self._make_room(self.restored, self.refollowed)
        self.core.lanes["newest"] = head.arrays["newest"]
        kept = [CLOCK, NEWEST, FIRST_SEEN, ARRIVALS, RESULTS, OVERDUE]
        for core in (self.core, self.sample.core):
            core.numbers[kept] = head.arrays["numbers"][kept]
        rows = rows._replace(marks=head.arrays.get(MARKS, rows.marks))
        if not anew:
            self._put_back(head)
        self._store_again(head, rows, anew)
        for prefix, state, layout in self._states():
            for name, form in layout.items():
                of_sample = name in SIEVE or form.per in OF_SAMPLE
                made_anew = (anew and prefix == POLICY) or (of_sample and not same_sample)
                # What is kept of each row was put back with it.
                if form.kept and form.per != "row" and not made_anew:
                    array, saved = getattr(state, name), head.arrays.get(prefix + name, NO_TIMES)
                    used = min(len(array), len(saved))  # the room may differ, not what is in use
                    array[:used] = saved[:used]
        if self.sampling:
            tell = anew or not same_sample
            follow_again(self.state, self.sample, followed, follows, not same_sample, tell)
        find_recent(self.core, self.sample.core, rows.arrivals)
        if anew:
            shed_down(self.core, self.teller)

    def _put_back(self, head: Head) -> None:
        """Put back what the policy knew of each row: rows are numbered by their arrival again."""
        for name, form in self.policy.layout(self.shape).items():
            if form.kept and form.per == "row":
                saved = head.arrays[POLICY + name]
                getattr(self.state, name)[: len(saved)] = saved

    @property
    def teller(self) -> Any:
        """What the loops tell of rows that come and go: the policy, or who tells it in turn."""
        return self.state

    def _store_again(self, head: Head, rows: Rows, anew: bool) -> None:
        """Store rows in the order of their arrival, anew if the policy takes them as newcomers."""
        batch, arrivals, marks = rows
        if anew:
            readmit(self.core, self.state, batch, arrivals, batch.worth)
        else:
            rebuild(self.core, self.state, batch, arrivals, marks)

    def attach(
        self,
        shape: Shape,
        arrays: Callable[[str, np.dtype[Any]], npt.NDArray[Any]],
        snapshot: Snapshot,
    ) -> None:
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
        true = self.sample.core._replace(**left(TRUE, core_layout()))
        self.sample = self.sample._replace(core=true, **left(SAMPLE, sample_layout()))
        rows = max(shape.rows, shape.sample_rows)
        self.work = work_room(rows, shape.streams, self.plan.by is not None)
        self._resume(snapshot.head)
        for position, sealed in enumerate(snapshot.head.numbers["sealed"]):
            payload = self.payload[position]
            for number, wanted in sealed:
                stored = snapshot.segments[position, number]
                payload.unseal(number, stored.select(payload.schema.names), wanted)

    def _about(self) -> dict[str, str]:
        plan = self.plan
        followed = f"{plan.rate}, at least {plan.policy.follows}" if self.sampling else "none"
        return plan.about() | {"estimate": followed}

    def left_by(self, head: Head) -> bool:
        """Whether the very same join has left a state, so that its arrays can be taken over."""
        return not head.changed(self._about())

    def _resume(self, head: Head) -> None:
        """Take up the numbers of a head that are not in the arrays."""
        self.intake.names = StreamNames({name: i for i, name in enumerate(head.names)})
        self.intake.rows_seen = list(head.numbers["rows_seen"])
        self.intake.newest = list(head.numbers["newest"])
        self.intake.disorder = head.numbers["disorder"]
        self.rejected = head.numbers["rejected"]
        for payload, following in zip(self.payload, head.numbers["next_segments"], strict=True):
            payload.next_segment = following
