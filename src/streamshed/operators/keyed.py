"""The join on one shared key: the key table, driven batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
from streamshed.kernels.sampling import count_followed, sample_layout
from streamshed.ledger import Ledger, StreamLedger
from streamshed.operators.buffers import (
    EMITTING,
    LATECOMERS,
    MADE,
    MEMBERS,
    NEXT,
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
    live_rows,
    marks_of,
    readmit,
    rebuild,
    run,
    shed_down,
)
from streamshed.operators.payload import Payload, Places, live_offsets, places_in
from streamshed.operators.plan import Plan, StreamPlan
from streamshed.operators.results import named_results, told_apart_results
from streamshed.operators.room import directory, empty_core, enough, roomier
from streamshed.operators.sample import (
    OF_SAMPLE,
    SAMPLE,
    TRUE,
    in_use,
    new_sample,
    rows_again,
    sample_bytes,
    sample_room,
    sampled_rows,
    tallied,
    tallied_lately,
)
from streamshed.operators.sealing import seal
from streamshed.policies import Exact, Policy

CHUNK = 1 << 16
"""Tuples handed to the loop at once: room is made for so many before it starts."""
OUTPUT = 1 << 16
"""Results in the output buffer."""

CORE, POLICY = "core.", "policy."
"""What the names of the arrays begin with."""

EMPTY = (
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.uint64),
    np.empty(0, np.int64),
)
NO_TIMES = np.empty(0, np.int64)


class Block(NamedTuple):
    """Some results: for each its time, and the places of its members' rows.

    `ends` says where each result's members end where their number varies.
    """

    time: npt.NDArray[np.int64]
    members: Places
    ends: npt.NDArray[np.int64]


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
    """

    def __init__(
        self,
        plan: Plan,
        whole: bool = True,
        memory: Memory | None = None,
    ) -> None:
        self.plan = plan
        self.checked = needs_check(plan.key_types)
        self.intake = Intake(plan)
        self.payload = [Payload(_kept(stream, self.checked, whole)) for stream in plan.streams]
        self.policy: Policy = plan.policy if self._bounded() else Exact()
        lanes = len(plan.streams)
        pools = lanes if any(stream.rows is not None for stream in plan.streams) else 1
        lasts = [stream.last or 0 for stream in plan.streams]
        self.shape = Shape(
            rows=0,
            keys=1,
            table=2,
            streams=lanes,
            lanes=lanes,
            pools=pools,
            held=0,
            recent=sum(lasts),
            disorder=0,
            out_of_order=False,
        )
        self.memory = memory or Memory()
        self.core = empty_core(plan, self.shape, self.memory, CORE)
        layout = self.policy.layout(self.shape)
        self.state: Any = make(self.policy.state, layout, self.shape, self.memory, POLICY)
        self.work = work_room(0, lanes, plan.by is not None)
        self.out = out_room(OUTPUT, lanes, CHUNK)
        self.sample = new_sample(plan, self.core, self.shape, self.memory, self.policy.follows)
        self.rejected = 0
        self.expected = 0
        self.restored = 0
        self.refollowed = 0

    @property
    def sampling(self) -> bool:
        """Whether some keys are followed to estimate what is missed."""
        return self.sample_rate > 0

    @property
    def sample_rate(self) -> float:
        """The part of all keys that is followed now."""
        return float(self.sample.sieve[0]["rate"])

    def _bounded(self) -> bool:
        plan = self.plan
        return plan.total is not None or any(stream.rows is not None for stream in plan.streams)

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
            part = Batch(*(_owned(column[start:end]) for column in batch))
            self._make_room(end - start, self._followed(part))
            yield from self._run(part)

    def _run(self, batch: Batch) -> Iterator[Block | Late]:
        status = None
        while status != DONE:
            self.out.filled[:] = 0
            status = run(self.core, self.state, self.sample, batch, self.work, self.out)
            late = self.out.late[: self.out.filled[LATECOMERS]]
            if late.size:
                yield Late(batch.stream[late], batch.payload[late])
            if made := self.out.filled[MADE]:
                yield Block(
                    self.out.results["time"][:made].copy(),
                    self.out.payload[: self.out.filled[MEMBERS]].copy(),
                    self.out.results["end"][:made].copy(),
                )

    def advance(self, newest: npt.NDArray[np.int64]) -> None:
        """Let time go on between batches: for each input the newest time seen of it anywhere.

        A part of a join sees a part of the rows; what it holds expires by the time of all. A time
        that is not known is `NEVER`.
        """
        if self.core.settings.timed:
            advance(self.core, self.state, newest)

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
        most = max(_most(budget), self.restored)
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
            if self._bounded()
            else 0,
            disorder=enough(old.disorder, disorder, rows),
            out_of_order=disordered,
            **sample_room(self.sample, old, followed, self.refollowed, disordered),
        )
        if shape == old:
            return
        self.core = roomier(core, shape, self.memory, CORE)
        true = roomier(self.sample.core, shape.of_sample, self.memory, TRUE)
        tallies = self.sample._replace(core=true)
        self.sample = grown(tallies, sample_layout(), shape, self.memory, SAMPLE)
        self.state = grown(self.state, self.policy.layout(shape), shape, self.memory, POLICY)
        by = plan.by is not None
        self.work = work_room(max(shape.rows, shape.sample_rows), shape.streams, by)
        if by and shape.streams + 1 > self.out.payload.size:
            self.out = out_room(OUTPUT, 1 + shape.streams // OUTPUT, CHUNK)
        self.shape = shape

    def warm(self) -> None:
        """Have everything compiled that this join will need, by running it on nothing."""
        nothing = Batch(*EMPTY, NOTHING, WORTHLESS)
        self._make_room(1, 1)
        count_followed(self.sample, nothing.hash)
        list(self._run(nothing))
        rebuild(self.core, self.state, nothing, NO_TIMES, NO_TIMES)
        readmit(self.core, self.state, nothing, NO_TIMES, NO_TIMES)
        shed_down(self.core, self.state)
        advance(self.core, self.state, NO_TIMES)
        follow_again(self.state, self.sample, nothing, NO_TIMES, False, False)
        self.seal()

    def compact(self) -> None:
        """Let go of users' rows that nobody can ask for any more, when there are many."""
        stored = int(self.core.pools["held"].sum())
        if sum(payload.rows for payload in self.payload) > 2 * stored + CHUNK:
            self.seal()

    # -- what comes out --------------------------------------------------------------------------

    def results(self, block: Block) -> pa.RecordBatch:
        """The results of a block, checked on the true keys: a struct for each stream, and time."""
        make_results = named_results if self.plan.by is None else told_apart_results
        batch, rejected = make_results(
            self.plan,
            self.payload,
            self.checked,
            block.time,
            block.members,
            block.ends,
        )
        self.rejected += rejected
        return batch

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
            **self._estimates(),
        )

    def _estimates(self) -> dict[str, Any]:
        """What the sample says, if there is one or nothing is missed."""
        missed, lately = self.missed(), self.missed(lately=True)
        return {
            "missed": missed and missed.estimate(),
            "missed_lately": lately and lately.estimate(),
            "sample_rate": self.sample_rate,
            "sample_bytes": sample_bytes(self.sample, self._used()),
        }

    def missed(self, lately: bool = False) -> Tally | None:
        """What is known of the results missed so far, or lately; None if nothing is estimated."""
        if not self.core.counts.reshape(-1, FATES)[:, SHED].any():
            return Tally() if self.sampling or not self._bounded() else None
        if not self.sampling:
            return None
        if lately:
            return tallied_lately(self.sample, self.plan, self.core)
        return tallied(self.sample)

    def state_bytes(self) -> int:
        """Bytes in use: the key table, the rows' bookkeeping, the policy's state, room to work."""
        used = self._used()
        partners = np.dtype(np.int32).itemsize * used.rows * (2 if self.plan.by else 1)
        return partners + used.nbytes(core_layout()) + used.nbytes(self.policy.layout(self.shape))

    def _used(self) -> Shape:
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
        used = self.core.rows[: self.core.numbers[ROWS_USED]]
        changes = seal(used, self.payload, self.plan.by is not None, whole)
        segments: dict[SegmentName, pa.RecordBatch] = {}
        live: dict[SegmentName, npt.NDArray[np.uint8]] = {}
        removed: list[SegmentName] = []
        for position, (payload, change) in enumerate(zip(self.payload, changes, strict=True)):
            if change.new is not None:
                segment = payload.segments[change.new]
                segments[position, change.new] = self._stored_form(position, segment, change.rows)
            live |= {(position, number): bitmap for number, bitmap in change.live.items()}
            removed += [(position, number) for number in change.removed]
        return Delta(self._head(), segments, live, removed)

    def _stored_form(
        self, position: int, segment: pa.RecordBatch, rows: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        """A segment with what is needed to store its rows again."""
        stored = segment.append_column(ARRIVAL, pa.array(self.core.rows["arrival"][rows]))
        if self.policy.marks == "fixed":
            stored = stored.append_column(MARK, pa.array(self._marks(rows)))
        if self.plan.streams[position].time is None:
            stored = stored.append_column(TIME, pa.array(self.core.rows["time"][rows]))
        return stored

    def _marks(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        marks = np.zeros(len(rows), np.int64)
        marks_of(self.core, self.state, rows, marks)
        return marks

    def _head(self) -> Head:
        arrays = {
            "numbers": self.core.numbers.copy(),
            "newest": self.core.lanes["newest"].copy(),
        }
        followed, saved = sampled_rows(self.sample)
        if self.sampling:
            arrays["followed"] = saved
        for prefix, state, layout in self._states():
            for name, form in layout.items():
                if form.kept:
                    arrays[prefix + name] = in_use(getattr(state, name), form, followed)
        if self.policy.marks == "moving":
            rows = live_rows(self.core.rows[: self.core.numbers[ROWS_USED]])
            arrays["marks"] = self._marks(rows[np.argsort(self.core.rows["arrival"][rows])])
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
    ) -> KeyedJoin:
        """The join as it was when the snapshot was taken."""
        head = snapshot.head
        join = cls(plan, memory=memory)
        changed = head.changed(join._about())
        anew = bool(changed - {"estimate"})
        join.intake.names = StreamNames({name: i for i, name in enumerate(head.names)})
        batch, arrivals, marks = join._read_again(snapshot)
        followed, follows = batch, arrivals
        same_sample = join.sampling and not changed & {"estimate", "seed"}
        if same_sample:
            followed, follows = rows_again(head.arrays["followed"])
        join._resume(head)
        join.restored, join.refollowed = len(arrivals), len(follows)
        join._make_room(join.restored, join.refollowed)
        join.core.lanes["newest"] = head.arrays["newest"]
        if anew:
            readmit(join.core, join.state, batch, arrivals, batch.worth)
        else:
            rebuild(join.core, join.state, batch, arrivals, head.arrays.get("marks", marks))
        for prefix, state, layout in join._states():
            for name, form in layout.items():
                of_sample = name in ("sieve", "beyond") or form.per in OF_SAMPLE
                made_anew = (anew and prefix == POLICY) or (of_sample and not same_sample)
                if form.kept and not made_anew:
                    array, saved = getattr(state, name), head.arrays.get(prefix + name, NO_TIMES)
                    used = min(len(array), len(saved))  # the room may differ, not what is in use
                    array[:used] = saved[:used]
        if join.sampling:
            tell = anew or not same_sample
            follow_again(join.state, join.sample, followed, follows, not same_sample, tell)
        kept = [CLOCK, NEWEST, FIRST_SEEN, ARRIVALS, RESULTS]
        join.core.numbers[kept] = head.arrays["numbers"][kept]
        # Rows are numbered anew, in the order of their arrival.
        recent, true = join.core.recent, join.sample.core
        entered = true.rows["arrival"][: true.numbers[ROWS_USED]]
        recent["row"] = _places(recent["arrival"], arrivals)
        recent["followed"] = _places(recent["arrival"], entered)
        recent["arrival"][(recent["row"] == NONE) & (recent["followed"] == NONE)] = NONE
        if anew:
            shed_down(join.core, join.state)
        return join

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
        followed = f"{self.plan.rate}, at least {self.policy.follows}" if self.sampling else "none"
        return self.plan.about() | {"estimate": followed}

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

    def _read_again(
        self, snapshot: Snapshot
    ) -> tuple[Batch, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows of a snapshot as tuples in the order of their arrival."""
        parts: list[Tuples] = []
        arrivals, marks = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for (position, number), stored in snapshot.segments.items():
            offsets = live_offsets(stored.num_rows, snapshot.live.get((position, number)))
            payload = self.payload[position]
            payload.unseal(number, stored.select(payload.schema.names), len(offsets))
            tuples = self.intake.read(position, stored, np.empty(0, np.int64))
            if TIME in stored.schema.names:
                tuples = tuples._replace(time=stored.column(TIME).to_numpy())
            chosen = [column[offsets] for column in tuples[:3]]
            worth = tuples.worth[offsets] if tuples.worth.size else np.zeros(len(offsets), np.int64)
            place = places_in(number, offsets)
            parts.append(Tuples._make([*chosen, place, NOTHING, worth, NO_TIMES]))
            arrivals.append(stored.column(ARRIVAL).to_numpy()[offsets])
            if MARK in stored.schema.names:
                marks.append(stored.column(MARK).to_numpy()[offsets])
        number_of = np.concatenate(arrivals)
        order = np.argsort(number_of)
        mark = np.concatenate(marks)
        columns = [np.concatenate([part[i] for part in parts] or [EMPTY[i]]) for i in range(4)]
        worth = np.concatenate([part.worth for part in parts] or [NO_TIMES])
        owned = [_owned(column[order]) for column in columns]
        batch = Batch._make([*owned, NOTHING, worth[order]])
        marks_in_order = mark[order] if mark.size == order.size else np.zeros(order.size, np.int64)
        return batch, number_of[order], marks_in_order


def _owned(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The column as the compiled loop knows it: numba takes a read-only array for another type."""
    return np.require(column, requirements=["C", "W"])


def _kept(stream: StreamPlan, checked: bool, whole: bool) -> pa.Schema:
    """The columns of an input that are kept: those of results, and those needed besides."""
    kept = stream.schema.names if whole else [*stream.chosen, *(stream.key if checked else ())]
    return pa.schema([column for column in stream.schema if column.name in kept])


def _places(
    arrivals: npt.NDArray[np.int64], entered: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The places of arrivals among those entered, in their order, or NONE."""
    return np.where(np.isin(arrivals, entered), np.searchsorted(entered, arrivals), NONE)


def _most(budgets: npt.NDArray[np.int64]) -> int:
    """The rows that all budgets together allow."""
    return int(min(sum(budgets.tolist()), BOUNDLESS))
