"""What commands have in common: tables, and whether Spark can run."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from streamshed.errors import StreamshedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamshed.ledger import Ledger


def print_table(table: Table, *lines: str) -> None:
    """Print a table, and lines below it."""
    # Away from a terminal there is no width to keep to.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(table)
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def print_ledger(ledger: Ledger, as_json: bool) -> None:
    """Print a ledger, as text or as a line of JSON."""
    print(json.dumps(ledger.to_dict()) if as_json else ledger)


def prepare_spark() -> None:
    """Refuse where Spark cannot run; its Python workers are to be this Python with this package."""
    if importlib.util.find_spec("pyspark") is None:
        raise StreamshedError(
            "pyspark is not installed; get it with pip install 'streamshed[spark]', or run"
            " streamshed demo --here, which needs neither Spark nor Java"
        )
    version, said = java_version()
    if version < 17:
        raise StreamshedError(
            f"Java: {said}; Spark needs Java 17 or later: install it, or set JAVA_HOME to where it"
            " is; streamshed demo --here needs neither"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    package = str(Path(__file__).parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if package not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package, *paths]))


def java_version() -> tuple[int, str]:
    """The version of Java, or 0 if there is none, and what it says of itself."""
    import re
    import subprocess

    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0, "not found; Spark needs Java 17 or later"
    number = re.search(r'version "(\d+)', told.stderr)
    return int(number[1]) if number else 0, told.stderr.splitlines()[0]


@contextmanager
def spark_session(purpose: str) -> Iterator[SparkSession]:
    """Spark where it is said to be, or else here; nothing is left of it at the end."""
    prepare_spark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"streamshed {purpose}")
    if "MASTER" in os.environ:
        builder = builder.master(os.environ["MASTER"])
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    session = builder.config("spark.log.level", "ERROR").getOrCreate()
    try:
        yield session
    finally:
        session.stop()
