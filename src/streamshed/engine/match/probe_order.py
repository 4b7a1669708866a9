"""How the streams of a graph of equalities hang together: who is looked up by what, in which order.

Columns that are equal in every result are one *attribute*. While the partners of a newcomer are
sought, more and more attributes are known; a stream is looked up by those of its attributes that
are. So each stream has an index for every set of attributes by which it may ever be looked up, or,
where these are many, one for each single attribute; what an index leaves open is compared.

For each stream in which a newcomer can arrive there is an order in which the others are looked up:
those first of which the fewest rows are expected to match. How many do is measured as rows come,
and now and then the orders are found anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import NONE, Field, Memory, Shape, make
from streamshed.kernels.hashing import fold
from streamshed.kernels.intrinsics import ones, trailing_zeros
from streamshed.plan.plan import Plan, StreamPlan

MOST_SETS = 7
"""A stream that may be looked up by more sets of attributes has an index for each single one."""

LEVEL = np.dtype(
    [
        ("stream", np.int64),  # who is looked up
        ("index", np.int64),  # by which of its indexes
        ("mask", np.uint64),  # the attributes of that index
        ("compared", np.uint64),  # the attributes that are compared for each row that it finds
        ("after", np.int64),  # the level whose row makes it possible, NONE if the newcomer does
    ],
    align=True,
)

_ZERO, _ONE = np.uint64(0), np.uint64(1)


class ProbeSettings(NamedTuple):
    """How many there are of each, as scalars."""

    streams: int
    attributes: int
    wide: int  # indexes of the stream that has the most


class ProbeOrder(NamedTuple):
    """Sets of attributes are bit masks."""

    settings: ProbeSettings

    attributes: npt.NDArray[np.uint64]  # by stream
    places: npt.NDArray[np.int64]  # by (stream, attribute): where among the stream's own
    masks: npt.NDArray[np.uint64]  # by (stream, index)
    indexes: npt.NDArray[np.int64]  # by stream: how many there are
    bound: npt.NDArray[np.uint64]  # by attribute: its hash, as far as it is known now
    fanout: npt.NDArray[np.float64]  # by (stream, other): rows of the other that match one
    levels: npt.NDArray[Any]  # by (stream of the newcomer, level)


def own_attributes(stream: StreamPlan) -> list[int]:
    """The attributes of a stream, in the order of their numbers."""
    return sorted(set(stream.attributes))


def most_attributes(plan: Plan) -> int:
    """The number of attributes of the stream that has the most."""
    return max(len(own_attributes(stream)) for stream in plan.streams)


def lookup_sets(plan: Plan) -> list[list[tuple[int, ...]]]:
    """For each stream the sets of attributes by which it may be looked up, small ones first."""
    own = [frozenset(own_attributes(stream)) for stream in plan.streams]
    reached = _connected(own)
    found = []
    for position, attributes in enumerate(own):
        sets = {
            attributes & known
            for streams, known in reached.items()
            if position not in streams and attributes & known
        }
        if len(sets) > MOST_SETS:
            sets = {frozenset({number}) for number in attributes}
        found.append(sorted((tuple(sorted(s)) for s in sets), key=lambda s: (len(s), s)))
    return found


def _connected(own: list[frozenset[int]]) -> dict[frozenset[int], frozenset[int]]:
    """All sets of streams that hang together, and the attributes of each."""
    found = {frozenset({position}): attributes for position, attributes in enumerate(own)}
    border = dict(found)
    while border:
        border = {
            streams | {position}: known | attributes
            for streams, known in border.items()
            for position, attributes in enumerate(own)
            if position not in streams and known & attributes
        }
        found |= border
    return found


def probe_order_layout(plan: Plan) -> dict[str, Field]:
    """The arrays of a `ProbeOrder`."""
    streams, attributes = len(plan.streams), len(plan.shared())
    return {
        "attributes": Field("once", np.uint64, times=streams),
        "places": Field("once", np.int64, times=streams * attributes),
        "masks": Field("once", np.uint64, times=streams * _most_indexes(plan)),
        "indexes": Field("once", np.int64, times=streams),
        "bound": Field("once", np.uint64, times=attributes),
        "fanout": Field("once", np.float64, times=streams * streams, kept=True),
        "levels": Field("once", LEVEL, times=streams * (streams - 1), kept=True),
    }


def new_probe_order(plan: Plan, shape: Shape, memory: Memory, prefix: str) -> ProbeOrder:
    """The order of a plan, of which nothing was measured yet."""
    settings = ProbeSettings(len(plan.streams), len(plan.shared()), _most_indexes(plan))
    order: ProbeOrder = make(
        ProbeOrder, probe_order_layout(plan), shape, memory, prefix, settings=settings
    )
    places = order.places.reshape(len(plan.streams), -1)
    masks = order.masks.reshape(len(plan.streams), -1)
    for position, (stream, sets) in enumerate(zip(plan.streams, lookup_sets(plan), strict=True)):
        own = own_attributes(stream)
        order.attributes[position] = _mask(own)
        places[position, own] = range(len(own))
        masks[position, : len(sets)] = [_mask(attributes) for attributes in sets]
        order.indexes[position] = len(sets)
    return order


def _mask(attributes: list[int] | tuple[int, ...]) -> np.uint64:
    return np.uint64(sum(1 << number for number in attributes))


def _most_indexes(plan: Plan) -> int:
    return max(len(sets) for sets in lookup_sets(plan))


def index_bits(plan: Plan) -> int:
    """How many bits tell a row's places in the indexes beyond its stream's first apart."""
    return max(0, _most_indexes(plan) - 2).bit_length()


@kernel
def bind(order, stream, hashes, place):  # type: ignore[no-untyped-def]
    """Take the attributes of a row of a stream as known; its hashes begin at a place."""
    rest = order.attributes[stream]
    while rest != _ZERO:
        order.bound[np.int64(trailing_zeros(rest))] = hashes[place]
        rest &= rest - _ONE
        place += 1


@kernel
def keep_bound(order, stream, hashes, place):  # type: ignore[no-untyped-def]
    """Write the attributes of a stream that are known to a place."""
    rest = order.attributes[stream]
    while rest != _ZERO:
        hashes[place] = order.bound[np.int64(trailing_zeros(rest))]
        rest &= rest - _ONE
        place += 1


@kernel
def fits(order, stream, hashes, place, compared):  # type: ignore[no-untyped-def]
    """Whether a row of a stream has the attributes that are known, of those to be compared."""
    attributes = order.settings.attributes
    rest = compared
    while rest != _ZERO:
        number = np.int64(trailing_zeros(rest))
        rest &= rest - _ONE
        if order.bound[number] != hashes[place + order.places[stream * attributes + number]]:
            return False
    return True


@kernel
def bound_hash(order, mask):  # type: ignore[no-untyped-def]
    """The hash of a set of attributes as they are known."""
    rest = mask & (mask - _ONE)
    hashed = order.bound[np.int64(trailing_zeros(mask))]
    while rest != _ZERO:
        hashed = fold(hashed, order.bound[np.int64(trailing_zeros(rest))])
        rest &= rest - _ONE
    return hashed


@kernel
def coming_hash(order, batch, i, mask):  # type: ignore[no-untyped-def]
    """The hash of a set of attributes of a row that has not come yet."""
    places = batch.stream[i] * order.settings.attributes
    rest = mask & (mask - _ONE)
    hashed = batch.hashes[i, order.places[places + np.int64(trailing_zeros(mask))]]
    while rest != _ZERO:
        number = np.int64(trailing_zeros(rest))
        hashed = fold(hashed, batch.hashes[i, order.places[places + number]])
        rest &= rest - _ONE
    return hashed


@kernel
def find_orders(order):  # type: ignore[no-untyped-def]
    """Find for each stream the order in which the others are looked up: the fewest matches first.

    The matches of a stream are the fewest that it has with any stream that comes before it.
    """
    streams = order.settings.streams
    for first in range(streams):
        members = _ONE << np.uint64(first)
        known = order.attributes[first]
        for depth in range(streams - 1):
            best, fewest = np.int64(NONE), np.inf
            for other in range(streams):
                if (members >> np.uint64(other)) & _ONE == _ONE:
                    continue
                if known & order.attributes[other] == _ZERO:
                    continue
                matches = _matches(order, members, other)
                if best == NONE or matches < fewest:
                    best, fewest = np.int64(other), matches
            _set_level(order, first, depth, best, known)
            members |= _ONE << np.uint64(best)
            known |= order.attributes[best]


@loop
def find_orders_of(order):  # type: ignore[no-untyped-def]
    """Find the orders of a new order."""
    find_orders(order)


@kernel
def _matches(order, members, other):  # type: ignore[no-untyped-def]
    """The rows of a stream that are expected to match, given the streams that come before it."""
    streams = order.settings.streams
    fewest = np.inf
    for member in range(streams):
        before = (members >> np.uint64(member)) & _ONE == _ONE
        if before and order.attributes[member] & order.attributes[other] != _ZERO:
            fewest = min(fewest, order.fanout[member * streams + other])
    return fewest


@kernel
def _set_level(order, first, depth, stream, known):  # type: ignore[no-untyped-def]
    """Say by which index a stream is looked up: the one of most attributes that are known."""
    streams = order.settings.streams
    wide = order.settings.wide
    needed = order.attributes[stream] & known
    best = np.int64(0)
    most = np.int64(0)
    for index in range(order.indexes[stream]):
        mask = order.masks[stream * wide + index]
        if mask & ~needed == _ZERO and ones(mask) > most:
            best, most = np.int64(index), ones(mask)
    mask = order.masks[stream * wide + best]
    base = first * (streams - 1)
    # The earliest level after which all attributes of the index are known.
    after = np.int64(NONE)
    reached = order.attributes[first]
    while mask & ~reached != _ZERO:
        after += 1
        reached |= order.attributes[order.levels[base + after].stream]
    order.levels[base + depth].stream = stream
    order.levels[base + depth].index = best
    order.levels[base + depth].mask = mask
    # A hash of several attributes may be another set's, however unlikely that is.
    order.levels[base + depth].compared = needed if ones(needed) > 1 else _ZERO
    order.levels[base + depth].after = after
