"""Which shards a row goes to where streams share no key: HyperCube routing (Afrati, Ullman 2010).

Every attribute is an axis of a cube of shards, with as many places as its *share*. A row has a
place on each axis whose attribute it has, by the hash of its value, and is copied along the others.
A combination that is a result has a value for every attribute, so that all of its members meet in
one shard, and in no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from math import prod

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_type

from streamshed.operators.plan import Plan


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


def steps(shares: Sequence[int]) -> list[int]:
    """How far apart neighbours on each axis are in the numbers of shards.

    Examples:
        >>> steps((2, 3))
        [1, 2]
    """
    return [prod(shares[:number]) for number in range(len(shares))]


def offsets(own: Sequence[int], shares: Sequence[int]) -> list[int]:
    """Where the copies of a row go, counted from the shard at the beginning of all axes it has not.

    Examples:
        >>> offsets([0], (2, 3))
        [0, 2, 4]
    """
    axes = [
        [place * step for place in range(share)]
        for number, (share, step) in enumerate(zip(shares, steps(shares), strict=True))
        if number not in own
    ]
    return sorted(sum(places) for places in product(*axes))


def shards_of(plan: Plan, position: int, columns: dict[str, Column]) -> Column:
    """The shards of each row, an array with one for each copy.

    Args:
        plan: the join, with its shares.
        position: of the stream.
        columns: by name.
    """
    stream = plan.streams[position]
    far = steps(plan.shares)
    places = [
        f.pmod(f.xxhash64(columns[name].cast(from_arrow_type(kind))), f.lit(plan.shares[number]))
        * far[number]
        for column, (name, kind, number) in enumerate(
            zip(stream.key, stream.key_types, stream.attributes, strict=True)
        )
        if number not in stream.attributes[:column]
    ]
    first = reduce(lambda one, other: one + other, places)
    copied = offsets(stream.attributes, plan.shares)
    return f.array(*((first + f.lit(offset)).cast("int") for offset in copied))
