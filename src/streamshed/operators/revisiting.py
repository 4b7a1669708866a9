"""The join of rows from disk, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from streamshed.kernels.core import KEYS_USED, ROWS_USED
from streamshed.operators.buffers import Batch
from streamshed.operators.intake import NOTHING, WORTHLESS
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.partitions import Records
from streamshed.operators.restoring import NO_TIMES
from streamshed.operators.spilling_loop import AWAY, run_again, spread
from streamshed.operators.table_join import Block


class Revisited(Block):
    """Results that were made from disk."""


class Visitor(KeyedJoin):
    """The join of rows from disk."""

    arrivals: npt.NDArray[np.int64] = NO_TIMES
    """When the rows came that are joined."""

    def visit(
        self, batch: Batch, arrivals: npt.NDArray[np.int64], largest: int
    ) -> Iterator[Revisited]:
        """Join the rows of some partitions, none with more rows than the largest."""
        self.arrivals = arrivals
        self._make_room(largest, 0)
        for found in self._run(batch):
            assert isinstance(found, Block), "who was late has not come to disk"
            yield Revisited(*found)

    def _make_room(self, tuples: int, followed: int) -> None:
        # What there was of the partition before is over.
        self.core.pools["held"] = 0
        self.core.numbers[[ROWS_USED, KEYS_USED]] = 0
        super()._make_room(tuples, followed)

    def _loop(self, batch: Batch) -> int:
        status: int = run_again(self.core, self.state, batch, self.arrivals, self.work, self.out)
        return status


def as_tuples(rows: Records) -> Batch:
    """Rows from disk as the loop takes them."""
    stream, time, hashed, payload = (
        np.empty(len(rows), AWAY[name]) for name in ("stream", "time", "hash", "payload")
    )
    spread(rows, stream, time, hashed, payload)
    return Batch(stream, time, hashed, payload, NOTHING, WORTHLESS)
