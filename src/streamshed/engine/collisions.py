"""Results of partial joins whose candidates hold rows of other keys, which have the same hash.

A partial join takes one member of every stream that has a partner. If the keys of two streams
collide, a candidate may be a newcomer, its true partner, and a row of another key: it is no result,
but without that row it is, unless the newcomer has a true partner in that stream too. Collisions
are rare, and nothing here runs where there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.kernels.core import NONE, Core
from streamshed.plan.plan import Plan

if TYPE_CHECKING:
    from streamshed.engine.blocks import Block

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """Combinations that the loop took for results, with their members one after the other."""

    ends: Ints
    """Where the members of each candidate end."""
    places: Ints
    """Where the user's row of each member is."""
    members: npt.NDArray[Any]
    """What is known of each member, `MEMBER`."""
    true: Flags
    """Whether each member has the newcomer's key."""

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> Ints:
        """Where the members of each candidate begin."""
        return np.concatenate([np.zeros(1, np.int64), self.ends])[: len(self)]

    @property
    def owners(self) -> Ints:
        """The candidate of each member."""
        return np.repeat(np.arange(len(self)), self.ends - self.starts)

    @property
    def newcomers(self) -> Ints:
        """The arrival that made each candidate: no other member is as young."""
        return self.reduced(np.maximum, self.members["arrival"])

    def reduced(self, function: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What a function makes of the values of all members of each candidate."""
        if len(self) == 0:
            return values[:0]
        result: npt.NDArray[Any] = function.reduceat(values, self.starts)
        return result

    def only(self, candidates: Flags, members: Flags) -> Candidates:
        """Some of the candidates, with some of the members."""
        kept = candidates[self.owners] & members
        sizes = np.bincount(self.owners[kept], minlength=len(self))[candidates]
        return Candidates(np.cumsum(sizes), self.places[kept], self.members[kept], self.true[kept])

    def __add__(self, more: Candidates) -> Candidates:
        shift = self.ends[-1] if len(self) else 0
        return Candidates(
            np.concatenate([self.ends, more.ends + shift]),
            np.concatenate([self.places, more.places]),
            np.concatenate([self.members, more.members]),
            np.concatenate([self.true, more.true]),
        )


@dataclass(frozen=True)
class Unfinished:
    """An arrival whose candidates go on in the next block."""

    arrival: int
    first: dict[int, int]
    """By stream the arrival of the member in the first candidate."""
    agreed: set[int]
    """The streams in which a true partner was found."""
    undecided: Candidates
    """Those that are results without some members if no true partners are found for them."""


class Collisions:
    """Finds the results among the candidates of a partial join.

    Args:
        plan: the join.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.unfinished: Unfinished | None = None

    def concern(self, block: Block, true: Flags) -> bool:
        """Whether a block has to be settled.

        Args:
            block: some candidates.
            true: which of them have members of equal keys.
        """
        before = self.unfinished
        if not true.all() or (before is not None and len(before.undecided)):
            return True
        self.unfinished = None
        if block.unfinished:
            # All are results; what follows of the last arrival has to know that they were.
            candidates = self._read(block, np.ones(len(block.members), np.bool_))
            newcomers = candidates.newcomers
            arrival = int(newcomers[-1])
            if before is not None and before.arrival == arrival:
                self.unfinished = before
            else:
                at = int(np.argmax(newcomers == arrival))
                first = candidates.members[candidates.starts[at] : candidates.ends[at]]
                streams = first["stream"].tolist()
                rows = dict(zip(streams, first["arrival"].tolist(), strict=True))
                none = candidates.only(np.zeros(len(candidates), np.bool_), candidates.true)
                self.unfinished = Unfinished(arrival, rows, {*streams}, none)
        return False

    def settle(self, block: Block, core: Core) -> Block:
        """The results of a block, and of what was undecided before it.

        A member of another key is dropped if the newcomer has no true partner in its stream. So
        that this makes one result, not one for each such row, it has to be the first.
        """
        candidates, before = self._read(block, self._true(block)), self.unfinished
        if before is not None:
            candidates = before.undecided + candidates
        self.unfinished = None
        if len(candidates) == 0:
            return block
        members, true, newcomers = candidates.members, candidates.true, candidates.newcomers
        of = np.stack([newcomers[candidates.owners], members["stream"].astype(np.int64)])
        pairs, at, inverse = np.unique(of, axis=1, return_index=True, return_inverse=True)
        inverse = inverse.ravel()
        agreed, first = np.zeros(len(at), np.bool_), members["arrival"][at]
        np.logical_or.at(agreed, inverse, true)
        if before is not None:
            for pair in np.flatnonzero(pairs[0] == before.arrival).tolist():
                stream = int(pairs[1, pair])
                agreed[pair] |= stream in before.agreed
                first[pair] = before.first[stream]
        fits = true | (~agreed[inverse] & (members["arrival"] == first[inverse]))
        enough = candidates.reduced(np.add, true.astype(np.int64)) >= (self.plan.at_least or 0)
        fitting = candidates.reduced(np.logical_and, fits) & enough
        whole = candidates.reduced(np.logical_and, true)
        if block.unfinished:
            arrival = int(newcomers[-1])
            going_on = newcomers == arrival
            undecided = candidates.only(going_on & fitting & ~whole, np.ones_like(true))
            known = pairs[0] == arrival
            rows = dict(zip(pairs[1, known].tolist(), first[known].tolist(), strict=True))
            streams = {*pairs[1, known & agreed].tolist()}
            self.unfinished = Unfinished(arrival, rows, streams, undecided)
            fitting &= whole | ~going_on
        return self._written(candidates.only(fitting, true), block, core)

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, block: Block, true: Flags) -> Candidates:
        if self.plan.by is not None:
            return Candidates(block.ends, block.members, block.known, true)
        there = block.members != NONE
        sizes = there.reshape(len(block.time), len(self.plan.streams)).sum(axis=1)
        return Candidates(np.cumsum(sizes), block.members[there], block.known[there], true[there])

    def _true(self, block: Block) -> Flags:
        """Which members have the newcomer's key, by value."""
        true = np.ones(len(block.members), np.bool_)
        if len(block.time) == 0:
            return true
        for number in range(len(self.plan.key_types)):
            true &= self._same(block, number)
        return true

    def _same(self, block: Block, number: int) -> Flags:
        """Which members have the newcomer's value of a column of the key."""
        kind = self.plan.key_types[number]
        names = [stream.key[number] for stream in self.plan.streams]
        if self.plan.by is not None:
            (name,), sizes = names, np.diff(block.ends, prepend=0)
            keys = block.payload[0].take(block.members, [name]).column(name).cast(kind)
            newcomers = keys.take(pa.array(np.repeat(block.ends - sizes, sizes)))
            return _flags(pc.equal(keys, newcomers))
        shape = len(block.time), len(names)
        places = block.members.reshape(shape)
        arrivals = np.where(places == NONE, NONE, block.known["arrival"].reshape(shape))
        by_stream = [
            rows.take(np.ascontiguousarray(places[:, i]), [name]).column(name).cast(kind)
            for i, (rows, name) in enumerate(zip(block.payload, names, strict=True))
        ]
        newcomers = pc.choose(pa.array(arrivals.argmax(axis=1)), *by_stream)
        same = [_flags(pc.fill_null(pc.equal(keys, newcomers), True)) for keys in by_stream]
        return np.stack(same, axis=1).ravel()

    # -- writing ---------------------------------------------------------------------------------

    def _written(self, results: Candidates, like: Block, core: Core) -> Block:
        """Results as a block; what they depend on is found anew, as members may have left."""
        members, streams = results.places, len(self.plan.streams)
        ends, updates = results.ends, like.updates[:0]
        if self.plan.by is None:
            members = np.full(len(results) * streams, NONE, np.int64)
            members[results.owners * streams + results.members["stream"]] = results.places
            ends = (np.arange(len(results)) + 1) * streams
        else:
            updates = np.empty(len(results), like.updates.dtype)
            updates["update"] = results.newcomers
            updates["extends"] = self._extended(results, core)
        importance = like.importance[:0]
        if self.plan.weighed:
            importance = results.reduced(np.minimum, results.members["importance"])
        return like._replace(
            time=results.reduced(np.maximum, results.members["time"]),
            members=members,
            ends=ends,
            importance=importance,
            updates=updates,
        )

    def _extended(self, results: Candidates, core: Core) -> Sequence[int]:
        """For each result the arrival whose results it extends, or NONE (docs/meaning.md)."""
        sweeps = results.members["stream"] if core.settings.sweeps > 1 else None
        windows = core.lanes["window"][0 if sweeps is None else core.sweep[sweeps]]
        windows = np.broadcast_to(windows, len(results.members))
        times, arrivals = results.members["time"], results.members["arrival"]
        extends = []
        for start, end in zip(results.starts.tolist(), results.ends.tolist(), strict=True):
            others = np.arange(start + 1, end)  # the newcomer is the first
            extended = NONE
            if len(others) >= (self.plan.at_least or 0):
                youngest = others[np.argmax(arrivals[others])]
                newer = times[others] - times[youngest]
                if ((newer <= windows[youngest]) & (-newer <= windows[others])).all():
                    extended = int(arrivals[youngest])
            extends.append(extended)
        return extends


def _flags(array: pa.Array) -> Flags:
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
