"""What the loop asks of gates: a throttle, an arrival queue, and the router of a join that spills.

The first argument is the gate's state; the bodies here are those of a gate that is open. A
throttle says which rows of the windows a newcomer is compared with, and hears what that has cost.
An arrival queue says which row is processed next. A router says which rows go to disk.
"""

from __future__ import annotations

from typing import NamedTuple

from streamshed.kernels.compiling import hook, kernel
from streamshed.kernels.core import NONE


class Unthrottled(NamedTuple):
    """No throttle: all rows of the windows are probed."""

    shape: int = 0


class NoQueue(NamedTuple):
    """No queue: rows are processed as they come."""

    shape: int = 0


class InMemory(NamedTuple):
    """No router: all rows are joined in memory."""

    shape: int = 0


# -- throttle -------------------------------------------------------------------------------------


@hook
def is_probed(throttle, core, lane, other, offset, row):  # type: ignore[no-untyped-def]
    """Whether a newcomer of a lane is compared with a row of another, so much older than itself."""
    return True


@hook
def next_probed(throttle, lane, other, offset):  # type: ignore[no-untyped-def]
    """How much older than a newcomer, by `offset` at least, the next rows are that it looks at."""
    return offset


@hook
def lookback(throttle, core, lane, other):  # type: ignore[no-untyped-def]
    """How much older than a newcomer of a lane a row of another may be that it looks at."""
    return core.lanes[other].window


@hook
def on_candidates(throttle, core, lane, other, looked, met):  # type: ignore[no-untyped-def]
    """A newcomer of a lane has looked at so many rows of another, and met so many that fit."""


@hook
def is_span_probed(throttle, lane, other, least, most):  # type: ignore[no-untyped-def]
    """Whether a newcomer is compared with any row that is older by something in between."""
    return True


@hook
def probed_run(throttle, lane, other, time, times, start, end):  # type: ignore[no-untyped-def]
    """How far rows, whose times stand in order, are in one part of a window; if they are probed."""
    return end, True


@hook
def count_probed(throttle, lane, other, time, times, start, end):  # type: ignore[no-untyped-def]
    """How many of some rows, whose times stand in order, a newcomer of a time is compared with."""
    return end - start


@hook
def count_chosen(throttle, lane, other, time, times, start, span, inside, earliest, latest):  # type: ignore[no-untyped-def]
    """How many rows of a block a newcomer of a time is compared with.

    Args:
        throttle: its state.
        lane: of the newcomer.
        other: of the rows.
        time: of the newcomer.
        times: of rows, in no order; NEVER where there is none.
        start: where those of the block begin, 64 of them.
        span: between which times the rows of the block are, and how many there are.
        inside: whether all of them are within the windows.
        earliest: since when they are.
        latest: until when.
    """
    if inside:
        return span.live
    return count_between(times, start, earliest, latest)


@kernel
def count_between(times, start, earliest, latest):  # type: ignore[no-untyped-def]
    """How many of the 64 times from a place on are in a span."""
    counted = 0
    for place in range(start, start + 64):
        counted += (times[place] >= earliest) & (times[place] <= latest)
    return counted


@hook
def is_drawn(throttle, core, newcomer, arrival):  # type: ignore[no-untyped-def]
    """Whether a newcomer that looks at rows drawn by lot looks at one, by their arrival numbers."""
    return True


@hook
def count_sampled(throttle, lane, other, among):  # type: ignore[no-untyped-def]
    """With how many of so many rows a newcomer is compared, where they are drawn by lot."""
    return among


@hook
def is_due(throttle, time):  # type: ignore[no-untyped-def]
    """Whether the throttle is set anew before a row of a time is processed."""
    return False


@kernel
def must_adapt(throttle, batch, i):  # type: ignore[no-untyped-def]
    """Whether the throttle is set anew before a row of a batch; one without a time says nothing."""
    known = batch.null.size == 0 or not batch.null[i]
    return known and is_due(throttle, batch.time[i])


@hook
def on_waiting(throttle, core, stream):  # type: ignore[no-untyped-def]
    """A row of a stream has come to the arrival queue."""


@hook
def free_since(throttle, otherwise):  # type: ignore[no-untyped-def]
    """Since when the join is free, if the work that it has done says; or what was said otherwise.

    Only asked where rows wait in a queue until the work for those before them is done.
    """
    return otherwise


@hook
def on_taken(throttle, core, stream, now):  # type: ignore[no-untyped-def]
    """A row of a stream is taken from the arrival queue, not before a moment."""


@hook
def admit(throttle, core, batch, i):  # type: ignore[no-untyped-def]
    """Whether there is time for a row that has come; it is shed if not."""
    return True


@hook
def updates_selectivity(throttle):  # type: ignore[no-untyped-def]
    """Whether this probe may update the selectivity statistics."""
    return True


@hook
def on_work(throttle, core, stream, work):  # type: ignore[no-untyped-def]
    """A row was processed, with so much work: comparisons, or rows looked at and results."""


@hook
def useless_row(throttle, core, lane):  # type: ignore[no-untyped-def]
    """A row of a lane that no newcomer will be compared with any more, or NONE."""
    return NONE


# -- arrival queue --------------------------------------------------------------------------------


@hook
def rows_of(queue, batch):  # type: ignore[no-untyped-def]
    """The rows that are processed: those of the batch, or those that wait."""
    return batch


@hook
def take_next(queue, throttle, policy, loss, core, batch, i):  # type: ignore[no-untyped-def]
    """Take the row that is processed next, as the i-th row of a batch is about to come.

    Returns:
        Its place among `rows_of`, NONE if there is none; and whether the i-th row has come.
    """
    return i, 1


@hook
def release(queue, place):  # type: ignore[no-untyped-def]
    """The row at a place was processed."""


# -- router of a join that spills -----------------------------------------------------------------


@hook
def ends_round_before(router, matcher, policy, core, batch, i):  # type: ignore[no-untyped-def]
    """Whether memory is to be looked at before a row arrives."""
    return False


@hook
def asks_throttle(router):  # type: ignore[no-untyped-def]
    """Whether rows come now, and the throttle may shed them; not if they did before."""
    return True


@hook
def is_spilled(router, matcher, core, batch, i, shift):  # type: ignore[no-untyped-def]
    """Whether a row that has arrived is not joined now; then it is noted, or stored."""
    return False


@hook
def on_joined(router, core, batch, i):  # type: ignore[no-untyped-def]
    """A row was joined in memory."""


@hook
def is_round_over(router):  # type: ignore[no-untyped-def]
    """Whether memory is to be looked at before the next row."""
    return False
