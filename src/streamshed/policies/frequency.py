"""Shed the rarest value (Das, Gehrke, Riedewald 2003; Law and Zaniolo 2007)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import NONE
from streamshed.kernels.members import put_member
from streamshed.kernels.table import find_key, home_shift, key_count, key_per_byte
from streamshed.policies.values import (
    ValuePolicy,
    enter_value,
    lowest_value,
    value_changed,
    value_inserted,
    value_precedes,
    value_removed,
)


class FrequencyState(NamedTuple):
    """Keys by the number of their rows, which the key table counts anyway."""

    items: npt.NDArray[Any]
    place: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    standing: npt.NDArray[Any]
    members: npt.NDArray[Any]
    position: npt.NDArray[Any]
    filled: npt.NDArray[Any]


@dataclass(frozen=True)
class Frequency(ValuePolicy):
    """A row leaves whose join value is the rarest in all windows together.

    Examples:
        >>> Frequency().name
        'frequency'
    """

    name: ClassVar[str] = "frequency"
    state: ClassVar[type] = FrequencyState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "moving"


@kernel
def _standing(core, key):  # type: ignore[no-untyped-def]
    return key_per_byte(core, np.float64(key_count(core, key)), key, 0, 0)


@implements(hooks.precedes, FrequencyState)
def _precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    return value_precedes(policy, core, item, other)


@implements(hooks.victim, FrequencyState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    return lowest_value(policy, core, pool, arrival)


@implements(hooks.queue_priority, FrequencyState)
def _queue_priority(policy, core, batch, i):  # type: ignore[no-untyped-def]
    key = find_key(core, batch.hash[i], home_shift(core.table))
    return 0.0 if key == NONE else np.float64(key_count(core, key))


@implements(hooks.on_insert, FrequencyState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    key = core.rows[row].key
    value_inserted(policy, core, row, _standing(core, key))
    value_changed(policy, core, key, _standing(core, key))


@implements(hooks.on_remove, FrequencyState)
def _on_remove(policy, core, row):  # type: ignore[no-untyped-def]
    key = core.rows[row].key
    value_removed(policy, core, row)
    value_changed(policy, core, key, _standing(core, key))


@implements(hooks.mark, FrequencyState)
def _mark(policy, core, row):  # type: ignore[no-untyped-def]
    return policy.position[row]


@implements(hooks.on_restore, FrequencyState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    key = core.rows[row].key
    put_member(policy, core, row, marked)
    enter_value(policy, core, row, _standing(core, key))
    value_changed(policy, core, key, _standing(core, key))
