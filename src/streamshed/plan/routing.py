"""How the rows of a join are divided among shards, where streams share no key.

Shards are the places of a cube, with as many along each axis as its *share*; see
`streamshed.spark.hypercube`, which computes the shards of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from streamshed.conditions import Near
from streamshed.plan.plan import Plan


def axes_of(plan: Plan) -> list[Sequence[int]]:
    """The axes on which the rows of each stream have a place; nothing where streams share a key."""
    if plan.graph:
        return [stream.attributes for stream in plan.streams]
    if plan.pairwise is None or plan.streams[0].key:
        return []
    apart = not isinstance(plan.pairwise, Near)
    return [[position if apart else 0] for position in range(len(plan.streams))]


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
