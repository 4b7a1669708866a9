"""Rows that wait on disk, on Spark: files of the worker, of which the state store has a copy each.

A worker writes spilled rows to files on a disk of its own, and maps them as anywhere. After a
batch new files go into the state store, part by part, and those that are needed no more leave it.
So the state store is the truth for them too: another worker, or another attempt, begins with the
files that it has, and never with those that a worker left behind. It reads a file when rows of it
are first needed: partitions that nobody asks for stay in the state store.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamshed.errors import SpillError
from streamshed.spark.shared_memory import Process

if TYPE_CHECKING:
    from streamshed.engine.checkpoint import SegmentName
    from streamshed.engine.operator import Operator
    from streamshed.plan.plan import Plan

SPILLED = -5
"""What stands for the position of an input in the names of files of spilled rows."""
_PREFIX = "streamshed-worker-"


def on_this_worker(plan: Plan) -> Plan:
    """The plan with a folder of this worker for what it spills, if it does."""
    if plan.spill is None:
        return plan
    host = f"{_PREFIX}{socket.gethostname()}-"
    to = Path(plan.spill.to)
    own = to / f"{host}{Process.running(os.getpid())}"
    if not own.exists():
        _sweep(to, host)
    return replace(plan, spill=replace(plan.spill, to=str(own)))


def _sweep(to: Path, host: str) -> None:
    """Remove the folders of workers of this machine that are gone: nobody goes on with them."""
    with suppress(OSError):
        for path in to.iterdir():
            if path.name.startswith(host) and not path.is_symlink():
                with suppress(OSError, ValueError):
                    if not Process.parsed(path.name.removeprefix(host)).alive:
                        shutil.rmtree(path, ignore_errors=True)


def files_of(join: Operator) -> dict[int, Path]:
    """The files that hold spilled rows of a join, by their numbers."""
    if join.spill is None:
        return {}
    disk = join.spill.aside.disk
    return {number: disk.folder.file(number) for number in disk.files}


@dataclass(frozen=True)
class StoredFiles:
    """Files of spilled rows in the state store, which are read one by one."""

    state: Any
    """The state store, as the task at hand has it."""
    parts: Mapping[SegmentName, int]
    """In how many parts each file is there."""

    def __call__(self, number: int, path: Path) -> None:
        """Write a file, whole or not at all."""
        unfinished = path.with_suffix(".part")
        try:
            with unfinished.open("wb") as opened:
                for part in range(self.parts[SPILLED, number]):
                    opened.write(self.state.getValue((SPILLED, number, part))[1])
            unfinished.rename(path)
        except OSError as error:
            raise SpillError(
                f".spill(): rows of the state store could not be written to {str(path.parent)!r}"
                f" ({error}); make room there, or name another folder"
            ) from error
