"""The keys that have a result: a bounded sample of them, by their depth."""

from __future__ import annotations

import numpy as np

from streamshed.engine.observe.state import CUT, DISTINCT, UNSEEN, depth_of, lot_of
from streamshed.kernels.compiling import cold_kernel, kernel
from streamshed.kernels.random import mix


@kernel
def note_key(loss, hashed, level, made):  # type: ignore[no-untyped-def]
    """Note that a key has a result, seen at a level; or (UNSEEN) that the join made one.

    Keys below a depth are left out, which rises when there are too many.
    """
    if depth_of(lot_of(loss, hashed)) >= loss.numbers[CUT]:
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
    while 2 * loss.numbers[DISTINCT] > distinct.size:
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
    """Let go of the keys of the least depth."""
    distinct, spare = loss.distinct, loss.spare
    loss.numbers[CUT] += 1
    loss.numbers[DISTINCT] = 0
    for i in range(distinct.size):
        spare[i].used = distinct[i].used
        spare[i].hash = distinct[i].hash
        spare[i].level = distinct[i].level
        spare[i].made = distinct[i].made
        distinct[i].used = 0
    for i in range(spare.size):
        hashed = spare[i].hash
        if spare[i].used == 0 or depth_of(lot_of(loss, hashed)) < loss.numbers[CUT]:
            continue
        place = _place_of(loss, hashed)
        distinct[place].used = 1
        distinct[place].hash = hashed
        distinct[place].level = spare[i].level
        distinct[place].made = spare[i].made
        loss.numbers[DISTINCT] += 1
