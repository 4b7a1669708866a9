"""One Spark for all tests here, which need Java."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import streaming

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (
        home is not None and (Path(home) / "bin" / "java").exists()
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs_java = pytest.mark.skipif(
        not _java(), reason="Spark needs Java 17 or later: install it, or set JAVA_HOME"
    )
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(needs_java)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    os.environ["SPARK_LOCAL_DIRS"] = str(tmp_path_factory.mktemp("spark"))
    session = streaming.session()
    yield session
    session.stop()


@pytest.fixture
def files(tmp_path: Path) -> streaming.Files:
    return streaming.Files(tmp_path)
