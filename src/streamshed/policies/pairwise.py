"""Keep the rows with the most partners in one other stream (BJoin, Prob, Life).

Das, Gehrke and Riedewald 2003; as the baseline of Law and Zaniolo 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import Field, Shape
from streamshed.kernels.count_min import (
    COUNTERS,
    CURRENT,
    LAST,
    PIECES,
    ROWS,
    begin_counting,
    count_value,
    counted,
)
from streamshed.kernels.hashing import fold
from streamshed.kernels.heap import enter_pool, leave_pool
from streamshed.kernels.intrinsics import trailing_zeros
from streamshed.kernels.tumbling_windows import turns
from streamshed.policies.base import Policy
from streamshed.policies.ranking import (
    AS_WRITTEN,
    RELATIVE,
    as_mask,
    attributes_of,
    check_queue,
    check_ranking,
    is_admitted,
    is_taken,
    queueing,
    rank_again,
    ranking_layout,
    ranks_rows,
    relative,
)

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan

_ZERO, _ONE = np.uint64(0), np.uint64(1)


@ranks_rows
class PairwiseState(NamedTuple):
    """Heaps of rows, and how often values came to the stream that each is joined with."""

    items: npt.NDArray[Any]
    place: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    promise: npt.NDArray[Any]
    newcomer: npt.NDArray[Any]
    ages: npt.NDArray[Any]
    queues: npt.NDArray[Any]
    usual: npt.NDArray[Any]
    taken: npt.NDArray[Any]
    piece: npt.NDArray[Any]
    tumbled: npt.NDArray[Any]
    own: npt.NDArray[Any]  # by stream: its attributes
    partner: npt.NDArray[Any]  # by stream: the one that it is joined with
    shared: npt.NDArray[Any]  # by stream: the attributes that it shares with that one
    counters: npt.NDArray[Any]  # by stream: how often values came to its partner
    value: npt.NDArray[Any]  # by row: the hash of the attributes shared
    arrived: npt.NDArray[Any]  # the same of the newcomer


@dataclass(frozen=True)
class Pairwise(Policy):
    """Evict the row with the fewest partners in one other stream, or refuse the new row.

    The policy treats the join as a sequence of two-way joins, in the order of the streams: the
    partner of a stream is the first stream that it shares an attribute with. It ranks a row by how
    often its values came to that stream in the last tumbling window (BJoin; for two streams the
    policy Prob). It ignores the other streams.

    Args:
        life: whether to multiply this by the time that the row has left in its window (Life).
        queue: how to rank rows that wait in a queue, as with `Sketch`: `"added"` or `"paper"`.

    Examples:
        >>> Pairwise(life=True)
        Pairwise(life=True, queue='added')
    """

    life: bool = False
    queue: Literal["added", "paper"] = "added"

    name: ClassVar[str] = "pairwise"
    state: ClassVar[type] = PairwiseState

    def __post_init__(self) -> None:
        check_queue(self.name, self.queue)

    def check(self, plan: Plan) -> None:
        """Streams need names, and lifetimes need times."""
        check_ranking(self.name, "life" if self.life else None, plan)

    def layout(self, shape: Shape) -> dict[str, Field]:
        """A heap of rows for each pool, counters for each stream, and a hash for each row."""
        return ranking_layout() | {
            "own": Field("lane", np.uint64),
            "partner": Field("lane", np.int64),
            "shared": Field("lane", np.uint64),
            "counters": Field("lane", np.int32, times=PIECES * ROWS * COUNTERS, kept=True),
            "value": Field("row", np.uint64, None, kept=True),
            "arrived": Field("once", np.uint64),
        }

    def prepare(self, state: PairwiseState, plan: Plan) -> None:
        """Find the partners."""
        own = attributes_of(plan)
        state.ages[0] = self.life
        state.queues[0] = queueing(plan, self.queue)
        for position, attributes in enumerate(own):
            partner = partner_of(own, position)
            state.own[position] = as_mask(attributes)
            state.partner[position] = partner
            state.shared[position] = as_mask({*attributes} & {*own[partner]})


def partner_of(own: list[list[int]], position: int) -> int:
    """The stream that a stream is joined with, given the attributes of each.

    Examples:
        >>> [partner_of([[0], [0, 1], [1]], position) for position in range(3)]
        [1, 0, 1]
    """
    sharing = [p for p, others in enumerate(own) if p != position and {*others} & {*own[position]}]
    return sharing[0]


@implements(hooks.on_arrival, PairwiseState)
def _on_arrival(policy, core, batch, i):  # type: ignore[no-untyped-def]
    stream = np.int64(batch.stream[i])
    moved = False
    for other in range(policy.tumbled.size):
        if turns(policy, core, other):
            moved = True
            for table in range(policy.tumbled.size):
                if policy.partner[table] == other:
                    begin_counting(policy.counters, table)
    if policy.queues[0] == RELATIVE:
        is_taken(policy, stream)
    else:
        _learn(policy, batch, i)
    if moved:
        rank_again(policy, core)
    policy.arrived[0] = _shared_hash(policy, batch, i, stream)
    policy.newcomer[0] = _partners(policy, stream, policy.arrived[0])


@kernel
def _learn(policy, batch, i):  # type: ignore[no-untyped-def]
    """Count the values of a row for the streams whose partner its own is."""
    for table in range(policy.tumbled.size):
        if policy.partner[table] == batch.stream[i]:
            count_value(policy.counters, table, _shared_hash(policy, batch, i, table))


@implements(hooks.queue_priority, PairwiseState)
def _queue_priority(policy, core, batch, i):  # type: ignore[no-untyped-def]
    stream = np.int64(batch.stream[i])
    if policy.queues[0] == RELATIVE:
        _learn(policy, batch, i)
    found = _partners(policy, stream, _shared_hash(policy, batch, i, stream))
    return found if policy.queues[0] == AS_WRITTEN else relative(policy, stream, found)


@kernel
def _shared_hash(policy, batch, i, stream):  # type: ignore[no-untyped-def]
    """The hash of those attributes of a row that a stream shares with its partner."""
    if batch.hashes.size == 0:
        return batch.hash[i]
    hashed = _ZERO
    found = False
    rest = policy.own[batch.stream[i]]
    place = 0
    while rest != _ZERO:
        bit = np.uint64(trailing_zeros(rest))
        rest &= rest - _ONE
        if (policy.shared[stream] >> bit) & _ONE == _ONE:
            value = batch.hashes[i, place]
            hashed = fold(hashed, value) if found else value
            found = True
        place += 1
    return hashed


@kernel
def _partners(policy, stream, value):  # type: ignore[no-untyped-def]
    """How often a value came to the partner of a stream in its last piece, or its first."""
    piece = LAST if policy.tumbled[policy.partner[stream]] != 0 else CURRENT
    return np.float64(counted(policy.counters, stream, piece, value))


@implements(hooks.rerank, PairwiseState)
def _rerank(policy, core, row):  # type: ignore[no-untyped-def]
    return _partners(policy, np.int64(core.rows[row].stream), policy.value[row])


@implements(hooks.admits, PairwiseState)
def _admits(policy, core, pool, key, stream, time, worth):  # type: ignore[no-untyped-def]
    return is_admitted(policy, core, pool, stream, time)


@implements(hooks.on_insert, PairwiseState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    policy.value[row] = policy.arrived[0]
    policy.promise[row] = policy.newcomer[0]
    enter_pool(policy, core, row)


implements(hooks.on_remove, PairwiseState)(leave_pool)


@implements(hooks.on_restore, PairwiseState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    enter_pool(policy, core, row)
