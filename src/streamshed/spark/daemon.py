"""Spark's Python daemon with all that joins import: the workers that it forks share that memory.

Each worker imports NumPy, pandas, Arrow, numba and this package otherwise, into memory of its own.
Set `spark.python.daemon.module` to the name of this module before the session starts.
"""

from __future__ import annotations

import gc
import importlib
import os

DAEMON = "streamshed.spark.daemon"
"""The name of this module, which is `__main__` where it runs."""
IMPORTED = ("pyspark.worker", "streamshed.spark.processor")
"""What Spark's own workers import, and what joins do."""


def load() -> None:
    """Import all that workers need.

    Threads are not there any more in a process that is forked, and locks that they held stay held.
    So that libraries for matrices start none, they have a single thread in workers. (The allocator
    of Arrow starts one, which it takes care of itself when a process forks.)
    """
    for library in ("OPENBLAS", "MKL", "OMP"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or the collections of workers would write to what they share, and so copy it


if __name__ == "__main__":
    from pyspark.daemon import manager

    load()
    manager()
