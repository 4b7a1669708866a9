"""`join` and `Join`: an immutable description of a join that validates itself at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from streamshed import durations
from streamshed.arguments import (
    PerStream,
    check_covered,
    column_name,
    read_own,
    whole,
)
from streamshed.conditions import PairCondition, SharedKey, parted, read_met
from streamshed.equalities import Equalities, are_equalities
from streamshed.errors import SpecError, listed, suggestion
from streamshed.limits import Limited
from streamshed.plan.capabilities import NO_NAMES
from streamshed.selection import Selection
from streamshed.spec import (
    CERTAIN,
    PER_KEY,
    Aggregation,
    First,
    Interval,
    Order,
    RowWindows,
    Spec,
    Through,
    TimeWindows,
    check_names,
)
from streamshed.writing import written


def join(*streams: str, by: str | None = None) -> Join:
    """Describe a join of the named streams.

    Args:
        streams: The names of two or more streams; or of one, to join it with a relation.
        by: For a single input instead of named streams: the column whose values name the stream of
            each row.

    Example:
        >>> from streamshed import join
        >>> join("impressions", "clicks").on("ad_id").within("10 minutes", time="ts")
        join('impressions', 'clicks').on('ad_id').within('10 minutes', time='ts')
        >>> join(by="sensor").on("room").within("1 second", time="ts").partial(at_least=3)
        join(by='sensor').on('room').within('1 second', time='ts').partial(at_least=3)
    """
    if by is not None:
        if streams:
            raise SpecError(
                f"join(): the streams {listed(map(str, streams))} and the column {by!r} are both "
                "given; name the streams, or the column that names them"
            )
        return Join(Spec(streams=(), by=column_name(by, "join(): `by`")))
    check_names(streams)
    return Join(Spec(streams=streams))


@dataclass(frozen=True, repr=False)
class Join(Limited):
    """An immutable description of a join; `join` creates it.

    Every method returns a new join, and raises `SpecError` if an argument is invalid. Calling a
    method again replaces its earlier arguments. Joins with the same arguments are equal.

    Example:
        >>> from streamshed import join
        >>> base = join("a", "b").on("k").within("1 minute", time="ts")
        >>> base.keep(rows=500) == base.keep(rows=100).keep(rows=500)
        True
    """

    def on(
        self, /, *columns: str | PairCondition, **by_stream: str | list[str] | tuple[str, ...]
    ) -> Join:
        """Set the key columns, the equalities or the condition by which rows match.

        Args:
            columns: The key columns, if they have the same names in every stream. Instead of them,
                or in addition, one condition: `near`, `cosine`, `inner_product` or `where`. Or
                equalities between columns of two streams each, which together connect all streams.
            by_stream: Or, for every stream, its key column or a list of its key columns.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k", "l")
            join('a', 'b').on('k', 'l')
            >>> join("a", "b").on(a="x", b="y")
            join('a', 'b').on(a='x', b='y')
            >>> join("a", "b", "c").on("a.x = b.x", "b.y = c.z")
            join('a', 'b', 'c').on('a.x = b.x', 'b.y = c.z')
            >>> import streamshed as ss
            >>> join("a", "b").on("room", ss.near("heat", 0.5))
            join('a', 'b').on('room', near('heat', 0.5))
        """
        names, (keys, pairwise) = self._spec.names(), parted(columns)
        if pairwise is not None:
            pairwise.check(names)
        condition: SharedKey | Equalities | None = None
        if keys and not by_stream and are_equalities(keys, names):
            if pairwise is not None:
                raise SpecError(
                    f".on(): equalities between pairs cannot be combined with {pairwise}; "
                    "name a key that all streams share, as in .on('k', …), or leave one of them out"
                )
            condition = Equalities.of(keys, names)
        elif keys or by_stream or pairwise is None:
            condition = SharedKey.of(keys, by_stream, names)
        return self._with(condition=condition, pairwise=pairwise)

    def within(
        self,
        duration: str | timedelta | int | Mapping[Any, str | timedelta | int],
        *,
        time: str | Mapping[str, str],
        otherwise: str | timedelta | int | None = None,
        late: str | timedelta | int = 0,
        clock: Literal["min", "max"] = "min",
        idle: str | timedelta | int | None = None,
        ahead: str | timedelta | int | None = None,
    ) -> Join:
        """Give the streams time windows.

        Args:
            duration: How much older than the newest row of a result its other rows may be: a string
                such as `"10 minutes"`, a timedelta, or a number in the unit of an integer time
                column; or a mapping from streams to one of these.
            time: The time column, or a mapping from streams to their time columns.
            otherwise: With `join(by=...)` and a mapping from values of the column: the window of
                all streams that the mapping does not name.
            late: How far behind the clock a row may come and still be joined.
            clock: Whether the slowest stream sets the clock (`"min"`) or the fastest (`"max"`).
            idle: How far a stream may fall behind the newest time before the clock no longer waits
                for it; by default the clock always waits.
            ahead: With `join(by=...)`: how far a single row may move the clock; by default the
                longest window plus `late`.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").within({"a": "90 min", "b": "0 s"}, time="ts", late="30 s")
            join('a', 'b').on('k').within({'a': '1 hour 30 minutes', 'b': 0}, time='ts', \
late='30 seconds')
            >>> join(by="sensor").on("room").within({"door": "1 h"}, otherwise="5 min", time="ts")
            join(by='sensor').on('room').within({'door': '1 hour'}, otherwise='5 minutes', \
time='ts')
        """
        names, method = self._spec.names(), ".within()"
        own = read_own(duration, otherwise, names, method, "window", durations.parse)
        lengths = names.read(otherwise if own else duration, method, "window", durations.parse)
        times = names.read(time, method, "time column", column_name)
        check_covered(times, lengths.among(self._spec.streams), method)
        if clock not in ("min", "max"):
            raise SpecError(f"{method}: the clock is {clock!r}; give 'min' or 'max'")
        if names.by is not None and idle is not None:
            raise SpecError(
                f"{method}: `idle` is {idle!r}, but streams named by the column {names.by!r} share "
                "one clock, which waits for none of them; leave `idle` out"
            )
        if names.by is None and ahead is not None:
            raise SpecError(
                f"{method}: `ahead` is {ahead!r}, but it is for streams named by a column; "
                "leave it out: with clock='min' a row that is ahead of all other streams moves no "
                "clock"
            )
        windows = TimeWindows(
            lengths,
            times,
            late=durations.parse(late, f"{method}: `late`"),
            clock=clock,
            idle=None if idle is None else durations.parse(idle, f"{method}: `idle`"),
            ahead=None if ahead is None else durations.parse(ahead, f"{method}: `ahead`"),
            own=own,
        )
        changed = self._with(time_windows=windows)
        changed._spec.check_windows()
        return changed

    def last(
        self, rows: int | Mapping[str, int], *, time: str | Mapping[str, str] | None = None
    ) -> Join:
        """Give the streams row windows.

        Args:
            rows: How many of the latest rows of a stream can match arriving rows, or a mapping from
                streams to such numbers. The streams not named need a window by `.within`. A stream
                may have both: its rows stay while both windows hold them.
            time: The time column, or a mapping from streams to their time columns. If neither this
                method nor `.within` names one, the time of a row is its number in its stream.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100)
            join('a', 'b').on('k').last(100)
            >>> join("a", "b").on("k").within({"a": "1 s"}, time="ts").last({"b": 100})
            join('a', 'b').on('k').within({'a': '1 second'}, time='ts').last({'b': 100})
            >>> join("a", "b").on("k").within("1 hour", time="ts").last(100)
            join('a', 'b').on('k').within('1 hour', time='ts').last(100)
        """
        names, method = self._spec.names(), ".last()"
        counts = names.read(rows, method, "number of rows", _row_window)
        times = None if time is None else names.read(time, method, "time column", column_name)
        if times is not None:
            check_covered(times, counts.among(self._spec.streams), method)
            _check_counted(times, counts, method)
        changed = self._with(row_windows=RowWindows(counts, times))
        changed._spec.check_windows()
        return changed

    def partial(self, at_least: int = 2) -> Join:
        """Also return partial results, in which some streams have no row.

        Args:
            at_least: The smallest number of rows in a result.

        Example:
            >>> from streamshed import join
            >>> join("a", "b", "c").on("k").last(100).partial()
            join('a', 'b', 'c').on('k').last(100).partial(at_least=2)
        """
        least = whole(at_least, ".partial(): `at_least`", at_least=2)
        streams = self._spec.streams
        if streams and least > len(streams):
            raise SpecError(
                f".partial(): `at_least` is {least}, but there are only {len(streams)} streams, "
                f"{listed(streams)}; give at most {len(streams)}"
            )
        return self._with(at_least=least)

    def in_order(self, *streams: str, strictly: bool = False) -> Join:
        """Return only results whose rows are in this order of time.

        Args:
            streams: Two or more streams, the earliest first.
            strictly: Whether times must differ. By default, equal times are in order.

        Example:
            >>> from streamshed import join
            >>> said = join("ads", "clicks", "orders").on("k").within("1 hour", time="ts")
            >>> said.in_order("ads", "clicks", "orders")
            join('ads', 'clicks', 'orders').on('k').within('1 hour', time='ts')\
.in_order('ads', 'clicks', 'orders')
        """
        method = ".in_order()"
        named = self._distinct(streams, method)
        if len(named) < 2:
            raise SpecError(
                f"{method} names {listed(named)}; name at least two streams, the earliest first, "
                f"as in .in_order({listed(self._spec.streams[:2])})"
            )
        return self._with(order=Order(named, bool(strictly)))

    def between(
        self,
        later: str,
        earlier: str,
        least: str | timedelta | int,
        most: str | timedelta | int,
        /,
    ) -> Join:
        """Return only results in which the rows of two streams are this far apart in time.

        Args:
            later: A stream.
            earlier: Another stream.
            least: How much later than the row of `earlier` the row of `later` must be; negative
                if it may be earlier, as in `"-5 minutes"`.
            most: How much later it may be. The windows of `.within` apply as well.

        Example:
            >>> from streamshed import join
            >>> said = join("ads", "clicks").on("k").within("1 hour", time="ts")
            >>> said.between("clicks", "ads", "0 seconds", "10 minutes")
            join('ads', 'clicks').on('k').within('1 hour', time='ts')\
.between('clicks', 'ads', 0, '10 minutes')
        """
        method = ".between()"
        one, other = self._distinct((later, earlier), method)
        said = Interval(
            one,
            other,
            durations.parse(least, f"{method}: the smallest difference", signed=True),
            durations.parse(most, f"{method}: the largest difference", signed=True),
        )
        others = [i for i in self._spec.intervals if {i.later, i.earlier} != {one, other}]
        return self._with(intervals=(*others, said))

    def unmatched(self, *streams: str) -> Join:
        """Also return the rows of these streams that have no match: an outer join.

        A row that was in no result is returned once, when its window closes, with nulls for the
        other streams. The column `certain` is false if a row that could have matched it, or the row
        itself, was shed.

        Args:
            streams: The streams, which need time windows. In a join of two streams, naming the
                first makes a left outer join, and naming both a full outer join.

        Example:
            >>> import pyarrow as pa, streamshed as ss
            >>> joined = ss.join("ads", "clicks").on("k").within(60, time="ts").unmatched("ads")
            >>> ads = pa.table({"k": [1, 2], "ts": [0, 5]})
            >>> clicks = pa.table({"k": [2], "ts": [7]})
            >>> joined.replay(ads=ads, clicks=clicks).table.select(["ads", "clicks"]).to_pylist()
            [{'ads': {'k': 2, 'ts': 5}, 'clicks': {'k': 2, 'ts': 7}}, \
{'ads': {'k': 1, 'ts': 0}, 'clicks': None}]
        """
        method = ".unmatched()"
        named = self._distinct(streams, method)
        if not named:
            raise SpecError(
                f"{method} names no stream; name those whose unmatched rows you want, "
                f"as in .unmatched({listed(self._spec.streams[:1])})"
            )
        if CERTAIN in self._spec.streams:
            raise SpecError(
                f"{method}: a stream is named {CERTAIN!r}, but so is the column that says whether "
                "a row certainly has no match; rename the stream"
            )
        return self._with(unmatched=tuple(s for s in self._spec.streams if s in named))

    def first(self, *, per: str, last_touch: bool = False) -> Join:
        """Return only the first result of each key, or of each row of a stream.

        Args:
            per: `"key"` for one result per key: the key makes another result only after all rows of
                the first have left their windows. Or a stream: each of its rows is in at most one
                result.
            last_touch: With a stream: instead of the earliest result, the one with the latest row
                of each other stream that is not after the row.

        Example:
            >>> from streamshed import join
            >>> said = join("ads", "clicks").on("k").within("1 hour", time="ts")
            >>> said.first(per="clicks", last_touch=True)
            join('ads', 'clicks').on('k').within('1 hour', time='ts')\
.first(per='clicks', last_touch=True)
        """
        method = ".first()"
        if per != PER_KEY and per not in self._spec.streams:
            raise SpecError(
                f"{method}: `per` is {per!r}; give {PER_KEY!r}, or one of the streams "
                f"{listed(self._spec.streams)}.{suggestion(per, self._spec.streams)}"
            )
        if last_touch and per == PER_KEY:
            raise SpecError(
                f"{method}: `last_touch` needs a stream, but `per` is {PER_KEY!r}; name the "
                "stream, as in .first(per='clicks', last_touch=True)"
            )
        return self._with(first=First(per, bool(last_touch)))

    def factorised(self, wanted: bool = True, /) -> Join:
        """Return one output per arriving row, with its matches instead of their combinations.

        An output has a list of rows for each stream. It stands for all results that take one row
        from each list. The ledger counts these results.

        Args:
            wanted: `False` returns results one by one, as without this method.

        Example:
            >>> from streamshed import join
            >>> join("a", "b", "c").on("k").last(100).factorised()
            join('a', 'b', 'c').on('k').last(100).factorised()
        """
        return self._with(factorised=bool(wanted))

    def _distinct(self, streams: Sequence[str], method: str) -> tuple[str, ...]:
        """Refuse streams that the join does not have, or that are named twice."""
        names = self._spec.names()
        if names.by is not None:
            raise SpecError(
                f"{method} names {listed(streams)}, but {NO_NAMES}; list the streams in "
                f"join('a', 'b') instead of join(by={names.by!r})"
            )
        for position, stream in enumerate(streams):
            names.check(stream, method)
            if stream in streams[:position]:
                raise SpecError(f"{method}: the stream {stream!r} was named twice; name it once")
        return tuple(streams)

    def through(self, relation: Any, /, **columns: str | list[str] | tuple[str, ...]) -> Join:
        """Join the streams through a relation: rows match if a row of it connects them.

        Args:
            relation: The rows of the relation, in any form that `replay` takes; or what
                `streamshed.relation` returns, which also says when rows are valid.
            columns: For every stream, the column of the relation, or a list of columns, that equals
                the key of the stream. The key is the column that `.on` names, or else the column of
                the stream that has the same name.

        Example:
            >>> import pyarrow as pa
            >>> from streamshed import join
            >>> pairs = pa.table({"a": [1, 2], "b": [7, 8]})
            >>> said = join("r", "s").on(r="x", s="y").within(10, time="ts")
            >>> said.through(pairs, r="a", s="b")
            join('r', 's').on(r='x', s='y').within(10, time='ts')\
.through(<relation 'relation'>, r='a', s='b')
        """
        # Relations bring Arrow along, which is no part of a quick `import streamshed`.
        from streamshed.relations import as_relation

        said = Through(as_relation(relation), read_met(columns, self._spec.names()))
        if said.relation.name in self._spec.streams:
            raise SpecError(
                f".through(): the relation and a stream are both named {said.relation.name!r}, and "
                "results have a column for each; give another, as in relation(…, name='facts')"
            )
        return self._with(through_relation=said)

    def weigh(self, *, column: str | Mapping[str, str]) -> Join:
        """Set the importance of rows; a result is as important as its least important row.

        Args:
            column: The column that holds a row's importance, a number of 0 or more, or a mapping
                from streams to such columns.

        Example:
            >>> from streamshed import join
            >>> join("r", "s").weigh(column="importance")
            join('r', 's').weigh(column='importance')
        """
        names, method = self._spec.names(), ".weigh()"
        weights = names.read(column, method, "column of importance", column_name)
        check_covered(weights, names.streams, method)
        return self._with(weights=weights)

    def select(self, *columns: str) -> Join:
        """Choose the columns of results; the join does not store or shuffle the others.

        Args:
            columns: Each a stream and a column, as in `"clicks.price"`, or a stream for all of its
                columns, `"clicks"` or `"clicks.*"`; with `join(by=...)`, `"members.price"` or
                `"members"`, and `"key"`, `"update"`, `"extends"`. Results always have their time;
                `"time"` alone chooses no other column.

        Example:
            >>> from streamshed import join
            >>> join("a", "b", "c").on("k").last(100).select("b.y", "a")
            join('a', 'b', 'c').on('k').last(100).select('a', 'b.y')
            >>> join(by="sensor").on("room").last(100).select("members.heat")
            join(by='sensor').on('room').last(100).select('members.heat')
        """
        return self._with(selection=Selection.of(columns, self._spec.result_names()))

    def aggregate(
        self,
        column: str,
        /,
        *,
        over: str | timedelta | int,
        every: str | timedelta | int | None = None,
        quantiles: Sequence[float] = (0.25, 0.5, 0.75),
        wait: str | timedelta | int | None = None,
    ) -> Join:
        """Aggregate a column of the results in windows of time, instead of returning results.

        `replay` then returns the aggregates as its table, and `stream` as its DataFrame. There is a
        row for each window (begin, end], with the number of results made (`results`). `count` and
        `sum` estimate those of all results, also of missed ones; the average and the quantiles
        weight each result by the number of results that it stands for. Each has the bounds of a
        95 % interval, or nulls if they are not known.

        Args:
            column: The column, as in `"clicks.price"`; with `join(by=...)` `"members.price"`, where
                each row of a result counts separately. Nulls are left out.
            over: The length of a window.
            every: The distance between the ends of two windows, which are multiples of it; `over`
                by default.
            quantiles: Which quantiles to compute, each from 0 to 1.
            wait: On Spark, how far a result may be behind the newest result; by default the longest
                window plus `late`. Replay does not wait.

        Example:
            >>> import pyarrow as pa, streamshed as ss
            >>> rows = pa.table({"k": [1, 2, 1], "ts": [1, 2, 3], "v": [10, 20, 40]})
            >>> joined = ss.join("a", "b").on("k").within(0, time="ts")
            >>> averages = joined.aggregate("a.v", over=10, quantiles=[0.5])
            >>> averages
            join('a', 'b').on('k').within(0, time='ts').aggregate('a.v', over=10, quantiles=[0.5])
            >>> averages.replay(a=rows, b=rows).table["average"].to_pylist()
            [23.333333333333332]
        """
        names = self._spec.result_names()
        return self._with(
            aggregation=Aggregation.of(
                column, names, over=over, every=every, quantiles=quantiles, wait=wait
            )
        )

    def seed(self, n: int) -> Join:
        """Seed the random numbers and the hash of keys; the same seed gives the same results.

        If keys come from senders you do not trust, keep the seed secret, or set the environment
        variable `STREAMSHED_SECRET`: otherwise they can make many keys with the same hash, which
        slows the join down.

        Args:
            n: A number from 0 to 2**64 - 1; 0 by default.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100).seed(7)
            join('a', 'b').on('k').last(100).seed(7)
        """
        return self._with(random_seed=whole(n, ".seed(): the seed", at_least=0, below=2**64))

    def __repr__(self) -> str:
        return written(self._spec)


def spec_of(join: Join) -> Spec:
    """The spec of a join, for runtimes; users have the methods."""
    return join._spec


def _row_window(said: object, what: str) -> int:
    """Read the number of rows of a row window, for each of which there is room from the start."""
    return whole(said, what, at_least=1, below=2**31)


def _check_counted(times: PerStream[str], counts: PerStream[int], method: str) -> None:
    """Refuse a time column for a stream without a row window, which would go unheard."""
    for stream, column in times.named:
        if counts.get(stream) is None:
            raise SpecError(
                f"{method}: the time column {column!r} is named for stream {stream!r}, which gets "
                "no row window here; give it a number of rows, or name its time in .within()"
            )
