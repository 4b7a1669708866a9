"""Values of a column that lies in several pieces of memory, put together in any order."""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.intrinsics import (
    byte_at,
    int_at,
    long_at,
    set_byte,
    set_int,
    set_long,
    set_short,
    short_at,
)


@kernel
def _piece_of(numbers, number):  # type: ignore[no-untyped-def]
    """Where a number stands among those in order, or would."""
    low, high = 0, numbers.size
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


@loop
def find_values(places, bits, numbers, sizes, pieces, offsets, met):  # type: ignore[no-untyped-def]
    """Split places into pieces and offsets there.

    Args:
        places: the number of a piece, and in so many bits below it the offset there.
        bits: how many.
        numbers: of the pieces, in order.
        sizes: how many values each has.
        pieces: room for the piece of each place, by its position among the numbers.
        offsets: room for the offsets.
        met: set for the pieces in which there are any.

    Returns:
        Whether there is a value at every place.
    """
    below = (np.int64(1) << bits) - 1
    piece = numbers.size
    for i in range(places.size):
        number, offset = places[i] >> bits, places[i] & below
        if piece == numbers.size or numbers[piece] != number:  # seldom, if places are in order
            piece = _piece_of(numbers, number)
            if piece == numbers.size or numbers[piece] != number:
                return False
            met[piece] = True
        if offset >= sizes[piece]:
            return False
        pieces[i], offsets[i] = piece, offset
    return True


@loop
def gather(pieces, offsets, addresses, width, target):  # type: ignore[no-untyped-def]
    """Copy values of 1, 2, 4 or 8 bytes.

    Args:
        pieces: of each value the piece in which it is.
        offsets: its place there.
        addresses: where the pieces begin.
        width: the bytes of a value.
        target: the address of the room for them.
    """
    if width == 8:
        for i in range(pieces.size):
            set_long(target, i, long_at(addresses[pieces[i]], offsets[i]))
    elif width == 4:
        for i in range(pieces.size):
            set_int(target, i, int_at(addresses[pieces[i]], offsets[i]))
    elif width == 2:
        for i in range(pieces.size):
            set_short(target, i, short_at(addresses[pieces[i]], offsets[i]))
    else:
        for i in range(pieces.size):
            set_byte(target, i, byte_at(addresses[pieces[i]], offsets[i]))
