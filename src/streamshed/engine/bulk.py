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
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.engine.batch import NO_FLAGS, Batch
from streamshed.engine.clock import advance_stream, trusted_time
from streamshed.engine.ingest import InputRows, cut_in_time, runs_of
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
from streamshed.kernels.intrinsics import int_at, long_at, prefetch
from streamshed.kernels.merge import (
    HASH,
    PAYLOAD,
    STREAM,
    TIME,
    begin_race,
    find_order,
    race_of,
    take_row,
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

KEY_HEADS = 4
"""A key is a few 32-bit words side by side: its hash (two words), the bit vector of the streams
that have it (two words), and from here on the newest row of each of them in the part, plus 1."""
AHEAD, NEARER = 12, 6
"""So many rows before one is looked up its place in the directory is asked for; then its key."""
_FEW_STREAMS = 4

ENTERED, GONE, MOST = range(3)
"""What is counted of a stream: rows that were stored, those that expired, and the most at once."""

_NOBODY, _ONE = np.uint64(0), np.uint64(1)
_UPPER, _LOWER = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)

Group = Sequence[InputRows | Batch]
"""Runs of rows, each in the order of time, that are merged with each other."""


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
    """The keys of the part at hand: a directory, open addressing, and what is known of each."""

    directory: npt.NDArray[np.uint64]  # upper half of the hash, number of the key plus 1
    hashes: npt.NDArray[np.uint64]  # a key's words, see KEY_HEADS, two at a time
    words: npt.NDArray[np.int32]  # the same, one at a time
    key_words: int
    first: npt.NDArray[np.int64]  # by window: the oldest row within it
    used: npt.NDArray[np.int64]  # how many keys there are


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
        self.carried: list[Group] = []
        self.pending: list[Group] = []
        self.bytes_used = 0

    def process(self, rows: Batch | Sequence[InputRows]) -> Iterator[Block]:
        """Take rows; the results of those that have waited come once there are many.

        Args:
            rows: in one order, or those of several inputs, which are merged here.
        """
        runs = [rows] if isinstance(rows, Batch) else rows
        self.pending.append([*filter(_has_rows, map(self._without_nulls, runs))])
        if _rows_of(self.pending) >= max(self.at_once, _rows_of(self.carried)):
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

    @property
    def workers(self) -> int:
        """How many threads there are at present."""
        return 1 if self.pool is None else self.threads

    def begin(self, rows: int) -> None:
        """Start threads if there are rows for them."""
        if rows > FEW and self.pool is None and self.threads > 1:
            self.pool = ThreadPoolExecutor(self.threads)

    def _without_nulls(self, rows: InputRows | Batch) -> InputRows | Batch:
        """The rows that can take part in the join; the others are filtered, and counted here."""
        if not rows.null.size or not rows.null.any():
            return rows._replace(null=NO_FLAGS)
        core, streams = self.operator.core, rows.stream[rows.null]
        found = np.bincount(streams, minlength=len(self.operator.plan.streams))
        counts = core.counts.reshape(-1, FATES)
        counts[:, ARRIVED] += found
        counts[:, FILTERED] += found
        core.numbers[ARRIVALS] += len(streams)
        return _of_each(rows._replace(null=NO_FLAGS), ~rows.null)

    def flush(self) -> Iterator[Block]:
        """Join the rows that wait with each other, and with those of before that can be met."""
        groups, known = [*self.carried, *self.pending], _rows_of(self.carried)
        self.pending = []
        self.begin(_rows_of(groups))
        rows = self._arrange(groups)
        # The clock goes by one row after the other; beside it the parts are joined.
        clock = self._start(
            count_rows,
            self.operator.core,
            rows.time,
            rows.stream,
            known,
            self.windows,
            self.expired,
            self.tally,
        )
        yield from self._results(rows, known)
        clock()
        self._write_accounts(rows.time.size - known)
        self._carry(groups, rows.time)

    def _write_accounts(self, arrived: int) -> None:
        """Write into the accounts of the join what was counted."""
        core, tally = self.operator.core, self.tally
        counts = core.counts.reshape(-1, FATES)
        core.numbers[ARRIVALS] += arrived
        counts[:, STORED] = tally[:, ENTERED] - tally[:, GONE]
        counts[:, EXPIRED] = tally[:, GONE]
        counts[:, PEAK] = tally[:, MOST]
        counts[:, ARRIVED] = tally[:, ENTERED] + counts[:, FILTERED]

    def _arrange(self, groups: list[Group]) -> Any:
        """The rows of all groups, one after the other, as they are joined."""
        return self._split(groups)

    def _results(self, rows: Any, known: int) -> Iterator[Block]:
        """The results of rows that begin with those that are known."""
        split: Split = rows
        probed = self._probe(known, split)
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

    def _carry(self, groups: list[Group], time: npt.NDArray[np.int64]) -> None:
        """Keep the rows that those to come may meet."""
        first = int(self.expired.min())
        self.expired -= first
        self.carried = []
        if first < time.size:
            kept = [[_since(run, time[first]) for run in group] for group in groups]
            self.carried = [group for runs in kept if (group := [*filter(_has_rows, runs)])]

    def _probe(self, known: int, split: Split) -> Probed:
        size, lanes = split.time.size, len(self.operator.plan.streams)
        probed = Probed(
            np.empty(size, np.int32),
            np.empty(size, np.int32),
            np.empty(size * lanes, np.int32),
            np.zeros(size, np.int64),
        )
        most, size_of_key = int(max(np.diff(split.starts), default=0)), key_words(lanes)
        parts = iter(range(len(split.starts) - 1))

        def work(_: int) -> int:
            words = np.empty((most + 1) * size_of_key, np.int32)
            whole = directory = np.empty(_places(most), np.uint64)
            first, used = np.empty(self.windows.lengths.size, np.int64), np.zeros(1, np.int64)
            for part in parts:  # whoever is done takes the next: the parts' sizes differ
                start, end = split.starts[part], split.starts[part + 1]
                for places in (directory, whole):
                    table = Table(places, words.view(np.uint64), words, size_of_key, first, used)
                    found = probe_part(
                        split.keys, split.rows, start, end, known, self.windows, table, probed
                    )
                    if found >= 0:
                        break
                split.productive[part] = found
                # Parts are alike: the next has about as many keys, and a small directory is faster.
                directory = whole[: min(whole.size, _places(2 * int(used[0])))]
            return words.nbytes + whole.nbytes

        tables = self.map(work, range(self.workers))
        arrays = (*probed, split.keys, split.rows, split.time, split.stream)
        self.bytes_used = sum(tables) + sum(array.nbytes for array in arrays)
        return probed

    def _split(self, groups: list[Group]) -> Split:
        """Put the rows into parts by the top bits of their hashes; in a part they keep order."""
        size = _rows_of(groups)
        bits = min(MOST_BITS, max(1, (size // self.part).bit_length()))
        spans = [*self._spans(groups)]
        by_turns = np.zeros((len(spans), 2, 1 << bits), np.int64)

        def count(i: int) -> None:
            runs, starts, ends = spans[i]
            for run, start, end in zip(runs, starts, ends, strict=True):
                count_parts(run.hash[start:end], bits, by_turns[i])

        self.map(count, range(len(spans)))
        counts = by_turns.sum(axis=1)
        # The rows of a part stand by span, so that the spans can be put there side by side.
        places = np.concatenate([[0], np.cumsum(counts.T.ravel())])
        begins = places[:-1].reshape(1 << bits, -1).T.copy()
        ranks = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
        time, stream = np.empty(size, np.int64), np.empty(size, np.uint8)
        keys, ordered = np.empty(size, PART_KEY), np.empty(size, PART_ROW)

        def put(i: int) -> None:
            runs, starts, ends = spans[i]
            span = runs_of(runs, starts, ends, "time")
            race = race_of(len(runs))
            put_in_parts(span, race, ranks[i], bits, begins[i], time, stream, keys, ordered)

        self.map(put, range(len(spans)))
        starts = places[:: len(spans)].tolist() if spans else [0] * (len(places) + 1)
        return Split(time, stream, keys, ordered, starts, [0] * (1 << bits))

    def _spans(self, groups: list[Group]) -> Iterator[Span]:
        """Each group in spans of time, so that there is work for all threads."""
        for group in groups:
            if group:
                spans = self.workers if _rows_of([group]) > FEW else 1
                cuts = cut_in_time([run.time for run in group], spans)
                yield from ((group, *edges) for edges in pairwise(cuts))

    def _blocks(self, probed: Probed, split: Split, ends: npt.NDArray[np.int64]) -> Iterator[Block]:
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


class Split(NamedTuple):
    """Rows in parts; `time` and `stream` are by rank."""

    time: npt.NDArray[np.int64]
    stream: npt.NDArray[np.uint8]
    keys: npt.NDArray[Any]
    rows: npt.NDArray[Any]
    starts: list[int]
    productive: list[int]
    """For each part how many of its rows complete results."""


Span = tuple[Group, npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Runs, and where a span of time begins and ends in each."""


def _has_rows(run: InputRows | Batch) -> bool:
    return run.time.size > 0


def _rows_of(groups: Sequence[Group]) -> int:
    return sum(run.time.size for group in groups for run in group)


def _since(run: InputRows | Batch, time: int) -> InputRows | Batch:
    """The rows of a run that are not older than a time."""
    return _of_each(run, slice(int(np.searchsorted(run.time, time)), None))


def _of_each(run: InputRows | Batch, rows: Any) -> InputRows | Batch:
    """Some rows of all columns."""
    columns = (column[rows] if column.size else column for column in run)
    return InputRows._make(columns) if isinstance(run, InputRows) else Batch._make(columns)


def _places(keys: int) -> int:
    """The size of a directory for so many keys: a power of two, at most two thirds full."""
    return 1 << int(1.5 * keys + 1).bit_length()


def key_words(lanes: int) -> int:
    """The words of a key; those of few streams do not reach into another line of the cache."""
    words = KEY_HEADS + lanes
    return max(8, words + words % 2)


@loop
def count_parts(hashed, bits, counts):  # type: ignore[no-untyped-def]
    """Count the rows of each part, in two rows of counts by turns: one waits for the other."""
    shift = np.uint64(64 - bits)
    for i in range(hashed.size):
        counts[i & 1, np.int64(hashed[i] >> shift)] += 1


@loop
def put_in_parts(runs, race, rank, bits, begins, time, stream, keys, rows):  # type: ignore[no-untyped-def]
    """Merge runs, and put their rows into parts, from where each part begins.

    Args:
        runs: the rows of a span.
        race: room to merge them.
        rank: of the first row.
        bits: of the hash, which tell the parts apart.
        begins: by part, where its next row goes.
        time: takes the times by rank.
        stream: takes the streams by rank.
        keys: takes hashes and times by part.
        rows: takes what else there is of rows by part.
    """
    shift = np.uint64(64 - bits)
    if runs.starts.size == 1:
        for row in range(runs.starts[0], runs.ends[0]):
            _put(runs.columns[0], row, rank, shift, begins, time, stream, keys, rows)
            rank += 1
        return
    end = rank + begin_race(race, runs)
    while rank < end:
        for i in range(find_order(race, runs, end - rank)):
            run = np.int64(race.next[i])
            row = take_row(race, run)
            _put(runs.columns[run], row, rank, shift, begins, time, stream, keys, rows)
            rank += 1


@kernel
def _put(columns, row, rank, shift, begins, time, stream, keys, rows):  # type: ignore[no-untyped-def]
    """Put a row of a run into its part."""
    hashed = np.uint64(long_at(columns[HASH], row))
    own, own_time = int_at(columns[STREAM], row), long_at(columns[TIME], row)
    stream[rank] = own
    time[rank] = own_time
    part = np.int64(hashed >> shift)
    place = begins[part]
    begins[part] = place + 1
    keys[place].hash = hashed
    keys[place].time = own_time
    rows[place].payload = long_at(columns[PAYLOAD], row)
    rows[place].rank = rank
    rows[place].stream = own


@loop
def probe_part(keys, rows, start, end, known, windows, table, probed):  # type: ignore[no-untyped-def]
    """Count the results that each row of a part completes, and note the partners it begins with.

    Args:
        keys: of the rows of all parts, and their times.
        rows: what else there is of them.
        start: where the part begins.
        end: where it ends.
        known: rows of a lower rank were joined before, and are only met.
        windows: of the streams.
        table: room for the keys.
        probed: what is found; rows of the part are numbered from `start`.

    Returns:
        How many rows complete results, or -1 if there is no room for all keys.
    """
    lanes = windows.of.size
    size = table.key_words
    table.directory[:] = _NOBODY
    table.used[0] = 0
    first = table.first
    first[:] = 0
    # All rows of a part share the top bits of their hashes: places are found by lower ones.
    last = table.directory.size - 1
    most = 2 * (last // 3) + 1
    everywhere = (_ONE << np.uint64(lanes)) - _ONE if lanes < 64 else ~_NOBODY
    found = 0
    for i in range(end - start):
        key, row = keys[start + i], rows[start + i]
        if i + AHEAD < end - start:
            prefetch(table.directory, np.int64(keys[start + i + AHEAD].hash) & last)
            nearer = np.int64(keys[start + i + NEARER].hash) & last
            likely = np.int64(table.directory[nearer] & _LOWER)
            prefetch(table.words, max(0, likely - 1) * size)
        words = _key_number(table, key.hash, last, size) * size
        if table.used[0] > most:
            return -1
        own = _ONE << np.uint64(row.stream)
        present = table.hashes[words // 2 + 1]
        if row.rank >= known:
            for window in range(windows.lengths.size):
                _advance(keys, start, key.time - windows.lengths[window], first, window)
            if lanes <= _FEW_STREAMS:
                present = _alive(table, words, present, windows)
            if present | own == everywhere:
                count = _partners(table, words, row.stream, windows, start, probed, found)
                if count > 0:
                    probed.made[row.rank] = count
                    probed.newcomer[start + found] = i
                    found += 1
        head = words + KEY_HEADS + row.stream
        probed.before[start + i] = table.words[head] if present & own != _NOBODY else 0
        table.words[head] = i + 1
        table.hashes[words // 2 + 1] = present | own
    return found


@kernel
def _key_number(table, hashed, last, size):  # type: ignore[no-untyped-def]
    """The number of a key, which is entered if it is new."""
    place = np.int64(hashed) & last
    upper = hashed & _UPPER
    while True:
        entry = table.directory[place]
        if entry == _NOBODY:
            number = table.used[0]
            table.used[0] = number + 1
            table.directory[place] = upper | np.uint64(number + 1)
            table.hashes[number * size // 2] = hashed
            table.hashes[number * size // 2 + 1] = _NOBODY
            return number
        if entry & _UPPER == upper:
            number = np.int64(entry & _LOWER) - 1
            if table.hashes[number * size // 2] == hashed:
                return number
        place = (place + 1) & last


@kernel
def _advance(keys, start, oldest, first, window):  # type: ignore[no-untyped-def]
    """Let a window begin with its oldest row: rows of a part are in the order of time."""
    place = first[window]
    # Mostly a row or two leave; how many cannot be foretold, so that these are no branches.
    place += np.int64(keys[start + place].time < oldest)
    place += np.int64(keys[start + place].time < oldest)
    while keys[start + place].time < oldest:
        place += 1
    first[window] = place


@kernel
def _alive(table, words, present, windows):  # type: ignore[no-untyped-def]
    """The streams that have a row of a key within their windows; without a branch for each."""
    newer = np.uint64(0)
    for lane in range(windows.of.size):
        alive = table.words[words + KEY_HEADS + lane] > table.first[windows.of[lane]]
        newer |= np.uint64(alive) << np.uint64(lane)
    return present & newer


@kernel
def _partners(table, words, stream, windows, start, probed, found):  # type: ignore[no-untyped-def]
    """Note the partners of a row, of which every other stream had one; how many results they make.

    Args:
        table: the keys.
        words: where those of the row's key begin.
        stream: of the row.
        windows: of the streams.
        start: where the part begins.
        probed: takes the newest partner of each stream.
        found: how many rows of the part make results so far.
    """
    lanes = windows.of.size
    number = np.int64(1)
    for lane in range(lanes):
        head = np.int64(table.words[words + KEY_HEADS + lane])
        probed.heads[(start + found) * lanes + lane] = head
        if lane != stream:
            oldest = table.first[windows.of[lane]]
            if head <= oldest:
                return np.int64(0)
            fitting = 0
            while head > oldest:
                fitting += 1
                head = np.int64(probed.before[start + head - 1])
            number *= fitting
    return number


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
        if done + NEARER < found:
            _prefetch_members(rows, start, start + done + NEARER, lanes, probed)
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


@kernel
def _prefetch_members(rows, start, newcomer, lanes, probed):  # type: ignore[no-untyped-def]
    """Ask for the first members of the results of a newcomer, which are anywhere in the part."""
    prefetch(rows, start + probed.newcomer[newcomer])
    for lane in range(lanes):
        prefetch(rows, start + max(0, np.int64(probed.heads[newcomer * lanes + lane]) - 1))


@loop
def count_rows(core, time, stream, known, windows, expired, tally):  # type: ignore[no-untyped-def]
    """Let the clock go on with rows, and count what becomes of them.

    Args:
        core: the state of the join, of which only the clock is used.
        time: of rows, in its order.
        stream: of the same rows.
        known: so many of them were counted before.
        windows: of the streams.
        expired: for each window up to where the rows of its streams have expired.
        tally: by stream and `ENTERED`, `GONE` and `MOST`, what became of rows.
    """
    window = np.int64(0)
    gone = expired[0]
    for i in range(known, time.size):
        own = np.int64(stream[i])
        advance_stream(core, own, trusted_time(core, own, time[i]))
        # The other windows' rows are counted when a row of theirs comes.
        if windows.of[own] != window:
            expired[window] = gone
            window = windows.of[own]
            gone = expired[window]
        gone = _expire(core, time, stream, i, windows, window, gone, tally)
        tally[own, ENTERED] += 1
        tally[own, MOST] = max(tally[own, MOST], tally[own, ENTERED] - tally[own, GONE])
    expired[window] = gone
    for other in range(windows.lengths.size):
        expired[other] = _expire(
            core, time, stream, time.size, windows, other, expired[other], tally
        )


@kernel
def _expire(core, time, stream, end, windows, window, i, tally):  # type: ignore[no-untyped-def]
    """Count the rows of a window's streams that the clock has left behind, from a row on.

    Returns:
        The first row that it has not.
    """
    clock = core.numbers[CLOCK]
    if clock == NEVER:
        return i
    oldest = clock - windows.lengths[window] - core.settings.late
    if i + 2 < end:
        # Mostly a row or two: how many cannot be foretold, so that these are no branches.
        one, two = time[i] < oldest, time[i + 1] < oldest
        first, second = np.int64(stream[i]), np.int64(stream[i + 1])
        tally[first, GONE] += np.int64(one & (windows.of[first] == window))
        tally[second, GONE] += np.int64(two & (windows.of[second] == window))
        i += np.int64(one) + np.int64(two)
    while i < end and time[i] < oldest:
        own = np.int64(stream[i])
        tally[own, GONE] += np.int64(windows.of[own] == window)
        i += 1
    return i
