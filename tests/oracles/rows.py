"""The common form of the oracles: rows, workloads, their arrival order and their Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import pyarrow as pa

Stream = int | str
Key = int | str
Worth = int | float
Window = tuple[Literal["time", "last"], int]
Cell = tuple[Key | None, int | None, Worth | None]
Member = tuple[Stream, int]


class Row(NamedTuple):
    """A tuple as its source delivers it; `row` is its number in its own stream, from 0."""

    stream: Stream
    key: Key | None
    time: int | None
    row: int
    worth: Worth | None


@dataclass(frozen=True)
class Workload:
    """The rows of all streams, and the settings of the join.

    `rows` stand stream by stream for named streams, and in table order for streams told apart by
    a column (`by`). `windows` has an entry for each of `names`, or a single one when `by`, which
    is then that of all streams but those that have an entry in `own`. `lasts` has likewise the row
    windows that streams have besides their time windows.
    """

    names: tuple[Stream, ...]
    rows: tuple[Row, ...]
    windows: tuple[Window, ...]
    late: int = 0
    clock: Literal["min", "max"] = "min"
    idle: int | None = None
    keep_rows: tuple[int | None, ...] | None = None
    keep_total: int | None = None
    at_least: int | None = None
    policy: str = "oldest"
    seed: int = 0
    rate: float | None = None
    by: bool = False
    own: tuple[tuple[Stream, int], ...] = ()
    ahead: int | None = None
    lasts: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        """Refuse settings that meaning.md gives no meaning to."""
        if self.by:
            assert len(self.windows) == 1, "streams named by a column have one in common"
            assert self.windows[0][0] == "time" or not self.own, "time windows alone may differ"
            assert self.at_least is not None, "no complete join over streams that come and go"
            assert self.keep_rows is None, "streams named by a column have a total budget"
        else:
            assert len(self.windows) == len(self.names)
        assert self.keep_rows is None or len(self.keep_rows) == len(self.names)
        assert self.keep_rows is None or self.keep_total is None
        assert all(size >= (0 if kind == "time" else 1) for kind, size in self.windows)

    @property
    def timed(self) -> bool:
        """Whether there is a time column: row windows alone have none (Time and order)."""
        return any(kind == "time" for kind, _ in self.windows)

    @property
    def bounded(self) -> bool:
        """Whether there is a budget."""
        return self.keep_rows is not None or self.keep_total is not None

    def position(self, stream: Stream) -> int:
        """The position of a stream among the streams."""
        return self.names.index(stream)

    def window(self, stream: Stream) -> Window:
        """The window of a stream."""
        if not self.by:
            return self.windows[self.position(stream)]
        kind, size = self.windows[0]
        return kind, dict(self.own).get(stream, size)

    def last(self, stream: Stream) -> int | None:
        """The rows of the row window of a stream, if it has one."""
        position = 0 if self.by else self.position(stream)
        kind, size = self.windows[position]
        if kind == "last":
            return size
        return self.lasts[position] if self.lasts else None

    @property
    def lengths(self) -> list[int]:
        """The lengths of all time windows."""
        return [size for kind, size in self.windows if kind == "time"] + [n for _, n in self.own]

    @property
    def leeway(self) -> int | None:
        """How far a row may be ahead and still move time on its own, if that is bounded."""
        if not (self.by and self.timed):
            return None
        return max(self.lengths) + self.late if self.ahead is None else self.ahead

    def of(self, stream: Stream) -> list[Row]:
        """The rows of one stream, in its own order."""
        return [row for row in self.rows if row.stream == stream]

    def unbounded(self) -> Workload:
        """The same without a budget."""
        return replace(self, keep_rows=None, keep_total=None)


class Newest:
    """The newest time, as rows that are neither filtered nor late move it (The clock)."""

    def __init__(self, workload: Workload) -> None:
        """Start without any."""
        self.ahead = workload.leeway
        self.time: int | None = None
        self.run: list[tuple[Stream, int]] = []

    def move(self, stream: Stream, time: int) -> int:
        """Let a row move it."""
        if self.ahead is None or self.time is None or time <= self.time + self.ahead:
            self.run = []
            self.time = time if self.time is None else max(self.time, time)
            return self.time
        self.run.append((stream, time))
        if len({s for s, _ in self.run}) > 1 or len(self.run) == 64:
            self.time = min(t for _, t in self.run)
            self.run = []
            self.move(stream, time)
        return self.time


def named(
    streams: Sequence[Sequence[Cell]],
    windows: Sequence[Window],
    names: Sequence[Stream] | None = None,
    **settings: Any,
) -> Workload:
    """A workload of named streams ("a", "b", …), each a list of (key, time, worth)."""
    names = tuple(names or "abcdefghijklmnopqrstuvwxyz"[: len(streams)])
    rows = tuple(
        Row(name, key, time, number, worth)
        for name, cells in zip(names, streams, strict=True)
        for number, (key, time, worth) in enumerate(cells)
    )
    return Workload(names, rows, tuple(windows), **settings)


def by_column(
    table: Sequence[tuple[Stream, Key | None, int | None, Worth | None]],
    window: Window,
    **settings: Any,
) -> Workload:
    """A workload of one input whose streams are told apart by a column, in table order."""
    numbers: dict[Stream, int] = {}
    rows = []
    for stream, key, time, worth in table:
        rows.append(Row(stream, key, time, numbers.get(stream, 0), worth))
        numbers[stream] = numbers.get(stream, 0) + 1
    return Workload(tuple(numbers), tuple(rows), (window,), by=True, **settings)


def arrival_order(workload: Workload) -> list[Row]:
    """All rows in the order of processing, with their times (Time and order).

    Row i of a stream arrives at the largest time among its rows 0…i; rows are merged by that time,
    the position of the stream and the row number. Before the first known time of its stream a row
    arrives ahead of all others. One input told apart by a column keeps its order. Without a time
    column the time of a row is its number in its input.
    """
    rows = workload.rows
    if not workload.timed:
        numbers = range(len(rows)) if workload.by else [row.row for row in rows]
        rows = tuple(row._replace(time=n) for row, n in zip(rows, numbers, strict=True))
    if workload.by:
        return list(rows)
    coming: list[tuple[float, int, int, Row]] = []
    for position, name in enumerate(workload.names):
        largest = float("-inf")
        for row in rows:
            if row.stream == name:
                if row.time is not None:
                    largest = max(largest, row.time)
                coming.append((largest, position, row.row, row))
    return [row for _, _, _, row in sorted(coming, key=lambda entry: entry[:3])]


def tables(workload: Workload) -> dict[Stream, pa.Table]:
    """An Arrow table for each named stream, with columns `k`, `ts`, `row` and `worth`."""
    return {name: _table(workload, workload.of(name)) for name in workload.names}


def table(workload: Workload) -> pa.Table:
    """The one Arrow table of a join by a column: `stream`, `k`, `ts`, `row` and `worth`."""
    streams = [row.stream for row in workload.rows]
    columns = _table(workload, list(workload.rows))
    return columns.add_column(0, "stream", pa.array(streams, _type_of(streams)))


def _table(workload: Workload, rows: Sequence[Row]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([row.key for row in rows], _type_of([row.key for row in workload.rows])),
            "ts": pa.array([row.time for row in rows], pa.int64()),
            "row": pa.array([row.row for row in rows], pa.int64()),
            "worth": pa.array(
                [row.worth for row in rows], _type_of([row.worth for row in workload.rows])
            ),
        }
    )


def _type_of(values: Sequence[object]) -> pa.DataType:
    """The type of a column of whole numbers, numbers or strings, the same in every stream."""
    if any(isinstance(value, str) for value in values):
        return pa.string()
    return pa.float64() if any(isinstance(value, float) for value in values) else pa.int64()
