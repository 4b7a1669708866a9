"""The values of an attribute, numbered in the order in which they come."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.intrinsics import prefetch

AHEAD = 8
"""So many rows before one is looked up its place in the table is asked for."""


class Values(NamedTuple):
    """The numbers of an attribute's values; open addressing."""

    hashes: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.int32]  # plus 1; 0: no value is here
    used: npt.NDArray[np.int64]  # how many values there are


def room_for_values(size: int, used: int) -> Values:
    """An empty table for values, of which some are to be entered."""
    return Values(np.empty(size, np.uint64), np.zeros(size, np.int32), np.array([used]))


@kernel
def _home(table, hashed):  # type: ignore[no-untyped-def]
    """Where a hash is sought first."""
    return np.int64(hashed & np.uint64(table.size - 1))


@loop
def enter_again(values, larger):  # type: ignore[no-untyped-def]
    """Enter the values of a table into a larger one."""
    last = larger.hashes.size - 1
    for i in range(values.hashes.size):
        if values.numbers[i] != 0:
            place = _home(larger.hashes, values.hashes[i])
            while larger.numbers[place] != 0:
                place = (place + 1) & last
            larger.hashes[place] = values.hashes[i]
            larger.numbers[place] = values.numbers[i]


@loop
def number_values(batch, places, start, values, found):  # type: ignore[no-untyped-def]
    """Number the values of an attribute, in the order in which they come.

    Args:
        batch: the rows.
        places: by stream, where among its attributes this one is, or -1.
        start: the row to begin with.
        values: those that have a number.
        found: by (row, place), where to write the numbers.

    Returns:
        The row at which the table is too full to go on, or the number of rows.
    """
    last = values.hashes.size - 1
    size = batch.time.size
    for i in range(start, size):
        if 2 * values.used[0] > last:
            return i
        if i + AHEAD < size:
            later = places[batch.stream[i + AHEAD]]
            if later >= 0:
                prefetch(values.hashes, _home(values.hashes, batch.hashes[i + AHEAD, later]))
                prefetch(values.numbers, _home(values.hashes, batch.hashes[i + AHEAD, later]))
        place = places[batch.stream[i]]
        if place < 0:
            continue
        hashed = batch.hashes[i, place]
        home = _home(values.hashes, hashed)
        while values.numbers[home] != 0 and values.hashes[home] != hashed:
            home = (home + 1) & last
        if values.numbers[home] == 0:
            values.used[0] += 1
            values.numbers[home] = values.used[0]
            values.hashes[home] = hashed
        found[i, place] = values.numbers[home] - 1
    return size
