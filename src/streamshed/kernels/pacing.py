"""What of the windows a newcomer goes through, and what that costs: asked by the loops of joins.

The first argument is whoever bounds the work, or stands for it: by default all rows are gone
through, whatever it costs.
"""

from __future__ import annotations

from typing import NamedTuple

from streamshed.kernels.compiling import hook, kernel
from streamshed.kernels.core import NONE


class Whole(NamedTuple):
    """All rows of the windows are gone through."""

    shape: int = 0


@hook
def wanted(parts, core, lane, other, offset, row):  # type: ignore[no-untyped-def]
    """Whether a newcomer of a lane is compared with a row of another, so much older than itself."""
    return True


@hook
def farthest(parts, core, lane, other):  # type: ignore[no-untyped-def]
    """How much older than a newcomer of a lane a row of another may be that it looks at."""
    return core.lanes[other].window


@hook
def met(parts, core, lane, other, count):  # type: ignore[no-untyped-def]
    """A newcomer of a lane has met so many rows of another that match it."""


@hook
def wanted_among(parts, lane, other, least, most):  # type: ignore[no-untyped-def]
    """Whether a newcomer is compared with any row that is older by something in between."""
    return True


@hook
def counted_among(parts, lane, other, time, times, start, end):  # type: ignore[no-untyped-def]
    """How many of some rows, whose times stand in order, a newcomer of a time is compared with."""
    return end - start


@hook
def taken_of(parts, lane, other, among):  # type: ignore[no-untyped-def]
    """With how many of so many rows a newcomer is compared, where they are taken by lot."""
    return among


@hook
def due(parts, time):  # type: ignore[no-untyped-def]
    """Whether it is time to say anew what is gone through, before a tuple of a time comes."""
    return False


@kernel
def is_due(parts, batch, i):  # type: ignore[no-untyped-def]
    """The same of a tuple of a batch; one without a time says nothing."""
    known = batch.null.size == 0 or not batch.null[i]
    return known and due(parts, batch.time[i])


@hook
def let_in(parts, core, stream):  # type: ignore[no-untyped-def]
    """Whether a tuple that has come is processed; if not, it is shed."""
    return True


@hook
def telling(parts):  # type: ignore[no-untyped-def]
    """Whether what the newcomer meets tells how much agrees at all: parts chosen would not."""
    return True


@hook
def completed(parts, core, stream, time, members, count):  # type: ignore[no-untyped-def]
    """A result was made by a newcomer of a stream and a time with the given stored members."""


@hook
def worked(parts, core, stream, work):  # type: ignore[no-untyped-def]
    """A tuple was processed, with so much work: comparisons, or rows looked at and results."""


@hook
def outlived(parts, core, lane):  # type: ignore[no-untyped-def]
    """A row of a lane that no newcomer will be compared with any more, or NONE."""
    return NONE
