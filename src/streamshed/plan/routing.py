"""How the rows of a join are divided among shards, where streams share no key.

Shards are the places of a cube, with as many along each axis as its *share*; see
`streamshed.spark.hypercube`, which computes the shards of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from streamshed.arguments import integer
from streamshed.conditions import Near
from streamshed.errors import InputError, SpecError
from streamshed.plan.plan import Plan, RelationPlan

MOST_SHARDS = 1_024
"""Shards of a join; each has threads and tables of its own."""


def axes_of(plan: Plan) -> list[Sequence[int]]:
    """The axes on which the rows of each stream have a place; nothing where streams share a key."""
    if plan.graph:
        return [stream.attributes for stream in plan.streams]
    if (plan.pairwise is None or plan.streams[0].key) and not _meets_any(plan):
        return []
    apart = not isinstance(plan.pairwise, Near)
    return [[position if apart else 0] for position in range(len(plan.streams))]


def _meets_any(plan: Plan) -> bool:
    """Whether a relation that is read anew may come to connect any two rows of two streams."""
    through = plan.through
    if through is None or through.relation.refresh is None:
        return False
    return not by_one_key(plan, through)


def check_shards(plan: Plan, shards: int | None) -> None:
    """Refuse a number of shards into which a join cannot be divided."""
    if shards is None:
        return
    number = integer(shards)
    if number is None or not 0 < number <= MOST_SHARDS:
        raise SpecError(f"shards is {shards!r}; give a whole number from 1 to {MOST_SHARDS:,}")
    if shards > 1 and any(stream.last is not None for stream in plan.streams):
        raise SpecError(
            f"shards is {shards}, but .last(…) counts the rows of a whole stream, which no single"
            " shard sees; leave shards out, or give time windows with .within(…)"
        )
    apart = plan.through is not None and not by_one_key(plan, plan.through)
    if apart and shards > 1 and plan.through is not None and plan.through.relation.grows:
        raise SpecError(
            f"shards is {shards}, but the changes of relation {plan.through.relation.name!r} have"
            " no end, so that it is not known to which shards rows belong; leave shards out"
        )
    smallest = smallest_budget(plan)
    if smallest is not None and shards > smallest:
        raise SpecError(
            f"shards is {shards}, but the smallest budget is {smallest} rows, less than one for"
            " each shard; give fewer shards, or a larger budget"
        )


def check_spilling(plan: Plan, resume: str | None) -> None:
    """Refuse to begin a join that spills with the rows of a savepoint."""
    if plan.spill is not None and resume is not None:
        raise InputError(
            ".spill() and resume= were both given, but a join that spills cannot begin with the"
            " rows of a savepoint; leave one of them out"
        )


def smallest_budget(plan: Plan) -> int | None:
    """The smallest number of rows that anything in a join may hold, if anything is bounded."""
    budgets = [stream.rows for stream in plan.streams if stream.rows is not None]
    return min([*budgets, *([] if plan.total is None else [plan.total])], default=None)


def by_one_key(plan: Plan, through: RelationPlan) -> bool:
    """Whether all streams equal the same columns of a relation, and so share a key."""
    return len({*through.keys}) == 1 and len({stream.key_types for stream in plan.streams}) == 1


def best_shares(
    attributes: Sequence[Sequence[int]], rates: Sequence[float], shards: int
) -> tuple[int, ...]:
    """The shares of so many shards with which the fewest copies are made.

    Args:
        attributes: the numbers of the attributes of each stream.
        rates: how many rows of each stream come, relative to the others.
        shards: how many there are; the shares' product.

    Examples:
        >>> best_shares([[0], [0, 1], [1]], [1, 1, 1], 4)
        (2, 2)
        >>> best_shares([[0], [0, 1], [1]], [100, 1, 1], 4)
        (4, 1)
    """
    axes = 1 + max(number for own in attributes for number in own)
    found = min(
        _factorisations(shards, axes),
        key=lambda shares: (copies(attributes, rates, shares), [-share for share in shares]),
    )
    return found


def copies(
    attributes: Sequence[Sequence[int]], rates: Sequence[float], shares: Sequence[int]
) -> float:
    """How many copies are made of all rows: each is copied along the axes that it has not.

    Examples:
        >>> copies([[0], [0, 1], [1]], [1, 1, 1], (2, 3))
        6
    """
    return sum(
        rate * prod(share for number, share in enumerate(shares) if number not in own)
        for own, rate in zip(attributes, rates, strict=True)
    )


def _factorisations(number: int, axes: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of so many."""
    if axes == 1:
        yield (number,)
        return
    for share in range(1, number + 1):
        if number % share == 0:
            for rest in _factorisations(number // share, axes - 1):
                yield (share, *rest)
