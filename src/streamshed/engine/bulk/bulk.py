"""The exact join of rows that are all at hand, in the order of time, on all cores.

Where nothing is shed and no row comes late, what the loop removes row by row need not be removed:
it is too old to be met. So many rows are joined at once, in parts by the hash of a shared key
(`streamshed.engine.bulk.by_key`), or in spans of time (`streamshed.engine.bulk.by_equalities`).
What the loop would have counted is counted by the clock alone.
"""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import NO_FLAGS, Batch
from streamshed.engine.bulk.expiry import ENTERED, GONE, MOST, count_rows, windows_of
from streamshed.engine.bulk.runs import Group, chosen, has_rows, rows_of, since
from streamshed.engine.ingest import InputRows
from streamshed.kernels.core import (
    ARRIVALS,
    ARRIVED,
    EXPIRED,
    FATES,
    FILTERED,
    PEAK,
    STORED,
)

if TYPE_CHECKING:
    from streamshed.engine.blocks import Block
    from streamshed.engine.operator import Operator
    from streamshed.plan.plan import Plan

PART = 1 << 16
"""Rows that are joined by one thread in one go: the table of their keys fits its cache."""
AT_ONCE = 1 << 22
"""Rows that are joined at once, unless the windows hold more."""
FEW = 1 << 16
"""Up to so many rows threads cost more than they save."""
BLOCK = 1 << 16
"""Results that are handed out at once."""
SPARE_BYTES = 1 << 28
"""The most memory that stays for the next join."""


def joins_at_once(plan: Plan) -> bool:
    """Whether a join can be done in bulk: exact, complete, by equal values, in time windows."""
    restricted = plan.bounded or plan.bounds or plan.unmatched or plan.first or plan.at_least
    gated = plan.spill or plan.throttle or plan.queue or plan.weighed or plan.factorised
    timed = all(stream.time is not None and stream.last is None for stream in plan.streams)
    named = plan.by is None and len(plan.streams) > 1
    equal = plan.through is None and plan.pairwise is None and is_connected(plan)
    return not restricted and not gated and timed and named and equal


def is_connected(plan: Plan) -> bool:
    """Whether each stream shares an attribute with another one, and so on to all of them."""
    if not plan.graph:
        return True
    reached = {*plan.streams[0].attributes}
    for _ in plan.streams:
        for stream in plan.streams:
            if reached & {*stream.attributes}:
                reached |= {*stream.attributes}
    return all(reached & {*stream.attributes} for stream in plan.streams)


def cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Workspace:
    """Arrays that are used again: the pages of new memory cost more than the work on them.

    They stay for the next join of the process, unless that would hold too much memory.
    """

    def __init__(self) -> None:
        try:
            self.kept: dict[str, npt.NDArray[Any]] = _SPARE.pop()
        except IndexError:
            self.kept = {}

    def empty(self, name: str, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The array of a name, with so many elements of any value."""
        kept = self.kept.get(name)
        if kept is None or kept.size < size:
            self.kept.pop(name, None)
            kept = self.kept[name] = _in_small_pages(size, np.dtype(dtype))
        return kept[:size]

    def close(self) -> None:
        """Leave the arrays to the next join, which may need other ones or none."""
        kept, self.kept = self.kept, {}
        if kept and sum(array.nbytes for array in kept.values()) <= SPARE_BYTES:
            _SPARE.append(kept)


def _in_small_pages(size: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array in memory of its own.

    NumPy asks for large pages, which a virtual machine may have returned to its host while they
    were free: to get them again takes up to forty times as long as it does otherwise.
    """
    memory = mmap.mmap(-1, max(1, size * kind.itemsize), access=mmap.ACCESS_COPY)
    with suppress(AttributeError, OSError):  # of systems that have no large pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind, size)


_SPARE: deque[dict[str, npt.NDArray[Any]]] = deque(maxlen=1)
"""The arrays of the last join that ended; of joins in several threads one takes them."""


class Bulk(ABC):
    """Joins rows in the order of time, many at once.

    Args:
        operator: the join, whose clock and accounts are kept.
        threads: how many threads work; by default one for each core.
        part: the rows of a part or, at least, of a span.
        at_once: rows that are joined at once at least.
    """

    def __init__(
        self, operator: Operator, threads: int = 0, part: int = PART, at_once: int = AT_ONCE
    ) -> None:
        self.operator = operator
        self.lanes = len(operator.plan.streams)
        self.threads, self.part, self.at_once = threads or cores(), part, at_once
        self.pool: ThreadPoolExecutor | None = None
        self.windows = windows_of(operator.core.lanes["window"])
        self.expired = np.zeros(self.windows.lengths.size, np.int64)
        self.tally = np.zeros((self.lanes, 3), np.int64)
        self.carried: list[Group] = []
        self.pending: list[Group] = []
        self.workspace = Workspace()
        self.bytes_used = 0

    @abstractmethod
    def arrange(self, groups: list[Group]) -> Any:
        """The rows of all groups, one after the other, as they are joined; with their columns."""

    @abstractmethod
    def results(self, rows: Any, known: int) -> Iterator[Block]:
        """The results of rows that begin with those that are known."""

    def process(self, rows: Batch | Sequence[InputRows]) -> Iterator[Block]:
        """Take rows; the results of those that have waited come once there are many.

        Args:
            rows: in one order, or those of several inputs, which are merged here.
        """
        runs = [rows] if isinstance(rows, Batch) else rows
        self.pending.append([*filter(has_rows, map(self._without_nulls, runs))])
        if rows_of(self.pending) >= max(self.at_once, rows_of(self.carried)):
            yield from self.flush()

    def finish(self) -> Iterator[Block]:
        """Join the rows that still wait; no more will come."""
        yield from self.flush()

    def close(self) -> None:
        """Let the threads end, and leave the memory to the next join."""
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None
        self.workspace.close()

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Do some work on each item, on all threads; the outcomes are in the items' order."""
        if len(items) < 2 or self.pool is None:
            return [work(item) for item in items]
        return [*self.pool.map(work, items)]

    @property
    def workers(self) -> int:
        """How many threads there are at present."""
        return 1 if self.pool is None else self.threads

    def begin(self, rows: int) -> None:
        """Start threads if there are rows for them."""
        if rows > FEW and self.pool is None and self.threads > 1:
            self.pool = ThreadPoolExecutor(self.threads)

    def flush(self) -> Iterator[Block]:
        """Join the rows that wait with each other, and with those of before that can be met."""
        groups, known = [*self.carried, *self.pending], rows_of(self.carried)
        self.pending = []
        self.begin(rows_of(groups))
        rows = self.arrange(groups)
        # The clock goes by one row after the other; beside it the rows are joined.
        clock = self._start(
            count_rows,
            self.operator.core,
            rows.time,
            rows.stream,
            known,
            self.windows,
            self.expired,
            self.tally,
        )
        yield from self.results(rows, known)
        clock()
        self._write_accounts(rows.time.size - known)
        self._carry(groups, rows.time)

    def _start(self, work: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        """Let some work begin beside what follows; returns what waits for it."""
        if self.pool is None:
            work(*arguments)
            return lambda: None
        return self.pool.submit(work, *arguments).result

    def _carry(self, groups: list[Group], time: npt.NDArray[np.int64]) -> None:
        """Keep the rows that those to come may meet."""
        first = int(self.expired.min())
        self.expired -= first
        self.carried = since(groups, time[first]) if first < time.size else []

    # -- accounts --------------------------------------------------------------------------------

    def _without_nulls(self, rows: InputRows | Batch) -> InputRows | Batch:
        """The rows that can take part in the join; the others are filtered, and counted here."""
        if not rows.null.size or not rows.null.any():
            return rows._replace(null=NO_FLAGS)
        core, streams = self.operator.core, rows.stream[rows.null]
        found = np.bincount(streams, minlength=self.lanes)
        counts = core.counts.reshape(-1, FATES)
        counts[:, ARRIVED] += found
        counts[:, FILTERED] += found
        core.numbers[ARRIVALS] += len(streams)
        return chosen(rows._replace(null=NO_FLAGS), ~rows.null)

    def _write_accounts(self, arrived: int) -> None:
        """Write into the accounts of the join what was counted."""
        core, tally = self.operator.core, self.tally
        counts = core.counts.reshape(-1, FATES)
        core.numbers[ARRIVALS] += arrived
        counts[:, STORED] = tally[:, ENTERED] - tally[:, GONE]
        counts[:, EXPIRED] = tally[:, GONE]
        counts[:, PEAK] = tally[:, MOST]
        counts[:, ARRIVED] = tally[:, ENTERED] + counts[:, FILTERED]
