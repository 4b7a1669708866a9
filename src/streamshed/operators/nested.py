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
from streamshed.estimates import Tally
from streamshed.kernels.core import BOUNDLESS, Field, make
from streamshed.kernels.pairs import (
    AGREED,
    COMPARISONS,
    LOOKED,
    TALLIES,
    Meeting,
    Records,
    Whole,
    meeting_layout,
)
from streamshed.ledger import Ledger
from streamshed.operators.buffers import EMITTING, NEXT, Batch
from streamshed.operators.checkpoint import Head
from streamshed.operators.indexing import Index
from streamshed.operators.keyed import Block, KeyedJoin, Late
from streamshed.operators.keyed_loop import DONE
from streamshed.operators.nested_loop import DUE, enter_again, run_nested, withdraw
from streamshed.operators.pairing import Paired
from streamshed.operators.restoring import Rows, owned
from streamshed.operators.throttling import PORTIONS, Controller

MEETING = "meeting."
"""What the names of the arrays begin with that say how streams are gone through."""


class NestedJoin(KeyedJoin):
    """A running join of streams by a condition that every two members of a result meet."""

    def _begin(self) -> None:
        super()._begin()
        # The index hears of all rows, bounded or not: hooks are called for bounded pools alone.
        budgets = self.core.pools["budget"]
        budgets[budgets == BOUNDLESS] = BOUNDLESS - 1
        self.index = Index(self.plan, self.intake.compared, self.shape, self.memory)
        lanes = self.shape.lanes
        self.meeting = make(Meeting, meeting_layout(lanes), self.shape, self.memory, MEETING)
        throttle = self.plan.throttle
        self.controller = (
            None if throttle is None else Controller(self.plan, throttle, self.shape, self.memory)
        )
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
        size = batch.time.size
        for start in range(0, max(1, size), self.index.piece):
            columns = (column[start : start + self.index.piece] for column in batch)
            part = Batch(*(owned(column) for column in columns))
            if start > 0:
                self.index.make_room(self.shape, part.time.size)
            self.index.take(part, self._values(part), seeking)
            yield part

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

    def _loop(self, batch: Batch) -> int:
        while (status := self._go_on(batch)) == DUE:
            assert self.controller is not None
            self._set_orders()
            time = int(batch.time[self.work.cursor[NEXT]])
            self.controller.adapt(self.core, self.meeting, time)
        return status

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
        made = int(self.meeting.numbers[COMPARISONS])
        throttle = None if self.controller is None else self.controller.fraction
        return replace(super().ledger(), comparisons=made, throttle=throttle)

    def missed(self, lately: bool = False) -> Tally | None:
        """What is known of the results missed: nothing where parts of windows are left out."""
        return super().missed(lately) if self.controller is None else None

    def state_bytes(self) -> int:
        """Bytes in use beyond the users' rows."""
        return super().state_bytes() + self.index.nbytes(self.used())

    # -- stop and go on --------------------------------------------------------------------------

    def _states(self) -> list[tuple[str, Any, dict[str, Field]]]:
        meeting = (MEETING, self.meeting, meeting_layout(self.shape.lanes))
        states = [*super()._states(), meeting]
        if self.controller is not None:
            states.append((PORTIONS, self.controller.state, self.controller.layout()))
        return states

    def left_by(self, head: Head) -> bool:
        """Never: the index is made anew from the rows."""
        return False

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
