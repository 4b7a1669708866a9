"""How far apart the members of a result may be, where that is bounded."""

from __future__ import annotations

from streamshed.kernels.compiling import kernel


@kernel
def within_bounds(core, stream, time, other, other_time):  # type: ignore[no-untyped-def]
    """Whether rows of two streams and times may be members of one result.

    The bounds say by (i, j) how much later than a member of stream j one of stream i may be;
    without any, all may.
    """
    if core.bounds.size == 0:
        return True
    lanes = core.settings.lanes
    later = time - other_time
    return (
        later <= core.bounds[stream * lanes + other]
        and -later <= core.bounds[other * lanes + stream]
    )


@kernel
def partner_times(core, stream, time, other):  # type: ignore[no-untyped-def]
    """From which time, and up to which, rows of another stream may be partners of a row.

    Bounds are never wider than the windows.
    """
    if core.bounds.size == 0:
        return time - core.lanes[other].window, time + core.lanes[stream].window
    lanes = core.settings.lanes
    return time - core.bounds[stream * lanes + other], time + core.bounds[other * lanes + stream]
