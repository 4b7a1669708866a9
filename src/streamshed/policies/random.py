"""Shed a row at random: the baseline of every paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements
from streamshed.kernels.core import Field, Shape
from streamshed.kernels.random import draw
from streamshed.kernels.table import pool_of
from streamshed.policies.base import Policy


class RandomState(NamedTuple):
    """The rows of each pool, without gaps, in an order of no meaning."""

    members: npt.NDArray[Any]  # position × pools + pool
    position: npt.NDArray[Any]  # by row
    sizes: npt.NDArray[Any]  # by pool


@dataclass(frozen=True)
class Random(Policy):
    """Every row of a full window is equally likely to leave.

    Examples:
        >>> Random().name
        'random'
    """

    name: ClassVar[str] = "random"
    state: ClassVar[type] = RandomState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "moving"

    def layout(self, shape: Shape) -> dict[str, Field]:
        """Two numbers for each row."""
        return {
            "members": Field("held", np.int32, None),
            "position": Field("row", np.int32, None),
            "sizes": Field("pool", np.int64),
        }


@implements(hooks.victim, RandomState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    drawn = draw(core.settings.seed, arrival) % np.uint64(policy.sizes[pool])
    return policy.members[np.int64(drawn) * policy.sizes.size + pool]


@implements(hooks.inserted, RandomState)
def _inserted(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    pool = pool_of(core, core.rows[row].stream)
    end = policy.sizes[pool]
    policy.members[end * policy.sizes.size + pool] = row
    policy.position[row] = end
    policy.sizes[pool] = end + 1


@implements(hooks.removed, RandomState)
def _removed(policy, core, row):  # type: ignore[no-untyped-def]
    pools = policy.sizes.size
    pool = pool_of(core, core.rows[row].stream)
    end = policy.sizes[pool] - 1
    moved = policy.members[end * pools + pool]
    policy.members[policy.position[row] * pools + pool] = moved
    policy.position[moved] = policy.position[row]
    policy.sizes[pool] = end


@implements(hooks.mark, RandomState)
def _mark(policy, core, row):  # type: ignore[no-untyped-def]
    return policy.position[row]


@implements(hooks.restored, RandomState)
def _restored(policy, core, row, marked):  # type: ignore[no-untyped-def]
    pool = pool_of(core, core.rows[row].stream)
    policy.members[marked * policy.sizes.size + pool] = row
    policy.position[row] = marked
    policy.sizes[pool] += 1
