"""Rows that come too late are written where the user says, and told of."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import streamshed as ss
from streamshed.spark import late
from streamshed.spark.folders import checked_folder
from streamshed.spark.late import LateFiles, late_warning

ROWS = pa.record_batch({"k": [1, 2]})


def written(folder: str) -> None:
    """A batch done again writes its files again."""
    for _ in range(2):
        files = LateFiles(folder, "shard", 3)
        files.write("a", ROWS)
        files.write("a", ROWS)
        files.close()


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_files_of_this_machine(tmp_path: Path, prefix: str) -> None:
    written(checked_folder(f"{prefix}{tmp_path}/late", "late_to"))
    assert [path.name for path in (tmp_path / "late" / "a").iterdir()] == [
        "shard-000000003.parquet"
    ]
    assert pq.read_table(tmp_path / "late" / "a").num_rows == 4


def test_files_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def file_system(uri: str) -> tuple[fs.FileSystem, str]:
        asked.append(uri)
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "bucket/late"

    monkeypatch.setattr(late, "file_system", file_system)
    written(checked_folder("s3a://bucket/late", "late_to"))
    assert asked == ["s3://bucket/late"] * 2
    assert pq.read_table(tmp_path / "bucket" / "late" / "a").num_rows == 4


def test_nothing_is_written_where_nothing_is_late(tmp_path: Path) -> None:
    LateFiles("s3://no-such-bucket/late", "shard", 3).close()


def test_a_file_system_that_nobody_knows() -> None:
    with pytest.raises(
        ss.SpecError,
        match=r"late_to is 'dbfs://x/late', but 'dbfs' is no file system that Arrow knows; give a"
        r" URI of 'abfs', .*'s3', 'viewfs', or a folder that all executors share",
    ):
        checked_folder("dbfs://x/late", "late_to")


def test_late_rows_are_told_of_as_they_become_more() -> None:
    told = [late_warning({"a": n}, {"a": n + 1}) is not None for n in range(2000)]
    assert [n + 1 for n, one in enumerate(told) if one] == [10, 100, 1000]
    said = late_warning({"a": 0, "b": 0}, {"a": 3, "b": 40})
    assert said == (
        "43 rows were left out as late (40 of stream 'b'); allow for it, as in"
        " .within(…, late='30 seconds'), or keep them in files, as in"
        " .stream(…, late_to='folder')"
    )


def test_a_shard_warns_of_late_rows(caplog: pytest.LogCaptureFixture) -> None:
    from state_handle import Handle
    from streamshed.spark.blobs import Pack
    from streamshed.spark.processor import JoinProcessor
    from streamshed.spark.sharding import Sharding

    one = Sharding(partitions=1)
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
    join = ss.join("a", "b").on("k").within(10, time="ts")
    plan = join.plan({"a": schema, "b": schema})
    processor = JoinProcessor(plan, one)
    processor.init(Handle())
    with caplog.at_level(logging.WARNING, logger="streamshed.spark"):
        for times in ([1000] * 12, [1] * 12, [2] * 12, [3] * 12):
            rows = pa.record_batch([[1] * 12, times, [0] * 12], names=["k", "ts", "shard"])
            packed = [*Pack(0, plan, one)(iter([rows])), *Pack(1, plan, one)(iter([rows]))]
            blobs = pa.Table.from_batches(packed).to_pandas()
            made = [*processor.handleInputRows((0,), iter([blobs]), None)]
    told = [one.getMessage() for one in caplog.records if one.name == "streamshed.spark"]
    assert len(told) == 1
    assert "24 rows were left out as late (12 of stream 'a')" in told[0]
    assert made
