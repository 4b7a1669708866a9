"""Keep the rows that are expected to make the most results (MSketch: Law and Zaniolo 2007)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.arguments import positive
from streamshed.errors import SpecError
from streamshed.kernels import hooks
from streamshed.kernels.compiling import cold_kernel, implements, kernel, loop
from streamshed.kernels.core import Field, Shape
from streamshed.kernels.heap import enter_pool, leave_pool, restore_in_pool
from streamshed.kernels.sketch import (
    add_signs,
    draw_coefficients,
    estimate,
    multiply,
    sketch_layout,
    take_over,
    take_signs,
    words_of,
)
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


@ranks_rows
class SketchState(NamedTuple):
    """Heaps of rows, sketches of the streams, and what each row has made."""

    items: npt.NDArray[Any]
    place: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    promise: npt.NDArray[Any]  # by row: what it stands by
    newcomer: npt.NDArray[Any]
    ages: npt.NDArray[Any]
    queues: npt.NDArray[Any]
    usual: npt.NDArray[Any]
    taken: npt.NDArray[Any]
    piece: npt.NDArray[Any]
    tumbled: npt.NDArray[Any]
    kind: npt.NDArray[Any]
    own: npt.NDArray[Any]
    coefficients: npt.NDArray[Any]
    current: npt.NDArray[Any]
    last: npt.NDArray[Any]
    product: npt.NDArray[Any]
    word: npt.NDArray[Any]
    means: npt.NDArray[Any]
    signs: npt.NDArray[Any]  # by row
    samples: npt.NDArray[Any]  # whether results shall be a sample, not as many as can be
    productivity: npt.NDArray[Any]  # by row
    made: npt.NDArray[Any]  # by row: the results it has made since it was stored
    unseen: npt.NDArray[Any]  # by row: those of them that the heap does not know of yet
    touched: npt.NDArray[Any]  # the rows with such
    many: npt.NDArray[Any]  # how many these are


@dataclass(frozen=True)
class Sketch(Policy):
    """Evict the row that is expected to make the fewest results, or refuse the new row.

    The expected number of results of a row, its *productivity*, is estimated from sketches of all
    streams (section 3), not only of the streams that it is joined with directly. The sketches are
    those of the last tumbling window.

    Args:
        objective: `"subset"` keeps as many results as possible (MSketch). `"sample"` keeps a random
            sample of all results (MSketch_RS): it evicts the row that has made the largest share of
            the results expected of it.
        aging: whether to multiply productivity by the time that the row has left in its window
            (MSketch*Age).
        copies: the number of copies of the sketches over which to take the mean (the paper's s1).
        groups: the number of groups of copies; the median of their means is taken (s2).
        queue: how to rank rows that wait in a queue. `"added"`: by the number of results that
            taking the row adds, from sketches of all arriving rows; `"paper"`: by their
            productivity, from sketches of the rows that were taken (algorithm 1 to the letter).

    Examples:
        >>> Sketch(objective="sample")
        Sketch(objective='sample', aging=False, copies=100, groups=1, queue='added')
    """

    objective: Literal["subset", "sample"] = "subset"
    aging: bool = False
    copies: int = 100
    groups: int = 1
    queue: Literal["added", "paper"] = "added"

    name: ClassVar[str] = "sketch"
    state: ClassVar[type] = SketchState

    def __post_init__(self) -> None:
        if self.objective not in ("subset", "sample"):
            raise SpecError(
                f"sketch: the objective is {self.objective!r}; give 'subset' for as many results"
                " as can be, or 'sample' for a sample of all"
            )
        if self.objective == "sample" and self.aging:
            raise SpecError(
                "sketch: `aging` is for keeping as many results as can be, and the objective is"
                " 'sample'; leave one of the two out"
            )
        positive(self.copies, "sketch: `copies`")
        positive(self.groups, "sketch: `groups`")
        check_queue(self.name, self.queue)

    @property
    def makes_sample(self) -> bool:
        """That is what the objective says."""
        return self.objective == "sample"

    def check(self, plan: Plan) -> None:
        """Streams need names, and aging needs times."""
        check_ranking(self.name, "aging" if self.aging else None, plan)

    def layout(self, shape: Shape) -> dict[str, Field]:
        """A heap of rows for each pool, sketches for each stream, signs and counts for each row."""
        words = self.groups * words_of(self.copies)
        sampled = "row" if self.objective == "sample" else "once"
        return (
            ranking_layout()
            | sketch_layout(self.copies, self.groups)
            | {
                "signs": Field("row", np.uint64, None, times=words, kept=True),
                "samples": Field("once", np.int64),
                "productivity": Field(sampled, np.float64, kept=sampled == "row"),
                "made": Field(sampled, np.int64, kept=sampled == "row"),
                "unseen": Field(sampled, np.int64, kept=sampled == "row"),
                "touched": Field(sampled, np.int32),
                "many": Field("once", np.int64),
            }
        )

    def prepare(self, state: SketchState, plan: Plan) -> None:
        """Write the rule into the state, and draw the polynomials."""
        state.kind[0] = (self.copies, self.groups, words_of(self.copies))
        state.ages[0] = self.aging
        state.queues[0] = queueing(plan, self.queue)
        state.samples[0] = self.objective == "sample"
        own = attributes_of(plan)
        state.own[:] = [as_mask(attributes) for attributes in own]
        _draw(state, np.uint64(plan.seed), 1 + max(max(attributes) for attributes in own))


@loop
def _draw(state, seed, attributes):  # type: ignore[no-untyped-def]
    draw_coefficients(state, seed, attributes)


@implements(hooks.on_arrival, SketchState)
def _on_arrival(policy, core, batch, i):  # type: ignore[no-untyped-def]
    stream = np.int64(batch.stream[i])
    moved = False
    first = False
    for other in range(policy.tumbled.size):
        if turns(policy, core, other):
            take_over(policy, other)
            moved = True
        first = first or policy.tumbled[other] == 0
    take_signs(policy, batch, i)
    if policy.queues[0] == RELATIVE:
        is_taken(policy, stream)
    else:
        add_signs(policy, stream)
    if moved:
        _multiply_all(policy, core)
    elif first:
        multiply(policy, stream, policy.tumbled)
    policy.newcomer[0] = estimate(policy, stream, policy.word, 0)


@implements(hooks.queue_priority, SketchState)
def _queue_priority(policy, core, batch, i):  # type: ignore[no-untyped-def]
    stream = np.int64(batch.stream[i])
    for other in range(policy.tumbled.size):
        if policy.tumbled[other] == 0:
            multiply(policy, stream, policy.tumbled)
            break
    take_signs(policy, batch, i)
    if policy.queues[0] == AS_WRITTEN:
        return estimate(policy, stream, policy.word, 0)
    add_signs(policy, stream)
    return relative(policy, stream, estimate(policy, stream, policy.word, 0))


@cold_kernel
def _multiply_all(policy, core):  # type: ignore[no-untyped-def]
    """Find the products of all sketches, and what all rows stand by, anew."""
    _settle(policy, core)
    for stream in range(policy.tumbled.size):
        multiply(policy, stream, policy.tumbled)
    rank_again(policy, core)


@implements(hooks.rerank, SketchState)
def _rerank(policy, core, row):  # type: ignore[no-untyped-def]
    found = estimate(policy, core.rows[row].stream, policy.signs, row * policy.word.size)
    if policy.samples[0] != 0:
        policy.productivity[row] = found
        return _part_left(policy, row)
    return found


@kernel
def _part_left(policy, row):  # type: ignore[no-untyped-def]
    """The part that a row has not made yet of the results expected of it, at least one."""
    expected = (policy.tumbled.size - 1) * policy.productivity[row]
    return 1.0 - policy.made[row] / max(1.0, expected)


@implements(hooks.hears_results, SketchState)
def _hears_results(policy):  # type: ignore[no-untyped-def]
    return True


@implements(hooks.on_result, SketchState)
def _on_result(policy, core, key, stream, time, pattern, members, count):  # type: ignore[no-untyped-def]
    if policy.samples[0] == 0:
        return
    for member in range(count):
        row = members[member].row
        if policy.unseen[row] == 0:
            policy.touched[policy.many[0]] = row
            policy.many[0] += 1
        policy.unseen[row] += 1


@kernel
def _settle(policy, core):  # type: ignore[no-untyped-def]
    """Let the heaps know of results that were made, one row after the other."""
    for i in range(policy.many[0]):
        row = np.int64(policy.touched[i])
        policy.made[row] += policy.unseen[row]
        policy.unseen[row] = 0
        policy.promise[row] = _part_left(policy, row)
        restore_in_pool(policy, core, row)
    policy.many[0] = 0


@implements(hooks.admits, SketchState)
def _admits(policy, core, pool, key, stream, time, worth):  # type: ignore[no-untyped-def]
    _settle(policy, core)
    if policy.samples[0] != 0:  # nobody has more to make than one who has made nothing
        return True
    return is_admitted(policy, core, pool, stream, time)


@implements(hooks.on_insert, SketchState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    _settle(policy, core)
    words = policy.word.size
    for word in range(words):
        policy.signs[row * words + word] = policy.word[word]
    policy.promise[row] = policy.newcomer[0]
    if policy.samples[0] != 0:
        policy.productivity[row] = policy.newcomer[0]
        policy.made[row] = 0
        policy.unseen[row] = 0
        policy.promise[row] = 1.0
    enter_pool(policy, core, row)


@implements(hooks.on_remove, SketchState)
def _on_remove(policy, core, row):  # type: ignore[no-untyped-def]
    _settle(policy, core)
    leave_pool(policy, core, row)


@implements(hooks.on_restore, SketchState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    enter_pool(policy, core, row)
    if policy.samples[0] != 0 and policy.unseen[row] != 0:
        policy.touched[policy.many[0]] = row
        policy.many[0] += 1
