"""Evict the oldest row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements
from streamshed.kernels.lanes import oldest_of_pool
from streamshed.policies.base import Policy


class OldestState(NamedTuple):
    """Empty: the lanes know which row is the oldest."""

    shape: int = 0


@dataclass(frozen=True)
class Oldest(Policy):
    """Evict the row that would expire first.

    Examples:
        >>> Oldest().name
        'oldest'
    """

    name: ClassVar[str] = "oldest"
    state: ClassVar[type] = OldestState


@implements(hooks.victim, OldestState)
def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    return oldest_of_pool(core, pool)
