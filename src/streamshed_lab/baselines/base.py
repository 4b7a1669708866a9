"""What the baselines have in common: how tuples go in, how results come out, and the disk.

With `memory`, no more entries than that are held when a tuple comes: when it is full, partitions
are flushed to files. What they would have made is made while no tuples come, by `revisit` (XJoin's
second, reactive stage), and at the end by `finish` (its third). From the first flush of a partition
on its rows are written to its file as they arrive; rows that no tuple to come can meet are left out
when it is read. A result was made in memory if each of its steps was: if the earlier of the two
that met was not flushed before the later came. Intermediate results of trees are written when they
are flushed, but not read again: they follow from the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import SEEK_END
from tempfile import TemporaryFile
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import Batch
from streamshed.engine.blocks import Block
from streamshed.engine.sink import MADE as WRITTEN
from streamshed.engine.sink import MEMBERS, allocate_buffer
from streamshed.errors import SpecError
from streamshed.kernels.core import NONE
from streamshed_lab.baselines.disk import SPOOLED, missed_results
from streamshed_lab.baselines.tables import (
    ARRIVED,
    ENTRY,
    HELD,
    MADE,
    NEXT,
    PROBES,
    USED,
    State,
    drop_all,
    larger,
    new_state,
    sweep,
    taken_out,
)

DONE, SUSPENDED, CROWDED, FULL = range(4)
"""Why a loop returns: all done; the output is full; the pool is; the memory is."""

RESULTS = 1 << 14
"""Results in the output buffer."""
PARTITIONS = 4
"""Bits of a hash that say its partition."""


@dataclass(frozen=True)
class Query:
    """What is joined: streams, numbered from 0, on equal keys within a window.

    Attributes:
        streams: how many.
        window: its length, in units of time.
        at_least: members of a result of variable arity; None for complete joins.
        room: rows of a stream that a window is expected to hold, for the size of hash tables.
        memory: entries of hash tables that may be held, or None for as many as there are.
        ordered_every: after how many tuples MJoin chooses the order of its probes anew.
        forms: whether MJoin forms the partial results of each probe, as figure 4 counts them.
        factorised: whether an arrival makes one output, the rows of all streams that it meets
            (step 5 of SNJoin), not all their combinations; of MJoin and SNJoin.
    """

    streams: int
    window: int
    at_least: int | None = None
    room: int = 1_024
    memory: int | None = None
    ordered_every: int = 1_024
    forms: bool = False
    factorised: bool = False

    def __post_init__(self) -> None:
        """Refuse what no baseline can do."""
        if self.memory is not None and self.at_least is not None:
            raise SpecError(
                f"a baseline with a memory of {self.memory} makes complete results only; leave "
                "`at_least` or `memory` out"
            )


class Baseline(ABC):
    """A join of many streams, one tuple after another.

    Args:
        query: what is joined.

    Example:
        >>> import numpy as np
        >>> from streamshed_lab.baselines import MJoin
        >>> from streamshed.engine.batch import Batch
        >>> nothing = np.empty(0, np.bool_), np.empty(0, np.int64)
        >>> same, hashes = np.zeros(2, np.int64), np.full(2, 7, np.uint64)
        >>> batch = Batch(np.array([0, 1], np.int32), same, hashes, np.array([5, 6]), *nothing)
        >>> [block.members.tolist() for block in MJoin(Query(2, 10)).process(batch)]
        [[5, 6]]
    """

    name: ClassVar[str]
    spills: ClassVar[bool] = True
    """Whether it can flush to disk."""

    def __init__(self, query: Query) -> None:
        if query.memory is not None and not self.spills:
            raise SpecError(f"{self.name} has no disk; leave `memory` ({query.memory}) out")
        self.query = query
        self.state = self._new_state()
        partial = query.at_least is not None
        width = 1 + query.streams // RESULTS if partial else query.streams
        self.out = allocate_buffer(RESULTS, max(4, width), 0, False)
        self.flushes: dict[tuple[int, int], list[int]] = {}  # by (table, partition): when
        self.first_flush: dict[int, int] = {}  # by partition
        self.disk_bytes = 0
        self._files: dict[int, Any] = {}  # by partition
        self._revisited: dict[int, int] = {}  # by partition: after how many arrivals
        self._late_results = 0

    @property
    @abstractmethod
    def tables(self) -> int:
        """How many hash tables there are."""

    @property
    def width(self) -> int:
        """Members that an entry of a table has, at most."""
        return 1

    @abstractmethod
    def _loop(self, batch: Batch) -> int:
        """Go on with a batch until it is done, or something is full."""

    @abstractmethod
    def _left(self, step: int) -> int:
        """The table whose entries meet the rows of a stream, for the rule of the disk."""

    @abstractmethod
    def _victims(self, held: npt.NDArray[np.int64]) -> tuple[int, int, int]:
        """The tables from one to another, and the partition, to flush.

        Args:
            held: entries by (table, partition).
        """

    def _new_state(self) -> State:
        query = self.query
        return new_state(
            query.streams, self.tables, query.window, query.at_least, self.width, query.room
        )

    @property
    def results(self) -> int:
        """Results made so far."""
        return int(self.state.numbers[MADE]) + self._late_results

    @property
    def probes(self) -> int:
        """Probes of hash tables so far."""
        return int(self.state.numbers[PROBES])

    @property
    def held(self) -> int:
        """Entries in hash tables."""
        return int(self.state.numbers[HELD])

    def process(self, batch: Batch) -> Iterator[Block]:
        """Take tuples in the order of time; results come in blocks as they are made."""
        arrived = int(self.state.numbers[ARRIVED])
        self._make_room(self.held + 1)
        status = None
        while status != DONE:
            self.out.filled[:] = 0
            status = self._loop(batch)
            if made := int(self.out.filled[WRITTEN]):
                yield Block(
                    self.out.results["time"][:made].copy(),
                    self.out.payload[: self.out.filled[MEMBERS]].copy(),
                    self.out.results["end"][:made].copy(),
                    (),
                )
            if status == CROWDED:
                self._clear(int(batch.time[self.state.numbers[NEXT]]))
            elif status == FULL:
                self._flush()
        self._spool(batch, arrived)

    def _make_room(self, entries: int) -> None:
        if entries > len(self.state.entries):
            self.state = larger(self.state, max(entries, 2 * len(self.state.entries), 1_024))

    def _clear(self, now: int) -> None:
        """Make room by a sweep, and if that does not help much, by growing."""
        before, room = self.held, len(self.state.entries)
        sweep(self.state, now)
        if self.held == before or 2 * self.held > room:
            self._make_room(2 * room)

    def rearrange(self, tables: npt.NDArray[np.int64], streams: int) -> None:
        """Go on with other streams.

        Args:
            tables: for each stream so far its new number; its rows are forgotten if that is NONE.
            streams: how many there are now.
        """
        old = self.state
        self.query = replace(self.query, streams=streams)
        self.state = self._new_state()
        self._make_room(len(old.entries))
        rows = old.entries[: old.numbers[USED]]
        order = np.flatnonzero(rows["table"] != NONE)
        order = order[np.argsort(rows["number"][order], kind="stable")]
        stream = tables[rows["table"][order]]
        order, stream = order[stream != NONE], stream[stream != NONE]
        nothing = np.empty(0, np.bool_), np.empty(0, np.int64)
        row = rows[order]
        again = Batch(
            stream.astype(np.int32),
            row["time"].copy(),
            row["hash"].copy(),
            old.members[order * old.settings.width],
            *nothing,
        )
        self._store(again)
        self.state.numbers[[MADE, PROBES]] = old.numbers[[MADE, PROBES]]
        if streams + 1 > self.out.payload.size:
            self.out = allocate_buffer(RESULTS, 1 + streams // RESULTS, 0, False)

    @abstractmethod
    def _store(self, batch: Batch) -> None:
        """Store rows without any probe."""

    # -- the disk --------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Let some entries go to disk."""
        entries = self.state.entries[: self.state.numbers[USED]]
        used = entries[entries["table"] != NONE]
        partition = (used["hash"] >> np.uint64(64 - PARTITIONS)).astype(np.int64)
        held = np.zeros((self.tables, 1 << PARTITIONS), np.int64)
        np.add.at(held, (used["table"], partition), 1)
        first, end, chosen = self._victims(held)
        gone = taken_out(self.state, chosen, PARTITIONS, np.array([first, end], np.int64))
        now = int(self.state.numbers[ARRIVED])
        for table in range(first, end):
            self.flushes.setdefault((table, chosen), []).append(now)
        self._write_first(chosen, now)
        # Rows of other tables stay in memory, and were or will be written by themselves.
        self.disk_bytes += len(gone) * ENTRY.itemsize
        drop_all(self.state, gone)

    def _write_first(self, partition: int, now: int) -> None:
        """Write all rows of a partition that is flushed for the first time."""
        if partition in self.first_flush:
            return
        self.first_flush[partition] = now
        entries = self.state.entries[: self.state.numbers[USED]]
        same = (entries["hash"] >> np.uint64(64 - PARTITIONS)) == np.uint64(partition)
        rows = np.flatnonzero(same & (entries["table"] >= 0))
        rows = rows[entries["table"][rows] < self.query.streams]
        width = self.state.settings.width
        stream = entries["table"][rows].astype(np.int64)
        place = stream if width > 1 else 0
        spooled = np.empty(len(rows), SPOOLED)
        spooled["hash"], spooled["time"] = entries["hash"][rows], entries["time"][rows]
        spooled["number"], spooled["stream"] = entries["number"][rows], stream
        spooled["payload"] = self.state.members[rows * width + place]
        self._write(spooled)

    def _spool(self, batch: Batch, arrived: int) -> None:
        """Write the rows of a batch that belong to partitions on disk."""
        if not self.first_flush:
            return
        since = np.full(1 << PARTITIONS, np.iinfo(np.int64).max, np.int64)
        since[list(self.first_flush)] = list(self.first_flush.values())
        number = np.arange(arrived, arrived + batch.time.size)
        chosen = number >= since[(batch.hash >> np.uint64(64 - PARTITIONS)).astype(np.int64)]
        spooled = np.empty(int(chosen.sum()), SPOOLED)
        spooled["number"] = number[chosen]
        for name in ("hash", "time", "payload", "stream"):
            spooled[name] = getattr(batch, name)[chosen]
        self._write(spooled)

    def _write(self, rows: npt.NDArray[Any]) -> None:
        partition = (rows["hash"] >> np.uint64(64 - PARTITIONS)).astype(np.int64)
        for number in np.unique(partition).tolist():
            if number not in self._files:
                self._files[number] = TemporaryFile()  # noqa: SIM115 - it stays open
            file = self._files[number]
            file.seek(0, SEEK_END)
            file.write(rows[partition == number].tobytes())
        self.disk_bytes += rows.nbytes

    def revisit(self) -> Iterator[Block]:
        """Make the results of tuples so far that the disk keeps back, while no tuples come."""
        rights = [self.flushes_of(step) for step in range(self.query.streams)]
        lefts = [self.flushes_of(self._left(step)) for step in range(1, self.query.streams)]
        arrived, window = int(self.state.numbers[ARRIVED]), self.query.window
        for partition, file in self._files.items():
            file.seek(0)
            rows = np.frombuffer(file.read(), SPOOLED)
            since = self._revisited.get(partition, 0)
            for time, members in missed_results(rows, window, PARTITIONS, lefts, rights, since):
                self._late_results += len(time)
                ends = np.arange(1, len(time) + 1) * self.query.streams
                yield Block(time, members, ends, ())
            self._revisited[partition] = arrived
            file.seek(0)
            file.truncate()
            file.write(rows[rows["time"] >= rows["time"].max(initial=0) - window].tobytes())

    def finish(self) -> Iterator[Block]:
        """Make all results that the disk has kept back; no tuples may come after it."""
        yield from self.revisit()
        for file in self._files.values():
            file.close()

    @property
    def late_results(self) -> int:
        """Results made of what was on disk."""
        return self._late_results

    def flushes_of(self, table: int) -> list[list[int]]:
        """When each partition of a table was flushed."""
        return [self.flushes.get((table, partition), []) for partition in range(1 << PARTITIONS)]
