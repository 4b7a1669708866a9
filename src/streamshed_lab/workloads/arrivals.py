"""When the rows of generated streams arrive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

SECOND = 1_000_000
"""Microseconds, the unit of all times here."""


def stream_names(streams: int) -> list[str]:
    """The names that generated streams go by.

    Examples:
        >>> stream_names(3)
        ['s1', 's2', 's3']
    """
    return [f"s{number + 1}" for number in range(streams)]


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


def regular_streams(keys: Sequence[Ints], rate: float) -> dict[str, pa.Table]:
    """Let the keys of each stream arrive at equal distances, the streams' beats interleaved.

    Args:
        keys: of each stream, in the order of their arrival.
        rate: rows per second of each stream.

    Examples:
        >>> streams = regular_streams([np.array([7, 8]), np.array([7, 9])], rate=10.0)
        >>> streams["s2"]["time"].cast("int64").to_pylist()
        [50000, 150000]
    """
    tables = {}
    for number, (name, arriving) in enumerate(zip(stream_names(len(keys)), keys, strict=True)):
        beats = np.arange(len(arriving), dtype=np.float64) + number / len(keys)
        tables[name] = pa.table({"key": arriving, "time": timestamps(on_the_beat(beats, rate))})
    return tables
