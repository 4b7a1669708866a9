"""Workloads that break policies: what is learned of one time does not hold of another.

Each is a frozen description; `tables()` makes the streams, named `s1`, `s2`, …, each in time order
with `key` (int64) and `time` (timestamp in microseconds, UTC, beginning with 1970). The same
description makes the same streams. Times in descriptions are seconds.

Most have *passers-by*, keys that come for a moment, and something else that makes the results:

* `FlashKeys`: a few keys, new ones all the time, come very often for some windows, then never.
* `ClumpedKeys`: the same, but rows of a key come at the same instant, in all streams.
* `Bursts`: for some seconds all streams are 10 to 100 times as fast as usual.
* `OneHeavyKey`: one key makes nearly all results, from a small part of the rows.
* `FlashCrowd`: now and then a new key becomes the most popular of all within a window.
* `HeavySessions`: sessions whose lengths have a heavy tail.
* `RepeatingSessions`: sessions of some minutes, whose rows repeat in a stream, in a long window.
* `Auctions`: many bids, more and more of them towards the end, and one row that closes the key.
* `DailySessions`: each key of a fixed set has a session on most days, in a longer window.
* `DailyCycle`: rates and popular keys follow the hour of the day, each stream with its own phase.
* `StoppingStream`: a stream stops for several windows, and returns.
* `SwappedKeys`: popular keys become rare and rare ones popular, again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Rows = tuple[Floats, Ints]
"""Times in seconds, and keys, of the rows of a stream; in any order."""

PASSERS_BY = 1_000_000
"""Numbers of keys from here on are those of keys that come for a moment."""


def _table(parts: list[Rows], end: float) -> pa.Table:
    """The rows of a stream in the order of time; what is outside the trace is left out."""
    seconds = np.concatenate([times for times, _ in parts])
    keys = np.concatenate([owners for _, owners in parts]).astype(np.int64)
    inside = np.flatnonzero((seconds >= 0.0) & (seconds < end))
    order = inside[np.argsort(seconds[inside], kind="stable")]
    micros = (seconds[order] * 1e6).astype(np.int64)
    times = pa.array(micros).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"key": keys[order], "time": times})


def _named(streams: list[list[Rows]], end: float) -> dict[str, pa.Table]:
    return {f"s{number + 1}": _table(parts, end) for number, parts in enumerate(streams)}


def _passers_by(
    random: np.random.Generator, streams: int, rate: float, end: float, part: float, apart: float
) -> list[list[Rows]]:
    """Keys that come once, or not at all, to each stream, all within a moment.

    Args:
        random: draws.
        streams: how many there are.
        rate: new keys in a second.
        end: of the trace.
        part: the chance that a key comes to a stream.
        apart: the mean of the seconds from the birth of a key to each of its rows.
    """
    count = random.poisson(rate * end)
    born = np.sort(random.uniform(0.0, end, count))
    found: list[list[Rows]] = []
    for _ in range(streams):
        here = np.flatnonzero(random.random(count) < part)
        times = born[here] + random.exponential(apart, len(here))
        found.append([(times, here + PASSERS_BY)])
    return found


def _zipf(random: np.random.Generator, keys: int, skew: float, count: int) -> Ints:
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    return random.choice(keys, count, p=weights / weights.sum())


@dataclass(frozen=True)
class FlashKeys:
    """A few keys flash up: they come often for some windows, then never again.

    Attributes:
        streams: how many.
        seconds: the length of the trace.
        rate: passers-by born in a second.
        flashes: how many keys flash up.
        lasting: the mean of the seconds for which they do.
        each: rows of such a key in a second, in each stream.
        seed: of all randomness.
    """

    streams: int = 2
    seconds: float = 40_000.0
    rate: float = 1.0
    flashes: int = 16
    lasting: float = 3_000.0
    each: float = 0.07
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 11])
        found = _passers_by(random, self.streams, self.rate, self.seconds, 0.7, 20.0)
        begins = random.uniform(0.0, self.seconds, self.flashes)
        lasts = random.exponential(self.lasting, self.flashes)
        for parts in found:
            for key, (begin, last) in enumerate(zip(begins, lasts, strict=True)):
                rows = random.poisson(self.each * last)
                parts.append((begin + random.random(rows) * last, np.full(rows, key)))
        return _named(found, self.seconds)


@dataclass(frozen=True)
class ClumpedKeys:
    """Rows of a key come at the same instant in all streams: an order and its fills.

    Passers-by have one clump: one row in the first stream, a heavy-tailed number in the others.

    Attributes:
        streams: how many.
        seconds: the length of the trace.
        rate: passers-by born in a second.
        flashes: how many keys have clump after clump.
        lasting: the mean of the seconds for which they do.
        clumps: the mean number of clumps of such a key.
        size: the mean rows of a clump in each stream.
        seed: of all randomness.
    """

    streams: int = 2
    seconds: float = 40_000.0
    rate: float = 0.6
    flashes: int = 16
    lasting: float = 3_000.0
    clumps: float = 20.0
    size: float = 12.0
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 12])
        count = random.poisson(self.rate * self.seconds)
        born = np.sort(random.uniform(0.0, self.seconds, count))
        begins = random.uniform(0.0, self.seconds, self.flashes)
        lasts = random.exponential(self.lasting, self.flashes)
        moments = [
            begin + random.random(random.poisson(self.clumps)) * last
            for begin, last in zip(begins, lasts, strict=True)
        ]
        found: list[list[Rows]] = []
        for stream in range(self.streams):
            rows = np.minimum(random.zipf(2.2, count), 40) if stream else np.ones(count, np.int64)
            rows[random.random(count) >= (0.5 if stream else 1.0)] = 0
            parts: list[Rows] = [
                (np.repeat(born, rows), np.repeat(np.arange(count), rows) + PASSERS_BY)
            ]
            for key, when in enumerate(moments):
                many = random.poisson(self.size, len(when))
                parts.append((np.repeat(when, many), np.full(many.sum(), key)))
            found.append(parts)
        return _named(found, self.seconds)


@dataclass(frozen=True)
class Bursts:
    """For some seconds all streams are much faster than usual.

    Keys in a burst are those of always: passers-by, and popular ones.

    Attributes:
        streams: how many.
        seconds: the length of the trace.
        rate: rows of each stream in a second, outside bursts.
        factor: how many times as fast a burst is.
        every: seconds from the beginning of a burst to that of the next.
        lasting: seconds of a burst.
        popular: the part of the rows that have popular keys.
        keys: how many popular keys there are.
        seed: of all randomness.
    """

    streams: int = 3
    seconds: float = 2_000.0
    rate: float = 5.0
    factor: float = 10.0
    every: float = 400.0
    lasting: float = 10.0
    popular: float = 0.3
    keys: int = 300
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 13])
        bursts = np.arange(self.every / 2, self.seconds, self.every)
        length = self.seconds + (self.factor - 1.0) * self.lasting * len(bursts)

        def slowed(work: Floats) -> Floats:
            """From an even pace to the pace of the trace, which takes bursts in a moment."""
            edges = [0.0, 0.0]
            paced = [0.0, 0.0]
            for begin in bursts:
                quiet = begin - paced[-1]
                edges += [edges[-1] + quiet, edges[-1] + quiet + self.lasting * self.factor]
                paced += [begin, begin + self.lasting]
            edges.append(edges[-1] + self.seconds - paced[-1])
            paced.append(self.seconds)
            return np.interp(work, edges, paced)

        born = np.sort(random.uniform(0.0, length, round((1 - self.popular) * self.rate * length)))
        found: list[list[Rows]] = []
        for _ in range(self.streams):
            here = np.flatnonzero(random.random(len(born)) < 0.8)
            times = slowed(born[here]) + random.exponential(10.0, len(here))
            count = round(self.popular * self.rate * length)
            known = slowed(random.uniform(0.0, length, count))
            found.append(
                [(times, here + PASSERS_BY), (known, _zipf(random, self.keys, 0.8, count))]
            )
        return _named(found, self.seconds)


@dataclass(frozen=True)
class OneHeavyKey:
    """One key makes nearly all results, from a small part of the rows; it begins late.

    Attributes:
        streams: how many.
        seconds: the length of the trace.
        rate: passers-by born in a second.
        begins: when the key begins, as a part of the trace.
        share: the part of the rows from then on that it has.
        seed: of all randomness.
    """

    streams: int = 3
    seconds: float = 4_000.0
    rate: float = 4.0
    begins: float = 0.3
    share: float = 0.02
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 14])
        found = _passers_by(random, self.streams, self.rate, self.seconds, 0.6, 30.0)
        begin = self.begins * self.seconds
        for parts in found:
            count = random.poisson(self.share * 0.6 * self.rate * (self.seconds - begin))
            parts.append((random.uniform(begin, self.seconds, count), np.zeros(count, np.int64)))
        return _named(found, self.seconds)


@dataclass(frozen=True)
class FlashCrowd:
    """Now and then a new key becomes the most popular of all within a window, and fades slowly.

    Attributes:
        streams: how many.
        seconds: the length of the trace.
        rate: rows of each stream in a second that have keys of always.
        keys: how many of these there are.
        every: seconds from a crowd to the next.
        peak: rows of the new key in a second, in each stream, at its peak.
        fades: seconds in which it falls to 1/e of it.
        seed: of all randomness.
    """

    streams: int = 2
    seconds: float = 6_000.0
    rate: float = 5.0
    keys: int = 2_000
    every: float = 600.0
    peak: float = 1.5
    fades: float = 80.0
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 15])
        begins = np.arange(self.every / 2, self.seconds, self.every)
        found: list[list[Rows]] = []
        for _ in range(self.streams):
            count = random.poisson(self.rate * self.seconds)
            times = random.uniform(0.0, self.seconds, count)
            parts: list[Rows] = [(times, _zipf(random, self.keys, 0.6, count) + PASSERS_BY)]
            for key, begin in enumerate(begins):
                rows = random.poisson(self.peak * self.fades)
                parts.append((begin + random.exponential(self.fades, rows), np.full(rows, key)))
            found.append(parts)
        return _named(found, self.seconds)


@dataclass(frozen=True)
class HeavySessions:
    """Sessions whose lengths have a heavy tail: most are over at once, a few go on for windows.

    Attributes:
        streams: how many.
        seconds: the length of the trace.
        rate: sessions that begin in a second.
        tail: the exponent of the lengths' Pareto distribution; the shortest session lasts a second.
        each: rows of a session in a second, in each stream.
        seed: of all randomness.
    """

    streams: int = 3
    seconds: float = 4_000.0
    rate: float = 2.0
    tail: float = 0.9
    each: float = 0.08
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 16])
        count = random.poisson(self.rate * self.seconds)
        begins = random.uniform(0.0, self.seconds, count)
        lasts = np.minimum((1.0 - random.random(count)) ** (-1.0 / self.tail), 1_000.0)
        found: list[list[Rows]] = []
        for _ in range(self.streams):
            rows = random.poisson(self.each * lasts) + (random.random(count) < 0.4)
            key = np.repeat(np.arange(count), rows)
            found.append([(begins[key] + random.random(len(key)) * lasts[key], key)])
        return _named(found, self.seconds)


@dataclass(frozen=True)
class RepeatingSessions:
    """Sessions whose rows repeat in a stream, and which end long before the window does.

    Attributes:
        streams: how many.
        seconds: the length of the trace.
        sessions: how many there are.
        lasting: the median of their lengths in seconds, which are lognormal.
        again: further rows of a session in each stream, on average.
        seed: of all randomness.
    """

    streams: int = 3
    seconds: float = 20_000.0
    sessions: int = 6_000
    lasting: float = 120.0
    again: float = 0.3
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 17])
        begins = random.uniform(0.0, self.seconds, self.sessions)
        lasts = self.lasting * np.exp(random.normal(size=self.sessions))
        found: list[list[Rows]] = []
        for _ in range(self.streams):
            key = np.repeat(np.arange(self.sessions), 1 + random.poisson(self.again, self.sessions))
            found.append([(begins[key] + random.random(len(key)) * lasts[key], key)])
        return _named(found, self.seconds)


@dataclass(frozen=True)
class Auctions:
    """Offers, their bids and their sales: a sale closes its key, and not every offer has one.

    Attributes:
        seconds: the length of the trace.
        auctions: how many there are.
        shortest: seconds that an auction lasts at least.
        longest: seconds that one lasts at most.
        tail: the exponent of the Pareto distribution of bids.
        sold: the part of auctions that end with a sale.
        seed: of all randomness.
    """

    seconds: float = 20_000.0
    auctions: int = 700
    shortest: float = 50.0
    longest: float = 900.0
    tail: float = 1.0
    sold: float = 0.5
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams: offers, bids, sales."""
        random = np.random.default_rng([self.seed, 18])
        offer = np.arange(self.auctions)
        begins = random.uniform(0.0, self.seconds, self.auctions)
        lasts = random.uniform(self.shortest, self.longest, self.auctions)
        bids = np.clip(6 * random.pareto(self.tail, self.auctions) + 1, 1, 400).astype(np.int64)
        bid = np.repeat(offer, bids)
        late = random.beta(3.0, 1.0, len(bid))
        sale = offer[random.random(self.auctions) < self.sold]
        rows: list[Rows] = [
            (begins, offer),
            (begins[bid] + late * lasts[bid], bid),
            (begins[sale] + lasts[sale], sale),
        ]
        return _named([[of_stream] for of_stream in rows], self.seconds)


@dataclass(frozen=True)
class DailySessions:
    """A fixed set of keys, each of which comes on most days, for some hours.

    Within a window of more than a day a key that is in its session now comes often, and soon not at
    all; one that was there yesterday comes back. Streams differ by far in their rates.

    Attributes:
        days: the length of the trace.
        day: the length of a day.
        keys: how many there are.
        present: the part of the days on which a key comes.
        lasting: the length of a session.
        rates: rows of a session, by stream.
        seed: of all randomness.
    """

    days: int = 60
    day: float = 1_000.0
    keys: int = 150
    present: float = 0.8
    lasting: float = 120.0
    rates: tuple[float, ...] = (3.0, 1.0, 0.4, 0.15)
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 20])
        on, key = np.nonzero(random.random((self.days, self.keys)) < self.present)
        # Most sessions are in the last part of the day.
        begins = on * self.day + random.beta(4.0, 2.0, len(on)) * (self.day - self.lasting)
        found: list[list[Rows]] = []
        for rate in self.rates:
            session = np.repeat(np.arange(len(on)), random.poisson(rate, len(on)))
            times = begins[session] + random.random(len(session)) * self.lasting
            found.append([(times, key[session])])
        return _named(found, self.days * self.day)


@dataclass(frozen=True)
class DailyCycle:
    """Rates and popular keys follow the hour of the day, each stream with a phase of its own.

    Attributes:
        streams: how many.
        seconds: the length of the trace.
        rate: rows of each stream in a second, on average.
        day: seconds of a day.
        keys: how many keys are at home in each eighth of the day.
        night: the rate at night as a part of that by day.
        seed: of all randomness.
    """

    streams: int = 3
    seconds: float = 6_000.0
    rate: float = 5.0
    day: float = 1_500.0
    keys: int = 400
    night: float = 0.05
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 17])
        found: list[list[Rows]] = []
        for stream in range(self.streams):
            count = round(2 * self.rate * self.seconds)
            times = random.uniform(0.0, self.seconds, count)
            phase = 2 * np.pi * (times / self.day + 0.08 * stream)
            awake = self.night + (1 - self.night) * (0.5 - 0.5 * np.cos(phase))
            times = times[random.random(count) < awake]
            eighth = ((times / self.day * 8 + random.normal(0.0, 0.7, len(times))) % 8).astype(
                np.int64
            )
            keys = _zipf(random, self.keys, 0.7, len(times)) + self.keys * eighth
            found.append([(times, keys)])
        return _named(found, self.seconds)


@dataclass(frozen=True)
class StoppingStream:
    """A stream stops for some windows, and returns; the others go on.

    Attributes:
        streams: how many; the last is the one that stops.
        seconds: the length of the trace.
        rate: keys born in a second.
        popular: rows of popular keys in a second, in each stream.
        keys: how many popular keys there are.
        every: seconds from a stop to the next.
        lasting: seconds of a stop.
        seed: of all randomness.
    """

    streams: int = 3
    seconds: float = 4_000.0
    rate: float = 4.0
    popular: float = 2.0
    keys: int = 300
    every: float = 1_000.0
    lasting: float = 400.0
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 18])
        found = _passers_by(random, self.streams, self.rate, self.seconds, 0.7, 20.0)
        for parts in found:
            count = random.poisson(self.popular * self.seconds)
            times = random.uniform(0.0, self.seconds, count)
            parts.append((times, _zipf(random, self.keys, 0.9, count)))
        found[-1] = [
            (times[here], keys[here])
            for times, keys in found[-1]
            for here in [(times - 0.4 * self.every) % self.every >= self.lasting]
        ]
        return _named(found, self.seconds)


@dataclass(frozen=True)
class SwappedKeys:
    """Popular keys become rare and rare ones popular, again and again.

    Attributes:
        streams: how many.
        seconds: the length of the trace.
        rate: rows of each stream in a second.
        keys: how many keys there are.
        skew: of their Zipf distribution.
        every: seconds from a swap to the next.
        seed: of all randomness.
    """

    streams: int = 3
    seconds: float = 4_000.0
    rate: float = 5.0
    keys: int = 2_000
    skew: float = 0.9
    every: float = 250.0
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams."""
        random = np.random.default_rng([self.seed, 19])
        orders = [random.permutation(self.keys) for _ in range(int(self.seconds / self.every) + 1)]
        ranked = np.array(orders)
        found: list[list[Rows]] = []
        for _ in range(self.streams):
            count = random.poisson(self.rate * self.seconds)
            times = random.uniform(0.0, self.seconds, count)
            rank = _zipf(random, self.keys, self.skew, count)
            found.append([(times, ranked[(times / self.every).astype(np.int64), rank])])
        return _named(found, self.seconds)


ADVERSARIAL = {
    kind.__name__: kind
    for kind in (
        FlashKeys,
        ClumpedKeys,
        Bursts,
        OneHeavyKey,
        FlashCrowd,
        HeavySessions,
        DailyCycle,
        StoppingStream,
        SwappedKeys,
    )
}
