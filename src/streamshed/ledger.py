"""The ledger: accounts of every row, and of the results made and missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pyarrow as pa

from streamshed.estimates import Estimate, Share, part_made
from streamshed.sizes import rounded

FATES = ("arrived", "stored", "expired", "shed", "filtered", "late", "queued")
"""What can become of rows, as a printed ledger shows it; `NOT_MATCHED` only if there are any."""
NOT_MATCHED = ("unmatched", "uncertain")
_MOST_SHOWN = 20
"""Lines of streams that a printed ledger has at most."""


MANY_LATE = 10
"""Late rows from which on something is said of them."""
NOT_ESTIMATED = "missed results are not estimated"
_VAGUE = 0.5
"""The width of an interval of the recall from which on it says little."""


@dataclass(frozen=True)
class StreamLedger:
    """The accounts of one stream: where its rows are, and why they were removed.

    Examples:
        >>> StreamLedger(arrived=3, stored=2, shed=1).balanced
        True
    """

    arrived: int = 0
    stored: int = 0
    expired: int = 0
    shed: int = 0
    filtered: int = 0
    late: int = 0
    queued: int = 0
    peak: int = field(default=0, compare=False)
    """The most rows that were stored at once; how many may depend on how the input was cut into
    batches. On Spark the sum over shards."""
    unmatched: int = 0
    """Rows that `unmatched` returned."""
    uncertain: int = 0
    """How many of these might have had a match without shedding."""

    @property
    def settled(self) -> int:
        """Rows that are accounted for."""
        return self.stored + self.expired + self.shed + self.filtered + self.late + self.queued

    @property
    def balanced(self) -> bool:
        """Whether every row that arrived is accounted for."""
        return self.arrived == self.settled


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, whose first column names the rows.

    Examples:
        >>> aligned([["policy", "rows"], ["random", "1,000"]])
        ['policy   rows', 'random  1,000']
    """
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([name.ljust(wide[0]), *map(str.rjust, cells, wide[1:])]) for name, *cells in rows
    ]


class _Others:
    """Stands for the streams that were forgotten; no value of a column equals it."""

    def __repr__(self) -> str:
        return "(forgotten)"


OTHERS = _Others()


@dataclass(frozen=True)
class Spilled:
    """What a join has spilled to disk; times are in the units of the time column."""

    rows: int = 0
    """Rows on disk now; the ledger counts them as stored."""
    nbytes: int = 0
    """Bytes on disk now."""
    most_bytes: int = 0
    """The most bytes that were on disk at once."""
    written: int = 0
    """Bytes written so far."""
    flushed: int = 0
    """How many times a partition was written to disk."""
    revisited: int = 0
    """How many times a partition was read again and joined."""
    results: int = 0
    """Results made from disk, with a delay."""
    delay: float = 0.0
    """The mean delay of these results."""
    longest_delay: int = 0
    overtaken: int = 0
    """Results, of all, that were emitted after one of a later time."""


@dataclass(frozen=True)
class Keys:
    """How many distinct keys have a result: in the join as it is, and without shedding."""

    made: Estimate
    exact: Estimate

    def __str__(self) -> str:
        return f"{self.made} of {self.exact} keys made a result"


@dataclass(frozen=True)
class Ledger:
    """The accounts of a join: of every row, and of the results made and missed.

    Examples:
        >>> missed = Estimate(1.0, 0.0, 4.0)
        >>> ledger = Ledger({"a": StreamLedger(arrived=3, stored=2, shed=1)}, 3, missed=missed)
        >>> ledger.streams["a"].stored, ledger.balanced
        (2, True)
        >>> print(ledger.recall)
        75.0 % (42.9 to 100.0)
        >>> ledger.to_table().column_names[:3]
        ['stream', 'arrived', 'stored']
    """

    streams: Mapping[Any, StreamLedger]
    results: int
    others: StreamLedger = StreamLedger()
    """With `join(by=…)`: the accounts of streams that have no row left."""
    state_bytes: int = 0
    """Bytes of the join's state beyond the users' rows."""
    payload_bytes: int = 0
    """Bytes of the users' rows that are stored."""
    held_bytes: int = 0
    """Bytes that count against `keep(memory=…)` now: rows, bytes of the join for each, tables."""
    peak_bytes: int = 0
    """The largest value of `held_bytes` so far; the sum over shards."""
    missed: Estimate | None = None
    """The results missed so far because of shedding; None if they are not estimated."""
    missed_lately: Estimate | None = None
    """Those of the last minute, or of the last window if times are integers."""
    keys: Keys | None = None
    """How many keys made a result, and how many would have; None if not estimated."""
    sample_rate: float = 0.0
    """The smallest share of the keys that is in the sample of the estimate."""
    sample_bytes: int = 0
    """Bytes of the sample, and of its counters."""
    shed_by: Mapping[str, int] = field(default_factory=dict)
    """Rows shed by the policy, and by the throttle or the deadline where there is one."""
    importance: float | None = None
    """The sum of the importance of all results; None without `weigh`."""
    relation_bytes: int = 0
    """Bytes of the relation through which streams are joined: its rows and its index."""
    comparisons: int | None = None
    """In joins by a condition between two rows, the comparisons of rows; in other joins with a
    throttle, the rows looked up and looked at, and the results."""
    throttle: float | None = None
    """With a throttle: the share of the full work that the join does at present."""
    capacity: float | None = None
    """With a throttle: the comparisons per second that it allows at present; None if not known
    yet."""
    harvest: float | None = None
    """With a throttle: the share of a window that an arriving row is compared with at present, the
    mean over pairs of streams."""

    spilled: Spilled | None = None
    """With `spill`: what is on disk, and the results from it."""

    @property
    def recall(self) -> Share | None:
        """The share of the exact results that was made; None if missed ones are not estimated."""
        return None if self.missed is None else part_made(self.results, self.missed)

    @property
    def balanced(self) -> bool:
        """Whether every row of every stream is accounted for."""
        return all(stream.balanced for stream in self.accounts.values())

    @property
    def accounts(self) -> Mapping[Any, StreamLedger]:
        """The accounts of all streams, and of the others if any were forgotten."""
        return {**self.streams, OTHERS: self.others} if self.others.arrived else self.streams

    def to_table(self) -> pa.Table:
        """One row for each stream, and one without a name for those that were forgotten."""
        names = pa.array([None if name is OTHERS else name for name in self.accounts])
        counts = {
            part.name: pa.array(
                [getattr(stream, part.name) for stream in self.accounts.values()], pa.int64()
            )
            for part in fields(StreamLedger)
        }
        return pa.table({"stream": names, **counts})

    def to_dict(self) -> dict[str, Any]:
        """The ledger as plain values, with recall, for JSON.

        Examples:
            >>> said = Ledger({"a": StreamLedger(arrived=1, stored=1)}, results=0).to_dict()
            >>> said["streams"]["a"]["stored"]
            1
        """
        plain = asdict(self)
        plain["streams"] = {str(name): counts for name, counts in plain["streams"].items()}
        return {**plain, "recall": None if self.recall is None else asdict(self.recall)}

    def __str__(self) -> str:
        shown = self._shown()
        heads = ["stream", *FATES]
        heads += [name for name in NOT_MATCHED if any(getattr(s, name) for _, s in shown)]
        rows = [
            [name, *(f"{getattr(stream, head):,}" for head in heads[1:])] for name, stream in shown
        ]
        return "\n".join([*aligned([heads, *rows]), *self._summary()])

    def _shown(self) -> list[tuple[str, StreamLedger]]:
        """The streams to print: all of them, or of very many those with the most rows."""
        if len(self.accounts) <= _MOST_SHOWN:
            return [(str(name), stream) for name, stream in self.accounts.items()]
        ranked = sorted(self.accounts.items(), key=lambda item: -item[1].arrived)
        most, rest = ranked[: _MOST_SHOWN - 1], ranked[_MOST_SHOWN - 1 :]
        others = StreamLedger(
            *(
                sum(getattr(stream, part.name) for _, stream in rest)
                for part in fields(StreamLedger)
            )
        )
        return [*((str(name), stream) for name, stream in most), (f"{len(rest):,} others", others)]

    def _summary(self) -> list[str]:
        """What was made, what was missed and what it cost, line by line."""
        lines = [f"{self.results:,} results"]
        if self.importance is not None:
            lines[0] += f" of importance {self.importance:,.6g}"
        if self.missed is not None and self.missed.high > 0:
            lines.append(f"recall {self.recall}: an estimated {self.missed} results missed")
            if self.recall is not None and self.recall.high - self.recall.low > _VAGUE:
                lines.append("the sample is too small to say more: see .estimate(rate=…)")
        elif self.missed is None and any(stream.shed for stream in self.accounts.values()):
            lines.append(NOT_ESTIMATED)
        if self.missed_lately is not None and self.missed_lately.high > 0:
            lines.append(f"lately {self.missed_lately} results missed")
        if self.keys is not None and self.keys.made != self.keys.exact:
            lines.append(str(self.keys))
        if len(self.shed_by) > 1:
            by = ", ".join(f"{rows:,} by {policy}" for policy, rows in self.shed_by.items())
            lines.append(f"rows shed: {by}")
        if (late := sum(stream.late for stream in self.accounts.values())) >= MANY_LATE:
            lines.append(f"{late:,} rows came too late: allow for it, as in .within(…, late=…)")
        if self.peak_bytes:
            held, peak = rounded(self.held_bytes), rounded(self.peak_bytes)
            lines.append(f"{held} held, {peak} at most")
        if self.throttle is not None:
            at = ""
            if self.capacity is not None:
                at = f", at {self.capacity:,.0f} comparisons a second"
            lines.append(f"throttled to {100 * self.throttle:.1f} % of the work{at}")
            if self.harvest is not None and self.harvest < 1:
                lines.append(f"rows go through {100 * self.harvest:.1f} % of the windows")
        if self.spilled is not None:
            made, written = self.spilled.results, self.spilled.written
            lines.append(f"{made:,} results made from disk, {written:,} bytes written to it")
        return lines
