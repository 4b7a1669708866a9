"""What a session says, also a session of Spark Connect, which has no `sparkContext`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from streamshed.errors import InputError, SpecError
from streamshed.spark.late import logger
from streamshed.spark.sharding import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_MEMORY = "HDFSBackedStateStoreProvider"

_PYTHON_OF_SQL = "spark.sql.execution.pyspark.python"
"""What DataFrames' workers are, if it is set, whatever PYSPARK_PYTHON says."""
_TO_TRY = "import sys, numba, pyarrow, pyspark, streamshed; print(*sys.version_info[:2], sep='.')"
"""What a Python of workers has to do."""


def partitions(session: SparkSession) -> int:
    """How many partitions a stateful operator has."""
    return int(session.conf.get(PARTITIONS) or 200)


def cores(session: SparkSession) -> int:
    """How many tasks run at once; on Spark Connect, which does not tell, one for each partition."""
    context = context_of(session)
    return partitions(session) if context is None else context.defaultParallelism


def context_of(session: SparkSession) -> Any:
    """The SparkContext; None on Spark Connect."""
    with contextlib.suppress(AttributeError, NotImplementedError, PySparkException):
        return session.sparkContext
    return None


def use_rocksdb(session: SparkSession) -> None:
    """Stateful operators of this kind need RocksDB; choose it unless the user chose another."""
    chosen = session.conf.get(_PROVIDER, "") or ""
    if chosen.endswith("RocksDBStateStoreProvider"):
        return
    if chosen and not chosen.endswith(_MEMORY):
        raise SpecError(
            f"the state store is {chosen!r}, but the join needs RocksDB; set {_PROVIDER} to"
            f" {_ROCKSDB}"
        )
    logger.warning("joins need RocksDB: %s is now %s in this session", _PROVIDER, _ROCKSDB)
    session.conf.set(_PROVIDER, _ROCKSDB)


def start_coordinator(session: SparkSession) -> None:
    """Start what state stores report to, so that state can be made and read without a stream.

    Spark 4.1 and 4.2 start it when a session is first asked for its streaming queries, and joins of
    tables and readers of state fail without it (SPARK-58973).
    """
    list(session.streams.active)  # on Spark Connect `streams` alone asks the server nothing


_SPARING = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
"""Environment variables by which Arrow and the C library give back the memory of a large batch.
Arrow's own allocators keep what one thread allocates and another frees, and the C library what lies
between small objects, until a task ends. Memory of more bytes than the first threshold is the
system's, which clears it each time; so is what is free at the end beyond the second. Arrays of tens
of thousands of rows, values for the state store and blobs stay below."""


@contextlib.contextmanager
def sparing_workers(session: SparkSession) -> Iterator[None]:
    """Let the Python workers of what is made meanwhile, and of that alone, keep little memory.

    What the user has set stays as it is. Clients of Spark Connect cannot tell workers variables.
    """
    context = context_of(session)
    environment = {} if context is None else context.environment
    known = {*environment, *os.environ}
    told = {name: value for name, value in _SPARING.items() if name not in known}
    environment.update(told)
    try:
        yield
    finally:
        for name in told:
            del environment[name]


def check_python(session: SparkSession) -> None:
    """Refuse a local session whose workers would be another Python, without this package.

    Raises:
        InputError: it says what to set.
    """
    context = context_of(session)
    if context is None or not context.master.startswith("local"):
        return
    python = session.conf.get(_PYTHON_OF_SQL, "") or str(context.pythonExec)
    problem = problem_of_workers(python)
    if problem is not None:
        raise InputError(
            f"Spark's Python workers are {python!r}, {problem}, and this Python is"
            f" {sys.executable}; before the session starts, set PYSPARK_PYTHON={sys.executable}"
            " (in Python: os.environ['PYSPARK_PYTHON'] = sys.executable), and leave"
            f" {_PYTHON_OF_SQL} unset"
        )


def problem_of_workers(python: str) -> str | None:
    """Why a Python cannot be that of local workers, if it cannot."""
    found = shutil.which(python)
    if found is not None and _same_environment(found, sys.executable):
        return None
    return _problem(found)


def _same_environment(one: str, other: str) -> bool:
    """Whether two Pythons are of one environment: those of others are links to the same file."""
    folders = {os.path.realpath(os.path.dirname(path)) for path in (one, other)}
    return len(folders) == 1 and os.path.samefile(one, other)


def _problem(python: str | None) -> str | None:
    """Why workers cannot be this Python, if they cannot."""
    if python is None:
        return "which is not found"
    done = subprocess.run([python, "-c", _TO_TRY], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
        return f"which cannot run the join ({reason})"
    version = done.stdout.strip()
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return None if version == mine else f"which is Python {version} instead of {mine}"
