"""Counter-based randomness: the same number for the same seed and counter, in any process."""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.intrinsics import high_half

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_ALL = np.uint64(2**64 - 1)


@kernel
def mix(word):  # type: ignore[no-untyped-def]
    """The finaliser of splitmix64: a bijection of 64-bit words in which every bit matters."""
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return word ^ (word >> _31)


@kernel
def draw(seed, counter):  # type: ignore[no-untyped-def]
    """The random 64-bit word that belongs to a seed and a counter."""
    return mix(mix(seed) + (np.uint64(counter) + np.uint64(1)) * GOLDEN)


@kernel
def inverse_of(size):  # type: ignore[no-untyped-def]
    """What `remainder` multiplies by instead of dividing."""
    return _ALL // size


@kernel
def remainder(word, size, inverse):  # type: ignore[no-untyped-def]
    """A word modulo a size: the quotient found without a division is too small by 1 at most."""
    rest = word - high_half(word, inverse) * size
    return rest - size if rest >= size else rest
