"""The matcher of joins through a relation, outside the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import CHANGE, NO_FLAGS, NO_NUMBERS, Batch
from streamshed.engine.match.matcher import Matcher
from streamshed.engine.match.relation import change_until
from streamshed.engine.match.row_facts import RelationState, RowFacts, row_facts_layout
from streamshed.engine.match.running_relation import DatedChanges, RunningRelation
from streamshed.kernels.core import CLOCK, NEVER, NONE, ROWS_USED, Field, Memory, Shape, make
from streamshed.plan.plan import Plan, RelationPlan

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

NO_CODES: npt.NDArray[np.int32] = np.empty(0, np.int32)


class RelationMatcher(Matcher):
    """Finds rows through the facts of a relation, which may change."""

    prefix = "relation."

    def __init__(self, plan: Plan, shape: Shape, memory: Memory) -> None:
        super().__init__(plan, shape, memory)
        self.relation = RunningRelation(plan)
        self.seen = NEVER
        links: RowFacts = make(RowFacts, row_facts_layout(), shape, memory, self.prefix)
        self.state = RelationState(self.relation.facts, links, self.relation.coming, NO_CODES)

    def layout(self) -> dict[str, Field]:
        """What ties rows to the relation; the relation itself is in no checkpoint."""
        return row_facts_layout()

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name."""
        return {name: getattr(self.state.links, name) for name in row_facts_layout()}

    def replace(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Let rows be tied by other arrays."""
        self.state = self.state._replace(links=self.state.links._replace(**arrays))

    def _refer(self, codes: npt.NDArray[np.int32]) -> None:
        """Let the loop know the relation as it is now."""
        self.state = self.state._replace(
            facts=self.relation.facts, changes=self.relation.coming, codes=codes
        )

    # -- the relation changes --------------------------------------------------------------------

    def pieces(self, join: Operator, batch: Batch) -> Iterator[Batch]:
        """A batch, after the changes up to its times were read, and its keys were looked up."""
        self._read(join, batch)
        # In which order those are taken that wait is not known: they are looked up one by one.
        codes = NO_CODES if self.plan.queue is not None else self.relation.codes(batch)
        self._refer(codes)
        join.work.cursor[CHANGE] = 0
        yield batch
        self.relation.made(int(join.work.cursor[CHANGE]))

    def _read(self, join: Operator, batch: Batch) -> None:
        """Read the changes up to the times of a batch, and make those before all of them."""
        if self.relation.grown():
            rows = join.core.rows[: join.core.numbers[ROWS_USED]]
            stored = rows["time"][rows["arrival"] != NONE]
            self.relation.give_up(self._horizon(join, join.with_waiting(stored)))
        known = batch.time[~batch.null] if batch.null.size else batch.time
        if known.size:
            # What has changed before all of them need not wait to be known as a whole.
            while self.relation.read_more(int(known[0])):
                self._change(join, int(known[0]))
            self.seen = max(self.seen, int(known.max()))
            self.relation.read_until(self.seen)

    def touches(
        self, join: Operator, rows: Batch, places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_] | None:
        """Which rows have a key that is in the relation, if facts are drawn; None if they are not.

        A row without a fact is of no use, but for the clock: of that nothing depends on one row.
        """
        if not self._through.depth:
            return None
        columns = (rows.stream[places], rows.time[places], rows.hash[places])
        batch = Batch(*columns, places, NO_FLAGS, NO_NUMBERS)
        self._read(join, batch)
        found: npt.NDArray[np.bool_] = self.relation.codes(batch) != NONE
        return found

    def pass_by(self, time: int) -> None:
        """Let changes that are read from here on take effect after a time."""
        self.seen = max(self.seen, time)
        self.relation.read_until(self.seen)

    @property
    def facts(self) -> int:
        """The facts, unless their index is shared."""
        return self.relation.count if self._through.index is None else 0

    @property
    def lots(self) -> npt.NDArray[np.uint64]:
        """The lots of facts, by their numbers, where facts are drawn."""
        return self.relation.lots

    def _horizon(self, join: Operator, stored: npt.NDArray[np.int64]) -> int:
        """Facts that ended by this time are of no use to rows stored with such times, or to come.

        No row comes with a time before the clock less what may be late.
        """
        clock = int(join.core.numbers[CLOCK])
        if clock == NEVER:
            return NEVER
        return min(clock - self.plan.late, int(stored.min(initial=clock)))

    def _change(self, join: Operator, time: int) -> None:
        """Make the changes up to a time that were read."""
        self._refer(NO_CODES)
        change_until(join.core, self.state, time, join.work.cursor)
        self.relation.made(int(join.work.cursor[CHANGE]))

    def relay(self) -> Iterator[DatedChanges | None]:
        """The changes of the relation as they are read."""
        return self.relation.relay() if self._through.relation.changes is not None else iter(())

    def follow(self, relayed: Iterator[DatedChanges | None]) -> None:
        """Let the relation change by what the matcher of another join has read."""
        if self._through.relation.changes is not None:
            self.relation.follow(relayed)

    def warm(self, join: Operator) -> None:
        """Have compiled what changes need."""
        if self._through.relation.changes is not None:
            self._change(join, NEVER)
            self.relation.warm()

    # -- checkpoints -----------------------------------------------------------------------------

    def before_restore(self, join: Operator, times: npt.NDArray[np.int64]) -> None:
        """Make all changes up to the newest time seen, which a checkpoint has left behind.

        A long history of changes never has to be here as a whole.
        """
        if self.seen == NEVER:
            return
        horizon = self._horizon(join, times)
        more = True
        while more:
            more = self.relation.read_more(self.seen)
            self._change(join, self.seen)
            if self.relation.grown():
                self.relation.give_up(horizon)
        self.relation.asked = self.seen

    def restore_pieces(self, batch: Batch) -> Iterator[Batch]:
        """The rows of a checkpoint, whose keys are looked up."""
        self._refer(self.relation.restored_codes(batch))
        yield batch
        self._refer(NO_CODES)

    def save(self) -> dict[str, Any]:
        """The newest time up to which changes were made, and which index was used."""
        return {"seen": self.seen, "index": repr(self._through.index)}

    def load(self, saved: dict[str, Any]) -> None:
        """Take up the time up to which changes were made."""
        self.seen = saved["seen"]

    def can_attach(self, saved: dict[str, Any]) -> bool:
        """Whether the same keys have the same codes there: the index is shared, never changed."""
        through = self._through
        if through.index is None or through.relation.changes is not None:
            return False
        return bool(saved.get("index") == repr(through.index))

    @property
    def _through(self) -> RelationPlan:
        assert self.plan.through is not None
        return self.plan.through
