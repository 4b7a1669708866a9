"""Lengths of time, as people say them: `"10 minutes"`, a timedelta, or a plain number.

A duration is kept as a `timedelta`, or as an `int` in the unit of an integer time column. Zero is
the same in every unit and always kept as 0.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from streamshed.arguments import integer
from streamshed.errors import SpecError, suggestion

Duration = timedelta | int

LIMIT = 2**62
"""No time and no length of time is beyond this, so that sums and differences fit 64 bits."""

_MICROSECOND = timedelta(microseconds=1)
_SPOKEN = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_SHORT = {
    "microsecond": "us",
    "millisecond": "ms",
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
}
_UNITS = _SPOKEN | {short: _SPOKEN[unit] for short, unit in _SHORT.items()}
# Symbols have no plural: "10 hs" or "5 uss" is a slip of the pen.
_UNITS |= {f"{unit}s": size for unit, size in _UNITS.items() if len(unit) > 2}
_MEANT = {"m": "min", "d": "day", "w": "week"}
"""What is meant by letters that are no units here, of which "m" could be several."""
_TERM = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([^\W\d]+)\s*", re.ASCII)


def parse(said: object, what: str = "the duration", *, signed: bool = False) -> Duration:
    """Read a duration.

    Args:
        said: A string such as `"1 hour 30 minutes"`, a timedelta, or a whole number in the unit of
            an integer time column.
        what: What the duration is for, as it shall stand in an error message.
        signed: Whether it may be negative, as the difference of two times may be.

    Example:
        >>> parse("1.5 minutes")
        datetime.timedelta(seconds=90)
        >>> parse("-2 s", signed=True) == -parse("2 s")
        True
        >>> parse(250)
        250
        >>> parse("10 parsecs", "the window")
        Traceback (most recent call last):
        streamshed.errors.SpecError: the window is '10 parsecs', but 'parsecs' is not a unit; \
use us, ms, second (s), minute (min), hour (h), day or week. Did you mean 'secs'?
    """
    if isinstance(said, str):
        found = _microseconds(said, what)
        return timedelta(microseconds=_checked(found, said, what, signed)) if found else 0
    if isinstance(said, timedelta):
        found = amount(said)
        return timedelta(microseconds=_checked(found, said, what, signed)) if found else 0
    number = integer(said)
    if number is None:
        raise SpecError(
            f"{what} is {said!r}, which is not a duration; give a string such as '10 minutes', "
            "a datetime.timedelta, or a whole number in the unit of an integer time column"
        )
    return _checked(number, said, what, signed)


def to_units(duration: Duration, time_is_timestamp: bool, what: str = "the duration") -> int:
    """The duration as a number: microseconds for timestamps, else the unit of the time column.

    Example:
        >>> to_units(parse("10 ms"), time_is_timestamp=True)
        10000
        >>> to_units(10, time_is_timestamp=False)
        10
        >>> to_units(10, time_is_timestamp=True, what="the window of stream 'a'")
        Traceback (most recent call last):
        streamshed.errors.SpecError: the window of stream 'a' is the bare number 10, but the time \
columns hold timestamps; say its unit, as in '10 seconds'
    """
    if isinstance(duration, timedelta):
        if not time_is_timestamp:
            raise SpecError(
                f"{what} is {describe(duration)!r}, but the time columns hold plain integers; "
                "give a number in their unit, or cast them to timestamps"
            )
        return amount(duration)
    if time_is_timestamp and duration != 0:
        raise SpecError(
            f"{what} is the bare number {duration}, but the time columns hold timestamps; "
            f"say its unit, as in '{duration} seconds'"
        )
    return duration


def amount(duration: Duration) -> int:
    """The duration as a number: of microseconds, or of the units that it was said in."""
    return duration // _MICROSECOND if isinstance(duration, timedelta) else duration


def describe(duration: Duration) -> str | int:
    """The duration as one would write it; `parse` reads it back.

    Example:
        >>> describe(parse("90 min"))
        '1 hour 30 minutes'
        >>> describe(250)
        250
        >>> describe(parse("-90 min", signed=True))
        '-1 hour 30 minutes'
    """
    if not isinstance(duration, timedelta):
        return duration
    if duration < timedelta(0):
        return f"-{describe(-duration)}"
    left = amount(duration)
    if left % _SPOKEN["week"] == 0:
        return _term(left // _SPOKEN["week"], "week")
    terms = []
    for unit, size in list(_SPOKEN.items())[1:]:
        number, left = divmod(left, size)
        if number:
            terms.append(_term(number, unit))
    return " ".join(terms)


def _term(number: int, unit: str) -> str:
    return f"{number} {unit}{'s' if number != 1 and unit not in ('ms', 'us') else ''}"


def _microseconds(said: str, what: str) -> int:
    text = said.strip().lower()
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text)
    total, position = Fraction(0), 0
    while term := _TERM.match(text, position):
        number, unit = term.groups()
        if unit not in _UNITS:
            close = f" Did you mean {_MEANT[unit]!r}?" if unit in _MEANT else ""
            raise SpecError(
                f"{what} is {said!r}, but {unit!r} is not a unit; use us, ms, second (s), minute "
                f"(min), hour (h), day or week.{close or suggestion(unit, _UNITS)}"
            )
        total += Fraction(number) * _UNITS[unit]
        position = term.end()
    if position == 0 or position < len(text):
        raise SpecError(
            f"{what} is {said!r}, which is not a duration; write numbers with units, as in "
            "'10 minutes' or '1 hour 30 minutes'"
        )
    if total.denominator != 1:
        raise SpecError(
            f"{what} is {said!r}, which is not a whole number of microseconds; round it"
        )
    return sign * int(total)


def _checked(found: int, said: object, what: str, signed: bool) -> int:
    if found < 0 and not signed:
        raise SpecError(f"{what} is {said!r}, which is negative; give 0 or more")
    if abs(found) > LIMIT:
        raise SpecError(
            f"{what} is {said!r}, which is beyond 2**62 units of time; give a shorter one"
        )
    return found
