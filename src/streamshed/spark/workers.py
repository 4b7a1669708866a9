"""What Spark's Python workers do before a task, so that tasks of few rows take little time."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
import sys
from typing import Any

AT_HAND: dict[str, Any] = {}
"""What this worker keeps from task to task, and gives up some time."""
_frozen: set[int] = set()
"""How many modules there were when this worker froze them."""


def begin_task() -> None:
    """Do what spares this worker waiting; outside of workers nothing."""
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _freeze_imports()
        _acknowledge()


def _freeze_imports() -> None:
    """Leave what was imported out of garbage collections.

    Spark collects all garbage of a worker after each task, before the worker takes the next one.
    The modules that a join needs have more than a hundred thousand objects, none of them garbage:
    to go through them takes longer than a task of few rows. What is at hand may become garbage, so
    that nothing is frozen together with it.
    """
    if len(sys.modules) not in _frozen and not AT_HAND:
        gc.freeze()
        _frozen.add(len(sys.modules))


def _acknowledge() -> None:
    """Acknowledge at once what came through the worker's sockets.

    Java sends the task, and then its first rows. Its TCP keeps rows that fill no packet back until
    the task is acknowledged, and Linux takes 40 ms to do so if it is not asked to.
    """
    with contextlib.suppress(AttributeError, OSError):  # on Linux alone
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # such as that of the folder
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.socket(fileno=os.dup(int(name))) as opened:
                        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
