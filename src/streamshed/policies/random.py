"""Evict a row at random: the baseline of every paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy.typing as npt

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements
from streamshed.kernels.core import Field, Shape
from streamshed.kernels.pool_rows import (
    add_member,
    drawn_member,
    drop_member,
    member_layout,
    member_position,
    put_member,
)
from streamshed.kernels.random import draw
from streamshed.policies.base import Policy


class RandomState(NamedTuple):
    """The rows of each pool, to draw from."""

    members: npt.NDArray[Any]
    position: npt.NDArray[Any]
    filled: npt.NDArray[Any]


@dataclass(frozen=True)
class Random(Policy):
    """Evict a row that is drawn uniformly from the full window.

    Examples:
        >>> Random().name
        'random'
    """

    name: ClassVar[str] = "random"
    state: ClassVar[type] = RandomState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "moving"

    @property
    def makes_sample(self) -> bool:
        """Rows are a sample; what results are of them is another matter."""
        return True

    def layout(self, shape: Shape) -> dict[str, Field]:
        """Two numbers for each row."""
        return member_layout()


@implements(hooks.victim, RandomState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    return drawn_member(policy, pool, draw(core.settings.seed, arrival))


@implements(hooks.on_insert, RandomState)
def _on_insert(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    add_member(policy, core, row)


implements(hooks.on_remove, RandomState)(drop_member)
implements(hooks.mark, RandomState)(member_position)
implements(hooks.on_restore, RandomState)(put_member)
