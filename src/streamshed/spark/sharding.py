"""How many shards a join has, and their labels.

The first run of a query decides, and later runs follow it: the shards follow from the partitions of
the stateful operator, which Spark keeps in the checkpoint and tells each task, whatever the session
says by then. Only a number that is given, or that decides how rows are copied, has to stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from streamshed.errors import StateError

if TYPE_CHECKING:
    from streamshed.spark.refreshing import Versions
    from streamshed.spark.shipping import Cells

PARTITIONS = "spark.sql.shuffle.partitions"
_RECORDED = "spark.sql.streaming.internal.stateStore.partitions"
"""What Spark calls the number of partitions in the checkpoint, when it tells a task."""
MOST = 16
"""Shards where none are given: Spark's own 200 partitions would be far too many."""


@dataclass(frozen=True)
class Sharding:
    """The shards of a join.

    Attributes:
        partitions: of the stateful operator; where that is not known yet, of the session.
        shards: how many there are, if that is fixed.
        most: how many there may be, if that is not fixed.
        cores: tasks that run at once, for which shards may have to take turns.
        cells: how facts are divided, where streams meet through a relation in several shards.
        versions: of the relation, if it is read anew.
    """

    partitions: int
    shards: int | None = None
    most: int = MOST
    cores: int = MOST
    cells: Cells | None = None
    versions: Versions | None = None

    def in_task(self) -> Sharding:
        """The shards of the query that this task is part of; outside of tasks, these."""
        from pyspark import TaskContext

        context = TaskContext.get()
        told = context and (
            context.getLocalProperty(_RECORDED) or context.getLocalProperty(PARTITIONS)
        )
        return replace(self, partitions=int(told)) if told else self

    @property
    def count(self) -> int:
        """How many shards there are."""
        return len(self.labels)

    @property
    def labels(self) -> tuple[int, ...]:
        """The labels of the shards."""
        shards = self.shards or max(1, min(self.most, MOST, self.partitions))
        return _labels(shards, self.partitions)

    def recorded(self) -> dict[str, Any]:
        """What a state says of the shards that it is one of."""
        cells = "" if self.cells is None else self.cells.digest
        return {"shards": self.count, "partitions": self.partitions, "cells": cells}

    def check(self, recorded: dict[str, Any]) -> None:
        """Refuse the state of a join in other shards: rows would not find each other.

        Args:
            recorded: what the state says.

        Raises:
            StateError: it names the setting that has changed, and its values.
        """
        if self.recorded() == recorded:
            return
        shards, partitions = recorded["shards"], recorded["partitions"]
        if shards != self.count:
            raise StateError(
                f"the checkpoint was made with shards={shards}, and now there are {self.count}"
                f" ({PARTITIONS} is {self.partitions}); give .stream(…, shards={shards}), or move"
                " its rows to a new checkpoint: streamshed savepoint, then .stream(…, resume=…)"
            )
        if partitions != self.partitions:
            raise StateError(
                f"the checkpoint was made with {PARTITIONS}={partitions}, and it is"
                f" {self.partitions}; set it to {partitions}, or move its rows to a new checkpoint:"
                " streamshed savepoint, then .stream(…, resume=…)"
            )
        raise StateError(
            "the relation has other rows or changes than when the checkpoint was made, and its"
            f" facts decide which of the {shards} shards hold a row; give the relation as it was,"
            " or start with a new checkpoint and shards=1: it may then change between runs"
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
