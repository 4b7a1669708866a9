"""What a checkpoint keeps of a running join: users' rows that are needed, and the arrays.

How it is written is in `streamshed.engine.checkpoint`, how a join goes on in
`streamshed.engine.restore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.batch import IDLE, NEXT, NO_NUMBERS, STAGE
from streamshed.engine.checkpoint import (
    ARRIVAL,
    KEYS,
    MARKS,
    ROWS,
    STORED_FLAGS,
    TIME,
    Delta,
    Head,
    SegmentName,
    Snapshot,
    names_as_arrays,
)
from streamshed.engine.compaction import Compaction, compact_segments, stored_flags
from streamshed.engine.loop import read_marks
from streamshed.engine.restore import (
    CORE,
    OF_KEYS,
    OF_ROWS,
    STORED_ROW,
    in_use,
    kept,
    list_rows,
)
from streamshed.kernels.core import (
    ARRIVED,
    FATES,
    MOST_AT_ONCE,
    NONE,
    ROW,
    ROWS_USED,
    RUN_ROWS,
    RUN_STREAM,
    SHED,
    STORED,
    Field,
)

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

GONE = 1 << 10
"""Streams named by a column are forgotten when so many, and half of all, are gone."""


def _compact(join: Operator, whole: bool) -> list[Compaction]:
    """Let go of all users' rows that have left; returns what has changed in each input."""
    if join.spill is not None:
        join.spill.flush_noted()
    _forget_streams(join)
    holders = _holders(join)
    changes = compact_segments(holders, join.payload, join.plan.by is not None, whole)
    _take_places(join, holders)
    return changes


def compact(join: Operator) -> None:
    """Let go of users' rows that nobody can ask for any more, when there are many."""
    stored = int(join.core.pools["held"].sum())
    if sum(payload.rows for payload in join.payload) > 2 * stored + MOST_AT_ONCE:
        _compact(join, whole=False)
    elif (memory := join.plan.memory) is not None:
        needed = int(join.core.pools["bytes"].sum()) - memory.each * stored
        if join.payload_bytes() > needed + memory.nbytes // 8:
            _compact(join, whole=True)


def seal(join: Operator, whole: bool = False) -> Delta:
    """Let go of all rows that have left; returns what has changed since the last time.

    Args:
        join: between two batches.
        whole: put all rows together anew, so that the change is the whole state.
    """
    if join.work.cursor[STAGE] != IDLE or join.work.cursor[NEXT]:
        raise AssertionError("a join is sealed between batches, not within one")
    segments: dict[SegmentName, pa.RecordBatch] = {}
    removed: list[SegmentName] = []
    listed = lists_rows(join)
    # A join that listed its rows so far has segments without numbers of arrival.
    anew = not listed and any(p.sealed.keys() - p.flags.keys() for p in join.payload)
    changes = _compact(join, whole or anew)
    holders = _holders(join)
    for position, (payload, change) in enumerate(zip(join.payload, changes, strict=True)):
        if change.new is not None:
            segment = payload.segments[change.new]
            if join.plan.streams[position].time is None:
                segment = segment.append_column(TIME, pa.array(holders["time"][change.rows]))
            if not listed:
                arrivals = pa.array(holders["arrival"][change.rows])
                segment = segment.append_column(ARRIVAL, arrivals)
            segments[position, change.new] = segment
        removed += [(position, number) for number in change.removed]
    return Delta(head_of(join), segments, removed)


def _forget_streams(join: Operator) -> None:
    """Forget streams named by a column that are gone, if they are many.

    Otherwise names that never come again would be kept, and written, for ever. Their counts go
    on in one account.
    """
    names = join.ingest.names
    if len(names.number) < GONE or join.processed != join.ingest.rows_seen[0]:
        return
    counts = join.core.counts.reshape(-1, FATES)
    gone = counts[:, STORED] == 0
    gone[names.free] = False
    gone[names.size :] = False
    if join.core.numbers[RUN_ROWS]:
        gone[join.core.numbers[RUN_STREAM]] = False
    if join.loss is not None:
        gone[join.loss.followed_streams()] = False
    if join.queue is not None:
        gone &= np.array([waits == 0 for waits, _ in join.queue.counts()])[: len(gone)]
    if gone.sum() < max(GONE, len(names.number) // 2):
        return
    if join.queue is not None:
        join.others[[ARRIVED, SHED]] += join.queue.forget_shed(gone)
    join.others += counts[gone].sum(axis=0)
    counts[gone] = 0
    if join.loss is not None:
        join.loss.forget_streams(gone)
    if join.spill is not None:
        join.spill.forget_streams(gone)
    if join.core.recent.size:
        join.core.recent.reshape(len(counts), -1)["arrival"][gone] = NONE
    names.forget(np.flatnonzero(gone))


def _holders(join: Operator) -> npt.NDArray[Any]:
    """All that holds users' rows: the rows that are stored, and those that wait."""
    stored = join.core.rows[: join.core.numbers[ROWS_USED]]
    if join.queue is None:
        return stored
    order = join.queue.places_in_order()
    waiting = np.zeros(len(order), ROW)
    for name in ("stream", "time", "payload"):
        waiting[name] = getattr(join.queue.state.rows, name)[order]
    return np.concatenate([stored, waiting])


def _take_places(join: Operator, holders: npt.NDArray[Any]) -> None:
    """Take over where users' rows are now, as their holders know."""
    if join.queue is not None:
        used = int(join.core.numbers[ROWS_USED])
        join.core.rows["payload"][:used] = holders["payload"][:used]
        order = join.queue.places_in_order()
        join.queue.state.rows.payload[order] = holders["payload"][used:]


def lists_rows(join: Operator) -> bool:
    """Whether a checkpoint lists the stored rows by their numbers, as something may refer to them.

    An exact join's rows may have other numbers when it goes on.
    """
    plan = join.plan
    decides = plan.bounded or any(
        part is not None for part in (plan.queue, plan.spill, plan.throttle)
    )
    return decides or any(form.per in (*OF_ROWS, "recent") for *_, form in _kept_arrays(join))


def _kept_arrays(join: Operator) -> list[tuple[str, npt.NDArray[Any], Field]]:
    """The arrays that a checkpoint keeps, but those of features that are not used."""
    others = [(c.prefix, c.kept_arrays(), c.layout()) for c in join.components]
    found = kept([*join.own_states(), *others])
    return [one for one in found if len(one[1]) > 0 or not one[0].startswith(CORE)]


def head_of(join: Operator) -> Head:
    """All of the state but the users' rows."""
    used = int(join.core.numbers[ROWS_USED])
    arrays = {"numbers": join.core.numbers.copy(), "newest": join.core.lanes["newest"].copy()}
    stored, keys = NO_NUMBERS, np.empty(0, np.int32)
    if lists_rows(join):
        rows, keys = np.zeros(used, STORED_ROW), np.zeros(used, np.int32)
        list_rows(join.core, rows, keys)
        stored = np.flatnonzero(rows["number"])
        arrays[ROWS] = rows
    else:
        one_input = join.plan.by is not None
        arrays[STORED_FLAGS] = stored_flags(join.core.rows[:used], join.payload, one_input)
    for name, array, form in _kept_arrays(join):
        arrays[name] = in_use(array, form, join.shape.lanes, stored, keys)
        if form.per in OF_KEYS:
            arrays[KEYS] = keys
    if join.plan.bounded and join.policy.marks != "none":
        marks = np.zeros(used, np.int64)
        found = marks[stored]
        read_marks(join.core, join.state, stored, found)
        marks[stored] = found
        arrays[MARKS] = marks
    numbers = {
        "rows_seen": join.ingest.rows_seen,
        "newest": join.ingest.newest,
        "disorder": join.ingest.disorder,
        "others": join.others.tolist(),
        "rejected": join.rejected,
        "rejected_importance": join.rejected_importance,
        "next_segments": [payload.next_segment for payload in join.payload],
        "sealed": [list(payload.sealed.items()) for payload in join.payload],
        "flags": [list(payload.flags.items()) for payload in join.payload],
        **{component.prefix: component.save() for component in join.components},
    }
    if join.plan.by is not None:
        arrays |= names_as_arrays(join.ingest.names.number)
    return Head(join.about(), numbers, arrays)


def snapshot(join: Operator) -> Snapshot:
    """All that is needed to go on later, or elsewhere, as if nothing had happened."""
    delta = seal(join, whole=True)
    if join.spill is not None:
        join.spill.keep_files()
    return Snapshot(delta.head, delta.segments)
