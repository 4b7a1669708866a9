"""The key table: which lanes hold a key, and the rows that have it.

SNJoin's global hash table and AMJoin's bit-vector hash table (BiHT) in one: a key's bit vector says
at once whether a result is possible; its occurrences hang below it, a ring for each lane in order
of age. The directory is open addressing with linear probing. An entry holds the upper half of the
hash, from whose top bits its home follows, and the key's number.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import (
    FREE_KEY,
    KEYS_USED,
    NONE,
)

_UPPER = np.uint64(0xFFFFFFFF00000000)
_LOWER = np.uint64(0x00000000FFFFFFFF)
_32 = np.uint64(32)
_EMPTY = np.uint64(0)
ONE = np.uint64(1)


@kernel
def home_shift(table):  # type: ignore[no-untyped-def]
    """How far a hash is shifted so that its top bits are a place in the directory."""
    shift = 64
    size = table.size
    while size > 1:
        size >>= 1
        shift -= 1
    return np.uint64(shift)


@kernel
def find_key(core, hashed, shift):  # type: ignore[no-untyped-def]
    """The number of the key with this hash, or NONE."""
    table = core.table
    last = table.size - 1
    position = np.int64(hashed >> shift)
    while True:
        entry = table[position]
        if entry == _EMPTY:
            return NONE
        if (entry ^ hashed) >> _32 == _EMPTY:
            key = np.int64(entry & _LOWER) - 1
            if core.keys[key].hash == hashed:
                return key
        position = (position + 1) & last


@kernel
def add_key(core, hashed, shift):  # type: ignore[no-untyped-def]
    """Enter a key that is not there yet; it has no rows."""
    key = core.numbers[FREE_KEY]
    if key != NONE:
        core.numbers[FREE_KEY] = core.keys[key].next
    else:
        key = core.numbers[KEYS_USED]
        core.numbers[KEYS_USED] = key + 1
    core.keys[key].hash = hashed
    core.keys[key].lanes = np.uint64(0)
    core.keys[key].count = 0
    for lane in range(core.settings.lanes):
        core.heads[key * core.settings.lanes + lane] = NONE
    _enter(core, hashed, key, shift)
    return key


@kernel
def _enter(core, hashed, key, shift):  # type: ignore[no-untyped-def]
    table = core.table
    last = table.size - 1
    position = np.int64(hashed >> shift)
    while table[position] != _EMPTY:
        position = (position + 1) & last
    table[position] = (hashed & _UPPER) | np.uint64(key + 1)


@kernel
def drop_key(core, key, shift):  # type: ignore[no-untyped-def]
    """Take a key out that has no rows; entries behind it close the gap."""
    table = core.table
    last = table.size - 1
    hashed = core.keys[key].hash
    entry = (hashed & _UPPER) | np.uint64(key + 1)
    gap = np.int64(hashed >> shift)
    while table[gap] != entry:
        gap = (gap + 1) & last
    position = gap
    while True:
        position = (position + 1) & last
        moved = table[position]
        if moved == _EMPTY:
            break
        home = np.int64(moved >> shift)
        # An entry may step back into the gap unless its home lies between the gap and itself.
        if ((position - home) & last) >= ((position - gap) & last):
            table[gap] = moved
            gap = position
    table[gap] = _EMPTY
    core.keys[key].next = core.numbers[FREE_KEY]
    core.numbers[FREE_KEY] = key


@kernel
def lane_of(core, stream):  # type: ignore[no-untyped-def]
    """The column of the key table in which a stream's rows hang."""
    return 0 if core.settings.by else stream


@kernel
def pool_of(core, stream):  # type: ignore[no-untyped-def]
    """The budget under which a stream's rows fall."""
    return 0 if core.settings.pooled else stream


@loop
def refill(core):  # type: ignore[no-untyped-def]
    """Enter every key anew, after the directory was replaced by an empty, larger one."""
    shift = home_shift(core.table)
    for key in range(core.numbers[KEYS_USED]):
        if core.keys[key].count > 0:
            _enter(core, core.keys[key].hash, key, shift)


@kernel
def add_occurrence(core, lane, row):  # type: ignore[no-untyped-def]
    """Hang a row below its key; a late one goes to its proper place in the order of age."""
    rows = core.rows
    key = rows[row].key
    entry = key * core.settings.lanes + lane
    head = core.heads[entry]
    core.keys[key].count += 1
    if head == NONE:
        rows[row].newer = row
        rows[row].older = row
        core.heads[entry] = row
        core.keys[key].lanes |= ONE << np.uint64(lane)
        return
    newer = rows[head].newer  # from the newest the ring goes on to the oldest
    older = head
    if rows[row].time < rows[head].time:
        newer = head
        older = rows[head].older
        while older != head and rows[row].time < rows[older].time:
            newer = older
            older = rows[older].older
    else:
        core.heads[entry] = row
    rows[row].newer = newer
    rows[row].older = older
    rows[newer].older = row
    rows[older].newer = row


@kernel
def remove_occurrence(core, lane, row):  # type: ignore[no-untyped-def]
    """Take a row away from below its key; the key stays."""
    rows = core.rows
    key = rows[row].key
    entry = key * core.settings.lanes + lane
    older, newer = rows[row].older, rows[row].newer
    core.keys[key].count -= 1
    if older == row:
        core.heads[entry] = NONE
        core.keys[key].lanes &= ~(ONE << np.uint64(lane))
        return
    rows[newer].older = older
    rows[older].newer = newer
    if core.heads[entry] == row:
        core.heads[entry] = older
