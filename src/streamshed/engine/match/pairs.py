"""Conditions between two rows: what is known of each row to test them, and who agrees with whom.

An *index* holds what a condition compares, by row; the newcomer's stands at the last place, `mine`.
Here are the plain ones, which are asked row by row; `sorted_windows` and `vectors` have those that
find all rows that agree with a newcomer at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.gate.hooks import is_probed
from streamshed.kernels.bounds import partner_times
from streamshed.kernels.compiling import hook, implements, kernel
from streamshed.kernels.core import NONE, Field
from streamshed.kernels.table import key_head


class Selectivity(NamedTuple):
    """In which order the windows are probed, and how many of their rows agree."""

    orders: npt.NDArray[np.int64]  # by (stream of the newcomer, step): the stream probed
    looked: npt.NDArray[np.int64]  # by step: the rows that the newcomer was compared with
    tallies: npt.NDArray[np.int64]  # by (stream of the newcomer, other): rows compared, that agree
    comparisons: npt.NDArray[np.int64]  # all so far


COMPARED, AGREED = range(2)
TALLIES = 2


def selectivity_layout(lanes: int) -> dict[str, Field]:
    """The arrays of a `Selectivity`."""
    return {
        "orders": Field("lane", np.int64, None, lanes - 1, kept=True),
        "looked": Field("lane", np.int64),
        "tallies": Field("lane", np.int64, 0, lanes * TALLIES, kept=True),
        "comparisons": Field("once", np.int64, kept=True),
    }


@hook
def stage(index, batch, i):  # type: ignore[no-untyped-def]
    """Put what is compared of the i-th row of the batch at the newcomer's place."""


@hook
def enter(index, core, row):  # type: ignore[no-untyped-def]
    """The newcomer is stored in a row."""


@hook
def take_out(index, core, row):  # type: ignore[no-untyped-def]
    """A row has gone; its fields can still be read."""


@hook
def mine(index):  # type: ignore[no-untyped-def]
    """The place of what is compared of the newcomer."""
    return 0


@hook
def agree(index, one, other):  # type: ignore[no-untyped-def]
    """Whether two rows meet the condition; the first is of the earlier stream."""
    return True


@hook
def seek(index, core, throttle, selectivity, batch, work, i, key, lane, step, filled):  # type: ignore[no-untyped-def]
    """Append the rows of a lane that a newcomer agrees with, and note how many were looked at.

    By default the rows of the newcomer's key are asked one by one.
    """
    rows = core.rows
    time, stream = batch.time[i], batch.stream[i]
    earliest, latest = partner_times(core, stream, time, lane)
    place = mine(index)
    looked = 0
    head = key_head(core, key, lane)
    row = head
    while row != NONE:
        met = rows[row].time
        if met < earliest:  # all that follow are older still
            break
        if met <= latest and is_probed(throttle, core, stream, lane, time - met, row):
            looked += 1
            if in_order(index, stream, place, lane, row):
                work.partners[filled] = row
                filled += 1
        row = np.int64(rows[row].older)
        if row == head:
            break
    selectivity.looked[step] = looked
    return filled


@kernel
def in_order(index, lane, one, other_lane, other):  # type: ignore[no-untyped-def]
    """Whether two rows agree, asked in the order of their streams."""
    if lane < other_lane:
        return agree(index, one, other)
    return agree(index, other, one)


class Numbers(NamedTuple):
    """A number for each row, and how far apart two may be."""

    values: npt.NDArray[np.float64]
    distance: float


class Vectors(NamedTuple):
    """A vector for each row, its length, and what two must come up to."""

    values: npt.NDArray[Any]  # the elements, row by row
    lengths: npt.NDArray[np.float64]
    width: int
    least: float
    angle: bool


class Records(NamedTuple):
    """Some columns of each row, and the function that compares two."""

    values: npt.NDArray[Any]
    function: Any


def by_row(dtype: npt.DTypeLike, times: int = 1) -> dict[str, Field]:
    """What is kept of each row, and at the last place of the newcomer."""
    return {"values": Field("key", dtype, None, times)}


def vectors_by_row(dtype: npt.DTypeLike, width: int) -> dict[str, Field]:
    """The same of vectors."""
    return by_row(dtype, width) | {"lengths": Field("key", np.float64, None)}


@implements(mine, Numbers)
@implements(mine, Records)
def _mine(index):  # type: ignore[no-untyped-def]
    return index.values.size - 1


@implements(stage, Numbers)
@implements(stage, Records)
def _stage(index, batch, i):  # type: ignore[no-untyped-def]
    index.values[index.values.size - 1] = batch.values[i]


@implements(enter, Numbers)
@implements(enter, Records)
def _enter(index, core, row):  # type: ignore[no-untyped-def]
    index.values[row] = index.values[index.values.size - 1]


@implements(agree, Numbers)
def _near(index, one, other):  # type: ignore[no-untyped-def]
    return abs(index.values[one] - index.values[other]) <= index.distance


@implements(agree, Records)
def _agree(index, one, other):  # type: ignore[no-untyped-def]
    return index.function(index.values[one], index.values[other])


@implements(mine, Vectors)
def _last_vector(index):  # type: ignore[no-untyped-def]
    return index.lengths.size - 1


@implements(stage, Vectors)
def _stage_vector(index, batch, i):  # type: ignore[no-untyped-def]
    place = index.lengths.size - 1
    for k in range(index.width):
        index.values[place * index.width + k] = batch.values[i, k]
    index.lengths[place] = length_of(index.values, place, index.width)


@implements(enter, Vectors)
def _enter_vector(index, core, row):  # type: ignore[no-untyped-def]
    place, width = index.lengths.size - 1, index.width
    for k in range(width):
        index.values[row * width + k] = index.values[place * width + k]
    index.lengths[row] = index.lengths[place]


@implements(agree, Vectors)
def _vectors_agree(index, one, other):  # type: ignore[no-untyped-def]
    return alike(index, index.values, index.lengths, one, other)


@kernel
def alike(index, values, lengths, one, other):  # type: ignore[no-untyped-def]
    """Whether two vectors come up to what is asked, in double precision, element by element."""
    product = product_of(values, one, other, index.width)
    if not index.angle:
        return product >= index.least
    scale = lengths[one] * lengths[other]
    return scale > 0.0 and product >= index.least * scale


@kernel
def product_of(values, one, other, width):  # type: ignore[no-untyped-def]
    """The inner product of two vectors, in double precision, in the order of their elements."""
    total = 0.0
    for k in range(width):
        total += np.float64(values[one * width + k]) * np.float64(values[other * width + k])
    return total


@kernel
def length_of(values, place, width):  # type: ignore[no-untyped-def]
    """The length of a vector."""
    return np.sqrt(product_of(values, place, place, width))
