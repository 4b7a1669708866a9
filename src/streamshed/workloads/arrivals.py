"""When the rows of generated streams arrive."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

SECOND = 1_000_000
"""Microseconds, the unit of all times here."""


def on_the_beat(beats: npt.NDArray[np.float64], rate: float) -> Ints:
    """Microseconds of the given beats of a stream that has `rate` of them in a second.

    Examples:
        >>> on_the_beat(np.array([0.0, 1.0, 1.5]), rate=10.0).tolist()
        [0, 100000, 150000]
    """
    return np.rint(beats * (SECOND / rate)).astype(np.int64)


def timestamps(microseconds: Ints) -> pa.Array:
    """Turn microseconds since 1970 into an Arrow column.

    Examples:
        >>> timestamps(np.array([1_500_000])).type
        TimestampType(timestamp[us, tz=UTC])
    """
    return pa.array(microseconds).cast(pa.timestamp("us", "UTC"))
