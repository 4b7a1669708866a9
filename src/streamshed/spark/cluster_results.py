"""The results of a join in clusters, made of what its newcomers met in each of them.

Each cluster hands out pairs: a newcomer, and a row that it met there. All pairs of a newcomer are
brought together, in the batch in which it came, and its results are the choices of one row for each
stream (`docs/meaning.md`, "In clusters").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.batch import UNWEIGHTED
from streamshed.engine.blocks import Block
from streamshed.engine.encoding import key_hash, times_of
from streamshed.engine.payload import Payload
from streamshed.engine.results import NO_UPDATES, build_results
from streamshed.errors import InputError
from streamshed.kernels.core import NONE
from streamshed.plan.plan import Plan
from streamshed.selection import MEMBERS
from streamshed.spark.blobs import in_type
from streamshed.spark.notes import Notes, batch_number
from streamshed.spark.workers import begin_task

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]

NEWCOMER, MEMBER = "newcomer", "member"
"""The columns of pairs: the number of the newcomer, and the row that it met, or itself."""
NUMBER, PROBED = "streamshed number", "streamshed probed"
"""What rows have besides their own columns: a number, and which clusters they probe, bit by bit."""

PLACE_BITS, PART_BITS, BATCH_BITS = 24, 12, 27
BITS = PLACE_BITS + PART_BITS + BATCH_BITS
AT_ONCE = 1 << 18
"""Members of results that are made at once, unless a single result has more."""


def numbers(batch: int | None, part: int, first: int, rows: int) -> Ints:
    """The numbers of rows, one after the other in a partition of the input.

    Args:
        batch: the number of the batch; None if nothing streams.
        part: the number of the partition.
        first: the place of the first of the rows.
        rows: how many there are.

    Raises:
        InputError: there are more batches, partitions or rows than there are numbers.

    Examples:
        >>> numbers(2, 1, 0, 3) - (2 << 36) - (1 << 24)
        array([0, 1, 2])
    """
    place_bits = PLACE_BITS if batch is not None else PLACE_BITS + BATCH_BITS
    for what, count, bits in (
        (f"a partition of the input has {first + rows:,} rows", first + rows, place_bits),
        (f"the input has a partition {part:,}", part + 1, PART_BITS),
        (f"this is batch {batch}", (batch or 0) + 1, BATCH_BITS),
    ):
        if count > 1 << bits:
            raise InputError(
                f"{what}, but joins in clusters number no more than {1 << bits:,}; give smaller"
                " batches, other partitions (.repartition), or a new checkpoint"
            )
    head = ((batch or 0) << PART_BITS | part) << place_bits
    return head + np.arange(first, first + rows, dtype=np.int64)


def in_one_cluster(plan: Plan) -> Plan:
    """The join of one cluster by itself, whose rows have a number, and say what they probe."""
    (stream,) = plan.streams
    schema = stream.schema.append(pa.field(NUMBER, pa.int64())).append(
        pa.field(PROBED, pa.binary())
    )
    stream = replace(stream, schema=schema, chosen=tuple(schema.names))
    return replace(plan, streams=(stream,), at_least=2, besides=())


def of_all_clusters(inner: Plan, plan: Plan, cluster: str) -> Plan:
    """The join of all clusters in one place, which stores one row: its sample is what it is for.

    Args:
        inner: the join of one cluster.
        plan: the whole join.
        cluster: the column that says to which cluster a row belongs.
    """
    (stream,) = inner.streams
    needed = {*stream.key, stream.time, plan.by, stream.worth, stream.weight, cluster, NUMBER}
    schema = pa.schema([field for field in stream.schema if field.name in needed])
    stream = replace(stream, schema=schema, chosen=())
    return replace(inner, streams=(stream,), total=1, at_least=plan.at_least)


def pairs_schema(inner: Plan) -> pa.Schema:
    """The columns of pairs.

    Args:
        inner: the join of one cluster.
    """
    return pa.schema([(NEWCOMER, pa.int64()), (MEMBER, pa.struct(list(inner.streams[0].schema)))])


def pairs_of(results: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Whom newcomers met in a cluster: each row once, and the newcomers themselves.

    Args:
        results: of the cluster by itself, the newcomer first among the members.
        schema: of the pairs.
    """
    listed = results.column(MEMBERS)
    offsets = listed.offsets.to_numpy()
    members = listed.values.slice(offsets[0], offsets[-1] - offsets[0])
    number = members.field(NUMBER).to_numpy()
    starts = offsets[:-1] - offsets[0]
    newcomer = np.repeat(number[starts], np.diff(offsets))
    chosen = _distinct(newcomer, number)
    return pa.RecordBatch.from_arrays(
        [pa.array(newcomer[chosen]), members.take(pa.array(chosen))], schema=schema
    )


def _distinct(newcomer: Ints, number: Ints) -> Ints:
    """The places of pairs, in order, each pair once."""
    order = np.lexsort((number, newcomer))
    one, other = newcomer[order], number[order]
    new = np.ones(order.size, np.bool_)
    new[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    return order[new]


def bits_of(column: pa.Array, rows: int) -> Bits:
    """What a column of bits holds, row by row."""
    return np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(rows, -1)


def are_set(bits: Bits, which: int | Ints) -> Flags:
    """Whether a bit is set in each row.

    Examples:
        >>> are_set(np.packbits([[False, True], [True, False]], axis=1), 1)
        array([ True, False])
    """
    which = np.broadcast_to(which, len(bits))
    found: Flags = bits[np.arange(len(bits)), which >> 3] >> (7 - (which & 7)) & 1 == 1
    return found


@dataclass(frozen=True)
class Combine:
    """Makes the results of newcomers from what they met in all clusters.

    Attributes:
        plan: the whole join.
        cluster: the column that says to which cluster a row belongs.
        notes: where to leave who made results with whom, if relevance is learned.
    """

    plan: Plan
    cluster: str
    notes: Notes | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make the results of the newcomers of one partition."""
        from pyspark import TaskContext

        begin_task()
        pairs = [batch for batch in batches if batch.num_rows]
        met = Met.read(self.plan, self.cluster, pairs) if pairs else None
        if met is not None:
            for block in met.blocks():
                yield build_results(self.plan, block, False, None)[0]
        batch = batch_number()
        if self.notes is not None and batch is not None:
            context = TaskContext.get()
            part = context.partitionId() if context is not None else 0
            took_part = np.empty((3, 0), np.int64) if met is None else met.took_part(self.notes)
            self.notes.write_results(batch, part, took_part)


@dataclass
class Met:
    """Newcomers and whom they met, sorted by newcomer, then by stream, the latest first.

    The newcomer stands before all that it met, as the only row of its group.
    """

    plan: Plan
    rows: pa.RecordBatch
    newcomer: Ints
    number: Ints
    time: Ints
    cluster: Ints
    window: Ints
    rank: Ints
    """Where each stands in the order of arrival."""
    probed: Bits
    """Which clusters each probes, bit by bit."""
    groups: Ints
    """Where the rows of each stream begin that a newcomer met."""

    @classmethod
    def read(cls, plan: Plan, cluster: str, pairs: list[pa.RecordBatch]) -> Met:
        """Bring the pairs of a partition together."""
        whole = pa.Table.from_batches(pairs).combine_chunks().to_batches()[0]
        schema = in_one_cluster(plan).streams[0].schema
        member = whole.column(MEMBER)
        columns = [in_type(member.field(i), field.type) for i, field in enumerate(schema)]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        newcomer = whole.column(NEWCOMER).to_numpy()
        distinct = _distinct(newcomer, rows.column(NUMBER).to_numpy())
        rows, newcomer = rows.take(pa.array(distinct)), newcomer[distinct]
        number = rows.column(NUMBER).to_numpy()
        (stream,) = plan.streams
        assert stream.time is not None
        assert plan.by is not None
        time, _ = times_of(rows.column(stream.time), plan.time_type, repr(stream.time))
        own = rows.column(cluster).cast(pa.int64()).to_numpy()
        names = rows.column(plan.by).dictionary_encode()
        name = names.indices.to_numpy().astype(np.int64)
        shift = PLACE_BITS + PART_BITS if batch_number() is not None else BITS
        arrived = np.lexsort((number, own, time, number >> shift))
        rank = np.empty_like(arrived)
        rank[arrived] = np.arange(rank.size)
        is_newcomer = number == newcomer
        newest = _newest(newcomer, name, rank)
        order = np.lexsort((-rank, -newest, ~is_newcomer, newcomer))
        name, newcomer = name[order], newcomer[order]
        begins = np.ones(order.size, np.bool_)
        begins[1:] = (newcomer[1:] != newcomer[:-1]) | (name[1:] != name[:-1])
        return cls(
            plan,
            rows.take(pa.array(order)),
            newcomer,
            number[order],
            time[order],
            own[order],
            _windows(plan, names.dictionary)[name],
            rank[order],
            bits_of(rows.column(PROBED), order.size)[order],
            np.flatnonzero(begins),
        )

    def __post_init__(self) -> None:
        """Find how many rows each group has, and how many results each newcomer."""
        size = self.newcomer.size
        self.sizes: Ints = np.diff(self.groups, append=size)
        of_group = self.newcomer[self.groups]
        first = np.ones(self.groups.size, np.bool_)
        first[1:] = of_group[1:] != of_group[:-1]
        starts = np.flatnonzero(first)
        widths = np.diff(starts, append=self.groups.size)
        enough = widths >= (self.plan.at_least or 2)
        self.first_group, self.widths = starts[enough], widths[enough]
        self.strides = _strides(self.sizes, starts, widths)
        """How many choices of the groups behind it there are, for each group."""
        at = self.first_group
        self.choices: Ints = self.strides[at] * self.sizes[at]

    def blocks(self) -> Iterator[Block]:
        """The results, some at a time."""
        payload = Payload(self.rows.schema)
        payload.put(self.rows)
        cost = np.cumsum(self.choices * self.widths)
        begin = 0
        while begin < cost.size:
            before = cost[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(cost, before + AT_ONCE, "right")))
            of = np.arange(begin, end)
            step = AT_ONCE if of.size > 1 else max(1, AT_ONCE // int(self.widths[begin]))
            for first in range(0, int(self.choices[of].max()), step):
                yield self._block(of, first, first + step, payload)
            begin = end

    def _block(self, of: Ints, first: int, last: int, payload: Payload) -> Block:
        """The results of some newcomers, from one choice of each to another."""
        counts = np.minimum(self.choices[of], last) - first
        result_of = np.repeat(of, counts)
        ends = np.cumsum(counts)
        choice = first + np.arange(result_of.size) - np.repeat(ends - counts, counts)
        widths = self.widths[result_of]
        member_ends = np.cumsum(widths)
        starts = member_ends - widths
        result = np.repeat(np.arange(result_of.size), widths)
        place = np.arange(result.size) - starts[result]
        group = self.first_group[result_of[result]] + place
        chosen = choice[result] // self.strides[group] % self.sizes[group]
        members = self.groups[group] + chosen
        updates = np.empty(result_of.size, NO_UPDATES.dtype)
        updates["update"] = self.newcomer[members[starts]]
        updates["extends"] = self._extended(members, starts, result, place)
        importance = UNWEIGHTED
        if (weight := self.plan.streams[0].weight) is not None:
            known = self.rows.column(weight).cast(pa.float64()).to_numpy(zero_copy_only=False)
            importance = np.minimum.reduceat(known[members], starts)
        time = np.maximum.reduceat(self.time[members], starts)
        return Block(time, members, member_ends, [payload], importance, updates)

    def _extended(self, members: Ints, starts: Ints, result: Ints, place: Ints) -> Ints:
        """For each result the number of the row whose results it extends, or NONE.

        Args:
            members: of all results, one after the other.
            starts: where those of each begin.
            result: the result of each member.
            place: of each member in its result; the newcomer's is 0.
        """
        rank = np.where(place == 0, -1, self.rank[members])
        last = members[rank == np.maximum.reduceat(rank, starts)[result]]
        of = last[result]
        newer = self.time[members] - self.time[of]
        probed = are_set(self.probed[of], self.cluster[members])
        met = (newer <= self.window[of]) & (-newer <= self.window[members]) & probed
        fits = np.logical_and.reduceat(met | (place == 0), starts)
        others = np.diff(starts, append=members.size) - 1
        fits &= others >= (self.plan.at_least or 2)
        return np.where(fits, self.number[last], NONE)

    def took_part(self, notes: Notes) -> Ints:
        """Who made results with whom: cluster probed, cluster that probed, and class of the key.

        Each newcomer that made results is counted once for each other cluster that has a member of
        them.
        """
        (stream,) = self.plan.streams
        heads = self.groups[self.first_group]
        of_row = np.searchsorted(heads, np.arange(self.newcomer.size), "right") - 1
        valid = (of_row >= 0) & (self.newcomer == self.newcomer[heads[np.maximum(of_row, 0)]])
        newcomers = self.rows.take(pa.array(heads))
        hashed, _ = key_hash(newcomers, stream.key, stream.key_types, self.plan.secret)
        kind = notes.relevance.classes_of(hashed)
        own = self.cluster[heads]
        of_row = of_row[valid]
        met = np.unique(np.stack([of_row, self.cluster[valid]]), axis=1)
        met = met[:, met[1] != own[met[0]]]
        return np.stack([met[1], own[met[0]], kind[met[0]]])


def _newest(newcomer: Ints, name: Ints, rank: Ints) -> Ints:
    """For each row the rank of the newest of its stream that the newcomer met."""
    order = np.lexsort((rank, name, newcomer))
    last = np.ones(order.size, np.bool_)
    last[:-1] = (np.diff(newcomer[order]) != 0) | (np.diff(name[order]) != 0)
    ends = np.flatnonzero(last)
    newest = np.empty_like(rank)
    newest[order] = np.repeat(rank[order[ends]], np.diff(ends, prepend=-1))
    return newest


def _strides(sizes: Ints, starts: Ints, widths: Ints) -> Ints:
    """For each group how many choices there are of those behind it, of the same newcomer."""
    strides = np.ones_like(sizes)
    for back in range(2, int(widths.max(initial=0)) + 1):
        wide = widths >= back
        group = (starts + widths)[wide] - back
        strides[group] = strides[group + 1] * sizes[group + 1]
    return strides


def _windows(plan: Plan, names: pa.Array) -> Ints:
    """The window of each stream."""
    if plan.windows is None:
        window = plan.streams[0].window
        assert window is not None
        return np.full(len(names), window, np.int64)
    own, lengths = dict(plan.windows.named), plan.windows.lengths
    return np.array([lengths[own.get(name, plan.windows.otherwise)] for name in names.to_pylist()])
