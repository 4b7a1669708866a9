"""The memory states of a window, arrival by arrival, and the best path through them.

The join memory state graph of Towne, Zhu, Zuzarte and Hou (2007), section 3.1: a state is the set
of the tuples that are held, here a bit for each. At a step a tuple arrives. From a state there are
edges to these: without what has ended, and with the newcomer if there is room; otherwise without
it, or with it in the place of any other. States that hold the same are one (function 3.1), and only
the best way to it is remembered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import driver, kernel
from streamshed.kernels.random import mix

MOST_SLOTS = 64
"""Rows that may be held at a time, each a bit of a word."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


class Steps(NamedTuple):
    """What happens at each step: a tuple arrives, others end, and some that are held gain.

    A slot is the number of a tuple's bit; it is given away again when the tuple has ended.
    """

    slot: npt.NDArray[np.int64]
    """Of the tuple that arrives."""
    ended: npt.NDArray[np.uint64]
    """The bits of the tuples that are held no more."""
    coming: npt.NDArray[np.float64]
    """All that the tuple that arrives can gain."""
    starts: npt.NDArray[np.int64]
    """Where the gains of each step begin, and where the last ones end."""
    holder: npt.NDArray[np.int64]
    """Of each gain: the slot of the tuple that must be held after the step."""
    gain: npt.NDArray[np.float64]
    """Of each gain: what it is worth."""
    tie: npt.NDArray[np.float64]
    """Of each gain: what decides between paths that are worth the same."""


class Path(NamedTuple):
    """The best path."""

    held: npt.NDArray[np.uint64]
    """What is held after each step; nothing is said if there were too many states."""
    states: int
    """How many states there are, over all steps."""


@kernel
def _bit(slot):  # type: ignore[no-untyped-def]
    return _ONE << np.uint64(slot)


@kernel
def _count(mask):  # type: ignore[no-untyped-def]
    """How many bits are set."""
    count = 0
    while mask != _ZERO:
        mask &= mask - _ONE
        count += 1
    return count


@kernel
def _gained(steps, step, mask):  # type: ignore[no-untyped-def]
    """What a state gains at a step, and for ties."""
    gain = 0.0
    tie = 0.0
    for place in range(steps.starts[step], steps.starts[step + 1]):
        if mask & _bit(steps.holder[place]):
            gain += steps.gain[place]
            tie += steps.tie[place]
    return gain, tie


@kernel
def _better(gain, tie, other_gain, other_tie):  # type: ignore[no-untyped-def]
    return gain > other_gain or (gain == other_gain and tie > other_tie)


@kernel
def _place(directory, masks, first, mask):  # type: ignore[no-untyped-def]
    """Where a state is in the directory, or the free place where it belongs.

    What is below `first` is of an earlier step, and its place is free.
    """
    last = directory.size - 1
    place = np.int64(mix(mask)) & last
    while directory[place] >= first and masks[directory[place]] != mask:
        place = (place + 1) & last
    return place


@driver
def _larger(array, used):  # type: ignore[no-untyped-def]
    """A copy with room for twice as much."""
    copy = np.empty(2 * array.size, array.dtype)
    copy[:used] = array[:used]
    return copy


@driver
def _narrowest(masks, gains, coming, widest):  # type: ignore[no-untyped-def]
    """The states that could gain the most in the end if nothing more were dropped, best first."""
    hopes = np.empty(gains.size)
    for state in range(gains.size):
        hope = gains[state]
        for slot in range(MOST_SLOTS):
            if masks[state] & _bit(slot):
                hope += coming[slot]
        hopes[state] = -hope
    return np.argsort(hopes, kind="mergesort")[:widest]


@driver
def best_path(steps: Steps, places: int, widest: int, most: int) -> Path:
    """Find the path of the largest gain.

    Args:
        steps: what happens.
        places: how many tuples can be held.
        widest: how many states are kept after each step; with fewer than there are the path is
            one of a beam, and its gain a lower bound.
        most: how many states, over all steps, are too many to remember.
    """
    length = steps.slot.size
    masks = np.zeros(1024, np.uint64)  # of all states of all steps, for the way back
    before = np.zeros(1024, np.int64)
    begins = np.zeros(length + 2, np.int64)
    begins[1] = 1
    gains, ties = np.zeros(1024), np.zeros(1024)
    next_gains, next_ties = np.zeros(1024), np.zeros(1024)
    directory = np.full(4096, -1, np.int64)
    coming = np.zeros(MOST_SLOTS)
    for step in range(length):
        first, last = begins[step], begins[step + 1]
        newcomer = _bit(steps.slot[step])
        used = last
        for state in range(first, last):
            if used > most:
                return Path(np.zeros(0, np.uint64), used)
            while masks.size < used + places + 1:
                masks, before = _larger(masks, used), _larger(before, used)
            while next_gains.size < used - last + places + 1:
                next_gains = _larger(next_gains, used - last)
                next_ties = _larger(next_ties, used - last)
            if directory.size < 2 * (used - last + places + 1):
                directory = np.full(4 * directory.size, -1, np.int64)
                for known in range(last, used):
                    directory[_place(directory, masks, last, masks[known])] = known
            kept = masks[state] & ~steps.ended[step]
            full = _count(kept) >= places
            replaceable = kept if full else _ZERO
            mask = kept if full else kept | newcomer
            while True:
                gain, tie = _gained(steps, step, mask)
                gain += gains[state - first]
                tie += ties[state - first]
                place = _place(directory, masks, last, mask)
                if directory[place] < last:
                    directory[place] = used
                    masks[used] = mask
                    next_gains[used - last] = -np.inf
                    used += 1
                other = directory[place] - last
                if _better(gain, tie, next_gains[other], next_ties[other]):
                    next_gains[other] = gain
                    next_ties[other] = tie
                    before[last + other] = state
                if replaceable == _ZERO:
                    break
                leaves = replaceable & (~replaceable + _ONE)
                replaceable ^= leaves
                mask = (kept ^ leaves) | newcomer
        coming[steps.slot[step]] = steps.coming[step]
        for place in range(steps.starts[step], steps.starts[step + 1]):
            coming[steps.holder[place]] -= steps.gain[place]
        if used - last > widest:
            chosen = _narrowest(masks[last:used], next_gains[: used - last], coming, widest)
            masks[last : last + widest] = masks[last:used][chosen]
            before[last : last + widest] = before[last:used][chosen]
            next_gains[:widest] = next_gains[chosen]
            next_ties[:widest] = next_ties[chosen]
            used = last + widest
            directory[:] = -1
        begins[step + 2] = used
        gains, next_gains = next_gains, gains
        ties, next_ties = next_ties, ties
    best = 0
    for state in range(1, begins[length + 1] - begins[length]):
        if _better(gains[state], ties[state], gains[best], ties[best]):
            best = state
    held = np.zeros(length, np.uint64)
    state = begins[length] + best
    for step in range(length - 1, -1, -1):
        held[step] = masks[state]
        state = before[state]
    return Path(held, begins[length + 1])
