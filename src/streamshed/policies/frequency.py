"""Shed the rarest value (Das, Gehrke, Riedewald 2003; Law and Zaniolo 2007)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import Field, Shape
from streamshed.policies.base import Policy
from streamshed.policies.values import (
    oldest_of_lowest_value,
    value_changed,
    value_inserted,
    value_layout,
    value_precedes,
    value_removed,
)


class FrequencyState(NamedTuple):
    """Keys by the number of their rows, which the key table counts anyway."""

    items: npt.NDArray[Any]
    place: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    standing: npt.NDArray[Any]


@dataclass(frozen=True)
class Frequency(Policy):
    """A row leaves whose join value is the rarest in all windows together.

    Examples:
        >>> Frequency().name
        'frequency'
    """

    name: ClassVar[str] = "frequency"
    state: ClassVar[type] = FrequencyState

    def layout(self, shape: Shape) -> dict[str, Field]:
        """A heap of keys for each pool."""
        return value_layout()


@implements(hooks.precedes, FrequencyState)
def _precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    return value_precedes(policy, core, item, other)


@implements(hooks.victim, FrequencyState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    return oldest_of_lowest_value(policy, core, pool)


@kernel
def _count(policy, core, row):  # type: ignore[no-untyped-def]
    key = core.rows[row].key
    value_inserted(policy, core, row, core.keys[key].count)
    value_changed(policy, core, key, core.keys[key].count)


@implements(hooks.inserted, FrequencyState)
def _inserted(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    _count(policy, core, row)


@implements(hooks.restored, FrequencyState)
def _restored(policy, core, row, marked):  # type: ignore[no-untyped-def]
    _count(policy, core, row)


@implements(hooks.removed, FrequencyState)
def _removed(policy, core, row):  # type: ignore[no-untyped-def]
    key = core.rows[row].key
    value_removed(policy, core, row)
    value_changed(policy, core, key, core.keys[key].count)
