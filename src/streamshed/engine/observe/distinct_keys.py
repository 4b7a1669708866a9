"""The keys that have a result: a bounded sample of them, by their depth."""

from __future__ import annotations

import numpy as np

from streamshed.engine.observe.state import CUT, DISTINCT, UNSEEN, depth_of, lot_of
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.random import mix

_MISPLACED = 2
"""Marks a key, in `used`, that has to find its place anew."""


@kernel
def note_key(loss, hashed, lot, level, made):  # type: ignore[no-untyped-def]
    """Note that a key has a result, seen at a level; or (UNSEEN) that the join made one.

    Keys below a depth are left out, which rises when there are too many.
    """
    if depth_of(lot) >= loss.numbers[CUT]:
        place = _place_of(loss, hashed)
        known = loss.distinct[place]
        if known.used == 0 or known.level > level or (made and known.made == 0):
            _note(loss, hashed, level, made)


@cold_kernel
def _note(loss, hashed, level, made):  # type: ignore[no-untyped-def]
    place = _place_of(loss, hashed)
    distinct = loss.distinct
    if distinct[place].used == 0:
        distinct[place].used = 1
        distinct[place].hash = hashed
        distinct[place].level = UNSEEN
        distinct[place].made = 0
        loss.numbers[DISTINCT] += 1
    distinct[place].level = min(np.int64(distinct[place].level), level)
    if made:
        distinct[place].made = 1
    while 4 * loss.numbers[DISTINCT] > 3 * distinct.size:
        _thin_out(loss)


@kernel
def _place_of(loss, hashed):  # type: ignore[no-untyped-def]
    """The place of a key, or where it would be."""
    mask = loss.distinct.size - 1
    place = np.int64(mix(hashed) & np.uint64(mask))
    while loss.distinct[place].used != 0 and loss.distinct[place].hash != hashed:
        place = (place + 1) & mask
    return place


@kernel
def _thin_out(loss):  # type: ignore[no-untyped-def]
    """Let go of the keys of the least depth; the others find new places, one after the other."""
    distinct = loss.distinct
    loss.numbers[CUT] += 1
    loss.numbers[DISTINCT] = 0
    for i in range(distinct.size):
        if distinct[i].used != 0:
            distinct[i].used = _MISPLACED
    for i in range(distinct.size):
        while distinct[i].used == _MISPLACED:
            if depth_of(lot_of(loss, distinct[i].hash)) < loss.numbers[CUT]:
                distinct[i].used = 0
                continue
            loss.numbers[DISTINCT] += 1
            _put_in_place(loss, i)


@kernel
def _put_in_place(loss, i):  # type: ignore[no-untyped-def]
    """Put a key where it belongs; one that has no place yet, and stands there, stands at i then."""
    distinct = loss.distinct
    mask = distinct.size - 1
    place = np.int64(mix(distinct[i].hash) & np.uint64(mask))
    while distinct[place].used == 1:
        place = (place + 1) & mask
    hashed, level, made = distinct[i].hash, distinct[i].level, distinct[i].made
    distinct[i].hash = distinct[place].hash
    distinct[i].level = distinct[place].level
    distinct[i].made = distinct[place].made
    distinct[i].used = distinct[place].used
    distinct[place].hash = hashed
    distinct[place].level = level
    distinct[place].made = made
    distinct[place].used = 1
