"""The density rule (docs/meaning.md, Density), by scanning whatever there is to scan."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from .lives import MOST_NAMED, Lives, State, bucket
from .recurrence import BURST, FAST, GAPS, SLOW, Recurrence
from .rows import Key, Stream, Workload
from .rules import MASK, Held, Random, Windows, draw, hash_of, mix

PRIOR, ROUNDS, ROUGHNESS, TURNS = 4.0, 20, 0.02, 0.2
FRONT, DRAWN, SMALL = 16, 4, 64
PATIENCE, SHY, LEAST, PARTNERS = 4, 0.05, 1e-9, 0.5
PLACES, ALL_REGARDED = 8192, 4096
SOONEST, LATEST, RENEWAL = 64, 4096, 500


def single(number: float) -> float:
    """A number as it is noted, with 24 bits."""
    return float(np.float32(number))


@dataclass
class Note:
    """What is known of a key; the last four have an entry for each stream."""

    begin: int
    last: int
    first: int
    lanes: set[int]
    """The streams that it came to in this life; if it returns, ever."""
    fast: list[float]
    slow: list[float]
    fast_to_come: list[float]
    slow_to_come: list[float]
    rows: int = 1
    """Rows that came in this life, which tell the state where a column tells streams apart."""
    lost: set[int] = field(default_factory=set)
    returns: bool = False
    heard: int = 0
    """The bin of gaps until which its present silence was learned."""
    opened: int = 0
    """The bin of the gap that its present burst ended."""


class Excitement:
    """Arrivals excite arrivals: the weights A and B, and the sums that they are found from.

    The fast counts of all streams come first, then their slow ones.
    """

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.rates = [1.0 / FAST] * lanes + [1.0 / SLOW] * lanes
        both = range(2 * lanes)
        others = max(lanes - 1, 1)
        self.weights = [
            [0.25 if place % lanes == lane else 1.0 / (4.0 * others) for place in both]
            for lane in range(lanes)
        ]
        self.first = [weights.copy() for weights in self.weights]
        self.sums = [[0.0 for _ in both] for _ in both]
        self.targets = [[0.0 for _ in both] for _ in range(lanes)]

    def ripe(self, known: float) -> float:
        """What makes up for the time that a key is not known for."""
        return SLOW / (SLOW * (1.0 - math.exp(-known / SLOW)) + 0.5)

    def learn(self, note: Note, window: float, gap: float, lane: int | None) -> None:
        """After a gap the key has come to a stream, or to none."""
        if self.lanes > MOST_NAMED:
            return
        ripe = self.ripe((note.last - note.begin) / window)
        fast, slow = math.exp(-gap / FAST), math.exp(-gap / SLOW)
        lanes = range(self.lanes)
        total = 0.0
        for lane_ in lanes:
            total += note.fast[lane_] + note.slow[lane_] * ripe
        weight = self.lanes / (ROUGHNESS * self.lanes + total)
        # Integrals over the gap of fast times fast, slow times slow, and fast times slow.
        fasts = 0.5 * FAST * (1.0 - fast * fast)
        slows = 0.5 * SLOW * (1.0 - slow * slow) * ripe * ripe
        both = (1.0 - fast * slow) / (1.0 / FAST + 1.0 / SLOW) * ripe
        for one in lanes:
            x, y = weight * note.fast[one], weight * note.slow[one]
            for other in range(one + 1):
                quick, steady = other, self.lanes + other
                self._add(one, quick, x * note.fast[other] * fasts)
                if other < one:
                    self._add(one, steady, x * note.slow[other] * both)
                self._add(self.lanes + one, quick, y * note.fast[other] * both)
                self._add(self.lanes + one, steady, y * note.slow[other] * slows)
            if lane is not None:
                self.targets[lane][one] += x * fast
                self.targets[lane][self.lanes + one] += y * slow * ripe

    def _add(self, one: int, other: int, product: float) -> None:
        """Add to a sum of products, which is the same in either order."""
        self.sums[one][other] += product
        if one != other:
            self.sums[other][one] += product

    def expect(self, note: Note, window: float) -> float:
        """Note what is to come of each stream in a window; the sum of it."""
        ripe = self.ripe((note.last - note.begin) / window)
        total = 0.0
        for lane, weights in enumerate(self.weights):
            fast = slow = 0.0
            for other in range(self.lanes):
                fast += weights[other] * note.fast[other]
                slow += weights[self.lanes + other] * note.slow[other]
            note.fast_to_come[lane] = single(fast)
            note.slow_to_come[lane] = single(ripe * slow)
            total += fast + slow * ripe
        return total

    def regress(self) -> None:
        """Least squares for each stream, no weight below 0."""
        if self.lanes > MOST_NAMED:
            return
        for weights, targets, first in zip(self.weights, self.targets, self.first, strict=True):
            # Stream by stream, of each first the fast count, then the slow one.
            places = [place for lane in range(self.lanes) for place in (lane, self.lanes + lane)]
            for _ in range(ROUNDS):
                for one in places:
                    left = targets[one] + PRIOR * first[one]
                    for other in places:
                        if other != one:
                            left -= self.sums[one][other] * weights[other]
                    weights[one] = max(left / (self.sums[one][one] + PRIOR), 0.0)

    def fade(self) -> None:
        """All sums half."""
        self.sums = [[0.5 * number for number in row] for row in self.sums]
        self.targets = [[0.5 * number for number in row] for row in self.targets]


class Density(Random):
    """The key that promises the fewest results for the room it takes."""

    def __init__(self, workload: Workload, windows: Windows) -> None:
        """Start with nothing known."""
        super().__init__(workload, windows)
        self.lanes = 1 if workload.by else len(workload.names)
        self.complete = workload.at_least is None
        rows = sum(size for kind, size in workload.windows if kind == "last")
        self.horizon = float(max(max(workload.lengths) if workload.timed else rows, 1))
        self.lives = Lives(self.lanes, self.lanes if self.complete else workload.at_least)
        self.excitement = Excitement(self.lanes)
        self.recurrence = Recurrence(self.lanes)
        self.fresh_keys = self.fresh_arrivals = 0.0
        self.outlook: dict[tuple[State, int], float] = {}
        rows = workload.keep_total or sum(rows or 0 for rows in workload.keep_rows or ())
        self.places = 2 ** (min(max(PLACES, rows), 2**20).bit_length() - 1)
        self.ghosts: dict[int, tuple[int, Note]] = {}
        self.notes: dict[Key, Note] = {}
        self.turns: Counter[Stream | None] = Counter()
        self.fronts: dict[Stream | None, list[float | None]] = {}
        self.newest: int | None = None
        self.noted = self.next_look = self.since = self.again = 0
        self.asked: Held | None = None
        self.chosen: Held | None = None

    # -- time and place

    def now(self) -> int:
        """The newest time, or the number of the latest arrival."""
        assert self.newest is not None
        return self.newest

    def moment(self, held: Held) -> int:
        """When a tuple came."""
        return held.time if self.workload.timed else held.arrival

    def age(self, note: Note) -> int:
        """The age of a key's life; up to a window it is in a state."""
        return self.now() - note.first

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

    def in_lane(self, key: Key, lane: int) -> list[Held]:
        """Those of them that are in one stream."""
        return [held for held in self.all_of(key) if self.lane(held) == lane]

    def pool(self, held: Held) -> Stream | None:
        """Which list a tuple is in."""
        return None if self.workload.keep_rows is None else held.stream

    # -- what is noted

    def note_arrival(self, newcomer: Held) -> None:
        """A tuple is about to be stored or refused."""
        self.noted += 1
        key, lane = newcomer.key, self.lane(newcomer)
        if key not in self.notes and not self.recall(key):
            self.meet(newcomer)
        else:
            self.meet_again(self.notes[key], lane, self.moment(newcomer))
        self.look_at((self.noted - 1) % self.places)
        if self.noted == 1:
            self.since = self.now()
        if self.noted >= self.next_look:
            self.find_anew()

    def meet(self, newcomer: Held) -> None:
        """A new key."""
        lane, now = self.lane(newcomer), self.now()
        none = [0.0] * self.lanes
        note = Note(now, now, self.moment(newcomer), {lane}, *(none.copy() for _ in range(4)))
        note.fast[lane] = single(1.0 / FAST)
        note.slow[lane] = single(1.0 / SLOW)
        self.notes[newcomer.key] = note
        self.enter(note)

    def meet_again(self, note: Note, lane: int, moment: int) -> None:
        """A key that is known has come."""
        returned = note.returns
        if not returned:
            self.again += 1
            self.live_on(note, lane, moment)
        gap = (self.now() - note.last) / self.horizon
        if returned:
            place = self.recurrence.bin(gap, self.horizon)
            self.hear(note, place, lane)
            if self.regarded():
                self.excitement.learn(note, self.horizon, gap, lane)
            if self.age(note) >= BURST * self.horizon:
                note.first, note.opened = self.now(), place
        note.heard = 0
        if note.returns:
            note.lanes.add(lane)
        fast, slow = single(math.exp(-gap / FAST)), single(math.exp(-gap / SLOW))
        note.fast = [single(count * fast) for count in note.fast]
        note.slow = [single(count * slow) for count in note.slow]
        note.fast[lane] = single(note.fast[lane] + single(1.0 / FAST))
        note.slow[lane] = single(note.slow[lane] + single(1.0 / SLOW))
        note.last = self.now()
        if note.returns or note.lost:
            expected = self.excitement.expect(note, self.horizon)
            if note.returns and not returned:
                self.fresh_keys += 1.0
                self.fresh_arrivals += expected

    def hear(self, note: Note, until: int, lane: int | None) -> None:
        """A key was silent until a bin of gaps, and has come to a stream then, or to none."""
        to_come = note.fast_to_come, note.slow_to_come
        self.recurrence.hear(note.lanes, *to_come, note.heard, until, lane)
        if lane is not None:
            part = min(self.age(note) / (BURST * self.horizon), 1.0)
            self.recurrence.come(
                note.lanes, *to_come, [(until, part), (note.opened, 1.0 - part)], lane
            )
        note.heard = until

    def regarded(self) -> bool:
        """Whether a gap that ends now is learned from."""
        return self.noted <= ALL_REGARDED or mix(self.noted) % 4 == 0

    def live_on(self, note: Note, lane: int, moment: int) -> None:
        """A key that does not return has come again: its life is over, or goes on."""
        over = self.age(note) > self.horizon
        if self.workload.by and over:
            note.first, note.rows = moment, 1
            self.enter(note)
        elif over:
            note.returns = True
        elif lane in note.lanes and not self.workload.by:
            self.lives.come_back(*self.place(note))
            note.returns = True
        else:
            self.lives.move(*self.place(note), lane)
            note.lanes.add(lane)
            note.rows += 1
            note.first = min(note.first, moment)
            self.enter(note)

    def place(self, note: Note) -> tuple[State, int]:
        """The state that a key is in, and the bucket of its age."""
        return self.lives.state(note.lanes, note.rows), bucket(self.age(note), self.horizon)

    def enter(self, note: Note) -> None:
        """A key has entered its state."""
        self.lives.enter(*self.place(note))

    def leave(self, note: Note) -> None:
        """Nothing more will be known of a key that does not return."""
        if self.age(note) <= self.horizon:
            self.lives.leave(*self.place(note))

    # -- ghosts

    def recall(self, key: Key) -> bool:
        """Whether a key has a ghost, which then is what is noted of it."""
        for place in self.places_of(key):
            tag, ghost = self.ghosts.get(place, (None, None))
            if ghost is None or tag != hash_of(self.workload, key) >> 32 or self.is_over(ghost):
                continue
            self.notes[key] = ghost
            del self.ghosts[place]
            return True
        return False

    def places_of(self, key: Key) -> list[int]:
        """The two places that the ghost of a key may have."""
        place = hash_of(self.workload, key) % self.places
        return [place, place ^ 1]

    def is_over(self, ghost: Note) -> bool:
        """Whether a key has not come for so long that it is forgotten."""
        return self.now() - ghost.last > PATIENCE * self.horizon

    def vanish(self, key: Key) -> None:
        """A key has no row any more, or was refused without one."""
        note = self.notes.pop(key)
        if self.workload.by:
            self.leave(note)
            return
        both = self.places_of(key)
        free = [place for place in both if place not in self.ghosts]
        place = free[0] if free else min(both, key=lambda place: self.ghosts[place][1].last)
        if not free:
            self.dismiss(place)
        self.ghosts[place] = hash_of(self.workload, key) >> 32, note

    def dismiss(self, place: int) -> None:
        """Forget a ghost, and learn from that nobody came."""
        _, ghost = self.ghosts.pop(place)
        if not ghost.returns:
            self.leave(ghost)
            return
        gap = (self.now() - ghost.last) / self.horizon
        self.hear(ghost, self.recurrence.bin(gap, self.horizon) if gap < PATIENCE else GAPS, None)
        if self.regarded():
            self.excitement.learn(ghost, self.horizon, min(gap, float(PATIENCE)), None)

    def look_at(self, place: int) -> None:
        """Dismiss the ghost in a place if its time is over."""
        if place in self.ghosts and self.is_over(self.ghosts[place][1]):
            self.dismiss(place)

    # -- what is found anew

    def present(self) -> Counter[tuple[State, int]]:
        """The keys that are in a state, ghosts and the newcomer's among them."""
        everyone = [*self.notes.values(), *(ghost for _, ghost in self.ghosts.values())]
        inside = [note for note in everyone if not note.returns and self.age(note) <= self.horizon]
        return Counter(self.place(note) for note in inside)

    def worth(self, size: int) -> float:
        """The results in a window of a key that comes back from so many streams."""
        if self.lanes == 1:
            return 0.0
        each = TURNS * (self.fresh_arrivals + 2.0) / (self.fresh_keys + 2.0) / self.lanes
        missing = self.lanes - size if self.complete else max(self.lives.at_least - size, 0)
        found = size * each * min(each, 1.0) ** missing
        if missing > 0:
            found += missing * each * min(each, 1.0) ** (missing - 1)
        return found

    def find_anew(self) -> None:
        """Make of what was counted what is expected; forget now and then."""
        for note in [*self.notes.values(), *(ghost for _, ghost in self.ghosts.values())]:
            until = self.recurrence.bin((self.now() - note.last) / self.horizon, self.horizon)
            if note.returns and until > note.heard:
                self.hear(note, until, None)
        present = self.present()
        if self.lives.events or any(n != present[at] for at, n in self.lives.flow.items()):
            self.outlook = self.lives.outlook(present, self.worth)
        else:
            self.outlook = _beginning(self.lanes, self.lives.at_least)
        self.recurrence.find_anew()
        self.excitement.regress()
        if self.now() - self.since >= self.horizon and self.again >= RENEWAL:
            self.lives.forget(present)
            self.excitement.fade()
            self.recurrence.fade()
            self.fresh_keys *= 0.5
            self.fresh_arrivals *= 0.5
            self.since, self.again = self.now(), 0
        latest = max(LATEST, self.places // 4)
        self.next_look = self.noted + max(SOONEST, min(self.noted // 8, latest))

    # -- what a key promises

    def density(self, key: Key, lane: int, newcomer: Held | None = None) -> float:
        """Results per window that a row of a key in a stream promises, as it is compared."""
        return single(self.promise(key, lane, newcomer))

    def promise(self, key: Key, lane: int, newcomer: Held | None) -> float:
        """The same with all its digits."""
        note = self.notes[key]
        if note.returns:
            return self.excited(key, lane)
        if self.complete and note.lost:
            return SHY * self.excited(key, lane)
        rows = self.all_of(key) + ([] if newcomer is None else [newcomer])
        state = self.lives.state({self.lane(held) for held in rows}, len(rows))
        return self.outlook[state, bucket(self.age(note), self.horizon)]

    def excited(self, key: Key, lane: int) -> float:
        """The same by the key's arrivals."""
        note, now = self.notes[key], self.now()
        mine = self.in_lane(key, lane)
        left = max(1.0 - (now - self.moment(mine[0])) / self.horizon, 0.0) if mine else 1.0
        gap = bucket(now - note.last, self.horizon)
        rates, crowds, kept = {}, {}, 1
        for other in range(self.lanes):
            if other == lane:
                continue
            to_come = note.fast_to_come[other], note.slow_to_come[other]
            rate, later = self.recurrence.rates(other, gap, *to_come)
            factor = self.recurrence.of_set(note.lanes, other)
            rate, later = rate * factor, later * factor
            stored = len(self.in_lane(key, other))
            kept += stored
            rows = float(stored) if self.bounded(other) else rate
            crowd = max(rows, PARTNERS * left * min(later, math.sqrt(later)))
            if not self.complete:
                crowd = max(crowd, 1.0)
            rates[other], crowds[other] = rate, max(crowd, LEAST)
        product = math.prod(crowds.values())
        promised = sum(rate / crowds[other] for other, rate in rates.items())
        return product * promised * math.sqrt(left * max(kept / self.lanes, 1.0))

    # -- who leaves

    def front(self, pool: Stream | None) -> list[float | None]:
        """What those in front promised when they were last looked at, None where not known."""
        size = self.workload.keep_total
        if size is None:
            assert self.workload.keep_rows is not None
            assert pool is not None
            size = self.workload.keep_rows[self.workload.position(pool)]
        return self.fronts.setdefault(pool, [None] * (size if size <= SMALL else FRONT))

    def look(self, held: Held) -> float:
        """What a stored tuple promises."""
        return self.density(held.key, self.lane(held))

    def choose(self, window: list[Held], newcomer: Held) -> tuple[Held, float]:
        """The lowest that is found, and what it promises."""
        pool, places = self.pool(newcomer), self._list(newcomer)
        front = self.front(pool)
        filled = range(min(len(front), len(places)))
        # 1. Look at those in front.
        self.turns[pool] = (self.turns[pool] + 1) % len(front)
        front[self.turns[pool]] = None
        for place in filled:
            if front[place] is None:
                front[place] = self.look(places[place])
        # 2. Draw some (all are in front where a window is small).
        word = draw(self.workload.seed, newcomer.arrival)
        for _ in range(DRAWN):
            drawn = (word >> 32) * len(places) >> 32
            word = mix((word + 0x9E3779B97F4A7C15) & MASK)
            highest = max(filled, key=lambda place: front[place])  # the first of these
            if drawn >= len(front) and (value := self.look(places[drawn])) < front[highest]:
                places[highest], places[drawn] = places[drawn], places[highest]
                front[highest] = value
        # 3. The lowest.
        oldest = min(window, key=lambda held: held.age)
        value = self.look(oldest)
        while True:  # up to once for each: who was looked at again is no lower the next time
            lowest = min(filled, key=lambda place: front[place])  # the first of these
            remembered = front[lowest]
            if remembered >= value:
                return oldest, value
            front[lowest] = self.look(places[lowest])
            if front[lowest] <= remembered:
                return places[lowest], front[lowest]

    def refuses(self, window: list[Held], newcomer: Held) -> bool:
        """Whether the newcomer promises less than whoever would have to leave."""
        key, lane = newcomer.key, self.lane(newcomer)
        self.note_arrival(newcomer)
        self.asked = newcomer
        promised = self.density(key, lane, newcomer)
        mine = self.in_lane(key, lane)
        instead = self.notes[key].returns and bool(mine)
        if promised > 0.0 or instead:
            lowest, value = self.choose(window, newcomer)
            if promised > 0.0 and promised >= value:
                self.chosen = self.in_lane(lowest.key, self.lane(lowest))[0]
                return False
            if instead:
                self.chosen = mine[0]
                return False
        self.asked = None
        if not mine:
            self.lose(key, lane)
        return True

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """Who was chosen when the newcomer was admitted."""
        assert self.chosen is not None
        return self.chosen

    def put_in_front(self, key: Key) -> None:
        """The newest tuple of a key in each stream goes to the front of its list."""
        for lane in range(self.lanes):
            rows = self.in_lane(key, lane)
            if not rows or not self.bounded(lane):
                continue
            pool, places = self.pool(rows[-1]), self._list(rows[-1])
            place = places.index(rows[-1])
            front = self.front(pool)
            if place >= len(front):
                turn = self.turns[pool]
                places[turn], places[place] = places[place], places[turn]
                self.turns[pool] = (turn + 1) % len(front)
                place = turn
            front[place] = None

    def lose(self, key: Key, lane: int) -> None:
        """A stream does not hold a key any more, or did not take it."""
        note = self.notes[key]
        whole = not note.lost
        note.lost.add(lane)
        coming = self.asked is not None and self.asked.key == key
        if not self.known(key) and not coming:
            self.vanish(key)
        elif whole and self.complete and not note.returns:
            self.put_in_front(key)

    # -- what the simulator tells

    def advances(self, newcomer: Held) -> None:
        """Time goes on."""
        came = self.moment(newcomer)
        if self.workload.timed and self.time is not None:
            came = self.time
        self.newest = came if self.newest is None else max(self.newest, came)

    def arrives(self, newcomer: Held) -> None:
        """Take notice of the tuples of streams without a budget."""
        key = newcomer.key
        if self.bounded(self.lane(newcomer)):
            return
        self.note_arrival(newcomer)
        if not self.known(key):
            self.vanish(key)
        elif self.is_everywhere(key):
            self.put_in_front(key)

    def is_everywhere(self, key: Key) -> bool:
        """Whether all streams hold a key that does not return."""
        held = {self.lane(row) for row in self.all_of(key)}
        return not self.workload.by and not self.notes[key].returns and len(held) == self.lanes

    def stored(self, held: Held) -> None:
        """Take notice, unless that was done; a key in all streams goes to the front."""
        lane = self.lane(held)
        if not self.bounded(lane):
            return
        if self.asked is not held:
            self.note_arrival(held)
        self.asked = None
        self.notes[held.key].lost.discard(lane)
        super().stored(held)
        place, front = len(self._list(held)) - 1, self.front(self.pool(held))
        if place < len(front):
            front[place] = None
        if self.is_everywhere(held.key):
            self.put_in_front(held.key)

    def left(self, held: Held) -> None:
        """A key that has left is but a ghost; one that is left in part has lost something."""
        lane = self.lane(held)
        if not self.bounded(lane):
            return
        places, front = self._list(held), self.front(self.pool(held))
        for place in (places.index(held), len(places) - 1):
            if place < len(front):
                front[place] = None
        super().left(held)
        if not self.in_lane(held.key, lane):
            self.lose(held.key, lane)


@cache
def _beginning(lanes: int, at_least: int) -> dict[tuple[State, int], float]:
    """The outlook before anything is known: no returns are hoped for."""
    return Lives(lanes, at_least).outlook(Counter(), lambda size: 0.0)
