"""How things are timed: interleaved, and the best of several."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from streamshed.kernels.kernel_files import FOLDERS, WRITABLE

Name = TypeVar("Name")


def best_of(repeats: int, runs: Mapping[Name, Callable[[], float]]) -> dict[Name, float]:
    """The shortest time of each run.

    The runs take turns, so that what else happens on the machine falls on all of them alike.

    Args:
        repeats: how often each is run.
        runs: each runs once and says how long that took.

    Examples:
        >>> best_of(2, {"a": iter([3.0, 2.0]).__next__})
        {'a': 2.0}
    """
    best = {name: float("inf") for name in runs}
    for _ in range(repeats):
        for name, once in runs.items():
            best[name] = min(best[name], once())
    return best


def processor_time(work: Callable[[], object]) -> float:
    """The seconds of processor time that some work takes, over all threads of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def wall_time(work: Callable[[], object]) -> float:
    """The seconds that some work takes by the clock on the wall."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_new_process(prepare: str, timed: str, bytecode: str, cache: str | None = None) -> float:
    """The seconds that a statement takes in a new Python process, after some preparation.

    Args:
        prepare: statements that are not timed.
        timed: the statement.
        bytecode: a folder in which Python keeps compiled modules, so that a second process finds
            them, as it does in any installation.
        cache: the folder in which compiled kernels are kept; the usual one by default.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     0.05 < in_new_process("import time", "time.sleep(0.05)", folder) < 5
        True
    """
    lines = (
        "from time import perf_counter as now",
        prepare,
        "start = now()",
        timed,
        "print(now() - start)",
    )
    environment = os.environ | {"PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if cache is not None:
        environment |= {WRITABLE: cache, FOLDERS: ""}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return float(done.stdout)
