"""Amounts of memory, as people say them: `"500 MB"`, or a plain number of bytes."""

from __future__ import annotations

import re
from fractions import Fraction

from streamshed.arguments import positive
from streamshed.errors import SpecError

_UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
_BINARY = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
_KNOWN = {unit.lower(): size for unit, size in {**_UNITS, **_BINARY, "B": 1, "bytes": 1}.items()}
_SAID = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]+)\s*", re.ASCII | re.IGNORECASE)


def parse_bytes(said: object, what: str) -> int:
    """Read an amount of memory.

    Args:
        said: A string such as `"500 MB"` or `"1.5 GiB"`, or a whole number of bytes.
        what: What it is for, as it shall stand in an error message.

    Example:
        >>> parse_bytes("1.5 kB", "the budget")
        1500
    """
    if isinstance(said, str):
        found = _SAID.fullmatch(said)
        unit = _KNOWN.get(found[2].lower()) if found else None
        if found is None or unit is None:
            raise SpecError(
                f"{what} is {said!r}; give a number and a unit, as in '500 MB' or '2 GiB' (of"
                f" {', '.join([*_UNITS, *_BINARY])}), or a number of bytes"
            )
        return positive(int(Fraction(found[1]) * unit), what)
    return positive(said, what)


def describe_bytes(amount: int) -> str | int:
    """The amount as one would say it, exactly.

    Example:
        >>> describe_bytes(500_000_000), describe_bytes(1_234_567)
        ('500 MB', 1234567)
    """
    for unit, size in _UNITS.items():
        if amount % size == 0:
            return f"{amount // size} {unit}"
    return amount


def rounded(amount: int) -> str:
    """The amount in a unit that is easily read.

    Example:
        >>> rounded(1_234_567)
        '1.2 MB'
    """
    for unit, size in _UNITS.items():
        if amount >= size:
            return f"{amount / size:,.1f} {unit}"
    return f"{amount} bytes"
