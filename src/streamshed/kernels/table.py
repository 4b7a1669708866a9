"""The key table: which lanes hold a key, and the rows that have it.

SNJoin's global hash table and AMJoin's bit-vector hash table (BiHT) in one: a key's bit vector says
at once whether a result is possible; its occurrences hang below it, a ring for each lane in order
of age. The directory is open addressing with linear probing. An entry of 32 bits holds the key's
number (plus 1) in as many bits as a place in the directory has, for there are fewer keys than
places; above it stands the *tag*: of the upper half of the hash the bits below its home, which is
its top bits. Two keys whose tags agree are told apart by their hashes.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import (
    FREE_KEY,
    KEY_HASH,
    KEY_HEADS,
    KEY_LANES,
    KEYS_USED,
    LANES_IN_WORD,
    NEWCOMER_BYTES,
    NONE,
)

_LOWER = np.uint64(0x00000000FFFFFFFF)
_32 = np.uint64(32)
_64 = np.uint64(64)
_EMPTY = np.uint32(0)
ONE = np.uint64(1)
_NO_LANES = np.uint64(0)


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
def _wide(core, low, high):  # type: ignore[no-untyped-def]
    """Two words of a key as one."""
    lower = np.uint64(np.uint32(core.keys[low]))
    return lower | (np.uint64(np.uint32(core.keys[high])) << _32)


@kernel
def key_hash(core, key):  # type: ignore[no-untyped-def]
    """The hash of a key."""
    place = key * core.settings.key_words + KEY_HASH
    return _wide(core, place, place + 1)


@kernel
def key_lanes(core, key):  # type: ignore[no-untyped-def]
    """The bit vector of the lanes that hold a key."""
    words = core.settings.key_words
    place = key * words
    if words > KEY_HEADS + LANES_IN_WORD:
        return _wide(core, place + KEY_LANES, place + words - 1)
    return np.uint64(np.uint32(core.keys[place + KEY_LANES]))


@kernel
def key_count(core, key):  # type: ignore[no-untyped-def]
    """The number of rows with a key, where they are counted."""
    return np.int64(core.key_rows[key])


@kernel
def is_unused(core, key):  # type: ignore[no-untyped-def]
    """Whether no row has a key."""
    return key_lanes(core, key) == _NO_LANES


@kernel
def key_head(core, key, lane):  # type: ignore[no-untyped-def]
    """The newest row of a key in a lane, or NONE."""
    return np.int64(core.keys[key * core.settings.key_words + KEY_HEADS + lane])


@kernel
def _set_lanes(core, key, lanes):  # type: ignore[no-untyped-def]
    words = core.settings.key_words
    place = key * words
    core.keys[place + KEY_LANES] = np.int32(lanes & _LOWER)
    if words > KEY_HEADS + LANES_IN_WORD:
        core.keys[place + words - 1] = np.int32(lanes >> _32)


@kernel
def _set_head(core, key, lane, row):  # type: ignore[no-untyped-def]
    core.keys[key * core.settings.key_words + KEY_HEADS + lane] = row


@kernel
def _entry(hashed, shift, key):  # type: ignore[no-untyped-def]
    """What stands in the directory for a key; without the number of one, only its tag."""
    tag = (hashed >> _32) << (_64 - shift)
    return np.uint32((tag & _LOWER) | np.uint64(key + 1))


@kernel
def _number(table, entry):  # type: ignore[no-untyped-def]
    """The number of the key that an entry stands for, or NONE."""
    return (np.int64(entry) & (table.size - 1)) - 1


@kernel
def likely_key(core, hashed, shift):  # type: ignore[no-untyped-def]
    """The key that stands where a hash would be sought first, or any if there is none.

    Without a branch: whether a key is there cannot be foretold, and a wrong guess of the processor
    costs more than a prefetch in vain.
    """
    return max(0, _number(core.table, core.table[np.int64(hashed >> shift)]))


@kernel
def find_key(core, hashed, shift):  # type: ignore[no-untyped-def]
    """The number of the key with this hash, or NONE."""
    table = core.table
    last = table.size - 1
    tag = _entry(hashed, shift, NONE)
    position = np.int64(hashed >> shift)
    while True:
        entry = table[position]
        if entry == _EMPTY:
            return NONE
        if np.int64(entry ^ tag) <= last:
            key = _number(table, entry)
            if key_hash(core, key) == hashed:
                return key
        position = (position + 1) & last


@kernel
def add_key(core, hashed, shift):  # type: ignore[no-untyped-def]
    """Enter a key that is not there yet; it has no rows."""
    key = core.numbers[FREE_KEY]
    if key != NONE:
        core.numbers[FREE_KEY] = core.keys[key * core.settings.key_words + KEY_HASH]
    else:
        key = core.numbers[KEYS_USED]
        core.numbers[KEYS_USED] = key + 1
    words = core.settings.key_words
    place = key * words
    core.keys[place + KEY_HASH] = np.int32(hashed & _LOWER)
    core.keys[place + KEY_HASH + 1] = np.int32(hashed >> _32)
    for word in range(KEY_HEADS, words):
        core.keys[place + word] = NONE
    _set_lanes(core, key, _NO_LANES)
    _enter(core, hashed, key, shift)
    return key


@kernel
def key_for(core, hashed, shift):  # type: ignore[no-untyped-def]
    """The number of the key with this hash, which is entered if it is not there."""
    key = find_key(core, hashed, shift)
    return add_key(core, hashed, shift) if key == NONE else key


@kernel
def _enter(core, hashed, key, shift):  # type: ignore[no-untyped-def]
    table = core.table
    last = table.size - 1
    position = np.int64(hashed >> shift)
    while table[position] != _EMPTY:
        position = (position + 1) & last
    table[position] = _entry(hashed, shift, key)


@kernel
def drop_key(core, key, shift):  # type: ignore[no-untyped-def]
    """Take a key out that has no rows; entries behind it close the gap."""
    table = core.table
    last = table.size - 1
    hashed = key_hash(core, key)
    entry = _entry(hashed, shift, key)
    gap = np.int64(hashed >> shift)
    while table[gap] != entry:
        gap = (gap + 1) & last
    position = gap
    while True:
        position = (position + 1) & last
        moved = table[position]
        if moved == _EMPTY:
            break
        home = np.int64(key_hash(core, _number(table, moved)) >> shift)
        # An entry may step back into the gap unless its home lies between the gap and itself.
        if ((position - home) & last) >= ((position - gap) & last):
            table[gap] = moved
            gap = position
    table[gap] = _EMPTY
    free_key(core, key)


@kernel
def free_key(core, key):  # type: ignore[no-untyped-def]
    """Let the number of a key be the next that is given."""
    core.keys[key * core.settings.key_words + KEY_HASH] = core.numbers[FREE_KEY]
    core.numbers[FREE_KEY] = key


@kernel
def lane_of(core, stream):  # type: ignore[no-untyped-def]
    """The column of the key table in which a stream's rows hang."""
    return 0 if core.settings.by else stream


@kernel
def sweep_of(core, stream):  # type: ignore[no-untyped-def]
    """The list, in order of age, in which a stream's rows stand."""
    if core.settings.sweeps == core.settings.lanes:
        return lane_of(core, stream)
    return np.int64(core.sweep[stream])


@kernel
def pool_of(core, stream):  # type: ignore[no-untyped-def]
    """The budget under which a stream's rows fall."""
    return 0 if core.settings.pooled else stream


@loop
def refill(core):  # type: ignore[no-untyped-def]
    """Enter every key anew, after the directory was replaced by an empty, larger one."""
    shift = home_shift(core.table)
    for key in range(core.numbers[KEYS_USED]):
        if not is_unused(core, key):
            _enter(core, key_hash(core, key), key, shift)


@kernel
def add_occurrence(core, lane, row):  # type: ignore[no-untyped-def]
    """Hang a row below its key; a late one goes to its proper place in the order of age."""
    rows = core.rows
    key = rows[row].key
    head = key_head(core, key, lane)
    if head == NONE:
        rows[row].newer = row
        rows[row].older = row
        _set_head(core, key, lane, row)
        _set_lanes(core, key, key_lanes(core, key) | (ONE << np.uint64(lane)))
        return
    newer = np.int64(rows[head].newer)  # from the newest the ring goes on to the oldest
    older = head
    if rows[row].time < rows[head].time:
        newer = head
        older = np.int64(rows[head].older)
        while older != head and rows[row].time < rows[older].time:
            newer = older
            older = np.int64(rows[older].older)
    else:
        _set_head(core, key, lane, row)
    rows[row].newer = newer
    rows[row].older = older
    rows[newer].older = row
    rows[older].newer = row


@kernel
def remove_occurrence(core, lane, row):  # type: ignore[no-untyped-def]
    """Take a row away from below its key; the key stays."""
    rows = core.rows
    key = rows[row].key
    older, newer = rows[row].older, rows[row].newer
    if older == row:
        _set_head(core, key, lane, NONE)
        _set_lanes(core, key, key_lanes(core, key) & ~(ONE << np.uint64(lane)))
        return
    rows[newer].older = older
    rows[older].newer = newer
    if key_head(core, key, lane) == row:
        _set_head(core, key, lane, older)


# -- budgets in bytes -----------------------------------------------------------------------------


@kernel
def per_byte(core, promise, row):  # type: ignore[no-untyped-def]
    """What a stored row promises for each of its bytes, where the budget is in bytes."""
    return promise / core.size[row] if core.size.size > 0 else promise


@kernel
def newcomer_per_byte(core, promise):  # type: ignore[no-untyped-def]
    """The same of the row at hand."""
    return promise / core.numbers[NEWCOMER_BYTES] if core.size.size > 0 else promise


@kernel
def key_per_byte(core, promise, key, rows, size):  # type: ignore[no-untyped-def]
    """What a row of a key promises for each byte, by the mean size of the key's rows.

    Args:
        core: the state of the join.
        promise: of a row.
        key: its key, some of whose rows are stored.
        rows: how many there are besides of it.
        size: their bytes.
    """
    if core.key_size.size == 0:
        return promise
    return promise * (key_count(core, key) + rows) / max(1, core.key_size[key] + size)
