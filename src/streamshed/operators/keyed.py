"""The join on one shared key: at work, and able to stop and go on later, or elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.kernels.core import (
    ARRIVALS,
    CLOCK,
    FIRST_SEEN,
    NEWEST,
    OVERDUE,
    RESULTS,
    ROWS_USED,
    Field,
    Memory,
    Shape,
    core_layout,
)
from streamshed.kernels.sampling import count_followed, sample_layout
from streamshed.operators.buffers import (
    EMITTING,
    NEXT,
    Batch,
    work_room,
)
from streamshed.operators.checkpoint import ARRIVAL, MARK, TIME, Delta, Head, SegmentName, Snapshot
from streamshed.operators.following import follow_again
from streamshed.operators.intake import NOTHING, WORTHLESS, StreamNames
from streamshed.operators.keyed_loop import (
    advance,
    marks_of,
    readmit,
    rebuild,
    shed_down,
)
from streamshed.operators.plan import Plan
from streamshed.operators.restoring import (
    EMPTY,
    NO_TIMES,
    Rows,
    bare,
    find_recent,
    in_order,
    kept,
    read_again,
    rows_again,
)
from streamshed.operators.sample import (
    OF_ROWS,
    OF_SAMPLE,
    SAMPLE,
    SIEVE,
    TRUE,
    in_use,
    places_of,
)
from streamshed.operators.sealing import seal
from streamshed.operators.table_join import CHUNK, CORE, POLICY, TableJoin

MARKS = "marks"
"""The name of the array of the policy's marks."""


class KeyedJoin(TableJoin):
    """A running join on one shared key."""

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
        """How the policy marks rows."""
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
        join = cls(plan, memory=memory)
        changed = head.changed(join._about())
        join.intake.names = StreamNames({name: i for i, name in enumerate(head.names)})
        rows = read_again(join.intake, join.payload, snapshot)
        join._resume(head)
        join.take_up(head, rows, changed)
        return join

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
