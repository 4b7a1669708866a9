"""Which shards a row goes to where streams share no key: HyperCube routing (Afrati, Ullman 2010).

Shards are the places of a cube, with as many along each axis as its *share*. A row has a place on
some axes, and is copied along the others; the members of a combination meet in one shard, and in no
other. What the axes are depends on what makes rows match:

- Every attribute of a graph of equalities is an axis. A row has a place on those whose attribute it
  has, by the hash of its value. A result has a value for every attribute.
- Where any two rows may meet, by a function or a relation that is read anew, every stream is an
  axis. A row has a place on that of its own stream, by its hash. A result has a row of every
  stream.
- Where numbers are near each other, there is one axis of cells, ranges of numbers that take turns
  at its places. A row of the first stream is in the cell of its number, which owns its results;
  rows of other streams are in all cells within the distance of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product
from math import prod

from pyspark.sql import Column
from pyspark.sql import functions as f

from streamshed.conditions import Near
from streamshed.plan.plan import Plan
from streamshed.plan.routing import axes_of
from streamshed.spark.types import type_of

CELL = 8.0
"""The length of a cell, in distances: one row in four of all streams but the first is copied."""
_FAR = 2.0**60
"""Cells beyond this are one."""
_SLACK = 2.0**-50
"""By how much of its numbers a difference may be off."""


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


def shards_of(plan: Plan, position: int, columns: Mapping[str, Column]) -> Column:
    """The shards of each row, an array with one for each copy.

    Args:
        plan: the join, with its shares.
        position: of the stream.
        columns: by name.
    """
    if isinstance(plan.pairwise, Near):
        return _cells(plan, plan.pairwise.distance, position, columns)
    far, own = steps(plan.shares), axes_of(plan)[position]
    first = reduce(
        lambda one, other: one + other,
        [
            f.pmod(hashed, f.lit(plan.shares[number])) * far[number]
            for number, hashed in _hashes(plan, position, columns).items()
        ],
    )
    copied = offsets(own, plan.shares)
    return f.array(*((first + f.lit(offset)).cast("int") for offset in copied))


def _hashes(plan: Plan, position: int, columns: Mapping[str, Column]) -> dict[int, Column]:
    """What places a row on each axis on which it has a place."""
    stream = plan.streams[position]
    if not stream.attributes:
        told = [
            columns[name]
            for name in (*stream.key, *stream.compared, stream.time)
            if name is not None
        ]
        return {position: f.xxhash64(*told)}
    found: dict[int, Column] = {}
    for name, kind, number in zip(stream.key, stream.key_types, stream.attributes, strict=True):
        found.setdefault(number, f.xxhash64(columns[name].cast(type_of(kind))))
    return found


def _cells(plan: Plan, distance: float, position: int, columns: Mapping[str, Column]) -> Column:
    """The shards of the cells that a row is in."""
    stream, (share,) = plan.streams[position], plan.shares
    number = f.coalesce(columns[stream.compared[0]].cast("double"), f.lit(0.0))
    if distance == 0:  # as with any key
        return f.array(f.pmod(f.xxhash64(number + f.lit(0.0)), f.lit(share)).cast("int"))
    reach = f.lit(0.0)
    if position > 0:
        reach = f.lit(distance) + (f.abs(number) + f.lit(distance)) * f.lit(_SLACK)
    low, high = (_cell(end, distance) for end in (number - reach, number + reach))
    some = f.sequence(low, f.least(high, low + f.lit(share - 1)))
    return f.transform(some, lambda cell: f.pmod(cell, f.lit(share)).cast("int"))


def _cell(number: Column, distance: float) -> Column:
    """The cell of a number."""
    cell = f.floor(f.least(f.greatest(number / f.lit(CELL * distance), f.lit(-_FAR)), f.lit(_FAR)))
    return cell.cast("long")
