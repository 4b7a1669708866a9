"""How often values came: a few counters for each, of which the least counts (count-min).

Cormode and Muthukrishnan 2005. With far fewer values than counters this is how often they came.
A state that counts has `counters` (table, current or last, row, place).
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.random import GOLDEN, mix

COUNTERS = 1 << 15
ROWS = 2
CURRENT, LAST = 0, 1
PIECES = 2

_PLACE = np.uint64(COUNTERS - 1)
_HALF = np.uint64(32)


@kernel
def _first_place(table, piece):  # type: ignore[no-untyped-def]
    return (table * PIECES + piece) * ROWS * COUNTERS


@kernel
def count_value(counters, table, value):  # type: ignore[no-untyped-def]
    """Count that a value has come."""
    base = _first_place(table, CURRENT)
    word = mix(value ^ GOLDEN)
    counters[base + np.int64(word & _PLACE)] += 1
    counters[base + COUNTERS + np.int64((word >> _HALF) & _PLACE)] += 1


@kernel
def counted(counters, table, piece, value):  # type: ignore[no-untyped-def]
    """How often a value has come: in this piece of the past, or in the last."""
    base = _first_place(table, piece)
    word = mix(value ^ GOLDEN)
    one = counters[base + np.int64(word & _PLACE)]
    other = counters[base + COUNTERS + np.int64((word >> _HALF) & _PLACE)]
    return min(one, other)


@kernel
def begin_counting(counters, table):  # type: ignore[no-untyped-def]
    """What was counted becomes the last, and counting begins anew."""
    current, last = _first_place(table, CURRENT), _first_place(table, LAST)
    for place in range(ROWS * COUNTERS):
        counters[last + place] = counters[current + place]
        counters[current + place] = 0
