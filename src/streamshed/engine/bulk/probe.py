"""Probing a part of the rows by key: for each row, how many results it completes.

A key has a bit vector of the streams that have it, and the newest row of each; each row is linked
to the one before it. Nothing is removed: what is older than a window is not met.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.intrinsics import prefetch

KEY_HEADS = 4
"""A key is a few 32-bit words side by side: its hash (two words), the bit vector of the streams
that have it (two words), and from here on the newest row of each of them in the part, plus 1."""
AHEAD, NEARER = 12, 6
"""So many rows before one is looked up its place in the directory is asked for; then its key."""
_FEW_STREAMS = 4
_NOBODY, _ONE = np.uint64(0), np.uint64(1)
_UPPER, _LOWER = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)


class Probed(NamedTuple):
    """What the first pass finds, by places in the parts."""

    before: npt.NDArray[np.int32]  # the row before each of its key and stream, plus 1
    newcomer: npt.NDArray[np.int32]  # the rows that complete results, in their order
    heads: npt.NDArray[np.int32]  # for each of these the newest partner of each stream, plus 1
    made: npt.NDArray[np.int64]  # by rank: how many results the row completes; then, up to it


class Table(NamedTuple):
    """The keys of the part at hand: a directory, open addressing, and what is known of each."""

    directory: npt.NDArray[np.uint64]  # upper half of the hash, number of the key plus 1
    hashes: npt.NDArray[np.uint64]  # a key's words, see KEY_HEADS, two at a time
    words: npt.NDArray[np.int32]  # the same, one at a time
    key_words: int
    first: npt.NDArray[np.int64]  # by window: the oldest row within it
    used: npt.NDArray[np.int64]  # how many keys there are
    shared: np.uint64  # so many of the lowest bits of the hashes are alike


def directory_size(keys: int) -> int:
    """The size of a directory for so many keys: a power of two, at most two thirds full."""
    return 1 << int(1.5 * keys + 1).bit_length()


def key_words(lanes: int) -> int:
    """The words of a key; those of few streams do not reach into another line of the cache."""
    words = KEY_HEADS + lanes
    return max(8, words + words % 2)


@loop
def probe_part(keys, rows, start, end, known, windows, table, probed):  # type: ignore[no-untyped-def]
    """Count the results that each row of a part completes, and note the partners it begins with.

    Args:
        keys: of the rows of all parts, and their times.
        rows: what else there is of them.
        start: where the part begins.
        end: where it ends.
        known: rows of a lower rank were joined before, and are only met.
        windows: of the streams.
        table: room for the keys.
        probed: what is found; rows of the part are numbered from `start`.

    Returns:
        How many rows complete results, or -1 if there is no room for all keys.
    """
    lanes = windows.of.size
    size = table.key_words
    table.directory[:] = _NOBODY
    table.used[0] = 0
    first = table.first
    first[:] = 0
    # Rows of a part share the top bits of their hashes, or the lowest: places are found by others.
    last = table.directory.size - 1
    most = 2 * (last // 3) + 1
    everywhere = (_ONE << np.uint64(lanes)) - _ONE if lanes < 64 else ~_NOBODY
    found = 0
    for i in range(end - start):
        key, row = keys[start + i], rows[start + i]
        if i + AHEAD < end - start:
            prefetch(table.directory, _place(table, keys[start + i + AHEAD].hash, last))
            nearer = _place(table, keys[start + i + NEARER].hash, last)
            likely = np.int64(table.directory[nearer] & _LOWER)
            prefetch(table.words, max(0, likely - 1) * size)
        words = _key_number(table, key.hash, last, size) * size
        if table.used[0] > most:
            return -1
        own = _ONE << np.uint64(row.stream)
        present = table.hashes[words // 2 + 1]
        if row.rank >= known:
            for window in range(windows.lengths.size):
                _advance(keys, start, key.time - windows.lengths[window], first, window)
            if lanes <= _FEW_STREAMS:
                present = _alive(table, words, present, windows)
            if present | own == everywhere:
                count = _partners(table, words, row.stream, windows, start, probed, found)
                if count > 0:
                    probed.made[row.rank] = count
                    probed.newcomer[start + found] = i
                    found += 1
        head = words + KEY_HEADS + row.stream
        probed.before[start + i] = table.words[head] if present & own != _NOBODY else 0
        table.words[head] = i + 1
        table.hashes[words // 2 + 1] = present | own
    return found


@kernel
def _place(table, hashed, last):  # type: ignore[no-untyped-def]
    """Where the key of a hash stands in the directory, unless others do."""
    return np.int64(hashed >> table.shared) & last


@kernel
def _key_number(table, hashed, last, size):  # type: ignore[no-untyped-def]
    """The number of a key, which is entered if it is new."""
    place = _place(table, hashed, last)
    upper = hashed & _UPPER
    while True:
        entry = table.directory[place]
        if entry == _NOBODY:
            number = table.used[0]
            table.used[0] = number + 1
            table.directory[place] = upper | np.uint64(number + 1)
            table.hashes[number * size // 2] = hashed
            table.hashes[number * size // 2 + 1] = _NOBODY
            return number
        if entry & _UPPER == upper:
            number = np.int64(entry & _LOWER) - 1
            if table.hashes[number * size // 2] == hashed:
                return number
        place = (place + 1) & last


@kernel
def _advance(keys, start, oldest, first, window):  # type: ignore[no-untyped-def]
    """Let a window begin with its oldest row: rows of a part are in the order of time."""
    place = first[window]
    # Mostly a row or two leave; how many cannot be foretold, so that these are no branches.
    place += np.int64(keys[start + place].time < oldest)
    place += np.int64(keys[start + place].time < oldest)
    while keys[start + place].time < oldest:
        place += 1
    first[window] = place


@kernel
def _alive(table, words, present, windows):  # type: ignore[no-untyped-def]
    """The streams that have a row of a key within their windows; without a branch for each."""
    newer = np.uint64(0)
    for lane in range(windows.of.size):
        alive = table.words[words + KEY_HEADS + lane] > table.first[windows.of[lane]]
        newer |= np.uint64(alive) << np.uint64(lane)
    return present & newer


@kernel
def _partners(table, words, stream, windows, start, probed, found):  # type: ignore[no-untyped-def]
    """Note the partners of a row, of which every other stream had one; how many results they make.

    Args:
        table: the keys.
        words: where those of the row's key begin.
        stream: of the row.
        windows: of the streams.
        start: where the part begins.
        probed: takes the newest partner of each stream.
        found: how many rows of the part make results so far.
    """
    lanes = windows.of.size
    number = np.int64(1)
    for lane in range(lanes):
        head = np.int64(table.words[words + KEY_HEADS + lane])
        probed.heads[(start + found) * lanes + lane] = head
        if lane != stream:
            oldest = table.first[windows.of[lane]]
            if head <= oldest:
                return np.int64(0)
            fitting = 0
            while head > oldest:
                fitting += 1
                head = np.int64(probed.before[start + head - 1])
            number *= fitting
    return number
