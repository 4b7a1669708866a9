"""What was tallied up to some moments: windows between two of them have tallies of their own.

More may be shed at some times than at others. Aggregates of windows are corrected by what was
missed in each of them, for which the rows are processed in parts that end where windows do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamshed.engine.batch import Batch
from streamshed.estimates import Tally
from streamshed.kernels.core import NEVER

if TYPE_CHECKING:
    from streamshed.engine.observe.tallies import Estimator, Sums


class Mark(NamedTuple):
    """A moment: the newest time, whether rows had been shed, the results made, all tallies."""

    time: int
    shed: bool
    made: int
    sums: Sums


class Marks:
    """The moments at which windows begin or end, of one running join.

    Args:
        loss: its observer.
        over: the length of a window.
        every: the distance between the ends of windows, which are multiples of it.
    """

    def __init__(self, loss: Estimator, over: int, every: int) -> None:
        self.loss = loss
        self.grids = (0, every), (over, every)
        self.newest = NEVER
        self.marks = [Mark(NEVER, False, 0, loss.sums_so_far())]

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
                self.newest = int(times[cut - 1])
                yield batch.part(start, cut)
                start = cut

    def note(self, shed: bool, made: int) -> None:
        """Note what was tallied and made so far, as a part has been processed."""
        self.marks.append(Mark(self.newest, shed, made, self.loss.sums_so_far()))

    def tally(self, begin: int, end: int) -> Tally:
        """What is known of the results of times after `begin` up to `end`."""
        first, last = (
            self.marks[bisect_right(self.marks, time, key=lambda mark: mark.time) - 1]
            for time in (begin, end)
        )
        made = float(last.made - first.made)
        if not last.shed:
            return Tally(exact=made, certain=made, seen=made, made=made)
        return self.loss.tally_between(first.sums, last.sums, made)
