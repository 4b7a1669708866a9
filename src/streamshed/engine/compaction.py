"""Letting go of users' rows that have left, and putting together those that have come.

Open segments, and sealed ones of which less than half is wanted, become one new segment for each
input; a segment of which nothing is wanted goes. Where all rows of a segment are wanted they are
not copied, and rows that stay where they are cost no more than a look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamshed.engine.payload import PLACE_BITS, PLACE_OFFSET, Payload
from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import NONE

_KEEPS_NOTHING = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Compaction:
    """What has changed in the segments of an input."""

    new: int | None
    """The segment that was made, if any."""
    rows: npt.NDArray[np.int64]
    """The numbers of the rows that it holds, in its order."""
    removed: list[int]
    """Sealed segments that are gone."""


def compact_segments(
    rows: npt.NDArray[Any], inputs: Sequence[Payload], one_input: bool, whole: bool
) -> list[Compaction]:
    """Let go of all users' rows but those of stored rows, whose places are put right.

    Args:
        rows: the rows of the core that are or were in use.
        inputs: the users' rows of each input.
        one_input: whether a single input holds the rows of all streams.
        whole: put all rows of an input together in one new segment.
    """
    numbers, first, size = _indexes(inputs)
    counts = np.zeros(size, np.int64)
    _count(rows, one_input, first, counts)

    moves = np.zeros(size, np.bool_)
    start = np.zeros(size, np.int64)
    flagged = 0
    for payload, names, base in zip(inputs, numbers, first, strict=True):
        for name in names.tolist():
            index = base + name
            if payload.moves(name, int(counts[index]), whole):
                moves[index], start[index] = True, flagged
                flagged += payload.segments[name].num_rows
    flags = np.zeros(flagged, np.bool_)
    moving = np.empty(int(counts[moves].sum()), np.int64)
    _sort_out(rows, one_input, first, moves, start, flags, moving)

    moved = np.empty(len(moving), np.int64)
    rank = np.empty(flagged, np.int64)
    number = np.zeros(len(inputs), np.int64)
    begin = np.zeros(len(inputs), np.int64)
    changes = []
    filled = 0
    for position, (payload, names, base) in enumerate(zip(inputs, numbers, first, strict=True)):
        gone = [name for name in names.tolist() if moves[base + name]]
        sizes = [payload.segments[name].num_rows for name in gone]
        place = int(start[base + gone[0]]) if gone else 0
        wanted = flags[place : place + sum(sizes)]
        rank[place : place + sum(sizes)] = np.cumsum(wanted) - 1
        size = int(counts[[base + name for name in gone]].sum()) if gone else 0
        begin[position], number[position] = filled, payload.next_segment
        new = payload.gather(gone, wanted, size)
        removed = [name for name in gone if payload.drop(name)]
        payload.sealed = {name: int(counts[base + name]) for name in payload.sealed}
        if new is not None:
            payload.sealed[new] = size
        changes.append(Compaction(new, moved[filled : filled + size], removed))
        filled += size
    _move(rows, one_input, first, start, rank, number, begin, moving, moved)
    return changes


def _indexes(
    inputs: Sequence[Payload],
) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64], int]:
    """The numbers of the segments of each input; and how these are indexes of one array.

    A segment's index is `first` of its input plus its number. Returns the size of the array too.
    """
    numbers = [np.array(sorted(payload.segments), np.int64) for payload in inputs]
    spans = [int(names[-1] - names[0]) + 1 if len(names) else 0 for names in numbers]
    ends = np.cumsum([0, *spans])
    first = [
        end - names[0] if len(names) else _KEEPS_NOTHING
        for names, end in zip(numbers, ends, strict=False)
    ]
    return numbers, np.array(first, np.int64), int(ends[-1])


# -- flags of rows that are stored ----------------------------------------------------------------

FLAGS = 512
"""Flags that stand in a block together; a segment has whole blocks."""


def stored_flags(
    rows: npt.NDArray[Any], inputs: Sequence[Payload], one_input: bool
) -> npt.NDArray[np.uint8]:
    """Flags, one bit for each user's row in sealed segments: which are those of stored rows.

    The flags of a segment stay where they are as long as there is the segment, so that only those
    change of which the rows have left.

    Args:
        rows: the rows of the core that are or were in use.
        inputs: the users' rows of each input, all of them in sealed segments.
        one_input: whether a single input holds the rows of all streams.
    """
    end = _place_flags(inputs)
    numbers, first, size = _indexes(inputs)
    place = np.zeros(size, np.int64)
    for payload, names, base in zip(inputs, numbers, first, strict=True):
        place[base + names] = [payload.flags[name] * FLAGS for name in names.tolist()]
    flags = np.zeros(end * FLAGS // 8, np.uint8)
    _flag(rows, one_input, first, place, flags)
    return flags


def _place_flags(inputs: Sequence[Payload]) -> int:
    """Find blocks for the flags of new segments, the first that are free; returns where all end."""

    def blocks(payload: Payload, number: int) -> int:
        return -(-int(payload.segments[number].num_rows) // FLAGS)

    taken: list[tuple[int, int]] = sorted(
        (begin, begin + blocks(payload, number))
        for payload in inputs
        for number, begin in payload.flags.items()
    )
    for payload in inputs:
        for number in sorted(payload.segments.keys() - payload.flags.keys()):
            needed, begin, at = blocks(payload, number), 0, 0
            while at < len(taken) and taken[at][0] - begin < needed:
                begin, at = taken[at][1], at + 1
            taken.insert(at, (begin, begin + needed))
            payload.flags[number] = begin
    return taken[-1][1] if taken else 0


def flagged(flags: npt.NDArray[np.uint8], begin: int, rows: int) -> npt.NDArray[np.int64]:
    """The offsets of the rows of a segment that are stored.

    Args:
        flags: of all segments.
        begin: the block in which those of the segment begin.
        rows: of the segment.
    """
    own = flags[begin * FLAGS // 8 :]
    return np.flatnonzero(np.unpackbits(own, count=rows, bitorder="little"))


@loop
def _flag(rows, one_input, first, place, flags):  # type: ignore[no-untyped-def]
    """Flag the users' rows of stored rows."""
    for row in range(rows.size):
        if rows[row].arrival != NONE:
            index = _segment_of(rows, row, one_input, first)
            if index >= 0:
                at = place[index] + (rows[row].payload & PLACE_OFFSET)
                flags[at >> 3] |= np.uint8(1 << (at & 7))


@kernel
def _segment_of(rows, row, one_input, first):  # type: ignore[no-untyped-def]
    """The index of the segment that holds a row; negative if its input keeps nothing."""
    origin = 0 if one_input else rows[row].stream
    if first[origin] == _KEEPS_NOTHING:
        return np.int64(NONE)
    return first[origin] + (rows[row].payload >> PLACE_BITS)


@loop
def _count(rows, one_input, first, counts):  # type: ignore[no-untyped-def]
    """Count the stored rows of each segment."""
    for row in range(rows.size):
        if rows[row].arrival != NONE:
            index = _segment_of(rows, row, one_input, first)
            if index >= 0:
                counts[index] += 1


@loop
def _sort_out(rows, one_input, first, moves, start, flags, moving):  # type: ignore[no-untyped-def]
    """Flag and list the stored rows that move."""
    filled = 0
    for row in range(rows.size):
        if rows[row].arrival == NONE:
            continue
        index = _segment_of(rows, row, one_input, first)
        if index >= 0 and moves[index]:
            flags[start[index] + (rows[row].payload & PLACE_OFFSET)] = True
            moving[filled] = row
            filled += 1


@loop
def _move(rows, one_input, first, start, rank, number, begin, moving, moved):  # type: ignore[no-untyped-def]
    """Tell the rows that moved where they are now, and list them in that order."""
    for i in range(moving.size):
        row = moving[i]
        origin = 0 if one_input else rows[row].stream
        index = _segment_of(rows, row, one_input, first)
        offset = rank[start[index] + (rows[row].payload & PLACE_OFFSET)]
        rows[row].payload = (number[origin] << PLACE_BITS) + offset
        moved[begin[origin] + offset] = row
