"""The join on any condition between two rows, driven batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from streamshed.errors import InputError
from streamshed.kernels.core import BOUNDLESS, FATES, STORED, Field, make
from streamshed.kernels.pacing import (
    Whole,
)
from streamshed.kernels.pairs import (
    AGREED,
    COMPARISONS,
    LOOKED,
    TALLIES,
    Meeting,
    Records,
    meeting_layout,
)
from streamshed.ledger import Ledger
from streamshed.operators.buffers import EMITTING, NEXT, Batch
from streamshed.operators.checkpoint import Head
from streamshed.operators.indexing import Index, Likely
from streamshed.operators.keyed_loop import DONE
from streamshed.operators.nested_loop import enter_again, run_nested, withdraw
from streamshed.operators.pacing import Pacing
from streamshed.operators.pairing import Paired
from streamshed.operators.restoring import Rows, owned
from streamshed.operators.table_join import Block, Late
from streamshed.operators.throttling import KEPT, Controller, Known
from streamshed.throttle.portions import LOOP

MEETING = "meeting."
"""What the names of the arrays begin with that say how streams are gone through."""


class NestedJoin(Pacing):
    """A running join of streams by a condition that every two members of a result meet."""

    def _begin(self) -> None:
        super()._begin()
        # The index hears of all rows, bounded or not: hooks are called for bounded pools alone.
        budgets = self.core.pools["budget"]
        budgets[budgets == BOUNDLESS] = BOUNDLESS - 1
        self.index = Index(self.plan, self.intake.compared, self.shape, self.memory)
        lanes = self.shape.lanes
        self.meeting = make(Meeting, meeting_layout(lanes), self.shape, self.memory, MEETING)
        self.failed: Exception | None = None
        self._set_orders()

    def _set_orders(self) -> None:
        """Go through the windows in which fewest rows agree first, as far as is known."""
        lanes = self.shape.lanes
        met = self.meeting.met.reshape(lanes, lanes, TALLIES)
        share = (met[:, :, AGREED] + 1) / (met[:, :, LOOKED] + 2)
        orders = self.meeting.orders.reshape(lanes, lanes - 1)
        for lane in range(lanes):
            by_share = np.argsort(share[lane], kind="stable")
            orders[lane] = by_share[by_share != lane]

    @property
    def teller(self) -> Paired:
        """The policy, and the index that learns of rows too; the user's function is not asked."""
        state = self.index.state
        plain = state._replace(function=None) if isinstance(state, Records) else state
        return Paired(self.state, plain)

    def _make_room(self, tuples: int, followed: int) -> None:
        super()._make_room(tuples, followed)
        self.index.make_room(self.shape, tuples)

    def _run(self, batch: Batch) -> Iterator[Block | Late]:
        for part in self._pieces(batch, seeking=True):
            yield from super()._run(part)
            if self.failed is not None:
                self._refuse(part)
        if self.controller is None:
            self._set_orders()

    def _pieces(self, batch: Batch, seeking: bool) -> Iterator[Batch]:
        """The batch, as much at a time as the index takes, which knows the values then."""
        size, start = batch.time.size, 0
        while True:
            end = min(size, start + self.index.piece)
            if seeking and self.controller is not None and end > start and self.index.multiplies:
                end = self._until_due(self.controller, batch, start, end)
            part = Batch(*(owned(column[start:end]) for column in batch))
            if start > 0:
                self.index.make_room(self.shape, part.time.size)
            with self.timed(LOOP):
                self.index.take(part, self._values(part), self._likely(part) if seeking else None)
            yield part
            start = end
            if start >= size:
                return

    def _until_due(self, controller: Controller, batch: Batch, start: int, end: int) -> int:
        """Where the throttle is set anew next; if that is now, it is done before all else.

        It has to be known of tuples what they will go through before they are processed.
        """
        known = np.ones(end - start, np.bool_) if batch.null.size == 0 else ~batch.null[start:end]
        times = batch.time[start:end]
        if known[0] and controller.is_due(times[:1])[0]:
            controller.adapt(self._known(), int(times[0]))
        due = np.flatnonzero(known & controller.is_due(times))
        return start + int(due[0]) if due.size else end

    def _likely(self, batch: Batch) -> Likely:
        """Who will look for partners among which rows: all of them, or those of chosen parts."""
        controller = self.controller
        if controller is None or not self.index.multiplies:
            return lambda asked, *_: np.ones(asked.size, np.bool_)
        modes = controller.foreseen(self.core, batch.stream)
        return lambda asked, lane, other, span: controller.wants(
            modes[asked], batch.time[asked], lane, other, span
        )

    def _values(self, batch: Batch) -> npt.NDArray[Any]:
        """What tuples are compared by, from the users' rows."""
        compared = self.intake.compared
        shape = (batch.time.size, *([self.index.width] if compared.vectors else []))
        values = np.zeros(shape, compared.dtype)
        for position, stream in enumerate(self.plan.streams):
            mine = batch.stream == position
            if mine.any():
                rows = self.payload[position].take(batch.payload[mine], stream.compared)
                values[mine] = compared.read(stream, rows)
        return values

    def _known(self) -> Known:
        self._set_orders()
        assert self.controller is not None
        lanes = self.shape.lanes
        met = self.meeting.met.reshape(lanes, lanes, TALLIES)
        share = (met[:, :, AGREED] + 0.05) / (met[:, :, LOOKED] + 100.0)
        met[:] = (met * KEPT).astype(np.int64)
        stored = self.core.counts.reshape(-1, FATES)[:, STORED] / self.controller.state.admitted
        sizes = np.broadcast_to(np.maximum(stored, 1.0), (lanes, lanes))
        return Known(self.meeting.orders.reshape(lanes, lanes - 1), sizes, share)

    def _go_on(self, batch: Batch) -> int:
        if not isinstance(self.index.state, Records):
            return self._call(run_nested, batch)
        try:
            return self._call(_alone(self.index.state.function), batch)
        except Exception as error:  # the user's function may raise anything
            self.failed = error
            return DONE

    def _call(self, run: Any, batch: Batch) -> int:
        status: int = run(
            self.core,
            Paired(self.state, self.index.state),
            self.sample,
            Whole() if self.controller is None else self.controller.state,
            self.meeting,
            batch,
            self.work,
            self.out,
        )
        return status

    def _refuse(self, batch: Batch) -> None:
        """Stop at a tuple whose comparison has failed, as if it had not come."""
        error, self.failed = self.failed, None
        at = int(self.work.cursor[NEXT])
        withdraw(self.core, batch, at)
        self.work.cursor[[NEXT, EMITTING]] = 0
        stream = self.plan.streams[batch.stream[at]]
        values = {name: self.index.state.coming[name][at] for name in stream.compared}
        said = ", ".join(f"{name}={value}" for name, value in values.items())
        raise InputError(
            f"stream {stream.name!r}: {self.plan.pairwise} has failed when a row with {said} was "
            f"compared ({type(error).__name__}: {error}); let the function answer for all rows"
        ) from error

    def ledger(self) -> Ledger:
        """The accounts as they stand."""
        return replace(super().ledger(), comparisons=int(self.meeting.numbers[COMPARISONS]))

    def state_bytes(self) -> int:
        """Bytes in use beyond the users' rows."""
        return super().state_bytes() + self.index.nbytes(self.used())

    # -- stop and go on --------------------------------------------------------------------------

    def _states(self) -> list[tuple[str, Any, dict[str, Field]]]:
        return [*super()._states(), (MEETING, self.meeting, meeting_layout(self.shape.lanes))]

    def _store_again(self, head: Head, rows: Rows, anew: bool) -> None:
        done = 0
        for part in self._pieces(rows.batch, seeking=False):
            these = slice(done, done + part.time.size)
            done += part.time.size
            arrivals, marks = owned(rows.arrivals[these]), owned(rows.marks[these])
            enter_again(self.core, self.teller, part, arrivals, marks, anew)


@cache
def _alone(function: Any) -> Any:
    """The loop, compiled for a function of the user's, which is in no cache on disk."""
    loop = run_nested.py_func  # type: ignore[attr-defined]
    return numba.njit(nogil=True, error_model="numpy", _nrt=False)(loop)
