"""The rows on disk, by partition: which of them were joined, and which still wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.operators.buffers import Batch
from streamshed.operators.disk import Disk, DiskFile
from streamshed.operators.intake import NOTHING, WORTHLESS
from streamshed.operators.payload import Payload, Places, places_in
from streamshed.operators.spilling_loop import LOWEST, PARTITIONS

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

KNOWN = ("stream", "time", "hash", "arrival")
OFFSET = "offset"
"""What a file says of each row, and where the user's row stands in the part of its input."""


class Known(NamedTuple):
    """What is known of rows on disk, in the order of their arrival."""

    stream: npt.NDArray[np.int32]
    time: Ints
    hash: npt.NDArray[np.uint64]
    arrival: Ints
    place: Places

    def only(self, chosen: Flags | slice) -> Known:
        """Some of them."""
        return Known(*(column[chosen] for column in self))

    def batch(self) -> Batch:
        """The rows as tuples."""
        return Batch(self.stream, self.time, self.hash, self.place, NOTHING, WORTHLESS)


NOBODY = Known(
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.uint64),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
)


@dataclass(eq=False)
class Piece:
    """Some rows of a partition in a file, in the order of their arrival."""

    file: DiskFile
    rows: slice | Ints

    def __post_init__(self) -> None:
        time = self.column("time")
        self.size = len(time)
        self.oldest, self.newest = int(time.min()), int(time.max())
        self.first = int(self.column("arrival")[0])

    def column(self, name: str) -> npt.NDArray[Any]:
        """One of `KNOWN`, or `OFFSET`."""
        return self.file.known[name][self.rows]

    def places(self) -> Places:
        """Where the users' rows are."""
        return places_in(self.file.number, self.column(OFFSET))

    def only(self, kept: Flags) -> list[Piece]:
        """What is left of the piece without some of its rows: itself, or less, or nothing."""
        if kept.all():
            return [self]
        rows = np.arange(len(self.file.known["time"]))[self.rows][kept]
        return [Piece(self.file, rows)] if len(rows) else []


@dataclass
class Partition:
    """What is on disk of a partition."""

    joined: list[Piece] = field(default_factory=list)
    """Rows that were joined with all that came before them."""
    waiting: list[Piece] = field(default_factory=list)
    """Rows that came later, and were not."""

    def pieces(self) -> Iterator[Piece]:
        """All of it."""
        return chain(self.joined, self.waiting)


@dataclass
class Partitions:
    """All that is on disk."""

    disk: Disk
    payload: list[Payload]
    """The users' rows, as mapped: a segment of each input is the part of the file of its number."""
    of: list[Partition] = field(default_factory=lambda: [Partition() for _ in range(PARTITIONS)])
    pieces_of_file: Counter[int] = field(default_factory=Counter)

    def put(
        self, rows: npt.NDArray[Any], users: Sequence[pa.RecordBatch], joined: Flags
    ) -> None:
        """Write rows to disk.

        Args:
            rows: what is known of them, by partition, then by arrival.
            users: the users' rows of each input, in the same order.
            joined: for each partition whether its rows were joined.
        """
        offset = np.arange(len(rows))
        if len(users) > 1:
            for position in range(len(users)):
                mine = np.flatnonzero(rows["stream"] == position)
                offset[mine] = np.arange(len(mine))
        known = [pa.array(np.ascontiguousarray(rows[name])) for name in KNOWN]
        table = pa.RecordBatch.from_arrays([*known, pa.array(offset)], [*KNOWN, OFFSET])
        file = self.disk.write(table, users)
        self._map(file)
        number = rows["hash"] & LOWEST
        ends = np.searchsorted(number, np.arange(PARTITIONS), "right").tolist()
        for partition, start, end, done in zip(
            self.of, [0, *ends[:-1]], ends, joined.tolist(), strict=True
        ):
            if end > start:
                pieces = partition.joined if done else partition.waiting
                pieces.append(Piece(file, slice(start, end)))
                self.pieces_of_file[file.number] += 1

    def _map(self, file: DiskFile) -> None:
        for payload, rows in zip(self.payload, file.rows, strict=True):
            payload.segments[file.number] = rows

    @property
    def rows(self) -> int:
        """Rows on disk."""
        return sum(piece.size for partition in self.of for piece in partition.pieces())

    def longest_waiting(self) -> int | None:
        """The partition whose rows have waited longest to be joined, if any wait."""
        firsts = [(p.waiting[0].first, number) for number, p in enumerate(self.of) if p.waiting]
        return min(firsts)[1] if firsts else None

    def known(self, pieces: Sequence[Piece]) -> Known:
        """What is known of the rows of some pieces."""
        if not pieces:
            return NOBODY
        columns = [np.concatenate([piece.column(name) for piece in pieces]) for name in KNOWN]
        return Known(*columns, np.concatenate([piece.places() for piece in pieces]))

    def keep(self, number: int, joined: list[Piece], waiting: list[Piece]) -> None:
        """Let a partition have these pieces; files that nobody needs any more are given up."""
        before = [piece.file.number for piece in self.of[number].pieces()]
        self.of[number] = Partition(joined, waiting)
        self.pieces_of_file.update(piece.file.number for piece in self.of[number].pieces())
        self.pieces_of_file.subtract(before)
        for file in set(before):
            if self.pieces_of_file[file] == 0:
                del self.pieces_of_file[file]
                for payload in self.payload:
                    payload.segments.pop(file, None)
                self.disk.drop(file)

    # -- stop and go on --------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """What a snapshot says of the pieces and their files."""
        pieces = [
            [number, piece.file.number, done, _said(piece.rows)]
            for number, partition in enumerate(self.of)
            for done, pieces in ((True, partition.joined), (False, partition.waiting))
            for piece in pieces
        ]
        return {"disk": self.disk.refer(), "pieces": pieces}

    def go_on(self, said: dict[str, Any]) -> None:
        """Take up what a snapshot says."""
        self.disk.go_on(said["disk"])
        for file in self.disk.files.values():
            self._map(file)
        for number, file_number, done, rows in said["pieces"]:
            chosen = slice(*rows["from"]) if "from" in rows else np.array(rows["rows"], np.int64)
            piece = Piece(self.disk.files[file_number], chosen)
            (self.of[number].joined if done else self.of[number].waiting).append(piece)
            self.pieces_of_file[file_number] += 1


def _said(rows: slice | Ints) -> dict[str, list[int]]:
    if isinstance(rows, slice):
        return {"from": [rows.start, rows.stop]}
    return {"rows": rows.tolist()}
