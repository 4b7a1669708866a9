"""Policies: which rows to evict when the budget is full; one file for each."""

from __future__ import annotations

import difflib

from streamshed.errors import SpecError
from streamshed.policies.base import Exact, Policy
from streamshed.policies.column import ByColumn
from streamshed.policies.density import Density
from streamshed.policies.existence import Existence
from streamshed.policies.frequency import Frequency
from streamshed.policies.importance import Importance
from streamshed.policies.oldest import Oldest
from streamshed.policies.output import Output
from streamshed.policies.pairwise import Pairwise
from streamshed.policies.random import Random
from streamshed.policies.relation_density import RelationDensity
from streamshed.policies.sketch import Sketch

NAMED: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        Density,
        Existence,
        Frequency,
        Importance,
        Oldest,
        Output,
        Pairwise,
        Random,
        Sketch,
    )
}
"""The policies that `shed` knows by name."""


def by_name(name: str) -> Policy:
    """The policy of that name, with its defaults.

    Examples:
        >>> by_name("existence")
        Existence(completed=None)
    """
    if name not in NAMED:
        close = difflib.get_close_matches(name, NAMED, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(
            f"there is no policy {name!r}: {hint}the policies are {', '.join(sorted(NAMED))},"
            " and shed(column=…) for a column of your own"
        )
    return NAMED[name]()


__all__ = [
    "NAMED",
    "ByColumn",
    "Density",
    "Exact",
    "Existence",
    "Frequency",
    "Importance",
    "Oldest",
    "Output",
    "Pairwise",
    "Policy",
    "Random",
    "RelationDensity",
    "Sketch",
    "by_name",
]
