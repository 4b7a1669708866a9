"""State is made and read as the first thing in a session, by joins of tables and by commands."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queries import PATIENCE, environment, joined, workload
from streaming import Files, cut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.skipif(
    not version("pyspark").startswith(("4.1.", "4.2.")),
    reason="later versions of Spark need no coordinator for this (SPARK-58973)",
)
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
