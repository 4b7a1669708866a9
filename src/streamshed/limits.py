"""The limits of a join: budgets and policies, spilling, queues and throttles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

from streamshed import durations
from streamshed.arguments import above, check_covered, column_name, fraction, positive
from streamshed.errors import SpecError
from streamshed.plan.capabilities import NO_STREAM_BUDGET
from streamshed.running import Running
from streamshed.sizes import parse_bytes
from streamshed.spec import KEEP_UP, Budget, Spill, Throttle

if TYPE_CHECKING:
    from streamshed.policies import Policy


@dataclass(frozen=True, repr=False)
class Limited(Running):
    """The methods of a join that limit its memory and its work."""

    def keep(
        self,
        *,
        rows: int | Mapping[str, int] | None = None,
        total: int | None = None,
        memory: str | int | None = None,
    ) -> Self:
        """Set the budget: the most rows or bytes that the join may store.

        Args:
            rows: The most rows that the window of each stream may hold, or a mapping from streams
                to such numbers; streams not named are not limited.
            total: Or the most rows that all windows together may hold.
            memory: Or the most bytes that all windows together may take, such as `"500 MB"`: the
                rows, the join's own bytes for each row, and its tables. Policies then rank rows by
                expected results per byte.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100).keep(total=50)
            join('a', 'b').on('k').last(100).keep(total=50)
            >>> join("a", "b").on("k").last(100).keep(memory="1.5 GB")
            join('a', 'b').on('k').last(100).keep(memory='1500 MB')
        """
        names, method = self._spec.names(), ".keep()"
        if sum(said is not None for said in (rows, total, memory)) != 1:
            raise SpecError(
                f"{method}: `rows` is {rows!r}, `total` is {total!r} and `memory` is {memory!r}; "
                "give exactly one of them, as in .keep(rows=1000), .keep(total=5000) or "
                ".keep(memory='500 MB')"
            )
        if rows is not None and names.by is not None:
            raise SpecError(
                f"{method}: `rows` is {rows!r}, but with by={names.by!r} {NO_STREAM_BUDGET}"
            )
        budget = Budget(
            rows=None if rows is None else names.read(rows, method, "budget", _budget),
            total=None if total is None else _budget(total, f"{method}: `total`"),
            memory=None if memory is None else parse_bytes(memory, f"{method}: `memory`"),
        )
        return self._with(budget=budget)

    def shed(
        self, policy: str | Policy | None = None, *, column: str | Mapping[str, str] | None = None
    ) -> Self:
        """Choose the policy that evicts rows when the budget is full; the default is `density`.

        For equalities between pairs of streams the default is `sketch`, and for conditions
        `oldest`, because `density` ranks keys that all streams share, or facts of a relation.

        Args:
            policy: The name of a policy, or an instance from `streamshed.policies`.
            column: Or the column that ranks rows, or a mapping from streams to such columns: the
                row with the lowest value is evicted first.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100).keep(rows=10).shed("existence")
            join('a', 'b').on('k').last(100).keep(rows=10).shed('existence')
            >>> join("a", "b").on("k").last(100).keep(rows=10).shed(column="price")
            join('a', 'b').on('k').last(100).keep(rows=10).shed(column='price')
        """
        # Policies bring their compiler along, which is no part of a quick `import streamshed`.
        from streamshed import policies

        names, method = self._spec.names(), ".shed()"
        if (policy is None) == (column is None):
            raise SpecError(
                f"{method}: the policy is {policy!r} and `column` is {column!r}; give exactly one "
                "of the two, as in .shed('existence') or .shed(column='price')"
            )
        if isinstance(policy, policies.ByColumn):
            column = policy.column if isinstance(policy.column, str) else dict(policy.column)
        if column is not None:
            ranks = names.read(column, method, "ranking column", column_name)
            check_covered(ranks, names.streams, method)
            return self._with(policy=policies.ByColumn(ranks.said()))
        if isinstance(policy, str):
            return self._with(policy=policies.by_name(policy))
        if not isinstance(policy, policies.Policy):
            raise SpecError(
                f"{method}: the policy is {policy!r}; give the name of a policy, or an instance "
                "of one from streamshed.policies"
            )
        return self._with(policy=policy)

    def spill(
        self, *, to: str | os.PathLike[str], deadline: str | timedelta | int | None = None
    ) -> Self:
        """Write rows to disk when the budget is full, instead of shedding them.

        Rows are partitioned by the hash of their key. When the budget of `keep` is full, whole
        partitions go to disk, with the rows of all streams, and are joined later.

        Args:
            to: The folder for the files. Each run creates its own folder there, and removes it at
                the end. On Spark it is on a disk of each executor.
            deadline: The longest delay of a result, in event time; rows on disk that would make
                later results are shed.

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
            raise SpecError(f"{method}: `deadline` is {deadline!r}; it must be greater than 0")
        return self._with(spilled=Spill(str(folder), until))

    def queue(self, *, rows: int, per: Literal["join", "stream"] = "join") -> Self:
        """Let rows that arrive faster than the join processes them wait; use with `throttle`.

        With `throttle(rows_per_second=…)`, the join takes rows from the queue at that rate. With a
        throttle by work, it takes a row when the work for the rows before it is done, and only then
        chooses what to compare the row with.

        Args:
            rows: The most rows that may wait. If there are more, the queue sheds the one that the
                policy ranks lowest, or a random one if the policy is `random` or makes a sample.
            per: `"join"` gives all streams one queue. `"stream"` gives each stream a queue of this
                length, and the streams take turns, which is not the order of time: allow for that
                with `within(…, late=…)`. (With a throttle by work they do not take turns.)

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100).queue(rows=10).throttle(rows_per_second=0.2)
            join('a', 'b').on('k').last(100).queue(rows=10).throttle(rows_per_second=0.2)
        """
        if per not in ("join", "stream"):
            raise SpecError(
                f".queue(): `per` is {per!r}; give 'join' for one queue that all streams share, or"
                " 'stream' for one each"
            )
        return self._with(queue_rows=positive(rows, ".queue(): `rows`"), queue_per=per)

    def throttle(
        self,
        what: Literal["keep up"] | None = None,
        /,
        *,
        comparisons_per_second: float | None = None,
        cpu: float | None = None,
        rows_per_second: float | None = None,
        every: str | timedelta | int = "5 seconds",
        part: str | timedelta | int | None = None,
        boost: float = 1.2,
        sample: float = 0.1,
        buffer: int = 100,
        dropping: bool = False,
        conserve: bool = False,
        rule: Literal["work", "paper"] = "work",
    ) -> Self:
        """Limit the work of a join, or its rows per second; give one of the first four arguments.

        If there is more work than allowed, an arriving row is compared only with the parts of the
        windows that produce the most results (GrubJoin). With `rows_per_second`, other rows wait in
        a `queue`.

        Args:
            what: `"keep up"`, for live data: limits the work so that a batch takes no longer than
                the time in which its rows arrived.
            comparisons_per_second: The most comparisons of rows per second of event time (per unit
                of time, if times are integers); in a join by equal columns, the most rows looked at
                and results made.
            cpu: The share of a core that the join may use; on Spark, that each shard may use.
            rows_per_second: The most rows of all streams together that the join processes per
                second. The arguments below do not apply to it.
            every: How often the join chooses again which parts of the windows to search.
            part: The length of the parts into which windows are cut; a tenth of each window by
                default.
            boost: Maximum growth of the work per adaptation.
            sample: The share of arriving rows from which the join learns where results are found.
            buffer: How many rows of each stream may wait while others are processed; more are
                dropped. With a `queue`, its length applies instead.
            dropping: Drop arriving rows at random instead, at the best rates: the paper's baseline.
            conserve: Also evict stored rows that no arriving row will be compared with.
            rule: How the share of the full work is adapted: `"work"` compares the work done with
                the work allowed, `"paper"` only looks at the rows processed in time (GrubJoin,
                section III-A).

        Example:
            >>> import streamshed as ss
            >>> said = ss.join("a", "b").on(ss.near("heat", 0.5)).within("1 minute", time="ts")
            >>> said.throttle(comparisons_per_second=1e6, part="2 seconds")
            join('a', 'b').on(near('heat', 0.5)).within('1 minute', time='ts')\
.throttle(comparisons_per_second=1000000.0, part='2 seconds')
            >>> ss.join("a", "b").on("k").within("1 minute", time="ts").throttle("keep up")
            join('a', 'b').on('k').within('1 minute', time='ts').throttle('keep up')
            >>> ss.join("a", "b").on("k").last(100).queue(rows=10).throttle(rows_per_second=1000)
            join('a', 'b').on('k').last(100).queue(rows=10).throttle(rows_per_second=1000)
        """
        method = ".throttle()"
        said = (what, comparisons_per_second, cpu, rows_per_second)
        if sum(one is not None for one in said) != 1:
            raise SpecError(
                f"{method}: the first argument is {what!r}, `comparisons_per_second` is "
                f"{comparisons_per_second!r}, `cpu` is {cpu!r} and `rows_per_second` is "
                f"{rows_per_second!r}; give exactly one of them"
            )
        if rows_per_second is not None:
            return self._with(speed=above(rows_per_second, f"{method}: `rows_per_second`", 0))
        if what not in (None, KEEP_UP):
            raise SpecError(
                f"{method}: {what!r} is no throttle; say {KEEP_UP!r}, or name what is bounded, as "
                "in .throttle(comparisons_per_second=1e6) or .throttle(cpu=0.5)"
            )
        if rule not in ("work", "paper"):
            raise SpecError(
                f"{method}: `rule` is {rule!r}; give 'work' to go by the work that was done, or"
                " 'paper' to go by the rows that were processed in time"
            )
        if comparisons_per_second is not None:
            work = f"{method}: `comparisons_per_second`"
            comparisons_per_second = above(comparisons_per_second, work, 0)
        if cpu is not None:
            cpu = fraction(above(cpu, f"{method}: `cpu`", 0), f"{method}: `cpu`")
        throttle = Throttle(
            comparisons=comparisons_per_second,
            cpu=cpu,
            keep_up=what is not None,
            every=durations.parse(every, f"{method}: `every`"),
            boost=above(boost, f"{method}: `boost`", 1),
            part=None if part is None else durations.parse(part, f"{method}: `part`"),
            sample=fraction(sample, f"{method}: `sample`"),
            buffer=positive(buffer, f"{method}: `buffer`"),
            dropping=bool(dropping),
            conserve=bool(conserve),
            rule=rule,
        )
        return self._with(throttled=throttle)

    def estimate(self, *, rate: float | None = None) -> Self:
        """Set how many keys the join samples to estimate the results that shedding costs.

        Args:
            rate: The smallest share of the keys (of the rows, if streams share no key) to sample.
                The join starts with all of them, and continues with those that make the most
                results. With 1, missed results are known exactly; with 0, nothing is estimated. By
                default, as many as fit into about 5 % of the memory of the stored rows, or into a
                few hundred kilobytes.

        Example:
            >>> from streamshed import join
            >>> join("a", "b").on("k").last(100).keep(rows=10).estimate(rate=0.25)
            join('a', 'b').on('k').last(100).keep(rows=10).estimate(rate=0.25)
        """
        if rate is None:
            return self._with(sample_rate=None)
        return self._with(sample_rate=fraction(rate, ".estimate(): `rate`"))

    def _with(self, **changes: Any) -> Self:
        """The same join with some fields of its spec replaced."""
        return replace(self, _spec=replace(self._spec, **changes))


def _budget(said: object, what: str) -> int:
    """Read how many rows may be held."""
    try:
        return positive(said, what)
    except SpecError as error:
        raise SpecError(f"{error}; for no budget leave .keep() out") from None
