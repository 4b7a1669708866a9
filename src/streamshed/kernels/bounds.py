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
