"""Writing the results of a join in bulk, each to its place in the order of arrival."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.intrinsics import prefetch

NEARER = 6
"""So many newcomers before one is written its members are asked for."""


class Emitted(NamedTuple):
    """Where a block of results goes."""

    ends: npt.NDArray[np.int64]  # by rank: the results up to and with those of the row
    before: int  # the results of earlier blocks
    time: npt.NDArray[np.int64]
    members: npt.NDArray[np.int64]


@loop
def emit_part(keys, rows, start, done, found, windows, probed, out, choice):  # type: ignore[no-untyped-def]
    """Write the results of a part's newcomers that belong to a block, each to its place.

    Args:
        keys: of the rows of all parts, and their times.
        rows: what else there is of them.
        start: where the part begins.
        done: how many of its newcomers are done.
        found: how many there are.
        windows: of the streams.
        probed: what the first pass has found.
        out: the block.
        choice: the next partner of each stream, and whether the block ended within a newcomer.

    Returns:
        How many newcomers are done now.
    """
    lanes = windows.of.size
    while done < found:
        if done + NEARER < found:
            _prefetch_members(rows, start, start + done + NEARER, lanes, probed)
        own = start + probed.newcomer[start + done]
        stream, rank, time = rows[own].stream, rows[own].rank, keys[own].time
        heads = (start + done) * lanes
        result = np.int64(0)
        if choice[lanes] == 0:
            result = (out.ends[rank - 1] if rank > 0 else 0) - out.before
            if result >= out.time.size:
                break
            for lane in range(lanes):
                choice[lane] = probed.heads[heads + lane] - 1
            choice[stream] = own - start
        choice[lanes] = 0
        lane = lanes
        while lane >= 0:
            if result == out.time.size:
                choice[lanes] = 1
                return done
            out.time[result] = time
            for member in range(lanes):
                out.members[result * lanes + member] = rows[start + choice[member]].payload
            result += 1
            # The next choice: of the last stream that has an older partner, newest first.
            lane = lanes - 1
            while lane >= 0:
                if lane != stream:
                    older = np.int64(probed.before[start + choice[lane]]) - 1
                    oldest = time - windows.lengths[windows.of[lane]]
                    if older >= 0 and keys[start + older].time >= oldest:
                        choice[lane] = older
                        break
                    choice[lane] = probed.heads[heads + lane] - 1
                lane -= 1
        done += 1
    return done


@kernel
def _prefetch_members(rows, start, newcomer, lanes, probed):  # type: ignore[no-untyped-def]
    """Ask for the first members of the results of a newcomer, which are anywhere in the part."""
    prefetch(rows, start + probed.newcomer[newcomer])
    for lane in range(lanes):
        prefetch(rows, start + max(0, np.int64(probed.heads[newcomer * lanes + lane]) - 1))
