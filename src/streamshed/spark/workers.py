"""What Spark's Python workers do before a task, so that tasks of few rows take little time."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import socket
import stat
import sys
from functools import cache
from typing import Any

import pyarrow as pa

AT_HAND: dict[str, Any] = {}
"""What this worker keeps from task to task, and gives up some time."""
LARGE = 16 << 20
"""Bytes of rows after which a task gives memory back. The next task gets it anew, page by page,
which took a third of the processor time of tasks of three megabytes."""
_frozen: set[int] = set()
"""How many modules there were when this worker froze them."""


def begin_task() -> None:
    """Do what spares this worker waiting; outside of workers nothing."""
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _freeze_imports()
        _acknowledge()


def end_task(moved: int) -> None:
    """Give memory that is free back to the system, if a task has moved so many bytes.

    Arrow and the C library keep it otherwise, and a worker idles with the memory of its largest
    batch. After smaller tasks there is little to give back.
    """
    if moved >= LARGE:
        pa.default_memory_pool().release_unused()
        if (trim := _trim()) is not None:
            trim(0)


@cache
def _trim() -> Any:
    """The C library's function that gives memory back; None where it has none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


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
