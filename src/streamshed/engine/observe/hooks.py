"""What the loop tells the observer, who estimates what shedding costs.

The first argument is the observer's state; the bodies here are those of a join without one.
"""

from __future__ import annotations

from typing import NamedTuple

from streamshed.kernels.compiling import hook


class NotEstimated(NamedTuple):
    """No observer: nothing is shed, or nobody wants to know what it costs."""

    shape: int = 0


@hook
def observe(loss, core, rows, at):  # type: ignore[no-untyped-def]
    """A row has come that is neither filtered nor late, whatever will become of it."""


@hook
def on_queued(loss, core, rows, at):  # type: ignore[no-untyped-def]
    """A row has come to the queue, where it may wait, or be shed before it is taken."""


@hook
def on_made(loss, core, rows, at):  # type: ignore[no-untyped-def]
    """A row has made all the results that it makes; there may be none."""


@hook
def on_probed(loss, work):  # type: ignore[no-untyped-def]
    """A row was probed, with so much work: comparisons, or rows looked at and results."""
