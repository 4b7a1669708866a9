"""Binary heaps of numbered items that can be found, moved and taken out, several in one array.

A state with a heap has three arrays: `items` (position × groups + group), `place` (where an item
stands, NONE if it does not) and `sizes` (by group). Its order is the hook `precedes`.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import NONE, Field
from streamshed.kernels.hooks import precedes
from streamshed.kernels.table import pool_of


def heap_layout() -> dict[str, Field]:
    """The arrays of a state with a heap of the rows of each pool."""
    return {
        "items": Field("held", np.int32, None),
        "place": Field("row", np.int32, None),
        "sizes": Field("pool", np.int64),
    }


@kernel
def enter_pool(heap, core, row):  # type: ignore[no-untyped-def]
    """Put a row into the heap of its pool."""
    heap_push(heap, core, pool_of(core, core.rows[row].stream), row)


@kernel
def leave_pool(heap, core, row):  # type: ignore[no-untyped-def]
    """Take a row out of the heap of its pool."""
    heap_remove(heap, core, pool_of(core, core.rows[row].stream), row)


@kernel
def restore_in_pool(heap, core, row):  # type: ignore[no-untyped-def]
    """Put a row right, in the heap of its pool, whose standing has changed."""
    heap_restore(heap, core, pool_of(core, core.rows[row].stream), row)


@kernel
def heap_push(heap, core, group, item):  # type: ignore[no-untyped-def]
    """Put an item into a group's heap."""
    position = heap.sizes[group]
    heap.sizes[group] = position + 1
    _rise(heap, core, group, item, position)


@kernel
def heap_remove(heap, core, group, item):  # type: ignore[no-untyped-def]
    """Take an item out of its group's heap."""
    position = heap.place[item]
    heap.place[item] = NONE
    end = heap.sizes[group] - 1
    heap.sizes[group] = end
    if position != end:
        moved = heap.items[end * heap.sizes.size + group]
        heap.place[moved] = position
        heap.items[position * heap.sizes.size + group] = moved
        heap_restore(heap, core, group, moved)


@kernel
def heap_restore(heap, core, group, item):  # type: ignore[no-untyped-def]
    """Put an item right whose standing has changed."""
    groups = heap.sizes.size
    position = heap.place[item]
    if position > 0 and precedes(
        heap, core, item, heap.items[((position - 1) >> 1) * groups + group]
    ):
        _rise(heap, core, group, item, position)
    else:
        _sink(heap, core, group, item, position)


@kernel
def heap_top(heap, group):  # type: ignore[no-untyped-def]
    """The first item of a group's heap, or NONE."""
    return heap.items[group] if heap.sizes[group] > 0 else NONE


@kernel
def _rise(heap, core, group, item, position):  # type: ignore[no-untyped-def]
    groups = heap.sizes.size
    while position > 0:
        parent = (position - 1) >> 1
        above = heap.items[parent * groups + group]
        if not precedes(heap, core, item, above):
            break
        heap.items[position * groups + group] = above
        heap.place[above] = position
        position = parent
    heap.items[position * groups + group] = item
    heap.place[item] = position


@kernel
def _sink(heap, core, group, item, position):  # type: ignore[no-untyped-def]
    groups = heap.sizes.size
    size = heap.sizes[group]
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        below = heap.items[child * groups + group]
        if child + 1 < size:
            right = heap.items[(child + 1) * groups + group]
            if precedes(heap, core, right, below):
                below = right
                child += 1
        if not precedes(heap, core, below, item):
            break
        heap.items[position * groups + group] = below
        heap.place[below] = position
        position = child
    heap.items[position * groups + group] = item
    heap.place[item] = position
