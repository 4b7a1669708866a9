"""A bounded queue before a join that takes a tuple only so often (Law and Zaniolo 2007, section 2).

Tuples wait in the order in which they came. When there are too many, one is shed: the one that
promises least, or any at random.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import NEVER, NONE
from streamshed.kernels.hooks import urgency
from streamshed.kernels.random import draw
from streamshed.operators.buffers import Batch
from streamshed.operators.plan import Plan

# The scalars of a queue, in `Waiting.numbers`.
BUSY, FIRST, END, FREE, COUNT, CAME, LATEST = range(7)
NUMBERS = 7
"""The tuple that is processed now; the first and the last that wait, and the first free place; how
many wait; how many have come; when the last one did: the newest time seen."""

WAITS, SHED_WAITING = range(2)
"""What is counted of each stream."""

_APART = np.uint64(2**63)
"""Counters from here on are no arrivals'."""


class Waiting(NamedTuple):
    """Tuples that wait, in places of their own; one place more is for the one being processed."""

    tuples: Batch
    after: npt.NDArray[np.int64]  # by place: who follows
    promise: npt.NDArray[np.float64]  # by place
    numbers: npt.NDArray[np.int64]
    free_at: npt.NDArray[np.float64]  # when the join takes the next tuple
    coming: npt.NDArray[np.float64]  # on the wall: since when tuples come, how often, how many did
    counts: npt.NDArray[np.int64]  # by (stream, what)
    gap: float  # the time that the join takes for a tuple
    at_random: bool
    wall: bool


def new_queue(plan: Plan, width: int) -> Waiting:
    """A queue in which nobody waits.

    Args:
        plan: the join.
        width: attributes for which a tuple has room.
    """
    assert plan.queue is not None
    places = plan.queue.rows + 2
    worth = any(stream.worth is not None for stream in plan.streams)
    tuples = Batch(
        np.zeros(places, np.int32),
        np.zeros(places, np.int64),
        np.zeros(places, np.uint64),
        np.zeros(places, np.int64),
        np.empty(0, np.bool_),
        np.zeros(places if worth else 0, np.int64),
        hashes=np.zeros((places, width), np.uint64),
    )
    numbers = np.array([NONE, NONE, NONE, 0, 0, 0, NEVER], np.int64)
    return Waiting(
        tuples,
        np.append(np.arange(1, places), NONE).astype(np.int64),
        np.zeros(places),
        numbers,
        np.full(1, -np.inf),
        np.zeros(3),
        np.zeros(2 * len(plan.streams), np.int64),
        plan.queue.gap,
        plan.queue.at_random,
        plan.queue.wall,
    )


def let_come(queue: Waiting, tuples: int, now: float) -> None:
    """Say that tuples have come, evenly, since the last ones, up to now on the wall."""
    latest = queue.numbers[LATEST]
    since = now if latest == NEVER else min(float(latest), now)
    queue.coming[:] = since, (now - since) / max(1, tuples), 0


@kernel
def moment(queue, batch, i):  # type: ignore[no-untyped-def]
    """When a tuple comes, which is the next one."""
    if not queue.wall:
        return batch.time[i]
    since, step, came = queue.coming
    return np.int64(np.rint(since + step * (came + 1)))


@kernel
def has_come(queue):  # type: ignore[no-untyped-def]
    """A tuple has come; the next one will."""
    queue.coming[2] += 1


@kernel
def put_last(queue, batch, i, promise):  # type: ignore[no-untyped-def]
    """Let a tuple wait behind all others."""
    numbers, tuples = queue.numbers, queue.tuples
    place = numbers[FREE]
    numbers[FREE] = queue.after[place]
    tuples.stream[place] = batch.stream[i]
    tuples.time[place] = batch.time[i]
    tuples.hash[place] = batch.hash[i]
    tuples.payload[place] = batch.payload[i]
    if tuples.worth.size > 0:
        tuples.worth[place] = batch.worth[i]
    for attribute in range(batch.hashes.shape[1]):
        tuples.hashes[place, attribute] = batch.hashes[i, attribute]
    queue.promise[place] = promise
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
    """Begin with the tuple that has waited longest."""
    place = queue.numbers[FIRST]
    _unlink(queue, np.int64(NONE), place)
    queue.numbers[BUSY] = place


@kernel
def _unlink(queue, before, place):  # type: ignore[no-untyped-def]
    """Take a tuple out of the queue, given the one before it."""
    numbers = queue.numbers
    if before == NONE:
        numbers[FIRST] = queue.after[place]
    else:
        queue.after[before] = queue.after[place]
    if numbers[END] == place:
        numbers[END] = before
    numbers[COUNT] -= 1
    queue.counts[2 * queue.tuples.stream[place] + WAITS] -= 1


@kernel
def release(queue, place):  # type: ignore[no-untyped-def]
    """Let another tuple have a place."""
    queue.after[place] = queue.numbers[FREE]
    queue.numbers[FREE] = place


@kernel
def _promises_less(queue, place, other):  # type: ignore[no-untyped-def]
    """Whether a tuple that waits promises less than another, or is worth less."""
    if queue.promise[place] != queue.promise[other]:
        return queue.promise[place] < queue.promise[other]
    worth = queue.tuples.worth
    return worth.size > 0 and worth[place] < worth[other]


@kernel
def shed_waiting(core, queue):  # type: ignore[no-untyped-def]
    """Shed one of those that wait: the first of those that promise least, or one drawn."""
    numbers = queue.numbers
    drawn = np.int64(NONE)
    if queue.at_random:
        word = draw(core.settings.seed, _APART + np.uint64(numbers[CAME]))
        drawn = np.int64(word % np.uint64(numbers[COUNT]))
    found, found_before = numbers[FIRST], np.int64(NONE)
    before, place = np.int64(NONE), numbers[FIRST]
    position = 0
    while place != NONE:
        if position == drawn or (not queue.at_random and _promises_less(queue, place, found)):
            found, found_before = place, before
        before, place = place, queue.after[place]
        position += 1
    _unlink(queue, found_before, found)
    queue.counts[2 * queue.tuples.stream[found] + SHED_WAITING] += 1
    release(queue, found)


@kernel
def join_queue(core, policy, queue, batch, i, capacity):  # type: ignore[no-untyped-def]
    """A tuple has come: it is processed at once if the join is free, or waits.

    Who waits must have been processed before, as far as the join was free.
    """
    numbers = queue.numbers
    numbers[LATEST] = max(numbers[LATEST], moment(queue, batch, i))
    numbers[CAME] += 1
    has_come(queue)
    now = np.float64(numbers[LATEST])
    free = numbers[COUNT] == 0 and queue.free_at[0] <= now
    put_last(queue, batch, i, urgency(policy, core, batch, i))
    if free:
        take_first(queue)
        queue.free_at[0] = now + queue.gap
    elif numbers[COUNT] > capacity:
        shed_waiting(core, queue)


@kernel
def is_ready(queue, batch, i):  # type: ignore[no-untyped-def]
    """Whether somebody waits, and the join is free for him before a tuple comes."""
    numbers = queue.numbers
    now = max(numbers[LATEST], moment(queue, batch, i))
    return numbers[COUNT] > 0 and queue.free_at[0] <= np.float64(now)


@loop
def wait_again(queue, batch, promises):  # type: ignore[no-untyped-def]
    """Let tuples wait again after a restart, in their order."""
    for i in range(batch.time.size):
        put_last(queue, batch, i, promises[i])


def places_in_order(queue: Waiting) -> list[int]:
    """The places of those that wait, the first to be processed first."""
    found, place = [], int(queue.numbers[FIRST])
    for _ in range(int(queue.numbers[COUNT])):
        found.append(place)
        place = int(queue.after[place])
    return found


def saved_queue(queue: Waiting) -> dict[str, npt.NDArray[Any]]:
    """What a checkpoint keeps of a queue besides the rows."""
    order = places_in_order(queue)
    return {
        "queue.promise": queue.promise[order],
        "queue.numbers": queue.numbers[[CAME, LATEST]],
        "queue.free_at": queue.free_at.copy(),
        "queue.counts": queue.counts.copy(),
    }
