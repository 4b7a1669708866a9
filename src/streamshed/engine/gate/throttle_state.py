"""The parts of windows that newcomers go through, and the buffers in front of the join.

The join works at a pace, in its own time: so much work in a unit. A row waits while those
before it are worked on; if the buffer of its stream is full of such, it is dropped (section III of
the GrubJoin paper). Who waits and when they are through follows from the work done; nothing is
really held back, unless there is an arrival queue: then rows wait there, and what a row goes
through is decided when it is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.gate import hooks
from streamshed.engine.gate.window_scores import Histograms, note_difference
from streamshed.engine.match.sorted_windows import first_above
from streamshed.kernels.compiling import driver, implements, kernel
from streamshed.kernels.core import ARRIVALS, BOUNDLESS, NEVER, NEWEST, NONE, Field
from streamshed.kernels.hooks import hears_results, on_result
from streamshed.kernels.lanes import oldest
from streamshed.kernels.random import GOLDEN, draw, mix
from streamshed.kernels.table import lane_of

WHOLE, HARVESTED, SHREDDED = range(3)
"""How a newcomer goes through windows: all of them; the chosen parts; or, to learn what they are
worth, a random part of the first and all of the others (window shredding, section V-B)."""

THROTTLE, SPENT, TAKEN, BUSY_UNTIL, CAPACITY, LOOP, REST, MEASURED, ELAPSED, WINDOWS = range(10)
PACES = 10
"""The throttle; the work since it was set, and the rows it was done for; when all who wait are
through; the work in a unit of time. For a throttle by the clock of the machine, fading: the
seconds that the loop took, and all else; the work that it did in them, and the time of the join
that went by. And where whole keys may be dropped, what of the windows is gone through for those
that are not."""
NEXT_DUE, MODE, SAMPLED, HEAD, WAITING, WORD, WORK = range(7)
STEPS = 7
PUSHED, POPPED, QUEUED, DROPPED = range(4)
TOLD = 4
SHARED = np.int64(12)
"""Newcomers whose arrival numbers differ in so many of the last bits only draw the same rows: so
one product of matrices compares all of them with the rows drawn."""
LOTS = np.uint64(0xD1B54A32D192ED03)
"""Tells the lots of rows that are drawn from those of newcomers."""


class ThrottleState(NamedTuple):
    """What is gone through, who waits, and what was seen since it was last said anew."""

    pace: npt.NDArray[np.float64]
    steps: npt.NDArray[np.int64]
    part: npt.NDArray[np.int64]  # by lane: the length of a basic window
    parts: npt.NDArray[np.int64]  # by lane: how many there are
    chosen: npt.NDArray[np.bool_]  # by (lane of the newcomer, other, basic window)
    ends: npt.NDArray[np.int64]  # by (lane of the newcomer, other): how old what is chosen can be
    partners: npt.NDArray[np.float64]  # by lane of newcomers: looked at of each; met; newcomers
    first: npt.NDArray[np.int64]  # by lane of the newcomer: the window gone through first
    reach: npt.NDArray[np.int64]  # by lane: how long a row is of any use
    admitted: npt.NDArray[np.float64]  # by lane: the part of the rows that is let in
    told: npt.NDArray[np.int64]  # by (lane, what): rows that came, began, wait; all ever dropped
    starts: npt.NDArray[np.float64]  # a ring: when those who wait begin
    who: npt.NDArray[np.int64]  # beside it: their lanes
    counts: npt.NDArray[np.float64]
    histograms: Histograms  # over the same counts
    most: int  # basic windows of a window at most
    sample: float  # the part of newcomers from which is learned
    buffer: int
    indexed: bool  # whether rows that match are found by an index, from the newest on
    by_keys: bool  # whether rows are let in by the lots of their keys
    dropping: bool  # whether rows are dropped by lot, and others compared with all
    queued: bool  # whether rows wait in an arrival queue


def throttle_layout(lanes: int, most: int, buffer: int, buckets: int) -> dict[str, Field]:
    """The arrays, all of which a checkpoint keeps."""

    def once(dtype: npt.DTypeLike, times: int) -> Field:
        return Field("once", dtype, 0, times, kept=True)

    return {
        "pace": once(np.float64, PACES),
        "steps": once(np.int64, STEPS),
        "part": once(np.int64, lanes),
        "parts": once(np.int64, lanes),
        "chosen": once(np.bool_, lanes * lanes * most),
        "ends": once(np.int64, lanes * lanes),
        "partners": once(np.float64, lanes * (2 * lanes + 1)),
        "first": once(np.int64, lanes),
        "reach": once(np.int64, lanes),
        "admitted": once(np.float64, lanes),
        "told": once(np.int64, lanes * TOLD),
        "starts": once(np.float64, lanes * (buffer + 1)),
        "who": once(np.int64, lanes * (buffer + 1)),
        "counts": once(np.float64, lanes * buckets),
    }


@implements(hooks.is_due, ThrottleState)
def _is_due(parts, time):  # type: ignore[no-untyped-def]
    due = parts.steps[NEXT_DUE]
    return time >= due or (parts.queued and parts.pace[BUSY_UNTIL] >= np.float64(due))


@implements(hooks.on_waiting, ThrottleState)
def _on_waiting(parts, core, stream):  # type: ignore[no-untyped-def]
    if parts.queued:
        parts.told[lane_of(core, stream) * TOLD + PUSHED] += 1


@implements(hooks.free_since, ThrottleState)
def _free_since(parts, otherwise):  # type: ignore[no-untyped-def]
    return parts.pace[BUSY_UNTIL] if parts.queued else otherwise


@implements(hooks.on_taken, ThrottleState)
def _on_taken(parts, core, stream, now):  # type: ignore[no-untyped-def]
    if parts.queued:
        parts.pace[BUSY_UNTIL] = max(parts.pace[BUSY_UNTIL], now)
        parts.told[lane_of(core, stream) * TOLD + POPPED] += 1


@kernel
def _below(word, share):  # type: ignore[no-untyped-def]
    """Whether a random word falls into a share of all words."""
    return np.float64(word) < share * 18446744073709551616.0


@implements(hooks.admit, ThrottleState)
def _admit(parts, core, batch, i):  # type: ignore[no-untyped-def]
    stream = lane_of(core, batch.stream[i])
    now = np.float64(core.numbers[NEWEST])
    begin_until(parts, now)
    told = stream * TOLD
    if not parts.queued:
        parts.told[told + PUSHED] += 1
    word = draw(core.settings.seed ^ GOLDEN, core.numbers[ARRIVALS] - 1)
    parts.steps[WORD] = np.int64(_lot(core, core.numbers[ARRIVALS] - 1))
    lot = draw(core.settings.seed ^ LOTS, batch.hash[i]) if parts.by_keys else word
    if parts.admitted[stream] < 1.0 and not _below(lot, parts.admitted[stream]):
        if not parts.queued:
            parts.told[told + POPPED] += 1  # it was never meant to wait
        parts.told[told + DROPPED] += 1
        return False
    if parts.told[told + QUEUED] >= parts.buffer and parts.pace[BUSY_UNTIL] > now:
        parts.told[told + DROPPED] += 1
        return False
    sampled = _learns(parts, word)
    parts.steps[SAMPLED] = 1 if sampled else 0
    parts.steps[MODE] = WHOLE
    if parts.by_keys:
        bounded = parts.pace[WINDOWS] < 1.0
    else:
        bounded = parts.pace[THROTTLE] < 1.0 and not parts.dropping
    if bounded:
        parts.steps[MODE] = _mode(parts, sampled)
    return True


@kernel
def _learns(parts, word):  # type: ignore[no-untyped-def]
    """Whether a newcomer is one from whom is learned where results are.

    An index cannot tell a random part of the rows from the others without looking at them: instead
    of so many newcomers, each with a part of the rows, a part of them goes through all.
    """
    share = parts.sample
    if parts.indexed:
        share *= parts.pace[WINDOWS if parts.by_keys else THROTTLE]
    return _below(mix(word + GOLDEN), share)


@kernel
def _mode(parts, learns):  # type: ignore[no-untyped-def]
    """How a newcomer goes through windows where the work is bounded."""
    if not learns:
        return HARVESTED
    return WHOLE if parts.indexed else SHREDDED


@driver
def modes_to_come(parts, seed, arrival, streams, modes):  # type: ignore[no-untyped-def]
    """Say how rows that come will go through windows, and of whom the lot says not at all.

    Args:
        parts: as they stand.
        seed: of the join.
        arrival: the arrival number of the first.
        streams: of the rows.
        modes: what is said of each; NONE if it is dropped by lot.
    """
    for i in range(streams.size):
        word = draw(seed ^ GOLDEN, arrival + i)
        admitted = parts.admitted[streams[i]]
        modes[i] = WHOLE
        if admitted < 1.0 and not _below(word, admitted):
            modes[i] = NONE
        elif parts.pace[THROTTLE] < 1.0 and not parts.dropping:
            modes[i] = _mode(parts, _learns(parts, word))


@driver
def spans_wanted(parts, modes, times, lane, other, shreds, oldest, newest, wanted):  # type: ignore[no-untyped-def]
    """Say which newcomers of a lane go through which spans of time of another.

    Args:
        parts: as they stand.
        modes: how the newcomers go through windows.
        times: of the newcomers.
        lane: theirs.
        other: that of the rows.
        shreds: whether those that learn go through all of them.
        oldest: since when the spans are.
        newest: until when.
        wanted: what is said, by (span, newcomer).
    """
    part, count = parts.part[other], parts.parts[other]
    place = (lane * parts.part.size + other) * parts.most
    for span in range(oldest.size):
        for i in range(modes.size):
            wanted[span, i] = modes[i] == WHOLE or (shreds and modes[i] == SHREDDED)
        k = 0
        while k < count:
            first = k
            while k < count and parts.chosen[place + k]:
                k += 1
            if k == first:
                k += 1
                continue
            low = oldest[span] + part * first if first > 0 else np.int64(NEVER)
            high = newest[span] + part * k - 1 if k < count else np.int64(BOUNDLESS)
            for i in range(modes.size):
                wanted[span, i] |= modes[i] == HARVESTED and low <= times[i] <= high


@kernel
def begin_until(parts, now):  # type: ignore[no-untyped-def]
    """Let those begin whose turn has come."""
    while parts.steps[WAITING] > 0 and parts.starts[parts.steps[HEAD]] <= now:
        told = parts.who[parts.steps[HEAD]] * TOLD
        parts.told[told + POPPED] += 1
        parts.told[told + QUEUED] -= 1
        parts.steps[HEAD] = (parts.steps[HEAD] + 1) % parts.starts.size
        parts.steps[WAITING] -= 1


@implements(hooks.on_work, ThrottleState)
def _on_work(parts, core, stream, work):  # type: ignore[no-untyped-def]
    parts.steps[WORK] += work
    if parts.steps[MODE] != HARVESTED:
        parts.partners[(stream + 1) * (2 * parts.part.size + 1) - 1] += 1.0
    now = np.float64(core.numbers[NEWEST])
    begin = max(now, parts.pace[BUSY_UNTIL])
    parts.pace[BUSY_UNTIL] = begin + work / parts.pace[CAPACITY]
    parts.pace[SPENT] += work
    parts.pace[TAKEN] += 1.0
    if parts.queued:
        return
    if begin <= now:
        parts.told[stream * TOLD + POPPED] += 1
        return
    place = (parts.steps[HEAD] + parts.steps[WAITING]) % parts.starts.size
    parts.starts[place] = begin
    parts.who[place] = stream
    parts.steps[WAITING] += 1
    parts.told[stream * TOLD + QUEUED] += 1


@implements(hooks.updates_selectivity, ThrottleState)
def _updates_selectivity(parts):  # type: ignore[no-untyped-def]
    return parts.steps[MODE] != HARVESTED


@implements(hears_results, ThrottleState)
def _hears_results(parts):  # type: ignore[no-untyped-def]
    return True


@implements(on_result, ThrottleState)
def _on_result(parts, core, key, stream, time, pattern, members, count):  # type: ignore[no-untyped-def]
    if parts.steps[SAMPLED] == 0:
        return
    rows = core.rows
    if core.settings.by:  # by how much partners are older than the newcomer
        for k in range(count):
            difference = rows[members[k].row].time - time
            note_difference(parts.histograms, 0, np.float64(difference))
        return
    base = time
    known = stream == 0
    for k in range(count):
        if rows[members[k].row].stream == 0:
            base = rows[members[k].row].time
            known = True
    if not known:
        return  # a partial result without a member of the first stream
    if stream != 0:
        note_difference(parts.histograms, stream, np.float64(time - base))
    for k in range(count):
        row = rows[members[k].row]
        if row.stream != 0:
            note_difference(parts.histograms, row.stream, np.float64(row.time - base))


@kernel
def _lot(core, newcomer):  # type: ignore[no-untyped-def]
    """The random word by which a newcomer draws rows."""
    return draw(core.settings.seed ^ LOTS, newcomer >> SHARED)


@kernel
def _draws(parts, lot, arrival):  # type: ignore[no-untyped-def]
    """Whether a row of an arrival number is drawn by a lot."""
    return _below(mix(lot + GOLDEN * np.uint64(arrival + 1)), parts.pace[THROTTLE])


@implements(hooks.is_drawn, ThrottleState)
def _is_drawn(parts, core, newcomer, arrival):  # type: ignore[no-untyped-def]
    return _draws(parts, _lot(core, newcomer), arrival)


@kernel
def _part_of(parts, other, offset):  # type: ignore[no-untyped-def]
    """The basic window of a row that is so much older than the newcomer."""
    return min(max(offset, 0) // parts.part[other], parts.parts[other] - 1)


@implements(hooks.is_probed, ThrottleState)
def _is_probed(parts, core, lane, other, offset, row):  # type: ignore[no-untyped-def]
    if parts.steps[MODE] == WHOLE:
        return True
    if parts.steps[MODE] == SHREDDED:
        if other != parts.first[lane]:
            return True
        return _draws(parts, np.uint64(parts.steps[WORD]), core.rows[row].arrival)
    place = (lane * parts.part.size + other) * parts.most
    return parts.chosen[place + _part_of(parts, other, offset)]


@implements(hooks.next_probed, ThrottleState)
def _next_probed(parts, lane, other, offset):  # type: ignore[no-untyped-def]
    if parts.steps[MODE] != HARVESTED:
        return offset
    place = (lane * parts.part.size + other) * parts.most
    for k in range(_part_of(parts, other, offset), parts.parts[other]):
        if parts.chosen[place + k]:
            return max(offset, parts.part[other] * k)
    return np.int64(BOUNDLESS)


@implements(hooks.lookback, ThrottleState)
def _lookback(parts, core, lane, other):  # type: ignore[no-untyped-def]
    window = core.lanes[other].window
    if parts.steps[MODE] != HARVESTED:
        return window
    return min(window, parts.ends[lane * parts.part.size + other])


@implements(hooks.on_candidates, ThrottleState)
def _on_candidates(parts, core, lane, other, looked, met):  # type: ignore[no-untyped-def]
    if parts.steps[MODE] == WHOLE:
        lanes = parts.part.size
        parts.partners[lane * (2 * lanes + 1) + other] += looked
        parts.partners[lane * (2 * lanes + 1) + lanes + other] += met


@implements(hooks.is_span_probed, ThrottleState)
def _is_span_probed(parts, lane, other, least, most):  # type: ignore[no-untyped-def]
    if parts.steps[MODE] != HARVESTED:
        return True
    if least > parts.ends[lane * parts.part.size + other]:
        return False
    place = (lane * parts.part.size + other) * parts.most
    for k in range(_part_of(parts, other, least), _part_of(parts, other, most) + 1):
        if parts.chosen[place + k]:
            return True
    return False


@implements(hooks.probed_run, ThrottleState)
def _probed_run(parts, lane, other, time, times, start, end):  # type: ignore[no-untyped-def]
    if parts.steps[MODE] != HARVESTED:
        return end, True
    k = _part_of(parts, other, time - times[start])
    until = end
    if k > 0:
        until = first_above(times, start, end, time - parts.part[other] * k)
    return until, parts.chosen[(lane * parts.part.size + other) * parts.most + k]


@implements(hooks.count_probed, ThrottleState)
def _count_probed(parts, lane, other, time, times, start, end):  # type: ignore[no-untyped-def]
    if end <= start or parts.steps[MODE] != HARVESTED:
        return end - start
    place = (lane * parts.part.size + other) * parts.most
    part, last = parts.part[other], parts.parts[other] - 1
    newest = _part_of(parts, other, time - times[end - 1])
    eldest = _part_of(parts, other, time - times[start])
    counted = 0
    for k in range(newest, eldest + 1):
        if parts.chosen[place + k]:
            low, high = start, end
            if k < last:
                low = first_above(times, start, end, time - part * (k + 1))
            if k > 0:
                high = first_above(times, start, end, time - part * k)
            counted += high - low
    return counted


@implements(hooks.count_chosen, ThrottleState)
def _count_chosen(parts, lane, other, time, times, start, span, inside, earliest, latest):  # type: ignore[no-untyped-def]
    whole = inside
    newest = _part_of(parts, other, time - span.newest)
    eldest = _part_of(parts, other, time - span.oldest)
    if parts.steps[MODE] == HARVESTED:
        whole = inside and newest == eldest
    if whole:
        return span.live
    if parts.steps[MODE] != HARVESTED:
        return hooks.count_between(times, start, earliest, latest)
    place = (lane * parts.part.size + other) * parts.most
    part, last = parts.part[other], parts.parts[other] - 1
    counted = 0
    for k in range(newest, eldest + 1):
        if parts.chosen[place + k]:
            low = earliest if k == last else max(earliest, time - part * (k + 1) + 1)
            high = latest if k == 0 else min(latest, time - part * k)
            counted += hooks.count_between(times, start, low, high)
    return counted


@implements(hooks.count_sampled, ThrottleState)
def _count_sampled(parts, lane, other, among):  # type: ignore[no-untyped-def]
    if parts.steps[MODE] == SHREDDED and other == parts.first[lane]:
        return np.int64(round(among * parts.pace[THROTTLE]))
    return among


@implements(hooks.useless_row, ThrottleState)
def _useless_row(parts, core, lane):  # type: ignore[no-untyped-def]
    if parts.reach[lane] >= BOUNDLESS:
        return NONE
    row = oldest(core, lane)
    if row == NONE or core.numbers[NEWEST] - core.rows[row].time < parts.reach[lane]:
        return NONE
    return row
