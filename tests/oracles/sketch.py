"""The policies that go by what rows are expected to make (docs/meaning.md), on lists and dicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np

from .rows import Stream, Workload
from .rules import Held, Rule, Windows, draw, hash_of

PRIME = 2**61 - 1
COPIES, GROUPS, BITS = 100, 1, 60
WORDS = -(-COPIES // BITS)

Attributes = dict[int, int]
"""The hash of each attribute of a tuple."""


class Expecting(Rule):
    """What the streams' pasts are cut into, and who stands lowest."""

    aging = False
    waits = False
    """Whether tuples wait in a queue, and were learned of when they came there."""
    as_written = False
    """Whether they stand there by their promise, and are learned of when they are taken."""

    def __init__(self, workload: Workload, windows: Windows) -> None:
        """Start with nothing known."""
        super().__init__(workload, windows)
        self.attributes_of: Callable[[Held], Attributes] = self.shared_key
        self.own: dict[Stream, list[int]] = {name: [0] for name in workload.names}
        self.newest: int | None = None
        self.first: int | None = None
        self.entered: Counter[Stream] = Counter()
        self.pieces: dict[Stream, int] = {}
        self.tumbled: set[Stream] = set()
        self.promise: dict[Held, float] = {}
        self.taken = dict.fromkeys(workload.names, 0.0)

    def shared_key(self, held: Held) -> Attributes:
        """A shared key is one attribute."""
        return {0: hash_of(self.workload, held.key)}

    def arrives(self, newcomer: Held) -> None:
        """Let pasts tumble, learn of the newcomer, and find what it promises."""
        self.newest = max(newcomer.time, newcomer.time if self.newest is None else self.newest)
        self.first = newcomer.time if self.first is None else self.first
        self.entered[newcomer.stream] += 1
        moved = [name for name in self.workload.names if self.turns(name)]
        for name in moved:
            self.tumbled.add(name)
            self.tumble(name)
        if not self.waits or self.as_written:
            self.learn(newcomer)
        for name in self.taken:
            self.taken[name] -= self.taken[name] / 16
        self.taken[newcomer.stream] += 1 / 16
        if moved:
            for held in self.everything():
                self.promise[held] = self.expected(held)
        self.promise[newcomer] = self.expected(newcomer)

    def turns(self, name: Stream) -> bool:
        """Whether a stream comes to a new piece of its past, not being the first."""
        kind, size = self.workload.window(name)
        if kind == "time":
            piece = (self.newest - self.first) // max(1, size)
        else:
            piece = (max(1, self.entered[name]) - 1) // size
        before = self.pieces.get(name, piece)
        self.pieces[name] = piece
        return piece != before

    def tumble(self, name: Stream) -> None:
        """What is known of the current piece is that of the last now."""
        raise NotImplementedError

    def learn(self, newcomer: Held) -> None:
        """Take a newcomer into what is known of the current piece."""
        raise NotImplementedError

    def expected(self, held: Held) -> float:
        """What a tuple is expected to make."""
        raise NotImplementedError

    def standing(self, held: Held) -> float:
        """What a tuple stands by."""
        if not self.aging:
            return self.promise[held]
        _, window = self.workload.window(held.stream)
        return self.promise[held] * (held.time + window - self.newest)

    def refuses(self, window: list[Held], newcomer: Held) -> bool:
        """Refused when it stands below all."""
        return self.standing(newcomer) < min(map(self.standing, window))

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """The lowest, and of these the first that arrived."""
        return min(window, key=lambda held: (self.standing(held), held.arrival))


@cache
def signs_of(seed: int, attribute: int, value: int) -> np.ndarray:
    """The signs of a value: bits of polynomials, one for 60 copies."""
    apart = draw(seed, 2**64 - 1)
    found = []
    for group in range(GROUPS):
        bits: list[int] = []
        for word in range(WORDS):
            first = (attribute * GROUPS * WORDS + group * WORDS + word) * 4
            result = 0
            for degree in range(4):
                result = (result * value + draw(apart, first + degree)) % PRIME
            bits += [(result >> bit) & 1 for bit in range(BITS)]
        found += bits[:COPIES]
    return 1 - 2 * np.array(found, np.int64)


class Sketch(Expecting):
    """The least productivity, as the sketches of all streams tell it."""

    def __init__(self, workload: Workload, windows: Windows) -> None:
        """Start with empty sketches."""
        super().__init__(workload, windows)
        nothing = np.zeros(COPIES * GROUPS, np.int64)
        self.current = {name: nothing.copy() for name in workload.names}
        self.last = {name: nothing.copy() for name in workload.names}

    def signs(self, held: Held) -> np.ndarray:
        """The product of the signs of a tuple's attributes."""
        values = self.attributes_of(held)
        return np.prod([signs_of(self.workload.seed, a, v) for a, v in values.items()], axis=0)

    def tumble(self, name: Stream) -> None:
        """The last sketch is the current one, and another begins."""
        self.last[name] = self.current[name]
        self.current[name] = np.zeros(COPIES * GROUPS, np.int64)

    def learn(self, newcomer: Held) -> None:
        """Add its signs."""
        self.current[newcomer.stream] = self.current[newcomer.stream] + self.signs(newcomer)

    def productivity(self, held: Held) -> float:
        """The median of means of the product of its signs and the other streams' sketches."""
        product = self.signs(held).astype(float)
        for name in self.workload.names:
            if name != held.stream:
                product *= (self.last if name in self.tumbled else self.current)[name]
        return float(np.median(product.reshape(GROUPS, COPIES).sum(axis=1) / COPIES))

    def expected(self, held: Held) -> float:
        """Its productivity."""
        return self.productivity(held)


class AgingSketch(Sketch):
    """Productivity times what is left of a tuple's time."""

    aging = True


class SampleSketch(Sketch):
    """The least part of the expected results that is still to be made."""

    def __init__(self, workload: Workload, windows: Windows) -> None:
        """Start with nothing made."""
        super().__init__(workload, windows)
        self.results: Counter[Held] = Counter()

    def made(self, members: list[Held]) -> None:
        """Count the result for those that were stored."""
        self.results.update(members[:-1])

    def standing(self, held: Held) -> float:
        """The part that is left; a newcomer has made nothing."""
        if held not in self.promise:
            return 1.0
        expected = (len(self.workload.names) - 1) * self.promise[held]
        return 1.0 - self.results[held] / max(1.0, expected)

    def refuses(self, window: list[Held], newcomer: Held) -> bool:
        """Nobody has more left than a newcomer."""
        return False


class Pairwise(Expecting):
    """The fewest partners in one other stream."""

    def __init__(self, workload: Workload, windows: Windows) -> None:
        """Start with nothing counted."""
        super().__init__(workload, windows)
        self.current: dict[Stream, list[Attributes]] = {name: [] for name in workload.names}
        self.last: dict[Stream, list[Attributes]] = {name: [] for name in workload.names}

    def partner(self, stream: Stream) -> Stream:
        """The first stream that shares an attribute."""
        own = {*self.own[stream]}
        return next(n for n in self.workload.names if n != stream and own & {*self.own[n]})

    def tumble(self, name: Stream) -> None:
        """The last tuples are the current ones, and others begin."""
        self.last[name] = self.current[name]
        self.current[name] = []

    def learn(self, newcomer: Held) -> None:
        """Note its attributes."""
        self.current[newcomer.stream].append(self.attributes_of(newcomer))

    def expected(self, held: Held) -> float:
        """How many tuples of the partner have the same values."""
        partner = self.partner(held.stream)
        past = (self.last if partner in self.tumbled else self.current)[partner]
        own = self.attributes_of(held)
        return float(sum(all(own[a] == o[a] for a in own.keys() & o.keys()) for o in past))


class LifePairwise(Pairwise):
    """Partners times what is left of a tuple's time."""

    aging = True


EXPECTING: dict[str, type[Rule]] = {
    "sketch": Sketch,
    "sketch, sample": SampleSketch,
    "sketch, aging": AgingSketch,
    "pairwise": Pairwise,
    "pairwise, life": LifePairwise,
}


class SketchAsWritten(Sketch):
    """Sketch, with the queue of the paper."""

    as_written = True


class PairwiseAsWritten(Pairwise):
    """Pairwise, with the same."""

    as_written = True


AS_WRITTEN: dict[str, type[Rule]] = {
    "sketch, queue as written": SketchAsWritten,
    "pairwise, queue as written": PairwiseAsWritten,
}
"""Those that differ only where tuples wait."""
TIMED_ONLY = ("sketch, aging", "pairwise, life")
"""Those that need windows of time."""
