"""Windows of vectors cut into basic windows, each a matrix: products are taken by BLAS.

The rows of a batch get their places in the basic windows before they are processed, so that one
product of matrices compares many newcomers with all rows of a basic window, and with each other.
What comes out is a bit for each newcomer and place, set where the two may agree: products of single
precision are off by a little, so the bit is generous, and the few pairs that are left are compared
again in double precision, element by element. A place without a row has a time of its own, NEVER.
Where the work of a join is bounded, products are taken only with blocks of places that are likely
to be gone through, and for newcomers that look at rows drawn by lot with these alone; if another
block is gone through after all, its rows are compared one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.gate.hooks import (
    count_chosen,
    count_sampled,
    is_drawn,
    is_probed,
    is_span_probed,
)
from streamshed.engine.match.pairs import (
    agree,
    alike,
    enter,
    mine,
    seek,
    stage,
    take_out,
)
from streamshed.kernels.bounds import partner_times
from streamshed.kernels.compiling import driver, implements, kernel
from streamshed.kernels.core import NEVER, NONE, Field
from streamshed.kernels.intrinsics import trailing_zeros

PLACES = 256
"""Places of a basic window."""
BLOCK = 64
"""Places of a block: as many as a word has bits."""
WORDS = PLACES // BLOCK
NEAR = 16
"""Newcomers between two that go through a block are multiplied with it too, if they are fewer."""
FAR = 1 << 62
"""Before all times if negative, and after them if not: the span of a block without rows."""

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

SPAN = np.dtype([("oldest", np.int64), ("newest", np.int64), ("live", np.int64)], align=True)
"""Of a block: the times of its rows are in between; the places with a row."""


class VectorWindows(NamedTuple):
    """The basic windows of all lanes."""

    vectors: npt.NDArray[Any]  # by (place, element)
    lengths: npt.NDArray[np.float64]  # by place
    times: npt.NDArray[np.int64]  # by place
    rows: npt.NDArray[np.int32]  # by place
    matrices: npt.NDArray[Any]
    blocks: npt.NDArray[Any]  # by (basic window, block)
    place_of: npt.NDArray[np.int64]  # by row, and last the newcomer's
    coming: npt.NDArray[np.int64]  # the places of the rows of the batch
    bits: npt.NDArray[np.uint64]  # by (row of the batch, place)
    ready: npt.NDArray[np.bool_]  # by (row of the batch, block): whether there are bits
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
        "blocks": Field("once", SPAN, None, matrices * WORDS),
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
    opened = np.zeros(newest.size, np.bool_)
    for i in range(lanes.size):
        lane = lanes[i]
        at = newest[lane]
        if at == NONE or matrices[at].used == PLACES:
            while matrices[unused].lane != NONE:
                unused += 1
            at = unused
            newest[lane] = at
            opened[lane] = True
            matrices[at].lane = lane
            matrices[at].used = 0
            matrices[at].live = 0
            index.times[at * PLACES : (at + 1) * PLACES] = NEVER
            index.rows[at * PLACES : (at + 1) * PLACES] = NONE
            index.lengths[at * PLACES : (at + 1) * PLACES] = 0
            _clear_blocks(index, at)
        place = at * PLACES + matrices[at].used
        matrices[at].used += 1
        index.coming[i] = place
        for k in range(width):
            index.vectors[place * width + k] = values[i * width + k]
    for lane in range(newest.size):
        if opened[lane]:  # what has no row yet is multiplied too
            at = newest[lane]
            start = at * PLACES + matrices[at].used
            index.vectors[start * width : (at + 1) * PLACES * width] = 0
    for i in range(0, lanes.size, 4):
        _measure(
            index,
            i,
            min(i + 1, lanes.size - 1),
            min(i + 2, lanes.size - 1),
            min(i + 3, lanes.size - 1),
        )


@kernel
def _measure(index, one, two, three, four):  # type: ignore[no-untyped-def]
    """Note the lengths of the vectors of four rows of the batch.

    Each is a sum in the order of its elements, so that one element waits for another; four sums
    need not wait for each other.
    """
    vectors, width = index.vectors, index.width
    a, b, c, d = index.coming[one], index.coming[two], index.coming[three], index.coming[four]
    first = second = third = fourth = 0.0
    for k in range(width):
        first += np.float64(vectors[a * width + k]) * np.float64(vectors[a * width + k])
        second += np.float64(vectors[b * width + k]) * np.float64(vectors[b * width + k])
        third += np.float64(vectors[c * width + k]) * np.float64(vectors[c * width + k])
        fourth += np.float64(vectors[d * width + k]) * np.float64(vectors[d * width + k])
    index.lengths[a] = np.sqrt(first)
    index.lengths[b] = np.sqrt(second)
    index.lengths[c] = np.sqrt(third)
    index.lengths[d] = np.sqrt(fourth)


@kernel
def _clear_blocks(index, at):  # type: ignore[no-untyped-def]
    """Let the blocks of a basic window have no rows."""
    for block in range(at * WORDS, (at + 1) * WORDS):
        index.blocks[block].oldest = FAR
        index.blocks[block].newest = -FAR
        index.blocks[block].live = 0


@kernel
def _enter_block(index, place, time):  # type: ignore[no-untyped-def]
    """Let a row of a time stand at a place."""
    block = place // BLOCK
    index.blocks[block].live += 1
    index.blocks[block].oldest = min(index.blocks[block].oldest, time)
    index.blocks[block].newest = max(index.blocks[block].newest, time)


@driver
def spans_to_come(index, times, oldest, newest, since):  # type: ignore[no-untyped-def]
    """Say between which times the rows of each block are, those of the batch included.

    Args:
        index: the basic windows.
        times: of the rows of the batch.
        oldest: what is said, by block.
        newest: likewise.
        since: the first row of the batch that may meet one there.
    """
    for block in range(oldest.size):
        unused = index.matrices[block // WORDS].lane == NONE
        oldest[block] = FAR if unused else index.blocks[block].oldest
        newest[block] = -FAR if unused else index.blocks[block].newest
        since[block] = times.size if unused or index.blocks[block].live == 0 else 0
    for i in range(times.size):
        block = index.coming[i] // BLOCK
        oldest[block] = min(oldest[block], times[i])
        newest[block] = max(newest[block], times[i])
        since[block] = min(since[block], i + 1)


@driver
def runs_of(blocks, wanted, runs):  # type: ignore[no-untyped-def]
    """Say which newcomers that follow each other are multiplied with which blocks that do.

    Args:
        blocks: the numbers of blocks, in order.
        wanted: whether a newcomer goes through one, by (block, newcomer).
        runs: what is said: the first block, the one after the last, and likewise of newcomers.

    Returns:
        How many products that are.
    """
    made = 0
    for b in range(blocks.size):
        first, end = NONE, 0
        for k in range(wanted.shape[1] + 1):
            if k < wanted.shape[1] and wanted[b, k]:
                if first == NONE:
                    first = k
                end = k + 1
            elif first != NONE and (k == wanted.shape[1] or k - end >= NEAR):
                made = _add_run(runs, made, blocks[b], first, end)
                first = NONE
    return made


@kernel
def _add_run(runs, made, block, first, end):  # type: ignore[no-untyped-def]
    """Add a product, or let an earlier one of the same newcomers have one block more."""
    for k in range(max(0, made - 4), made):
        follows = runs[k, 1] == block and block % WORDS != 0
        if follows and runs[k, 2] == first and runs[k, 3] == end:
            runs[k, 1] = block + 1
            return made
    runs[made, 0], runs[made, 1], runs[made, 2], runs[made, 3] = block, block + 1, first, end
    return made + 1


@driver
def draw_places(index, core, throttle, streams, arrival, newcomer, lane, places):  # type: ignore[no-untyped-def]
    """Say at which places of a lane rows stand, or will, that a newcomer draws by lot.

    Args:
        index: the basic windows.
        core: the state of the join.
        throttle: which has the lots.
        streams: of the rows of the batch.
        arrival: the arrival number of the first of them.
        newcomer: that of the newcomer.
        lane: whose rows are drawn.
        places: what is said.

    Returns:
        How many there are.
    """
    drawn = 0
    for at in range(index.matrices.size):
        if index.matrices[at].lane != lane or index.matrices[at].live == 0:
            continue
        for place in range(at * PLACES, at * PLACES + index.matrices[at].used):
            row = index.rows[place]
            if row != NONE and is_drawn(throttle, core, newcomer, core.rows[row].arrival):
                places[drawn] = place
                drawn += 1
    for i in range(streams.size):
        if streams[i] == lane and is_drawn(throttle, core, newcomer, arrival + i):
            places[drawn] = index.coming[i]
            drawn += 1
    return drawn


@driver
def note_likely(index, products, lengths, asked, places, slack):  # type: ignore[no-untyped-def]
    """Set the bits of those that may agree.

    Args:
        index: the basic windows.
        products: of some rows' vectors with those at some places, by (row, place).
        lengths: of the vectors at these places, in the type of the products.
        asked: the numbers of the rows in the batch.
        places: the places.
        slack: how far off a product may be, in parts of the product of both lengths.
    """
    words = index.bits.size // index.coming.size
    for k in range(asked.size):
        mine = index.lengths[index.coming[asked[k]]]
        scale = (index.least - slack if index.angle else -slack) * mine
        by_length = lengths.dtype.type(scale)
        fixed = lengths.dtype.type(0.0 if index.angle else index.least)
        for base in range(0, places.size, BLOCK):
            end = min(base + BLOCK, places.size)
            likely = 0
            for j in range(base, end):  # as one would not write it: this runs side by side
                likely += products[k, j] >= fixed + by_length * lengths[j]
            if likely == 0:
                continue
            for j in range(base, end):
                if products[k, j] >= fixed + by_length * lengths[j]:
                    bit = np.uint64(1) << np.uint64(places[j] % BLOCK)
                    index.bits[asked[k] * words + places[j] // BLOCK] |= bit


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
    _clear_blocks(index, at)
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
        _enter_block(index, to, index.times[to])
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
    _enter_block(index, place, time)


@implements(take_out, VectorWindows)
def _on_take_out(index, core, row):  # type: ignore[no-untyped-def]
    place = index.place_of[row]
    index.rows[place] = NONE
    index.times[place] = NEVER
    index.matrices[place // PLACES].live -= 1
    index.blocks[place // BLOCK].live -= 1


@implements(agree, VectorWindows)
def _agree(index, one, other):  # type: ignore[no-untyped-def]
    places = index.place_of
    return alike(index, index.vectors, index.lengths, places[one], places[other])


@implements(seek, VectorWindows)
def _seek(index, core, throttle, selectivity, batch, work, i, key, lane, step, filled):  # type: ignore[no-untyped-def]
    time, stream = batch.time[i], batch.stream[i]
    earliest, latest = partner_times(core, stream, time, lane)
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
        for block in range(at * WORDS, (at + 1) * WORDS):
            span = index.blocks[block]
            if span.newest < earliest or span.oldest > latest or span.live == 0:
                continue
            least, most = time - span.newest, time - span.oldest
            if not is_span_probed(throttle, stream, lane, least, most):
                continue
            start = block * BLOCK
            inside = earliest <= span.oldest and span.newest <= latest
            looked += count_chosen(
                throttle, stream, lane, time, index.times, start, span, inside, earliest, latest
            )
            bits = index.bits[i * words + block]
            if not index.ready[i * words + block]:
                bits = ~np.uint64(0)
            while bits != np.uint64(0):
                likely = start + np.int64(trailing_zeros(bits))
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
    selectivity.looked[step] = count_sampled(throttle, stream, lane, looked)
    return filled
