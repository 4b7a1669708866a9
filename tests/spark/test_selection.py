"""Selections on Spark: what replay makes, and nothing read, moved or kept that is not needed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamshed as ss
from harness import spec
from oracles.rows import Workload
from oracles.workloads import generated
from streaming import Files, check_same, cut, replayed, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PAIR = ss.join("a", "b").on("k").within(1000, time="ts", late=5)

KINDS: dict[str, tuple[Workload, list[str]]] = {
    "complete": (
        generated(
            3, rows=40, keys=12, skew=0.5, window=("time", 30), keep_rows=(9, 6, 12),
            policy="column",
        ),
        ["c.row", "a.ts", "a.row"],
    ),
    "partial": (
        generated(5, rows=30, keys=12, window=("time", 20), at_least=2), ["b", "c.row"],
    ),
    "by": (
        generated(6, streams=7, rows=90, keys=12, window=("time", 20), by=True, at_least=2),
        ["members.row", "members.k"],
    ),
    "time": (generated(7, rows=30, keys=6, window=("last", 5)), ["time"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_selection_is_that_of_replay(spark: SparkSession, files: Files, kind: str) -> None:
    workload, paths = KINDS[kind]
    join = spec(workload).select(*paths)
    batches = cut(workload, 2)
    files.write(batches)
    expected = replayed(join, batches)
    assert expected.table.num_rows > 10
    check_same(files.run(spark, join, shards=1), expected)


def wide(first: int) -> dict[str, pa.Table]:
    """A batch with columns that are long, or have dots in their names."""
    times = pa.array(range(first, first + 20))
    columns = {
        "text": ["x" * 500] * 20,
        "k": pa.array(range(20)),
        "ts": times,
        "dotted.row": times,
        "dotted": [{"row": 1}] * 20,
    }
    return {name: pa.table(columns) for name in "ab"}


def scans(plan: str) -> list[str]:
    """What the scans of a plan read."""
    return re.findall(r"ReadSchema: (.*)", plan)


def test_columns_that_are_not_needed_are_not_even_read(spark: SparkSession, tmp_path: Path) -> None:
    for name, table in wide(0).items():
        pq.write_table(table, tmp_path / name)
    inputs = {name: spark.read.parquet(str(tmp_path / name)) for name in "ab"}
    frame = PAIR.select("b.dotted.row").stream(inputs)
    assert frame.columns == ["b", "time"]
    explained = frame._jdf.queryExecution().executedPlan().toString()
    assert scans(explained) == [
        "struct<k:bigint,ts:bigint>",
        "struct<k:bigint,ts:bigint,dotted.row:bigint>",
    ]
    found = sorted((row.b["dotted.row"], row.time) for row in frame.collect())
    assert found == [(number, number) for number in range(20)]


@pytest.mark.slow
def test_another_selection_on_an_old_checkpoint(
    spark: SparkSession, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fewer columns are read, moved and kept from then on; those that are gone are refused."""
    from pyspark.errors import StreamingQueryException

    batches = [wide(0), {"a": wide(20)["a"], "b": wide(20)["b"].slice(0, 0)}, wide(40)]
    files.write(batches[:1])
    before = files.run(spark, PAIR, shards=1)
    check_same(before, replayed(PAIR, batches[:1]))
    chosen = PAIR.select("b.dotted.row", "a.k")
    files.write(batches[1:2])
    after = files.run(spark, chosen, shards=1)
    expected = replayed(chosen, batches[:2])
    check_same(after, expected)
    assert after.table.num_rows == 40
    after.query.explain()
    read = scans(capsys.readouterr().out)
    assert read
    assert "text" not in "".join(read)
    assert after.ledger.payload_bytes < before.ledger.payload_bytes / 5
    files.write(batches[2:])
    with pytest.raises(
        StreamingQueryException,
        match=r"(?s)StateError: the state was .* it kept no column 'text' of stream 'b'",
    ):
        files.run(spark, PAIR, shards=1)
    check_same(files.run(spark, chosen, shards=1), replayed(chosen, batches))


def test_late_rows_have_the_columns_that_the_join_needs(spark: SparkSession, files: Files) -> None:
    files.write([wide(100), {"a": wide(0)["a"].slice(0, 2), "b": wide(120)["b"]}])
    late = files.folder / "_late"
    join = PAIR.select("b.text")
    files.run(spark, join, shards=1, late_to=str(late))
    assert rows(pq.read_table(late / "a")) == [{"k": 0, "ts": 0}, {"k": 1, "ts": 1}]
