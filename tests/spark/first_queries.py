"""What reads or makes state as the first query of a session, each in a session of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import streaming
from queries import joined, workload
from streamshed.spark.inspection import inspect
from streamshed.spark.savepoint import write_savepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def results(spark: SparkSession, _: Path) -> int:
    """Of a join of tables."""
    (batch,) = streaming.cut(workload("exact"), 1)
    frames = {name: spark.createDataFrame(table) for name, table in batch.items()}
    return joined("exact").stream(frames, shards=1).count()


def inspected(spark: SparkSession, folder: Path) -> int:
    """The results of which a checkpoint knows."""
    (found,) = inspect(spark, str(folder / "_checkpoint"))
    return found.ledger.results


def saved(spark: SparkSession, folder: Path) -> int:
    """The results of which a savepoint knows."""
    return write_savepoint(spark, str(folder / "_checkpoint"), str(folder / "_savepoint")).results


FIRST: dict[str, Callable[[SparkSession, Path], int]] = {
    "results": results,
    "inspected": inspected,
    "saved": saved,
}


def main() -> None:
    folder = Path(sys.argv[1])
    for name, first in FIRST.items():
        session = streaming.session()
        print(name, first(session, folder))
        session.stop()


if __name__ == "__main__":
    main()
