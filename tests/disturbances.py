"""Things that go wrong in the middle of a batch, each once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyspark import TaskContext

from streamshed.spark.cluster_join import ClusterProcessor
from streamshed.spark.processor import JoinProcessor

Moment = Literal["before", "within", "after"]


class DisturbedError(Exception):
    """What a disturbed task dies of."""


@dataclass(frozen=True)
class Disturbance:
    """A worker stops in the middle of a batch: it dies, or waits to be killed.

    Before the shard's rows are processed, within (with results made, and no state saved), or after
    its state has been saved, when nothing but Spark's own commit is missing.
    """

    batch: int
    moment: Moment
    action: Literal["die", "wait"]
    marker: Path
    """A file that says that it has happened, and to which process."""

    def strike(self, moment: Moment) -> None:
        """Do it, if this is the time and it has not been done."""
        context = TaskContext.get()
        assert context is not None
        if moment != self.moment or context.getLocalProperty(_BATCH) != str(self.batch):
            return
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return
        self.marker.write_text(str(os.getpid()))
        parent = os.getppid()
        while self.action == "wait" and os.getppid() == parent:
            time.sleep(0.05)
        raise DisturbedError(f"{moment} of batch {self.batch}")


_BATCH = "streaming.sql.batchId"


class _Disturbed:
    """A processor with disturbances."""

    def __init__(self, disturbances: list[Disturbance], *args: Any) -> None:
        super().__init__(*args)
        self.disturbances = disturbances

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[Any]:
        self._now("before")
        for row in super().handleInputRows(key, rows, timerValues):
            if row.counts[0] is not None:  # the last, with the shard's accounts
                self._now("after")
            yield row

    def results(self, *args: Any) -> Iterator[Any]:
        for results in super().results(*args):
            self._now("within")
            yield results

    def _now(self, moment: Moment) -> None:
        for disturbance in self.disturbances:
            disturbance.strike(moment)


class DisturbedProcessor(_Disturbed, JoinProcessor):
    """The processor of joins by key."""


class DisturbedClusterProcessor(_Disturbed, ClusterProcessor):
    """That of joins in clusters."""
