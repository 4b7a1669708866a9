"""Spark starts its coordinator of state stores with the first streaming query, if nobody asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from queries import PATIENCE, environment, joined, workload
from streaming import Files, cut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_state_is_made_and_read_where_no_query_streamed_before(
    spark: SparkSession, files: Files
) -> None:
    files.write(cut(workload("exact"), 1))
    made = files.run(spark, joined("exact"), shards=1).ledger.results
    assert made
    first = [sys.executable, str(Path(__file__).with_name("first_queries.py")), str(files.folder)]
    done = subprocess.run(
        first, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    said = [f"{name} {made}" for name in ("results", "inspected", "saved")]
    assert done.stdout.splitlines() == said
