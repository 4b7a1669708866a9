"""The state of the loss estimator: a sketch of all rows, the rows that are followed, and tallies.

Every key has a *lot*, drawn from its hash and the seed, and so a *depth*: the number of leading
zeros of the lot. Every row has a *level*, which follows from the rows that came and never from
lots; the row is followed if its key is at least as deep, which has the chance 2^-level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import BOUNDLESS, CLOCK, NEVER, NONE, Field
from streamshed.kernels.intrinsics import bit_length
from streamshed.kernels.random import mix
from streamshed.kernels.table import lane_of, sweep_of

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan

PIECES = 4
"""Pieces of a window: after each, all counts of the sketch lose a quarter."""
UNIT_BITS = 3
ROW_UNITS = 1 << UNIT_BITS
"""What a row counts in the sketch: cells are in eighths of a row, so that they fade smoothly."""
EVEN_UNITS = 6
"""What a row of a key that comes evenly counts in the mean, while it is in a window of four pieces
and when it has left it: 8, 6, 4, 3; 2, 1."""
FRESH = EVEN_UNITS / ROW_UNITS
"""Rows that have just come are so much fewer than those of an even age with as large a count."""
DEEPEST = 60
"""The depth beyond which keys are not told apart."""
LEVELS = DEEPEST + 2
GROUPS = 128
"""Random groups of keys, from whose differences the precision of an estimate is known."""
LOTS, PREDICTED, HIDDEN, MERGED = range(4)
"""What spreads an estimate: the lots of keys, what is predicted, what may be hidden besides, rows
that were merged."""
SPREADS = 4
SIGNS = 16
"""Of merged rows it is not known to which side they are wrong: as many sums with random signs tell
how far, instead of groups."""
STEPS = 12
"""Steps in which the last minute goes by."""
DISTINCT_PLACES = 2048
"""Room for keys with a result that are remembered, to count them all; a quarter stays free."""
LIKELY = 6.0
"""Fewer results than these, as the sketch says, may be noise."""
CLEAR, SLIGHT = 3.0, 30.0
"""What other keys have in a cell is noise: a key stands out by so many standard deviations. Less so
many units, as that matters only where cells have the rows of many keys."""
MOST_STREAMS = 6
"""Rows of a key are taken to be of no more streams than these, where a column names them."""
CLUMP_STEPS = 8
"""Steps in which the size of a clump doubles."""
CERTAIN = 3.0
"""What is known for certain may still be wrong by so many standard deviations of merged rows."""
FAR = -(2**62)
"""Before all times."""

# The scalars of the state, in `Loss.numbers`.
(
    EXPONENT,  # a row of promise q has the level EXPONENT - q, but no more than the floor
    RISES,  # how often the exponent rose; it lowers the chances of all rows alike
    FLOOR,  # the highest level of all: every key is followed with the chance 2^-FLOOR at least
    FREE_ENTRY,
    ENTRIES_USED,
    HELD,  # entries in use
    FREE_KEY,
    KEYS_USED,
    BELOW,  # entries that only the floor lets in
    FULL_AT,  # entries in use at which room is made
    NEWEST,  # the newest time
    ENTERED,  # all rows
    STREAMS,  # streams that have rows
    TURN_AT,  # the time at which the next piece of a window begins
    SINCE,  # rows since the last one began
    STEP_PLACE,
    STEP_ENDS,
    RESULTS_BEFORE,  # of the row at hand
    CUT,  # keys below this depth are not remembered as having a result
    DISTINCT,  # those that are
    ROOM,  # entries that may be alive; the others have expired
    TURNS,  # the pieces of the longest window so far
) = range(22)
NUMBERS = 22

ENTRY = np.dtype(
    [
        ("lo", np.int64),  # the first and the last time of the rows; in a row window their numbers
        ("hi", np.int64),
        ("count", np.float32),
        ("stream", np.int32),
        ("after", np.int32),
        ("rank", np.int16),  # the level is RISES - rank, but no more than the floor
        ("floor", np.uint8),
        ("clump", np.uint8),  # how many of its rows come at once, if it was merged: see `clump_of`
    ],
    align=True,
)
"""Followed rows of a key and a stream."""

KEY = np.dtype(
    [
        ("hash", np.uint64),
        ("head", np.int32),  # its entries, the newest first; NONE if it is unused
        ("after", np.int32),  # in its chain
        ("since", np.int32),  # the piece of a window in which it began to be followed
        ("rank", np.int16),  # both at that time, as those of an entry
        ("floor", np.uint8),
        ("suspect", np.uint8),  # whether it may have had rows before that
    ],
    align=True,
)
"""A key that is followed.

Rows that a *suspect* key may have had before are in no estimate, but widen its interval while they
may be alive.
"""

TALLY = np.dtype(
    [
        ("number", np.int64),  # of the step, where there are steps
        ("results", np.int64),  # results made before the step
        ("exact", np.float64),  # results without shedding, each counted for all it stands for
        ("certain", np.float64),  # those that were seen for certain
        ("seen", np.float64),  # those that were seen, each counted once
        ("hidden", np.float64),  # what keys may have made besides with rows that nobody followed
        ("unseen", np.float64),  # results that the sketch predicts; `exact` has them
        ("weight", np.float64),  # the largest number of results for which one stood
    ],
    align=True,
)

HAND = np.dtype(
    [
        ("group", np.int64),  # of its key
        ("top", np.int64),  # what is known of its results is in `Loss.known`, before this level
        ("first", np.float64),  # the results seen for certain
        ("seen", np.float64),  # all that were seen
        ("slack", np.float64),  # as entries are cut, it may have made so many more for certain
        ("believed", np.float64),  # besides those known, with rows that nobody followed
        ("weight", np.float64),  # for how many each of these stands
        ("doubt", np.float64),  # what each adds to the spread
    ],
    align=True,
)
"""What was tallied of the row at hand, before it is known which results it has made."""

DISTINCT_KEY = np.dtype(
    [("hash", np.uint64), ("level", np.int8), ("made", np.uint8), ("used", np.uint8)], align=True
)
"""A key that has a result: the smallest level at which one was seen, UNSEEN if none was, and
whether the join made one."""
UNSEEN = 127

_FIRST, _SECOND = np.uint64(7), np.uint64(27)
_ONE = np.float64(1.0).view(np.int64)
_MANTISSA, _COARSER = 52, 40
_64 = 64


class LossSettings(NamedTuple):
    """What the estimator was told, as scalars."""

    salt: np.uint64  # makes lots of hashes
    capacity: int  # entries
    bits: int  # a row of cells of the sketch has 2^bits of them
    most: int  # entries of a key in a stream, before neighbours are merged
    highest: int  # the floor never rises above this
    step: int  # the length of a step of time, or in rows
    per_row: float  # makes a product of units over all lanes one of rows
    per_result: float  # makes one over all lanes but one the results of a row


class Loss(NamedTuple):
    """The arrays."""

    settings: LossSettings
    numbers: npt.NDArray[np.int64]
    cells: npt.NDArray[np.uint16]  # the sketch: two rows of cells, each by lane
    counted: npt.NDArray[np.int64]  # by lane: all that is in the cells of a row
    piece: npt.NDArray[np.int64]  # by lane: the present piece of its window
    turn_at: npt.NDArray[np.int64]  # by lane with a row window: where the next piece begins
    floors: npt.NDArray[np.int64]  # the highest floor in each piece of the longest window
    entered: npt.NDArray[np.int64]  # by stream: the rows that came
    entries: npt.NDArray[Any]
    latest: npt.NDArray[np.int64]  # by entry: its last time, if numbers of rows do not tell it
    earliest: npt.NDArray[np.int64]  # by entry: its first time, if a stream needs both
    owner: npt.NDArray[np.int32]  # by entry: its key
    keys: npt.NDArray[Any]
    heads: npt.NDArray[np.int32]  # chains of keys by hash: the first key + 1, or 0
    marked: npt.NDArray[np.uint64]  # by chain a bit: whether something in it is to be dropped
    total: npt.NDArray[Any]  # the tally since the beginning
    spread: npt.NDArray[np.float64]  # by (what, group): what spreads the estimate
    steps: npt.NDArray[Any]  # a ring: the tallies of the last minute, step by step
    step_spread: npt.NDArray[np.float32]  # by (step, what, group)
    distinct: npt.NDArray[Any]  # keys with a result: open addressing
    hand: npt.NDArray[Any]  # what was tallied of the row at hand
    known: npt.NDArray[np.float64]  # by level: results of this row, as known or predicted
    partners: npt.NDArray[np.float64]  # room to work: by (slot of a stream, level)
    left: npt.NDArray[np.float64]  # by level: the part that is left there of the oldest row
    weighed: npt.NDArray[np.float64]  # by (slot, level): the same, as the sketch should have it
    cut: npt.NDArray[np.float64]  # by sign: what is wrong of the partners as rows were merged; of
    # results, where there are bounds on times
    doubts: npt.NDArray[np.float64]  # by (lane, sign): the part that is wrong of the rows chosen
    ties: npt.NDArray[
        np.float64
    ]  # by (stream, other): newcomers that had partners there, and those
    # that had one of the same time
    led: npt.NDArray[np.float64]  # by slot: partners that are older than the latest member
    at: npt.NDArray[np.int32]  # by lane: the entry that is tried, where there are bounds
    slot_of: npt.NDArray[np.int32]  # by stream
    streams: npt.NDArray[np.int32]  # by slot


def loss_layout(room: int, bits: int, plan: Plan) -> dict[str, Field]:
    """The arrays of a `Loss`.

    Args:
        room: entries, and keys.
        bits: of the width of the sketch.
        plan: the join, with the windows of its streams.
    """

    def once(dtype: npt.DTypeLike, times: int, kept: bool = True) -> Field:
        return Field("once", dtype, 0, times, kept)

    streams, lanes = plan.streams, len(plan.streams)
    by_rows = any(stream.last is not None for stream in streams)
    mixed = by_rows and any(stream.window is not None for stream in streams)
    both = any(stream.last is not None and stream.window is not None for stream in streams)
    if by_rows and plan.bounds:  # which say how far apart times may be
        mixed = both = True
    chains = 1 << (max(64, room) - 1).bit_length()
    return {
        "numbers": once(np.int64, NUMBERS),
        "cells": once(np.uint16, (2 << bits) * lanes),
        "counted": once(np.int64, lanes),
        "piece": Field("once", np.int64, FAR, lanes, kept=True),
        "turn_at": Field("once", np.int64, FAR, lanes, kept=True),
        "floors": once(np.int64, PIECES + 1),
        "entered": Field("stream", np.int64, kept=True),
        "entries": once(ENTRY, room),
        "latest": once(np.int64, room if mixed else 0),
        "earliest": once(np.int64, room if both else 0),
        "owner": once(np.int32, room, kept=False),
        "keys": once(KEY, room),
        "heads": once(np.int32, chains, kept=False),
        "marked": once(np.uint64, chains // 64, kept=False),
        "total": once(TALLY, 1),
        "spread": once(np.float64, SPREADS * GROUPS),
        "steps": once(TALLY, STEPS),
        "step_spread": once(np.float32, STEPS * SPREADS * GROUPS),
        "distinct": once(DISTINCT_KEY, DISTINCT_PLACES),
        "hand": once(HAND, 1),
        "known": once(np.float64, LEVELS),
        "partners": Field("stream", np.float64, 0, LEVELS),
        "left": once(np.float64, LEVELS, kept=False),
        "weighed": Field("stream", np.float64, 0, LEVELS),
        "cut": once(np.float64, SIGNS, kept=False),
        "doubts": once(np.float64, lanes * SIGNS, kept=False),
        "ties": once(np.float64, 2 * lanes * lanes if plan.bounds else 0),
        "led": Field("stream", np.float64),
        "at": once(np.int32, lanes, kept=False),
        "slot_of": Field("stream", np.int32, NONE),
        "streams": Field("stream", np.int32),
    }


@kernel
def lot_of(loss, hashed):  # type: ignore[no-untyped-def]
    """The number that decides whether a key is followed; its place in tables says nothing."""
    return mix(hashed ^ loss.settings.salt)


@kernel
def depth_of(lot):  # type: ignore[no-untyped-def]
    """The leading zeros of a lot: a row of level c is followed if its key is that deep."""
    return min(_64 - bit_length(lot), DEEPEST)


@kernel
def level_of(loss, entry):  # type: ignore[no-untyped-def]
    """The level of an entry: the chance of its rows to be followed is 2^-level."""
    return max(0, min(loss.numbers[RISES] - np.int64(entry.rank), np.int64(entry.floor)))


@kernel
def clump_of(entry):  # type: ignore[no-untyped-def]
    """How many rows of an entry come at once, as a row of it sees that in the mean."""
    if entry.lo == entry.hi:
        return np.float64(entry.count)
    return 2.0 ** (np.float64(entry.clump) / CLUMP_STEPS)


# -- windows --------------------------------------------------------------------------------------


@kernel
def window_of(core, stream):  # type: ignore[no-untyped-def]
    """The time window of a stream, without bounds where it is a row window."""
    return core.lanes[sweep_of(core, stream)].window


@kernel
def oldest_partner(loss, core, stream, time):  # type: ignore[no-untyped-def]
    """The least time, or number, of rows of a stream that a result of a time may have."""
    last = core.lanes[lane_of(core, stream)].last
    if last > 0:
        return loss.entered[stream] - last + 1
    return time - window_of(core, stream)


@kernel
def is_over(loss, core, e):  # type: ignore[no-untyped-def]
    """Whether no row of an entry can be a partner of a row to come."""
    entry = loss.entries[e]
    stream = np.int64(entry.stream)
    last, window = core.lanes[lane_of(core, stream)].last, window_of(core, stream)
    if last > 0 and entry.hi <= loss.entered[stream] - last:
        return True
    clock = core.numbers[CLOCK]
    if clock == NEVER or window >= BOUNDLESS:
        return False
    return latest_time(loss, e) < clock - core.settings.late - window


@kernel
def have_one_window(core):  # type: ignore[no-untyped-def]
    """Whether all streams have the same time window and no row windows."""
    for lane in range(core.settings.sweeps):
        if core.lanes[lane].last > 0 or core.lanes[lane].window != core.lanes[0].window:
            return False
    return True


@kernel
def are_over_alike(loss, core):  # type: ignore[no-untyped-def]
    """Whether `least_alive` says of every entry by its last time whether it is over."""
    return loss.latest.size == 0 and have_one_window(core)


@kernel
def least_alive(core):  # type: ignore[no-untyped-def]
    """The least last time of an entry that is not over, if all streams have the first's window."""
    clock, window = core.numbers[CLOCK], core.lanes[0].window
    if clock == NEVER or window >= BOUNDLESS:
        return np.int64(NEVER)
    return clock - core.settings.late - window


@kernel
def latest_time(loss, e):  # type: ignore[no-untyped-def]
    """The time of the last row of an entry."""
    return loss.latest[e] if loss.latest.size > 0 else loss.entries[e].hi


@kernel
def first_time(loss, e):  # type: ignore[no-untyped-def]
    """The time of the first row of an entry, where it is needed: in a time window, or by bounds."""
    return loss.earliest[e] if loss.earliest.size > 0 else loss.entries[e].lo


# -- sketch ---------------------------------------------------------------------------------------


@kernel
def cells_of(loss, lot):  # type: ignore[no-untyped-def]
    """The two cells of a key, by bits of its lot that say nothing of its depth and its group."""
    mask = (1 << loss.settings.bits) - 1
    return np.int64(lot >> _FIRST) & mask, (np.int64(lot >> _SECOND) & mask) + mask + 1


@kernel
def rows_in_sketch(loss, lanes, first, second, lane):  # type: ignore[no-untyped-def]
    """The rows of a key in a lane: the smaller cell, less half the mean of all as noise."""
    found = np.int64(min(loss.cells[first * lanes + lane], loss.cells[second * lanes + lane]))
    units = max(0, found - (loss.counted[lane] >> (loss.settings.bits + 1)))
    return np.float64(units) * (1.0 / EVEN_UNITS)


@kernel
def at_most_in_sketch(loss, lanes, first, second, lane):  # type: ignore[no-untyped-def]
    """The same with half as much noise taken off."""
    found = np.int64(min(loss.cells[first * lanes + lane], loss.cells[second * lanes + lane]))
    units = max(0, found - (loss.counted[lane] >> (loss.settings.bits + 2)))
    return np.float64(units) * (1.0 / EVEN_UNITS)


@kernel
def left_in_sketch(loss, core, e):  # type: ignore[no-untyped-def]
    """The part of each row of an entry that the sketch has not yet let fade."""
    entry = loss.entries[e]
    lane = np.int64(entry.stream)
    last, window = core.lanes[lane].last, core.lanes[lane].window
    pieces = PIECES // 2 if last > 0 and window < BOUNDLESS else PIECES
    number = np.int64(0)
    if last > 0:
        number += (entry.lo + entry.hi) // 2 // max(1, -(-last // pieces))
    if window < BOUNDLESS:
        middle = latest_time(loss, e) if last > 0 else (entry.lo + entry.hi) // 2
        number += middle // max(1, -(-window // pieces))
    left = 1.0
    for _ in range(min(PIECES, loss.piece[lane] - number)):
        left *= 0.75
    return left


@kernel
def count_in_sketch(loss, lanes, first, second, lane):  # type: ignore[no-untyped-def]
    """Let both cells of a key count no less than the smaller one and a row."""
    cells = loss.cells
    one, other = np.int64(cells[first * lanes + lane]), np.int64(cells[second * lanes + lane])
    least = min(min(one, other) + ROW_UNITS, 65535)
    cells[first * lanes + lane] = max(one, least)
    cells[second * lanes + lane] = max(other, least)
    loss.counted[lane] += ROW_UNITS
    loss.numbers[SINCE] += 1


@kernel
def is_told(core):  # type: ignore[no-untyped-def]
    """Whether the sketch can tell how many results a row makes."""
    return core.settings.complete and not core.settings.by and core.bounds.size == 0


@kernel
def promise_of(loss, core, first, second, own):  # type: ignore[no-untyped-def]
    """What the sketch says of a key as a row of a lane comes.

    Returns:
        Its promise: log2 of the product of (1 + rows) over lanes, to the power 3/2; and the results
        that the row is likely to make, 0 if they are too few to be told from noise.
    """
    cells, lanes, noise = loss.cells, core.settings.lanes, loss.settings.bits + 1
    product, likely = loss.settings.per_row, loss.settings.per_result
    for lane in range(lanes):
        found = np.int64(min(cells[first * lanes + lane], cells[second * lanes + lane]))
        units = np.float64(max(0, found - (loss.counted[lane] >> noise)))
        product *= EVEN_UNITS + units
        likely *= 1.0 if lane == own else units
    if core.settings.by:
        product = _of_streams(product, loss.numbers[STREAMS])
    # The bits of a float are its log2, on straight lines between the powers of 2.
    log2 = (np.float64(product).view(np.int64) - _ONE) >> _COARSER
    told = likely >= LIKELY and is_told(core) and _stands_out(loss, core, first, second, own)
    return (3 * log2) >> (_MANTISSA - _COARSER + 1), likely if told else 0.0


@kernel
def _of_streams(product, streams):  # type: ignore[no-untyped-def]
    """The product over the streams that a column names, if the rows of a key are spread evenly."""
    spread = max(1, min(streams, MOST_STREAMS))
    each, found = 1.0 + (product - 1.0) / np.float64(spread), 1.0
    for _ in range(spread):
        found *= each
    return found


@kernel
def _stands_out(loss, core, first, second, own):  # type: ignore[no-untyped-def]
    """Whether the cells of a key have more than noise in every lane but its own."""
    lanes = core.settings.lanes
    for lane in range(lanes):
        found = min(loss.cells[first * lanes + lane], loss.cells[second * lanes + lane])
        mean = np.float64(loss.counted[lane] >> loss.settings.bits)
        if lane != own and found + SLIGHT < mean + CLEAR * np.sqrt(EVEN_UNITS * mean):
            return False
    return True
