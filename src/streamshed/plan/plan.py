"""What an operator is built from: a join, checked against the schemas of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from streamshed.columns import Column
from streamshed.kernels.core import BOUNDLESS
from streamshed.kernels.hashing import Secret, secret_of

if TYPE_CHECKING:
    from streamshed.aggregates import Windows
    from streamshed.conditions import PairCondition
    from streamshed.engine.match.running_relation import RelationIndex
    from streamshed.policies import Policy
    from streamshed.relations import Relation
    from streamshed.spec import First

PARTS, MOST_PARTS = 10, 64
"""Basic windows of a window, unless another length is asked for; and at most."""
MOMENTS = 4
"""Moments in the longest window, at which parts of a budget may follow the rows over shards."""


@dataclass(frozen=True)
class StreamPlan:
    """One input: which columns matter, and how long its rows stay."""

    name: str
    schema: pa.Schema
    """The columns that are needed, for results or for the work, in the order of the input."""
    chosen: tuple[str, ...]
    """The columns that results have of this stream, in their order; results have no column for a
    stream of which there are none."""
    key: tuple[str, ...]
    """The key columns, in the order in which they are compared between streams."""
    time: str | None
    """The time column; without one a row's time is its number in its stream."""
    window: int | None
    """The length of the time window in units of time, or None if there is none."""
    last: int | None
    """The number of rows of the row window, or None if there is none."""
    rows: int | None
    """The budget of this stream, or None."""
    worth: str | None
    """The column that says what a row is worth, where the policy asks for one."""
    key_types: tuple[pa.DataType, ...]
    """The type of each key column in which it is compared."""
    weight: str | None = None
    """The column that says how important a row is, where results are weighed."""
    attributes: tuple[int, ...] = ()
    """The number of the attribute that each key column belongs to, where streams share no key but
    are joined by a graph of equalities."""
    compared: tuple[str, ...] = ()
    """The columns by which rows are compared two by two."""

    def kept(self, checked: bool, whole: bool, timed: bool = False) -> pa.Schema:
        """The columns that are kept: those of results, and those needed besides.

        Args:
            checked: whether results are checked on the true keys.
            whole: whether all columns are kept.
            timed: whether times are kept.
        """
        asked = [*self.chosen, *self.compared, *(self.key if checked else ())]
        asked += [self.time] if timed and self.time is not None else []
        kept = self.schema.names if whole else asked
        return pa.schema([column for column in self.schema if column.name in kept])


@dataclass(frozen=True)
class RelationPlan:
    """The relation through which streams are joined."""

    relation: Relation
    schema: pa.Schema
    """The columns that are needed, for results or for the work."""
    chosen: tuple[str, ...]
    """The columns that results have of it."""
    keys: tuple[tuple[str, ...], ...]
    """For each stream the columns that its key equals."""
    begin: str | None
    end: str | None
    """The columns that bound the validity of a row, or None."""
    index: Callable[[], RelationIndex] | None = None
    """Gives the index of the rows that are there from the start, where it was made before."""
    depth: int = 0
    """Only facts whose lots begin with so many zeros are kept: a sample of them."""

    def about(self) -> str:
        """The relation in words, as far as a state depends on it."""
        return f"{self.relation.name}, {self.keys}, from {self.begin} to {self.end}"


@dataclass(frozen=True)
class WindowPlan:
    """The time windows of streams that a column names, where they differ."""

    lengths: tuple[int, ...]
    """All lengths there are, in units of time, the longest first."""
    otherwise: int
    """Where among them that of a stream is of which nothing was said."""
    named: tuple[tuple[Any, int], ...]
    """By value of the column where that of its stream is."""

    def about(self) -> str:
        """The windows in words."""
        own = {value: self.lengths[place] for value, place in self.named}
        return f"{own}, otherwise {self.lengths[self.otherwise]}"


@dataclass(frozen=True)
class QueuePlan:
    """The queue before a join that takes a row only so often."""

    rows: int
    """How many rows may wait."""
    gap: float
    """The time between two rows that are taken, in units of time; 0 if the work done for each says
    how long it takes."""
    at_random: bool
    """Whether any of those that wait is shed, not the one that promises least."""
    second: float
    """The seconds of a unit of time."""
    wall: bool = False
    """Whether that is the time of a clock on the wall, in microseconds, not the join's own."""
    per_stream: bool = False
    """Whether each stream has such a queue; they take turns where rows are taken at a rate."""

    @property
    def by_work(self) -> bool:
        """Whether a row is taken when the work for those before it is done."""
        return self.gap == 0.0

    def by_wall(self) -> QueuePlan:
        """The same by the clock on the wall."""
        return replace(self, gap=self.gap * self.second * 1e6, second=1e-6, wall=True)


@dataclass(frozen=True)
class ThrottlePlan:
    """How much work a join may do, in units of its time."""

    capacity: float | None
    """Work in a unit of time: comparisons, or rows looked at and results; None if it is found by
    the clock of the machine."""
    share: float | None
    """Or the part of the machine's time that the join may take, by the time of its own."""
    wall: bool
    """Whether that is the time of a clock on the wall, or of one core."""
    second: float
    """The seconds of a unit of time."""
    every: int
    """How often what is gone through is said anew (Δ)."""
    boost: float
    """How much more is tried at most when there was time left (γ)."""
    part: int | None
    """The length of a basic window (b), or None."""
    parts: int
    """Basic windows of a window, where no length is given."""
    sample: float
    """The part of newcomers that learn what basic windows are worth (ω)."""
    buffer: int
    """Rows of each stream that may wait."""
    dropping: bool
    """Whether rows are dropped at random instead."""
    conserve: bool
    """Whether rows are shed that are of no use to what is gone through."""
    by_rows: bool
    """Whether the throttle goes by the rows processed in time alone, not by the work done."""

    def lengths(self, windows: Sequence[int]) -> list[int]:
        """The lengths of basic windows, by stream.

        Args:
            windows: of the streams; 0 where there is none.
        """
        if self.part is not None:
            return [self.part] * len(windows)
        return [max(1, -(-window // self.parts)) for window in windows]

    def on_any_machine(self) -> ThrottlePlan:
        """The same without what depends on the number of cores, which may change between runs."""
        return replace(self, share=None) if self.wall else self


@dataclass(frozen=True)
class MemoryPlan:
    """A budget in bytes; what the join takes for itself is known once it is put together."""

    nbytes: int
    """The whole budget."""
    tables: int = 0
    """Bytes of tables that do not depend on how many rows are stored."""
    each: int = 0
    """Bytes that are kept of each row besides its payload."""

    @property
    def for_rows(self) -> int:
        """What is left for rows, with what is kept of each."""
        return self.nbytes - self.tables


@dataclass(frozen=True)
class SpillPlan:
    """Where rows wait when memory is full."""

    to: str
    """The folder."""
    deadline: int | None
    """How long after its time a result may still be made, in units of time; None: at any time."""


@dataclass(frozen=True)
class BudgetPart:
    """The part of a shard in budgets that follow the rows over the shards."""

    shard: int
    """The number of the shard."""
    shards: int
    every: int
    """How far the moments are apart at which parts may change, in units of time."""
    budgets: tuple[int | None, ...]
    """The whole budgets: that of each stream, or the one that all share."""
    at_least: int
    """The least number of members of a result."""
    nbytes: int | None = None
    """What the rows of all shards may take, if the budget is in bytes."""


@dataclass(frozen=True)
class Plan:
    """A whole join, ready to run."""

    streams: tuple[StreamPlan, ...]
    by: str | None
    """The column whose values name the streams (then `streams` has one entry, the input)."""
    time_type: pa.DataType
    """The type in which times of results are given."""
    late: int
    """How far behind the clock a row may come, in units of time."""
    clock: Literal["min", "max"]
    idle: int | None
    ahead: int | None
    """How far a row may be ahead of all others and still move the clock; None: as far as it is."""
    total: int | None
    """The budget shared by all streams, or None. Under a budget in bytes: the most rows that may
    fit in it, if all are as small as can be."""
    policy: Policy
    at_least: int | None
    """The least number of members of a partial result; None for complete joins."""
    seed: int
    key_seed: int
    """The seed of the hash of keys, the same in all parts of the join."""
    key_mark: str = ""
    """What a checkpoint may tell of a seed of keys that is not that of the join."""
    rate: float | None = None
    """The part of all keys that is followed to estimate what is missed; None: as it turns out."""
    shards: tuple[int, ...] = ()
    """The labels of all parts, where the join is done in parts and this is one of them."""
    part: BudgetPart | None = None
    """The part in budgets that follow the rows over the shards, or None where it stays."""
    shares: tuple[int, ...] = ()
    """The shards along each axis, where the join is done in parts and streams share no key."""
    through: RelationPlan | None = None
    """The relation by way of which streams are joined, or None where they share a key."""
    queue: QueuePlan | None = None
    """The queue in which rows wait for the join, or None if it takes them as they come."""
    besides: tuple[str, ...] = ()
    """What results of streams named by a column have besides their members and the time."""
    windows: WindowPlan | None = None
    """The windows of streams named by a column, or None if all have the same."""
    pairwise: PairCondition | None = None
    """What every two members of a result meet besides having equal keys, or None."""
    throttle: ThrottlePlan | None = None
    """How much work it may do, or None for as much as there is."""
    spill: SpillPlan | None = None
    """The disk on which rows wait when memory is full, or None if they are shed."""
    memory: MemoryPlan | None = None
    """The budget in bytes shared by all streams, or None."""
    bounds: tuple[tuple[int, ...], ...] = ()
    """By streams (i, j) how much later than a member of j one of i may be, if that is said."""
    unmatched: tuple[str, ...] = ()
    """The streams whose rows are handed out if they have no match."""
    first: First | None = None
    """Of what the first result only is made, or None for all results."""
    factorised: bool = False
    """Whether a row makes one output, which stands for all its results."""
    aggregates: Windows | None = None
    """The aggregates to make of results, or None to return the results themselves."""

    def lag(self, later: int, earlier: int) -> int:
        """How much later than a member of one stream one of another may be, by their positions."""
        if self.bounds:
            return self.bounds[later][earlier]
        window = self.streams[earlier].window
        return BOUNDLESS if window is None else window

    @property
    def key_types(self) -> tuple[pa.DataType, ...]:
        """The common type of each column of a shared key, to which every stream's is cast."""
        return self.streams[0].key_types

    @property
    def secret(self) -> Secret:
        """What the hash of a key depends on besides the key."""
        return secret_of(self.key_seed)

    @property
    def graph(self) -> bool:
        """Whether streams are joined by equalities between pairs of them."""
        return any(stream.attributes for stream in self.streams)

    @property
    def by_whole_keys(self) -> bool:
        """Whether members have equal keys, and nothing else ties them together."""
        return self.through is None and self.pairwise is None and not self.graph

    @property
    def makes_products(self) -> bool:
        """Whether the results of a key are all combinations of its rows within their windows."""
        return self.by_whole_keys and self.first is None

    def shared(self) -> list[list[tuple[int, int]]]:
        """What is equal in every result: for each attribute its places (stream, key column)."""
        found: dict[int, list[tuple[int, int]]] = {}
        for position, stream in enumerate(self.streams):
            for column, number in enumerate(stream.attributes or range(len(stream.key))):
                found.setdefault(number, []).append((position, column))
        return [found[number] for number in sorted(found)]

    @property
    def weighed(self) -> bool:
        """Whether rows have an importance."""
        return any(stream.weight is not None for stream in self.streams)

    @property
    def on_wall(self) -> bool:
        """Whether rows wait by the clock on the wall."""
        return self.queue is not None and self.queue.wall

    @property
    def bounded(self) -> bool:
        """Whether rows may have to be shed: there is a queue, or a budget and no disk."""
        budgets = (self.total, self.memory, *(s.rows for s in self.streams))
        over = self.spill is None and any(budget is not None for budget in budgets)
        return over or self.queue is not None

    @property
    def budget(self) -> int | None:
        """The rows that may be kept of all streams together, or None if that is not bounded."""
        rows = [stream.rows for stream in self.streams if stream.rows is not None]
        if self.total is not None or self.by is not None or len(rows) < len(self.streams):
            return self.total
        return sum(rows)

    @property
    def unbounded(self) -> Plan:
        """The same join without a budget."""
        streams = tuple(replace(stream, rows=None) for stream in self.streams)
        return replace(self, streams=streams, total=None, memory=None, part=None)

    @property
    def moments(self) -> int | None:
        """How far the moments are apart at which budgets follow rows; None where they do not.

        They do in joins of named streams by a shared key and in time windows, where nothing but a
        budget bounds what is kept.
        """
        others = (self.by, self.spill, self.queue, self.throttle, self.ahead)
        windows = [max(1, stream.window) for stream in self.streams if stream.window is not None]
        timed = windows and all(stream.time is not None for stream in self.streams)
        if not (self.bounded and self.by_whole_keys and timed):
            return None
        return None if any(other is not None for other in others) else -(-max(windows) // MOMENTS)

    def _overflow(self) -> str:
        """What is done with rows that are too many."""
        if self.spill is None:
            return "shed"
        return "spilled" if self.memory is None else "spilled by bytes"

    def about(self) -> dict[str, str]:
        """What a state of the join depends on, in words."""
        columns = {
            str(Column(stream.name, column.name, column.type)): str(column.type)
            for stream in self.streams
            for column in stream.schema
        }
        windows = [
            stream.window
            if stream.last is None
            else f"{'' if stream.window is None else f'{stream.window}, '}{stream.last} rows"
            for stream in self.streams
        ]
        return {
            "streams": ", ".join(stream.name for stream in self.streams)
            if self.by is None
            else self.by,
            "key": "; ".join(", ".join(stream.key) for stream in self.streams),
            "times": f"{[stream.time for stream in self.streams]} as {self.time_type}",
            "windows": f"{self.windows.about() if self.windows else windows}, late {self.late}",
            "clock": f"{self.clock}, idle {self.idle}, ahead {self.ahead}",
            "budget": f"{[stream.rows for stream in self.streams]}, total {self.total}"
            f"{'' if self.memory is None else f', memory {self.memory.nbytes}'}",
            "policy": repr(self.policy),
            "members": f"at least {self.at_least}" if self.at_least else "complete",
            "seed": f"{self.seed}{self.key_mark}",
            "shards": ", ".join(map(str, self.shards)),
            "relation": "none" if self.through is None else self.through.about(),
            "importance": f"{[stream.weight for stream in self.streams]}",
            **({"queue": repr(self.queue)} if self.queue else {}),
            **({"shares": repr(self.shares)} if self.shares else {}),
            **({"attributes": f"{[s.attributes for s in self.streams]}"} if self.graph else {}),
            **({"bounds": repr(self.bounds)} if self.bounds else {}),
            **({"unmatched": ", ".join(self.unmatched)} if self.unmatched else {}),
            **({"first": repr(self.first)} if self.first else {}),
            "throttle": str(self.throttle and self.throttle.on_any_machine()),
            "overflow": self._overflow(),
            "condition": "equal keys" if self.pairwise is None else str(self.pairwise),
            **columns,
        }
