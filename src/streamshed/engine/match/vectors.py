"""Windows of vectors cut into basic windows, each a matrix: products are taken by BLAS.

The rows of a batch get their places in the basic windows before they are processed, so that one
product of matrices compares many newcomers with all rows of a basic window, and with each other.
What comes out is a bit for each newcomer and place, set where the two may agree: products of single
precision are off by a little, so the bit is generous, and the few pairs that are left are compared
again in double precision, element by element. A place without a row has a time of its own, NEVER.
Where the work of a join is bounded, products are taken only with basic windows that are likely to
be gone through; if another is after all, its rows are compared one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.gate.hooks import (
    is_probed,
    is_span_probed,
)
from streamshed.engine.match.pairs import (
    agree,
    alike,
    enter,
    length_of,
    mine,
    seek,
    stage,
    take_out,
)
from streamshed.kernels.compiling import driver, implements, kernel
from streamshed.kernels.core import NEVER, NONE, Field
from streamshed.kernels.intrinsics import trailing_zeros

PLACES = 256
"""Places of a basic window."""
WORDS = PLACES // 64

MATRIX = np.dtype(
    [
        ("lane", np.int32),  # NONE where it is unused
        ("used", np.int32),  # places given away
        ("live", np.int32),  # places with a row
        ("oldest", np.int64),  # the times of its rows are in between
        ("newest", np.int64),
    ],
    align=True,
)


class VectorWindows(NamedTuple):
    """The basic windows of all lanes."""

    vectors: npt.NDArray[Any]  # by (place, element)
    lengths: npt.NDArray[np.float64]  # by place
    times: npt.NDArray[np.int64]  # by place
    rows: npt.NDArray[np.int32]  # by place
    matrices: npt.NDArray[Any]
    place_of: npt.NDArray[np.int64]  # by row, and last the newcomer's
    coming: npt.NDArray[np.int64]  # the places of the rows of the batch
    bits: npt.NDArray[np.uint64]  # by (row of the batch, place)
    ready: npt.NDArray[np.bool_]  # by (row of the batch, basic window): whether there are bits
    width: int
    least: float
    angle: bool


def vector_layout(dtype: npt.DTypeLike, width: int, matrices: int) -> dict[str, Field]:
    """The arrays, with room for so many basic windows."""
    places = matrices * PLACES
    return {
        "vectors": Field("once", dtype, None, places * width),
        "lengths": Field("once", np.float64, None, places),
        "times": Field("once", np.int64, None, places),
        "rows": Field("once", np.int32, None, places),
        "matrices": Field("once", MATRIX, NONE, matrices),
        "place_of": Field("key", np.int64, None),
    }


@driver
def give_places(index, lanes, values, newest):  # type: ignore[no-untyped-def]
    """Give the rows of a batch their places, in the newest basic window of their lanes.

    Args:
        index: the basic windows; there are unused ones enough.
        lanes: of the rows.
        values: their vectors, one after the other.
        newest: by lane its newest basic window, or NONE.
    """
    width, matrices = index.width, index.matrices
    unused = 0
    for i in range(lanes.size):
        lane = lanes[i]
        at = newest[lane]
        if at == NONE or matrices[at].used == PLACES:
            while matrices[unused].lane != NONE:
                unused += 1
            at = unused
            newest[lane] = at
            matrices[at].lane = lane
            matrices[at].used = 0
            matrices[at].live = 0
            index.times[at * PLACES : (at + 1) * PLACES] = NEVER
            index.rows[at * PLACES : (at + 1) * PLACES] = NONE
            index.vectors[at * PLACES * width : (at + 1) * PLACES * width] = 0
            index.lengths[at * PLACES : (at + 1) * PLACES] = 0
        place = at * PLACES + matrices[at].used
        matrices[at].used += 1
        index.coming[i] = place
        for k in range(width):
            index.vectors[place * width + k] = values[i * width + k]
        index.lengths[place] = length_of(index.vectors, place, width)


@driver
def note_likely(index, products, lengths, asked, at, slack):  # type: ignore[no-untyped-def]
    """Set the bits of those that may agree.

    Args:
        index: the basic windows.
        products: of some tuples' vectors with those of a basic window, by (tuple, place).
        lengths: of the vectors of the basic window, in the type of the products.
        asked: the numbers of the rows in the batch.
        at: the basic window.
        slack: how far off a product may be, in parts of the product of both lengths.
    """
    words = index.bits.size // index.coming.size
    for k in range(asked.size):
        mine = index.lengths[index.coming[asked[k]]]
        scale = (index.least - slack if index.angle else -slack) * mine
        index.ready[asked[k] * (words // WORDS) + at] = True
        by_length = lengths.dtype.type(scale)
        fixed = lengths.dtype.type(0.0 if index.angle else index.least)
        for word in range(products.shape[1] // 64):
            base = word * 64
            likely = 0
            for j in range(base, base + 64):  # as one would not write it: this runs side by side
                likely += products[k, j] >= fixed + by_length * lengths[j]
            if likely == 0:
                continue
            bits = np.uint64(0)
            for j in range(64):
                if products[k, base + j] >= fixed + by_length * lengths[base + j]:
                    bits |= np.uint64(1) << np.uint64(j)
            index.bits[asked[k] * words + at * WORDS + word] = bits


@driver
def tidy(index, newest):  # type: ignore[no-untyped-def]
    """Let go of basic windows without rows, and put together those of a lane that have few."""
    matrices = index.matrices
    roomy = np.full(newest.size, NONE, np.int64)
    for at in range(matrices.size):
        lane = matrices[at].lane
        if lane == NONE:
            continue
        if matrices[at].live == 0:
            matrices[at].lane = NONE
            if newest[lane] == at:
                newest[lane] = NONE
            continue
        if at == newest[lane] or matrices[at].live > PLACES // 4:
            continue
        if roomy[lane] == NONE:
            roomy[lane] = at
            _squeeze(index, at)
            continue
        other = roomy[lane]
        _move(index, at, other)
        matrices[at].lane = NONE
        if matrices[other].live > PLACES // 2:
            roomy[lane] = NONE


@kernel
def _squeeze(index, at):  # type: ignore[no-untyped-def]
    """Let the rows of a basic window stand at its beginning."""
    index.matrices[at].used = 0
    index.matrices[at].live = 0
    _move(index, at, at)
    used = index.matrices[at].used
    for place in range(at * PLACES + used, (at + 1) * PLACES):
        index.rows[place] = NONE
        index.times[place] = NEVER


@kernel
def _move(index, at, other):  # type: ignore[no-untyped-def]
    """Move the rows of a basic window to the free end of another, or forward in itself."""
    matrices, width = index.matrices, index.width
    for place in range(at * PLACES, (at + 1) * PLACES):
        row = index.rows[place]
        if row == NONE:
            continue
        to = other * PLACES + matrices[other].used
        matrices[other].used += 1
        matrices[other].live += 1
        index.rows[to], index.times[to] = row, index.times[place]
        index.lengths[to] = index.lengths[place]
        index.place_of[row] = to
        for k in range(width):
            index.vectors[to * width + k] = index.vectors[place * width + k]
        matrices[other].oldest = min(matrices[other].oldest, index.times[to])
        matrices[other].newest = max(matrices[other].newest, index.times[to])


@implements(mine, VectorWindows)
def _mine(index):  # type: ignore[no-untyped-def]
    return index.place_of.size - 1


@implements(stage, VectorWindows)
def _stage(index, batch, i):  # type: ignore[no-untyped-def]
    index.place_of[index.place_of.size - 1] = index.coming[i]


@implements(enter, VectorWindows)
def _on_enter(index, core, row):  # type: ignore[no-untyped-def]
    place = index.place_of[index.place_of.size - 1]
    time = core.rows[row].time
    index.place_of[row] = place
    index.rows[place] = row
    index.times[place] = time
    at = place // PLACES
    if index.matrices[at].live == 0:
        index.matrices[at].oldest = time
        index.matrices[at].newest = time
    index.matrices[at].live += 1
    index.matrices[at].oldest = min(index.matrices[at].oldest, time)
    index.matrices[at].newest = max(index.matrices[at].newest, time)


@implements(take_out, VectorWindows)
def _on_take_out(index, core, row):  # type: ignore[no-untyped-def]
    place = index.place_of[row]
    index.rows[place] = NONE
    index.times[place] = NEVER
    index.matrices[place // PLACES].live -= 1


@implements(agree, VectorWindows)
def _agree(index, one, other):  # type: ignore[no-untyped-def]
    places = index.place_of
    return alike(index, index.vectors, index.lengths, places[one], places[other])


@implements(seek, VectorWindows)
def _seek(index, core, throttle, selectivity, batch, work, i, key, lane, step, filled):  # type: ignore[no-untyped-def]
    time, stream = batch.time[i], batch.stream[i]
    earliest = time - core.lanes[lane].window
    latest = time + core.lanes[stream].window
    place_of_mine = index.coming[i]
    words = index.bits.size // index.coming.size
    looked = 0
    for at in range(index.matrices.size):
        matrix = index.matrices[at]
        if matrix.lane != lane or matrix.live == 0:
            continue
        if matrix.newest < earliest or matrix.oldest > latest:
            continue
        if not is_span_probed(throttle, stream, lane, time - matrix.newest, time - matrix.oldest):
            continue
        base = at * PLACES
        ready = index.ready[i * (words // WORDS) + at]
        for place in range(base, base + matrix.used):
            met = index.times[place]
            inside = met != NEVER and earliest <= met <= latest
            if inside and is_probed(throttle, core, stream, lane, time - met, index.rows[place]):
                looked += 1
                if ready:
                    continue
                if alike(index, index.vectors, index.lengths, place_of_mine, place):
                    work.partners[filled] = index.rows[place]
                    filled += 1
        if not ready:
            continue
        for word in range(WORDS):
            bits = index.bits[i * words + at * WORDS + word]
            while bits != np.uint64(0):
                likely = base + word * 64 + np.int64(trailing_zeros(bits))
                bits &= bits - np.uint64(1)
                met = index.times[likely]
                if met == NEVER or met < earliest or met > latest:
                    continue
                row = np.int64(index.rows[likely])
                if not is_probed(throttle, core, stream, lane, time - met, row):
                    continue
                if alike(index, index.vectors, index.lengths, place_of_mine, likely):
                    work.partners[filled] = row
                    filled += 1
    selectivity.looked[step] = looked
    return filled
