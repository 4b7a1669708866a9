"""What the loop of a join works on besides its state: tuples, room to work, results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.core import NONE

NEXT, EMITTING, GROUPS, MIXED, SHIFT, SAMPLE_SHIFT, BEFORE, FACT, CHANGE, DEPTH, LOOKED = range(11)
CURSOR = 11

MADE, MEMBERS, LATECOMERS = range(3)
FILLED = 3


WEIGHTLESS: npt.NDArray[np.float64] = np.empty(0, np.float64)
PLAIN: npt.NDArray[np.uint64] = np.empty((0, 1), np.uint64)
AT_HOME: npt.NDArray[np.bool_] = np.empty(0, np.bool_)


class Batch(NamedTuple):
    """Tuples in the order of processing, as columns."""

    stream: npt.NDArray[np.int32]
    time: npt.NDArray[np.int64]
    hash: npt.NDArray[np.uint64]
    payload: npt.NDArray[np.int64]
    null: npt.NDArray[np.bool_]  # empty where no key and no time is null
    worth: npt.NDArray[np.int64]  # empty where the policy does not ask for it
    importance: npt.NDArray[np.float64] = WEIGHTLESS  # empty where results are not weighed
    hashes: npt.NDArray[np.uint64] = PLAIN  # of each attribute; empty where streams share a key
    visiting: npt.NDArray[np.bool_] = AT_HOME  # who probes only; empty where nobody does


GROUP = np.dtype(
    [
        ("start", np.int64),  # where the group's partners begin; they end where the next begin
        ("choice", np.int64),  # which partner is next
        ("row", np.int64),  # the partner chosen
    ],
    align=True,
)

RESULT = np.dtype(
    [
        ("time", np.int64),
        ("end", np.int64),
        ("update", np.int64),  # these two only where streams are told apart by a column
        ("extends", np.int64),  # NONE if it extends nothing
    ],
    align=True,
)


class Work(NamedTuple):
    """Room for the partners of the tuple being processed, in groups, one for each stream."""

    partners: npt.NDArray[np.int32]
    groups: npt.NDArray[Any]
    group_of: npt.NDArray[np.int32]  # by stream
    cursor: npt.NDArray[np.int64]


class Out(NamedTuple):
    """The bounded output buffer.

    A result of named streams takes one place for each stream (NONE where it has no member); one of
    streams told apart by a column takes as many as it has members.
    """

    payload: npt.NDArray[np.int64]
    results: npt.NDArray[Any]  # the time of each, and where its members end
    late: npt.NDArray[np.int64]  # positions in the batch
    filled: npt.NDArray[np.int64]


def work_room(rows: int, streams: int, by: bool) -> Work:
    """Room to work in for so many rows and streams."""
    return Work(
        np.empty(2 * rows if by else rows, np.int32),
        np.zeros(streams + 1, GROUP),
        np.full(streams, NONE, np.int32),
        np.zeros(CURSOR, np.int64),
    )


def out_room(results: int, width: int, tuples: int) -> Out:
    """An output buffer for so many results of a width, and the latecomers of so many tuples."""
    return Out(
        np.empty(results * width, np.int64),
        np.empty(results, RESULT),
        np.empty(tuples, np.int64),
        np.zeros(FILLED, np.int64),
    )
