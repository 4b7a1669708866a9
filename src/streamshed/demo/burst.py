"""Steady rows, a burst of five times as many, steady rows again: three joins of the same files.

Spark's own join, ours without a budget, and ours with a budget of a third of the rows take turns.
Files come in by the clock, whether the join keeps up or not. How many rows they have is chosen by
what Spark's own join does in a trial, so that the burst is one on any machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self

import numpy as np

from streamshed.demo.story import Outcome, Sample, Truth
from streamshed.demo.workload import FunnelWorkload
from streamshed.errors import StreamshedError
from streamshed.spark.shared_memory import bytes_of, sweep

SPARKS, EXACT, BUDGETED = "Spark's own join", "streamshed, no budget", "streamshed, a budget"

PACE = 1.0
"""Seconds in which a minute of the streams comes in."""
PATIENCE = 15.0
"""Seconds after the last rows in which a join may catch up."""
TRIAL = FunnelWorkload(sessions=1_500, minutes=24)
"""What Spark's own join has to join at once in the trial."""
LOAD = 4
"""Rows per second at the height of the burst, for one per second of the trial."""
_ROWS = 4.5
"""Rows of a session, on average."""
_STEP = 0.25
_FAREWELL = 10.0
"""Seconds in which a join may end by itself."""
_PARENT, _SESSION, _THREADS, _ADDRESSES = 1, 3, 17, 20
"""What Linux says of a process after its name: its parent, session, threads, and address space."""
_LONGEST = 600.0
"""Seconds in which Spark has to start and to do its first batch."""


def trial(workload: FunnelWorkload = TRIAL) -> float:
    """Rows that Spark's own join takes in a second on this machine, where many wait for it."""
    with tempfile.TemporaryDirectory(prefix="streamshed-demo-") as name:
        folder = Path(name)
        rows = list(workload.write(folder / "files"))
        with _Contender(folder / "spark", folder / "files", ["spark"]) as contender:
            # The first batch compiles what Spark generates.
            contender.release(0)
            left: int = sum(rows) - contender.next()["rows"]
            for minute in range(1, len(rows)):
                contender.release(minute)
            taken, seconds = left, 0.0
            while left > 0:
                told = contender.next()
                left, seconds = left - told["rows"], seconds + told["seconds"]
    return taken / seconds


def loaded(workload: FunnelWorkload, rate: float) -> FunnelWorkload:
    """Give a workload so many sessions that its burst is `LOAD` times a rate in rows per second."""
    sessions = round(LOAD * rate * PACE / (workload.burst * _ROWS))
    return replace(workload, sessions=max(1, sessions))


def run(
    workload: FunnelWorkload,
    rows: int | None,
    policy: str,
    tell: Callable[[str], None],
    show: Callable[[list[Outcome]], None],
) -> tuple[list[Outcome], Truth]:
    """Run the three joins, one after the other; their kernels are compiled already.

    Args:
        workload: the streams.
        rows: that the join with a budget may keep; by default a third of those it needs.
        policy: that evicts them.
        tell: is told what is being done.
        show: is shown what all joins have done so far, several times a second.
    """
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="streamshed-demo-") as name:
        folder = Path(name)
        tell("generating the streams")
        for _ in workload.write(folder / "files"):
            pass
        truth = Truth.of(workload)
        budget = rows or truth.peak // 3
        for who in (SPARKS, EXACT, BUDGETED):
            tell(f"{who}: starting Spark")
            outcomes.append(Outcome(who))
            said = {SPARKS: ["spark"], EXACT: ["none"]}.get(who, [str(budget), policy])
            with _Contender(folder / said[0], folder / "files", said) as contender:
                contender.release(0)
                first = contender.next()
                tell(f"{who}: a minute of the streams arrives every {PACE:g} s")
                for sample in contender.samples(first, truth):
                    outcomes[-1].samples.append(sample)
                    show(outcomes)
                outcomes[-1].note = contender.failed
    return outcomes, truth


class _Contender:
    """A join in a process of its own, and the files that come to it."""

    def __init__(self, folder: Path, files: Path, said: Sequence[str]) -> None:
        self.folder, self.files = folder, files
        self.failed = ""
        self.lines: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.streams = [path.name for path in files.iterdir()]
        for stream in self.streams:
            (folder / stream).mkdir(parents=True)
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamshed.demo.contender", str(folder), *said],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Ctrl-C is for the demonstration, which then ends the join. And what belongs to
                # the join is known by its session.
                start_new_session=True,
            )
        Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_FAREWELL)
        # Java may be in the middle of a batch still, and would take time from the next join.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        sweep()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as told:
            for line in told:
                self.lines.put(json.loads(line))
        self.lines.put({"failed": "the process ended"})

    def release(self, minute: int) -> None:
        """Let a minute of the streams come in."""
        for stream in self.streams:
            file = f"{minute:04d}.parquet"
            shutil.copyfile(self.files / stream / file, self.folder / stream / f".{file}")
            (self.folder / stream / f".{file}").rename(self.folder / stream / file)

    def next(self) -> dict[str, Any]:
        """Wait for the next batch."""
        try:
            told = self.lines.get(timeout=_LONGEST)
        except Empty:
            told = {"failed": f"no batch finished within {_LONGEST:.0f} s"}
        if "failed" in told:
            log = (self.folder / "log").read_text(errors="replace")[-2_000:]
            raise StreamshedError(f"the join on Spark failed: {told['failed']}\n{log}")
        return told

    def samples(self, told: dict[str, Any], truth: Truth) -> Iterator[Sample]:
        """Let the rows come in by the clock, and look at what the join does with them.

        Ends when all rows are joined, or patience is at an end.
        """
        minutes, rows, memory = len(truth.rows), told["rows"], 0
        began, released, step = time.monotonic(), 1, 0
        while True:
            now = time.monotonic() - began
            while released < minutes and now >= released * PACE:
                self.release(released)
                released += 1
            while not self.lines.empty():
                more = self.lines.get()
                if "failed" in more:
                    self.failed = more["failed"]
                    return
                told, rows = more, rows + more["rows"]
            waiting = int(truth.rows[released - 1]) - rows
            oldest = int(np.searchsorted(truth.rows, rows, side="right"))
            if step % 2 == 0:
                memory = resident(self.process.pid)
            recall = told.get("recall")
            yield Sample(
                second=round(now, 2),
                results=told["results"],
                due=truth.due(rows),
                held=told["held"],
                memory=memory,
                recall=recall and (recall[0], recall[1], recall[2]),
                waiting=waiting,
                lag=max(0.0, now - oldest * PACE) if waiting > 0 else 0.0,
            )
            if released == minutes and (not waiting or now > minutes * PACE + PATIENCE):
                return
            step += 1
            time.sleep(max(0.0, began + step * _STEP - time.monotonic()))


def resident(session: int) -> int:
    """Bytes of memory of all processes of a session; what they share counts once (PSS).

    What joins keep in shared memory counts as a whole, whether a process has mapped it or not.
    0 where the system has no /proc to tell.
    """
    found: dict[int, tuple[int, ...]] = {}
    sizes: dict[int, dict[str, int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it has ended
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[_SESSION]) == session:
                rolled = (process / "smaps_rollup").read_text().splitlines()[1:]
                parts = [line.split() for line in rolled]
                sizes[int(process.name)] = {part[0]: 1024 * int(part[1]) for part in parts}
                known = (_PARENT, _THREADS, _ADDRESSES)
                found[int(process.name)] = tuple(int(fields[place]) for place in known)
    for number, (parent, threads, addresses) in found.items():
        # Before it runs a program of its own, a child of Java has Java's very memory (vfork), which
        # may have grown between two looks.
        _, others, of_parent = found.get(parent, (0, 0, 0))
        if threads == 1 < others and abs(addresses - of_parent) <= of_parent / 16:
            del sizes[number]
    total = sum(size["Pss:"] for size in sizes.values())
    shared = sum(size.get("Pss_Shmem:", 0) for size in sizes.values())
    return total + max(0, bytes_of(sizes) - shared)
