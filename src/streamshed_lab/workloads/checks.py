"""Refusing parameters that make no sense, in one way for all workloads."""

from __future__ import annotations

from streamshed.errors import StreamshedError


def require(condition: bool, name: str, value: object, expected: str) -> None:
    """Raise unless a parameter is as it should be.

    Args:
        condition: what must hold.
        name: of the parameter.
        value: that was given.
        expected: what would have been right, to complete "… must be".

    Raises:
        StreamshedError: naming the parameter, the value and what was expected.

    Examples:
        >>> require(False, "rate", -1, "more than 0")
        Traceback (most recent call last):
        ...
        streamshed.errors.StreamshedError: rate must be more than 0, got -1
    """
    if not condition:
        raise StreamshedError(f"{name} must be {expected}, got {value!r}")
