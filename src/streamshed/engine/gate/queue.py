"""The arrival queue of a join that takes a row only so often (Law and Zaniolo 2007, section 2).

Rows wait in the order in which they came. When there are too many, one is shed: the one that
promises least, or any at random. Where each stream has a queue of its own, the streams take turns.

Or the join takes a row when it has done the work for those before it, as far as a throttle bounds
that: then these are the buffers of GrubJoin (section III-B), and streams take no turns.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import Batch
from streamshed.engine.component import Component
from streamshed.engine.gate import hooks
from streamshed.engine.gate.hooks import free_since, on_taken, on_waiting
from streamshed.engine.ingest import Ingest
from streamshed.engine.observe.hooks import observe, on_queued
from streamshed.engine.store import count
from streamshed.kernels.compiling import copy_element, implements, kernel
from streamshed.kernels.core import ARRIVED, FILTERED, NEVER, NONE, Field, Memory, Shape
from streamshed.kernels.hooks import queue_priority
from streamshed.kernels.random import draw
from streamshed.plan.plan import Plan, QueuePlan

# The scalars of a queue, in `Queue.numbers`.
FIRST, END, FREE, COUNT, CAME, LATEST, TURN = range(7)
NUMBERS = 7
"""The first and the last that wait, and the first free place; how many wait; how many have come;
when the last one did: the newest time seen; and the stream whose turn it was last."""

WAITS, SHED_WAITING = range(2)
"""What is counted of each stream."""

_APART = np.uint64(2**63)
"""Counters from here on are no arrivals'."""


class Queue(NamedTuple):
    """Rows that wait, in places of their own; one place more is for the one being processed."""

    rows: Batch
    after: npt.NDArray[np.int64]  # by place: who follows
    priority: npt.NDArray[np.float64]  # by place
    numbers: npt.NDArray[np.int64]
    free_at: npt.NDArray[np.float64]  # when the join takes the next row
    coming: npt.NDArray[np.float64]  # on the wall: since when rows come, how often, how many did
    counts: npt.NDArray[np.int64]  # by (stream, what)
    gap: float  # the time that the join takes for a row; 0 if the work for it says
    at_random: bool
    wall: bool
    limit: int  # how many may wait
    per_stream: bool  # whether so many of each stream may


@kernel
def moment(queue, batch, i):  # type: ignore[no-untyped-def]
    """When a row comes, which is the next one."""
    if not queue.wall:
        return batch.time[i]
    since, step, came = queue.coming
    return np.int64(np.rint(since + step * (came + 1)))


@kernel
def has_come(queue):  # type: ignore[no-untyped-def]
    """A row has come; the next one will."""
    queue.coming[2] += 1


@kernel
def put_last(queue, batch, i, priority):  # type: ignore[no-untyped-def]
    """Let a row wait behind all others."""
    numbers, rows = queue.numbers, queue.rows
    place = numbers[FREE]
    numbers[FREE] = queue.after[place]
    rows.stream[place] = batch.stream[i]
    rows.time[place] = batch.time[i]
    rows.hash[place] = batch.hash[i]
    rows.payload[place] = batch.payload[i]
    if rows.worth.size > 0:
        rows.worth[place] = batch.worth[i]
    if rows.importance.size > 0:
        rows.importance[place] = batch.importance[i]
    if rows.size.size > 0:
        rows.size[place] = batch.size[i]
    if rows.hashes.size > 0:
        copy_element(rows.hashes, place, batch.hashes, i)
    if rows.values.size > 0:
        copy_element(rows.values, place, batch.values, i)
    queue.priority[place] = priority
    queue.after[place] = NONE
    if numbers[COUNT] == 0:
        numbers[FIRST] = place
    else:
        queue.after[numbers[END]] = place
    numbers[END] = place
    numbers[COUNT] += 1
    queue.counts[2 * batch.stream[i] + WAITS] += 1


@kernel
def take_first(queue):  # type: ignore[no-untyped-def]
    """Take the row that has waited longest, of all or of the stream whose turn it is."""
    numbers = queue.numbers
    before, place = np.int64(NONE), numbers[FIRST]
    if queue.per_stream and queue.gap > 0.0:
        streams = queue.counts.size // 2
        turn = numbers[TURN]
        for _ in range(streams):
            turn = (turn + 1) % streams
            if queue.counts[2 * turn + WAITS] > 0:
                break
        numbers[TURN] = turn
        while queue.rows.stream[place] != turn:
            before, place = place, queue.after[place]
    _unlink(queue, before, place)
    return place


@kernel
def _unlink(queue, before, place):  # type: ignore[no-untyped-def]
    """Take a row out of the queue, given the one before it."""
    numbers = queue.numbers
    if before == NONE:
        numbers[FIRST] = queue.after[place]
    else:
        queue.after[before] = queue.after[place]
    if numbers[END] == place:
        numbers[END] = before
    numbers[COUNT] -= 1
    queue.counts[2 * queue.rows.stream[place] + WAITS] -= 1


@implements(hooks.release, Queue)
@kernel
def release_place(queue, place):  # type: ignore[no-untyped-def]
    """Let another row have a place."""
    queue.after[place] = queue.numbers[FREE]
    queue.numbers[FREE] = place


@kernel
def _promises_less(queue, place, other):  # type: ignore[no-untyped-def]
    """Whether a row that waits promises less than another, or is worth less."""
    if queue.priority[place] != queue.priority[other]:
        return queue.priority[place] < queue.priority[other]
    worth = queue.rows.worth
    return worth.size > 0 and worth[place] < worth[other]


@kernel
def shed_waiting(core, loss, queue, stream, among):  # type: ignore[no-untyped-def]
    """Shed one of those that wait: the first of those that promise least, or one drawn.

    Args:
        core: the state of the join.
        loss: hears of it.
        queue: in which they wait.
        stream: of the newcomer; where each has a queue, one of its own is shed.
        among: how many of these there are.
    """
    numbers = queue.numbers
    drawn = np.int64(NONE)
    if queue.at_random:
        word = draw(core.settings.seed, _APART + np.uint64(numbers[CAME]))
        drawn = np.int64(word % np.uint64(among))
    found, found_before = np.int64(NONE), np.int64(NONE)
    before, place = np.int64(NONE), numbers[FIRST]
    position = 0
    while place != NONE:
        if not queue.per_stream or queue.rows.stream[place] == stream:
            less = found == NONE or (not queue.at_random and _promises_less(queue, place, found))
            if position == drawn or less:
                found, found_before = place, before
            position += 1
        before, place = place, queue.after[place]
    _unlink(queue, found_before, found)
    queue.counts[2 * queue.rows.stream[found] + SHED_WAITING] += 1
    observe(loss, core, queue.rows, found)
    release_place(queue, found)


@kernel
def _is_free(queue, throttle, now):  # type: ignore[no-untyped-def]
    """Whether the join takes a row at a moment."""
    return free_since(throttle, queue.free_at[0]) <= np.float64(now)


@kernel
def _take(queue, throttle, core, free_at):  # type: ignore[no-untyped-def]
    """Take a row that waits, since when the join is free; returns its place."""
    queue.free_at[0] = free_at + queue.gap
    place = take_first(queue)
    on_taken(throttle, core, queue.rows.stream[place], np.float64(queue.numbers[LATEST]))
    return place


@kernel
def _join_queue(core, policy, loss, queue, throttle, batch, i):  # type: ignore[no-untyped-def]
    """Let a row come: it is taken at once if the join is free, or waits; returns who is taken.

    Who waits must have been taken before, as far as the join was free.
    """
    numbers = queue.numbers
    numbers[LATEST] = max(numbers[LATEST], moment(queue, batch, i))
    numbers[CAME] += 1
    has_come(queue)
    on_queued(loss, core, batch, i)
    on_waiting(throttle, core, batch.stream[i])
    free = numbers[COUNT] == 0 and _is_free(queue, throttle, numbers[LATEST])
    put_last(queue, batch, i, queue_priority(policy, core, batch, i))
    if free:
        return _take(queue, throttle, core, np.float64(numbers[LATEST]))
    stream = np.int64(batch.stream[i])
    among = queue.counts[2 * stream + WAITS] if queue.per_stream else numbers[COUNT]
    if among > queue.limit:
        shed_waiting(core, loss, queue, stream, among)
    return np.int64(NONE)


@kernel
def is_ready(queue, throttle, batch, i):  # type: ignore[no-untyped-def]
    """Whether somebody waits, and the join is free for him before a row comes."""
    numbers = queue.numbers
    now = max(numbers[LATEST], moment(queue, batch, i))
    return numbers[COUNT] > 0 and _is_free(queue, throttle, now)


@implements(hooks.rows_of, Queue)
def _rows_of(queue, batch):  # type: ignore[no-untyped-def]
    return queue.rows


@implements(hooks.take_next, Queue)
def _take_next(queue, throttle, policy, loss, core, batch, i):  # type: ignore[no-untyped-def]
    if batch.null.size > 0 and batch.null[i]:
        count(core, batch.stream[i], ARRIVED, 1)
        count(core, batch.stream[i], FILTERED, 1)
        has_come(queue)
        return np.int64(NONE), 1
    if is_ready(queue, throttle, batch, i):
        return _take(queue, throttle, core, queue.free_at[0]), 0
    return _join_queue(core, policy, loss, queue, throttle, batch, i), 1


class ArrivalQueue(Component):
    """The queue of a running join.

    Args:
        plan: the join.
        queue: what was said of it.
        ingest: knows which columns rows have that wait.
        shape: how many streams there are.
        memory: where the arrays are.
    """

    prefix = "queue."

    def __init__(
        self, plan: Plan, queue: QueuePlan, ingest: Ingest, shape: Shape, memory: Memory
    ) -> None:
        super().__init__(shape, memory)
        self.plan, self.queue, self.ingest = plan, queue, ingest
        self.places = queue.rows * (len(plan.streams) if queue.per_stream else 1) + 2
        self.streams = 0
        self._begin()

    def _begin(self) -> None:
        """Make an empty queue."""
        self.width = self.ingest.empty_batch().values.shape[1:]
        self.streams = self.shape.streams
        arrays = {
            name: self.memory.array(self.prefix + name, form.times, np.dtype(form.dtype), True)
            for name, form in self.layout().items()
        }
        arrays["after"][:] = np.append(np.arange(1, self.places), NONE)
        arrays["numbers"][:] = NONE, NONE, 0, 0, 0, NEVER, NONE
        arrays["free_at"][:] = -np.inf
        self.replace(arrays)

    def _columns(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The columns of rows that wait: their types, and the shape of a value."""
        like = self.ingest.empty_batch()
        there = {
            "worth": any(stream.worth is not None for stream in self.plan.streams),
            "importance": self.plan.weighed,
            "size": self.plan.memory is not None,
            "hashes": self.plan.graph,
            "values": self.plan.pairwise is not None,
            "null": False,
            "visiting": False,
        }
        return {
            name: (getattr(like, name).dtype, getattr(like, name).shape[1:])
            for name in Batch._fields
            if there.get(name, True)
        }

    def layout(self) -> dict[str, Field]:
        """The arrays, all of which a checkpoint keeps."""

        def once(dtype: npt.DTypeLike, times: int) -> Field:
            return Field("once", dtype, 0, times, kept=True)

        columns = {
            f"rows.{name}": once(dtype, self.places * math.prod(shape))
            for name, (dtype, shape) in self._columns().items()
        }
        return columns | {
            "after": once(np.int64, self.places),
            "priority": once(np.float64, self.places),
            "numbers": once(np.int64, NUMBERS),
            "free_at": once(np.float64, 1),
            "coming": once(np.float64, 3),
            "counts": once(np.int64, 2 * self.streams),
        }

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name, each with one dimension."""
        state = self.state
        columns = {
            f"rows.{name}": getattr(state.rows, name).reshape(-1) for name in self._columns()
        }
        own = ("after", "priority", "numbers", "free_at", "coming", "counts")
        return columns | {name: getattr(state, name) for name in own}

    def replace(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Let the queue have other arrays."""
        like = self.ingest.empty_batch()
        columns = {
            name: arrays[f"rows.{name}"].reshape(self.places, *shape)
            for name, (_, shape) in self._columns().items()
        }
        rows = Batch._make(columns.get(name, getattr(like, name)) for name in Batch._fields)
        own = ("after", "priority", "numbers", "free_at", "coming", "counts")
        queue = self.queue
        said = queue.gap, queue.at_random, queue.wall, queue.rows, queue.per_stream
        self.state = Queue._make([rows, *(arrays[name] for name in own), *said])

    def grow(self, shape: Shape, rows: int) -> None:
        """Only the counts grow, with the streams; and vectors, when the first one comes."""
        self.shape = shape
        if self.width != self.ingest.empty_batch().values.shape[1:]:
            counts = self.state.counts
            self._begin()
            self.state.counts[: len(counts)] = counts
        if shape.streams > self.streams:
            before, self.streams = self.state.counts, shape.streams
            counts = self.memory.array(self.prefix + "counts", 2 * self.streams, before.dtype, True)
            counts[: len(before)] = before
            self.state = self.state._replace(counts=counts)

    def attach(self, shape: Shape, memory: Memory, saved: dict[str, Any]) -> None:
        """Take over arrays."""
        self.streams, self.width = shape.streams, self.ingest.empty_batch().values.shape[1:]
        super().attach(shape, memory, saved)

    @property
    def waiting(self) -> int:
        """How many rows wait."""
        return int(self.state.numbers[COUNT])

    def counts(self) -> list[list[int]]:
        """By stream how many rows wait, and how many were shed that did."""
        counts: list[list[int]] = self.state.counts.reshape(-1, 2).tolist()
        return counts

    def forget_shed(self, streams: npt.NDArray[np.bool_]) -> int:
        """Forget how many rows of some streams were shed that waited; returns it."""
        counts = self.state.counts.reshape(-1, 2)
        shed = int(counts[: len(streams)][streams, 1].sum())
        counts[: len(streams)][streams, 1] = 0
        return shed

    def come_until(self, rows: int, now: float) -> None:
        """Say when the next rows come, where the queue goes by the clock on the wall.

        They are taken to have come evenly since the last ones did.

        Args:
            rows: how many will be processed next.
            now: microseconds, when the last of them comes.
        """
        latest = self.state.numbers[LATEST]
        since = now if latest == NEVER else min(float(latest), now)
        self.state.coming[:] = since, (now - since) / max(1, rows), 0

    def places_in_order(self) -> list[int]:
        """The places of those that wait, the first to be taken first."""
        found, place = [], int(self.state.numbers[FIRST])
        for _ in range(self.waiting):
            found.append(place)
            place = int(self.state.after[place])
        return found
