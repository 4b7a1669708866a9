"""The policies of meaning.md, one plain class each, by scanning whatever there is to scan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import pyarrow as pa

from streamshed.engine.encoding import key_hash
from streamshed.kernels.hashing import secret_of

from .rows import Key, Stream, Workload, Worth

MASK = 2**64 - 1


def mix(z: int) -> int:
    """The finaliser of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def draw(seed: int, number: int) -> int:
    """The random number of an arrival (Policies)."""
    return mix((mix(seed & MASK) + (number + 1) * 0x9E3779B97F4A7C15) & MASK)


@dataclass(eq=False)
class Held:
    """A tuple that was neither filtered nor late; `number` counts these in its stream."""

    stream: Stream
    key: Key
    time: int
    row: int
    worth: Worth | None
    arrival: int
    number: int

    @property
    def age(self) -> tuple[int, int]:
        """What the oldest has least of: (time, arrival number)."""
        return self.time, self.arrival


Windows = dict[Stream, list[Held]]


class Rule:
    """What a policy is told and asked, in the order of the life of a tuple.

    `windows` is the simulator's own: the tuples stored at this moment, stream by stream. `window`
    in the questions is "the full window": one stream's, or all of them together.
    """

    def __init__(self, workload: Workload, windows: Windows) -> None:
        """Start with empty windows."""
        self.workload = workload
        self.windows = windows
        self.time: int | None = None  # the newest, set by the simulator

    def advances(self, newcomer: Held) -> None:
        """Time has gone on to the newcomer's; nothing has expired yet (after step 4)."""

    def arrives(self, newcomer: Held) -> None:
        """Expiry is done; the newcomer is about to probe (before step 6)."""

    def made(self, members: list[Held]) -> None:
        """A result was made; its last member has just arrived (step 6)."""

    def refuses(self, window: list[Held], newcomer: Held) -> bool:
        """Whether the newcomer itself is shed (step 7)."""
        return False

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """Who leaves the full window (step 7)."""
        raise NotImplementedError

    def stored(self, held: Held) -> None:
        """A tuple was appended to its window (step 8)."""

    def left(self, held: Held) -> None:
        """A tuple has just been taken from its window: expired or shed."""

    def everything(self) -> list[Held]:
        """All that is stored."""
        return [held for window in self.windows.values() for held in window]


class Random(Rule):
    """A list for each full window; the last takes the place of the one that leaves."""

    def __init__(self, workload: Workload, windows: Windows) -> None:
        """Start with empty lists."""
        super().__init__(workload, windows)
        self.lists: dict[Stream | None, list[Held]] = {}

    def _list(self, held: Held) -> list[Held]:
        shared = self.workload.keep_rows is None
        return self.lists.setdefault(None if shared else held.stream, [])

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """The one at draw(seed, arrival number of the newcomer) mod length."""
        places = self._list(newcomer)
        assert set(places) == set(window)
        return places[draw(self.workload.seed, newcomer.arrival) % len(places)]

    def stored(self, held: Held) -> None:
        """Append."""
        self._list(held).append(held)

    def left(self, held: Held) -> None:
        """Fill the place with the last."""
        places = self._list(held)
        place = places.index(held)
        last = places.pop()
        if last is not held:
            places[place] = last


class Oldest(Rule):
    """The smallest (time, arrival number)."""

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """The oldest of the full window."""
        return min(window, key=lambda held: held.age)


class _Keys(Random):
    """A tuple of a key of lowest standing: one of a few drawn, or else by lot."""

    def lot(self, held: Held) -> int:
        """The number of a key in a stream in the draw among keys of equal standing."""
        position = 0 if self.workload.by else self.workload.position(held.stream)
        return mix(hash_of(self.workload, held.key) ^ draw(self.workload.seed, position))

    def standings(self) -> Counter[Key]:
        """What the key with the least of it is shed for."""
        raise NotImplementedError

    def standing(self, held: Held) -> int:
        """What a tuple stands by."""
        return self.standings()[held.key]

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """The first of eight drawn whose key stands lowest, or the oldest of the key by lot."""
        lowest = min(map(self.standing, window))
        members = self._list(newcomer)
        word = draw(self.workload.seed, newcomer.arrival)
        for _ in range(8):
            drawn = members[word % len(members)]
            if self.standing(drawn) == lowest:
                return drawn
            word = mix((word + 0x9E3779B97F4A7C15) & MASK)
        return min(window, key=lambda held: (self.standing(held), self.lot(held), held.age))


def hash_of(workload: Workload, *key: Key) -> int:
    """The 64 bits that a key is reduced to."""
    return _hashed(workload.seed, *key)


@cache
def _hashed(seed: int, *key: Key) -> int:
    """The engine's own hash: how keys are reduced is no decision."""
    rows = pa.record_batch({f"k{number}": [part] for number, part in enumerate(key)})
    kinds = [pa.string() if isinstance(part, str) else pa.int64() for part in key]
    hashed, _ = key_hash(rows, rows.schema.names, kinds, secret_of(seed))
    return int(hashed[0])


class Frequency(_Keys):
    """The key with the fewest tuples in all windows together."""

    def standings(self) -> Counter[Key]:
        """How many tuples of a key are stored; the newcomer is not yet counted."""
        return Counter(held.key for held in self.everything())


class WindowFrequency(_Keys):
    """The key with the fewest tuples in its own window."""

    def standing(self, held: Held) -> int:
        """How many tuples of its key are stored in its stream."""
        return sum(other.key == held.key for other in self.windows[held.stream])


class Output(_Keys):
    """The key with the fewest results so far."""

    def __init__(self, workload: Workload, windows: Windows) -> None:
        """Start without results."""
        super().__init__(workload, windows)
        self.results: Counter[Key] = Counter()

    def standings(self) -> Counter[Key]:
        """How many results a key made since it was last in no window."""
        return self.results

    def made(self, members: list[Held]) -> None:
        """Count the result."""
        self.results[members[0].key] += 1

    def left(self, held: Held) -> None:
        """Forget a key that is in no window."""
        super().left(held)
        if all(other.key != held.key for other in self.everything()):
            del self.results[held.key]


class Existence(Rule):
    """The existence-pattern rule (Kwon, Lee, Kim 2010, sections 3.1 and 3.2)."""

    def __init__(self, workload: Workload, windows: Windows) -> None:
        """Start with empty pattern tables."""
        super().__init__(workload, windows)
        if workload.by:
            raise ValueError("no pattern is full where streams come and go")
        self.full = 2 ** len(workload.names) - 1
        self.patterns: dict[Held, int] = {}
        self.tuples: Counter[tuple[Stream, int]] = Counter()
        self.results: Counter[tuple[Stream, int]] = Counter()

    def arrives(self, newcomer: Held) -> None:
        """The pattern: the streams that hold the key now, and the newcomer's own."""
        self.patterns[newcomer] = sum(
            2**position
            for position, name in enumerate(self.workload.names)
            if name == newcomer.stream
            or any(held.key == newcomer.key for held in self.windows[name])
        )

    def made(self, members: list[Held]) -> None:
        """Count r, once for each member."""
        for held in members:
            self.results[held.stream, self.patterns[held]] += 1

    def stored(self, held: Held) -> None:
        """Count n."""
        self.tuples[held.stream, self.patterns[held]] += 1

    def priority(self, held: Held) -> tuple[bool, Fraction]:
        """Full patterns before all others, then the lowest r/n (definition 3)."""
        pattern = held.stream, self.patterns[held]
        if pattern[1] == self.full:
            return False, Fraction(0)
        return True, Fraction(self.results[pattern], self.tuples[pattern])

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """The lowest priority; then the lower stream position, pattern number, arrival number."""
        return min(
            window,
            key=lambda held: (
                self.priority(held),
                self.workload.position(held.stream),
                self.patterns[held],
                held.arrival,
            ),
        )


class CompletedExistence(Existence):
    """The same, but all tuples of a key that has made a complete result are of the full pattern."""

    def made(self, members: list[Held]) -> None:
        """Count r; who was stored has the full pattern from now on, if all streams held the key."""
        super().made(members)
        if self.patterns[members[-1]] == self.full:
            self.patterns.update(dict.fromkeys(members[:-1], self.full))


class Column(Rule):
    """The smallest value of the user's column; a null is below all values."""

    @staticmethod
    def value(held: Held) -> tuple[bool, Worth]:
        """The value, nulls first."""
        return held.worth is not None, held.worth or 0

    def refuses(self, window: list[Held], newcomer: Held) -> bool:
        """Refused when strictly below all those stored in the full window."""
        return all(self.value(newcomer) < self.value(held) for held in window)

    def victim(self, window: list[Held], newcomer: Held) -> Held:
        """Among equal smallest, the one that arrived first."""
        return min(window, key=lambda held: (self.value(held), held.arrival))


# Rules too long for this file, made of those above.
from .density import Density  # noqa: E402
from .sketch import AS_WRITTEN, EXPECTING  # noqa: E402

RULES: dict[str, type[Rule]] = {
    "density": Density,
    "random": Random,
    "oldest": Oldest,
    "frequency": Frequency,
    "output": Output,
    "existence": Existence,
    "existence, completed": CompletedExistence,
    "frequency, window": WindowFrequency,
    "column": Column,
    **EXPECTING,
    **AS_WRITTEN,
}
