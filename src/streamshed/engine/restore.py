"""A join goes on from its state: its rows are stored again, or its arrays are taken over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.columns import no_rows
from streamshed.engine.allocation import roomier
from streamshed.engine.batch import NO_FLAGS, NO_NUMBERS, Batch, owned
from streamshed.engine.checkpoint import (
    ARRIVAL,
    KEYS,
    MARKS,
    ROWS,
    STORED_FLAGS,
    TIME,
    Head,
    SegmentName,
    Snapshot,
)
from streamshed.engine.compaction import flagged
from streamshed.engine.ingest import Ingest, InputRows, StreamNames
from streamshed.engine.loop import evict_to_budget
from streamshed.engine.payload import PLACE_BITS, PLACE_OFFSET, Payload, places_in
from streamshed.kernels.compiling import driver, loop
from streamshed.kernels.core import (
    ARRIVALS,
    CLOCK,
    FIRST_SEEN,
    FREE_ROW,
    KEYS_USED,
    NEVER,
    NEWEST,
    NONE,
    OVERDUE,
    PEAK_BYTES,
    RESULTS,
    ROWS_USED,
    RUN_ROWS,
    RUN_STREAM,
    RUN_TIME,
    Core,
    Field,
    Memory,
    Shape,
    core_layout,
)
from streamshed.kernels.table import free_key, key_lanes, lane_of

if TYPE_CHECKING:
    from streamshed.engine.operator import Operator

CORE, POLICY = "core.", "policy."
"""What the names of the arrays of the store and of the policy begin with."""
State = tuple[str, dict[str, npt.NDArray[Any]], dict[str, Field]]
"""What the names of some arrays begin with, the arrays by name, and how they are laid out."""

STORED_ROW = np.dtype([("number", np.int64), ("payload", np.int64)])
"""What a checkpoint keeps of each row of the core besides the user's columns: the number of its
arrival, and 1, with the input it came from in the highest bits, or 0 where no row is; and where the
user's row is."""
_INPUT_BITS = 57
_NUMBER = (1 << _INPUT_BITS) - 1
_KEPT = [CLOCK, NEWEST, FIRST_SEEN, ARRIVALS, RESULTS, OVERDUE]
_KEPT += [RUN_ROWS, RUN_STREAM, RUN_TIME, PEAK_BYTES]
OF_KEYS = ("key", "first key", "entry")
OF_ROWS = ("row", "met row", *OF_KEYS)
"""What arrays may be laid out by: rows and keys of the join, or keys by lane."""


Numbers = npt.NDArray[np.int64]


class Rows(NamedTuple):
    """Rows in the order of their arrival, with what else is known of them."""

    batch: Batch
    arrivals: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64] = NO_NUMBERS
    """Their numbers in the core; empty for such as are free."""
    keys: npt.NDArray[np.int64] = NO_NUMBERS
    """The numbers of their keys."""
    marks: npt.NDArray[np.int64] = NO_NUMBERS
    """What the policy has marked them with; empty if it has not."""


def read_again(ingest: Ingest, payloads: list[Payload], snapshot: Snapshot) -> Rows:
    """The rows of a snapshot in the order of their arrival."""
    # What an input without rows has for columns, so that there is always a part.
    parts = [
        ingest.read(position, no_rows(stream.schema), NO_NUMBERS)
        for position, stream in enumerate(ingest.plan.streams)
    ]
    arrays, found, arrived = snapshot.head.arrays, [NO_NUMBERS], [NO_NUMBERS]
    wanted = [dict(sealed) for sealed in snapshot.head.numbers["sealed"]]
    for payload, flags in zip(payloads, snapshot.head.numbers["flags"], strict=True):
        payload.flags = dict(flags)
    for (position, number), offsets, arrivals, numbers in rows_by_segment(snapshot):
        payload, segment = payloads[position], snapshot.segments[position, number]
        payload.unseal(number, segment.select(payload.schema.names), wanted[position][number])
        rows = ingest.read(position, segment, NO_NUMBERS)
        if TIME in segment.schema.names:
            rows = rows._replace(time=segment.column(TIME).to_numpy())
        rows = rows._replace(null=NO_FLAGS, payload=NO_NUMBERS)
        chosen = InputRows._make(column[offsets] if column.size else column for column in rows)
        parts.append(chosen._replace(payload=places_in(number, offsets)))
        found.append(numbers)
        arrived.append(arrivals)
    whole, all_arrivals = InputRows.concatenated(parts), np.concatenate(arrived)
    order = np.argsort(all_arrivals)
    batch = Batch._make(
        owned(column[order]) if len(column) == len(order) else column
        for column in (getattr(whole, name) for name in Batch._fields)
    )
    if ROWS not in arrays:
        return Rows(batch, all_arrivals[order])
    of_rows = np.concatenate(found)[order]
    # If nothing is kept of keys, each may have the number of its first row.
    keys = arrays[KEYS][of_rows].astype(np.int64) if KEYS in arrays else of_rows
    return Rows(batch, all_arrivals[order], of_rows, keys)


def rows_by_segment(
    snapshot: Snapshot,
) -> Iterator[tuple[SegmentName, Numbers, Numbers, Numbers]]:
    """For each segment of users' rows those that are stored.

    Where they are, the numbers of their arrival, and their own numbers if these are listed.
    """
    if ROWS in snapshot.head.arrays:
        yield from _listed_by_segment(snapshot)
        return
    flags = snapshot.head.arrays[STORED_FLAGS]
    begins = [dict(begins) for begins in snapshot.head.numbers["flags"]]
    for (position, number), segment in snapshot.segments.items():
        offsets = flagged(flags, begins[position][number], segment.num_rows)
        arrivals = segment.column(ARRIVAL).to_numpy()[offsets]
        yield (position, number), offsets, arrivals, NO_NUMBERS


def _listed_by_segment(
    snapshot: Snapshot,
) -> Iterator[tuple[SegmentName, Numbers, Numbers, Numbers]]:
    """For each segment of users' rows those that are listed."""
    stored = snapshot.head.arrays[ROWS]
    origin = stored["number"] >> _INPUT_BITS
    segment_of = (origin << PLACE_BITS) + (stored["payload"] >> PLACE_BITS)
    by_segment = np.flatnonzero(stored["number"] & _NUMBER)
    by_segment = by_segment[np.argsort(segment_of[by_segment], kind="stable")]
    sorted_segments = segment_of[by_segment]
    for position, number in snapshot.segments:
        here = (position << PLACE_BITS) + number
        numbers = by_segment[slice(*np.searchsorted(sorted_segments, (here, here + 1)))]
        found = stored[numbers]
        arrivals = (found["number"] & _NUMBER) - 1
        yield (position, number), found["payload"] & PLACE_OFFSET, arrivals, numbers


def stored_rows(snapshot: Snapshot) -> Iterator[tuple[SegmentName, pa.Table]]:
    """The users' rows that are stored, segment by segment."""
    for name, offsets, *_ in rows_by_segment(snapshot):
        if len(offsets):
            rows = pa.Table.from_batches([snapshot.segments[name]])
            yield name, rows.take(pa.array(np.sort(offsets)))


def kept(states: Sequence[State]) -> list[tuple[str, npt.NDArray[Any], Field]]:
    """The arrays that a checkpoint keeps, with their names and how they are laid out."""
    return [
        (prefix + name, arrays[name], form)
        for prefix, arrays, layout in states
        for name, form in layout.items()
        if form.kept
    ]


@loop
def list_rows(core, listed, keys):  # type: ignore[no-untyped-def]
    """List the stored rows, each at its number, and the numbers of their keys."""
    for row in range(listed.size):
        if core.rows[row].arrival != NONE:
            origin = np.int64(lane_of(core, core.rows[row].stream))
            listed[row].number = (origin << _INPUT_BITS) | (core.rows[row].arrival + 1)
            listed[row].payload = core.rows[row].payload
            keys[row] = core.rows[row].key


@loop
def link_unused(core):  # type: ignore[no-untyped-def]
    """Let the numbers without rows and keys be given to newcomers."""
    for row in range(core.numbers[ROWS_USED] - 1, -1, -1):
        if core.rows[row].arrival == NONE:
            core.rows[row].after = core.numbers[FREE_ROW]
            core.numbers[FREE_ROW] = row
    for key in range(core.numbers[KEYS_USED] - 1, -1, -1):
        if key_lanes(core, key) == np.uint64(0):
            free_key(core, key)


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


def in_use(
    array: npt.NDArray[Any],
    form: Field,
    lanes: int,
    stored: npt.NDArray[np.int64],
    keys: npt.NDArray[np.int32],
) -> npt.NDArray[Any]:
    """An array as a checkpoint keeps it: zeros where no row, or key, is.

    Args:
        array: as it is now.
        form: how it is laid out.
        lanes: the number of lanes.
        stored: the numbers of the rows that are stored.
        keys: by row the number of its key.
    """
    if form.per not in OF_ROWS:
        return array.copy()
    if array.size == 0:
        return array
    if form.per in OF_KEYS:
        stored = np.unique(keys[stored])
    width = form.times * (lanes if form.per == "entry" else 1)
    kept = np.zeros((int(stored[-1]) + 1 if len(stored) else 0, width), array.dtype)
    kept[stored] = array.reshape(-1, width)[stored]
    return kept.ravel()


# -- whole joins ---------------------------------------------------------------------------------


def restore(join: Operator, snapshot: Snapshot) -> None:
    """Be as the join was when the snapshot was taken; this one has seen nothing yet."""
    head = snapshot.head
    changed = head.changed(join.about())
    _resume(join, head)
    rows = read_again(join.ingest, join.payload, snapshot)
    _resume(join, head)  # what was read again was not seen again
    _restore(join, snapshot, rows, changed)


def _restore(join: Operator, snapshot: Snapshot, rows: Rows, changed: set[str]) -> None:
    """Store rows again as a head says; under another policy they are newcomers."""
    head = snapshot.head
    anew = bool(changed - {"estimate"})
    numbers = head.arrays["numbers"]
    # There may be more rows than the budget allows now, for a moment.
    join.keep_to_part()
    listed = ROWS in head.arrays
    join.restored = int(numbers[ROWS_USED]) if listed else len(rows.arrivals)
    join.make_room(join.restored, on_the_way=0)
    join.core.lanes["newest"] = head.arrays["newest"]
    join.core.numbers[_KEPT] = numbers[_KEPT]
    if listed:
        _reserve(join, join.restored, rows.keys)
    if not anew:
        _put_back(join, head)
    for component in join.components:
        if component is not join.loss:
            _load(component.prefix, component.arrays(), component.layout(), head.arrays)
    if MARKS in head.arrays:
        rows = rows._replace(marks=head.arrays[MARKS][rows.rows])
    join.store_again(rows, anew)
    link_unused(join.core)
    for prefix, arrays, layout in join.own_states():
        if anew and prefix == POLICY:
            continue
        # What is kept of each row was put back with it.
        rest = {name: form for name, form in layout.items() if form.per != "row"}
        _load(prefix, arrays, rest, head.arrays)
    if CORE + "shed_time" in head.arrays:
        _remember_shed(join, head.arrays[CORE + "shed_time"], "seed" in changed)
    if join.loss is not None and not join.loss.restore(head.arrays, changed):
        known = join.loss.prefix + "total" in head.arrays
        join.loss.begin_anew(join.core, rows, join.made, known)
    if join.spill is not None:
        entered = head.arrays[join.spill.prefix + "entered"]
        said = head.numbers[join.spill.prefix]
        join.spill.restore(said, entered, "budget" in changed, snapshot.fetch)
    elif anew:
        evict_to_budget(join.core, join.matcher.quiet, join.state)


def _put_back(join: Operator, head: Head) -> None:
    """Put back what the policy knew of each row: rows are numbered by their arrival again."""
    for name, form in join.policy.layout(join.shape).items():
        if form.kept and form.per == "row":
            saved = head.arrays[POLICY + name]
            getattr(join.state, name)[: len(saved)] = saved


def _reserve(join: Operator, rows: int, keys: npt.NDArray[np.int64]) -> None:
    """Let rows and keys have the numbers again that they had: none of them is used yet."""
    used = int(keys.max(initial=NONE)) + 1
    join.core.numbers[[ROWS_USED, KEYS_USED]] = rows, used
    join.core.rows["arrival"][:rows] = NONE
    join.core.keys[: used * join.core.settings.key_words] = 0


def _remember_shed(join: Operator, saved: npt.NDArray[np.int64], rehashed: bool) -> None:
    """Let what was shed be known by the places that the join has now, even without a budget.

    Args:
        join: which has its rows again.
        saved: by (place, lane) the newest time that was shed.
        rehashed: whether keys have other hashes now, so that each may have been in any place.
    """
    before = saved.reshape(-1, join.shape.lanes)
    if before.max(initial=NEVER) == NEVER:
        return
    if rehashed:
        before = before.max(axis=0, keepdims=True).repeat(len(before), axis=0)
    if join.shape.shed_places == 0:
        join.shape = replace(join.shape, shed_places=len(before))
        join.core = roomier(join.core, join.shape, join.memory, CORE)
    places = join.shape.shed_places  # both are powers of two, and hashes are cut to low bits
    if places < len(before):
        before = before.reshape(-1, places, join.shape.lanes).max(axis=0)
    join.core.shed_time[:] = np.tile(before, (places // len(before), 1)).ravel()


def can_attach(join: Operator, head: Head) -> bool:
    """Whether the very same join has left a state, so that its arrays can be taken over."""
    if head.changed(join.about()) or join.spill is not None:
        return False
    return join.matcher.can_attach(head.numbers.get(join.matcher.prefix, {}))


def attach(join: Operator, shape: Shape, memory: Memory, snapshot: Snapshot) -> None:
    """Go on with the arrays that another process has left, and the rows that belong to them.

    Args:
        join: as it was built.
        shape: the room that the arrays have.
        memory: where the arrays are, and grow from here on.
        snapshot: the head and the segments; what has left them is known from the arrays.
    """

    def left(prefix: str, layout: dict[str, Field]) -> dict[str, Any]:
        return {n: memory.open(prefix + n, np.dtype(form.dtype)) for n, form in layout.items()}

    join.memory = memory
    join.core = join.core._replace(**left(CORE, core_layout()))
    join.state = join.state._replace(**left(POLICY, join.policy.layout(shape)))
    join.work_in(shape)
    head = snapshot.head
    _resume(join, head)
    for component in join.components:
        component.attach(shape, memory, head.numbers.get(component.prefix, {}))
    for position, sealed in enumerate(head.numbers["sealed"]):
        payload = join.payload[position]
        payload.flags = dict(head.numbers["flags"][position])
        for number, wanted in sealed:
            stored = snapshot.segments[position, number]
            payload.unseal(number, stored.select(payload.schema.names), wanted)


def _resume(join: Operator, head: Head) -> None:
    """Take up the numbers of a head that are not in the arrays."""
    join.ingest.names = StreamNames(head.names)
    join.ingest.rows_seen = list(head.numbers["rows_seen"])
    join.processed = sum(join.ingest.rows_seen)
    join.others = np.array(head.numbers["others"], np.int64)
    join.ingest.newest = list(head.numbers["newest"])
    join.ingest.disorder = head.numbers["disorder"]
    join.rejected = head.numbers["rejected"]
    join.rejected_importance = head.numbers["rejected_importance"]
    for component in join.components:
        component.load(head.numbers.get(component.prefix, {}))
    for payload, following in zip(join.payload, head.numbers["next_segments"], strict=True):
        payload.next_segment = following


def _load(
    prefix: str,
    arrays: dict[str, npt.NDArray[Any]],
    layout: dict[str, Field],
    saved: dict[str, npt.NDArray[Any]],
) -> None:
    """Put back what a checkpoint kept of arrays; they may have more room than was in use."""
    for name, form in layout.items():
        if form.kept and prefix + name in saved:
            used = min(len(arrays[name]), len(saved[prefix + name]))
            arrays[name][:used] = saved[prefix + name][:used]
