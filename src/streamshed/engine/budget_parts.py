"""Budgets that follow the rows over the shards of a join: docs/meaning.md, *On Spark*."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.batch import Batch
from streamshed.engine.component import Component
from streamshed.engine.loop import evict_to_budget
from streamshed.kernels.core import BOUNDLESS, NEVER, NEWEST, Memory, Shape
from streamshed.kernels.merge import count_places
from streamshed.plan.plan import MOMENTS, BudgetPart

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

PLACES = 256
"""Places of keys' hashes, in all shards together, by which rows are counted."""
MOST_MOMENTS = 256
"""Moments of which rows are counted that are read at once."""
EVEN = 0.1
"""What is divided evenly, so that a shard can show what it would make of more."""
TOO_LITTLE = 0.25
"""Parts stay until that of a shard would change by more than this, of an even part."""


class Counted(NamedTuple):
    """Rows of an input, by the moment after which they came and by the place of their keys."""

    position: int
    moments: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    """By (moment, shard, place)."""

    def as_rows(self) -> pa.RecordBatch:
        """The same as Arrow, a row for each moment and shard."""
        moments, shards, places = self.rows.shape
        rows = pa.FixedSizeListArray.from_arrays(pa.array(self.rows.ravel()), places)
        positions = pa.array(np.full(moments * shards, self.position))
        return pa.record_batch(
            {"position": positions, "moment": np.repeat(self.moments, shards), "rows": rows}
        )

    @classmethod
    def of_rows(cls, told: pa.RecordBatch, shards: int) -> Counted:
        """What `as_rows` has told of so many shards."""
        rows = told["rows"].flatten().to_numpy().reshape(-1, shards, places_of(shards))
        moments = told["moment"].to_numpy()[::shards]
        return cls(told["position"][0].as_py() if len(moments) else 0, moments, rows)


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
    moments = np.empty(MOST_MOMENTS, np.int64)
    rows = np.zeros((MOST_MOMENTS, shards, places_of(shards)), np.int64)
    cells = np.array(rows.shape[1:])
    found = count_places(hashed, time, no_key, no_time, every, cells, moments, rows)
    return Counted(position, moments[:found], rows[:found])


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
        self.reached: int | None = None
        self.rows: dict[int, npt.NDArray[np.int64]] = {}
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
        for position, moments, rows in counted:
            for moment, cells in zip(moments.tolist(), rows, strict=True):
                if self.reached is None or moment >= self.reached:
                    nothing = np.zeros((self.shape.lanes, *cells.shape), np.int64)
                    self.rows.setdefault(moment, nothing)[position] += cells
        if newest == NEVER or not self.rows:
            return
        reached = min(self.rows) if self.reached is None else self.reached
        self.reached = max(reached, newest // self.part.every)
        for moment in sorted({m + later for m in self.rows for later in range(1, MOMENTS + 2)}):
            if reached < moment <= self.reached:
                self._pass(moment)
        since = self.reached - MOMENTS
        self.rows = {moment: rows for moment, rows in self.rows.items() if moment >= since}

    def _pass(self, moment: int) -> None:
        """Go past a moment: who loses gives up its rows now, and who gains has to wait for one."""
        wanted = self._wanted(moment)
        if self.before == self.shares == wanted:
            return
        held = self.budgets
        self.before, self.shares = self.shares, wanted
        if self.budgets != held:
            self.due.append(Due(moment * self.part.every, self.budgets))

    def _wanted(self, moment: int) -> list[float]:
        """The shares of all shards by the rows of the last window; as they are if they fit."""
        lately = [m for m in range(moment - MOMENTS, moment) if m in self.rows]
        if not lately:
            return self.shares
        wanted = shares_of(np.add.reduce([self.rows[m] for m in lately]))
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
        rows = [(moment, rows.tolist()) for moment, rows in self.rows.items()]
        return {"shares": self._both, "reached": self.reached, "rows": rows}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on with the parts that were saved; older states have none."""
        if saved:
            self.before, self.shares = saved["shares"]
            self.reached = saved["reached"]
            self.rows = {moment: np.array(rows, np.int64) for moment, rows in saved["rows"]}


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


def shares_of(rows: npt.NDArray[np.int64]) -> list[float]:
    """The shares of shards by what their rows promise.

    A place promises as many results as its rows in all streams have combinations.

    Args:
        rows: by (stream, shard, place).

    Examples:
        >>> shares_of(np.array([[[4], [2]], [[9], [0]]]))
        [0.95, 0.05]
    """
    shards = rows.shape[1]
    promise = rows.astype(np.float64).prod(axis=0).sum(axis=1)
    whole = float(promise.sum()) or 1.0
    even = EVEN if promise.any() else 1.0
    return [even / shards + (1 - even) * float(one) / whole for one in promise]
