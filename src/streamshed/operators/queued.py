"""A join that takes a tuple only so often, with a queue before it, driven batch by batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamshed.kernels.core import ROW, ROWS_USED
from streamshed.ledger import Ledger
from streamshed.operators.buffers import Batch
from streamshed.operators.checkpoint import Head
from streamshed.operators.graph import GraphJoin
from streamshed.operators.graph_loop import run_queued
from streamshed.operators.restoring import Rows
from streamshed.operators.waiting import (
    CAME,
    COUNT,
    LATEST,
    Waiting,
    let_come,
    new_queue,
    places_in_order,
    saved_queue,
    wait_again,
)


class QueuedJoin(GraphJoin):
    """A running join with a queue; a shared key is a graph of equalities too."""

    def _begin(self) -> None:
        super()._begin()
        self.queue: Waiting = new_queue(self.plan, self.width)

    def _processed(self, batch: Batch) -> Batch:
        """Those that wait, and whose turn it is."""
        return self.queue.tuples

    def _loop(self, batch: Batch) -> int:
        status: int = run_queued(
            self.core, self.teller, self.sample, batch, self.queue, self.work, self.out
        )
        return status

    def _make_room(self, tuples: int, followed: int) -> None:
        # Those that wait may be processed with the tuples that come.
        super()._make_room(tuples + len(self.queue.after), followed)

    def let_come(self, tuples: int, now: float) -> None:
        """Say when the next tuples come, where the queue goes by the clock on the wall.

        They are taken to have come evenly since the last ones did.

        Args:
            tuples: how many will be processed next.
            now: microseconds, when the last of them comes.
        """
        let_come(self.queue, tuples, now)

    def advance(self, newest: npt.NDArray[np.int64]) -> None:
        """Let time go on between batches, unless somebody waits, who would be late then."""
        if self.queue.numbers[COUNT] == 0:
            super().advance(newest)

    def ledger(self) -> Ledger:
        """The accounts as they stand, with those that wait and those that waited in vain."""
        ledger = super().ledger()
        streams = {}
        counts = self.queue.counts.reshape(-1, 2).tolist()
        for (name, stream), (waits, shed) in zip(ledger.streams.items(), counts, strict=True):
            arrived = stream.arrived + waits + shed
            streams[name] = replace(
                stream, arrived=arrived, shed=stream.shed + shed, queued=stream.queued + waits
            )
        return replace(ledger, streams=streams)

    @property
    def shed(self) -> int:
        """Rows shed so far, those that waited included."""
        return super().shed + int(self.queue.counts.reshape(-1, 2)[:, 1].sum())

    # -- stop and go on --------------------------------------------------------------------------

    def _holders(self) -> npt.NDArray[Any]:
        """All that holds users' rows: the rows that are stored, and the tuples that wait.

        Arrival numbers of the latter are below 0, and grow in the order in which they wait.
        """
        order = places_in_order(self.queue)
        waiting = np.zeros(len(order), ROW)
        waiting["arrival"] = np.arange(len(order)) - len(order) - 1
        for name in ("stream", "time", "payload"):
            waiting[name] = getattr(self.queue.tuples, name)[order]
        return np.concatenate([super()._holders(), waiting])

    def _moved(self, holders: npt.NDArray[Any]) -> None:
        used = int(self.core.numbers[ROWS_USED])
        self.core.rows["payload"][:used] = holders["payload"][:used]
        self.queue.tuples.payload[places_in_order(self.queue)] = holders["payload"][used:]

    def marks(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The policy's marks of rows; of tuples that wait it has none."""
        marks = np.zeros(len(rows), np.int64)
        stored = rows < self.core.numbers[ROWS_USED]
        marks[stored] = super().marks(rows[stored])
        return marks

    def head(self) -> Head:
        """All of the state but the rows."""
        head = super().head()
        return replace(head, arrays=head.arrays | saved_queue(self.queue))

    def take_up(self, head: Head, rows: Rows, changed: set[str]) -> None:
        """Store rows again as a head says, and let those wait that did."""
        waiting = int((rows.arrivals < 0).sum())
        parts = [
            Batch._make(column[cut] if column.size else column for column in rows.batch)
            for cut in (slice(0, waiting), slice(waiting, None))
        ]
        stored = Rows(parts[1], rows.arrivals[waiting:], rows.marks[waiting:])
        super().take_up(head, stored, changed)
        self.queue.numbers[[CAME, LATEST]] = head.arrays["queue.numbers"]
        self.queue.free_at[:] = head.arrays["queue.free_at"]
        wait_again(self.queue, parts[0], head.arrays["queue.promise"])
        self.queue.counts[:] = head.arrays["queue.counts"]
