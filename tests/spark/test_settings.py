"""What is checked of a session before a query starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.spark import settings
from streamshed.spark.settings import check_python, cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(python: str = sys.executable, master: str = "local[2]", **conf: str) -> Any:
    context = SimpleNamespace(pythonExec=python, master=master, defaultParallelism=7)
    return SimpleNamespace(sparkContext=context, conf={k.replace("_", "."): conf[k] for k in conf})


class Connected:
    """A session of Spark Connect."""

    conf = SimpleNamespace(get=lambda name: "5")

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
        from pyspark.errors import PySparkAttributeError

        raise PySparkAttributeError(
            errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "x"}
        )


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_workers_of_this_python(tmp_path: Path) -> None:
    check_python(session())
    check_python(session("nowhere/python", master="spark://there:7077"))
    check_python(Connected())
    check_python(session(script(tmp_path / "python", f'exec {sys.executable} "$@"')))
    check_python(session("nowhere/python", spark_sql_execution_pyspark_python=sys.executable))


def test_workers_of_another_python(tmp_path: Path) -> None:
    remedy = rf"before the session starts, set PYSPARK_PYTHON={sys.executable}"
    with pytest.raises(ss.InputError, match=rf"'nowhere/python', which is not found, .*{remedy}"):
        check_python(session("nowhere/python"))
    with pytest.raises(ss.InputError, match=rf"{remedy}.*leave spark\.sql\..*python unset"):
        check_python(session(spark_sql_execution_pyspark_python="nowhere/python"))
    bare = script(tmp_path / "bare", "echo 'No module named streamshed' >&2; exit 1")
    with pytest.raises(ss.InputError, match=rf"cannot run the join \(No module .*{remedy}"):
        check_python(session(bare))
    old = script(tmp_path / "old", "echo 3.9")
    with pytest.raises(ss.InputError, match=rf"which is Python 3\.9 instead of 3\..*{remedy}"):
        check_python(session(old))


def test_cores() -> None:
    assert cores(session()) == 7
    assert cores(Connected()) == 5  # type: ignore[arg-type]


@pytest.mark.spark
def test_workers_of_joins_alone_are_told_to_keep_little_memory(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in settings._SPARING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "3")  # by the user
    before = dict(spark.sparkContext.environment)

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        for _ in batches:
            pass
        names = ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_MMAP_THRESHOLD_")
        yield pa.record_batch({"value": [os.environ.get(name) for name in names]})

    one = spark.range(1).coalesce(1)
    with settings.sparing_workers(spark):
        assert "MALLOC_ARENA_MAX" not in spark.sparkContext.environment
        of_joins = one.mapInArrow(told, "value string")
    others = one.mapInArrow(told, "value string")
    assert [row.value for row in of_joins.collect()] == ["system", "4194304"]
    assert [row.value for row in others.collect()] == [None, None]
    assert spark.sparkContext.environment == before
