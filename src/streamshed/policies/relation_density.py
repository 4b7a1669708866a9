"""Density in joins through a relation: shed the rows that promise the least importance.

There is no key that rows share, and so no whole keys to keep or to shed. But the relation says whom
a row can meet, and how often these come is seen from all arrivals, whatever is shed: what a row
promises follows from that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.age_buckets import find_horizon, now
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import ARRIVALS, NONE, Field, Shape
from streamshed.kernels.heap import enter_pool, heap_layout, heap_top, leave_pool, restore_in_pool
from streamshed.kernels.lanes import older_row
from streamshed.kernels.table import newcomer_per_byte, per_byte
from streamshed.policies.base import Policy

MEMORY = 6.0
"""The windows after which an arrival is forgotten."""
BITS = 16
"""The values of joining columns that are remembered: two to this power."""

_PLACE = np.uint64(64 - BITS)

FLOW = np.dtype(
    [("hash", np.uint64), ("count", np.float64), ("weight", np.float64), ("last", np.int64)],
    align=True,
)
"""How often a value came, how important its rows were together, and when it last came."""
KNOWN = np.dtype([("density", np.float64), ("looked", np.int64)], align=True)
"""What a row promised when it was last looked at, and for which arrival that was."""


class PromiseState(NamedTuple):
    """A heap of rows for each pool, and what comes."""

    items: npt.NDArray[Any]
    place: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    known: npt.NDArray[Any]  # by row
    flow: npt.NDArray[Any]
    horizon: npt.NDArray[Any]
    newcomer: npt.NDArray[Any]


@dataclass(frozen=True)
class RelationDensity(Policy):
    """The policy `shed("density")` in joins through a relation.

    It evicts the row that is expected to add the least importance for the time that it is stored.

    Examples:
        >>> RelationDensity().name
        'density'
    """

    name: ClassVar[str] = "density"
    state: ClassVar[type] = PromiseState

    def layout(self, shape: Shape) -> dict[str, Field]:
        """A heap of rows for each pool, what is known of each row, and what comes."""
        return heap_layout() | {
            "known": Field("row", KNOWN, None, kept=True),
            "flow": Field("once", FLOW, times=1 << BITS, kept=True),
            "horizon": Field("once", np.float64, times=2),
            "newcomer": Field("once", np.float64),
        }


@kernel
def _left(policy, core, last):  # type: ignore[no-untyped-def]
    """The part of a count that is left of it by now."""
    find_horizon(policy, core)
    return max(0.0, 1.0 - (now(core) - last) / (MEMORY * policy.horizon[0]))


@implements(hooks.ranks_by_promise, PromiseState)
def _ranks_by_promise(policy):  # type: ignore[no-untyped-def]
    return True


@implements(hooks.on_value, PromiseState)
def _on_value(policy, core, hashed, importance):  # type: ignore[no-untyped-def]
    place = np.int64(hashed >> _PLACE)
    flow = policy.flow
    left = _left(policy, core, flow[place].last)
    if flow[place].hash != hashed:
        flow[place].hash = hashed
        left = 0.0
    flow[place].count = flow[place].count * left + 1.0
    flow[place].weight = flow[place].weight * left + importance
    flow[place].last = now(core)


@implements(hooks.expected_rate, PromiseState)
def _expected_rate(policy, core, hashed):  # type: ignore[no-untyped-def]
    known = policy.flow[np.int64(hashed >> _PLACE)]
    if known.hash != hashed or known.count == 0.0:
        return 0.0, 0.0
    rate = known.count * _left(policy, core, known.last) / MEMORY
    return rate, known.weight / known.count


@implements(hooks.set_promise, PromiseState)
def _set_promise(policy, core, row, density):  # type: ignore[no-untyped-def]
    if row == NONE:
        policy.newcomer[0] = density
        return True
    if policy.known[row].looked == core.numbers[ARRIVALS]:
        return True
    policy.known[row].looked = core.numbers[ARRIVALS]
    policy.known[row].density = density
    restore_in_pool(policy, core, row)
    return False


@implements(hooks.precedes, PromiseState)
def _precedes(policy, core, item, other):  # type: ignore[no-untyped-def]
    density = per_byte(core, policy.known[item].density, item)
    than = per_byte(core, policy.known[other].density, other)
    if density != than:
        return density < than
    return older_row(core, item, other)


@implements(hooks.admits, PromiseState)
def _admits(policy, core, pool, key, stream, time, worth):  # type: ignore[no-untyped-def]
    lowest = heap_top(policy, pool)
    density = per_byte(core, policy.known[lowest].density, lowest)
    return newcomer_per_byte(core, policy.newcomer[0]) >= density


@implements(hooks.victim, PromiseState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    return heap_top(policy, pool)


@implements(hooks.on_insert, PromiseState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    policy.known[row].density = policy.newcomer[0]
    policy.known[row].looked = core.numbers[ARRIVALS]
    enter_pool(policy, core, row)


implements(hooks.on_remove, PromiseState)(leave_pool)


@implements(hooks.on_restore, PromiseState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    enter_pool(policy, core, row)
