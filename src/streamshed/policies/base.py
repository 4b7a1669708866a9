"""What a policy is: a small frozen description, a state of arrays, and a few hooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from streamshed.kernels.core import Field, Shape

if TYPE_CHECKING:
    from streamshed.plan.plan import Plan


class NoState(NamedTuple):
    """The state of a policy that remembers nothing of its own."""

    shape: int = 0


@dataclass(frozen=True)
class Policy:
    """A rule that says who leaves when a window is full.

    A subclass names itself, lays out the arrays that it needs, and implements some of the hooks of
    `streamshed.kernels.hooks` for its class of state.
    """

    name: ClassVar[str]
    state: ClassVar[type] = NoState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "none"
    """What the hook `mark` says of a row: nothing, the same always, or what may change."""
    counts_keys: ClassVar[bool] = False
    """Whether it asks how many rows a key has (`key_count`), which are counted only then."""

    @property
    def makes_sample(self) -> bool:
        """Whether what is kept is to be a sample: all that wait in a queue are equal then."""
        return False

    def check(self, plan: Plan) -> None:
        """Raise a `SpecError` if this policy cannot serve the join."""

    def layout(self, shape: Shape) -> dict[str, Field]:
        """The arrays of the state."""
        return {}

    def prepare(self, state: Any, plan: Plan) -> None:
        """Write into a new state what the rule was told."""


@dataclass(frozen=True)
class Exact(Policy):
    """Nothing is ever shed: for joins without a budget."""

    name: ClassVar[str] = "exact"
