"""The rows that are followed, in bounded memory: entries of keys, which come, merge and go."""

from __future__ import annotations

import numpy as np

from streamshed.engine.observe.state import (
    BELOW,
    CLUMP_STEPS,
    ENTRIES_USED,
    EXPONENT,
    FLOOR,
    FREE_ENTRY,
    FREE_KEY,
    FULL_AT,
    HELD,
    KEYS_USED,
    PIECES,
    RISES,
    ROOM,
    are_over_alike,
    cells_of,
    clump_of,
    depth_of,
    is_over,
    least_alive,
    level_of,
    lot_of,
    promise_of,
    window_of,
)
from streamshed.kernels.compiling import cold_kernel, kernel, loop
from streamshed.kernels.core import NONE
from streamshed.kernels.intrinsics import trailing_zeros
from streamshed.kernels.table import ONE, lane_of

STEEPEST = 500
"""The exponent rises no further."""
FINEST = 4096.0
"""Neighbours merge first if their rows times their distance are a window's by this."""


# -- keys -----------------------------------------------------------------------------------------


@kernel
def chain_of(loss, hashed):  # type: ignore[no-untyped-def]
    """The chain in which a key with this hash stands."""
    return np.int64(hashed & np.uint64(loss.heads.size - 1))


@kernel
def find_key(loss, hashed):  # type: ignore[no-untyped-def]
    """The number of the followed key with this hash, or NONE."""
    key = np.int64(loss.heads[chain_of(loss, hashed)]) - 1
    while key != NONE and loss.keys[key].hash != hashed:
        key = np.int64(loss.keys[key].after)
    return key


@kernel
def add_key(loss, hashed):  # type: ignore[no-untyped-def]
    """Begin to follow a key; it has no entries yet."""
    numbers = loss.numbers
    key = numbers[FREE_KEY]
    if key != NONE:
        numbers[FREE_KEY] = loss.keys[key].after
    else:
        key = numbers[KEYS_USED]
        numbers[KEYS_USED] = key + 1
    loss.keys[key].hash = hashed
    loss.keys[key].head = NONE
    loss.keys[key].suspect = 0
    _link(loss, key)
    return key


@kernel
def _link(loss, key):  # type: ignore[no-untyped-def]
    chain = chain_of(loss, loss.keys[key].hash)
    loss.keys[key].after = loss.heads[chain] - 1
    loss.heads[chain] = key + 1


@cold_kernel
def drop_key(loss, key):  # type: ignore[no-untyped-def]
    """Follow a key no longer; it has no entries."""
    keys = loss.keys
    chain = chain_of(loss, keys[key].hash)
    at = np.int64(loss.heads[chain]) - 1
    if at == key:
        loss.heads[chain] = keys[key].after + 1
    else:
        while keys[at].after != key:
            at = np.int64(keys[at].after)
        keys[at].after = keys[key].after
    keys[key].after = loss.numbers[FREE_KEY]
    loss.numbers[FREE_KEY] = key


@loop
def link_keys(loss):  # type: ignore[no-untyped-def]
    """Put all keys into the chains, which are empty, and note whose each entry is."""
    for key in range(loss.numbers[KEYS_USED]):
        if loss.keys[key].head != NONE:
            _link(loss, key)
        e = np.int64(loss.keys[key].head)
        while e != NONE:
            loss.owner[e] = key
            e = np.int64(loss.entries[e].after)


# -- entries --------------------------------------------------------------------------------------


@kernel
def add_entry(loss, key, lo, hi, count, rank, stream):  # type: ignore[no-untyped-def]
    """Put a new entry before those of a key; its floor is the present one. Returns its number."""
    numbers, entries = loss.numbers, loss.entries
    e = numbers[FREE_ENTRY]
    if e != NONE:
        numbers[FREE_ENTRY] = entries[e].after
    else:
        e = numbers[ENTRIES_USED]
        numbers[ENTRIES_USED] = e + 1
    numbers[HELD] += 1
    entries[e].lo = lo
    entries[e].hi = hi
    entries[e].count = count
    entries[e].rank = rank
    entries[e].floor = numbers[FLOOR]
    entries[e].stream = stream
    entries[e].after = loss.keys[key].head
    loss.keys[key].head = e
    loss.owner[e] = key
    return e


@kernel
def _free_entry(loss, e):  # type: ignore[no-untyped-def]
    loss.entries[e].after = loss.numbers[FREE_ENTRY]
    loss.entries[e].stream = NONE
    loss.numbers[FREE_ENTRY] = e
    loss.numbers[HELD] -= 1


@cold_kernel
def prune_key(loss, core, key, depth):  # type: ignore[no-untyped-def]
    """Drop the entries of a key that have expired, or lie deeper than it; False if none is left."""
    entries = loss.entries
    before = np.int64(NONE)
    least = loss.numbers[RISES] - depth  # entries of a lower rank are there by the floor only
    e = np.int64(loss.keys[key].head)
    while e != NONE:
        after = np.int64(entries[e].after)
        below = entries[e].rank < least
        out = below and entries[e].floor > depth
        if out or is_over(loss, core, e):
            if before == NONE:
                loss.keys[key].head = after
            else:
                entries[before].after = after
            _free_entry(loss, e)
        else:
            loss.numbers[BELOW] += below
            before = e
        e = after
    return before != NONE


@kernel
def alive_entries(loss, core):  # type: ignore[no-untyped-def]
    """How many entries have not expired: all are gone through in the order of memory."""
    alive, entries, used = 0, loss.entries, loss.numbers[ENTRIES_USED]
    if not are_over_alike(loss, core):
        for e in range(used):
            alive += entries[e].stream != NONE and not is_over(loss, core, e)
        return alive
    least = least_alive(core)
    for e in range(used):
        alive += (entries[e].stream != NONE) & (entries[e].hi >= least)
    return alive


@cold_kernel
def sweep(loss, core):  # type: ignore[no-untyped-def]
    """Prune all keys, by the present floor; count the entries that the floor alone lets in."""
    loss.numbers[BELOW] = 0
    for e in range(loss.numbers[ENTRIES_USED]):
        loss.entries[e].floor = max(np.int64(loss.entries[e].floor), loss.numbers[FLOOR])
    for chain in range(loss.heads.size):
        _prune_chain(loss, core, chain)


@kernel
def _prune_chain(loss, core, chain):  # type: ignore[no-untyped-def]
    """Prune the keys of a chain; those without entries are followed no longer."""
    key = np.int64(loss.heads[chain]) - 1
    while key != NONE:
        after = np.int64(loss.keys[key].after)
        if not prune_key(loss, core, key, depth_of(lot_of(loss, loss.keys[key].hash))):
            drop_key(loss, key)
        key = after


@cold_kernel
def _prune_outdated(loss, core):  # type: ignore[no-untyped-def]
    """Do what `sweep` does where the floor has not risen: go to chains with something to drop.

    That is what has expired, and what lies deeper than its key since it was merged. Most chains
    have neither: it takes a fraction of the time to find out from the entries, one after the other
    in memory. Chains are gone through in the same order, so entries are free in the same order.
    """
    marked = loss.marked
    alike, least = are_over_alike(loss, core), least_alive(core)
    for e in range(loss.numbers[ENTRIES_USED]):
        if loss.entries[e].stream == NONE:
            continue
        over = loss.entries[e].hi < least if alike else is_over(loss, core, e)
        if over or _is_too_deep(loss, e):
            chain = chain_of(loss, loss.keys[loss.owner[e]].hash)
            marked[chain >> 6] |= ONE << np.uint64(chain & 63)
    for word in range(marked.size):
        while marked[word] != np.uint64(0):
            chain = (word << 6) + np.int64(trailing_zeros(marked[word]))
            marked[word] &= marked[word] - ONE
            _prune_chain(loss, core, chain)


@kernel
def _is_too_deep(loss, e):  # type: ignore[no-untyped-def]
    """Whether an entry lies deeper than its key: only if it was merged."""
    if loss.entries[e].count <= 1:
        return False
    lot = lot_of(loss, loss.keys[loss.owner[e]].hash)
    return level_of(loss, loss.entries[e]) > depth_of(lot)


@cold_kernel
def make_room(loss, core):  # type: ignore[no-untyped-def]
    """Prune all keys, and lower the chances of rows until an eighth of the room is free.

    The entries that only the floor lets in may take up a quarter of the room; if they take more,
    the floor rises, and otherwise the exponent. A floor that was said is kept: then the room grows.
    """
    numbers, room = loss.numbers, loss.numbers[ROOM]
    most = room - max(room // 8, core.settings.lanes + 1)
    _prune_outdated(loss, core)
    if numbers[HELD] > most:
        sweep(loss, core)
    while numbers[HELD] > most and numbers[EXPONENT] < STEEPEST:
        bounded = numbers[FLOOR] >= loss.settings.highest
        if bounded and numbers[BELOW] == numbers[HELD]:
            break  # nothing is left that could be given up
        floored = 4 * numbers[BELOW] > room
        if floored and not bounded and numbers[FLOOR] < numbers[EXPONENT]:
            numbers[FLOOR] += 1
        else:
            numbers[EXPONENT] += 1
            numbers[RISES] += 1
            _keep_promising(loss, core)
        sweep(loss, core)
    numbers[FULL_AT] = room if numbers[HELD] <= most else 2 * max(room, numbers[HELD])
    for at in range(PIECES + 1):
        loss.floors[at] = max(loss.floors[at], numbers[FLOOR])


@cold_kernel
def _keep_promising(loss, core):  # type: ignore[no-untyped-def]
    """Let rows keep their levels, as the exponent rises, whose keys promise enough by now.

    As they came it may not have been known yet. What is promised depends on no lot.
    """
    entries, keys = loss.entries, loss.keys
    for key in range(loss.numbers[KEYS_USED]):
        if keys[key].head == NONE:
            continue
        first, second = cells_of(loss, lot_of(loss, keys[key].hash))
        promise, _ = promise_of(loss, core, first, second, 0)
        least = promise - loss.numbers[EXPONENT] + loss.numbers[RISES]
        keys[key].rank += keys[key].rank < least
        e = np.int64(keys[key].head)
        while e != NONE:
            entries[e].rank += entries[e].rank < least
            e = np.int64(entries[e].after)


@cold_kernel
def coarsen(loss, core, key, stream, rows):  # type: ignore[no-untyped-def]
    """Merge neighbouring entries of a key in a stream until three quarters of the most are left.

    Those first whose rows times their distance are least.
    """
    last = core.lanes[lane_of(core, stream)].last
    window = np.float64(last if last > 0 else window_of(core, stream))
    bound = max(1.0, rows) * max(1.0, window) / FINEST
    left = loss.settings.most + 1
    while 4 * left > 3 * loss.settings.most and bound < 1e30:
        left = _merged(loss, key, stream, bound)
        bound *= 2.0


@kernel
def _merged(loss, key, stream, bound):  # type: ignore[no-untyped-def]
    """Merge neighbours of the same level up to a bound; returns how many entries are left."""
    entries = loss.entries
    left = 0
    newer = np.int64(NONE)  # the entry of the stream before e, and the entry of any stream
    before = np.int64(NONE)
    e = np.int64(loss.keys[key].head)
    while e != NONE:
        after = np.int64(entries[e].after)
        if entries[e].stream == stream:
            if newer != NONE and _merge(loss, newer, e, bound):
                entries[before].after = after
                _free_entry(loss, e)
                e = after
                continue
            newer = e
            left += 1
        before = e
        e = after
    return left


@kernel
def _merge(loss, one, other, bound):  # type: ignore[no-untyped-def]
    """Merge an entry into another of its level, if rows times distance are within the bound."""
    entries = loss.entries
    if level_of(loss, entries[one]) != level_of(loss, entries[other]):
        return False
    lo, hi = min(entries[one].lo, entries[other].lo), max(entries[one].hi, entries[other].hi)
    count = entries[one].count + entries[other].count
    if np.float64(count) * np.float64(hi - lo) > bound:
        return False
    clump = entries[one].count * clump_of(entries[one])
    clump += entries[other].count * clump_of(entries[other])
    entries[one].clump = min(255, np.ceil(CLUMP_STEPS * np.log2(max(1.0, clump / count))))
    entries[one].lo = lo
    entries[one].hi = hi
    entries[one].count = count
    entries[one].rank = min(entries[one].rank, entries[other].rank)
    entries[one].floor = max(entries[one].floor, entries[other].floor)
    if loss.latest.size > 0:
        loss.latest[one] = max(loss.latest[one], loss.latest[other])
    if loss.earliest.size > 0:
        loss.earliest[one] = min(loss.earliest[one], loss.earliest[other])
    return True
