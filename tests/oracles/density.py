"""The density rule (docs/meaning.md, Density), with every key followed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .prospects import Prospects, bucket
from .rows import Key, Row, Stream, Workload
from .rules import MASK, Held, Random, Rule, Windows, draw, hash_of, mix

ONCE, MEMORY, SILENCES, ROUGHNESS = 1024, 6.0, 8, 0.02
FRONT, PLENTY, SHYNESS = 8, 256.0, 0.6


@dataclass
class Note:
    """What is known of a key."""

    first: int
    begin: int
    last: int
    watched: int
    counts: list[int]
    lost: set[int] = field(default_factory=set)
    returns: bool = False


class Returning:
    """What the counts of a key say of its arrivals to come."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.sums = [[0.0] * 6 for _ in range(lanes)]
        self.targets = [[0.0] * 3 for _ in range(lanes)]
        self.weights = [[0.0] * 3 for _ in range(lanes)]
        self.expected = [0.0] * SILENCES
        self.came = [0.0] * SILENCES

    def count(self, note: Note, lane: int, gap: float) -> None:
        """Count an arrival; older ones fade."""
        fading = 1.0 - min(gap / MEMORY, 1.0)
        note.counts[:] = [int(count * fading) for count in note.counts]
        note.counts[lane] += ONCE

    def features(self, note: Note, known: float, gap: float) -> list[tuple[float, float]]:
        """For each lane the key's rate there, and its mean rate elsewhere."""
        fading = 1.0 - min(gap / MEMORY, 1.0)
        scale = fading / ((min(known, MEMORY) * fading + gap + 1.0) * ONCE)
        total, others = sum(note.counts), max(self.lanes - 1, 1)
        return [(c * scale, float(total - c) / others * scale) for c in note.counts]

    def rate(self, lane: int, own: float, elsewhere: float) -> float:
        """The arrivals expected in a window."""
        constant, here, there = self.weights[lane]
        return constant + here * own + there * elsewhere

    def watch(self, note: Note, known: float, begin: float, end: float) -> None:
        """The key was watched for some time since its last arrival."""
        if end <= begin:
            return
        expected = 0.0
        features = self.features(note, known, 0.5 * (begin + end))
        for lane, (own, other) in enumerate(features):
            weight = (end - begin) / (ROUGHNESS + own + other)
            row = (weight, weight * own, weight * other)
            row += (weight * own * own, weight * own * other, weight * other * other)
            self.sums[lane] = [a + b for a, b in zip(self.sums[lane], row, strict=True)]
            expected += self.rate(lane, own, other)
        before = 0.0
        for part in range(SILENCES):
            edge = 2.0 ** (part - SILENCES + 1)
            after = end if part == SILENCES - 1 else min(edge, end)
            if after > max(before, begin):
                self.expected[part] += expected * (after - max(before, begin))
            before = edge

    def witness(self, note: Note, lane: int, known: float, gap: float) -> None:
        """The key has come."""
        own, other = self.features(note, known, gap)[lane]
        weight = 1.0 / (ROUGHNESS + own + other)
        row = (weight, weight * own, weight * other)
        self.targets[lane] = [a + b for a, b in zip(self.targets[lane], row, strict=True)]
        self.came[silence(gap)] += 1.0

    def regress(self) -> None:
        """Least squares for each lane, no weight below 0."""
        for lane in range(self.lanes):
            a, b, c, d, e, f = self.sums[lane]
            x, y, z = self.targets[lane]
            a, d, f, y, z = a + 1.0, d + 1.0, f + 1.0, y + 0.5, z + 0.5
            d, e, f = d - b / a * b, e - b / a * c, f - c / a * c
            y, z = y - b / a * x, z - c / a * x
            other = (z - e / d * y) / (f - e / d * e)
            own = (y - e * other) / d
            if other < 0.0:
                other, own = 0.0, y / d
            elif own < 0.0:
                own, other = 0.0, z / f
            own, other = max(own, 0.0), max(other, 0.0)
            self.weights[lane] = [max((x - b * own - c * other) / a, 0.0), own, other]

    def fade(self) -> None:
        """All counts half."""
        self.sums = [[0.5 * number for number in row] for row in self.sums]
        self.targets = [[0.5 * number for number in row] for row in self.targets]
        self.expected = [0.5 * number for number in self.expected]
        self.came = [0.5 * number for number in self.came]


def silence(gap: float) -> int:
    """Which halving of the window a gap falls into."""
    return sum(gap > 2.0 ** (part - SILENCES + 1) for part in range(SILENCES - 1))


class Density(Random):
    """The key that promises the fewest results for the room it takes."""

    def __init__(self, workload: Workload, windows: Windows) -> None:
        """Start with nothing known."""
        super().__init__(workload, windows)
        self.lanes = 1 if workload.by else len(workload.names)
        rows = sum(size for kind, size in workload.windows if kind == "last")
        self.horizon = float(max(max(workload.lengths) if workload.timed else rows, 1))
        at_least = self.lanes if workload.at_least is None else workload.at_least
        self.prospects = Prospects(self.lanes, at_least)
        self.returning = Returning(self.lanes)
        rows = workload.keep_total or sum(rows or 0 for rows in workload.keep_rows or ())
        self.places = 1 << max(8192, rows).bit_length() - 1
        self.ghosts: dict[int, tuple[int, Note]] = {}
        self.notes: dict[Key, Note] = {}
        self.heard: dict[Key, Note] = {}
        self.turns: dict[Stream | None, int] = {}
        self.newest: int | None = None
        self.noted = self.tuples = self.next_look = self.since = self.gone = 0
        self.chosen: Held | None = None
        self.admitted: Key | None = None
        self.truth: Any = None
        self.present: dict[Key, list[Held]] = {}

    # -- time and place

    def now(self) -> int:
        """The newest time, or the number of the latest arrival."""
        assert self.newest is not None
        return self.newest

    def moment(self, held: Held) -> int:
        """When a tuple came."""
        return held.time if self.workload.timed else held.arrival

    def lane(self, held: Held) -> int:
        """The number of a tuple's stream, 0 where a column tells streams apart."""
        return 0 if self.workload.by else self.workload.position(held.stream)

    def bounded(self, lane: int) -> bool:
        """Whether a stream has a budget."""
        return self.workload.keep_rows is None or self.workload.keep_rows[lane] is not None

    def all_of(self, key: Key) -> list[Held]:
        """The stored tuples of a key, oldest first."""
        mine = [held for held in self.everything() if held.key == key]
        return sorted(mine, key=lambda held: held.age)

    def known(self, key: Key) -> list[Held]:
        """Those of them that are in windows with a budget."""
        return [held for held in self.all_of(key) if self.bounded(self.lane(held))]

    # -- what a key promises

    def take_notice(self, newcomer: Held) -> None:
        """A tuple is about to be stored or refused."""
        key, lane, now = newcomer.key, self.lane(newcomer), self.now()
        if key not in self.notes and not self.recall(key):
            counts = [0] * self.lanes
            counts[lane] = ONCE
            self.notes[key] = Note(0, now, now, now, counts)
            return
        note = self.notes[key]
        here = any(self.lane(held) == lane for held in self.known(key))
        if self.lanes > 1 and (here or lane in note.lost):
            note.returns = True
        self.returning.count(note, lane, (now - note.last) / self.horizon)
        note.last = now

    def recall(self, key: Key) -> bool:
        """Whether a key has a ghost, which then is what is noted of it."""
        tag, ghost = self.ghosts.get(hash_of(key) % self.places, (None, None))
        if self.lanes == 1 or ghost is None or tag != hash_of(key) >> 32:
            return False
        if self.now() - ghost.last > self.horizon:
            return False
        self.notes[key] = deepcopy(ghost)
        return True

    def leave_ghost(self, key: Key, lane: int) -> None:
        """A key has no row any more, or was refused without one."""
        self.notes[key].lost.add(lane)
        self.ghosts[hash_of(key) % self.places] = hash_of(key) >> 32, deepcopy(self.notes[key])

    def density(self, key: Key, lane: int, newcomer: Held | None = None) -> float:
        """Results per window that a row of a key in a lane promises."""
        note, now = self.notes[key], self.now()
        extra = [] if newcomer is None else [newcomer]
        everything = self.all_of(key) + extra
        first = min(self.moment(held) for held in self.known(key) + extra)
        if not note.returns:
            state = self.prospects.state({self.lane(h) for h in everything}, len(everything))
            age = bucket(now - first, self.horizon)
            return float(self.prospects.index[int(bool(note.lost)), state, age])
        before = [held for held in self.all_of(key) if self.lane(held) == lane]
        age = now - self.moment(before[0]) if before else 0
        gap = (now - note.last) / self.horizon
        features = self.returning.features(note, (note.last - note.begin) / self.horizon, gap)
        rates = [self.returning.rate(i, *pair) for i, pair in enumerate(features)]
        renewed = 0.5 * max(1.0 - age / self.horizon, 0.0)
        crowd = []
        for other in range(self.lanes):
            rows = float(sum(self.lane(held) == other for held in everything))
            if not self.bounded(other):
                rows = rates[other]
            crowd.append(rows + (rates[other] - rows) * renewed)
        promised = 0.0
        for arriving in range(self.lanes):
            if arriving != lane:
                results = rates[arriving]
                for other in range(self.lanes):
                    if other != arriving:
                        partial = self.workload.at_least is not None
                        results *= max(crowd[other], 1.0) if partial else crowd[other]
                promised += results
        taken = expected = 0.0
        for size, rate in zip(crowd, rates, strict=True):
            taken += size
            expected += rate
        rows = float(len(self.known(key) + extra))
        share = rows / expected if rows < expected else 1.0
        part = silence(gap)
        lively = (self.returning.came[part] + 1.0) / (self.returning.expected[part] + 1.0)
        return promised * (lively * (SHYNESS + (1.0 - SHYNESS) * share)) / taken

    # -- who leaves

    def choose(
        self, window: list[Held], places: list[Held], arrival: int, offered: float
    ) -> tuple[Held, float]:
        """The least of the oldest, those in front, and as many drawn."""

        def worth(held: Held) -> float:
            return self.density(held.key, self.lane(held))

        best = min(window, key=lambda held: held.age)
        lowest = worth(best)
        front = places[:FRONT]
        promised = []
        for held in front:
            if PLENTY * lowest <= offered:
                break
            promised.append(worth(held))
            if promised[-1] < lowest:
                best, lowest = held, promised[-1]
        word = draw(self.workload.seed, arrival)
        for place in range(len(front)):
            if PLENTY * lowest <= offered:
                break
            drawn = (word >> 32) * len(places) >> 32
            word = mix((word + 0x9E3779B97F4A7C15) & MASK)
            if drawn >= len(front) and (value := worth(places[drawn])) < promised[place]:
                places[place], places[drawn] = places[drawn], places[place]
                if value < lowest:
                    best, lowest = places[place], value
        mine = [held for held in self.all_of(best.key) if self.lane(held) == self.lane(best)]
        return mine[0], lowest

    def put_forward(self, key: Key) -> None:
        """The newest row of a key in each stream goes to the front of its list."""
        for lane in range(self.lanes):
            rows = [held for held in self.all_of(key) if self.lane(held) == lane]
            if not rows or not self.bounded(lane):
                continue
            places = self._list(rows[-1])
            place = places.index(rows[-1])
            if len(places) > FRONT and place >= FRONT:
                pool = None if self.workload.keep_rows is None else rows[-1].stream
                turn = self.turns.get(pool, 0)
                places[turn], places[place] = places[place], places[turn]
                self.turns[pool] = (turn + 1) % FRONT

    def lose(self, key: Key, lane: int) -> None:
        """A stream does not hold a key any more, or did not take it."""
        whole = not self.notes[key].lost
        self.notes[key].lost.add(lane)
        if whole and not self.notes[key].returns:
            self.put_forward(key)

    def refuses(self, window: list[Held], newcomer: Held) -> bool:
        """Whether the newcomer promises less than whoever would have to leave."""
        key, lane = newcomer.key, self.lane(newcomer)
        self.take_notice(newcomer)
        self.noted = newcomer.arrival + 1
        density = self.density(key, lane, newcomer)
        own = [held for held in self.all_of(key) if self.lane(held) == lane]
        instead = self.notes[key].returns and bool(own)
        if density > 0.0 or instead:
            places, arrival = self._list(newcomer), newcomer.arrival
            self.chosen, lowest = self.choose(window, places, arrival, density)
            refused = density == 0.0 or density < lowest
            if instead and refused:
                self.chosen = own[0]
            if instead or not refused:
                self.admitted = key
                return False
        if not self.known(key):
            self.leave_ghost(key, lane)
            del self.notes[key]
        elif not own:
            self.lose(key, lane)
        return True

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """Who was chosen when the newcomer was admitted."""
        assert self.chosen is not None
        return self.chosen

    def stored(self, held: Held) -> None:
        """Take notice, unless that was done; a key in all streams goes to the front."""
        if not self.bounded(self.lane(held)):
            return
        super().stored(held)
        if self.noted != held.arrival + 1:
            self._notice_stored(held)
        self.admitted = None
        there = {self.lane(other) for other in self.all_of(held.key)}
        if 1 < len(there) == self.lanes and not self.notes[held.key].returns:
            self.put_forward(held.key)

    def _notice_stored(self, held: Held) -> None:
        """As before it was stored."""
        self.windows[held.stream].remove(held)
        self.take_notice(held)
        self.windows[held.stream].append(held)

    def left(self, held: Held) -> None:
        """A key that has left is but a ghost; one that is left in part has lost something."""
        if not self.bounded(self.lane(held)):
            return
        super().left(held)
        rest = self.known(held.key)
        if not rest:
            self.leave_ghost(held.key, self.lane(held))
            if held.key != self.admitted:
                del self.notes[held.key]
        elif all(self.lane(other) != self.lane(held) for other in rest):
            self.lose(held.key, self.lane(held))

    # -- what is learned, from all keys

    def arrives(self, newcomer: Held) -> None:
        """Follow the newcomer through a join without a budget."""
        from .simulator import _Run

        if self.truth is None:
            exact = self.workload.unbounded()
            self.truth = _Run(exact.__class__(**{**exact.__dict__, "policy": "oldest"}))
            self.truth.rule = _Listener(exact, self.truth.windows)
        came = newcomer.time if self.workload.timed else newcomer.arrival
        self.newest = came if self.newest is None else max(self.newest, came)
        listener = self.truth.rule
        listener.begin()
        row = Row(newcomer.stream, newcomer.key, newcomer.time, newcomer.row, newcomer.worth)
        self.truth.arrive(newcomer.arrival, row)
        for held in listener.pushed_out + listener.expired:
            self.unfollow(held)
        assert listener.newcomer is not None
        self.follow(listener.newcomer, float(listener.results))

    def follow(self, held: Held, results: float) -> None:
        """A tuple of a followed key has come, which made results."""
        key, lane, now = held.key, self.lane(held), self.now()
        before = self.present.get(key, [])
        there = {self.lane(other) for other in before}
        if not before:
            counts = [0] * self.lanes
            counts[lane] = ONCE
            self.heard[key] = Note(self.moment(held), now, now, now, counts)
            self._enter(self.heard[key], {lane}, 1)
        else:
            note = self.heard[key]
            gap = (now - note.last) / self.horizon
            known = (note.last - note.begin) / self.horizon
            if note.returns:
                self._watch(note)
                self.returning.witness(note, lane, known, gap)
            else:
                kind, state, age = self._leave(note, there, len(before))
                if self.lanes > 1 and (lane in there or lane in note.lost):
                    self.prospects.come_back(kind, state, age, results)
                    note.returns, note.watched = True, now
                else:
                    self.prospects.move(kind, state, age, lane, results)
                    note.first = min(note.first, self.moment(held))
                    self._enter(note, there | {lane}, len(before) + 1)
            self.returning.count(note, lane, gap)
            note.last = now
        self.present[key] = [*before, held]
        self.tuples += 1
        if self.tuples >= self.next_look:
            self.learn()

    def unfollow(self, held: Held) -> None:
        """A followed tuple has expired."""
        key, lane = held.key, self.lane(held)
        before = self.present[key]
        note = self.heard[key]
        rest = [other for other in before if other is not held]
        if note.returns:
            self._watch(note)
        else:
            self._leave(note, {self.lane(other) for other in before}, len(before))
        self.present[key] = rest
        if not rest:
            del self.heard[key], self.present[key]
            return
        there = {self.lane(other) for other in rest}
        if lane not in there:
            note.lost.add(lane)
        if not note.returns:
            note.first = min(self.moment(other) for other in rest)
            self._enter(note, there, len(rest))

    def _watch(self, note: Note) -> None:
        begin = (note.watched - note.last) / self.horizon
        end = (self.now() - note.last) / self.horizon
        self.returning.watch(note, (note.last - note.begin) / self.horizon, begin, end)
        note.watched = self.now()

    def _place(self, note: Note, there: set[int], rows: int) -> tuple[int, int, int]:
        age = bucket(self.now() - note.first, self.horizon)
        return int(bool(note.lost)), self.prospects.state(there, rows), age

    def _enter(self, note: Note, there: set[int], rows: int) -> None:
        self.prospects.flow[self._place(note, there, rows)] += 1.0

    def _leave(self, note: Note, there: set[int], rows: int) -> tuple[int, int, int]:
        place = self._place(note, there, rows)
        self.prospects.flow[place] -= 1.0
        self.gone += 1
        return place

    def learn(self) -> None:
        """Make of what was heard what is expected; forget now and then."""
        present = np.zeros_like(self.prospects.flow)
        for key, rows in self.present.items():
            if not self.heard[key].returns:
                there = {self.lane(held) for held in rows}
                present[self._place(self.heard[key], there, len(rows))] += 1.0
        self.prospects.look_forward(present)
        self.returning.regress()
        if self.next_look == 0:
            self.since = self.now()
        elif self.now() - self.since >= self.horizon and self.gone >= 500:
            self.prospects.forget(present)
            self.returning.fade()
            self.since, self.gone = self.now(), 0
        self.next_look = self.tuples + max(64, min(self.tuples // 8, 4096))


class _Listener(Rule):
    """Writes down what happens in the join without a budget for one arrival."""

    def begin(self) -> None:
        """A new arrival."""
        self.expired: list[Held] = []
        self.pushed_out: list[Held] = []
        self.newcomer: Held | None = None
        self.results = 0

    def left(self, held: Held) -> None:
        """Expired before the newcomer probes, or pushed out by it."""
        (self.expired if self.newcomer is None else self.pushed_out).append(held)

    def arrives(self, newcomer: Held) -> None:
        """Probing begins."""
        self.newcomer = newcomer

    def made(self, members: list[Held]) -> None:
        """A result."""
        self.results += 1
