"""Budgets that follow the rows over the shards of a join: docs/meaning.md, *On Spark*."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.batch import Batch
from streamshed.engine.component import Component
from streamshed.engine.loop import evict_to_budget
from streamshed.kernels.core import BOUNDLESS, NEVER, NEWEST, Memory, Shape
from streamshed.kernels.merge import count_places, counting
from streamshed.plan.plan import MOMENTS, BudgetPart

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

PLACES = 256
"""Places of keys' hashes, in all shards together, by which rows are counted."""
SOME = 256
"""Moments of which the promises are found at once."""
EVEN = 0.1
"""What is divided evenly, so that a shard can show what it would make of more."""
TOO_LITTLE = 0.25
"""Parts stay until that of a shard would change by more than this, of an even part."""


class Counted(NamedTuple):
    """Rows by the moment after which they came and by the place of their keys.

    There may be several counts of one moment and place, which are to be added.
    """

    moments: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int32]
    """The number of each place, which goes by (input, shard, place in it)."""
    rows: npt.NDArray[np.int32]

    def as_rows(self) -> pa.RecordBatch:
        """The same as Arrow, a row for each count."""
        return pa.record_batch(self._asdict())

    @classmethod
    def of_rows(cls, told: pa.RecordBatch) -> Counted:
        """What `as_rows` has told."""
        return cls(*(column.to_numpy() for column in told.columns))

    @classmethod
    def concatenated(cls, parts: Iterable[Counted]) -> Counted:
        """All that is counted, by moment."""
        moments, cells, rows = map(np.concatenate, zip(*parts, strict=True))
        return cls(moments, cells, rows).chosen(np.argsort(moments, kind="stable"))

    def between(self, since: int, before: int | None = None) -> Counted:
        """What is counted from a moment on, of what is in order, and before another."""
        start = np.searchsorted(self.moments, since)
        end = None if before is None else np.searchsorted(self.moments, before)
        return self.chosen(slice(start, end))

    def chosen(self, which: slice | npt.NDArray[np.intp]) -> Counted:
        """Some of the counts."""
        return Counted(self.moments[which], self.cells[which], self.rows[which])

    def by_cell(self, cells: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The moments that have rows, and the rows in each of so many cells, added."""
        begins = self.begins()
        at, moments = np.cumsum(begins) - 1, self.moments[begins]
        rows = np.bincount(at * cells + self.cells, self.rows, len(moments) * cells)
        return moments, rows.astype(np.int64).reshape(-1, cells)

    def begins(self) -> npt.NDArray[np.bool_]:
        """Which are the first counts of a moment, of what is in order."""
        return np.append(True, self.moments[1:] != self.moments[:-1])[: len(self.moments)]

    @classmethod
    def of_cells(cls, moments: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> Counted:
        """What `by_cell` has added."""
        at, cells = np.nonzero(rows)
        return cls(moments[at], cells.astype(np.int32), rows[at, cells].astype(np.int32))


class Due(NamedTuple):
    """A moment at which the budgets of a shard change."""

    time: int
    budgets: list[int]


class NoArrays(NamedTuple):
    """There are none: the loop sees the budgets alone."""


def places_of(shards: int) -> int:
    """How many places each shard has."""
    return max(1, PLACES // shards)


def count_rows(
    position: int,
    hashed: npt.NDArray[np.uint64],
    no_key: npt.NDArray[np.bool_],
    time: npt.NDArray[np.int64],
    no_time: npt.NDArray[np.bool_],
    every: int,
    shards: int,
) -> Counted:
    """Count the rows of an input.

    Args:
        position: of the input.
        hashed: the hash of each key by which shards are found.
        no_key: which rows have no key; empty if all have one.
        time: of each row.
        no_time: which have no time; empty likewise.
        every: how far moments are apart.
        shards: how many there are.
    """
    places = places_of(shards)
    cells = np.array([position * shards * places, shards, places])
    counts = Counted(np.empty(len(time), np.int64), *np.empty((2, len(time)), np.int32))
    room = counting(shards * places)
    found = count_places(hashed, time, no_key, no_time, every, cells, room, counts)
    return counts.chosen(np.arange(found))  # a copy: the room is as large as the input


class BudgetParts(Component):
    """The budgets of a shard as time goes on.

    All shards are told the same rows, and so know the parts of all.

    Args:
        part: which part is this one's.
        shape: the room of the join's arrays; this has none of its own.
        memory: where they are.
    """

    prefix = "parts"

    def __init__(self, part: BudgetPart, shape: Shape, memory: Memory) -> None:
        super().__init__(shape, memory)
        self.part = part
        self.state = NoArrays()
        even = [1 / part.shards] * part.shards
        self.before, self.shares = even, even
        self.cells = shape.lanes, part.shards, places_of(part.shards)
        """How many streams there are, shards, and places of keys in each."""
        self.reached: int | None = None
        self.rows = Counted(np.empty(0, np.int64), *np.empty((2, 0), np.int32))
        self.due: list[Due] = []

    @property
    def budgets(self) -> list[int]:
        """The budgets of this shard now."""
        return [
            BOUNDLESS if whole is None else min(self._part(whole, of) for of in self._both)
            for whole in self.part.budgets
        ]

    @property
    def _both(self) -> tuple[list[float], list[float]]:
        return self.before, self.shares

    def _part(self, whole: int, shares: list[float]) -> int:
        """This shard's part of a budget: at least a row, and all together the whole."""
        rest, own = whole - self.part.shards, self.part.shard
        ends = [*np.rint(np.cumsum(shares) * rest).astype(int)[:-1].tolist(), rest]
        return 1 + int(ends[own] - (ends[own - 1] if own else 0))

    def begin_batch(self, counted: Iterable[Counted], newest: int) -> None:
        """See how the budgets change in a batch.

        Args:
            counted: the rows of the batch, of all shards.
            newest: the newest time of all of them, `NEVER` if there is none.
        """
        self.rows = Counted.concatenated([self.rows, *counted])
        if newest == NEVER or not self.rows.moments.size:
            return
        moments = self.rows.moments[self.rows.begins()]
        reached = int(moments[0]) if self.reached is None else self.reached
        self.reached = max(reached, newest // self.part.every)
        # At others there is nothing new of the last window.
        passed = np.unique(moments[:, None] + np.arange(1, MOMENTS + 2))
        passed = passed[(passed > reached) & (passed <= self.reached)]
        for start in range(0, len(passed), SOME):
            some = passed[start : start + SOME]
            for moment, promise in zip(some.tolist(), self._promises(some), strict=True):
                self._pass(moment, promise)
        lately = self.rows.between(self.reached - MOMENTS)
        self.rows = Counted.of_cells(*lately.by_cell(math.prod(self.cells)))

    def begin_with(self, counted: Iterable[Counted], newest: int) -> None:
        """See what all shards together begin with: nobody has to wait for what others give up.

        Args:
            counted: the rows of a savepoint, of all shards.
            newest: the newest time that was seen, `NEVER` if there is none.
        """
        self.begin_batch(counted, newest)
        self.due.clear()
        if self.reached is not None:
            [promise] = self._promises(np.array([self.reached + 1]))
            self.before = self.shares = self._wanted(promise)

    def _promises(self, moments: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """What shards promise by the rows of the window before each moment, by (moment, shard)."""
        lately = self.rows.between(int(moments[0]) - MOMENTS, int(moments[-1]))
        known, rows = lately.by_cell(math.prod(self.cells))
        of_window = np.zeros((len(moments), rows.shape[1]))
        for ago in range(1, MOMENTS + 1):
            counted = np.isin(moments - ago, known)
            of_window[counted] += rows[np.searchsorted(known, moments[counted] - ago)]
        return promises_of(of_window.reshape(-1, *self.cells), self.part.at_least)

    def _pass(self, moment: int, promise: npt.NDArray[np.float64]) -> None:
        """Go past a moment: who loses gives up its rows now, and who gains has to wait for one."""
        wanted = self._wanted(promise)
        if self.before == self.shares == wanted:
            return
        held = self.budgets
        self.before, self.shares = self.shares, wanted
        if self.budgets != held:
            self.due.append(Due(moment * self.part.every, self.budgets))

    def _wanted(self, promise: npt.NDArray[np.float64]) -> list[float]:
        """The shares of all shards by what they promise; as they are if they fit."""
        whole = float(promise.sum())
        if not whole:
            return self.shares
        even = EVEN / self.part.shards
        wanted = (even + (1 - EVEN) * promise / whole).tolist()
        change = max(abs(new - old) for new, old in zip(wanted, self.shares, strict=True))
        return wanted if change * self.part.shards > TOO_LITTLE else self.shares

    def changes(
        self, time: npt.NDArray[np.int64], null: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[int, Due]]:
        """Before which rows the budgets change, and how.

        Args:
            time: of each row, in the order in which they are processed.
            null: which rows take no part; empty if all do.
        """
        if not self.due:
            return
        newest = np.maximum.accumulate(np.where(null, NEVER, time) if null.size else time)
        while self.due:
            place = int(np.searchsorted(newest, self.due[0].time))
            if place == newest.size:
                return
            yield place, self.due.pop(0)

    def rest(self) -> Iterator[Due]:
        """The changes that are left at the end of a batch."""
        while self.due:
            yield self.due.pop(0)

    def save(self) -> dict[str, Any]:
        """What all shards know of the parts."""
        moments, rows = self.rows.by_cell(math.prod(self.cells))
        by_moment = zip(moments.tolist(), rows.reshape(-1, *self.cells).tolist(), strict=True)
        return {"shares": self._both, "reached": self.reached, "rows": [*by_moment]}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on with the parts that were saved; older states have none."""
        if saved:
            self.before, self.shares = saved["shares"]
            self.reached = saved["reached"]
            moments = np.array([moment for moment, _ in saved["rows"]], np.int64)
            rows = np.array([rows for _, rows in saved["rows"]], np.int64)
            self.rows = Counted.of_cells(moments, rows.reshape(len(moments), math.prod(self.cells)))


def between_changes(join: Operator, batch: Batch) -> Iterator[Batch]:
    """The rows of a batch between the moments at which a join's budgets change."""
    done = 0
    if join.parts is not None:
        for place, due in join.parts.changes(batch.time, batch.null):
            yield batch.part(done, place)
            _change(join, due)
            done = place
    yield batch.part(done, batch.time.size) if done else batch


def change_the_rest(join: Operator) -> None:
    """Change a join's budgets at the moments before the end of a batch to which no row came."""
    if join.parts is not None:
        for due in join.parts.rest():
            _change(join, due)


def _change(join: Operator, due: Due) -> None:
    """Keep to other budgets from a moment on; rows that it leaves behind go first."""
    numbers = join.core.numbers
    if numbers[NEWEST] != NEVER:
        numbers[NEWEST] = max(int(numbers[NEWEST]), due.time)
    join.core.pools["budget"] = due.budgets
    evict_to_budget(join.core, join.matcher.quiet, join.state)


def promises_of(rows: npt.NDArray[np.float64], at_least: int) -> npt.NDArray[np.float64]:
    """What shards promise by their rows, by (moment, shard).

    A place promises as many results as its rows have combinations of rows of so many streams.

    Args:
        rows: by (moment, stream, shard, place).
        at_least: the least number of members of a result.

    Examples:
        >>> rows = np.array([[[[4.0], [2.0]], [[9.0], [0.0]]]])
        >>> promises_of(rows, 2).tolist()
        [[36.0, 0.0]]
        >>> promises_of(rows, 1).tolist()
        [[49.0, 2.0]]
    """
    streams = rows.shape[1]
    # By the number of streams: those of some streams, and then with one more.
    combinations = [np.ones_like(rows[:, 0]), *np.zeros((streams, *rows[:, 0].shape))]
    for stream in range(streams):
        for members in range(stream + 1, 0, -1):
            combinations[members] += combinations[members - 1] * rows[:, stream]
    whole: npt.NDArray[np.float64] = np.sum(combinations[at_least:], axis=(0, -1))
    return whole
