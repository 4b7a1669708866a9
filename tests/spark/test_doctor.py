"""What executors say of themselves, and what of it is amiss."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from streamshed import cli
from streamshed.spark.doctor import examine, problems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_executors_like_the_driver_lack_nothing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamshed.cli.doctor.spark_session", lambda purpose: nullcontext(spark))
    shown = CliRunner().invoke(cli.app, ["doctor", "--on-executors"])
    assert shown.exit_code == 0, shown.output
    last = shown.output.splitlines()[-2]
    assert "nothing" in last
    assert sys.version.split()[0] in last


def worker(**other: Any) -> dict[str, Any]:
    return {**json.loads(examine()), "cache": "/cache", "shared": 10**9, **other}


def test_what_executors_lack_comes_with_the_remedy() -> None:
    driver = worker(python="3.11.7", packages={"streamshed": "1.0", "numba": "0.61"})
    assert problems(driver, driver) == []
    other = worker(
        python="3.12.1",
        packages={"streamshed": "1.0", "numba": "0.60"},
        cache=None,
        shared=10 << 20,
    )
    python, numba, cache, shared = problems(other, driver)
    assert python == "its Python is 3.12, and that of the driver 3.11; set PYSPARK_PYTHON"
    assert numba == "numba is 0.60, and 0.61 on the driver; install numba==0.61"
    assert "set STREAMSHED_CACHE, or compile ahead and set STREAMSHED_KERNELS" in cache
    assert shared.startswith("there are 10 MB of shared memory; give its container more")
    bare = worker(python="3.11.2", packages={}, missing={"numba": "ImportError: no"})
    (said,) = problems(bare, driver)
    assert said.startswith("numba cannot be imported (ImportError: no); install numba==0.61 for")
