"""The rows of a relation, the facts, found by each of the columns that streams meet.

A value of a joining column has a *code*, numbered over all such columns together; the directory
that knows them is that of the key table. Below a code its facts stand side by side in the order in
which they become valid, each with its number and the codes of its other columns: what a row
matches is read in one go. Facts that ended before anything that is stored are swept out when they
are met, and give their room back when all are packed together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import (
    KEY_HEADS,
    KEY_LANES,
    KEYS_USED,
    NEVER,
    NONE,
    key_words,
)
from streamshed.kernels.intrinsics import prefetch
from streamshed.kernels.random import GOLDEN, mix
from streamshed.kernels.table import add_key, drop_key, find_key, home_shift, key_lanes, likely_key

# A code is a key of the directory. Where a key has its lanes and the newest rows of two lanes, a
# code has where its facts begin (plus 1), for how many there is room, and how many there are.
_START, _ROOM, _SIZE = KEY_LANES, KEY_HEADS, KEY_HEADS + 1
CODE_WORDS = key_words(2)

_FAR, _NEAR = 16, 8
"""How many rows ahead memory is asked for: the directory first, then what it leads to."""

FOR_EVER = np.iinfo(np.int64).max


class FactSettings(NamedTuple):
    """How facts are laid out."""

    key_words: int
    streams: int


class Facts(NamedTuple):
    """The arrays. An entry is a fact's number, and the codes of its other columns in order."""

    settings: FactSettings
    keys: npt.NDArray[np.int32]  # by (code, word)
    table: npt.NDArray[np.uint32]
    numbers: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int32]  # by (place, word)
    bounds: npt.NDArray[np.int64]  # by (place, begin or end); empty where all are valid always


class Changes(NamedTuple):
    """Facts that come and go, in the order of time."""

    time: npt.NDArray[np.int64]
    insert: npt.NDArray[np.bool_]
    fact: npt.NDArray[np.int32]
    codes: npt.NDArray[np.int32]  # by (change, stream)


@kernel
def salted(hashed, stream):  # type: ignore[no-untyped-def]
    """The hash of a value as one of the column that a stream meets."""
    return mix(hashed + np.uint64(stream + 1) * GOLDEN)


@kernel
def code_hash(code):  # type: ignore[no-untyped-def]
    """The hash under which rows with a code stand in the key table of the join."""
    return mix(np.uint64(code))


@kernel
def first_place(facts, code):  # type: ignore[no-untyped-def]
    """Where the facts of a code begin."""
    return np.int64(facts.keys[code * CODE_WORDS + _START]) - 1


@kernel
def fact_count(facts, code):  # type: ignore[no-untyped-def]
    """How many facts a code has."""
    return np.int64(facts.keys[code * CODE_WORDS + _SIZE])


@kernel
def fact_at(facts, place):  # type: ignore[no-untyped-def]
    """The number of the fact at a place."""
    return facts.entries[place * facts.settings.streams]


@kernel
def other_code(facts, place, stream, other):  # type: ignore[no-untyped-def]
    """The code of the column that another stream meets, of a fact below the code of a stream's."""
    word = other + 1 if other < stream else other
    return np.int64(facts.entries[place * facts.settings.streams + word])


@kernel
def begins(facts, place):  # type: ignore[no-untyped-def]
    """When the fact at a place begins to be valid."""
    return facts.bounds[2 * place]


@kernel
def ends(facts, place):  # type: ignore[no-untyped-def]
    """When the fact at a place ceases to be valid."""
    return facts.bounds[2 * place + 1]


@kernel
def valid_at(facts, place, time):  # type: ignore[no-untyped-def]
    """Whether the fact at a place is valid at a time."""
    return facts.bounds.size == 0 or begins(facts, place) <= time < ends(facts, place)


@kernel
def prefetch_facts(facts, code):  # type: ignore[no-untyped-def]
    """Ask for the memory in which the facts of a code are."""
    place = max(0, first_place(facts, code))
    prefetch(facts.entries, place * facts.settings.streams)
    if facts.bounds.size > 0:
        prefetch(facts.bounds, 2 * place)


@kernel
def prefetch_code(facts, code):  # type: ignore[no-untyped-def]
    """Ask for the memory that says where the facts of a code are."""
    prefetch(facts.keys, code * CODE_WORDS)


@kernel
def valid_until(facts, code, time):  # type: ignore[no-untyped-def]
    """The time at which the last of a code's facts ends that are valid at a time, or NEVER."""
    first = first_place(facts, code)
    size = fact_count(facts, code)
    if facts.bounds.size == 0:
        return np.int64(FOR_EVER if size > 0 else NEVER)
    until = np.int64(NEVER)
    for place in range(first, first + size):
        if begins(facts, place) > time:  # as do all that follow
            break
        if ends(facts, place) > time:
            until = max(until, ends(facts, place))
    return until


@kernel
def sweep(facts, code, time, horizon):  # type: ignore[no-untyped-def]
    """Let go of a code's facts that ended by the horizon, if half of them had ended at a time."""
    if facts.bounds.size == 0:
        return
    first = first_place(facts, code)
    size = fact_count(facts, code)
    ended = 0
    for place in range(first, first + size):
        if begins(facts, place) > time:
            break
        ended += ends(facts, place) <= time
    if 2 * ended <= size:
        return
    kept = first
    for place in range(first, first + size):
        if ends(facts, place) > horizon:
            if kept < place:
                _copy(facts, place, kept)
            kept += 1
    facts.keys[code * CODE_WORDS + _SIZE] = kept - first


@kernel
def _copy(facts, place, to):  # type: ignore[no-untyped-def]
    width = facts.settings.streams
    for word in range(width):
        facts.entries[to * width + word] = facts.entries[place * width + word]
    if facts.bounds.size > 0:
        facts.bounds[2 * to] = facts.bounds[2 * place]
        facts.bounds[2 * to + 1] = facts.bounds[2 * place + 1]


@kernel
def _write(facts, place, codes, base, stream, fact, begin, end):  # type: ignore[no-untyped-def]
    """Write a fact below the code of a stream's column."""
    width = facts.settings.streams
    facts.entries[place * width] = fact
    word = 1
    for other in range(width):
        if other != stream:
            facts.entries[place * width + word] = codes[base + other]
            word += 1
    if facts.bounds.size > 0:
        facts.bounds[2 * place] = begin
        facts.bounds[2 * place + 1] = end


@kernel
def insert_fact(facts, codes, base, fact, begin):  # type: ignore[no-untyped-def]
    """Enter a fact that is valid from a time on; there is room for it."""
    for stream in range(facts.settings.streams):
        word = np.int64(codes[base + stream]) * CODE_WORDS
        first = np.int64(facts.keys[word + _START]) - 1
        place = first + np.int64(facts.keys[word + _SIZE])
        while place > first and begins(facts, place - 1) > begin:
            _copy(facts, place - 1, place)
            place -= 1
        _write(facts, place, codes, base, stream, fact, begin, FOR_EVER)
        facts.keys[word + _SIZE] += 1


@kernel
def end_fact(facts, code, fact, time):  # type: ignore[no-untyped-def]
    """Let a fact end, as it stands below one of its codes."""
    first = first_place(facts, code)
    for place in range(first, first + fact_count(facts, code)):
        if fact_at(facts, place) == fact:
            facts.bounds[2 * place + 1] = time


@kernel
def _ask_for_key(facts, hashed, shift):  # type: ignore[no-untyped-def]
    """Ask for the memory in which a hash will be sought first."""
    prefetch(facts.table, np.int64(hashed >> shift))


@loop
def enter_codes(facts, hashes, stream, codes):  # type: ignore[no-untyped-def]
    """The codes of values of the column that a stream meets; new ones are entered."""
    shift = home_shift(facts.table)
    for i in range(hashes.size):
        if i + _FAR < hashes.size:
            _ask_for_key(facts, salted(hashes[i + _FAR], stream), shift)
        hashed = salted(hashes[i], stream)
        code = find_key(facts, hashed, shift)
        if code == NONE:
            code = add_key(facts, hashed, shift)
            facts.keys[code * CODE_WORDS + _START] = 1
            facts.keys[code * CODE_WORDS + _ROOM] = 0
            facts.keys[code * CODE_WORDS + _SIZE] = 0
        codes[i * facts.settings.streams + stream] = code


@kernel
def find_code(facts, hashed, stream):  # type: ignore[no-untyped-def]
    """The code of a key of a stream, or NONE."""
    return np.int64(find_key(facts, salted(hashed, stream), home_shift(facts.table)))


@loop
def find_codes(facts, streams, hashes, codes):  # type: ignore[no-untyped-def]
    """The codes of the keys of rows, or NONE."""
    shift = home_shift(facts.table)
    for i in range(hashes.size):
        if i + _FAR < hashes.size:
            _ask_for_key(facts, salted(hashes[i + _FAR], streams[i + _FAR]), shift)
            near = salted(hashes[i + _NEAR], streams[i + _NEAR])
            prefetch_code(facts, likely_key(facts, near, shift))
        codes[i] = find_key(facts, salted(hashes[i], streams[i]), shift)


@loop
def lay_out(facts, codes, order, begin, end):  # type: ignore[no-untyped-def]
    """Put all facts below their codes, for the first time.

    Args:
        facts: with codes, and as much room as is needed.
        codes: of every fact, by (fact, stream).
        order: the facts in the order in which they become valid; empty if that is their own.
        begin: by fact, or empty.
        end: by fact, or empty.
    """
    streams = facts.settings.streams
    size = codes.size // streams
    for i in range(codes.size):
        facts.keys[np.int64(codes[i]) * CODE_WORDS + _ROOM] += 1
    used = 0
    for code in range(facts.numbers[KEYS_USED]):
        facts.keys[code * CODE_WORDS + _START] = used + 1
        used += facts.keys[code * CODE_WORDS + _ROOM]
    for i in range(size):
        fact = order[i] if order.size > 0 else i
        if order.size == 0 and i + _FAR < size:
            for j in range(streams):
                prefetch_code(facts, codes[(i + _FAR) * streams + j])
                prefetch_facts(facts, codes[(i + _NEAR) * streams + j])
        for stream in range(streams):
            word = np.int64(codes[fact * streams + stream]) * CODE_WORDS
            place = np.int64(facts.keys[word + _START]) - 1 + np.int64(facts.keys[word + _SIZE])
            facts.keys[word + _SIZE] += 1
            since = begin[fact] if begin.size > 0 else NEVER
            until = end[fact] if end.size > 0 else FOR_EVER
            _write(facts, place, codes, fact * streams, stream, fact, since, until)


@loop
def widths(facts, codes, more, wanted):  # type: ignore[no-untyped-def]
    """For codes that will have more facts than there is room for, the room that they want."""
    total = 0
    for i in range(codes.size):
        word = np.int64(codes[i]) * CODE_WORDS
        needed = facts.keys[word + _SIZE] + more[i]
        wanted[i] = 2 * needed if needed > facts.keys[word + _ROOM] else 0
        total += wanted[i]
    return total


@loop
def widen(facts, codes, wanted, place):  # type: ignore[no-untyped-def]
    """Move the facts of codes that want more room to where it is, from a place on."""
    for i in range(codes.size):
        if wanted[i] == 0:
            continue
        word = np.int64(codes[i]) * CODE_WORDS
        first = np.int64(facts.keys[word + _START]) - 1
        for moved in range(facts.keys[word + _SIZE]):
            _copy(facts, first + moved, place + moved)
        facts.keys[word + _START] = place + 1
        facts.keys[word + _ROOM] = wanted[i]
        place += wanted[i]


@loop
def pack(facts, entries, bounds, horizon, wanted, kept):  # type: ignore[no-untyped-def]
    """Copy the facts that did not end by a horizon side by side; codes without any are given back.

    Args:
        facts: the arrays as they are; codes are told where their facts are now.
        entries: where they are copied to.
        bounds: likewise.
        horizon: the time.
        wanted: by code, whether it stays even without facts.
        kept: by fact, set for those that stay.

    Returns:
        How many places are in use now.
    """
    shift = home_shift(facts.table)
    width = facts.settings.streams
    used = 0
    for code in range(wanted.size):
        if key_lanes(facts, code) == np.uint64(0):  # it was given back before
            continue
        first, size = first_place(facts, code), fact_count(facts, code)
        start = used
        for place in range(first, first + size):
            if ends(facts, place) <= horizon:
                continue
            for word in range(width):
                entries[used * width + word] = facts.entries[place * width + word]
            bounds[2 * used] = begins(facts, place)
            bounds[2 * used + 1] = ends(facts, place)
            kept[fact_at(facts, place)] = True
            used += 1
        facts.keys[code * CODE_WORDS + _START] = start + 1
        facts.keys[code * CODE_WORDS + _SIZE] = used - start
        facts.keys[code * CODE_WORDS + _ROOM] = used - start
        if used == start and not wanted[code]:
            facts.keys[code * CODE_WORDS + _START] = 0
            drop_key(facts, code, shift)
    return used


@loop
def renumber(facts, used, number):  # type: ignore[no-untyped-def]
    """Give facts other numbers, at all places that are in use."""
    width = facts.settings.streams
    for place in range(used):
        facts.entries[place * width] = number[facts.entries[place * width]]
