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
from streamshed.kernels.core import NONE, ROWS_USED, Core, Field

PLACE = np.dtype([("row", np.int32), ("key", np.int32)])
"""Where a row is, and its key."""
OF_ROWS = ("row", "met row", "key", "first key", "entry")
"""What arrays may be laid out by: rows and keys of the join, or keys by lane."""


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


def find_recent(core: Core, arrivals: npt.NDArray[np.int64]) -> None:
    """Say where the rows of row windows are now: they are numbered anew, by their arrival.

    Args:
        core: the state of the join.
        arrivals: the arrival numbers of the rows that are stored.
    """
    recent = core.recent
    stored = np.isin(recent["arrival"], arrivals)
    recent["row"] = np.where(stored, np.searchsorted(arrivals, recent["arrival"]), NONE)
    recent["arrival"][~stored] = NONE


def places_of(core: Core, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Where rows and their keys are."""
    places = np.empty(len(rows), PLACE)
    places["row"], places["key"] = rows, core.rows["key"][rows]
    return places


def in_use(
    array: npt.NDArray[Any], form: Field, lanes: int, stored: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """An array as a checkpoint keeps it.

    What belongs to rows or keys stands in the order in which these will be entered again: rows by
    their arrival, keys by that of their first row.

    Args:
        array: as it is now.
        form: how it is laid out.
        lanes: the number of lanes.
        stored: the places of the rows stored, in the order of their arrival.
    """
    if form.per not in OF_ROWS:
        return array.copy()
    order: npt.NDArray[Any] = stored["row"]
    if form.per not in ("row", "met row"):
        _, first = np.unique(stored["key"], return_index=True)
        order = stored["key"][np.sort(first)]
    width = form.times * (lanes if form.per == "entry" else 1)
    if array.size == 0:
        return array
    chosen: npt.NDArray[Any] = array.reshape(-1, width)[order]
    return chosen.ravel()
