"""How many shards a join has, and their labels.

Where the user gives no number, the shards follow from `spark.sql.shuffle.partitions` alone. The
state of a query records both, and a run with others is refused: Spark goes by the number of
partitions in the checkpoint, whatever the session says, but its tasks are told that of the session.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from streamshed.errors import StateError

PARTITIONS = "spark.sql.shuffle.partitions"
MOST = 16
"""Shards where none are given: Spark's own 200 partitions would be far too many."""


@dataclass(frozen=True)
class Sharding:
    """The shards of a join.

    Attributes:
        partitions: of the session when `.stream()` was called.
        shards: how many there are, if that is fixed.
        most: how many there may be, if that is not fixed.
    """

    partitions: int
    shards: int | None = None
    most: int = MOST

    @property
    def count(self) -> int:
        """How many shards there are."""
        return len(self.labels)

    @property
    def labels(self) -> tuple[int, ...]:
        """The labels of the shards."""
        shards = self.shards or max(1, min(self.most, MOST, self.partitions))
        return _labels(shards, self.partitions)

    def recorded(self) -> dict[str, int]:
        """What a state says of the shards that it is one of."""
        return {"shards": self.count, "partitions": self.partitions}

    def check(self, recorded: dict[str, int]) -> None:
        """Refuse the state of a join in other shards: rows would not find each other.

        Args:
            recorded: what the state says.

        Raises:
            StateError: it names the setting that has changed, and its values.
        """
        now = self.recorded()
        if now == recorded:
            return
        shards, partitions = recorded["shards"], recorded["partitions"]
        said, remedy = [], []
        if shards != now["shards"]:
            said.append(f"shards was {shards} and is {now['shards']}")
            remedy.append(f"give .stream(…, shards={shards})")
        if partitions != self.partitions:
            said.append(f"{PARTITIONS} was {partitions} and is {self.partitions}")
            remedy.append(f"set {PARTITIONS} to {partitions}")
        raise StateError(
            f"the checkpoint was made with other shards: {', '.join(said)}; {' and '.join(remedy)},"
            " or start with a new checkpoint"
        )


@lru_cache(maxsize=16)
def _labels(shards: int, partitions: int) -> tuple[int, ...]:
    """Labels that Spark puts into partitions of their own, while there are enough.

    Examples:
        >>> _labels(2, 2)
        (0, 2)
    """
    crowd: dict[int, int] = {}
    ranked = []
    for label in range(shards * 64):
        place = spark_hash(label) % partitions
        crowd[place] = crowd.get(place, -1) + 1
        ranked.append((crowd[place], label))
    return tuple(label for _, label in sorted(ranked)[:shards])


def spark_hash(number: int) -> int:
    """The hash of a long by which Spark chooses its partition: Murmur3, as SQL's `hash`.

    Examples:
        >>> spark_hash(0)
        -1670924195
    """
    hashed = 42
    for half in (number & _WORD, number >> 32 & _WORD):
        mixed = _rotated(half * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
        hashed = (_rotated(hashed ^ mixed, 13) * 5 + 0xE6546B64) & _WORD
    hashed ^= 8
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _WORD
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _WORD
    hashed ^= hashed >> 16
    return hashed - (1 << 32 if hashed >> 31 else 0)


_WORD = (1 << 32) - 1


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD
