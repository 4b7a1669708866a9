"""What one version of Spark has left behind is taken up by another.

`make test-compat` prepares an environment for each version; without them there is nothing to do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from queries import BATCHES, environment, joined, running, workload
from streaming import Files, counts, cut, replayed, rows

pytestmark = pytest.mark.slow

HERE = sys.executable
OTHERS = sorted(map(str, Path(__file__).parents[2].glob("build/compat/spark-*/bin/python")))
PAIRS = [(before, after) for other in OTHERS for before, after in ((other, HERE), (HERE, other))]


def environment_of(python: object) -> str:
    return "here" if python == HERE else Path(str(python)).parents[1].name


def save(python: str, folder: Path, to: Path) -> None:
    """Write a savepoint with one Spark, by the command."""
    command = [str(Path(python).with_name("streamshed")), "savepoint"]
    subprocess.run(
        [*command, str(folder / "_checkpoint"), str(to)],
        env=environment(PYSPARK_PYTHON=python),
        check=True,
        capture_output=True,
    )


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=environment_of)
def test_a_savepoint_goes_on_in_another_spark(before: str, after: str, tmp_path: Path) -> None:
    """With other shards too; results and accounts are those of an undisturbed run."""
    batches, half = cut(workload("exact"), BATCHES), BATCHES // 2
    first, second, saved = (tmp_path / name for name in ("first", "second", "saved"))
    Files(first).write(batches[:half])
    with running(first, "exact", "--shards", "2", python=before) as query:
        query.finish()
    save(before, first, saved)
    Files(second).write(batches[half:])
    with running(second, "exact", "--shards", "3", "--resume", str(saved), python=after) as query:
        query.finish()
    expected = replayed(joined("exact"), batches)
    left = [pq.read_table(folder / "_results.parquet") for folder in (first, second)]
    assert all(found.num_rows for found in left)
    assert rows(pa.concat_tables(left), expected.table.schema) == rows(expected.table)
    said = json.loads((second / "_ledger.json").read_text())
    assert said == {"streams": counts(expected.ledger), "results": expected.ledger.results}
