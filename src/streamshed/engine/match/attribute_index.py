"""The attribute indexes: how rows are found beyond the key table of the core.

An `AttributeIndex` is a key table like that of the core, of all further indexes of all streams
together: its rows are *entries*, one for each row and index.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.match.probe_order import (
    bind,
    bound_hash,
    coming_hash,
    fits,
    index_bits,
    keep_bound,
    most_attributes,
)
from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import (
    FREE_KEY,
    NONE,
    NUMBERS,
    Field,
    Memory,
    Shape,
    key_words,
    make,
)
from streamshed.kernels.intrinsics import prefetch
from streamshed.kernels.random import GOLDEN, mix
from streamshed.kernels.table import (
    add_occurrence,
    drop_key,
    find_key,
    is_unused,
    key_for,
    key_hash,
    key_head,
    likely_key,
    remove_occurrence,
)
from streamshed.plan.plan import Plan

ENTRY = np.dtype(
    [("time", np.int64), ("key", np.int32), ("newer", np.int32), ("older", np.int32)], align=True
)
"""A row's place in an index."""

KEY_WORDS = key_words(1)


class IndexSettings(NamedTuple):
    """What the kernels of the key table ask for."""

    key_words: int


class AttributeIndex(NamedTuple):
    """Further indexes, as a key table with one lane."""

    settings: IndexSettings
    rows: npt.NDArray[Any]  # entries: by (row, index), see `entry_of`
    keys: npt.NDArray[np.int32]
    table: npt.NDArray[np.uint32]
    numbers: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint64]  # by (row, attribute of its stream)


def index_layout(plan: Plan) -> dict[str, Field]:
    """The arrays of an `AttributeIndex` but for its directory."""
    further, attributes = 1 << index_bits(plan), most_attributes(plan)
    return {
        "rows": Field("row", ENTRY, None, times=further),
        "keys": Field("row", np.int32, None, times=further * KEY_WORDS),
        "numbers": Field("once", np.int64, times=NUMBERS),
        "values": Field("row", np.uint64, None, times=attributes),
    }


def new_index(
    layout: dict[str, Field], shape: Shape, memory: Memory, prefix: str
) -> AttributeIndex:
    """An index of nothing."""
    settings = IndexSettings(KEY_WORDS)
    table = np.zeros(2, np.uint32)
    index: AttributeIndex = make(
        AttributeIndex, layout, shape, memory, prefix, settings=settings, table=table
    )
    index.numbers[FREE_KEY] = NONE
    return index


@kernel
def entry_of(matcher, row, index):  # type: ignore[no-untyped-def]
    """The number of a row's entry in one of its stream's indexes but the first."""
    return (row << matcher.bits) | (index - 1)


@kernel
def row_of(matcher, entry):  # type: ignore[no-untyped-def]
    """The row that an entry belongs to."""
    return entry >> matcher.bits


@kernel
def _in_index(order, stream, index, hashed):  # type: ignore[no-untyped-def]
    """The hash under which attributes of a given hash stand in an index of a stream."""
    wide = order.settings.wide
    return mix(hashed ^ (np.uint64(stream * wide + index) * GOLDEN))


@kernel
def prefetch_lookup(core, matcher, batch, i, stream, index, mask, stage, shift):  # type: ignore[no-untyped-def]
    """Ask for the memory in which a row's attributes will be sought in an index of a stream.

    Args:
        core: the state of the join.
        matcher: the indexes.
        batch: the rows.
        i: the row.
        stream: whose index it is.
        index: which one.
        mask: its attributes.
        stage: 0 for the directory, 1 for the key, 2 for the newest row.
        shift: of hashes in the key table of the core.
    """
    hashed = coming_hash(matcher.order, batch, i, mask)
    if index == 0:
        if stage == 0:
            prefetch(core.table, np.int64(hashed >> shift))
            return
        key = likely_key(core, hashed, shift)
        if stage == 1:
            prefetch(core.keys, key * core.settings.key_words)
        else:
            prefetch(core.rows, max(0, key_head(core, key, stream)))
        return
    entries = matcher.entries
    hashed = _in_index(matcher.order, stream, index, hashed)
    if stage == 0:
        prefetch(entries.table, np.int64(hashed >> matcher.shift))
        return
    key = likely_key(entries, hashed, matcher.shift)
    if stage == 1:
        prefetch(entries.keys, key * KEY_WORDS)
    else:
        entry = max(0, key_head(entries, key, 0))
        prefetch(entries.rows, entry)
        prefetch(core.rows, row_of(matcher, entry))


@kernel
def prefetch_leaving(core, matcher, first):  # type: ignore[no-untyped-def]
    """Ask for what the first rows of a lane will need when they leave."""
    entries = matcher.entries
    entry = entry_of(matcher, np.int64(first), 1)
    prefetch(entries.table, np.int64(key_hash(entries, entries.rows[entry].key) >> matcher.shift))
    second = np.int64(core.rows[first].after)
    if second != NONE:
        entry = entry_of(matcher, second, 1)
        prefetch(entries.keys, entries.rows[entry].key * KEY_WORDS)
        prefetch(entries.rows, np.int64(entries.rows[entry].newer))
        third = max(np.int64(0), np.int64(core.rows[second].after))
        prefetch(entries.rows, entry_of(matcher, third, 1))


@kernel
def look_up(core, matcher, stream, index, mask, shift):  # type: ignore[no-untyped-def]
    """The newest row of a stream that has the attributes known, by one of its indexes, or NONE."""
    if index == 0:
        key = find_key(core, bound_hash(matcher.order, mask), shift)
        return key_head(core, key, stream) if key != NONE else np.int64(NONE)
    hashed = _in_index(matcher.order, stream, index, bound_hash(matcher.order, mask))
    key = find_key(matcher.entries, hashed, matcher.shift)
    return row_of(matcher, key_head(matcher.entries, key, 0)) if key != NONE else np.int64(NONE)


@kernel
def next_older(core, matcher, index, row):  # type: ignore[no-untyped-def]
    """The row that follows in the order of age, among those that an index finds with it."""
    if index == 0:
        return np.int64(core.rows[row].older)
    entry = np.int64(matcher.entries.rows[entry_of(matcher, row, index)].older)
    return row_of(matcher, entry)


@kernel
def enter_row(matcher, policy, core, row):  # type: ignore[no-untyped-def]
    """Enter a row, whose attributes are those known, into the further indexes of its stream."""
    order, index = matcher.order, matcher.entries
    stream = np.int64(core.rows[row].stream)
    wide = order.settings.wide
    for number in range(1, order.indexes[stream]):
        known = bound_hash(order, order.masks[stream * wide + number])
        hashed = _in_index(order, stream, number, known)
        entry = entry_of(matcher, row, number)
        index.rows[entry].key = key_for(index, hashed, matcher.shift)
        index.rows[entry].time = core.rows[row].time
        add_occurrence(index, 0, entry)
    keep_bound(order, stream, index.values, row * matcher.width)


@kernel
def take_out_row(matcher, policy, core, row):  # type: ignore[no-untyped-def]
    """Take a row out of the further indexes of its stream."""
    index = matcher.entries
    for number in range(1, matcher.order.indexes[core.rows[row].stream]):
        entry = entry_of(matcher, row, number)
        key = np.int64(index.rows[entry].key)
        remove_occurrence(index, 0, entry)
        if is_unused(index, key):
            drop_key(index, key, matcher.shift)


@kernel
def bind_row(matcher, core, row):  # type: ignore[no-untyped-def]
    """Take the attributes of a stored row as known."""
    stream = np.int64(core.rows[row].stream)
    bind(matcher.order, stream, matcher.entries.values, row * matcher.width)


@kernel
def fits_row(matcher, row, stream, compared):  # type: ignore[no-untyped-def]
    """Whether a row of a stream has the attributes that are known, of those to be compared."""
    return fits(matcher.order, stream, matcher.entries.values, row * matcher.width, compared)
