"""The clock of a join in bulk: what has expired, and the accounts, without removing any row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.clock import advance_stream, trusted_time
from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import CLOCK, NEVER

ENTERED, GONE, MOST = range(3)
"""What is counted of a stream: rows that were stored, those that expired, and the most at once."""


class Windows(NamedTuple):
    """The windows of the streams: their lengths, each once, and which of them a stream has."""

    lengths: npt.NDArray[np.int64]
    of: npt.NDArray[np.int64]


def windows_of(lengths: npt.NDArray[np.int64]) -> Windows:
    """The windows of streams, given the length of each."""
    each, of = np.unique(lengths, return_inverse=True)
    return Windows(each, of.astype(np.int64))


@loop
def count_rows(core, time, stream, known, windows, expired, tally):  # type: ignore[no-untyped-def]
    """Let the clock go on with rows, and count what becomes of them.

    Args:
        core: the state of the join, of which only the clock is used.
        time: of rows, in its order.
        stream: of the same rows.
        known: so many of them were counted before.
        windows: of the streams.
        expired: for each window up to where the rows of its streams have expired.
        tally: by stream and `ENTERED`, `GONE` and `MOST`, what became of rows.
    """
    window = np.int64(0)
    gone = expired[0]
    for i in range(known, time.size):
        own = np.int64(stream[i])
        advance_stream(core, own, trusted_time(core, own, time[i]))
        # The other windows' rows are counted when a row of theirs comes.
        if windows.of[own] != window:
            expired[window] = gone
            window = windows.of[own]
            gone = expired[window]
        gone = _expire(core, time, stream, i, windows, window, gone, tally)
        tally[own, ENTERED] += 1
        tally[own, MOST] = max(tally[own, MOST], tally[own, ENTERED] - tally[own, GONE])
    expired[window] = gone
    for other in range(windows.lengths.size):
        expired[other] = _expire(
            core, time, stream, time.size, windows, other, expired[other], tally
        )


@kernel
def _expire(core, time, stream, end, windows, window, i, tally):  # type: ignore[no-untyped-def]
    """Count the rows of a window's streams that the clock has left behind, from a row on.

    Returns:
        The first row that it has not.
    """
    clock = core.numbers[CLOCK]
    if clock == NEVER:
        return i
    oldest = clock - windows.lengths[window] - core.settings.late
    if i + 2 < end:
        # Mostly a row or two: how many cannot be foretold, so that these are no branches.
        one, two = time[i] < oldest, time[i + 1] < oldest
        first, second = np.int64(stream[i]), np.int64(stream[i + 1])
        tally[first, GONE] += np.int64(one & (windows.of[first] == window))
        tally[second, GONE] += np.int64(two & (windows.of[second] == window))
        i += np.int64(one) + np.int64(two)
    while i < end and time[i] < oldest:
        own = np.int64(stream[i])
        tally[own, GONE] += np.int64(windows.of[own] == window)
        i += 1
    return i
