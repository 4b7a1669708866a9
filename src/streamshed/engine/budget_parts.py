"""Budgets that follow the rows over the shards of a join: docs/meaning.md, *On Spark*."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.component import Component
from streamshed.kernels.core import BOUNDLESS, NEVER, Memory, Shape
from streamshed.kernels.merge import count_places, counting
from streamshed.plan.plan import MOMENTS, BudgetPart

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
        """The same as Arrow, in as few bytes as the numbers need: every shard is told all of it.

        A single row has what is the least of moments and cells, and lists of what else there is.
        """
        whole = self.chosen(np.argsort(self.moments, kind="stable"))
        begins = np.flatnonzero(whole.begins())
        moments = whole.moments[begins]
        since, first = (int(of.min()) if of.size else 0 for of in (moments, whole.cells))
        lists = {
            "gaps": np.diff(moments, prepend=since),
            "counts": np.diff(begins, append=len(whole.moments)),
            "cells": whole.cells - first,
            "rows": whole.rows,
        }
        told = {name: _as_list(values) for name, values in lists.items()}
        return pa.record_batch({"since": [since], "first": [first]} | told)

    @classmethod
    def of_rows(cls, told: pa.RecordBatch) -> Counted:
        """What `as_rows` has told."""
        since, first = (column[0].as_py() for column in told.columns[:2])
        gaps, counts, cells, rows = (column.flatten().to_numpy() for column in told.columns[2:])
        moments = np.repeat(since + np.cumsum(gaps, dtype=np.int64), counts)
        return cls(moments, cells.astype(np.int32) + np.int32(first), rows.astype(np.int32))

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

    def split(self, most: int) -> Iterator[Counted]:
        """The same in parts of so many counts at most, one moment after the other."""
        whole = self.chosen(np.argsort(self.moments, kind="stable"))
        for start in range(0, max(1, len(whole.moments)), most):
            yield whole.chosen(slice(start, start + most))

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


class Passed(NamedTuple):
    """What becomes of all shards at the moments that a batch passes."""

    times: npt.NDArray[np.int64]
    newest: npt.NDArray[np.int64]
    """By (moment, stream) the time that all shards know of each, `NEVER` if there is none."""
    shares: list[tuple[list[float], list[float]]]
    """By moment those of all shards before the moment, and after it."""


class NoArrays(NamedTuple):
    """There are none: the loop sees the budgets alone."""


def _as_list(values: npt.NDArray[np.integer[Any]]) -> pa.ListArray:
    """A list of numbers that are not negative, in a type as small as they allow."""
    narrow = values.astype(np.min_scalar_type(int(values.max(initial=0))))
    return pa.ListArray.from_arrays([0, len(values)], pa.array(narrow))


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
    """The budgets and the clock of a shard as time goes on.

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
        self.seen = [NEVER] * shape.lanes
        """The last moment after which rows of each stream came."""

    def apart(self) -> BudgetParts:
        """One that begins as this one does, to see what becomes of all shards."""
        return BudgetParts(self.part, self.shape, Memory())

    @property
    def budgets(self) -> list[int]:
        """The budgets of this shard now."""
        return [
            BOUNDLESS if whole is None else min(self._part(whole, of) for of in self._both)
            for whole in self.part.budgets
        ]

    @property
    def limits(self) -> list[int]:
        """Its limits in bytes now."""
        whole = self.part.nbytes
        own = BOUNDLESS if whole is None else min(self._part(whole, of) for of in self._both)
        return [own] * len(self.part.budgets)

    @property
    def _both(self) -> tuple[list[float], list[float]]:
        return self.before, self.shares

    def _part(self, whole: int, shares: list[float]) -> int:
        """This shard's part of a budget: at least a row, and all together the whole."""
        rest, own = whole - self.part.shards, self.part.shard
        ends = [*np.rint(np.cumsum(shares) * rest).astype(int)[:-1].tolist(), rest]
        return 1 + int(ends[own] - (ends[own - 1] if own else 0))

    def see(self, counted: Iterable[Counted], newest: int) -> Passed:
        """See what becomes of all shards in a batch.

        Args:
            counted: the rows of the batch, of all shards.
            newest: the newest time of all of them, `NEVER` if there is none.
        """
        self.rows = Counted.concatenated([self.rows, *counted])
        if newest == NEVER or not self.rows.moments.size:
            return Passed(np.empty(0, np.int64), np.empty((0, len(self.seen)), np.int64), [])
        moments = self.rows.moments[self.rows.begins()]
        reached = int(moments[0]) if self.reached is None else self.reached
        self.reached = max(reached, newest // self.part.every)
        # At others there is nothing new of the last window.
        passed = np.unique(moments[:, None] + np.arange(1, MOMENTS + 2))
        passed = passed[(passed > reached) & (passed <= self.reached)]
        known = self._known(passed)
        shares = []
        for start in range(0, len(passed), SOME):
            for promise in self._promises(passed[start : start + SOME]):
                self.before, self.shares = self.shares, self._wanted(promise)
                shares.append(self._both)
        lately = self.rows.between(self.reached - MOMENTS)
        self.rows = Counted.of_cells(*lately.by_cell(math.prod(self.cells)))
        return Passed(passed * self.part.every, known, shares)

    def take(self, passed: Passed) -> npt.NDArray[np.int64]:
        """What the loop is told of this shard at the moments that a batch passes."""
        told = np.full((len(passed.times) + 1, 1), BOUNDLESS)
        if not passed.shares:
            return told
        told[:-1, 0] = passed.times
        budgets = []
        for self.before, self.shares in passed.shares:
            budgets.append(self.budgets + self.limits)
        rest = np.hstack([passed.newest, np.array(budgets, np.int64)])
        return np.hstack([told, np.vstack([rest, rest[-1:]])])

    def begin_with(self, counted: Iterable[Counted], newest: int) -> None:
        """See what all shards together begin with: nobody has to wait for what others give up.

        Args:
            counted: the rows of a savepoint, of all shards.
            newest: the newest time that was seen, `NEVER` if there is none.
        """
        self.see(counted, newest)
        if self.reached is not None:
            [promise] = self._promises(np.array([self.reached + 1]))
            self.before = self.shares = self._wanted(promise)

    def _known(self, passed: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The time that all know of each stream at each moment: that of its last rows' moment."""
        known = np.full((len(passed), len(self.seen)), NEVER)
        streams = self.rows.cells // math.prod(self.cells[1:])
        for stream, before in enumerate(self.seen):
            moments = np.append(before, self.rows.moments[streams == stream])
            self.seen[stream] = int(moments.max())
            last = np.maximum.accumulate(moments)[np.searchsorted(moments[1:], passed)]
            known[:, stream] = np.where(last == NEVER, NEVER, last * self.part.every)
        return known

    def _promises(self, moments: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """What shards promise by the rows of the window before each moment, by (moment, shard)."""
        lately = self.rows.between(int(moments[0]) - MOMENTS, int(moments[-1]))
        known, rows = lately.by_cell(math.prod(self.cells))
        of_window = np.zeros((len(moments), rows.shape[1]))
        for ago in range(1, MOMENTS + 1):
            counted = np.isin(moments - ago, known)
            of_window[counted] += rows[np.searchsorted(known, moments[counted] - ago)]
        return promises_of(of_window.reshape(-1, *self.cells), self.part.at_least)

    def _wanted(self, promise: npt.NDArray[np.float64]) -> list[float]:
        """The shares of all shards by what they promise; as they are if they fit."""
        whole = float(promise.sum())
        if not whole:
            return self.shares
        even = EVEN / self.part.shards
        wanted = (even + (1 - EVEN) * promise / whole).tolist()
        change = max(abs(new - old) for new, old in zip(wanted, self.shares, strict=True))
        return wanted if change * self.part.shards > TOO_LITTLE else self.shares

    def save(self) -> dict[str, Any]:
        """What all shards know of the parts."""
        moments, rows = self.rows.by_cell(math.prod(self.cells))
        by_moment = zip(moments.tolist(), rows.reshape(-1, *self.cells).tolist(), strict=True)
        told = {"reached": self.reached, "rows": [*by_moment], "seen": self.seen}
        return told | {"shares": self._both}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on with the parts that were saved; older states have none."""
        if saved:
            self.before, self.shares = saved["shares"]
            self.reached = saved["reached"]
            self.seen = saved.get("seen", self.seen)
            moments = np.array([moment for moment, _ in saved["rows"]], np.int64)
            rows = np.array([rows for _, rows in saved["rows"]], np.int64)
            self.rows = Counted.of_cells(moments, rows.reshape(len(moments), math.prod(self.cells)))


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
