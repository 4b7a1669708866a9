"""Life tables of keys, and what they promise (docs/meaning.md, Density), on whole arrays.

Sums are made in the order of ages and streams, so that they are the same to the last bit.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

AGES, PART, CELLS = 144, 16, 4096
DOUBLINGS = AGES // PART
PRICES = np.array([2.0**-6, 2.0**-2, 2.0**2, 2.0**6])
MOVE, RETURN, YIELD = range(3)
FIRM = 4.0

WIDTH = np.array([float(1 << max(age // PART - 1, 0)) / CELLS for age in range(AGES)])


def bucket(age: int, horizon: float) -> int:
    """The bucket of an age."""
    cell = min(max(int(float(age) * (CELLS / (horizon + 1.0))), 0), CELLS - 1)
    halvings = max(cell.bit_length() - 5, 0)
    return halvings * PART + (cell >> halvings)


class Prospects:
    """The tables; a state is a set of streams as a number, or how many streams or rows there are.

    Args:
        lanes: the number of streams, or 1 where a column tells them apart.
        at_least: streams that a result needs.
    """

    def __init__(self, lanes: int, at_least: int) -> None:
        self.lanes, self.at_least = lanes, at_least
        self.named = 1 < lanes <= 6
        self.sizes = 64 if lanes == 1 else lanes + 1
        self.states = 1 << lanes if self.named else self.sizes
        self.moves = lanes if self.named else 1
        self.size = np.array(
            [state.bit_count() if self.named else state for state in range(self.states)]
        )
        self.flow = np.zeros((2, self.states, AGES))
        self.events = np.zeros((2, self.sizes, AGES, 3))
        self.moved = np.zeros((2, self.states, DOUBLINGS, self.moves))
        self.returned = np.zeros((2, self.states, DOUBLINGS, 2))
        self.gained = np.zeros((2, self.states, self.moves))
        self.index = np.zeros((2, self.states, AGES))

    def state(self, there: set[int], rows: int) -> int:
        """The state of a key that is in some streams, with so many rows."""
        if self.lanes == 1:
            return min(rows, 63)
        return sum(1 << lane for lane in there) if self.named else len(there)

    def after(self, state: int, move: int) -> int | None:
        """The state to which a move leads, or None if it cannot be made."""
        if self.named:
            return None if state >> move & 1 else state | 1 << move
        return state + 1 if state + 1 < self.states else None

    def move(self, kind: int, state: int, age: int, lane: int, results: float) -> None:
        """A key has come to a further stream."""
        move = lane if self.named else 0
        self.moved[kind, state, age // PART, move] += 1
        self.gained[kind, state, move] += results
        self.events[kind, self.size[state], age, MOVE] += 1

    def come_back(self, kind: int, state: int, age: int, results: float) -> None:
        """A key has come again to a stream."""
        self.returned[kind, state, age // PART] += (1, results)
        self.events[kind, self.size[state], age, RETURN] += 1
        self.events[kind, self.size[state], age, YIELD] += results

    def forget(self, present: Floats) -> None:
        """All counts half; keys that are there count in full from now on."""
        for table in (self.flow, self.events, self.moved, self.returned, self.gained):
            np.multiply(table, 0.5, out=table)
        self.flow += 0.5 * present

    def look_forward(self, present: Floats) -> None:
        """Make the index; `present` counts keys by kind, state and age."""
        if any(table.any() for table in (self.flow, self.events, present)):
            self.index = self._index(present)
        else:
            self.index = _beginning(self.lanes, self.at_least).copy()

    def _index(self, present: Floats) -> Floats:
        there, exposed = self._exposure(present)
        course = self._courses(exposed)
        factor = self._factors(there, course)
        index = np.zeros_like(self.index)
        for kind in range(2):
            promise: dict[int, tuple[Floats, Floats]] = {}
            for state in range(self.states - 1, 0, -1):
                made = self._promise(kind, state, course, factor, promise)
                promise[state] = made[:2]
                index[kind, state] = made[2]
        return index

    def _exposure(self, present: Floats) -> tuple[Floats, Floats]:
        there = np.zeros_like(self.flow)
        change = self.flow - present
        inside = np.zeros((2, self.states))
        for age in range(AGES):
            there[:, :, age] = np.maximum(inside + 0.5 * change[:, :, age], 0.0)
            inside = np.maximum(inside + change[:, :, age], 0.0)
        exposed = np.zeros((2, self.sizes, AGES))
        for state in range(1, self.states):
            exposed[:, self.size[state]] += there[:, state]
        return there, exposed

    def _courses(self, exposed: Floats) -> Floats:
        course = np.zeros_like(self.events)
        for kind in range(2):
            for size in range(1, self.sizes):
                ways = self.lanes - size if self.named else int(size + 1 < self.sizes)
                for doubling in range(DOUBLINGS):
                    ages = slice(doubling * PART, (doubling + 1) * PART)
                    width = WIDTH[doubling * PART]
                    span = PART * width
                    begin = PART * width if doubling else 0.0
                    hope = (0.05 if kind else 0.5) / (begin + 0.5 * span)
                    for event in range(3):
                        times = ways if event == MOVE else 1
                        watched = exposed[kind, size, ages] * times * width
                        happened = _sum(self.events[kind, size, ages, event])
                        if event == MOVE and ways > 0:
                            happened += span * hope / ways
                        rate = happened / (_sum(watched) + span)
                        seen = self.events[kind, size, ages, event] + FIRM
                        course[kind, size, ages, event] = rate * seen / (watched * rate + FIRM)
        return course

    def _factors(self, there: Floats, course: Floats) -> Floats:
        factor = np.zeros((2, self.states, DOUBLINGS, self.moves + 2))
        expected = there[..., None] * WIDTH[:, None] * course[:, self.size]
        for doubling in range(DOUBLINGS):
            sums = np.zeros((2, self.states, 3))
            for age in range(doubling * PART, (doubling + 1) * PART):
                sums = sums + expected[:, :, age]
            moved, back = self.moved[:, :, doubling], self.returned[:, :, doubling]
            factor[:, :, doubling, : self.moves] = (moved + FIRM) / (sums[:, :, :1] + FIRM)
            factor[:, :, doubling, self.moves :] = (back + FIRM) / (sums[:, :, 1:] + FIRM)
        return factor

    def _promise(
        self,
        kind: int,
        state: int,
        course: Floats,
        factor: Floats,
        promise: dict[int, tuple[Floats, Floats]],
    ) -> tuple[Floats, Floats, Floats]:
        """Results and time by (age, price), and the index by age, from the oldest age on."""
        results, time = np.zeros((AGES + 1, 4)), np.zeros((AGES + 1, 4))
        index = np.zeros(AGES)
        ways = [
            (move, after, self._gain(kind, state, move, after))
            for move in range(self.moves)
            if (after := self.after(state, move)) is not None
        ]
        size = int(self.size[state])
        ages = np.arange(AGES)
        rates = course[kind, size] * 1.0
        factors = factor[kind, state, ages // PART]
        backs = rates[:, RETURN] * factors[:, self.moves] * WIDTH
        yields = rates[:, YIELD] * factors[:, self.moves + 1] * WIDTH
        chances = rates[:, MOVE, None] * factors[:, : self.moves] * WIDTH[:, None]
        left = backs
        for move, _, _ in ways:
            left = left + chances[:, move]
        scale = 1.0 / (1.0 + left)
        stays = 1.0 - left * scale
        makes = yields * scale
        takes = size * WIDTH * (1.0 - 0.5 * (left * scale))
        chances = chances * scale[:, None]
        for age in range(AGES - 1, -1, -1):
            made = makes[age] + stays[age] * results[age + 1]
            took = takes[age] + stays[age] * time[age + 1]
            for move, after, gain in ways:
                more, longer = promise[after]
                made = made + chances[age, move] * (gain + 0.5 * (more[age] + more[age + 1]))
                took = took + chances[age, move] * (0.5 * (longer[age] + longer[age + 1]))
            index[age] = max(0.0, (made / took).max())
            kept = made > PRICES * took
            results[age], time[age] = np.where(kept, made, 0.0), np.where(kept, took, 0.0)
        return results, time, index

    def _gain(self, kind: int, state: int, move: int, after: int) -> float:
        happened = 1.0
        for doubling in range(DOUBLINGS):
            happened += self.moved[kind, state, doubling, move]
        enough = 1.0 if self.size[after] >= self.at_least else 0.0
        return (self.gained[kind, state, move] + enough) / happened


@cache
def _beginning(lanes: int, at_least: int) -> Floats:
    """The index before anything is known."""
    tables = Prospects(lanes, at_least)
    return tables._index(np.zeros_like(tables.flow))


def _sum(values: Floats) -> float:
    total = 0.0
    for value in values.tolist():
        total += value
    return total
