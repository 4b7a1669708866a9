"""Rows that are stored again: after a restart, or under another policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.columns import no_rows
from streamshed.engine.batch import NO_FLAGS, NO_NUMBERS, Batch, owned
from streamshed.engine.checkpoint import ARRIVAL, MARK, TIME, Snapshot
from streamshed.engine.ingest import Ingest, InputRows
from streamshed.engine.payload import Payload, live_offsets, places_in
from streamshed.kernels.compiling import driver
from streamshed.kernels.core import KEY_HASH, NONE, ROWS_USED, Core, Field

SAVED = np.dtype(
    [("stream", np.int32), ("time", np.int64), ("arrival", np.int64), ("hash", np.uint64)]
)
"""What is saved of a bare row."""


class Rows(NamedTuple):
    """Rows in the order of their arrival, with what else is known of them."""

    batch: Batch
    arrivals: npt.NDArray[np.int64]
    marks: npt.NDArray[np.int64]

    def since(self, start: int) -> Rows:
        """The rows from a position on."""
        if start == 0:
            return self
        size = len(self.arrivals)
        batch = Batch._make(
            owned(column[start:]) if len(column) == size else column for column in self.batch
        )
        return Rows(batch, self.arrivals[start:], self.marks[start:])


def read_again(ingest: Ingest, payloads: list[Payload], snapshot: Snapshot) -> Rows:
    """The rows of a snapshot in the order of their arrival."""
    # What an input without rows has for columns, so that there is always a part.
    parts = [
        ingest.read(position, no_rows(stream.schema), NO_NUMBERS)
        for position, stream in enumerate(ingest.plan.streams)
    ]
    arrivals, marks = [NO_NUMBERS], [NO_NUMBERS]
    for (position, number), stored in snapshot.segments.items():
        offsets = live_offsets(stored.num_rows, snapshot.live.get((position, number)))
        payload = payloads[position]
        payload.unseal(number, stored.select(payload.schema.names), len(offsets))
        rows = ingest.read(position, stored, NO_NUMBERS)
        if TIME in stored.schema.names:
            rows = rows._replace(time=stored.column(TIME).to_numpy())
        rows = rows._replace(null=NO_FLAGS, payload=NO_NUMBERS)
        chosen = InputRows._make(column[offsets] if column.size else column for column in rows)
        parts.append(chosen._replace(payload=places_in(number, offsets)))
        arrivals.append(stored.column(ARRIVAL).to_numpy()[offsets])
        if MARK in stored.schema.names:
            marks.append(stored.column(MARK).to_numpy()[offsets])
    whole = InputRows.concatenated(parts)
    number_of, mark = np.concatenate(arrivals), np.concatenate(marks)
    order = np.argsort(number_of)
    batch = Batch._make(
        owned(column[order]) if len(column) == len(order) else column
        for column in (getattr(whole, name) for name in Batch._fields)
    )
    marks_in_order = mark[order] if mark.size == order.size else np.zeros(order.size, np.int64)
    return Rows(batch, number_of[order], marks_in_order)


def kept(
    states: Sequence[tuple[str, dict[str, npt.NDArray[Any]], dict[str, Field]]],
) -> list[tuple[str, npt.NDArray[Any], Field]]:
    """The arrays that a checkpoint keeps, with their names and how they are laid out.

    Args:
        states: what the names of their arrays begin with, the arrays, and their layout.
    """
    return [
        (prefix + name, arrays[name], form)
        for prefix, arrays, layout in states
        for name, form in layout.items()
        if form.kept
    ]


def in_order(core: Core) -> npt.NDArray[np.int64]:
    """The numbers of the rows that are stored, in the order of their arrival."""
    used = core.rows[: core.numbers[ROWS_USED]]
    rows: npt.NDArray[np.int64] = live_rows(used)
    return rows[np.argsort(used["arrival"][rows])]


def bare(core: Core, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """What is saved of rows whose users' columns are not kept, or are kept elsewhere."""
    saved = np.empty(len(rows), SAVED)
    for name in ("stream", "time", "arrival"):
        saved[name] = core.rows[name][rows]
    words = core.keys.reshape(-1, core.settings.key_words)
    hashes = np.ascontiguousarray(words[:, KEY_HASH : KEY_HASH + 2]).view(np.uint64)[:, 0]
    saved["hash"] = hashes[core.rows["key"][rows]]
    return saved


def rows_again(saved: npt.NDArray[Any]) -> Rows:
    """The rows of which so much was saved."""
    stream, time, hashed, arrival = (
        np.ascontiguousarray(saved[name]) for name in ("stream", "time", "hash", "arrival")
    )
    nothing = np.zeros(len(time), np.int64)
    return Rows(Batch(stream, time, hashed, nothing, NO_FLAGS, NO_NUMBERS), arrival, nothing)


@driver
def live_rows(rows):  # type: ignore[no-untyped-def]
    """The numbers of the rows that are stored."""
    found = np.empty(rows.size, np.int64)
    count = 0
    for row in range(rows.size):
        if rows[row].arrival != NONE:
            found[count] = row
            count += 1
    return found[:count].copy()


def find_recent(core: Core, true: Core, arrivals: npt.NDArray[np.int64]) -> None:
    """Say where the rows of row windows are now: they are numbered anew, by their arrival.

    Args:
        core: the state of the join.
        true: that of the sample.
        arrivals: the arrival numbers of the rows that are stored.
    """
    recent = core.recent
    entered = true.rows["arrival"][: true.numbers[ROWS_USED]]
    recent["row"] = _places_among(recent["arrival"], arrivals)
    recent["followed"] = _places_among(recent["arrival"], entered)
    recent["arrival"][(recent["row"] == NONE) & (recent["followed"] == NONE)] = NONE


def _places_among(
    arrivals: npt.NDArray[np.int64], entered: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The places of arrivals among those entered, in their order, or NONE."""
    return np.where(np.isin(arrivals, entered), np.searchsorted(entered, arrivals), NONE)
