"""What was tallied from moment to moment: windows of aggregates have tallies of their own.

More may be shed at some times than at others. Aggregates of windows are corrected by what was
missed in each of them, for which the rows are processed in parts that end where windows do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from streamshed.engine.batch import Batch
from streamshed.engine.observe.tallies import Estimator, Floats
from streamshed.kernels.core import NEWEST

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator


class Marks:
    """The moments at which windows begin or end, as a running join goes on from here.

    Args:
        join: which estimates what it misses.
        loss: its observer.
        over: the length of a window.
        every: the distance between the ends of windows, which are multiples of it.
    """

    def __init__(self, join: Operator, loss: Estimator, over: int, every: int) -> None:
        self.join, self.loss = join, loss
        self.grids = (0, every), (over, every)
        self.newest = self.began = int(join.core.numbers[NEWEST])
        self.made, self.sums = join.made, loss.sums_so_far()

    def parts(self, batch: Batch) -> Iterator[Batch]:
        """The rows of a batch, in parts that are each within the same windows."""
        times = np.maximum(np.maximum.accumulate(batch.time), self.newest)
        before = np.append(self.newest, times)
        changes = np.zeros(len(times), np.bool_)
        for shift, length in self.grids:
            changes |= np.diff(-(-(before + shift) // length)) != 0
        cuts = [*np.flatnonzero(changes).tolist(), len(times)]
        start = 0
        for cut in cuts:
            if cut > start:
                self.began, self.newest = int(times[start]), int(times[cut - 1])
                yield batch.part(start, cut)
                start = cut

    def note(self) -> tuple[int, Floats]:
        """What is known of a part that has been processed: its time, and what `tally_of` takes.

        The time is one that is in the same windows as the part, and no later than its rows.
        """
        join, before = self.join, self.sums
        shed = join.throttle is not None or join.shed > 0
        made, self.made = join.made - self.made, join.made
        self.sums = self.loss.sums_so_far()
        return self.began, self.loss.known_since(before, shed, made)
