"""Basic windows of the rows of a key: so a newcomer gets to those it looks at without the others.

Below a key the rows of a stream stand in order of age (`streamshed.kernels.table`). A basic window
holds those of b units of time, from a multiple of b on, as in section III-C of the GrubJoin paper;
section VII wants indexes of basic windows. Here the newest row of a key in each basic window
knows the newest one in the basic window before. A newcomer whose throttle has chosen parts of a
window that are not the newest goes along these, and looks at one row of each basic window only
until it is there.
"""

from __future__ import annotations

import numpy as np

from streamshed.engine.gate.hooks import next_probed
from streamshed.engine.match import hooks
from streamshed.engine.match.keys import KeyWindowState, keys_layout, uncount_matches
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import NONE, Field
from streamshed.kernels.table import key_head, lane_of

INSIDE = -2
"""In `skip`: the row is not the newest of its key in its basic window. Of the newest it is the row
to which is skipped, or NONE."""


def key_windows_layout(lanes: int) -> dict[str, Field]:
    """The arrays of `KeyWindowState`."""
    return keys_layout() | {
        "part": Field("once", np.int64, 1, lanes),
        "skip": Field("row", np.int32, None),
    }


@kernel
def _window_of(matcher, core, lane, row):  # type: ignore[no-untyped-def]
    """The number of the basic window in which a row is."""
    return core.rows[row].time // matcher.part[lane]


@implements(hooks.next_older, KeyWindowState)
def _next_older(matcher, throttle, core, row, head, lane, other, offset):  # type: ignore[no-untyped-def]
    rows = core.rows
    older, skip = np.int64(rows[row].older), np.int64(matcher.skip[row])
    if skip == INSIDE:
        return older
    wanted = next_probed(throttle, lane, other, offset)
    if wanted <= offset:
        return older
    newest = (rows[row].time + offset - wanted) // matcher.part[other]
    if _window_of(matcher, core, other, row) <= newest:
        return older
    return head if skip == NONE else skip


@implements(hooks.insert_row, KeyWindowState)
def _insert_row(matcher, policy, core, row):  # type: ignore[no-untyped-def]
    rows, skip = core.rows, matcher.skip
    lane = lane_of(core, rows[row].stream)
    head = key_head(core, np.int64(rows[row].key), lane)
    newer, older = np.int64(rows[row].newer), np.int64(rows[row].older)
    own = _window_of(matcher, core, lane, row)
    if head != row and _window_of(matcher, core, lane, newer) == own:
        skip[row] = INSIDE
        return
    if older == head:  # the row is the oldest, of the ring of all the newest is next
        skip[row] = NONE
    elif _window_of(matcher, core, lane, older) == own:
        skip[row] = skip[older]
        skip[older] = INSIDE
    else:
        skip[row] = older
    if head != row:
        skip[_newest_beside(matcher, core, newer)] = row


@implements(hooks.remove_row, KeyWindowState)
def _remove_row(matcher, policy, core, row):  # type: ignore[no-untyped-def]
    uncount_matches(matcher, policy, core, row)
    rows, skip = core.rows, matcher.skip
    newer, older = np.int64(rows[row].newer), np.int64(rows[row].older)
    if skip[row] == INSIDE or older == row:
        return
    lane = lane_of(core, rows[row].stream)
    own = _window_of(matcher, core, lane, row)
    left = np.int64(skip[row])
    if _window_of(matcher, core, lane, older) == own:
        skip[older] = left
        left = older
    if _window_of(matcher, core, lane, newer) > own:
        skip[_newest_beside(matcher, core, newer)] = left


@kernel
def _newest_beside(matcher, core, row):  # type: ignore[no-untyped-def]
    """The newest row of the same key in the basic window of a row."""
    while matcher.skip[row] == INSIDE:
        row = np.int64(core.rows[row].newer)
    return row
