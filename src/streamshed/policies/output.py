"""Evict the rows of the key that has made the fewest results (Srivastava and Widom 2004)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements, kernel
from streamshed.kernels.core import NONE, Field, Shape
from streamshed.kernels.table import find_key, home_shift, is_unused, key_per_byte
from streamshed.policies.values import (
    ValuePolicy,
    ranks_values,
    standing_of,
    value_inserted,
    value_lowered,
    value_removed,
    value_restored,
)

MOST = 2**24
"""Results are counted up to here for a value: what has made so many is safe anyway."""
POSITION_BITS = 31
"""Of a mark: below the results of a row's key is its position among those that are drawn from."""


@ranks_values
class OutputState(NamedTuple):
    """Keys by the number of results that they have made."""

    words: npt.NDArray[Any]
    ties: npt.NDArray[Any]
    levels: npt.NDArray[Any]
    lowest: npt.NDArray[Any]
    members: npt.NDArray[Any]
    position: npt.NDArray[Any]
    filled: npt.NDArray[Any]
    made: npt.NDArray[Any]  # by key


@dataclass(frozen=True)
class Output(ValuePolicy):
    """Evict a row whose key has made the fewest results so far.

    The policy forgets a key that has left all windows; otherwise its table would grow with the
    number of keys.

    Examples:
        >>> Output().name
        'output'
    """

    name: ClassVar[str] = "output"
    state: ClassVar[type] = OutputState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "moving"

    def layout(self, shape: Shape) -> dict[str, Field]:
        """A count for each key besides."""
        return super().layout(shape) | {"made": Field("key", np.uint32)}


@kernel
def _standing(policy, core, key):  # type: ignore[no-untyped-def]
    return key_per_byte(core, np.float64(policy.made[key]), key, 0, 0)


@kernel
def _bytes_changed(policy, core, key):  # type: ignore[no-untyped-def]
    """Where the budget is in bytes, a key stands by those of its rows too."""
    if core.key_size.size > 0:
        value_lowered(policy, core, key, _standing(policy, core, key))


@implements(standing_of, OutputState)
def _standing_of(policy, core, row):  # type: ignore[no-untyped-def]
    return _standing(policy, core, core.rows[row].key)


@implements(hooks.queue_priority, OutputState)
def _queue_priority(policy, core, batch, i):  # type: ignore[no-untyped-def]
    key = find_key(core, batch.hash[i], home_shift(core.table))
    return 0.0 if key == NONE else np.float64(policy.made[key])


@implements(hooks.on_insert, OutputState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    key = core.rows[row].key
    value_inserted(policy, core, row, _standing(policy, core, key))
    _bytes_changed(policy, core, key)


@implements(hooks.on_remove, OutputState)
def _on_remove(policy, core, row):  # type: ignore[no-untyped-def]
    value_removed(policy, core, row)
    key = core.rows[row].key
    if is_unused(core, key):
        policy.made[key] = 0
    _bytes_changed(policy, core, key)


@implements(hooks.hears_results, OutputState)
def _hears_results(policy):  # type: ignore[no-untyped-def]
    return True


@implements(hooks.on_result, OutputState)
def _on_result(policy, core, key, stream, time, pattern, members, count):  # type: ignore[no-untyped-def]
    if policy.made[key] < MOST:
        policy.made[key] += 1


@implements(hooks.mark, OutputState)
def _mark(policy, core, row):  # type: ignore[no-untyped-def]
    made = np.int64(policy.made[core.rows[row].key])
    return made << POSITION_BITS | policy.position[row]


@implements(hooks.on_restore, OutputState)
def _on_restore(policy, core, row, marked):  # type: ignore[no-untyped-def]
    key = core.rows[row].key
    policy.made[key] = marked >> POSITION_BITS
    position = marked & ((1 << POSITION_BITS) - 1)
    value_restored(policy, core, row, _standing(policy, core, key), position)
    _bytes_changed(policy, core, key)
