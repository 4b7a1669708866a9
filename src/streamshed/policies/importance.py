"""Keep the rows whose results matter most (Towne, Zhu, Zuzarte, Hou 2007, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.errors import SpecError
from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import ARRIVALS, FIRST_SEEN, NEVER, NEWEST, NONE, Field, Shape
from streamshed.kernels.heap import heap_push, heap_remove, heap_restore, heap_top
from streamshed.kernels.lanes import older_row
from streamshed.kernels.table import newcomer_per_byte, per_byte, pool_of
from streamshed.policies.base import Policy

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan

# What a row's priority is made of.
_ALONE, _AT_ARRIVAL, _NOW, _GAINED = range(4)

RULE = np.dtype(
    [
        ("kind", np.int64),
        ("alpha", np.float64),
        ("beta", np.float64),
        ("unit", np.float64),  # of time, in which losses and lifetimes are counted
    ],
    align=True,
)
KNOWN = np.dtype(
    [
        ("priority", np.float64),
        ("importance", np.float64),
        ("since", np.float64),  # when the priority was last raised
        ("raised", np.int64),  # the arrival that last raised it
        ("matches", np.int32),
        ("spent", np.bool_),  # whether it is in the second heap
    ],
    align=True,
)
"""What is known of a row, side by side: heaps compare rows that are far from each other."""
NEWCOMER = np.dtype([("importance", np.float64), ("matches", np.int64)], align=True)
_SECOND = 1_000_000


class ImportanceState(NamedTuple):
    """Two heaps of rows for each pool: those with a priority, and those that have lost all of it.

    Every priority falls by the same amount in the same time, so that the order of two rows does not
    change by itself: what is kept is a priority as it would be at the first time seen.
    """

    items: npt.NDArray[Any]
    place: npt.NDArray[Any]
    sizes: npt.NDArray[Any]  # by (pool, spent or not)
    known: npt.NDArray[Any]  # by row
    newcomer: npt.NDArray[Any]
    rule: npt.NDArray[Any]


@dataclass(frozen=True)
class Importance(Policy):
    """Evict the row with the lowest priority, or refuse the new row if it has the lowest.

    By default the priority of a row is its importance (SIMP). Among equals, the policy evicts the
    one of lower importance, then the one with fewer matches, then the oldest.

    Args:
        matches: `"at arrival"`: the priority is the importance times the number of rows that the
            row matched when it arrived (SIMPPROB); `"now"`: times the number that it matches now
            (DIMPPROB).
        gain_loss: α and β (DGL). A row begins as with `"at arrival"`. When an arriving row makes
            results with it, it gains importance · matches now · lifetime left / α; for every unit
            of time without results, it loses β, down to 0. The unit is a second if times are
            timestamps.

    Examples:
        >>> Importance(matches="now").name
        'importance'
        >>> Importance(gain_loss=(10, 0.5)).gain_loss
        (10.0, 0.5)
    """

    matches: Literal["at arrival", "now"] | None = None
    gain_loss: tuple[float, float] | None = None

    name: ClassVar[str] = "importance"
    state: ClassVar[type] = ImportanceState

    def __post_init__(self) -> None:
        if self.matches not in (None, "at arrival", "now"):
            raise SpecError(
                f"importance: `matches` is {self.matches!r}; give 'at arrival' or 'now', or leave"
                " it out"
            )
        if self.gain_loss is None:
            return
        if self.matches is not None:
            raise SpecError(
                f"importance: `matches` is {self.matches!r} and `gain_loss` is"
                f" {self.gain_loss!r}; give one of the two"
            )
        try:
            alpha, beta = (float(number) for number in self.gain_loss)
        except (TypeError, ValueError):
            alpha = beta = -1.0
        if not (0 < alpha < float("inf") and 0 <= beta < float("inf")):
            raise SpecError(
                f"importance: `gain_loss` is {self.gain_loss!r}; give α above 0 and β of 0 or"
                " more, as in gain_loss=(10, 0.5)"
            )
        object.__setattr__(self, "gain_loss", (alpha, beta))

    def check(self, plan: Plan) -> None:
        """Rows must be weighted; who matches whom is known by a key or a relation; and so on."""
        if not plan.weighed:
            raise SpecError(
                "shed('importance') ranks rows by their importance, but no column holds it; name"
                " the column with .weigh(), or use another policy"
            )
        counted = self.matches is not None or self.gain_loss is not None
        if counted and (plan.graph or plan.pairwise is not None):
            raise SpecError(
                "importance: `matches` and `gain_loss` count the rows that a row matches, which"
                " is known where streams share a key or meet through a relation; leave both out"
            )
        if self.gain_loss is not None and any(stream.window is None for stream in plan.streams):
            raise SpecError(
                "importance: `gain_loss` counts by the time that rows have left, and a window of"
                " rows does not tell it; give all streams windows by .within(), or use"
                " matches='now'"
            )

    def layout(self, shape: Shape) -> dict[str, Field]:
        """Two heaps of rows for each pool, and what is known of each row."""
        return {
            "items": Field("held", np.int32, None, times=2),
            "place": Field("row", np.int32, None),
            "sizes": Field("pool", np.int64, times=2),
            "known": Field("row", KNOWN, None, kept=True),
            "newcomer": Field("once", NEWCOMER),
            "rule": Field("once", RULE),
        }

    def prepare(self, state: ImportanceState, plan: Plan) -> None:
        """Write the rule into the state."""
        kind = {None: _ALONE, "at arrival": _AT_ARRIVAL, "now": _NOW}[self.matches]
        alpha, beta = self.gain_loss or (1.0, 0.0)
        unit = _SECOND if pa.types.is_timestamp(plan.time_type) else 1
        state.rule[0] = (_GAINED if self.gain_loss else kind, alpha, beta, unit)


@kernel
def _now(policy, core):  # type: ignore[no-untyped-def]
    """The time that has gone by since the first time seen, in units."""
    if core.numbers[NEWEST] == NEVER:
        return 0.0
    return (core.numbers[NEWEST] - core.numbers[FIRST_SEEN]) / policy.rule[0].unit


@kernel
def _fallen(policy, core):  # type: ignore[no-untyped-def]
    """How much all priorities have fallen since the first time seen."""
    return policy.rule[0].beta * _now(policy, core)


@kernel
def _priority(policy, core, importance, matches):  # type: ignore[no-untyped-def]
    """The priority of a newcomer, as it is kept."""
    if policy.rule[0].kind == _ALONE:
        return importance
    return importance * matches + _fallen(policy, core)


@kernel
def _heap_of(policy, core, row):  # type: ignore[no-untyped-def]
    return 2 * pool_of(core, core.rows[row].stream) + policy.known[row].spent


@kernel
def _lowest(policy, core, pool):  # type: ignore[no-untyped-def]
    """The row of the lowest priority; those that have lost all of it by now are sorted out."""
    fallen = _fallen(policy, core)
    if policy.rule[0].kind == _GAINED:
        while policy.sizes[2 * pool] > 0:
            row = heap_top(policy, 2 * pool)
            if policy.known[row].priority > fallen:
                break
            heap_remove(policy, core, 2 * pool, row)
            policy.known[row].spent = True
            heap_push(policy, core, 2 * pool + 1, row)
    return heap_top(policy, 2 * pool + (policy.sizes[2 * pool + 1] > 0))


@kernel
def _standing(policy, core, row):  # type: ignore[no-untyped-def]
    """What a row stands by; priorities that fall all alike cannot be divided by bytes."""
    priority = policy.known[row].priority
    return priority if policy.rule[0].kind == _GAINED else per_byte(core, priority, row)


@implements(hooks.precedes, ImportanceState)
def _precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    standing, than = _standing(policy, core, item), _standing(policy, core, other)
    if not policy.known[item].spent and standing != than:
        return standing < than
    if policy.known[item].importance != policy.known[other].importance:
        return policy.known[item].importance < policy.known[other].importance
    if policy.known[item].matches != policy.known[other].matches:
        return policy.known[item].matches < policy.known[other].matches
    return older_row(core, item, other)


@implements(hooks.admits, ImportanceState)
def _admits(policy, core, pool, key, stream, time, worth):  # type: ignore[no-untyped-def]
    lowest = _lowest(policy, core, pool)
    newcomer = policy.newcomer[0]
    priority = _priority(policy, core, newcomer.importance, newcomer.matches)
    if policy.rule[0].kind != _GAINED:
        priority = newcomer_per_byte(core, priority)
    least = _fallen(policy, core) if policy.known[lowest].spent else _standing(policy, core, lowest)
    if priority != least:
        return priority > least
    if newcomer.importance != policy.known[lowest].importance:
        return newcomer.importance > policy.known[lowest].importance
    return newcomer.matches >= policy.known[lowest].matches


@implements(hooks.victim, ImportanceState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    return _lowest(policy, core, pool)


@implements(hooks.counts_matches, ImportanceState)
def _counts_matches(policy):  # type: ignore[no-untyped-def]
    return min(policy.rule[0].kind, _NOW)


@implements(hooks.has_matches, ImportanceState)
def _has_matches(policy, core, row):  # type: ignore[no-untyped-def]
    return policy.known[row].matches > 0


@implements(hooks.on_newcomer, ImportanceState)
def _on_newcomer(policy, core, importance, matches):  # type: ignore[no-untyped-def]
    policy.newcomer[0].importance = importance
    policy.newcomer[0].matches = matches


@implements(hooks.on_match, ImportanceState)
def _on_match(policy, core, row, change):  # type: ignore[no-untyped-def]
    if row == NONE:
        policy.newcomer[0].matches += change
        return
    policy.known[row].matches += change
    if policy.rule[0].kind == _NOW:
        policy.known[row].priority = policy.known[row].importance * policy.known[row].matches
    heap_restore(policy, core, _heap_of(policy, core, row), row)


@kernel
def _enter(policy, core, row):  # type: ignore[no-untyped-def]
    policy.known[row].importance = policy.newcomer[0].importance
    policy.known[row].raised = NONE
    # Who has no priority goes where those are that lost it.
    none = policy.known[row].priority <= _fallen(policy, core)
    policy.known[row].spent = policy.rule[0].kind == _GAINED and none
    heap_push(policy, core, _heap_of(policy, core, row), row)


@implements(hooks.on_insert, ImportanceState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    newcomer = policy.newcomer[0]
    policy.known[row].matches = newcomer.matches
    policy.known[row].priority = _priority(policy, core, newcomer.importance, newcomer.matches)
    policy.known[row].since = _now(policy, core)
    _enter(policy, core, row)


@implements(hooks.on_remove, ImportanceState)
def _on_remove(policy, core, row):  # type: ignore[no-untyped-def]
    heap_remove(policy, core, _heap_of(policy, core, row), row)


@implements(hooks.on_result, ImportanceState)
def _on_result(policy, core, key, stream, time, pattern, members, count):  # type: ignore[no-untyped-def]
    if policy.rule[0].kind != _GAINED:
        return
    for i in range(count):
        row = members[i].row
        if policy.known[row].raised != core.numbers[ARRIVALS]:  # once for each newcomer
            policy.known[row].raised = core.numbers[ARRIVALS]
            _raise(policy, core, row)


@kernel
def _raise(policy, core, row):  # type: ignore[no-untyped-def]
    """Let a row gain what its part in a result is worth; at such a moment it loses nothing."""
    rule = policy.rule[0]
    now = _now(policy, core)
    lost = rule.beta * max(policy.known[row].since, now - 1.0)
    before = max(0.0, policy.known[row].priority - lost)
    window = core.lanes[core.rows[row].stream].window
    left = (core.rows[row].time + window - core.numbers[NEWEST]) / rule.unit + 1.0
    gained = policy.known[row].importance * policy.known[row].matches * left / rule.alpha
    pool = pool_of(core, core.rows[row].stream)
    if policy.known[row].spent:
        heap_remove(policy, core, 2 * pool + 1, row)
        policy.known[row].spent = False
        policy.known[row].priority = before + gained + rule.beta * now
        heap_push(policy, core, 2 * pool, row)
    else:
        policy.known[row].priority = before + gained + rule.beta * now
        heap_restore(policy, core, 2 * pool, row)
    policy.known[row].since = now


@implements(hooks.on_restore, ImportanceState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    newcomer = policy.newcomer[0]
    if policy.rule[0].kind >= _NOW:  # those that come after it will tell it of theirs
        policy.known[row].matches = newcomer.matches
    if policy.rule[0].kind == _NOW:
        policy.known[row].priority = newcomer.importance * newcomer.matches
    _enter(policy, core, row)
