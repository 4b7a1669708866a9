"""Joins whose work is bounded: what all of them have in common, and those by equal keys.

`Paced` stands in the policy's place where rows are looked up by keys: the loops ask it what of the
windows is gone through, and tell it what that has cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamshed.estimates import Tally
from streamshed.kernels import hooks, pacing
from streamshed.kernels.compiling import implements
from streamshed.kernels.core import FATES, STORED, Field
from streamshed.ledger import Ledger
from streamshed.operators.buffers import NEXT, Batch
from streamshed.operators.checkpoint import Head
from streamshed.operators.graph import GraphJoin
from streamshed.operators.intake import NOTHING, WORTHLESS, Tuples
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.keyed_loop import DUE
from streamshed.operators.passing import passes_on
from streamshed.operators.payload import Places
from streamshed.operators.restoring import EMPTY
from streamshed.operators.sample import tallied, tallied_lately
from streamshed.operators.table_join import Block, Late
from streamshed.operators.throttling import PORTIONS, Controller, Known
from streamshed.operators.weaving import Graph
from streamshed.throttle.portions import LOOP, NOW, REST

FEWEST = 1e-3
"""Rows that a newcomer is taken to meet of a stream, however few were met."""


@passes_on("urgency", "admits", "victim", "mark", "inserted", "removed", "restored")
@passes_on("followed", "unfollowed")
class Paced(NamedTuple):
    """A policy, and what of the windows is gone through."""

    policy: Any
    parts: Any


@implements(hooks.announced, Paced)
def _announced(policy, core, batch, i):  # type: ignore[no-untyped-def]
    policy.parts.steps[NOW] = batch.time[i]
    hooks.announced(policy.policy, core, batch, i)


@implements(hooks.produced, Paced)
def _produced(policy, core, key, stream, pattern, members, count):  # type: ignore[no-untyped-def]
    parts = policy.parts
    pacing.completed(parts, core, stream, parts.steps[NOW], members, count)
    hooks.produced(policy.policy, core, key, stream, pattern, members, count)


@implements(pacing.wanted, Paced)
def _wanted(parts, core, lane, other, offset, row):  # type: ignore[no-untyped-def]
    return pacing.wanted(parts.parts, core, lane, other, offset, row)


@implements(pacing.farthest, Paced)
def _farthest(parts, core, lane, other):  # type: ignore[no-untyped-def]
    return pacing.farthest(parts.parts, core, lane, other)


@implements(pacing.met, Paced)
def _met(parts, core, lane, other, count):  # type: ignore[no-untyped-def]
    pacing.met(parts.parts, core, lane, other, count)


@implements(pacing.due, Paced)
def _due(parts, time):  # type: ignore[no-untyped-def]
    return pacing.due(parts.parts, time)


@implements(pacing.let_in, Paced)
def _let_in(parts, core, stream):  # type: ignore[no-untyped-def]
    return pacing.let_in(parts.parts, core, stream)


@implements(pacing.worked, Paced)
def _worked(parts, core, stream, work):  # type: ignore[no-untyped-def]
    pacing.worked(parts.parts, core, stream, work)


@implements(pacing.outlived, Paced)
def _outlived(parts, core, lane):  # type: ignore[no-untyped-def]
    return pacing.outlived(parts.parts, core, lane)


class Pacing(KeyedJoin):
    """A running join whose work may be bounded."""

    def _begin(self) -> None:
        super()._begin()
        throttle = self.plan.throttle
        self.controller = (
            None if throttle is None else Controller(self.plan, throttle, self.shape, self.memory)
        )
        self.loaded = throttle is None or throttle.share is None

    def _known(self) -> Known:
        """What is known of the streams, by which it is said what is gone through."""
        raise NotImplementedError

    def timed(self, pace: int | None = REST) -> AbstractContextManager[None]:
        """Count the time that is taken, if the work of the join is bounded."""
        return nullcontext() if self.controller is None else self.controller.timed(pace)

    def read(self, position: int, rows: pa.RecordBatch, places: Places | None = None) -> Tuples:
        """Take rows of the input at a position, in the order of their arrival."""
        with self.timed():
            return super().read(position, rows, places)

    def results(self, block: Block) -> pa.RecordBatch:
        """The results of a block, checked on the true keys: a struct for each stream, and time."""
        with self.timed():
            return super().results(block)

    def _run(self, batch: Batch) -> Iterator[Block | Late]:
        found = super()._run(batch)
        while True:
            with self.timed():
                one = next(found, None)
            if one is None:
                return
            yield one

    def _loop(self, batch: Batch) -> int:
        if not self.loaded:  # what is compiled, or read from a cache, is no work
            self.loaded = True
            with self.timed(None):
                self._go_on(self._nothing())
        while True:
            with self.timed(LOOP):
                status = self._go_on(batch)
            if status != DUE:
                return status
            assert self.controller is not None
            self.controller.adapt(self._known(), int(batch.time[self.work.cursor[NEXT]]))

    def _nothing(self) -> Batch:
        """A batch without tuples."""
        return Batch(*EMPTY, NOTHING, WORTHLESS)

    def _go_on(self, batch: Batch) -> int:
        """Let the loop run until it is left, for whatever reason."""
        return super()._loop(batch)

    def ledger(self) -> Ledger:
        """The accounts as they stand, with the work that was done."""
        ledger, controller = super().ledger(), self.controller
        if controller is None:
            return ledger
        second = controller.throttle.second
        capacity = None if controller.capacity is None else controller.capacity / second
        return replace(
            ledger, comparisons=controller.work, throttle=controller.fraction, capacity=capacity
        )

    def shed_by(self) -> dict[str, int]:
        """How many rows were shed by the policy, and how many because there was no time."""
        shed = super().shed_by()
        if self.controller is None or not self.controller.dropped:
            return shed
        dropped = self.controller.dropped
        by_policy = {name: rows - dropped for name, rows in shed.items()}
        return by_policy | {"throttle": dropped}

    def missed(self, lately: bool = False) -> Tally | None:
        """What is known of the results missed: where parts of windows are left out, by sample."""
        if self.controller is None:
            return super().missed(lately)
        if not self.sampling:
            return None
        return tallied_lately(self.sample, self.plan, self.core) if lately else tallied(self.sample)

    # -- stop and go on --------------------------------------------------------------------------

    def _states(self) -> list[tuple[str, Any, dict[str, Field]]]:
        states = super()._states()
        if self.controller is None:
            return states
        return [*states, (PORTIONS, self.controller.state, self.controller.layout())]

    def left_by(self, head: Head) -> bool:
        """Never: what was learned is taken from the head."""
        return False


class PacedJoin(Pacing):
    """A running join on one shared key whose work is bounded."""

    @property
    def teller(self) -> Paced:
        """The policy, and what of the windows is gone through."""
        assert self.controller is not None
        return Paced(self.state, self.controller.state)

    def _known(self) -> Known:
        assert self.controller is not None
        lanes = self.shape.lanes
        orders = np.array([[k for k in range(lanes) if k != i] for i in range(lanes)])
        partners = self.controller.state.partners.reshape(lanes, lanes + 1)
        sizes = partners[:, :lanes] / np.maximum(partners[:, lanes:], 1.0)
        return Known(orders, np.maximum(sizes, FEWEST), np.ones((lanes, lanes)))


class PacedGraphJoin(Pacing, GraphJoin):
    """A running join by a graph of equalities whose work is bounded."""

    @property
    def teller(self) -> Graph:
        """The policy, what of the windows is gone through, and the indexes."""
        assert self.controller is not None
        graph = super().teller
        return graph._replace(policy=Paced(self.state, self.controller.state))

    def _known(self) -> Known:
        lanes = self.shape.lanes
        orders = self.net.levels["stream"].reshape(lanes, lanes - 1)
        sizes = np.ones((lanes, lanes))
        for first, order in enumerate(orders.tolist()):
            for step, other in enumerate(order):
                sizes[first, other] = self._matches([first, *order[:step]], other)
        return Known(orders, np.maximum(sizes, FEWEST), np.ones((lanes, lanes)))

    def _matches(self, before: list[int], other: int) -> float:
        """The rows of a stream that match one of each that comes before, by what was measured.

        Attributes are taken as independent of each other.
        """
        stored = max(1.0, float(self.core.counts.reshape(-1, FATES)[other, STORED]))
        fanout = self.net.fanout.reshape(self.shape.lanes, -1)
        matches, open_ones = stored, int(self.net.attributes[other])
        for member in before:
            shared = open_ones & int(self.net.attributes[member])
            if shared:
                matches *= min(1.0, float(fanout[member, other]) / stored)
                open_ones &= ~shared
        return matches

    def _nothing(self) -> Batch:
        hashes = np.empty((0, self.width), np.uint64)
        return super()._nothing()._replace(hashes=hashes)
