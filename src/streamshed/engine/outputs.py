"""From all partners of a row to the output that users see, which stands for several results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.engine.factorised import MOST_RESULTS
from streamshed.kernels.core import NONE
from streamshed.plan.plan import Plan

if TYPE_CHECKING:
    from streamshed.engine.blocks import Block

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def choices(block: Block) -> Ints:
    """How many results each output stands for: choices of one partner from each stream."""
    firsts, sizes = _partners(block)
    if firsts.size == 0:
        return np.zeros(len(block.time), np.int64)
    number = np.multiply.reduceat(sizes.astype(np.float64), firsts)
    return np.minimum(number, float(MOST_RESULTS)).astype(np.int64)


def _partners(block: Block) -> tuple[Ints, Ints]:
    """Where the streams of each output's partners begin, and how many partners each stream has.

    A row has all its partners of a stream one after the other, and at least one.
    """
    newcomers = _starts(block)
    stream = block.known["stream"]
    begins = np.ones(len(stream), np.bool_)
    begins[1:] = stream[1:] != stream[:-1]
    begins[newcomers] = True
    begins[newcomers + 1] = True
    places = np.flatnonzero(begins)
    sizes = np.diff(places, append=len(stream))
    alone = np.isin(places, newcomers, assume_unique=True)
    partners = places[~alone]
    return np.searchsorted(partners, newcomers), sizes[~alone]


def _starts(block: Block) -> Ints:
    return block.ends - np.diff(block.ends, prepend=0)


def have_equal_keys(plan: Plan, block: Block) -> Flags:
    """Which members have the newcomer's key, by value."""
    true = np.ones(len(block.members), np.bool_)
    firsts = np.repeat(_starts(block), np.diff(block.ends, prepend=0))
    inputs = np.zeros_like(block.known["stream"]) if plan.by else block.known["stream"]
    back = np.argsort(np.argsort(inputs, kind="stable"))
    for number, kind in enumerate(plan.key_types):
        keys = [
            rows.take(block.members[inputs == position], [name]).column(name).cast(kind)
            for position, (rows, stream) in enumerate(zip(block.payload, plan.streams, strict=True))
            for name in [stream.key[number]]
        ]
        key = pa.chunked_array(keys).combine_chunks().take(pa.array(back))
        true &= pc.equal(key, key.take(pa.array(firsts))).to_numpy(zero_copy_only=False)
    return true


def without_collisions(plan: Plan, block: Block, true: Flags) -> Block:
    """The outputs without members of other keys; those that lack streams then are none.

    Args:
        plan: the join.
        block: outputs, some of whose members have another key with the same hash.
        true: which members have the newcomer's.
    """
    sizes = np.diff(block.ends, prepend=0)
    owners = np.repeat(np.arange(len(block.time)), sizes)
    # A row is no partner of rows of its own stream, so each stream counts once.
    streams = np.unique(np.stack([owners, block.known["stream"]])[:, true], axis=1)
    members = np.bincount(streams[0], minlength=len(block.time))
    least = plan.at_least if plan.at_least is not None else len(plan.streams)
    whole = members >= least
    kept = true & whole[owners]
    left = np.bincount(owners[kept], minlength=len(block.time))[whole]
    known, ends = block.known[kept], np.cumsum(left)
    updates = block.updates[whole] if block.updates.size else block.updates
    if updates.size:
        updates["extends"][left < sizes[whole]] = NONE
    times: Any = block.time[:0]
    if len(ends):
        times = np.maximum.reduceat(known["time"], ends - left)
    return block._replace(
        time=times, members=block.members[kept], ends=ends, known=known, updates=updates
    )


def listed(block: Block, position: int, kind: pa.ListType, names: list[str]) -> pa.ListArray:
    """The members of a stream in each output, as lists of structs.

    Args:
        block: the outputs.
        position: of the stream.
        kind: of the lists.
        names: the columns of the structs.
    """
    own = block.known["stream"] == position
    owners = np.repeat(np.arange(len(block.time)), np.diff(block.ends, prepend=0))
    sizes = np.bincount(owners[own], minlength=len(block.time))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    rows = block.payload[position].take(np.ascontiguousarray(block.members[own]), names)
    values = pa.StructArray.from_arrays(rows.columns, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)
