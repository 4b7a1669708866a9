"""Shed the rarest value (Das, Gehrke, Riedewald 2003; Law and Zaniolo 2007)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.errors import SpecError
from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import NONE, Field, Shape
from streamshed.kernels.heap import heap_restore
from streamshed.kernels.pool_rows import add_member, member_position, put_member
from streamshed.kernels.table import (
    find_key,
    home_shift,
    key_count,
    key_head,
    key_per_byte,
    lane_of,
    pool_of,
)
from streamshed.policies.values import (
    ValuePolicy,
    enter_value,
    entry_of,
    ranks_values,
    standing_of,
    value_lowered,
    value_removed,
)

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan


@ranks_values
class FrequencyState(NamedTuple):
    """Keys by the number of their rows: of all streams, which the key table counts, or of each."""

    items: npt.NDArray[Any]
    place: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    standing: npt.NDArray[Any]
    lot: npt.NDArray[Any]
    members: npt.NDArray[Any]
    position: npt.NDArray[Any]
    filled: npt.NDArray[Any]
    by_window: npt.NDArray[Any]  # whether each window counts for itself


@dataclass(frozen=True)
class Frequency(ValuePolicy):
    """A row leaves whose join value is the rarest.

    Args:
        scope: `"join"`: in all windows together; `"window"`: in its own window alone (the tables
            T_i of Kwon, Lee and Kim 2010, section 4). Where no value comes twice to a stream, all
            rows of a window are then alike.

    Examples:
        >>> Frequency(scope="window")
        Frequency(scope='window')
    """

    scope: Literal["join", "window"] = "join"

    name: ClassVar[str] = "frequency"
    state: ClassVar[type] = FrequencyState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "moving"

    def __post_init__(self) -> None:
        if self.scope not in ("join", "window"):
            raise SpecError(
                f"frequency: `scope` is {self.scope!r}; give 'join' for all windows together, or"
                " 'window' for each by itself"
            )

    def check(self, plan: Plan) -> None:
        """Where a column names the streams, they share their windows' tables."""
        if self.scope == "window" and plan.by is not None:
            raise SpecError(
                "frequency: `scope` is 'window', and streams that a column names are known only as"
                " they come; use scope='join'"
            )
        if self.scope == "window" and plan.memory is not None:
            raise SpecError(
                "frequency: `scope` is 'window', and under .keep(memory=…) keys are ranked by their"
                " rows for each byte in all windows; use scope='join'"
            )

    def layout(self, shape: Shape) -> dict[str, Field]:
        """Heaps of values, and what they are counted in."""
        return super().layout(shape) | {"by_window": Field("once", np.int64)}

    def prepare(self, state: FrequencyState, plan: Plan) -> None:
        """Write the rule into the state."""
        state.by_window[0] = self.scope == "window"


@kernel
def _standing(core, key):  # type: ignore[no-untyped-def]
    return key_per_byte(core, np.float64(key_count(core, key)), key, 0, 0)


@implements(standing_of, FrequencyState)
def _standing_of(policy, core, row):  # type: ignore[no-untyped-def]
    if policy.by_window[0] == 0:
        return policy.standing.dtype.type(_standing(core, core.rows[row].key))
    return policy.standing[entry_of(core, row)]


@implements(hooks.queue_priority, FrequencyState)
def _queue_priority(policy, core, batch, i):  # type: ignore[no-untyped-def]
    key = find_key(core, batch.hash[i], home_shift(core.table))
    if key == NONE:
        return 0.0
    if policy.by_window[0] == 0:
        return np.float64(key_count(core, key))
    entry = key_head(core, key, lane_of(core, batch.stream[i]))
    if entry == NONE or policy.place[entry] == NONE:
        return 0.0
    return np.float64(policy.standing[entry])


@kernel
def _enter(policy, core, row):  # type: ignore[no-untyped-def]
    """Count a row of a key that is in the table already."""
    key = core.rows[row].key
    if policy.by_window[0] == 0:
        enter_value(policy, core, row, _standing(core, key))
        if core.key_size.size > 0:  # a large row lowers what the others promise for each byte
            value_lowered(policy, core, key, _standing(core, key))
        return
    enter_value(policy, core, row, 0.0)
    entry = entry_of(core, row)
    policy.standing[entry] += 1
    heap_restore(policy, core, pool_of(core, core.rows[row].stream), entry)


@implements(hooks.on_insert, FrequencyState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    add_member(policy, core, row)
    _enter(policy, core, row)


@implements(hooks.on_remove, FrequencyState)
def _on_remove(policy, core, row):  # type: ignore[no-untyped-def]
    key, entry = core.rows[row].key, entry_of(core, row)
    value_removed(policy, core, row)
    if policy.by_window[0] == 0:
        value_lowered(policy, core, key, _standing(core, key))
    elif entry != NONE:
        policy.standing[entry] -= 1
        heap_restore(policy, core, pool_of(core, core.rows[row].stream), entry)


implements(hooks.mark, FrequencyState)(member_position)


@implements(hooks.on_restore, FrequencyState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    put_member(policy, core, row, marked)
    _enter(policy, core, row)
