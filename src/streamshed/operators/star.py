"""The join of streams through a relation, which says who meets whom, driven batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.kernels.core import (
    BOUNDLESS,
    CLOCK,
    NEVER,
    ROWS_USED,
    Field,
    Memory,
    Shape,
    grown,
    make,
)
from streamshed.ledger import Ledger
from streamshed.operators.buffers import CHANGE, Batch, out_room
from streamshed.operators.checkpoint import Head, Snapshot
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.keyed_loop import live_rows
from streamshed.operators.links import Links, Through, links_layout
from streamshed.operators.plan import Plan, RelationPlan
from streamshed.operators.relating import NO_CHANGES, RunningRelation
from streamshed.operators.restoring import NO_TIMES, Rows
from streamshed.operators.results import related_results
from streamshed.operators.star_loop import StarOut, change_again, link_again, run_through
from streamshed.operators.table_join import CHUNK, OUTPUT, Block, Late

LINKS = "links."
"""What the names of the arrays begin with that tie rows to the relation."""


class StarJoin(KeyedJoin):
    """A running join of streams through a relation.

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
        super().__init__(plan, whole, memory)
        self.relation = RunningRelation(plan)
        self.codes = np.empty(0, np.int32)
        self.rejected_importance = 0.0
        self.seen = NEVER

    def _begin(self) -> None:
        super()._begin()
        # The ties of all rows are kept, bounded or not: hooks are called for bounded pools alone.
        budgets = self.core.pools["budget"]
        budgets[budgets == BOUNDLESS] = BOUNDLESS - 1
        self.links: Links = make(Links, links_layout(), self.shape, self.memory, LINKS)
        out = out_room(OUTPUT, len(self.plan.streams) + 1, CHUNK)
        self.out: Any = StarOut(*out, np.empty(OUTPUT, np.float64))

    @property
    def teller(self) -> Through:
        """The policy, and the relation through which it learns of rows."""
        return Through(self.state, self.relation.facts, self.links)

    def _make_room(self, tuples: int, followed: int) -> None:
        super()._make_room(tuples, followed)
        self.links = grown(self.links, links_layout(), self.shape, self.memory, LINKS)

    def process(self, batch: Batch) -> Iterator[Block | Late]:
        """Process tuples in their order; facts that nobody can use any more are given up first."""
        if self.relation.grown():
            rows = self.core.rows[: self.core.numbers[ROWS_USED]]
            self.relation.give_up(self._horizon(rows["time"][live_rows(rows)]))
        yield from super().process(batch)

    def _horizon(self, stored: npt.NDArray[np.int64]) -> int:
        """Facts that ended by this time are of no use to rows stored with such times, or to come.

        No tuple comes with a time before the clock less what may be late.
        """
        clock = int(self.core.numbers[CLOCK])
        if clock == NEVER:
            return NEVER
        return min(clock - self.plan.late, int(stored.min(initial=clock)))

    def _run(self, batch: Batch) -> Iterator[Block | Late]:
        known = batch.time[~batch.null] if batch.null.size else batch.time
        if known.size:
            # What has changed before all of them need not wait to be known as a whole.
            while self.relation.read_more(int(known[0])):
                self._change(int(known[0]))
            self.seen = max(self.seen, int(known.max()))
            self.relation.read_until(self.seen)
        batch, self.codes = self.relation.encoded(batch)
        self.work.cursor[CHANGE] = 0
        yield from super()._run(batch)
        self.relation.made(int(self.work.cursor[CHANGE]))

    def _warm_storing(self, nothing: Batch) -> None:
        link_again(self.core, self.teller, nothing, self.codes, NO_TIMES, NO_TIMES, True)
        change_again(self.core, self.teller, NO_CHANGES, NEVER, self.work.cursor)

    def _loop(self, batch: Batch) -> int:
        status: int = run_through(
            self.core,
            self.teller,
            self.sample,
            self.relation.coming,
            batch,
            self.codes,
            self.work,
            self.out,
        )
        return status

    def _block(self, made: int) -> Block:
        return super()._block(made)._replace(importance=self.out.importance[:made].copy())

    def results(self, block: Block) -> pa.RecordBatch:
        """The results of a block: a struct for each stream, one for the relation, and time."""
        members = block.members.reshape(len(block.time), len(self.plan.streams) + 1).T
        places = [*members[:-1], self.relation.places(members[-1])]
        batch, true = related_results(
            self.plan,
            self.payload,
            self.relation.payload,
            self.checked,
            block.time,
            places,
            block.importance,
        )
        if not true.all():
            self.rejected += int((~true).sum())
            self.rejected_importance += float(block.importance[~true].sum())
        return batch

    def ledger(self) -> Ledger:
        """The accounts as they stand."""
        total = float(self.links.total[0]) - self.rejected_importance
        return replace(
            super().ledger(),
            importance=total if self.plan.weighed else None,
            relation_bytes=self.relation.nbytes(),
        )

    def state_bytes(self) -> int:
        """Bytes in use beyond the users' rows and the relation."""
        return super().state_bytes() + self.used().nbytes(links_layout())

    # -- stop and go on --------------------------------------------------------------------------

    def _states(self) -> list[tuple[str, Any, dict[str, Field]]]:
        return [*super()._states(), (LINKS, self.links, links_layout())]

    def head(self) -> Head:
        """All of the state but the rows and the relation."""
        head = super().head()
        head.numbers["rejected_importance"] = self.rejected_importance
        head.numbers["seen"] = self.seen
        head.numbers["index"] = repr(self._through.index)
        return head

    @property
    def _through(self) -> RelationPlan:
        assert self.plan.through is not None
        return self.plan.through

    def left_by(self, head: Head) -> bool:
        """Whether the very same join has left a state, with the same codes for the same keys."""
        through = self._through
        if through.index is None or through.relation.changes is not None:
            return False
        return super().left_by(head) and head.numbers.get("index") == repr(through.index)

    def attach(
        self, shape: Shape, arrays: Callable[[str, np.dtype[Any]], Any], snapshot: Snapshot
    ) -> None:
        """Take over the arrays that another process has left."""
        super().attach(shape, arrays, snapshot)
        layout = links_layout().items()
        self.links = Links(**{n: arrays(LINKS + n, np.dtype(form.dtype)) for n, form in layout})
        self._resume_sums(snapshot.head)

    def _resume_sums(self, head: Head) -> None:
        self.rejected_importance = head.numbers["rejected_importance"]
        self.seen = head.numbers["seen"]

    def _store_again(self, head: Head, rows: Rows, anew: bool) -> None:
        self._resume_sums(head)
        if self.seen != NEVER:
            self._change_again(self.seen, self._horizon(rows.batch.time))
        batch, codes = self.relation.encoded(rows.batch)
        link_again(self.core, self.teller, batch, codes, rows.arrivals, rows.marks, anew)

    def _change_again(self, time: int, horizon: int) -> None:
        """Make all changes up to a time, which a snapshot has left behind, and give up what ended.

        A long history of changes never has to be here as a whole.
        """
        more = True
        while more:
            more = self.relation.read_more(time)
            self._change(time)
            if self.relation.grown():
                self.relation.give_up(horizon)
        self.relation.asked = time

    def _change(self, time: int) -> None:
        """Make the changes up to a time that were read."""
        change_again(self.core, self.teller, self.relation.coming, time, self.work.cursor)
        self.relation.made(int(self.work.cursor[CHANGE]))
