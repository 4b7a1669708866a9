"""Tumbling windows: the past of a stream cut into pieces of the length of its window.

The first piece begins with the first time seen. What is learned of a stream is taken from its last
whole piece; in the first one, from that itself (Law and Zaniolo 2007, section 4). A state that
tumbles has the arrays of `tumbling_layout`.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import (
    ARRIVED,
    BOUNDLESS,
    FATES,
    FILTERED,
    FIRST_SEEN,
    LATE,
    NEVER,
    NEWEST,
    Field,
)


def tumbling_layout() -> dict[str, Field]:
    """The arrays of a state that tumbles."""
    return {
        "piece": Field("lane", np.int64, NEVER, kept=True),  # the number of each stream's piece
        "tumbled": Field("lane", np.int64, kept=True),  # whether it is not the first
    }


@kernel
def turns(state, core, stream):  # type: ignore[no-untyped-def]
    """Whether a stream has come to a new piece, not being its first."""
    piece = _piece(core, stream)
    before = state.piece[stream]
    state.piece[stream] = piece
    if before in (NEVER, piece):
        return False
    state.tumbled[stream] = 1
    return True


@kernel
def _piece(core, stream):  # type: ignore[no-untyped-def]
    """The number of the piece that a stream is in: by the time since the first, or by its rows."""
    lane = core.lanes[stream]
    if lane.window < BOUNDLESS:
        passed = core.numbers[NEWEST] - core.numbers[FIRST_SEEN]
        return passed // max(np.int64(1), lane.window)
    counts, base = core.counts, stream * FATES
    entered = counts[base + ARRIVED] - counts[base + FILTERED] - counts[base + LATE]
    return (max(np.int64(1), entered) - 1) // lane.last
