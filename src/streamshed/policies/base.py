"""The base class of policies: a frozen description, a state of arrays, and a few hooks."""

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
    """A rule that chooses which row to evict when the budget is full.

    A subclass has a name, a `layout` of the arrays that it needs, and kernels that implement some
    of the hooks of `streamshed.kernels.hooks` for its class of state.
    """

    name: ClassVar[str]
    state: ClassVar[type] = NoState
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "none"
    """Whether the hook `mark` returns nothing for a row, a fixed value, or one that may change."""
    counts_keys: ClassVar[bool] = False
    """Whether a hook reads `key_count`, the rows of a key: they are counted only then."""

    @property
    def makes_sample(self) -> bool:
        """Whether the stored rows are to be a sample; then all rows in a queue rank equal."""
        return False

    def check(self, plan: Plan) -> None:
        """Raise a `SpecError` if this policy cannot serve the join."""

    def layout(self, shape: Shape) -> dict[str, Field]:
        """The arrays of the state."""
        return {}

    def prepare(self, state: Any, plan: Plan) -> None:
        """Write the parameters of the policy into a new state."""


@dataclass(frozen=True)
class Exact(Policy):
    """Sheds nothing: for joins without a budget."""

    name: ClassVar[str] = "exact"
