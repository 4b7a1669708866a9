"""Keys as 64-bit words.

A single word is mixed by a bijection, so that equal hashes mean equal keys. Longer keys are folded,
and their results are checked on the true values later.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import driver, kernel
from streamshed.kernels.random import GOLDEN, mix


@driver
def hash_words(words):  # type: ignore[no-untyped-def]
    """The hash of each 64-bit word."""
    hashed = np.empty(words.size, np.uint64)
    for i in range(words.size):
        hashed[i] = mix(words[i])
    return hashed


@kernel
def fold(hashed, word):  # type: ignore[no-untyped-def]
    """The hash of what was hashed so far and one more word."""
    return mix(hashed * GOLDEN + word)


@driver
def fold_words(hashed, words):  # type: ignore[no-untyped-def]
    """Fold one more word of each key into its hash, in place."""
    for i in range(words.size):
        hashed[i] = fold(hashed[i], words[i])


@driver
def hash_strings(offsets, data):  # type: ignore[no-untyped-def]
    """The hash of each string, given Arrow's offsets and bytes."""
    hashed = np.empty(offsets.size - 1, np.uint64)
    for i in range(hashed.size):
        start, end = offsets[i], offsets[i + 1]
        folded = np.uint64(end - start)
        position = start
        while position + 8 <= end:
            word = np.uint64(0)
            for byte in range(8):
                word |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
            folded = fold(folded, word)
            position += 8
        word = np.uint64(0)
        for byte in range(end - position):
            word |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
        hashed[i] = fold(folded, word)
    return hashed
