"""Evict the rows of the rarest key (Das, Gehrke, Riedewald 2003; Law and Zaniolo 2007)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.errors import SpecError
from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import NONE, Field, Shape
from streamshed.kernels.pool_rows import add_member, member_position, put_member
from streamshed.kernels.table import (
    find_key,
    home_shift,
    key_count,
    key_head,
    key_per_byte,
    lane_of,
)
from streamshed.policies.values import (
    ValuePolicy,
    enter_value,
    entry_of,
    is_known,
    known_standing,
    ranks_values,
    set_standing,
    standing_of,
    value_lowered,
    value_removed,
)

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan


@ranks_values
class FrequencyState(NamedTuple):
    """Keys by the number of their rows: of all streams, which the key table counts, or of each."""

    words: npt.NDArray[Any]
    ties: npt.NDArray[Any]
    levels: npt.NDArray[Any]
    lowest: npt.NDArray[Any]
    members: npt.NDArray[Any]
    position: npt.NDArray[Any]
    filled: npt.NDArray[Any]
    by_window: npt.NDArray[Any]  # whether each window counts for itself


@dataclass(frozen=True)
class Frequency(ValuePolicy):
    """Evict a row whose key is the rarest.

    Args:
        scope: `"join"` counts keys in all windows together; `"window"` in the row's own window (the
            tables T_i of Kwon, Lee and Kim 2010, section 4). If no key comes twice to a stream, all
            rows of a window then rank equal.

    Examples:
        >>> Frequency(scope="window")
        Frequency(scope='window')
    """

    scope: Literal["join", "window"] = "join"

    name: ClassVar[str] = "frequency"
    state: ClassVar[type] = FrequencyState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "moving"
    counts_keys: ClassVar[bool] = True

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
        """Trees of values, and what they are counted in."""
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
        return _standing(core, core.rows[row].key)
    return np.float64(known_standing(policy, core, entry_of(core, row)))


@implements(hooks.queue_priority, FrequencyState)
def _queue_priority(policy, core, batch, i):  # type: ignore[no-untyped-def]
    key = find_key(core, batch.hash[i], home_shift(core.table))
    if key == NONE:
        return 0.0
    if policy.by_window[0] == 0:
        return np.float64(key_count(core, key))
    entry = key_head(core, key, lane_of(core, batch.stream[i]))
    if entry == NONE or not is_known(policy, core, entry):
        return 0.0
    return np.float64(known_standing(policy, core, entry))


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
    _count(policy, core, entry_of(core, row), 1.0)


@kernel
def _count(policy, core, entry, change):  # type: ignore[no-untyped-def]
    """Let the window of an entry have more or fewer rows of its key."""
    rows = np.float64(known_standing(policy, core, entry))
    set_standing(policy, core, entry, rows + change)


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
        _count(policy, core, entry, -1.0)


implements(hooks.mark, FrequencyState)(member_position)


@implements(hooks.on_restore, FrequencyState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    put_member(policy, core, row, marked)
    _enter(policy, core, row)
