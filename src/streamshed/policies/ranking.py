"""What the policies share that rank rows by what each is expected to make.

A row's *promise* is found when it comes, and anew for all rows whenever a stream has come to the
end of a piece of its past (`kernels/tumbling_windows.py`). Each pool has a heap of its rows. The
newcomer competes with them, and is refused if it stands below all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streamshed.errors import SpecError
from streamshed.kernels import hooks
from streamshed.kernels.compiling import cold_kernel, implements, kernel
from streamshed.kernels.core import NEWEST, NONE, Field
from streamshed.kernels.heap import heap_layout, heap_push, heap_top
from streamshed.kernels.table import newcomer_per_byte, per_byte
from streamshed.kernels.tumbling_windows import tumbling_layout

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan

State = TypeVar("State", bound=type)

NO_QUEUE, RELATIVE, AS_WRITTEN = range(3)
"""Whether rows wait in a queue, and stand there by what they add, or as the paper has it."""
USUAL, TAKEN = 64.0, 16.0
"""What is usual, and of whom most are taken, moves by so small a part towards the latest."""


def ranking_layout() -> dict[str, Field]:
    """The arrays of a state that ranks rows by their promise."""
    return heap_layout() | {
        "promise": Field("row", np.float64, None, kept=True),
        "newcomer": Field("once", np.float64),  # its promise
        "ages": Field("once", np.int64),  # whether promises count for the time that is left
        "queues": Field("once", np.int64),  # whether rows wait, and are known when announced
        "usual": Field("lane", np.float64, kept=True),  # the promise of rows that may have to
        "taken": Field("lane", np.float64, kept=True),  # the part of a stream in those taken
        **tumbling_layout(),
    }


def check_ranking(name: str, aging: str | None, plan: Plan) -> None:
    """Refuse joins in which rows cannot be ranked so.

    Args:
        name: of the policy.
        aging: the parameter that lets promises count for the time left, if it was given.
        plan: the join.
    """
    if aging and any(stream.window is None for stream in plan.streams):
        raise SpecError(
            f"{name}: `{aging}` counts by the time that rows have left, and a window of rows does"
            f" not tell it; give all streams windows by .within(), or leave `{aging}` out"
        )


def check_queue(name: str, queue: object) -> None:
    """Refuse what is no way to rank rows that wait."""
    if queue not in ("added", "paper"):
        raise SpecError(
            f"{name}: `queue` is {queue!r}; give 'added' to rank rows that wait by the results that"
            " each adds, or 'paper' to rank them by what they promise"
        )


def queueing(plan: Plan, queue: str) -> int:
    """How rows stand that wait."""
    if plan.queue is None:
        return NO_QUEUE
    return AS_WRITTEN if queue == "paper" else RELATIVE


def attributes_of(plan: Plan) -> list[list[int]]:
    """The attributes of each stream; a shared key is a single one."""
    return [sorted(set(stream.attributes)) or [0] for stream in plan.streams]


def as_mask(attributes: Any) -> np.uint64:
    """Attributes as bits of a word."""
    return np.uint64(sum(1 << number for number in attributes))


@kernel
def stands_below(core, promise, row, other_promise, other):  # type: ignore[no-untyped-def]
    """Whether a row stands below another: by promise, then the one that came first."""
    if promise != other_promise:
        return promise < other_promise
    return core.rows[row].arrival < core.rows[other].arrival


@cold_kernel
def rank_again(state, core):  # type: ignore[no-untyped-def]
    """Find the promises of all rows anew, and put the heaps right."""
    groups = state.sizes.size
    for pool in range(groups):
        size = state.sizes[pool]
        for position in range(size):
            row = np.int64(state.items[position * groups + pool])
            state.promise[row] = hooks.rerank(state, core, row)
        state.sizes[pool] = 0
        for position in range(size):
            heap_push(state, core, pool, state.items[position * groups + pool])


@kernel
def time_left(core, row):  # type: ignore[no-untyped-def]
    """How long a row will stay in its window, by the newest time seen."""
    stream = core.rows[row].stream
    return core.rows[row].time + core.lanes[stream].window - core.numbers[NEWEST]


@kernel
def lowest(state, core, pool):  # type: ignore[no-untyped-def]
    """The row of a pool that stands lowest."""
    if state.ages[0] == 0:
        return np.int64(heap_top(state, pool))
    # What is left of their time changes the order of rows from moment to moment.
    groups = state.sizes.size
    found, least = np.int64(NONE), np.inf
    for position in range(state.sizes[pool]):
        row = np.int64(state.items[position * groups + pool])
        promise = per_byte(core, state.promise[row] * time_left(core, row), row)
        if found == NONE or stands_below(core, promise, row, least, found):
            found, least = row, promise
    return found


@kernel
def is_admitted(state, core, pool, stream, time):  # type: ignore[no-untyped-def]
    """Whether a newcomer does not stand below all rows of a pool."""
    row = lowest(state, core, pool)
    mine, lowest_promise = state.newcomer[0], state.promise[row]
    if state.ages[0] != 0:
        mine *= time + core.lanes[stream].window - core.numbers[NEWEST]
        lowest_promise *= time_left(core, row)
    return newcomer_per_byte(core, mine) >= per_byte(core, lowest_promise, row)


@kernel
def relative(state, stream, promise):  # type: ignore[no-untyped-def]
    """A promise of one who may have to wait, by how many more results there are if it is taken.

    It promises results with all rows of the other streams, of which a part is taken. Of a stream
    with *N* rows, *T* of them taken, one more is worth its promise times *N* / *T*, as a part of
    all results; and *N* is the larger the less is usual. Otherwise the rows of the stream that
    promise most would drive all others out of a queue, and with whom should they be joined then?
    """
    state.usual[stream] += (max(0.0, promise) - state.usual[stream]) / USUAL
    return promise / max(1.0, state.usual[stream]) / max(1.0 / USUAL, state.taken[stream])


@kernel
def is_taken(state, stream):  # type: ignore[no-untyped-def]
    """A row of a stream was taken from the queue."""
    for other in range(state.taken.size):
        state.taken[other] -= state.taken[other] / TAKEN
    state.taken[stream] += 1.0 / TAKEN


def _precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    promise = per_byte(core, policy.promise[item], item)
    return stands_below(core, promise, item, per_byte(core, policy.promise[other], other), other)


def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    return lowest(policy, core, pool)


def ranks_rows(state: State) -> State:
    """Let the order of the heaps and the choice of victims be those of this module."""
    implements(hooks.precedes, state)(_precedes)
    implements(hooks.victim, state)(_victim)
    return state
