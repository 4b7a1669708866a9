"""Try every policy in miniature, and shed by the one that does best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from streamshed.errors import SpecError
from streamshed.policies.base import Policy
from streamshed.policies.density import Density
from streamshed.policies.existence import Existence
from streamshed.policies.frequency import Frequency
from streamshed.policies.oldest import Oldest
from streamshed.policies.output import Output
from streamshed.policies.random import Random

if TYPE_CHECKING:
    from streamshed.operators.plan import Plan

CANDIDATES: tuple[Policy, ...] = (
    Density(),
    Existence(),
    Frequency(),
    Output(),
    Oldest(),
    Random(),
)
"""The first sheds until another has proved better."""


@dataclass(frozen=True)
class Auto(Policy):
    """Rows leave by whichever policy has kept most of late.

    Each of them is run now and again on a small part of the keys, with a budget that is as small a
    part of the whole (miniature simulation: Waldspurger and others 2017). When another than the
    present one has made clearly more results there, it takes over.

    Examples:
        >>> Auto().name
        'auto'
    """

    name: ClassVar[str] = "auto"
    marks: ClassVar[Literal["none", "fixed", "moving"]] = "moving"
    follows: ClassVar[float] = Density.follows
    ranks_keys: ClassVar[bool] = True

    def check(self, plan: Plan) -> None:
        """There must be keys to learn from."""
        if plan.rate == 0:
            raise SpecError(
                "shed('auto') learns from keys that are followed, and estimate(rate=0) follows"
                " none; leave estimate out, or shed by 'oldest', 'frequency' or another policy"
            )


def candidates(plan: Plan) -> tuple[Policy, ...]:
    """The policies that can serve a join."""
    return tuple(policy for policy in CANDIDATES if _fits(policy, plan))


def _fits(policy: Policy, plan: Plan) -> bool:
    try:
        policy.check(plan)
    except SpecError:
        return False
    return True
