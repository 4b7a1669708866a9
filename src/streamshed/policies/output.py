"""Shed the value that has produced least (Srivastava and Widom 2004)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements
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


class OutputState(NamedTuple):
    """Keys by the number of results that they have made."""

    items: npt.NDArray[Any]
    place: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    standing: npt.NDArray[Any]
    made: npt.NDArray[Any]  # by key


@dataclass(frozen=True)
class Output(Policy):
    """A row leaves whose join value has made the fewest results so far.

    A value that leaves all windows is forgotten, or the table would grow with the domain.

    Examples:
        >>> Output().name
        'output'
    """

    name: ClassVar[str] = "output"
    state: ClassVar[type] = OutputState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "moving"

    def layout(self, shape: Shape) -> dict[str, Field]:
        """A heap of keys for each pool, and a count for each key."""
        return value_layout() | {"made": Field("key", np.int64)}


@implements(hooks.precedes, OutputState)
def _precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    return value_precedes(policy, core, item, other)


@implements(hooks.victim, OutputState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    return oldest_of_lowest_value(policy, core, pool)


@implements(hooks.inserted, OutputState)
def _inserted(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    value_inserted(policy, core, row, policy.made[core.rows[row].key])


@implements(hooks.removed, OutputState)
def _removed(policy, core, row):  # type: ignore[no-untyped-def]
    value_removed(policy, core, row)
    key = core.rows[row].key
    if core.keys[key].count == 0:
        policy.made[key] = 0


@implements(hooks.produced, OutputState)
def _produced(policy, core, key, stream, pattern, members, count):  # type: ignore[no-untyped-def]
    policy.made[key] += 1
    value_changed(policy, core, key, policy.made[key])


@implements(hooks.mark, OutputState)
def _mark(policy, core, row):  # type: ignore[no-untyped-def]
    return policy.made[core.rows[row].key]


@implements(hooks.restored, OutputState)
def _restored(policy, core, row, marked):  # type: ignore[no-untyped-def]
    policy.made[core.rows[row].key] = marked
    value_inserted(policy, core, row, marked)
