"""A join that chooses its policy as it goes: `shed("auto")`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamshed.kernels.core import ARRIVALS, RESULTS, Memory, Shape
from streamshed.ledger import Ledger
from streamshed.operators.buffers import Batch
from streamshed.operators.checkpoint import Head, Snapshot
from streamshed.operators.following import teach
from streamshed.operators.graph import GraphJoin
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.nested import NestedJoin
from streamshed.operators.pacing import PacedGraphJoin, PacedJoin
from streamshed.operators.plan import Plan
from streamshed.operators.queued import QueuedJoin
from streamshed.operators.restoring import bare, in_order, rows_again
from streamshed.operators.spilling import SpillingJoin
from streamshed.operators.star import StarJoin
from streamshed.operators.table_join import Block, Late
from streamshed.operators.trials import Trials
from streamshed.policies import Auto, Policy, by_name
from streamshed.policies.auto import candidates


def running_join(plan: Plan) -> type[KeyedJoin]:
    """The kind of join that a plan asks for."""
    if plan.spill is not None:
        return SpillingJoin
    if plan.through is not None:
        return StarJoin
    if plan.queue is not None:
        return QueuedJoin
    if plan.graph:
        return GraphJoin if plan.throttle is None else PacedGraphJoin
    if plan.pairwise is not None:
        return NestedJoin
    if plan.throttle is not None:
        return PacedJoin
    return AutoJoin if isinstance(plan.policy, Auto) and plan.bounded else KeyedJoin


class AutoJoin(KeyedJoin):
    """A running join on one shared key whose policy is the best of several, tried in miniature.

    After each round of arrivals the policies tried are compared. To go over to another is what
    happens when a join is restored under another policy: the rows that are stored stay, and the new
    one takes them as newcomers; what it has learned in miniature it takes with it.
    """

    def __init__(
        self,
        plan: Plan,
        whole: bool = True,
        memory: Memory | None = None,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(plan, whole, memory, policy or candidates(plan)[0])
        self.trials = Trials(plan, self.intake)
        self.switches = 0
        self.shed_before: dict[str, int] = {}

    def process(self, batch: Batch) -> Iterator[Block | Late]:
        """Process tuples in their order; at the end of a round the policy may change."""
        done, size = 0, batch.time.size
        while done < size:
            left = self.trials.round - int(self.core.numbers[ARRIVALS]) % self.trials.round
            part = Batch._make(column[done : done + left] for column in batch)
            yield from super().process(part)
            self.trials.run(part)
            done += part.time.size
            if part.time.size == left:
                made = int(self.core.numbers[RESULTS])
                best = self.trials.end_round(self.policy, self.core.lanes["newest"], made)
                if best != self.policy:
                    self._switch(best)

    def _switch(self, policy: Policy) -> None:
        """Let another policy shed from now on."""
        shed = self.shed_by()
        head, rows = self.head(), in_order(self.core)
        stored = rows_again(bare(self.core, rows))
        batch = stored.batch._replace(payload=self.core.rows["payload"][rows])
        self.policy, self.shed_before, self.switches = policy, shed, self.switches + 1
        self._begin()
        self.take_up(head, stored._replace(batch=batch), {"policy"})
        tried = self.trials.joins[policy]
        teach(self.state, self.sample, tried.state, tried.sample)

    def warm(self) -> None:
        """Have everything compiled, for every policy."""
        super().warm()
        self.trials.warm()
        for join in self.trials.joins.values():
            teach(join.state, join.sample, join.state, join.sample)
        self.trials = Trials(self.plan, self.intake)

    # -- what comes out --------------------------------------------------------------------------

    def ledger(self) -> Ledger:
        """The accounts as they stand."""
        ledger = super().ledger()
        size = ledger.sample_bytes + self.trials.nbytes
        return replace(ledger, sample_bytes=size, switches=self.switches)

    def shed_by(self) -> dict[str, int]:
        """How many rows were shed by each policy."""
        rows = dict(self.shed_before)
        now = self.shed - sum(rows.values())
        return rows | {self.policy.name: rows.get(self.policy.name, 0) + now}

    # -- stop and go on --------------------------------------------------------------------------

    def head(self) -> Head:
        """All of the state but the rows, that of the trials included."""
        head = super().head()
        trials, arrays = self.trials.saved()
        numbers = {
            "policy": self.policy.name,
            "trials": trials,
            "switches": self.switches,
            "shed before": self.shed_before,
        }
        return replace(head, numbers=head.numbers | numbers, arrays=head.arrays | arrays)

    @classmethod
    def restore(cls, plan: Plan, snapshot: Snapshot, memory: Memory | None = None) -> Self:
        """The join as it was when the snapshot was taken."""
        join = super().restore(plan, snapshot, memory)
        if not snapshot.head.changed(join._about()) - {"estimate"}:
            join._go_on(snapshot.head)
        return join

    @classmethod
    def _policy_of(cls, head: Head) -> Policy | None:
        return by_name(head.numbers["policy"]) if "policy" in head.numbers else None

    def attach(
        self,
        shape: Shape,
        arrays: Callable[[str, np.dtype[Any]], npt.NDArray[Any]],
        snapshot: Snapshot,
    ) -> None:
        """Go on with the arrays that another process has left, and the rows that belong to them."""
        self.policy = self._policy_of(snapshot.head) or self.policy
        self._begin()
        super().attach(shape, arrays, snapshot)
        self._go_on(snapshot.head)

    def _go_on(self, head: Head) -> None:
        self.switches = head.numbers["switches"]
        self.shed_before = head.numbers["shed before"]
        self.trials.go_on(head.numbers["trials"], head.arrays)
