"""AMS sketches: the size of a join, from a few sums of random signs (Alon and others 1999).

Each attribute has families of random signs, +1 or -1 for every value. A stream's atomic sketch is
the sum over its rows of the product of their attributes' signs; the product of all streams'
sketches has the size of the join as its expectation (Dobra and others 2002). The mean of many such
products is taken, and the median of a few means.

Signs must be independent for any four values. They are bits of a random polynomial of degree 3 over
the field of 2^61 - 1 elements, at the value: its values at four points are independent and uniform.
Different bits of them are so too (but for 2^-61), so that one polynomial makes the signs of 60
copies of a sketch: of any two copies the products are uncorrelated, as if each had a polynomial.

A state with sketches has the arrays of `sketch_layout`.
"""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import Field
from streamshed.kernels.intrinsics import high_half, trailing_zeros
from streamshed.kernels.random import draw

SIGNS = 60
"""Copies whose signs are the bits of one polynomial's value."""
DEGREES = 4
"""Coefficients of a polynomial."""
MOST_ATTRIBUTES = 64

PRIME = np.uint64(2**61 - 1)
_61, _3 = np.uint64(61), np.uint64(3)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_APART = np.uint64(2**64 - 1)
"""A counter that no arrival has."""

KIND = np.dtype(
    [
        ("copies", np.int64),  # s1: of which the mean is taken
        ("groups", np.int64),  # s2: of copies, of whose means the median is taken
        ("words", np.int64),  # that hold the signs of a group
    ],
    align=True,
)


def words_of(copies: int) -> int:
    """The words that hold the signs of so many copies."""
    return -(-copies // SIGNS)


def sketch_layout(copies: int, groups: int) -> dict[str, Field]:
    """The arrays of a state with sketches.

    Args:
        copies: of which the mean is taken, s1.
        groups: of such, of whose means the median is taken, s2.
    """
    words = groups * words_of(copies)
    return {
        "kind": Field("once", KIND),
        "own": Field("lane", np.uint64),  # the attributes of each stream, as a mask
        "coefficients": Field("once", np.uint64, times=MOST_ATTRIBUTES * words * DEGREES),
        "current": Field("lane", np.float64, times=copies * groups, kept=True),
        "last": Field("lane", np.float64, times=copies * groups, kept=True),
        "product": Field("lane", np.float64, times=copies * groups, kept=True),
        "word": Field("once", np.uint64, times=words),  # the signs of the newcomer
        "means": Field("once", np.float64, times=groups),
    }


@kernel
def times_modulo(one, other):  # type: ignore[no-untyped-def]
    """The product of two numbers below 2^61, modulo 2^61 - 1."""
    low, high = one * other, high_half(one, other)
    return _reduced((low & PRIME) + ((low >> _61) | (high << _3)))


@kernel
def _reduced(number):  # type: ignore[no-untyped-def]
    """A number of up to 64 bits modulo 2^61 - 1."""
    number = (number & PRIME) + (number >> _61)
    return number - PRIME if number >= PRIME else number


@kernel
def polynomial(coefficients, first, value):  # type: ignore[no-untyped-def]
    """The polynomial whose coefficients begin at a place, highest first, at a 64-bit value."""
    point = _reduced(value)
    result = coefficients[first]
    for degree in range(1, DEGREES):
        result = _reduced(times_modulo(result, point) + coefficients[first + degree])
    return result


@kernel
def draw_coefficients(sketch, seed, attributes):  # type: ignore[no-untyped-def]
    """Draw the polynomials of so many attributes."""
    apart = draw(seed, _APART)
    words = sketch.word.size
    for number in range(attributes * words * DEGREES):
        sketch.coefficients[number] = draw(apart, np.uint64(number)) % PRIME


@kernel
def take_signs(sketch, batch, i):  # type: ignore[no-untyped-def]
    """Find the signs of a row: the product of those of its attributes, a bit for each copy."""
    words = sketch.word.size
    for word in range(words):
        sketch.word[word] = _ZERO
    rest = sketch.own[batch.stream[i]]
    place = 0
    while rest != _ZERO:
        attribute = np.int64(trailing_zeros(rest))
        rest &= rest - _ONE
        value = batch.hashes[i, place] if batch.hashes.size > 0 else batch.hash[i]
        place += 1
        for word in range(words):
            first = (attribute * words + word) * DEGREES
            sketch.word[word] ^= polynomial(sketch.coefficients, first, value)


@kernel
def add_signs(sketch, stream):  # type: ignore[no-untyped-def]
    """Add the newcomer's signs to the current sketch of its stream."""
    kind = sketch.kind[0]
    place = stream * kind.groups * kind.copies
    for group in range(kind.groups):
        for word in range(kind.words):
            bits = sketch.word[group * kind.words + word]
            for bit in range(min(SIGNS, kind.copies - word * SIGNS)):
                sign = np.int64(1) - np.int64(((bits >> np.uint64(bit)) & _ONE) << _ONE)
                sketch.current[place + bit] += sign
            place += min(SIGNS, kind.copies - word * SIGNS)


@kernel
def multiply(sketch, stream, tumbled):  # type: ignore[no-untyped-def]
    """The product of the other streams' sketches: those of the last window, where there is one."""
    size = sketch.kind[0].groups * sketch.kind[0].copies
    base = stream * size
    for copy in range(size):
        sketch.product[base + copy] = 1.0
    for other in range(tumbled.size):
        if other == stream:
            continue
        place = other * size
        if tumbled[other] != 0:
            for copy in range(size):
                sketch.product[base + copy] *= sketch.last[place + copy]
        else:
            for copy in range(size):
                sketch.product[base + copy] *= sketch.current[place + copy]


@kernel
def take_over(sketch, stream):  # type: ignore[no-untyped-def]
    """The current sketch of a stream becomes its last one, and another begins."""
    size = sketch.kind[0].groups * sketch.kind[0].copies
    for copy in range(stream * size, (stream + 1) * size):
        sketch.last[copy] = sketch.current[copy]
        sketch.current[copy] = 0.0


@kernel
def estimate(sketch, stream, words, first):  # type: ignore[no-untyped-def]
    """The results that one row of a stream is expected to make with all rows of the others.

    Args:
        sketch: the sketches, with the products of the others.
        stream: of the row.
        words: that hold the row's signs, from a place on.
        first: that place.
    """
    kind = sketch.kind[0]
    place = stream * kind.groups * kind.copies
    for group in range(kind.groups):
        # In four parts, which the processor adds side by side.
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for word in range(kind.words):
            bits = words[first + group * kind.words + word]
            count = min(SIGNS, kind.copies - word * SIGNS)
            bit = 0
            while bit + 4 <= count:
                a += _signed(sketch.product[place + bit], bits)
                b += _signed(sketch.product[place + bit + 1], bits >> _ONE)
                c += _signed(sketch.product[place + bit + 2], bits >> np.uint64(2))
                d += _signed(sketch.product[place + bit + 3], bits >> _3)
                bits >>= np.uint64(4)
                bit += 4
            while bit < count:
                a += _signed(sketch.product[place + bit], bits)
                bits >>= _ONE
                bit += 1
            place += count
        _keep_sorted(sketch.means, group, ((a + b) + (c + d)) / kind.copies)
    middle = kind.groups // 2
    if kind.groups % 2 == 1:
        return sketch.means[middle]
    return (sketch.means[middle - 1] + sketch.means[middle]) / 2


@kernel
def _signed(number, bits):  # type: ignore[no-untyped-def]
    return number * (1.0 - 2.0 * np.float64(bits & _ONE))


@kernel
def _keep_sorted(means, count, mean):  # type: ignore[no-untyped-def]
    """Put a mean among those so far, in their order."""
    place = count
    while place > 0 and means[place - 1] > mean:
        means[place] = means[place - 1]
        place -= 1
    means[place] = mean
