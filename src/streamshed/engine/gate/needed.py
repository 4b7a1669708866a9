"""Which rows on disk can still be joined, with rows that wait there or with rows that come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import NO_NUMBERS
from streamshed.engine.gate.partitions import Flags, Partition, Records
from streamshed.engine.gate.spill_router import ENTERED, find_needed
from streamshed.kernels.core import ARRIVALS, BOUNDLESS, CLOCK, NEVER
from streamshed.plan.plan import Plan

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

Ints = npt.NDArray[np.int64]
Streams = npt.NDArray[np.int32]


class Horizon(NamedTuple):
    """Who is still to be joined with the rows of a partition, those that wait or come."""

    time: int
    """The oldest time that he may have, NEVER if any."""
    arrival: int
    """The number of the first of them."""


class RowWindows:
    """The row windows of all streams: they move by the rows of all partitions.

    Args:
        plan: the join.
    """

    def __init__(self, plan: Plan) -> None:
        self.by = plan.by is not None
        self.last: Ints = np.array([stream.last or 0 for stream in plan.streams], np.int64)
        self.present = bool(self.last.any())
        self.entered: Records = np.empty(0, ENTERED)
        """The rows that entered one, from the oldest on that may be in one, or on disk."""

    def enter(self, new: Records) -> None:
        """Let rows enter."""
        self.entered = np.concatenate([self.entered, new])

    def left_at(self, streams: Streams, arrivals: Ints) -> Ints:
        """The arrival by which each row has left its row window; BOUNDLESS if it has not yet."""
        found: Ints = np.full(len(streams), BOUNDLESS, np.int64)
        for stream in np.unique(streams).tolist():
            last = int(self.last[0 if self.by else stream])
            if last > 0:
                entered = self.entered["arrival"][self.entered["stream"] == stream]
                mine = streams == stream
                place = np.searchsorted(entered, arrivals[mine]) + last
                later = np.append(entered, BOUNDLESS)
                found[mine] = later[np.minimum(place, len(entered))]
        return found

    def leaving(
        self, streams: Streams, arrivals: Ints, partitions: list[Partition]
    ) -> tuple[Ints, Ints]:
        """Which rows leave in a visit of partitions, and the rows before which they do."""
        if not self.present:
            return NO_NUMBERS, NO_NUMBERS
        ends = np.cumsum([partition.size for partition in partitions])
        left_at, leaving, before = self.left_at(streams, arrivals), [], []
        for start, end in zip(np.append(0, ends[:-1]), ends, strict=True):
            at = start + np.searchsorted(arrivals[start:end], left_at[start:end])
            order = np.argsort(at, kind="stable")
            order = order[at[order] < end]
            leaving.append(start + order)
            before.append(at[order])
        return np.concatenate(leaving), np.concatenate(before)

    def forget_before(self, first: int) -> None:
        """Forget the rows that are in no row window, and came before an arrival."""
        streams = self.entered["stream"]
        order = np.argsort(streams, kind="stable")
        ends = np.searchsorted(streams[order], streams[order], side="right")
        lanes = np.zeros_like(streams) if self.by else streams
        kept = self.entered["arrival"] >= first
        kept[order] |= ends - np.arange(len(order)) <= self.last[lanes[order]]
        self.entered = self.entered[kept]

    def forget_streams(self, gone: Flags) -> None:
        """Forget streams that are gone: others may have their numbers."""
        self.entered = self.entered[~gone[self.entered["stream"]]]


class Needed:
    """Says which rows on disk can still be joined.

    Args:
        join: the join in memory.
        row_windows: those of its streams.
        sized: whether rows count by their bytes.
    """

    def __init__(self, join: Operator, row_windows: RowWindows, sized: bool) -> None:
        self.join, self.row_windows, self.sized = join, row_windows, sized
        windows = join.core.lanes["window"]
        self.shortest, self.longest = int(windows.min()), int(windows.max())

    def horizon(self, partition: Partition) -> Horizon:
        """Who may still be joined with rows of a partition."""
        numbers = self.join.core.numbers
        clock = int(numbers[CLOCK])
        coming = NEVER if clock == NEVER else clock - self.join.core.settings.late
        waiting = partition.waiting
        return Horizon(
            min([coming, *(piece.oldest for piece in waiting)]),
            waiting[0].first if waiting else int(numbers[ARRIVALS]),
        )

    def rows(self, known: Records, horizon: Horizon) -> Flags:
        """Which rows are within their windows together with one who is still to be joined."""
        core = self.join.core
        needed: Flags = np.ones(len(known), np.bool_)
        if horizon.time != NEVER:
            find_needed(core, known, horizon.time - core.lanes["window"], needed)
        if self.row_windows.present:
            left_at = self.row_windows.left_at(known["stream"], known["arrival"])
            needed &= left_at > horizon.arrival
        return needed

    def size_of(self, partition: Partition) -> int:
        """The size of the rows of a partition that can be joined with those that wait or come."""
        horizon = self.horizon(partition)
        size = 0
        for piece in partition.pieces():
            if self._within(horizon, piece.oldest):
                size += piece.taken
            else:
                known = piece.known()
                still = self.rows(known, horizon)
                size += int(known["size"][still].sum()) if self.sized else int(still.sum())
        return size

    def any_of(self, partition: Partition) -> bool:
        """Whether any row of a partition can be joined with those that wait or come."""
        horizon = self.horizon(partition)
        return any(
            self._within(horizon, piece.newest) or self.rows(piece.known(), horizon).any()
            for piece in reversed([*partition.pieces()])
        )

    def _within(self, horizon: Horizon, time: int) -> bool:
        """Whether a row of a time is within its window for sure, whichever that is."""
        near = horizon.time == NEVER or horizon.time - time <= self.shortest
        return near and not self.row_windows.present
