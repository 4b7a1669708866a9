"""The join, as one says it: an immutable description that validates itself at every step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from streamshed import durations
from streamshed.arguments import (
    PerStream,
    above,
    column_name,
    fraction,
    positive,
    read_own,
    whole,
)
from streamshed.conditions import PairCondition, SharedKey, parted, read_met
from streamshed.equalities import Equalities, are_equalities
from streamshed.errors import SpecError, listed
from streamshed.running import Running
from streamshed.selection import Selection
from streamshed.spec import Budget, RowWindows, Spill, Throttle, Through, TimeWindows, check_names
from streamshed.writing import written

if TYPE_CHECKING:
    from streamshed.policies import Policy


def join(*streams: str, by: str | None = None) -> Join:
    """Name the streams to be joined.

    Args:
        streams: The names of two or more streams; or of one, if it is joined with a relation.
        by: Instead of names, the column of a single input whose values tell its streams apart.

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
                f"join(): the streams {listed(map(str, streams))} are named, and the column {by!r} "
                "is to tell streams apart; give one or the other"
            )
        return Join(streams=(), by=column_name(by, "join(): `by`"))
    check_names(streams)
    return Join(streams=streams)


@dataclass(frozen=True, slots=True, repr=False)
class Join(Running):
    """What is to be joined, and how; made by `join`.

    A join never changes: every method returns a new one, and refuses at once what is wrong in
    itself. A method called again replaces what it said before. Two joins that say the same are
    equal.

    Example:
        >>> from streamshed import join
        >>> base = join("a", "b").on("k").within("1 minute", time="ts")
        >>> base.keep(rows=500) == base.keep(rows=100).keep(rows=500)
        True
    """

    def on(
        self, /, *columns: str | PairCondition, **by_stream: str | list[str] | tuple[str, ...]
    ) -> Join:
        """Say which columns the members of a result have in common, or what else makes them match.

        Args:
            columns: The key columns, of the same names in every stream; and instead of them, or
                besides, one of `near`, `cosine`, `inner_product` and `where`. Or equalities between
                columns of two streams each, which tie all streams together.
            by_stream: Or for every stream the name of its key column, or a list of names.

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
        names, (keys, pairwise) = self.names(), parted(columns)
        if pairwise is not None:
            pairwise.check(names)
        condition: SharedKey | Equalities | None = None
        if keys and not by_stream and are_equalities(keys):
            if pairwise is not None:
                raise SpecError(
                    f".on(): equalities between pairs and {pairwise} were both said, and no join "
                    "has both yet; name a key that all streams share, as in .on('k', …), or leave "
                    "one of them out"
                )
            condition = Equalities.of(keys, names)
        elif keys or by_stream or pairwise is None:
            condition = SharedKey.of(keys, by_stream, names)
        return replace(self, condition=condition, pairwise=pairwise)

    def within(
        self,
        duration: str | timedelta | int | Mapping[Any, str | timedelta | int],
        *,
        time: str | Mapping[str, str],
        otherwise: str | timedelta | int | None = None,
        late: str | timedelta | int = 0,
        clock: Literal["min", "max"] = "min",
        idle: str | timedelta | int | None = None,
    ) -> Join:
        """Give the streams time windows.

        Args:
            duration: How much older than the newest member of a result the others may be: a string
                such as `"10 minutes"`, a timedelta, or a number in the unit of an integer time
                column; or a mapping from streams to one of these.
            time: The time column, or a mapping from streams to their time columns.
            otherwise: Where a column tells streams apart, and the mapping is one from its values:
                the same for all streams that it does not name.
            late: How far behind the clock a row may come and still be joined.
            clock: Whether the slowest stream sets the clock (`"min"`) or the fastest (`"max"`).
            idle: How far a stream may fall behind before the clock no longer waits for it.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").within({"a": "90 min", "b": "0 s"}, time="ts", late="30 s")
            join('a', 'b').on('k').within({'a': '1 hour 30 minutes', 'b': 0}, time='ts', \
late='30 seconds')
            >>> join(by="sensor").on("room").within({"door": "1 h"}, otherwise="5 min", time="ts")
            join(by='sensor').on('room').within({'door': '1 hour'}, otherwise='5 minutes', \
time='ts')
        """
        names, method = self.names(), ".within()"
        own = read_own(duration, otherwise, names, method, "window", durations.parse)
        lengths = names.read(otherwise if own else duration, method, "window", durations.parse)
        times = names.read(time, method, "time column", column_name)
        _check_covered(times, lengths.among(self.streams), method)
        if clock not in ("min", "max"):
            raise SpecError(f"{method}: the clock is {clock!r}; give 'min' or 'max'")
        if self.by is not None and idle is not None:
            raise SpecError(
                f"{method}: `idle` is {idle!r}, but streams told apart by the column {self.by!r} "
                "share one clock, which waits for none of them; leave `idle` out"
            )
        windows = TimeWindows(
            lengths,
            times,
            late=durations.parse(late, f"{method}: `late`"),
            clock=clock,
            idle=None if idle is None else durations.parse(idle, f"{method}: `idle`"),
            own=own,
        )
        changed = replace(self, time_windows=windows)
        changed.check_windows()
        return changed

    def last(
        self, rows: int | Mapping[str, int], *, time: str | Mapping[str, str] | None = None
    ) -> Join:
        """Give the streams windows of so many rows.

        Args:
            rows: How many rows of a stream can be joined with what comes, or a mapping from
                streams to such numbers. The streams not named need a window by `.within`.
            time: The time column, or a mapping from streams to their time columns. Without one,
                neither here nor in `.within`, the time of a row is its number in its stream.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100)
            join('a', 'b').on('k').last(100)
            >>> join("a", "b").on("k").within({"a": "1 s"}, time="ts").last({"b": 100})
            join('a', 'b').on('k').within({'a': '1 second'}, time='ts').last({'b': 100})
        """
        names, method = self.names(), ".last()"
        counts = names.read(rows, method, "number of rows", positive)
        times = None if time is None else names.read(time, method, "time column", column_name)
        if times is not None:
            _check_covered(times, counts.among(self.streams), method)
            _check_counted(times, counts, method)
        changed = replace(self, row_windows=RowWindows(counts, times))
        changed.check_windows()
        return changed

    def keep(
        self, *, rows: int | Mapping[str, int] | None = None, total: int | None = None
    ) -> Join:
        """Bound the rows that are held.

        Args:
            rows: The most rows that the window of each stream may hold, or a mapping from streams
                to such numbers; streams not named are not bounded.
            total: Or the most rows that all windows together may hold.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100).keep(total=50)
            join('a', 'b').on('k').last(100).keep(total=50)
        """
        method = ".keep()"
        if (rows is None) == (total is None):
            raise SpecError(
                f"{method}: `rows` is {rows!r} and `total` is {total!r}; give exactly one of the "
                "two, as in .keep(rows=1000) or .keep(total=5000)"
            )
        if rows is not None and self.by is not None:
            raise SpecError(
                f"{method}: `rows` is {rows!r}, but streams told apart by the column {self.by!r} "
                "come and go and have no budgets of their own; give `total`"
            )
        budget = Budget(
            rows=None if rows is None else self.names().read(rows, method, "budget", _budget),
            total=None if total is None else _budget(total, f"{method}: `total`"),
        )
        return replace(self, budget=budget)

    def shed(
        self, policy: str | Policy | None = None, *, by: str | Mapping[str, str] | None = None
    ) -> Join:
        """Say which rows leave when a window is full; without it, `density` decides.

        In joins by a condition, and with `estimate(rate=0)`, it is `oldest`; by equalities between
        pairs, and with a queue, `sketch`.

        Args:
            policy: The name of a policy, or one made from `streamshed.policies`.
            by: Or the column that says what a row is worth, or a mapping from streams to such
                columns: the row worth least leaves first.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100).keep(rows=10).shed("existence")
            join('a', 'b').on('k').last(100).keep(rows=10).shed('existence')
            >>> join("a", "b").on("k").last(100).keep(rows=10).shed(by="price")
            join('a', 'b').on('k').last(100).keep(rows=10).shed(by='price')
        """
        # Policies bring their compiler along, which is no part of a quick `import streamshed`.
        from streamshed import policies

        method = ".shed()"
        if (policy is None) == (by is None):
            raise SpecError(
                f"{method}: the policy is {policy!r} and `by` is {by!r}; give exactly one of the "
                "two, as in .shed('existence') or .shed(by='price')"
            )
        if isinstance(policy, policies.ByColumn):
            by = policy.column if isinstance(policy.column, str) else dict(policy.column)
        if by is not None:
            worths = self.names().read(by, method, "worth column", column_name)
            _check_covered(worths, self.streams, method)
            return replace(self, policy=policies.ByColumn(worths.said()))
        if isinstance(policy, str):
            return replace(self, policy=policies.by_name(policy))
        if not isinstance(policy, policies.Policy):
            raise SpecError(
                f"{method}: the policy is {policy!r}; give the name of a policy, or an instance "
                "of one from streamshed.policies"
            )
        return replace(self, policy=policy)

    def partial(self, at_least: int = 2) -> Join:
        """Ask also for results in which not every stream has a member.

        Args:
            at_least: The least number of members of a result.

        Example:
            >>> from streamshed import join
            >>> join("a", "b", "c").on("k").last(100).partial()
            join('a', 'b', 'c').on('k').last(100).partial(at_least=2)
        """
        least = whole(at_least, ".partial(): `at_least`", at_least=2)
        if self.by is None and least > len(self.streams):
            raise SpecError(
                f".partial(): `at_least` is {least}, but there are only {len(self.streams)} "
                f"streams, {listed(self.streams)}; give a number from 2 to {len(self.streams)}"
            )
        return replace(self, at_least=least)

    def through(self, relation: Any, /, **columns: str | list[str] | tuple[str, ...]) -> Join:
        """Join the streams by way of a relation, each with some of its columns.

        Args:
            relation: The relation: its rows, of any kind that `replay` takes, or a description of
                them by `streamshed.relation`, which says when they are valid.
            columns: For every stream the column of the relation, or a list of them, that equals
                the stream's key. The key is the column that `.on` names, or else the stream's
                column of the same name.

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

        said = Through(as_relation(relation), read_met(columns, self.names()))
        if said.relation.name in self.streams:
            raise SpecError(
                f".through(): the relation and a stream are both named {said.relation.name!r}, and "
                "results have a column for each; give another, as in relation(…, name='facts')"
            )
        return replace(self, through_relation=said)

    def weigh(self, *, by: str | Mapping[str, str]) -> Join:
        """Say how important rows are; a result is as important as the least of its members.

        Args:
            by: The column that holds a row's importance, a number of 0 or more, or a mapping from
                streams to such columns.

        Example:
            >>> from streamshed import join
            >>> join("r", "s").weigh(by="importance")
            join('r', 's').weigh(by='importance')
        """
        method = ".weigh()"
        weights = self.names().read(by, method, "column of importance", column_name)
        _check_covered(weights, self.streams, method)
        return replace(self, weights=weights)

    def throttle(
        self,
        what: Literal["keep up"] | None = None,
        /,
        *,
        comparisons_per_second: float | None = None,
        cpu: float | None = None,
        tuples_per_second: float | None = None,
        every: str | timedelta | int = "5 seconds",
        part: str | timedelta | int | None = None,
        boost: float = 1.2,
        sample: float = 0.1,
        buffer: int = 100,
        dropping: bool = False,
        conserve: bool = False,
    ) -> Join:
        """Bound the work of a join, or the rows it takes; give one of the first four.

        With more work to do newcomers go through those parts of the windows only in which most
        results are found (GrubJoin). Rows that come faster than they are taken wait in a `queue`.

        Args:
            what: `"keep up"`, on Spark: batches take no longer than their rows take to come.
            comparisons_per_second: How many comparisons of rows are made in a second of the join's
                time (where time is a plain number, in a unit of it); in a join by equal columns,
                how many rows are looked at and results made.
            cpu: How much of a core's time the join takes for as much time of its own; on Spark
                each shard.
            tuples_per_second: How many rows of all streams together are taken. What follows is
                about work.
            every: How often it is decided anew what is gone through.
            part: The length of the parts into which windows are cut, which are gone through or
                not; a tenth of each window, unless said.
            boost: By which factor more is tried at most, when there was time left.
            sample: The part of newcomers from which is learned where results are found.
            buffer: How many rows of each stream may wait, while others are worked on, before rows
                are dropped.
            dropping: Drop rows at random instead, at the best rates: the baseline.
            conserve: Shed stored rows too that nobody will be compared with any more.

        Example:
            >>> import streamshed as ss
            >>> said = ss.join("a", "b").on(ss.near("heat", 0.5)).within("1 minute", time="ts")
            >>> said.throttle(comparisons_per_second=1e6, part="2 seconds")
            join('a', 'b').on(near('heat', 0.5)).within('1 minute', time='ts')\
.throttle(comparisons_per_second=1000000.0, part='2 seconds')
            >>> join("a", "b").on("k").within("1 minute", time="ts").throttle("keep up")
            join('a', 'b').on('k').within('1 minute', time='ts').throttle('keep up')
            >>> join("a", "b").on("k").last(100).queue(rows=10).throttle(tuples_per_second=1000)
            join('a', 'b').on('k').last(100).queue(rows=10).throttle(tuples_per_second=1000)
        """
        said = (what, comparisons_per_second, cpu, tuples_per_second)
        if sum(one is not None for one in said) != 1:
            raise SpecError(
                f".throttle(): what is bounded is {what!r}, `comparisons_per_second` is "
                f"{comparisons_per_second!r}, `cpu` {cpu!r} and `tuples_per_second` "
                f"{tuples_per_second!r}; give one of them"
            )
        if tuples_per_second is not None:
            speed = above(tuples_per_second, ".throttle(): `tuples_per_second`", 0)
            return replace(self, speed=speed)
        throttle = Throttle.of(
            what,
            comparisons_per_second,
            cpu,
            every=every,
            part=part,
            boost=boost,
            sample=sample,
            buffer=buffer,
            dropping=dropping,
            conserve=conserve,
        )
        return replace(self, throttled=throttle)

    def select(self, *columns: str) -> Join:
        """Choose the columns of results; the others are neither kept nor moved.

        Args:
            columns: Each a stream and a column, as in `"clicks.price"`, or a stream for all of its
                columns, `"clicks"` or `"clicks.*"`; of streams told apart by a column
                `"members.price"` or `"members"`, and `"key"`, `"update"`, `"extends"`. The time of
                completion is always there; `"time"` alone asks for nothing else.

        Example:
            >>> from streamshed import join
            >>> join("a", "b", "c").on("k").last(100).select("b.y", "a")
            join('a', 'b', 'c').on('k').last(100).select('a', 'b.y')
            >>> join(by="sensor").on("room").last(100).select("members.heat")
            join(by='sensor').on('room').last(100).select('members.heat')
        """
        return replace(self, selection=Selection.of(columns, self.told_apart()))

    def queue(self, *, rows: int) -> Join:
        """Let rows wait that come faster than the join takes them; see `throttle`.

        Args:
            rows: How many may wait. Of more the one leaves that promises least by the policy, or
                any at random if the policy is `random` or makes a sample.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100).queue(rows=10).throttle(tuples_per_second=0.2)
            join('a', 'b').on('k').last(100).queue(rows=10).throttle(tuples_per_second=0.2)
        """
        return replace(self, queue_rows=positive(rows, ".queue(): `rows`"))

    def spill(
        self, *, to: str | os.PathLike[str], deadline: str | timedelta | int | None = None
    ) -> Join:
        """Let rows wait on disk when memory is full, instead of shedding any.

        Rows are told by the hash of their key to partitions. When `keep` is reached, whole
        partitions go to disk, those of all streams together, and are joined there later.

        Args:
            to: The folder for the files. Each run has a folder of its own there, which is gone at
                the end.
            deadline: How long after the time of a result, in the join's own time, it may still be
                made; rows on disk for which that is too short are shed.

        Example:
            >>> from streamshed import join
            >>> said = join("a", "b").on("k").within("1 hour", time="ts").keep(total=1_000_000)
            >>> said.spill(to="/var/spill", deadline="5 minutes")
            join('a', 'b').on('k').within('1 hour', time='ts').keep(total=1000000)\
.spill(to='/var/spill', deadline='5 minutes')
        """
        method = ".spill()"
        if not isinstance(to, str | os.PathLike) or not os.fspath(to):
            raise SpecError(f"{method}: `to` is {to!r}; give the path of a folder")
        folder = os.fspath(to)
        until = None if deadline is None else durations.parse(deadline, f"{method}: `deadline`")
        if until == 0:
            raise SpecError(f"{method}: `deadline` is {deadline!r}; give more than nothing")
        return replace(self, spilled=Spill(str(folder), until))

    def estimate(self, *, rate: float | None = None) -> Join:
        """Say how many keys are followed in full, to estimate the results that shedding costs.

        Args:
            rate: The part of all keys that is followed once many rows have come; a join begins by
                following all of them. With 1 what is missed is known exactly, with 0 nothing is
                estimated. Without it, one key in 32, or fewer if they have very many rows.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100).keep(rows=10).estimate(rate=0.25)
            join('a', 'b').on('k').last(100).keep(rows=10).estimate(rate=0.25)
        """
        if rate is None:
            return replace(self, sample_rate=None)
        return replace(self, sample_rate=fraction(rate, ".estimate(): `rate`"))

    def seed(self, n: int) -> Join:
        """Choose the random numbers: runs of the same seed are the same.

        Args:
            n: A number from 0 to 2**64 - 1; 0 unless said.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100).seed(7)
            join('a', 'b').on('k').last(100).seed(7)
        """
        return replace(self, random_seed=whole(n, ".seed(): the seed", at_least=0, below=2**64))

    def __repr__(self) -> str:
        return written(self)


def _budget(said: object, what: str) -> int:
    """Read how many rows may be held."""
    try:
        return positive(said, what)
    except SpecError as error:
        raise SpecError(f"{error}; for no budget leave .keep() out") from None


def _check_covered(columns: PerStream[str], streams: tuple[str, ...], method: str) -> None:
    """Refuse columns named for some streams where others need one too."""
    covered = columns.among(streams)
    missing = [stream for stream in streams if stream not in covered]
    if missing:
        raise SpecError(
            f"{method}: columns are named for {listed(name for name, _ in columns.named)}, but not "
            f"for {listed(missing)}; name one for every stream"
        )


def _check_counted(times: PerStream[str], counts: PerStream[int], method: str) -> None:
    """Refuse a time column for a stream without a row window, which would go unheard."""
    for stream, column in times.named:
        if counts.get(stream) is None:
            raise SpecError(
                f"{method}: the time column {column!r} is named for stream {stream!r}, which gets "
                "no row window here; give it a number of rows, or name its time in .within()"
            )
