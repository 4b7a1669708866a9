"""What the loop works on besides its state: the rows to process, and room for their partners."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.core import BOUNDLESS, NONE

# The cursor: where the loop is, so that it can be left and entered again within a row's results.
NEXT, AT, STAGE, GROUPS, MIXED, DEPTH, LOOKED, BEFORE, FACT, CHANGE, SHIFT, MET = range(12)
MOST, MOMENT = range(12, 14)
CURSOR = 14
"""The next row of the batch; the row at hand, and how far it has come; its groups of partners, and
whether some are newer than it; the depth of the search; the rows looked at; the results, or
comparisons, before it; the fact through which partners are sought; the next change of the
relation; how far hashes are shifted to be places in the table; whether it has made a result;
the most partners that were collected at once; and the next of the moments to pass."""

IDLE, TAKEN, PROBED = range(3)
"""Stages of the row at hand: there is none; it was taken; it arrived, and its results are made."""

UNWEIGHTED: npt.NDArray[np.float64] = np.empty(0, np.float64)
NO_ATTRIBUTES: npt.NDArray[np.uint64] = np.empty((0, 1), np.uint64)
NO_FLAGS: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
NO_NUMBERS: npt.NDArray[np.int64] = np.empty(0, np.int64)
NO_VALUES: npt.NDArray[Any] = np.empty(0, np.float64)
NO_MOMENTS: npt.NDArray[np.int64] = np.full((1, 1), BOUNDLESS, np.int64)


class Batch(NamedTuple):
    """Rows in the order of processing, as columns."""

    stream: npt.NDArray[np.int32]
    time: npt.NDArray[np.int64]
    hash: npt.NDArray[np.uint64]
    payload: npt.NDArray[np.int64]
    null: npt.NDArray[np.bool_]  # empty where no key and no time is null
    worth: npt.NDArray[np.int64]  # empty where the policy does not ask for it
    importance: npt.NDArray[np.float64] = UNWEIGHTED  # empty where rows are not weighted
    hashes: npt.NDArray[np.uint64] = NO_ATTRIBUTES  # by attribute; empty where streams share a key
    visiting: npt.NDArray[np.bool_] = NO_FLAGS  # who probes only; empty where nobody does
    size: npt.NDArray[np.int64] = NO_NUMBERS  # its bytes; empty where the budget is in rows
    values: npt.NDArray[Any] = NO_VALUES  # what a condition compares; empty where there is none

    @classmethod
    def empty(cls, like: Batch | None = None) -> Batch:
        """A batch without rows, of the same types as another."""
        if like is not None:
            return cls._make(owned(column[:0]) for column in like)
        return cls(
            np.empty(0, np.int32),
            np.empty(0, np.int64),
            np.empty(0, np.uint64),
            np.empty(0, np.int64),
            NO_FLAGS,
            NO_NUMBERS,
        )

    def part(self, start: int, end: int) -> Batch:
        """The rows from a position to another, as the compiled loop takes them."""
        return Batch._make(owned(column[start:end]) for column in self)


def owned(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The column as the compiled loop knows it: numba takes a read-only array for another type."""
    return np.require(column, requirements=["C", "W"])


GROUP = np.dtype(
    [
        ("start", np.int64),  # where the group's partners begin; they end where the next begin
        ("choice", np.int64),  # which partner is next
        ("row", np.int64),  # the partner chosen
    ],
    align=True,
)


class Work(NamedTuple):
    """Room for the partners of the row at hand, in groups, one for each stream."""

    partners: npt.NDArray[np.int32]
    groups: npt.NDArray[Any]
    group_of: npt.NDArray[np.int32]  # by stream
    cursor: npt.NDArray[np.int64]
    moments: npt.NDArray[np.int64] = NO_MOMENTS
    """What a shard is told of a batch: by moment its time, the newest time of each lane in all
    shards, and the budgets and limits of pools from then on. The last is never reached."""


def allocate_work(rows: int, streams: int, by: bool) -> Work:
    """Room to work in for so many rows and streams."""
    return Work(
        np.empty(2 * rows if by else rows, np.int32),
        np.zeros(streams + 1, GROUP),
        np.full(streams, NONE, np.int32),
        np.zeros(CURSOR, np.int64),
    )
