"""What is noted of keys: of those with rows in windows that have a budget, and of some others.

A key that loses its last such row, or is refused without having one, leaves a *ghost*: what was
noted of it. If it comes again within a window's length, that is known again, and it is not taken
for a new key whose partners are yet to come. Ghosts have a place by their hash; of two with the
same place the later one stays. (Where a column tells the streams apart there are none: the next
partners of a key are as good as those it has lost.)

A state with notes has the arrays of `note_layout`.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.ages import find_horizon, moment, now
from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import BOUNDLESS, Field, Shape
from streamshed.kernels.returning import ONCE, count_arrival
from streamshed.kernels.table import key_hash, key_head, lane_of

NOTE = np.dtype(
    [
        ("begin", np.int64),  # since when the key is known
        ("last", np.int64),  # when it last came
        ("lost", np.uint64),  # the lanes that held it, or refused it, and do not hold it
        ("returns", np.int32),  # 1 if it came to a lane that held it or had lost it
        ("tag", np.uint32),  # of a ghost: the upper half of its hash
    ],
    align=True,
)
HOLDING = np.dtype([("first", np.int64), ("rows", np.int64)], align=True)
"""Of the rows of a key in windows with a budget: when the oldest came, and how many there are."""

FEWEST_GHOSTS = 1 << 13
"""Places for ghosts in any case; beyond it one for each row of the budget."""

_ONE = np.uint64(1)
_NONE = np.uint64(0)
_32 = np.uint64(32)


def note_layout(shape: Shape) -> dict[str, Field]:
    """The arrays of a state with notes."""
    ghosts = _ghosts(shape.budget) if shape.lanes > 1 else 1
    return {
        "notes": Field("key", NOTE, kept=True),
        "holdings": Field("key", HOLDING),
        "counts": Field("entry", np.int32, kept=True),  # arrivals
        "stored": Field("entry", np.int32),  # rows
        "ghosts": Field("once", NOTE, times=ghosts, kept=True),
        "ghost_counts": Field("once", np.int32, times=ghosts * shape.lanes, kept=True),
        "horizon": Field("once", np.float64, times=2, kept=True),
    }


def _ghosts(budget: int) -> int:
    """A power of two, so that a place is a matter of some bits of the hash."""
    return 1 << max(FEWEST_GHOSTS, budget).bit_length() - 1


@kernel
def take_notice(policy, core, key, lane):  # type: ignore[no-untyped-def]
    """Note that a tuple of a key has come to a lane, and is about to be stored or refused."""
    lanes = core.settings.lanes
    notes, base = policy.notes, key * lanes
    time = now(core)
    find_horizon(policy, core)
    if policy.holdings[key].rows == 0 and not _recall(policy, core, key, time):
        notes[key].begin = time
        notes[key].last = time
        notes[key].lost = _NONE
        notes[key].returns = 0
        policy.counts[base : base + lanes] = 0
        policy.counts[base + lane] = ONCE
        return
    bit = _ONE << np.uint64(lane)
    if lanes > 1 and (policy.stored[base + lane] > 0 or notes[key].lost & bit != _NONE):
        notes[key].returns = 1
    count_arrival(policy.counts, base, lanes, lane, (time - notes[key].last) / policy.horizon[0])
    notes[key].last = time


@kernel
def _tag(hashed):  # type: ignore[no-untyped-def]
    return np.uint32(hashed >> _32)


@kernel
def _place(policy, hashed):  # type: ignore[no-untyped-def]
    return np.int64(hashed & np.uint64(policy.ghosts.size - 1))


@kernel
def _recall(policy, core, key, time):  # type: ignore[no-untyped-def]
    """Note of a key again what its ghost knows; whether it has one."""
    hashed = key_hash(core, key)
    place, lanes = _place(policy, hashed), core.settings.lanes
    ghost = policy.ghosts[place]
    known = lanes > 1 and ghost.lost != _NONE and ghost.tag == _tag(hashed)
    if not known or time - ghost.last > policy.horizon[0]:
        return False
    policy.notes[key] = ghost
    for lane in range(lanes):
        policy.counts[key * lanes + lane] = policy.ghost_counts[place * lanes + lane]
    return True


@kernel
def leave_ghost(policy, core, key, lane):  # type: ignore[no-untyped-def]
    """Remember a key that has no row any more, or was refused without having one, in a lane."""
    hashed = key_hash(core, key)
    place, lanes = _place(policy, hashed), core.settings.lanes
    policy.notes[key].lost |= _ONE << np.uint64(lane)
    policy.notes[key].tag = _tag(hashed)
    policy.ghosts[place] = policy.notes[key]
    for other in range(lanes):
        policy.ghost_counts[place * lanes + other] = policy.counts[key * lanes + other]


@kernel
def note_stored(policy, core, row):  # type: ignore[no-untyped-def]
    """Count a row that is stored with its key."""
    key, lane = core.rows[row].key, lane_of(core, core.rows[row].stream)
    came, holding = moment(core, row), policy.holdings[key]
    policy.holdings[key].first = came if holding.rows == 0 else min(holding.first, came)
    policy.holdings[key].rows += 1
    policy.stored[key * core.settings.lanes + lane] += 1


@kernel
def note_removed(policy, core, row):  # type: ignore[no-untyped-def]
    """Count a row out that was taken from below its key."""
    key, lane = core.rows[row].key, lane_of(core, core.rows[row].stream)
    policy.stored[key * core.settings.lanes + lane] -= 1
    policy.holdings[key].rows -= 1
    if policy.holdings[key].rows > 0 and moment(core, row) == policy.holdings[key].first:
        policy.holdings[key].first = _first(policy, core, key)


@kernel
def _first(policy, core, key):  # type: ignore[no-untyped-def]
    found = np.int64(BOUNDLESS)
    for lane in range(core.settings.lanes):
        if policy.stored[key * core.settings.lanes + lane] > 0:
            found = min(found, moment(core, oldest_in(core, key, lane)))
    return found


@kernel
def oldest_in(core, key, lane):  # type: ignore[no-untyped-def]
    """The oldest row of a key in a lane: the ring goes on to it from the newest."""
    return np.int64(core.rows[key_head(core, key, lane)].newer)
