"""`Paired` stands in the policy's place where rows are compared two by two.

It enters rows that come into the index of the condition, takes out those that leave, and passes
everything else on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamshed.kernels import hooks, pairs
from streamshed.kernels.compiling import implements
from streamshed.operators.passing import passes_on


@passes_on("admits", "victim", "mark", "produced")
class Paired(NamedTuple):
    """A policy, and the index of what rows are compared by."""

    policy: Any
    index: Any


@implements(hooks.removed, Paired)
def _removed(policy, core, row):  # type: ignore[no-untyped-def]
    pairs.left(policy.index, core, row)
    hooks.removed(policy.policy, core, row)


@implements(hooks.inserted, Paired)
def _inserted(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    pairs.entered(policy.index, core, row)
    hooks.inserted(policy.policy, core, row, pattern, worth)


@implements(hooks.restored, Paired)
def _restored(policy, core, row, marked):  # type: ignore[no-untyped-def]
    pairs.entered(policy.index, core, row)
    hooks.restored(policy.policy, core, row, marked)
