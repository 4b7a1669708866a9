"""The life table of keys that do not return (docs/meaning.md, Density), with dicts.

A state is the set of streams that a key came to, or how many streams or rows that were. Sums are
made in the order of ages, of streams, and the return last.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import combinations

State = frozenset[int] | int
Way = int | str

AGES, PART, CELLS = 144, 16, 4096
DOUBLINGS = AGES // PART
PRICES = (1 / 64, 1 / 4, 4.0, 64.0)
FIRM, HOPE = 4.0, 0.5
MOVE, RETURN, MORE = "move", "return", "more"
MOST_NAMED, MOST_ROWS = 6, 63


def bucket(age: int, window: float) -> int:
    """The bucket of an age or a gap; what is beyond a window is in the last."""
    cell = min(max(int(float(age) * (CELLS / (window + 1.0))), 0), CELLS - 1)
    doubled = 0
    while cell >= 2 * PART:
        cell, doubled = cell // 2, doubled + 1
    return doubled * PART + cell


WIDTH = [2.0 ** max(age // PART - 1, 0) / CELLS for age in range(AGES)]
START = [age / CELLS if age < PART else (PART + age % PART) * WIDTH[age] for age in range(AGES)]
MIDDLE = [begin + width / 2 for begin, width in zip(START, WIDTH, strict=True)]
"""How wide a bucket is, where it begins, and its middle, as parts of a window."""


class Lives:
    """Who entered and left each state, what happened there, and what that promises.

    Args:
        lanes: the number of streams, or 1 where a column tells them apart.
        at_least: streams that a result needs.
    """

    def __init__(self, lanes: int, at_least: int) -> None:
        self.lanes, self.at_least = lanes, at_least
        self.named = 1 < lanes <= MOST_NAMED
        self.most = MOST_ROWS if lanes == 1 else lanes
        self.flow: dict[tuple[State, int], float] = defaultdict(float)
        self.events: dict[tuple[int, int, str], float] = defaultdict(float)
        self.moved: dict[tuple[State, int, Way], float] = defaultdict(float)

    # -- states

    def state(self, there: set[int], rows: int) -> State:
        """The state of a key that is in some streams, with so many rows."""
        if self.lanes == 1:
            return min(rows, MOST_ROWS)
        return frozenset(there) if self.named else len(there)

    def size(self, state: State) -> int:
        """How many streams, or rows."""
        return state if isinstance(state, int) else len(state)

    def states(self) -> list[State]:
        """All of them, from more streams to fewer."""
        sizes = range(self.most, 0, -1)
        if not self.named:
            return list(sizes)
        return [frozenset(some) for n in sizes for some in combinations(range(self.lanes), n)]

    def ways(self, state: State) -> list[tuple[Way, State]]:
        """The moves out of a state, and where they lead."""
        if isinstance(state, int):
            return [(MORE, state + 1)] if state < self.most else []
        return [(lane, state | {lane}) for lane in range(self.lanes) if lane not in state]

    def missing(self, size: int) -> int:
        """The moves that a key in so many streams can make: what is only counted has one."""
        return self.most - size if self.named else int(size < self.most)

    # -- what is counted

    def enter(self, state: State, age: int) -> None:
        """A key has entered a state."""
        self.flow[state, age] += 1.0

    def leave(self, state: State, age: int) -> None:
        """A key has left a state, for whatever reason."""
        self.flow[state, age] -= 1.0

    def move(self, state: State, age: int, lane: int) -> None:
        """A key has come to a further stream: it leaves its state."""
        self.leave(state, age)
        self.events[self.size(state), age, MOVE] += 1.0
        self.moved[state, age // PART, lane if self.named else MORE] += 1.0

    def come_back(self, state: State, age: int) -> None:
        """A key has come again to a stream: it leaves its state for good."""
        self.leave(state, age)
        self.events[self.size(state), age, RETURN] += 1.0
        self.moved[state, age // PART, RETURN] += 1.0

    def forget(self, present: Counter[tuple[State, int]]) -> None:
        """All counts half; keys that are there count in full from now on."""
        for table in (self.flow, self.events, self.moved):
            for place in table:
                table[place] *= 0.5
        for place, keys in present.items():
            self.flow[place] += 0.5 * keys

    # -- what is expected

    def there(self, present: Counter[tuple[State, int]]) -> dict[State, list[float]]:
        """How many keys were in a state in each bucket."""
        found = {}
        for state in self.states():
            inside, keys = 0.0, []
            for age in range(AGES):
                change = self.flow.get((state, age), 0.0) - present[state, age]
                keys.append(max(inside + 0.5 * change, 0.0))
                inside = max(inside + change, 0.0)
            found[state] = keys
        return found

    def course(self, there: dict[State, list[float]]) -> dict[tuple[int, int, str], float]:
        """The rate of an event by number of streams and bucket."""
        found = {}
        for size in range(1, self.most + 1):
            alike = [there[state] for state in there if self.size(state) == size]
            keys = [sum(ages) for ages in zip(*alike, strict=True)]
            for event, ways in ((MOVE, self.missing(size)), (RETURN, 1)):
                for doubling in range(DOUBLINGS if ways else 0):
                    ages = range(doubling * PART, (doubling + 1) * PART)
                    span = PART * WIDTH[ages[0]]
                    hope = 0.0
                    if event == MOVE:
                        hope = HOPE * span / (START[ages[0]] + 0.5 * span) / ways
                    time = events = 0.0
                    for age in ages:
                        time += keys[age] * WIDTH[age] * ways
                        events += self.events.get((size, age, event), 0.0)
                    rate = (events + hope) / (time + span)
                    for age in ages:
                        happened = self.events.get((size, age, event), 0.0)
                        expected = keys[age] * WIDTH[age] * ways * rate
                        found[size, age, event] = rate * (happened + FIRM) / (expected + FIRM)
        return found

    def factor(
        self,
        there: dict[State, list[float]],
        course: dict[tuple[int, int, str], float],
        state: State,
        doubling: int,
        way: Way,
    ) -> float:
        """How much more often keys of a state go a way than others with as many streams."""
        event = RETURN if way == RETURN else MOVE
        expected = 0.0
        for age in range(doubling * PART, (doubling + 1) * PART):
            expected += there[state][age] * WIDTH[age] * course[self.size(state), age, event]
        return (self.moved.get((state, doubling, way), 0.0) + FIRM) / (expected + FIRM)

    def outlook(
        self, present: Counter[tuple[State, int]], worth: Callable[[int], float]
    ) -> dict[tuple[State, int], float]:
        """The density by state and bucket.

        Args:
            present: the keys that are in a state, by the bucket of their age.
            worth: the results in a window of a key that returns from so many streams.
        """
        there = self.there(present)
        course = self.course(there)
        found = {}
        # Results and row-time until the key is given up, by state; then by bucket and price.
        results: dict[State, list[list[float]]] = {}
        times: dict[State, list[list[float]]] = {}
        for state in self.states():
            size, ways = self.size(state), self.ways(state)
            factors = {
                (doubling, way): self.factor(there, course, state, doubling, way)
                for doubling in range(DOUBLINGS)
                for way in [*(way for way, _ in ways), RETURN]
            }
            enough = 1.0 if size + 1 >= self.at_least else 0.0
            again = worth(size)
            mine = results[state] = [[0.0] * len(PRICES) for _ in range(AGES + 1)]
            taken = times[state] = [[0.0] * len(PRICES) for _ in range(AGES + 1)]
            for age in range(AGES - 1, -1, -1):
                width, doubling = WIDTH[age], age // PART
                rates = [course[size, age, MOVE] * factors[doubling, w] * width for w, _ in ways]
                rates.append(course[size, age, RETURN] * factors[doubling, RETURN] * width)
                together = 0.0
                for rate in rates:
                    together += rate
                scale = 1.0 / (1.0 + together)
                left = together * scale
                *moves, back = [rate * scale for rate in rates]
                remaining = 1.0 - START[age]
                density = 0.0
                for at, price in enumerate(PRICES):
                    made = (1.0 - left) * mine[age + 1][at]
                    took = size * width * (1.0 - 0.5 * left) + (1.0 - left) * taken[age + 1][at]
                    for chance, (_, after) in zip(moves, ways, strict=True):
                        more, longer = results[after], times[after]
                        made += chance * (enough + 0.5 * (more[age][at] + more[age + 1][at]))
                        took += chance * (0.5 * (longer[age][at] + longer[age + 1][at]))
                    if again > price * (size + 1):
                        made += back * (again * remaining)
                        took += back * ((size + 1) * remaining)
                    density = max(density, made / took)
                    if made > price * took:
                        mine[age][at], taken[age][at] = made, took
                found[state, age] = density
        return found
