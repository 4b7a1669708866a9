"""The join of streams through a relation, which says who meets whom, driven batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamshed.kernels.core import (
    BOUNDLESS,
    NEVER,
    Field,
    Memory,
    grown,
    make,
)
from streamshed.ledger import Ledger
from streamshed.operators.buffers import CHANGE, Batch, out_room
from streamshed.operators.checkpoint import Head
from streamshed.operators.keyed import CHUNK, OUTPUT, Block, KeyedJoin, Late
from streamshed.operators.links import Links, Through, links_layout
from streamshed.operators.plan import Plan
from streamshed.operators.relating import RunningRelation
from streamshed.operators.restoring import Rows
from streamshed.operators.results import related_results
from streamshed.operators.star_loop import StarOut, change_again, link_again, run_through
from streamshed.policies import Policy

LINKS = "links."
"""What the names of the arrays begin with that tie rows to the relation."""


class StarJoin(KeyedJoin):
    """A running join of streams through a relation.

    Args:
        plan: the join, checked against its inputs.
        whole: whether all columns of the plan are kept: checkpoints and late rows need them.
        memory: where the arrays are.
        policy: the one that sheds, if it is not the plan's.
    """

    def __init__(
        self,
        plan: Plan,
        whole: bool = True,
        memory: Memory | None = None,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(plan, whole, memory, policy)
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

    def _run(self, batch: Batch) -> Iterator[Block | Late]:
        known = batch.time[~batch.null] if batch.null.size else batch.time
        if known.size:
            self.seen = max(self.seen, int(known.max()))
            self.relation.read_until(self.seen)
        batch, self.codes = self.relation.encoded(batch)
        self.work.cursor[CHANGE] = 0
        yield from super()._run(batch)
        self.relation.made(int(self.work.cursor[CHANGE]))

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
        return head

    def _store_again(self, head: Head, rows: Rows, anew: bool) -> None:
        self.rejected_importance = head.numbers["rejected_importance"]
        self.seen = head.numbers["seen"]
        if self.seen != NEVER:
            self._change_again(self.seen)
        batch, codes = self.relation.encoded(rows.batch)
        link_again(self.core, self.teller, batch, codes, rows.arrivals, rows.marks, anew)

    def _change_again(self, time: int) -> None:
        """Make all changes up to a time, which a snapshot has left behind."""
        changes = self.relation.read_until(time)
        change_again(self.core, self.teller, changes, time, self.work.cursor)
        self.relation.made(int(self.work.cursor[CHANGE]))
