"""Evict rows by their existence pattern (Kwon, Lee, Kim 2010)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.errors import SpecError
from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import NONE, Field, Shape
from streamshed.kernels.groups import LINK, group_insert, group_remove
from streamshed.kernels.intrinsics import trailing_zeros
from streamshed.kernels.table import find_key, home_shift, key_lanes, per_byte
from streamshed.policies.base import Policy

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan

MOST_STREAMS = 12
"""With n streams a window has 2ⁿ⁻¹ patterns: beyond this the tables dwarf the windows."""

_ONE = np.uint64(1)


class ExistenceState(NamedTuple):
    """The existence pattern tables (definition 2), one entry for each stream and pattern."""

    links: npt.NDArray[Any]  # by row: its pattern's queue
    group_first: npt.NDArray[Any]
    group_last: npt.NDArray[Any]
    made: npt.NDArray[Any]  # r: results that rows of the pattern took part in
    stored: npt.NDArray[Any]  # n: rows ever stored with the pattern
    priority: npt.NDArray[Any]  # r / n
    occupied: npt.NDArray[Any]  # by stream: bit vector of the patterns that hold rows
    completes: npt.NDArray[Any]  # whether all rows of a completed key count as of a full pattern


@dataclass(frozen=True)
class Existence(Policy):
    """Evict rows whose existence pattern has been least productive.

    The pattern of a row is the set of streams that held its key when it arrived. The policy first
    evicts rows whose pattern is full, because they have made their result; then rows of the pattern
    with the fewest results per row, the oldest first.

    Args:
        completed: `"first"` first evicts all rows of a key that has made a complete result. By
            default, only the row that completed it goes first, whose pattern is full: definition 1
            to the letter. The paper's reason, that such a row "will not produce any more output
            tuples", also holds for the others.

    Examples:
        >>> Existence(completed="first").name
        'existence'
    """

    completed: Literal["first"] | None = None

    name: ClassVar[str] = "existence"
    state: ClassVar[type] = ExistenceState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "fixed"

    def __post_init__(self) -> None:
        if self.completed not in (None, "first"):
            raise SpecError(
                f"existence: `completed` is {self.completed!r}; give 'first', or leave it out"
            )
        if self.completed == "first":  # a row's group then changes with the results it makes
            object.__setattr__(self, "marks", "moving")

    def check(self, plan: Plan) -> None:
        """There must not be too many patterns, which are sets of streams."""
        if len(plan.streams) > MOST_STREAMS:
            raise SpecError(
                f"shed('existence') supports at most {MOST_STREAMS} streams, and the"
                f" join has {len(plan.streams)}: it keeps 2^(n-1) patterns for each; use 'oldest',"
                " 'frequency' or 'output'"
            )

    def layout(self, shape: Shape) -> dict[str, Field]:
        """A link for each row, and tables of n · 2ⁿ⁻¹ patterns."""
        patterns = 1 << (shape.lanes - 1)
        return {
            "links": Field("row", LINK, NONE),
            "group_first": Field("lane", np.int32, NONE, patterns),
            "group_last": Field("lane", np.int32, NONE, patterns),
            "made": Field("lane", np.int64, 0, patterns, kept=True),
            "stored": Field("lane", np.int64, 0, patterns, kept=True),
            "priority": Field("lane", np.float64, 0, patterns, kept=True),
            "occupied": Field("lane", np.uint64, 0, max(1, patterns // 64)),
            "completes": Field("once", np.int64),
        }

    def prepare(self, state: ExistenceState, plan: Plan) -> None:
        """Write the rule into the state."""
        state.completes[0] = self.completed == "first"


@kernel
def _table_entry(core, stream, pattern):  # type: ignore[no-untyped-def]
    """The place of a stream's pattern: the stream's own bit is always set and left out."""
    below = (_ONE << np.uint64(stream)) - _ONE
    short = (pattern & below) | ((pattern >> _ONE) & ~below)
    return (stream << (core.settings.lanes - 1)) + np.int64(short)


@kernel
def _rank(policy, entry):  # type: ignore[no-untyped-def]
    policy.priority[entry] = policy.made[entry] / policy.stored[entry]


@kernel
def _count_results(policy, entry):  # type: ignore[no-untyped-def]
    policy.made[entry] += 1
    if policy.stored[entry] > 0:
        _rank(policy, entry)


@kernel
def _words(core):  # type: ignore[no-untyped-def]
    """The words of `occupied` that a stream's table takes."""
    return max(1, (1 << (core.settings.lanes - 1)) >> 6)


@kernel
def _bit(policy, core, entry):  # type: ignore[no-untyped-def]
    """The word of `occupied` that tells of an entry, and the bit in it."""
    bits = core.settings.lanes - 1
    short = entry & ((1 << bits) - 1)
    word = (entry >> bits) * _words(core) + (short >> 6)
    return word, _ONE << np.uint64(short & 63)


@kernel
def _queue(policy, core, entry, row):  # type: ignore[no-untyped-def]
    group_insert(policy, core, entry, row)
    word, bit = _bit(policy, core, entry)
    policy.occupied[word] |= bit


@implements(hooks.queue_priority, ExistenceState)
def _queue_priority(policy, core, batch, i):  # type: ignore[no-untyped-def]
    stream = np.int64(batch.stream[i])
    key = find_key(core, batch.hash[i], home_shift(core.table))
    pattern = _ONE << np.uint64(stream)
    if key != NONE:
        pattern |= key_lanes(core, key)
    return policy.priority[_table_entry(core, stream, pattern)]


@implements(hooks.on_insert, ExistenceState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    entry = _table_entry(core, core.rows[row].stream, pattern)
    policy.stored[entry] += 1
    _rank(policy, entry)
    _queue(policy, core, entry, row)


@implements(hooks.on_remove, ExistenceState)
@kernel
def _leave_group(policy, core, row):  # type: ignore[no-untyped-def]
    entry = policy.links[row].group
    if group_remove(policy, row):
        word, bit = _bit(policy, core, entry)
        policy.occupied[word] &= ~bit


@implements(hooks.mark, ExistenceState)
def _mark(policy, core, row):  # type: ignore[no-untyped-def]
    return policy.links[row].group


@implements(hooks.on_restore, ExistenceState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    _queue(policy, core, marked, row)


@implements(hooks.hears_results, ExistenceState)
def _hears_results(policy):  # type: ignore[no-untyped-def]
    return True


@implements(hooks.on_result, ExistenceState)
def _on_result(policy, core, key, stream, time, pattern, members, count):  # type: ignore[no-untyped-def]
    _count_results(policy, _table_entry(core, stream, pattern))
    lanes = core.settings.lanes
    completed = policy.completes[0] != 0 and pattern == (_ONE << np.uint64(lanes)) - _ONE
    for i in range(count):
        row = members[i].row
        entry = policy.links[row].group
        if entry == NONE:  # a window without a budget has no table
            continue
        _count_results(policy, entry)
        full = ((core.rows[row].stream + 1) << (lanes - 1)) - 1
        if completed and entry != full:
            _leave_group(policy, core, row)
            _queue(policy, core, full, row)


@implements(hooks.victim, ExistenceState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    lanes = core.settings.lanes
    patterns = 1 << (lanes - 1)
    first, end = (pool, pool + 1) if core.settings.pools > 1 else (0, lanes)
    for stream in range(first, end):
        row = policy.group_first[(stream + 1) * patterns - 1]  # the full pattern is the last
        if row != NONE:
            return row
    words = _words(core)
    best = np.int64(NONE)
    lowest = np.inf
    for stream in range(first, end):
        for word in range(words):
            bits = policy.occupied[stream * words + word]
            base = stream * patterns + word * 64
            while bits != np.uint64(0):
                entry = base + np.int64(trailing_zeros(bits))
                bits &= bits - _ONE
                priority = per_byte(core, policy.priority[entry], policy.group_first[entry])
                if priority < lowest:
                    lowest = priority
                    best = entry
    return policy.group_first[best]
