"""Rows that wait on disk, on Spark: files of the worker, of which the state store has a copy each.

A worker writes spilled rows to files on a disk of its own, and maps them as anywhere. After a
batch new files go into the state store, part by part, and those that are needed no more leave it.
So the state store is the truth for them too: another worker, or another attempt, begins with the
files that it has, and never with those that a worker left behind.
"""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamshed.engine.gate.disk import RunFolder
from streamshed.errors import SpillError
from streamshed.spark.shared_memory import Process

if TYPE_CHECKING:
    from streamshed.engine.checkpoint import Head
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


class StoredFiles:
    """Files of spilled rows on their way out of the state store.

    Args:
        plan: the join, on this worker.
        part: how many bytes each part of a file has, but for the last.
    """

    def __init__(self, plan: Plan, part: int) -> None:
        assert plan.spill is not None, "a state with spilled rows of a join that does not spill"
        self.to, self.part = plan.spill.to, part
        self.folder = RunFolder.create(self.to)

    def write(self, number: int, part: int, some: bytes) -> None:
        """Write a part of a file; parts come in any order."""
        try:
            file = os.open(self.folder.file(number), os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(file, "wb", buffering=0) as opened:
                opened.seek(part * self.part)
                opened.write(some)
        except OSError as error:
            raise SpillError(
                f".spill(): rows of the state store could not be written to {self.to!r} ({error});"
                " make room there, or name another folder"
            ) from error

    def named_in(self, head: Head) -> Head:
        """The head of a state that refers to these files."""
        said = head.numbers["spill."]
        disk = said["disk"] | {"folder": self.folder.saved(), "earlier": []}
        return replace(head, numbers=head.numbers | {"spill.": said | {"disk": disk}})

    def handed_over(self, join: Operator) -> None:
        """Leave the files to the join that has taken them over."""
        assert join.spill is not None
        join.spill.aside.disk.before = None
        self.folder.remove(self.to)
