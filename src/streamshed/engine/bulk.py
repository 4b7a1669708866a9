"""The exact join of rows that are all at hand, in the order of time: in parts, on all cores.

Where nothing is shed and no row comes late, what the loop removes row by row need not be removed:
it is too old to be met. So a batch is split by the hash of its keys into parts whose tables fit the
cache of a core, and each part is joined by itself: for every key the newest row of each stream is
known, and each row knows the one before it. Results go to the places that they have in the order of
arrival, whatever the parts; what the loop would have counted is counted by the clock alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import NO_FLAGS, Batch
from streamshed.engine.clock import advance_stream, trusted_time
from streamshed.engine.ingest import InputRows, merged
from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import (
    ARRIVALS,
    ARRIVED,
    CLOCK,
    EXPIRED,
    FATES,
    FILTERED,
    NEVER,
    PEAK,
    RESULTS,
    STORED,
)

if TYPE_CHECKING:
    from streamshed.engine.operator import Block, Operator
    from streamshed.plan.plan import Plan

PART = 1 << 16
"""Rows of a part: the table of its keys fits the second-level cache of a core."""
MOST_BITS = 5
"""There are at most so many parts, as a power of two: to write to more of them at a time takes five
times as long, since a core knows the addresses of so many pages at once."""
AT_ONCE = 1 << 22
"""Rows that are joined at once, unless the windows hold more."""
FEW = 1 << 16
"""Up to so many rows threads cost more than they save."""
BLOCK = 1 << 16
"""Results that are handed out at once."""

PART_KEY = np.dtype([("hash", np.uint64), ("time", np.int64)], align=True)
PART_ROW = np.dtype([("payload", np.int64), ("rank", np.int32), ("stream", np.int32)], align=True)
"""A row of a part, in two arrays; `rank` is its place in the order of arrival. (As one array it
would be among those that the system takes back, page by page, whenever they are freed.)"""

_FEW_STREAMS = 4

ENTERED, GONE, MOST = range(3)
"""What is counted of a stream: rows that were stored, those that expired, and the most at once."""

_NOBODY = np.uint64(0)


class Windows(NamedTuple):
    """The windows of the streams: their lengths, each once, and which of them a stream has."""

    lengths: npt.NDArray[np.int64]
    of: npt.NDArray[np.int64]


class Probed(NamedTuple):
    """What the first pass finds, by places in the parts."""

    before: npt.NDArray[np.int32]  # the row before each of its key and stream, plus 1
    newcomer: npt.NDArray[np.int32]  # the rows that complete results, in their order
    heads: npt.NDArray[np.int32]  # for each of these the newest partner of each stream, plus 1
    made: npt.NDArray[np.int64]  # by rank: how many results the row completes; then, up to it


class Table(NamedTuple):
    """The keys of the part at hand; open addressing."""

    tags: npt.NDArray[np.uint64]  # the hash without the bits that all of the part share; 0: nobody
    heads: npt.NDArray[np.int32]  # by (place, stream): its newest row in the part, plus 1
    first: npt.NDArray[np.int64]  # by window: the oldest row within it


class Emitted(NamedTuple):
    """Where a block of results goes."""

    ends: npt.NDArray[np.int64]  # by rank: the results up to and with those of the row
    before: int  # the results of earlier blocks
    time: npt.NDArray[np.int64]
    members: npt.NDArray[np.int64]


def joins_at_once(plan: Plan) -> bool:
    """Whether a join can be done in bulk: exact, complete, by equal values, in time windows."""
    restricted = plan.bounded or plan.bounds or plan.unmatched or plan.first or plan.at_least
    gated = plan.spill or plan.throttle or plan.queue or plan.weighed
    timed = all(stream.time is not None and stream.last is None for stream in plan.streams)
    named = plan.by is None and len(plan.streams) > 1
    equal = plan.through is None and plan.pairwise is None and is_connected(plan)
    return not restricted and not gated and timed and named and equal


def is_connected(plan: Plan) -> bool:
    """Whether each stream shares an attribute with another one, and so on to all of them."""
    if not plan.graph:
        return True
    reached = {*plan.streams[0].attributes}
    for _ in plan.streams:
        for stream in plan.streams:
            if reached & {*stream.attributes}:
                reached |= {*stream.attributes}
    return all(reached & {*stream.attributes} for stream in plan.streams)


def cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Bulk:
    """Joins rows in the order of time, many at once.

    Args:
        operator: the join, whose clock and accounts are kept.
        threads: how many threads work; by default one for each core.
        part: the rows of a part.
        at_once: rows that are joined at once at least.
    """

    def __init__(
        self, operator: Operator, threads: int = 0, part: int = PART, at_once: int = AT_ONCE
    ) -> None:
        self.operator = operator
        self.threads, self.part, self.at_once = threads or cores(), part, at_once
        self.pool: ThreadPoolExecutor | None = None
        lengths, of = np.unique(operator.core.lanes["window"], return_inverse=True)
        self.windows = Windows(lengths, of.astype(np.int64))
        self.expired = np.zeros(lengths.size, np.int64)
        self.tally = np.zeros((len(operator.plan.streams), 3), np.int64)
        self.carried = operator.ingest.empty_batch()
        self.pending: list[Batch] = []
        self.bytes_used = 0

    def process(self, batch: Batch) -> Iterator[Block]:
        """Take rows; the results of those that have waited come once there are many."""
        self.pending.append(self._without_nulls(batch))
        waiting = sum(part.time.size for part in self.pending)
        if waiting >= max(self.at_once, self.carried.time.size):
            yield from self.flush()

    def finish(self) -> Iterator[Block]:
        """Join the rows that still wait; no more will come."""
        yield from self.flush()

    def close(self) -> None:
        """Let the threads end."""
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Do some work on each item, on all threads; the outcomes are in the items' order."""
        if len(items) < 2 or self.pool is None:
            return [work(item) for item in items]
        return [*self.pool.map(work, items)]

    def merge(self, parts: Sequence[InputRows]) -> Batch:
        """One batch of several inputs' rows; on several threads, each merges a span of time."""
        return merged(parts, self.threads if self.pool is not None else 1, self.map)

    def begin(self, rows: int) -> None:
        """Start threads if there are rows for them."""
        if rows > FEW and self.pool is None and self.threads > 1:
            self.pool = ThreadPoolExecutor(self.threads)

    def _without_nulls(self, batch: Batch) -> Batch:
        """The rows that can take part in the join; the others are filtered, and counted here."""
        if not batch.null.size or not batch.null.any():
            return batch._replace(null=NO_FLAGS)
        core, streams = self.operator.core, batch.stream[batch.null]
        found = np.bincount(streams, minlength=len(self.operator.plan.streams))
        counts = core.counts.reshape(-1, FATES)
        counts[:, ARRIVED] += found
        counts[:, FILTERED] += found
        core.numbers[ARRIVALS] += len(streams)
        known = batch._replace(null=NO_FLAGS)
        return Batch._make(column[~batch.null] if column.size else column for column in known)

    def flush(self) -> Iterator[Block]:
        """Join the rows that wait with each other, and with those of before that can be met."""
        parts = [self.carried, *self.pending]
        known, self.pending = self.carried.time.size, []
        rows = parts[-1]
        if len(parts) > 2 or known:
            rows = Batch._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
        self.begin(rows.time.size)
        prepared = self._prepare(rows)
        # The clock goes by one row after the other; beside it the parts are joined.
        clock = self._start(
            count_rows,
            self.operator.core,
            rows,
            known,
            self.windows,
            self.expired,
            self.tally,
        )
        yield from self._results(rows, known, prepared)
        clock()
        self._write_accounts(rows.time.size - known)
        self._carry(rows)

    def _write_accounts(self, arrived: int) -> None:
        """Write into the accounts of the join what was counted."""
        core, tally = self.operator.core, self.tally
        counts = core.counts.reshape(-1, FATES)
        core.numbers[ARRIVALS] += arrived
        counts[:, STORED] = tally[:, ENTERED] - tally[:, GONE]
        counts[:, EXPIRED] = tally[:, GONE]
        counts[:, PEAK] = tally[:, MOST]
        counts[:, ARRIVED] = tally[:, ENTERED] + counts[:, FILTERED]

    def _prepare(self, rows: Batch) -> Any:
        """What can be done before rows are joined."""
        return self._split(rows)

    def _results(self, rows: Batch, known: int, prepared: Any) -> Iterator[Block]:
        """The results of rows that begin with those that are known."""
        split: _Split = prepared
        probed = self._probe(rows, known, split)
        ends = np.cumsum(probed.made, out=probed.made)
        self.operator.core.numbers[RESULTS] += int(ends[-1]) if ends.size else 0
        if not self.operator.counting:
            yield from self._blocks(probed, split, ends)

    def _start(self, work: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        """Let some work begin beside what follows; returns what waits for it."""
        if self.pool is None:
            work(*arguments)
            return lambda: None
        return self.pool.submit(work, *arguments).result

    def _carry(self, rows: Batch) -> None:
        """Keep the rows that those to come may meet."""
        first = int(self.expired.min())
        self.carried = rows.part(first, rows.time.size)
        self.expired -= first

    def _probe(self, rows: Batch, known: int, split: _Split) -> Probed:
        size, lanes = rows.time.size, len(self.operator.plan.streams)
        probed = Probed(
            np.empty(size, np.int32),
            np.empty(size, np.int32),
            np.empty(size * lanes, np.int32),
            np.zeros(size, np.int64),
        )
        room = 1 << int(1.5 * max(np.diff(split.starts), default=0) + 1).bit_length()
        parts = iter(range(len(split.starts) - 1))

        def work(_: int) -> int:
            table = Table(
                np.empty(room, np.uint64),
                np.empty(room * lanes, np.int32),
                np.empty(self.windows.lengths.size, np.int64),
            )
            for part in parts:  # whoever is done takes the next: the parts' sizes differ
                start, end = split.starts[part], split.starts[part + 1]
                split.productive[part] = probe_part(
                    split.keys,
                    split.rows,
                    start,
                    end,
                    split.bits,
                    known,
                    self.windows,
                    table,
                    probed,
                )
            return table.tags.nbytes + table.heads.nbytes

        tables = self.map(work, range(self.threads if self.pool is not None else 1))
        used = (*probed, split.keys, split.rows, *rows)
        self.bytes_used = sum(tables) + sum(array.nbytes for array in used)
        return probed

    def _split(self, rows: Batch) -> _Split:
        """Put the rows into parts by the top bits of their hashes; in a part they keep order."""
        size = rows.time.size
        bits = min(MOST_BITS, max(1, (size // self.part).bit_length()))
        cuts = np.linspace(0, size, (self.threads if self.pool is not None else 1) + 1).astype(int)
        ranges = [*zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)]
        counts = np.zeros((len(ranges), 1 << bits), np.int64)

        def count(i: int) -> None:
            start, end = ranges[i]
            count_parts(rows.hash, start, end, bits, counts[i])

        self.map(count, range(len(ranges)))
        # The rows of a part stand by range, so that the ranges can be put there side by side.
        places = np.concatenate([[0], np.cumsum(counts.T.ravel())])
        begins = places[:-1].reshape(1 << bits, -1).T.copy()
        keys, ordered = np.empty(size, PART_KEY), np.empty(size, PART_ROW)

        def put(i: int) -> None:
            start, end = ranges[i]
            put_in_parts(rows, start, end, bits, begins[i], keys, ordered)

        self.map(put, range(len(ranges)))
        starts = places[:: len(ranges)].tolist()
        return _Split(keys, ordered, bits, starts, [0] * (1 << bits))

    def _blocks(
        self, probed: Probed, split: _Split, ends: npt.NDArray[np.int64]
    ) -> Iterator[Block]:
        """The results in the order of arrival, a block of them after the other."""
        from streamshed.engine.operator import Block

        lanes, parts = len(self.operator.plan.streams), range(len(split.productive))
        done = [0 for _ in parts]
        choices = [np.zeros(lanes + 1, np.int64) for _ in parts]
        total = int(ends[-1]) if ends.size else 0
        for made in range(0, total, BLOCK * self.threads):
            size = min(BLOCK * self.threads, total - made)
            out = Emitted(ends, made, np.empty(size, np.int64), np.empty(size * lanes, np.int64))

            def emit(part: int, out: Emitted = out) -> None:
                if done[part] < split.productive[part]:
                    done[part] = emit_part(
                        split.keys,
                        split.rows,
                        split.starts[part],
                        done[part],
                        split.productive[part],
                        self.windows,
                        probed,
                        out,
                        choices[part],
                    )

            self.map(emit, parts)
            for first in range(0, size, BLOCK):
                last = min(first + BLOCK, size)
                yield Block(
                    out.time[first:last],
                    out.members[first * lanes : last * lanes],
                    np.arange(1, last - first + 1) * lanes,
                    self.operator.payload,
                )


class _Split(NamedTuple):
    """Rows in parts."""

    keys: npt.NDArray[Any]
    rows: npt.NDArray[Any]
    bits: int
    starts: list[int]
    productive: list[int]
    """For each part how many of its rows complete results."""


@loop
def count_parts(hashed, start, end, bits, counts):  # type: ignore[no-untyped-def]
    """Count the rows of each part."""
    shift = np.uint64(64 - bits)
    for i in range(start, end):
        counts[np.int64(hashed[i] >> shift)] += 1


@loop
def put_in_parts(batch, start, end, bits, begins, keys, rows):  # type: ignore[no-untyped-def]
    """Put rows into their parts, from where each part begins."""
    shift = np.uint64(64 - bits)
    for i in range(start, end):
        part = np.int64(batch.hash[i] >> shift)
        place = begins[part]
        begins[part] = place + 1
        keys[place].hash = batch.hash[i]
        keys[place].time = batch.time[i]
        rows[place].payload = batch.payload[i]
        rows[place].rank = i
        rows[place].stream = batch.stream[i]


@loop
def probe_part(keys, rows, start, end, bits, known, windows, table, probed):  # type: ignore[no-untyped-def]
    """Count the results that each row of a part completes, and note the partners it begins with.

    Args:
        keys: of the rows of all parts, and their times.
        rows: what else there is of them.
        start: where the part begins.
        end: where it ends.
        bits: of the hash, which all rows of the part have in common.
        known: rows of a lower rank were joined before, and are only met.
        windows: of the streams.
        table: room for the keys.
        probed: what is found; rows of the part are numbered from `start`.

    Returns:
        How many rows complete results.
    """
    lanes = windows.of.size
    table.tags[:] = _NOBODY
    table.heads[:] = 0
    last = table.tags.size - 1
    shift = np.uint64(64)
    room = table.tags.size
    while room > 1:
        room >>= 1
        shift -= np.uint64(1)
    used_bits, one = np.uint64(bits), np.uint64(1)
    # Rows are in the order of time: those in a window are those from some place on.
    first = table.first
    first[:] = 0
    found = 0
    for i in range(end - start):
        key, row = keys[start + i], rows[start + i]
        tag = (key.hash << used_bits) | one
        place = np.int64(tag >> shift)
        while table.tags[place] != _NOBODY and table.tags[place] != tag:
            place = (place + 1) & last
        table.tags[place] = tag
        for window in range(windows.lengths.size):
            oldest = key.time - windows.lengths[window]
            while keys[start + first[window]].time < oldest:
                first[window] += 1
        own = place * lanes + row.stream
        if row.rank >= known and _has_partners(table, place, row.stream, windows):
            number = np.int64(1)
            for lane in range(lanes):
                head = table.heads[place * lanes + lane]
                probed.heads[(start + found) * lanes + lane] = head
                if lane != row.stream:
                    oldest = first[windows.of[lane]]
                    fitting = 0
                    while head > oldest:
                        fitting += 1
                        head = probed.before[start + head - 1]
                    number *= fitting
            probed.made[row.rank] = number
            probed.newcomer[start + found] = i
            found += 1
        probed.before[start + i] = table.heads[own]
        table.heads[own] = i + 1
    return found


@kernel
def _has_partners(table, place, stream, windows):  # type: ignore[no-untyped-def]
    """Whether every other stream has a row of a key that is within its window."""
    lanes = windows.of.size
    if lanes > _FEW_STREAMS:
        for lane in range(lanes):
            if (
                lane != stream
                and table.heads[place * lanes + lane] <= table.first[windows.of[lane]]
            ):
                return False
        return True
    # Without a branch for each: whether a stream has the key cannot be foretold.
    present = np.int64(0)
    for lane in range(lanes):
        newer = table.heads[place * lanes + lane] > table.first[windows.of[lane]]
        present += np.int64(newer | (lane == stream))
    return present == lanes


@loop
def emit_part(keys, rows, start, done, found, windows, probed, out, choice):  # type: ignore[no-untyped-def]
    """Write the results of a part's newcomers that belong to a block, each to its place.

    Args:
        keys: of the rows of all parts, and their times.
        rows: what else there is of them.
        start: where the part begins.
        done: how many of its newcomers are done.
        found: how many there are.
        windows: of the streams.
        probed: what the first pass has found.
        out: the block.
        choice: the next partner of each stream, and whether the block ended within a newcomer.

    Returns:
        How many newcomers are done now.
    """
    lanes = windows.of.size
    while done < found:
        own = start + probed.newcomer[start + done]
        stream, rank, time = rows[own].stream, rows[own].rank, keys[own].time
        heads = (start + done) * lanes
        result = np.int64(0)
        if choice[lanes] == 0:
            result = (out.ends[rank - 1] if rank > 0 else 0) - out.before
            if result >= out.time.size:
                break
            for lane in range(lanes):
                choice[lane] = probed.heads[heads + lane] - 1
            choice[stream] = own - start
        choice[lanes] = 0
        lane = lanes
        while lane >= 0:
            if result == out.time.size:
                choice[lanes] = 1
                return done
            out.time[result] = time
            for member in range(lanes):
                out.members[result * lanes + member] = rows[start + choice[member]].payload
            result += 1
            # The next choice: of the last stream that has an older partner, newest first.
            lane = lanes - 1
            while lane >= 0:
                if lane != stream:
                    older = np.int64(probed.before[start + choice[lane]]) - 1
                    oldest = time - windows.lengths[windows.of[lane]]
                    if older >= 0 and keys[start + older].time >= oldest:
                        choice[lane] = older
                        break
                    choice[lane] = probed.heads[heads + lane] - 1
                lane -= 1
        done += 1
    return done


@loop
def count_rows(core, batch, known, windows, expired, tally):  # type: ignore[no-untyped-def]
    """Let the clock go on with the rows of a batch, and count what becomes of them.

    Args:
        core: the state of the join, of which only the clock is used.
        batch: rows in the order of time.
        known: so many of them were counted before.
        windows: of the streams.
        expired: for each window up to where the rows of its streams have expired.
        tally: by stream and `ENTERED`, `GONE` and `MOST`, what became of rows.
    """
    clock = core.numbers[CLOCK]
    for i in range(known, batch.time.size):
        stream = np.int64(batch.stream[i])
        advance_stream(core, stream, trusted_time(core, stream, batch.time[i]))
        if core.numbers[CLOCK] != clock:
            _expire(core, batch, i, windows, windows.of[stream], expired, tally)
            # The other windows' rows are counted when a row of theirs comes.
            clock = core.numbers[CLOCK] if windows.lengths.size == 1 else clock
        tally[stream, ENTERED] += 1
        tally[stream, MOST] = max(tally[stream, MOST], tally[stream, ENTERED] - tally[stream, GONE])
    for window in range(windows.lengths.size):
        _expire(core, batch, batch.time.size, windows, window, expired, tally)


@kernel
def _expire(core, batch, end, windows, window, expired, tally):  # type: ignore[no-untyped-def]
    """Count the rows of a window's streams that the clock has left behind."""
    clock = core.numbers[CLOCK]
    if clock == NEVER:
        return
    oldest = clock - windows.lengths[window] - core.settings.late
    i = expired[window]
    while i < end and batch.time[i] < oldest:
        stream = np.int64(batch.stream[i])
        if windows.of[stream] == window:
            tally[stream, GONE] += 1
        i += 1
    expired[window] = i
