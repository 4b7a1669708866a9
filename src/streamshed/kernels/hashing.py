"""Keys as 64-bit words, by a hash whose secret follows from a seed.

Who does not know the seed cannot make keys that collide. A single word is mixed by a bijection, so
that equal hashes mean equal keys. Strings and keys of several words are hashed by SipHash-1-3
(Aumasson, Bernstein 2012), and their results are checked on the true values later.
"""

from __future__ import annotations

import hashlib

import numpy as np

from streamshed.kernels.compiling import driver, kernel
from streamshed.kernels.random import GOLDEN, mix

Secret = tuple[np.uint64, np.uint64]
"""What the hash of a key depends on besides the key."""


def secret_of(seed: int) -> Secret:
    """The secret of a join whose keys have a seed."""
    digest = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=16, person=b"streamshed keys")
    first, second = np.frombuffer(digest.digest(), "<u8").astype(np.uint64)
    return first, second


def seed_with(password: str, seed: int) -> int:
    """A seed for keys that follows from a password and from another seed, and tells neither."""
    key = hashlib.blake2b(password.encode()).digest()
    digest = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=8, key=key)
    return int.from_bytes(digest.digest(), "little")


@driver
def hash_words(words, secret):  # type: ignore[no-untyped-def]
    """The hash of each 64-bit word: different words have different hashes."""
    hashed = np.empty(words.size, np.uint64)
    for i in range(words.size):
        hashed[i] = mix(mix(words[i] ^ secret[0]) ^ secret[1])
    return hashed


@driver
def append_words(hashed, words, secret):  # type: ignore[no-untyped-def]
    """Hash keys that have one word more, in place."""
    for i in range(words.size):
        state = _begin(secret)
        state = _compress(state, hashed[i])
        state = _compress(state, words[i])
        hashed[i] = _finish(state, _TWO_WORDS)


@kernel
def fold(hashed, another):  # type: ignore[no-untyped-def]
    """One hash of two, each of which depends on the secret already."""
    return mix(hashed * GOLDEN + another)


@driver
def fold_hashes(hashed, others):  # type: ignore[no-untyped-def]
    """Fold another hash of each row into its hash, in place."""
    for i in range(others.size):
        hashed[i] = fold(hashed[i], others[i])


@driver
def hash_strings(offsets, data, secret):  # type: ignore[no-untyped-def]
    """The hash of each string, given Arrow's offsets and bytes."""
    hashed = np.empty(offsets.size - 1, np.uint64)
    for i in range(hashed.size):
        start, end = offsets[i], offsets[i + 1]
        state = _begin(secret)
        position = start
        while position + 8 <= end:
            word = np.uint64(0)
            for byte in range(8):
                word |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
            state = _compress(state, word)
            position += 8
        word = np.uint64(end - start) << _56
        for byte in range(end - position):
            word |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
        hashed[i] = _finish(state, word)
    return hashed


# -- SipHash-1-3 ----------------------------------------------------------------------------------

_56 = np.uint64(56)
_TWO_WORDS = np.uint64(16 << 56)
_LAST = np.uint64(0xFF)
_BEGIN = tuple(
    np.uint64(int.from_bytes(b)) for b in (b"somepseu", b"dorandom", b"lygenera", b"tedbytes")
)


@kernel
def _begin(secret):  # type: ignore[no-untyped-def]
    one, other = secret
    return one ^ _BEGIN[0], other ^ _BEGIN[1], one ^ _BEGIN[2], other ^ _BEGIN[3]


@kernel
def _compress(state, word):  # type: ignore[no-untyped-def]
    a, b, c, d = state
    a, b, c, d = _round(a, b, c, d ^ word)
    return a ^ word, b, c, d


@kernel
def _finish(state, last):  # type: ignore[no-untyped-def]
    a, b, c, d = _compress(state, last)
    c ^= _LAST
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b ^ c ^ d


@kernel
def _round(a, b, c, d):  # type: ignore[no-untyped-def]
    a += b
    c += d
    b = _rotated(b, 13) ^ a
    d = _rotated(d, 16) ^ c
    a = _rotated(a, 32)
    c += b
    a += d
    b = _rotated(b, 17) ^ c
    d = _rotated(d, 21) ^ a
    c = _rotated(c, 32)
    return a, b, c, d


@kernel
def _rotated(word, bits):  # type: ignore[no-untyped-def]
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))
