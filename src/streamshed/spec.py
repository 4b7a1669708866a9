"""A join as plain data, checked in itself but not yet against any input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from streamshed.arguments import Names, PerStream, fraction
from streamshed.conditions import PairCondition, SharedKey
from streamshed.durations import Duration, amount, describe, parse
from streamshed.equalities import Equalities
from streamshed.errors import SpecError, listed
from streamshed.selection import BESIDES, MEMBERS, TIME, Selection, read_path

if TYPE_CHECKING:
    from streamshed.policies import Policy
    from streamshed.relations import Relation

IMPORTANCE = "importance"
"""The column of the result that holds its importance."""
_RESERVED = {
    TIME: "the column of the result that holds the time of completion",
    MEMBERS: "the column of the result that holds the members of a partial result",
    IMPORTANCE: "the column of the result that holds its importance",
}
_MOST_STREAMS = 64
PER_KEY = "key"
"""What is said to `.first` for one result of each key."""
CERTAIN = "certain"
"""The column of the result that says whether a row without a match has none for certain."""
KEEP_UP = "keep up"
"""What is said to `.throttle` for a join that is to take no longer than its rows take to come."""


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """What `.within` said."""

    lengths: PerStream[Duration]
    times: PerStream[str]
    late: Duration
    clock: Literal["min", "max"]
    idle: Duration | None
    ahead: Duration | None = None
    own: tuple[tuple[Any, Duration], ...] = ()
    """Of streams named by a column, the lengths by values of it; `lengths` is for the rest."""


@dataclass(frozen=True, slots=True)
class RowWindows:
    """What `.last` said."""

    rows: PerStream[int]
    times: PerStream[str] | None


@dataclass(frozen=True, slots=True)
class Budget:
    """What `.keep` said: one of the three."""

    rows: PerStream[int] | None
    total: int | None
    memory: int | None = None
    """In bytes."""


@dataclass(frozen=True, slots=True)
class Through:
    """What `.through` said: a relation, and for each stream the columns of it that it meets."""

    relation: Relation
    columns: PerStream[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Throttle:
    """What `.throttle` said: one of the first three, and how."""

    comparisons: float | None
    cpu: float | None
    keep_up: bool
    every: Duration
    boost: float
    part: Duration | None
    sample: float
    buffer: int
    dropping: bool
    conserve: bool
    rule: Literal["work", "paper"]


@dataclass(frozen=True, slots=True)
class Spill:
    """What `.spill` said."""

    to: str
    deadline: Duration | None


@dataclass(frozen=True, slots=True)
class Order:
    """What `.in_order` said."""

    streams: tuple[str, ...]
    strictly: bool


@dataclass(frozen=True, slots=True)
class Interval:
    """What `.between` said of two streams: how much later members of one are than the other's."""

    later: str
    earlier: str
    least: Duration
    most: Duration

    def __post_init__(self) -> None:
        ends = (self.least, self.most)
        # A number beside a duration is refused later, when the type of the times is known.
        comparable = 0 in ends or isinstance(ends[0], int) == isinstance(ends[1], int)
        if comparable and amount(self.least) > amount(self.most):
            raise SpecError(
                f".between(): the smallest difference is {describe(self.least)!r} and the largest "
                f"{describe(self.most)!r}; give the smaller one first"
            )


@dataclass(frozen=True, slots=True)
class First:
    """What `.first` said: a stream or `PER_KEY`, and whether the newest members are wanted."""

    per: str
    last_touch: bool


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The arguments of `.aggregate`.

    Attributes:
        stream: the stream, the relation, or `members` where a column names the streams.
    """

    stream: str
    column: str
    over: Duration
    every: Duration | None
    quantiles: tuple[float, ...]
    wait: Duration | None

    @classmethod
    def of(
        cls,
        path: object,
        names: Names,
        *,
        over: object,
        every: object,
        quantiles: object,
        wait: object,
    ) -> Aggregation:
        """Read the arguments of `.aggregate`."""
        method = ".aggregate()"
        stream, column = read_path(path, names, method)
        if column in (None, "*"):
            raise SpecError(
                f"{method}: {path!r} names no column; name a stream and a column, as in "
                f"'{stream}.x'"
            )
        length, step = parse(over, f"{method}: `over`"), None
        if every is not None:
            step = parse(every, f"{method}: `every`")
        for name, said in (("over", length), ("every", step)):
            if said == 0:
                raise SpecError(f"{method}: `{name}` is 0; it must be greater than 0")
        until = None if wait is None else parse(wait, f"{method}: `wait`")
        return cls(stream, str(column), length, step, _read_quantiles(quantiles, method), until)


def _read_quantiles(said: object, method: str) -> tuple[float, ...]:
    if isinstance(said, str) or not isinstance(said, Iterable):
        raise SpecError(f"{method}: `quantiles` is {said!r}; give a list, as in quantiles=[0.5]")
    found = tuple(fraction(part, f"{method}: the quantile") for part in said)
    for position, part in enumerate(found):
        # Columns are named by their quantile, to as many digits as `:g` shows.
        if f"{part:g}" in [f"{other:g}" for other in found[:position]]:
            raise SpecError(f"{method}: the quantile {part:g} was given twice; give it once")
    return found


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything that is known of a join before its inputs."""

    streams: tuple[str, ...]
    """The names of the streams; empty where a column names them."""
    by: str | None = None
    """The column that names the streams, or None."""
    condition: SharedKey | Equalities | None = None
    pairwise: PairCondition | None = None
    """What every two members of a result meet besides, or instead of, having equal keys."""
    time_windows: TimeWindows | None = None
    row_windows: RowWindows | None = None
    budget: Budget | None = None
    policy: Policy | None = None
    at_least: int | None = None
    through_relation: Through | None = None
    weights: PerStream[str] | None = None
    """The column that says how important a row is, for each stream."""
    throttled: Throttle | None = None
    selection: Selection | None = None
    aggregation: Aggregation | None = None
    queue_rows: int | None = None
    queue_per: Literal["join", "stream"] = "join"
    """How many rows may wait for the join."""
    speed: float | None = None
    """How many rows the join takes in a second of its own time."""
    spilled: Spill | None = None
    order: Order | None = None
    intervals: tuple[Interval, ...] = ()
    unmatched: tuple[str, ...] = ()
    """The streams whose rows are handed out if they have no match."""
    first: First | None = None
    factorised: bool = False
    """Whether a row makes one output, which stands for all its results."""
    random_seed: int = 0
    sample_rate: float | None = None
    """The part of all keys that is followed, 0 for none, None for as many as seem fit."""

    def names(self) -> Names:
        """The streams, for reading arguments about them."""
        return Names(self.streams, self.by)

    def result_names(self) -> Names:
        """Whatever has a column of its own in results: the streams, and the relation."""
        if self.through_relation is None:
            return self.names()
        return Names((*self.streams, self.through_relation.relation.name), self.by)

    def key_of(self, stream: str) -> tuple[str, ...]:
        """The key columns of a stream: as named, or else named as those of the relation."""
        if self.condition is not None:
            return self.condition.columns_for(stream)
        return self.relation_columns(stream)

    def graph(self) -> Equalities | None:
        """The equalities between streams, unless they come down to one key shared by all."""
        if isinstance(self.condition, Equalities) and not self.condition.shares_one_key():
            return self.condition
        return None

    def attributes_of(self, stream: str) -> tuple[int, ...]:
        """The attribute that each key column belongs to, where streams share no key."""
        graph = self.graph()
        return () if graph is None else graph.attributes_of(stream)

    def relation_columns(self, stream: str) -> tuple[str, ...]:
        """The columns of the relation that a stream's key equals."""
        if self.through_relation is None:
            return ()
        return self.through_relation.columns.get(stream) or ()

    def length_of(self, stream: str) -> Duration | None:
        """The length of a stream's time window, if it has one."""
        return self.time_windows.lengths.get(stream) if self.time_windows else None

    def rows_of(self, stream: str) -> int | None:
        """The number of rows of a stream's row window, if it has one."""
        return self.row_windows.rows.get(stream) if self.row_windows else None

    def time_of(self, stream: str) -> str | None:
        """The time column of a stream, if it has one."""
        time = None
        if self.row_windows and self.row_windows.times and self.rows_of(stream) is not None:
            time = self.row_windows.times.get(stream)
        if time is None and self.time_windows:
            time = self.time_windows.times.get(stream)
        return time

    def chosen_of(self, stream: str, known: Sequence[str]) -> tuple[str, ...]:
        """Those of the known columns of a stream that results have."""
        if self.selection is None:
            return tuple(known)
        return self.selection.columns_for(MEMBERS if self.by is not None else stream, known)

    def besides(self) -> tuple[str, ...]:
        """The columns of results besides members and time, where a column names the streams."""
        if self.by is None:
            return ()
        return BESIDES if self.selection is None else self.selection.besides()

    def check_windows(self) -> None:
        """Refuse a stream with two time columns."""
        within, last = self.time_windows, self.row_windows
        if within is None or last is None or last.times is None:
            return
        for stream in self.streams or ("",):  # a join by a column has no names, and one input
            column, other = within.times.get(stream), last.times.get(stream)
            timed = self.length_of(stream) is not None or stream in dict(within.times.named)
            if timed and self.rows_of(stream) is not None and other not in (None, column):
                who = f"stream {stream!r}" if stream else "every stream"
                raise SpecError(
                    f".within() says that the time of {who} is in column {column!r}, .last() says "
                    f"{other!r}; name it once"
                )


def check_names(streams: tuple[object, ...]) -> None:
    """Refuse names that streams cannot have."""
    for position, name in enumerate(streams):
        if not isinstance(name, str) or not name:
            raise SpecError(
                f"join(): {name!r} cannot name a stream; give a string that is not empty"
            )
        if name in _RESERVED:
            raise SpecError(
                f"join(): no stream can be named {name!r}, which is {_RESERVED[name]}; choose "
                "another name"
            )
        if name in streams[:position]:
            raise SpecError(
                f"join(): the stream {name!r} was named twice; give every stream its own name"
            )
    if not streams:
        raise too_few(streams)
    if len(streams) > _MOST_STREAMS:
        raise SpecError(
            f"join(): {len(streams)} streams are named, more than {_MOST_STREAMS}; tell them apart "
            "by a column of one input, as in join(by='sensor')"
        )


def too_few(streams: tuple[object, ...]) -> SpecError:
    """What is said of a join of too few streams."""
    return SpecError(
        f"join(): the streams named are {listed(map(str, streams))}; name at least two, as in "
        "join('a', 'b'), or the column that names them, as in join(by='sensor'); one alone "
        "can be joined .through() a relation"
    )
