"""Rows without a match: who has one, what was shed, and who is handed out when it leaves.

Nothing here costs anything where nobody asks: `Core.met` is empty then.
"""

from __future__ import annotations

import numpy as np

from streamshed.engine.batch import GROUPS, MET
from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import FATES, LEFT, NEVER, PER_KEY, UNCERTAIN, UNMATCHED
from streamshed.kernels.table import ONE, key_hash, lane_of

MATCHED, DOUBTFUL = np.uint8(1), np.uint8(2)
"""What is known of a row, in `Core.met`: it has a match; it may have missed one."""


@kernel
def note_members(core, work):  # type: ignore[no-untyped-def]
    """Note that the newcomer and the partners chosen have a match."""
    if core.met.size > 0:
        work.cursor[MET] = 1
        for group in range(work.cursor[GROUPS]):
            core.met[work.groups[group].row] |= MATCHED


@kernel
def note_stored(core, work, row):  # type: ignore[no-untyped-def]
    """Note of a newcomer that is stored whether it has a match, or may have missed one."""
    if core.met.size > 0:
        core.met[row] = MATCHED if work.cursor[MET] != 0 else np.uint8(0)
        rows = core.rows
        if _may_have_missed(core, rows[row].stream, rows[row].time, rows[row].key):
            core.met[row] |= DOUBTFUL


@kernel
def on_refused(core, work, batch, i, key):  # type: ignore[no-untyped-def]
    """A newcomer was refused: hand it out, unless it has a match."""
    if core.met.size > 0:
        stream = np.int64(batch.stream[i])
        if work.cursor[MET] == 0:
            _hand_out(core, stream, batch.time[i], batch.payload[i], False)
        _note_shed(core, stream, batch.time[i], key)


@kernel
def on_filtered(core, batch, i):  # type: ignore[no-untyped-def]
    """A row has come that can match nothing: hand it out."""
    if core.met.size > 0:
        _hand_out(core, np.int64(batch.stream[i]), batch.time[i], batch.payload[i], True)


@kernel
def on_leaving(core, row, shed):  # type: ignore[no-untyped-def]
    """A stored row is about to leave, shed or expired: hand it out, unless it has a match."""
    if core.met.size > 0:
        rows = core.rows
        stream, time, key = np.int64(rows[row].stream), rows[row].time, rows[row].key
        if core.met[row] & MATCHED == 0:
            doubtful = shed or core.met[row] & DOUBTFUL != 0
            if core.settings.lanes > 2 or core.settings.first == PER_KEY:
                doubtful = doubtful or _may_have_missed(core, stream, time, key)
            _hand_out(core, stream, time, rows[row].payload, not doubtful)
        if shed:
            _note_shed(core, stream, time, key)


@loop
def hand_out_stored(core, rows):  # type: ignore[no-untyped-def]
    """Hand out stored rows that have no match: there is no more input."""
    for i in range(rows.size):
        on_leaving(core, rows[i], False)


@kernel
def _hand_out(core, stream, time, payload, certain):  # type: ignore[no-untyped-def]
    if (core.settings.unmatched >> np.uint64(lane_of(core, stream))) & ONE == np.uint64(0):
        return
    if core.left.size > 0:
        place = core.numbers[LEFT]
        core.left[place].payload = payload
        core.left[place].time = time
        core.left[place].stream = stream
        core.left[place].certain = np.int32(certain)
        core.numbers[LEFT] = place + 1
    core.counts[stream * FATES + UNMATCHED] += 1
    if not certain:
        core.counts[stream * FATES + UNCERTAIN] += 1


@kernel
def _place(core, key):  # type: ignore[no-untyped-def]
    """Where it is noted what was shed of a key: of how many places is a power of two."""
    places = core.shed_time.size // core.settings.lanes
    return np.int64(key_hash(core, key) & np.uint64(places - 1)) * core.settings.lanes


@kernel
def _note_shed(core, stream, time, key):  # type: ignore[no-untyped-def]
    """Note that a row of a key was shed."""
    if core.shed_time.size > 0:
        place = _place(core, key) + stream
        core.shed_time[place] = max(core.shed_time[place], time)


@kernel
def _may_have_missed(core, stream, time, key):  # type: ignore[no-untyped-def]
    """Whether a row was shed that could be a partner of one of a stream and time.

    Where keys make their first result only, every row that was shed of a key may have moved the
    time from which it makes results again.
    """
    per_key = core.settings.first == PER_KEY
    if core.shed_time.size > 0:
        place = _place(core, key)
        for lane in range(core.settings.lanes):
            newest = core.shed_time[place + lane]
            if newest == NEVER:
                continue
            if per_key or (lane != stream and time - newest <= core.lanes[lane].window):
                return True
    return False
