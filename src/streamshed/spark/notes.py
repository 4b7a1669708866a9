"""What shards learn of each other's relevance, handed from batch to batch in files.

After batch *b* each shard leaves a note: how many rows of each other one probed it, by class; and
where the results are made it is noted which shards took part in them. Batch *b* + 1 begins with the
matrices of batch *b* and all of its notes. All are named after their batch: a batch that is done
again finds what it found before, and writes what it wrote before.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamshed.relevance import Relevance

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_KEPT = 8
"""Batches whose files are kept: Spark does none but the last again."""


def batch_number() -> int | None:
    """The number of the micro-batch that this task is part of; None if nothing streams."""
    from pyspark import TaskContext

    context = TaskContext.get()
    said = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return None if said is None else int(said)


@dataclass(frozen=True)
class Notes:
    """The notes of a query.

    Attributes:
        folder: that all executors can read and write.
        relevance: how relevance is learned.
        shards: how many there are.
    """

    folder: str
    relevance: Relevance
    shards: int

    def matrices(self, batch: int | None) -> Floats:
        """What shards know when a batch begins."""
        if not batch:
            return self.relevance.matrix(self.shards, self.shards)
        try:
            found: Floats = np.load(self._path(f"relevance-{batch - 1}"))
            probed = np.stack([np.load(self._note(batch - 1, i)) for i in range(self.shards)])
            took_part = [np.load(self._results(batch - 1, i)) for i in range(self.shards)]
        except FileNotFoundError:  # somebody has cleared the folder: begin anew
            return self.relevance.matrix(self.shards, self.shards)
        matched = np.zeros_like(probed)
        for places in took_part:
            np.add.at(matched, tuple(places), 1)
        self.relevance.learn(found, probed, matched)
        return found

    def write(self, batch: int, shard: int, probed: Ints) -> None:
        """Leave the note of a shard; the first shard also leaves what the batch began with.

        Args:
            batch: the number of the batch.
            shard: the number of the shard.
            probed: by (shard, class), how many rows of other shards came to probe.
        """
        self._make_folder()
        if shard == 0:
            self._save(self._path(f"relevance-{batch}"), self.matrices(batch))
            self._path(f"relevance-{batch - _KEPT}").unlink(missing_ok=True)
        self._save(self._note(batch, shard), probed)
        self._note(batch - _KEPT, shard).unlink(missing_ok=True)

    def write_results(self, batch: int, part: int, took_part: Ints) -> None:
        """Leave who made results with whom.

        Args:
            batch: the number of the batch.
            part: the number of the partition in which the results are made; as many as shards.
            took_part: for each newcomer and other shard that has members of its results: the other
                shard, its own, and its class.
        """
        self._make_folder()
        self._save(self._results(batch, part), took_part)
        self._results(batch - _KEPT, part).unlink(missing_ok=True)

    def _make_folder(self) -> None:
        Path(self.folder).mkdir(parents=True, exist_ok=True)

    def _results(self, batch: int, part: int) -> Path:
        return self._path(f"results-{batch}-{part}")

    def _note(self, batch: int, shard: int) -> Path:
        return self._path(f"note-{batch}-{shard}")

    def _path(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.npy"

    def _save(self, path: Path, array: npt.NDArray[Any]) -> None:
        """Write a file so that it is there as a whole or not at all."""
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with part.open("wb") as file:
            np.save(file, array)
        os.replace(part, path)
