"""Unique keys that pass through the streams in a skewed choice of orders.

The synthetic workload of Kwon, Lee and Kim, *Load shedding for multi-way stream joins based on
arrival order patterns* (2010), section 5.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed_lab.workloads.arrivals import SECOND, Ints, on_the_beat, timestamps
from streamshed_lab.workloads.base import Workload
from streamshed_lab.workloads.checks import require

Floats = npt.NDArray[np.float64]

SETTLING_ROUNDS = 12
"""Tries to restore the orders of keys that were disturbed by putting rows on a regular beat."""


class Faithfulness(NamedTuple):
    """How much of what was drawn survived being put on the streams' regular beat.

    Every field is a fraction of the keys or rows it speaks of.
    """

    orders_kept: float
    """Keys seen in two streams or more, and not cut, that appear in the order drawn for them."""
    spreads_kept: float
    """Keys seen in two streams or more, and not cut, whose appearances lie within the spread."""
    rows_filled: float
    """Rows of keys that were made to fill a stream which the drawn orders left short."""
    keys_cut: float
    """Drawn keys whose appearances straddle the end of the trace."""


class _Trace(NamedTuple):
    """The keys, in the order of their births, and their appearances, in any order."""

    order: Ints
    """Of each key: the row of `orders`."""
    drawn: npt.NDArray[np.bool_]
    """Of each key: whether it was drawn, or made to fill a stream up."""
    key: Ints
    """Of each appearance: the key. Numbers beyond the keys are ends of keys that were cut."""
    place: Ints
    """Of each appearance: its place in the key's order."""
    stream: Ints
    time: Ints
    """Of each appearance: microseconds since the trace began."""


@lru_cache(maxsize=8)
def orders(streams: int) -> Ints:
    """List every order in which a key can pass through some or all of the streams.

    Args:
        streams: how many streams there are.

    Returns:
        One row per sequence of distinct streams of length 1 to `streams`, short ones filled up
        with -1. Shorter orders come first.

    Examples:
        >>> orders(2).tolist()
        [[0, -1], [1, -1], [0, 1], [1, 0]]
        >>> [len(orders(n)) for n in (3, 4, 5, 6, 7)]
        [15, 64, 325, 1956, 13699]
    """
    rows = [
        order + (-1,) * (streams - length)
        for length in range(1, streams + 1)
        for order in itertools.permutations(range(streams), length)
    ]
    table = np.array(rows, dtype=np.int64)
    table.setflags(write=False)
    return table


@dataclass(frozen=True)
class ExistenceWorkload(Workload):
    """Streams in which every key appears at most once, in an order of streams drawn for it.

    A key is given one of all possible orders (`orders`), by a Zipf distribution over a random
    ranking of them. Its appearances, in this order, are at the sorted values of a uniform draw
    from an interval of `spread` seconds, so that they fall within `spread` of its first; the
    intervals lie evenly over the trace. Every stream has exactly `tuples` rows at `rate`.

    To have all of that at once, three things are done to the edges of the paper's description:

    * Keys are drawn until the first stream is full. Streams that the drawn orders leave short are
      filled with keys that appear in them alone. With `alpha` = 0 that is about one row in a
      hundred; with skewed orders, where most keys skip some stream, it can be most of a stream.
    * The trace is cut out of a longer run, so that a stream in which keys always appear late is as
      busy at the beginning as at the end. A key that straddles an end is seen only in part, as in
      any real trace: about (mean span) / (length of the trace) of all keys.
    * With `arrivals="regular"` the rows of a stream, in the order of their drawn times, take the
      beats of that stream's clock, which moves a row by about a second. Orders that this turns
      round are repaired where possible; `faithfulness` says how many stay disturbed. With
      `arrivals="poisson"` the drawn times stand, and no order is disturbed.

    Attributes:
        streams: how many streams there are, named `s1`, `s2`, …
        tuples: rows per stream.
        rate: rows per second of each stream.
        alpha: the skew of the Zipf distribution over orders; 0 is uniform.
        spread: seconds between a key's first and its last possible appearance. The paper does not
            say how far apart they are.
        seed: of all randomness.
        arrivals: `"regular"`, rows at equal distances, the streams' beats interleaved; or
            `"poisson"`.
        ranking: `"all"` ranks all orders together, so that under skew one order of any length
            rules; `"by_length"` draws the length first, with the share it has among all orders,
            then ranks the orders of this length, so that skew leaves the share of keys that pass
            through all streams as it is.
        repertoire: how many orders are in use at all: the first of the ranking. None means all
            possible ones. The paper does not say which it used; with all of them and `alpha` = 0
            a pattern says little about what will follow.

    Examples:
        >>> workload = ExistenceWorkload(streams=3, tuples=100, spread=5.0, seed=7)
        >>> tables = workload.tables()
        >>> {name: table.num_rows for name, table in tables.items()}
        {'s1': 100, 's2': 100, 's3': 100}
        >>> tables["s1"].schema.names
        ['key', 'time', 'misc']
        >>> workload.exact_results(window=100.0)
        42
    """

    alpha: float = 0.0
    spread: float = 20.0
    seed: int = 0
    arrivals: Literal["regular", "poisson"] = "regular"
    ranking: Literal["all", "by_length"] = "all"
    repertoire: int | None = None

    unique_keys: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        require(2 <= self.streams <= 8, "streams", self.streams, "2 to 8 (the orders are listed)")
        super().__post_init__()
        require(self.alpha >= 0, "alpha", self.alpha, "0 or more")
        require(
            0 < self.spread < self.seconds,
            "spread",
            self.spread,
            f"more than 0 and less than the trace's {self.seconds:g} seconds",
        )
        require(
            self.arrivals in ("regular", "poisson"),
            "arrivals",
            self.arrivals,
            '"regular" or "poisson"',
        )
        require(
            self.ranking in ("all", "by_length"), "ranking", self.ranking, '"all" or "by_length"'
        )
        require(
            self.repertoire is None
            or (self.ranking == "all" and 1 <= self.repertoire <= len(orders(self.streams))),
            "repertoire",
            self.repertoire,
            f'None, or 1 to {len(orders(self.streams))} with ranking="all"',
        )

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams.

        Returns:
            For each stream, in time order: `key` (int64), `time` (timestamp in microseconds, UTC,
            beginning with 1970) and `misc` (int64: the row of `orders` that was drawn for the
            key).
        """
        trace = _generated(self)
        order = trace.order[trace.key % len(trace.order)]
        tables = {}
        for number, name in enumerate(self.names):
            rows = np.flatnonzero(trace.stream == number)
            rows = rows[np.argsort(trace.time[rows], kind="stable")]
            tables[name] = pa.table(
                {
                    "key": trace.key[rows],
                    "time": timestamps(trace.time[rows]),
                    "misc": order[rows],
                }
            )
        return tables

    def exact_results(self, window: float) -> int:
        """Count what an unlimited join finds: keys in all streams within `window` seconds.

        Args:
            window: length of the closed time window, in seconds.
        """
        times = _times_by_place(_generated(self), self.streams)
        complete = times[(times >= 0).all(axis=1)]
        return int(np.sum(_span(complete) <= round(window * SECOND)))

    def faithfulness(self) -> Faithfulness:
        """Report what became of the drawn orders and spreads in the tables."""
        trace = _generated(self)
        times = _times_by_place(trace, self.streams)
        length = np.sum(orders(self.streams)[trace.order] >= 0, axis=1)
        whole = np.sum(times >= 0, axis=1) == length
        judged = times[whole & (length > 1)]
        ahead = (np.diff(judged, axis=1) > 0) | (judged[:, 1:] < 0)
        return Faithfulness(
            orders_kept=_fraction(ahead.all(axis=1)),
            spreads_kept=_fraction(_span(judged) <= round(self.spread * SECOND)),
            rows_filled=float(np.sum(~trace.drawn) / (self.tuples * self.streams)),
            keys_cut=_fraction(~whole[trace.drawn]),
        )

    def order_probabilities(self) -> Floats:
        """Give the probability of each row of `orders`: Zipf over a ranking drawn from the seed."""
        generator = np.random.default_rng([self.seed, 0])
        length = np.sum(orders(self.streams) >= 0, axis=1)
        probability = np.empty(len(length))
        groups = np.zeros_like(length) if self.ranking == "all" else length
        for group in np.unique(groups):
            members = generator.permutation(np.flatnonzero(groups == group))
            weight = np.arange(1, len(members) + 1, dtype=np.float64) ** -self.alpha
            weight[len(members) if self.repertoire is None else self.repertoire :] = 0.0
            probability[members] = weight / weight.sum() * (len(members) / len(length))
        return probability

    def drawn_orders(self) -> Ints:
        """Give the row of `orders` of every drawn key (those that fill streams up left out)."""
        trace = _generated(self)
        return trace.order[trace.drawn]

    def _generate(self) -> _Trace:
        """Draw keys and their times.

        Times go round, as on a clock: the trace's end meets its start. What a key does after the
        end is then at the start of the trace, where it stands for another key that had begun
        before: it gets a number of its own.
        """
        generator = np.random.default_rng([self.seed, 1])
        order, drawn = self._draw_orders(generator)
        births = self._draw_births(generator, order)
        offsets = self._draw_offsets(generator, order)
        births = (births + offsets[:, 0]) % self.seconds
        offsets -= offsets[:, :1]
        by_birth = np.argsort(births, kind="stable")
        order, drawn, births = order[by_birth], drawn[by_birth], births[by_birth]

        sequence = orders(self.streams)[order]
        key, place = np.nonzero(sequence >= 0)
        stream = sequence[key, place]
        drawn_time = births[key] + offsets[by_birth][key, place]
        cut = drawn_time >= self.seconds
        drawn_time -= cut * self.seconds
        seen = key + cut * len(order)
        time = self._on_the_beat(drawn_time, stream, seen, place)
        return _Trace(order, drawn, seen, place, stream, time)

    def _draw_orders(self, generator: np.random.Generator) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Draw orders until one stream is full, then fill the others with keys of their own."""
        table = orders(self.streams)
        cumulative = np.cumsum(self.order_probabilities())
        # Every key appears somewhere, so that this many certainly fill a stream.
        draws = generator.random(self.streams * self.tuples) * cumulative[-1]
        order = np.searchsorted(cumulative, draws, side="right").clip(max=len(table) - 1)
        member = np.stack([(table == s).any(axis=1) for s in range(self.streams)], axis=1)
        filled = np.cumsum(member[order], axis=0, dtype=np.int64)
        keys = int(np.searchsorted(filled.max(axis=1), self.tuples)) + 1
        # The first rows of the table are the orders of length one, stream by stream.
        alone = np.repeat(np.arange(self.streams), self.tuples - filled[keys - 1])
        return np.concatenate([order[:keys], alone]), np.arange(keys + len(alone)) < keys

    def _draw_births(self, generator: np.random.Generator, order: Ints) -> Floats:
        """Draw the time of every key's first appearance.

        For regular arrivals, the keys that pass through the same set of streams are laid out
        evenly over the trace (jittered, from a random start). Were they independent, one stream
        would run ahead of another by some seconds, like a random walk, and putting rows on the
        beat would tear keys apart by as much.
        """
        jitter = generator.random(len(order))
        if self.arrivals == "poisson":
            return jitter * self.seconds
        sequence = orders(self.streams)
        bits = np.where(sequence >= 0, 1 << np.maximum(sequence, 0), 0).sum(axis=1)[order]
        shuffled = generator.permutation(len(order))
        by_set = shuffled[np.argsort(bits[shuffled], kind="stable")]
        size = np.bincount(bits, minlength=1 << self.streams)
        begin = np.cumsum(size) - size
        rank = np.empty(len(order), dtype=np.int64)
        rank[by_set] = np.arange(len(order)) - begin[bits[by_set]]
        start = generator.random(1 << self.streams)
        share: Floats = (rank + jitter) / size[bits] + start[bits]
        return share % 1.0 * self.seconds

    def _draw_offsets(self, generator: np.random.Generator, order: Ints) -> Floats:
        """Draw the times of a key at the places of its order, within an interval of the spread."""
        length = np.sum(orders(self.streams) >= 0, axis=1)[order]
        offsets = generator.random((len(order), self.streams)) * self.spread
        offsets[np.arange(self.streams) >= length[:, None]] = np.inf
        offsets.sort(axis=1)
        return offsets

    def _on_the_beat(self, drawn_time: Floats, stream: Ints, key: Ints, place: Ints) -> Ints:
        """Turn drawn seconds into the microseconds at which rows arrive.

        The rows of a stream take its beats in the order of their times. Where that turns the
        order of a key round, its rows exchange the times they got, pushed one beat apart, and all
        streams are ranked again, a few times over: nearly all orders are kept in the end.
        """
        if self.arrivals == "poisson":
            return np.floor(drawn_time * SECOND).astype(np.int64)
        by_key = np.lexsort((place, key))
        key, stream = key[by_key], stream[by_key]
        middle = (np.bincount(key)[key] - 1) / 2
        rows = np.arange(len(key))
        begins = np.concatenate([[True], key[1:] != key[:-1]])
        push = rows - np.maximum.accumulate(np.where(begins, rows, 0)) - middle
        beats = self._beats(drawn_time[by_key] * self.rate, stream)
        for _ in range(SETTLING_ROUNDS):
            wrong = np.unique(key[1:][(key[1:] == key[:-1]) & (np.diff(beats) <= 0)])
            if not len(wrong):
                break
            exchanged = beats[np.lexsort((beats, key))] + push
            beats = self._beats(np.where(np.isin(key, wrong), exchanged, beats), stream)
        time = np.empty(len(beats), dtype=np.int64)
        time[by_key] = on_the_beat(beats, self.rate)
        return time

    def _beats(self, wanted: Floats, stream: Ints) -> Floats:
        """Rank the rows of each stream by where they want to be; streams beat in turn."""
        beats = np.empty(len(wanted))
        # All streams have the same number of rows: sorted by stream, ranks repeat.
        beats[np.lexsort((wanted, stream))] = np.tile(np.arange(self.tuples), self.streams)
        return beats + stream / self.streams


@lru_cache(maxsize=1)
def _generated(workload: ExistenceWorkload) -> _Trace:
    """The trace of a workload; tables and what is known of them are mostly asked for together."""
    return workload._generate()


def _times_by_place(trace: _Trace, streams: int) -> Ints:
    """Times of each key by place in its order, -1 where it does not appear."""
    times = np.full((len(trace.order), streams), -1, dtype=np.int64)
    whole = trace.key < len(trace.order)
    times[trace.key[whole], trace.place[whole]] = trace.time[whole]
    return times


def _span(times: Ints) -> Ints:
    """Time between the first and the last appearance of each key."""
    never = np.iinfo(np.int64).max
    first: Ints = np.where(times >= 0, times, never).min(axis=1, initial=never)
    last: Ints = times.max(axis=1, initial=-1)
    return last - first


def _fraction(flags: npt.NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else 1.0
