"""The rows on disk, by partition: which of them were joined, and which still wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.batch import NO_FLAGS, NO_NUMBERS, UNWEIGHTED, Batch
from streamshed.engine.bulk.bulk import Workspace
from streamshed.engine.bulk.parts import PART_KEY, PART_ROW, Parts
from streamshed.engine.checkpoint import Fetch
from streamshed.engine.gate.disk import Disk, DiskFile
from streamshed.engine.gate.spill_router import (
    AWAY,
    FIRST,
    PARTITIONS,
    WAITING,
    read_back,
    read_into_part,
)
from streamshed.engine.payload import PLACE_BITS, Payload
from streamshed.kernels.core import NEVER

Flags = npt.NDArray[np.bool_]
Records = npt.NDArray[Any]
"""What is known of rows: `AWAY`."""
NO_STREAMS: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
BYTES = np.dtype((np.void, AWAY.itemsize))
"""The same as mere bytes."""


@dataclass(eq=False)
class Piece:
    """Some rows of a partition in a file, in the order of their arrival."""

    file: DiskFile
    rows: slice | npt.NDArray[np.int64]
    size: int
    taken: int
    """What its rows take of a budget: their number, or bytes."""
    oldest: int
    newest: int
    """The least and the largest time of the rows."""
    first: int
    """The arrival number of the first."""

    @classmethod
    def of(cls, file: DiskFile, rows: slice | npt.NDArray[np.int64]) -> Piece:
        """Some rows of a file."""
        known = file.known[rows]
        times = known["time"]
        oldest, newest, first = int(times.min()), int(times.max()), int(known["arrival"][0])
        return cls(file, rows, len(known), taken_by(known), oldest, newest, first)

    @property
    def measured(self) -> tuple[int, ...]:
        """What is known of the rows without their file."""
        return self.size, self.taken, self.oldest, self.newest, self.first

    def known(self) -> Records:
        """What is known of the rows; not where they are."""
        return self.file.known[self.rows]

    def only(self, kept: Flags, gone: list[Records]) -> list[Piece]:
        """What is left of the piece without some of its rows, which are told to those gone."""
        if kept.all():
            return [self]
        gone.append(self.known()[~kept])
        rows = np.arange(len(self.file.known))[self.rows][kept]
        return [Piece.of(self.file, rows)] if len(rows) else []


@dataclass
class Partition:
    """What is on disk of a partition."""

    joined: list[Piece] = field(default_factory=list)
    """Rows that were joined with all that came before them."""
    waiting: list[Piece] = field(default_factory=list)
    """Rows that came later, and were not."""

    def pieces(self) -> Iterator[Piece]:
        """All of it, in the order of arrival."""
        return chain(self.joined, self.waiting)

    @property
    def size(self) -> int:
        """All rows of it."""
        return sum(piece.size for piece in self.pieces())


@dataclass
class Partitions:
    """All that is on disk."""

    disk: Disk
    payload: list[Payload]
    """The users' rows, as mapped: a segment of each input is the part of the file of its number."""
    of: list[Partition] = field(default_factory=lambda: [Partition() for _ in range(PARTITIONS)])

    def put(
        self,
        rows: Records,
        users: Sequence[pa.RecordBatch],
        pieces: npt.NDArray[Any],
        joined: Flags,
    ) -> None:
        """Write rows to disk.

        Args:
            rows: what is known of them, by partition, then by arrival.
            users: the users' rows of each input, in the same order.
            pieces: for each partition its rows: `PIECE`.
            joined: for each partition whether its rows were joined.
        """
        file = self.disk.write(rows, users)
        for number in np.flatnonzero(pieces["end"] > pieces["start"]).tolist():
            start, end, *known = pieces[number].item()
            partition = self.of[number]
            done = partition.joined if joined[number] else partition.waiting
            done.append(Piece(file, slice(start, end), end - start, *known))

    def _base(self, file: DiskFile) -> int:
        """Let users' rows of a file be taken; returns the place of the first."""
        for payload, rows in zip(self.payload, file.rows, strict=True):
            if file.number not in payload.segments:
                payload.segments[file.number] = rows
        return file.number << PLACE_BITS

    @property
    def rows(self) -> int:
        """Rows on disk."""
        return sum(piece.size for piece in self.pieces())

    def longest_waiting(self) -> list[int]:
        """The partitions of which rows wait to be joined, those that have waited longest first."""
        waiting = [number for number, partition in enumerate(self.of) if partition.waiting]
        return sorted(waiting, key=lambda number: self.of[number].waiting[0].first)

    def known(self, pieces: Iterable[Piece]) -> Records:
        """What is known of the rows of some pieces, and where the users' rows are."""
        pieces = list(pieces)
        rows = np.empty(sum(piece.size for piece in pieces), AWAY)
        as_bytes = rows.view(BYTES)  # numpy copies records field by field
        start = 0
        for piece in pieces:
            as_bytes[start : start + piece.size] = piece.file.known.view(BYTES)[piece.rows]
            start += piece.size
        sizes = [piece.size for piece in pieces]
        rows["payload"] += np.repeat([self._base(piece.file) for piece in pieces], sizes)
        return rows

    def to_visit(
        self, partitions: Sequence[Partition], weighed: bool
    ) -> tuple[Batch, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows of some partitions, one after the other.

        Args:
            partitions: whose rows.
            weighed: whether they have an importance.

        Returns:
            The rows, their arrival numbers, and what is to be done with each.
        """
        rows = sum(partition.size for partition in partitions)
        batch = Batch(
            np.empty(rows, np.int32),
            np.empty(rows, np.int64),
            np.empty(rows, np.uint64),
            np.empty(rows, np.int64),
            NO_FLAGS,
            NO_NUMBERS,
            np.empty(rows, np.float64) if weighed else UNWEIGHTED,
        )
        arrivals, tasks = np.empty((2, rows), np.int64)
        end = 0
        for partition in partitions:
            first = end
            for task, pieces in ((0, partition.joined), (WAITING, partition.waiting)):
                for piece in pieces:
                    base = self._base(piece.file)
                    read_back(piece.known(), base, task, end, batch, arrivals, tasks)
                    end += piece.size
            tasks[first] |= FIRST
        return batch, arrivals, tasks

    def to_join_at_once(
        self, partitions: Sequence[Partition], workspace: Workspace
    ) -> tuple[Parts, int] | None:
        """The rows of some partitions as parts of a join in bulk; None if out of order in time.

        Args:
            partitions: whose rows.
            workspace: has room for them.

        Returns:
            The rows, of which those that were joined rank first; and how many these are.
        """
        starts = [0, *accumulate(partition.size for partition in partitions)]
        keys = workspace.empty("keys", starts[-1], PART_KEY)
        rows = workspace.empty("rows", starts[-1], PART_ROW)
        known = sum(piece.size for partition in partitions for piece in partition.joined)
        ranks, place = [0, known], 0
        for partition in partitions:
            latest = NEVER
            for kind, pieces in enumerate((partition.joined, partition.waiting)):
                for piece in pieces:
                    records, base, rank = piece.known(), self._base(piece.file), ranks[kind]
                    latest = read_into_part(records, base, place, rank, latest, keys, rows)
                    if latest == NEVER:
                        return None
                    place += piece.size
                    ranks[kind] += piece.size
        return Parts(NO_NUMBERS, NO_STREAMS, keys, rows, starts), known

    def pieces(self) -> Iterator[Piece]:
        """All pieces of all partitions."""
        return chain.from_iterable(partition.pieces() for partition in self.of)

    def tidy(self) -> None:
        """Give up the files that nobody needs any more."""
        for number in self.disk.files.keys() - {piece.file.number for piece in self.pieces()}:
            for payload in self.payload:
                payload.segments.pop(number, None)
            self.disk.drop(number)

    # -- stop and go on --------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """What a snapshot says of the pieces and their files."""
        pieces = [
            [number, done, piece.file.number, _said(piece.rows), *piece.measured]
            for number, partition in enumerate(self.of)
            for done, pieces in ((True, partition.joined), (False, partition.waiting))
            for piece in pieces
        ]
        return {"disk": self.disk.saved(), "pieces": pieces}

    def go_on(self, said: dict[str, Any], fetch: Fetch | None) -> None:
        """Take up what a snapshot says; files that are fetched are so when they are read."""
        self.disk.go_on(said["disk"], fetch)
        for number, done, file, rows, *measured in said["pieces"]:
            chosen = slice(*rows["from"]) if "from" in rows else np.array(rows["rows"], np.int64)
            piece = Piece(self.disk.files[file], chosen, *measured)
            (self.of[number].joined if done else self.of[number].waiting).append(piece)


def taken_by(rows: Records) -> int:
    """What rows take of a budget."""
    return int(rows["size"].sum(dtype=np.int64))


def _said(rows: slice | npt.NDArray[np.int64]) -> dict[str, list[int]]:
    if isinstance(rows, slice):
        return {"from": [rows.start, rows.stop]}
    return {"rows": rows.tolist()}
