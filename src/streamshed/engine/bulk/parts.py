"""Rows of several inputs, merged in the order of time straight into parts by the hash of the key.

The tables of a part fit the second-level cache of a core, so that parts are joined one by one, or
side by side. In a part rows keep their order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.intrinsics import int_at, long_at
from streamshed.kernels.merge import (
    HASH,
    PAYLOAD,
    STREAM,
    TIME,
    begin_race,
    find_order,
    take_row,
)

PART_KEY = np.dtype([("hash", np.uint64), ("time", np.int64)], align=True)
PART_ROW = np.dtype([("payload", np.int64), ("rank", np.int32), ("stream", np.int32)], align=True)
"""A row of a part, in two arrays; `rank` is its place in the order of arrival."""


class Parts(NamedTuple):
    """Rows in parts; `time` and `stream` are by rank."""

    time: npt.NDArray[np.int64]
    stream: npt.NDArray[np.uint8]
    keys: npt.NDArray[Any]
    rows: npt.NDArray[Any]
    starts: list[int]


@loop
def count_parts(hashed, bits, counts):  # type: ignore[no-untyped-def]
    """Count the rows of each part, in two rows of counts by turns: one waits for the other."""
    shift = np.uint64(64 - bits)
    for i in range(hashed.size):
        counts[i & 1, np.int64(hashed[i] >> shift)] += 1


@loop
def put_in_parts(runs, race, rank, bits, begins, time, stream, keys, rows):  # type: ignore[no-untyped-def]
    """Merge runs, and put their rows into parts, from where each part begins.

    Args:
        runs: the rows of a span.
        race: room to merge them.
        rank: of the first row.
        bits: of the hash, which tell the parts apart.
        begins: by part, where its next row goes.
        time: takes the times by rank.
        stream: takes the streams by rank.
        keys: takes hashes and times by part.
        rows: takes what else there is of rows by part.
    """
    shift = np.uint64(64 - bits)
    if runs.starts.size == 1:
        for row in range(runs.starts[0], runs.ends[0]):
            _put(runs.columns[0], row, rank, shift, begins, time, stream, keys, rows)
            rank += 1
        return
    end = rank + begin_race(race, runs)
    while rank < end:
        for i in range(find_order(race, runs, end - rank)):
            run = np.int64(race.next[i])
            row = take_row(race, run)
            _put(runs.columns[run], row, rank, shift, begins, time, stream, keys, rows)
            rank += 1


@kernel
def _put(columns, row, rank, shift, begins, time, stream, keys, rows):  # type: ignore[no-untyped-def]
    """Put a row of a run into its part."""
    hashed = np.uint64(long_at(columns[HASH], row))
    own, own_time = int_at(columns[STREAM], row), long_at(columns[TIME], row)
    stream[rank] = own
    time[rank] = own_time
    part = np.int64(hashed >> shift)
    place = begins[part]
    begins[part] = place + 1
    keys[place].hash = hashed
    keys[place].time = own_time
    rows[place].payload = long_at(columns[PAYLOAD], row)
    rows[place].rank = rank
    rows[place].stream = own
