"""Rows that are stored again: after a restart, or under another policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.core import KEY_HASH, NONE, ROWS_USED, Core, Field
from streamshed.operators.buffers import AT_HOME, PLAIN, WEIGHTLESS, Batch
from streamshed.operators.checkpoint import ARRIVAL, MARK, TIME, Snapshot
from streamshed.operators.intake import NOTHING, Intake, Tuples
from streamshed.operators.keyed_loop import live_rows
from streamshed.operators.payload import Payload, live_offsets, places_in

EMPTY = (
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.uint64),
    np.empty(0, np.int64),
)
NO_TIMES = np.empty(0, np.int64)


SAVED = np.dtype(
    [("stream", np.int32), ("time", np.int64), ("arrival", np.int64), ("hash", np.uint64)]
)
"""What is saved of a bare row."""


class Rows(NamedTuple):
    """Rows as tuples in the order of their arrival, with what else is known of them."""

    batch: Batch
    arrivals: npt.NDArray[np.int64]
    marks: npt.NDArray[np.int64]


def read_again(intake: Intake, payloads: list[Payload], snapshot: Snapshot) -> Rows:
    """The rows of a snapshot as tuples in the order of their arrival."""
    parts: list[Tuples] = []
    arrivals, marks = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for (position, number), stored in snapshot.segments.items():
        offsets = live_offsets(stored.num_rows, snapshot.live.get((position, number)))
        payload = payloads[position]
        payload.unseal(number, stored.select(payload.schema.names), len(offsets))
        tuples = intake.read(position, stored, np.empty(0, np.int64))
        if TIME in stored.schema.names:
            tuples = tuples._replace(time=stored.column(TIME).to_numpy())
        chosen = [column[offsets] for column in tuples[:3]]
        worth = tuples.worth[offsets] if tuples.worth.size else np.zeros(len(offsets), np.int64)
        place = places_in(number, offsets)
        weight = tuples.importance[offsets] if tuples.importance.size else WEIGHTLESS
        hashes = tuples.hashes[offsets] if tuples.hashes.size else PLAIN
        rest = [NOTHING, worth, NO_TIMES, weight, hashes, AT_HOME]
        parts.append(Tuples._make([*chosen, place, *rest]))
        arrivals.append(stored.column(ARRIVAL).to_numpy()[offsets])
        if MARK in stored.schema.names:
            marks.append(stored.column(MARK).to_numpy()[offsets])
    number_of = np.concatenate(arrivals)
    order = np.argsort(number_of)
    mark = np.concatenate(marks)
    columns = [np.concatenate([part[i] for part in parts] or [EMPTY[i]]) for i in range(4)]
    worth = np.concatenate([part.worth for part in parts] or [NO_TIMES])
    weight = np.concatenate([part.importance for part in parts] or [WEIGHTLESS])
    weight = weight[order] if weight.size else weight
    hashes = np.concatenate([part.hashes for part in parts if part.hashes.size] or [PLAIN])
    hashes = owned(hashes[order]) if hashes.size else PLAIN
    ordered = [owned(column[order]) for column in columns]
    batch = Batch._make([*ordered, NOTHING, worth[order], weight, hashes, AT_HOME])
    marks_in_order = mark[order] if mark.size == order.size else np.zeros(order.size, np.int64)
    return Rows(batch, number_of[order], marks_in_order)


def kept(
    states: list[tuple[str, Any, dict[str, Field]]],
) -> list[tuple[str, npt.NDArray[Any], Field]]:
    """The arrays that a checkpoint keeps, with their names and how they are laid out.

    Args:
        states: what the names of their arrays begin with, the arrays, and their layout.
    """
    return [
        (prefix + name, getattr(state, name), form)
        for prefix, state, layout in states
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
    return Rows(Batch(stream, time, hashed, nothing, NOTHING, nothing), arrival, nothing)


def owned(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The column as the compiled loop knows it: numba takes a read-only array for another type."""
    return np.require(column, requirements=["C", "W"])


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
