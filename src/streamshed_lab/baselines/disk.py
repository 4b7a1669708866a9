"""The results that were not made in memory, from rows that were written to disk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

SPOOLED = np.dtype(
    [
        ("hash", np.uint64),
        ("time", np.int64),
        ("payload", np.int64),
        ("number", np.int64),
        ("stream", np.int64),
    ]
)

Flushes = Sequence[Sequence[Sequence[int]]]
"""For each step, for each partition, before which arrivals it was flushed."""


def missed_results(
    rows: npt.NDArray[Any],
    window: int,
    partitions: int,
    lefts: Flushes,
    rights: Flushes,
    since: int = 0,
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Join rows, and leave out the results that were made in memory.

    Args:
        rows: as they were written.
        window: of the join.
        partitions: bits of a hash that say its partition.
        lefts: of the tables that the rows of streams 1, 2, … meet.
        rights: of the tables in which the rows of streams 0, 1, … are.
        since: which newest member a result has at least: others were made before.

    Yields:
        Times, and the payload of members, for each key that has missed any.
    """
    streams = len(rights)
    order = np.argsort(rows["hash"], kind="stable")
    cuts = np.flatnonzero(np.diff(rows["hash"][order])) + 1
    for same in np.split(order, cuts):
        key = rows[same]
        of_stream = [key[key["stream"] == stream] for stream in range(streams)]
        if key["number"].max() < since or not all(map(len, of_stream)):
            continue
        partition = int(key["hash"][0] >> np.uint64(64 - partitions))
        left = [step[partition] for step in lefts]
        right = [step[partition] for step in rights]
        found = [
            (max(int(row["time"]) for row in members), [int(row["payload"]) for row in members])
            for members in product(*of_stream)
            if max(int(row["number"]) for row in members) >= since
            and _within(members, window)
            and not _met(members, left, right)
        ]
        if found:
            yield (
                np.array([time for time, _ in found]),
                np.array([payload for _, members in found for payload in members]),
            )


def _within(members: Sequence[Any], window: int) -> bool:
    times = [int(row["time"]) for row in members]
    return max(times) - min(times) <= window


def _met(
    members: Sequence[Any], lefts: Sequence[Sequence[int]], rights: Sequence[Sequence[int]]
) -> bool:
    """Whether at every step the earlier one was in memory when the later came."""
    made = int(members[0]["number"])
    for step, row in enumerate(members[1:]):
        number = int(row["number"])
        kept = lefts[step] if made < number else rights[step + 1]
        if bisect_right(kept, min(made, number)) != bisect_right(kept, max(made, number)):
            return False
        made = max(made, number)
    return True
