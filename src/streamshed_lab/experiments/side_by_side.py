"""Figures side by side, in processes of their own; those that measure times alone, and last.

A process compiles the kernels that its figures need. So that two do not compile the same ones,
figures that are begun together are of different papers.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import zip_longest
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple

from streamshed_lab.experiments.report import Paper, Progress, Record
from streamshed_lab.modules import lab_module

POLL = 0.2
"""Seconds between two looks at what figures tell."""


class Task(NamedTuple):
    """A figure that is to be made, of a paper whose experiments are in a module."""

    paper: str
    module: str
    figure: str

    def __str__(self) -> str:
        return f"{self.paper}, figure {self.figure}"

    @property
    def of(self) -> Paper[Any]:
        """The paper."""
        paper: Paper[Any] = lab_module(self.module).PAPER
        return paper


class Way(NamedTuple):
    """How figures are made, and in which folder."""

    out: Path
    quick: bool = False
    again: bool = False

    def make(self, task: Task, progress: Progress) -> Record:
        """Make a figure, or read its record."""
        return task.of.record(task.figure, self.out / task.paper, self.quick, progress, self.again)

    def is_made(self, task: Task) -> bool:
        """Whether the record of an equal run is there."""
        folder = self.out / task.paper
        return not self.again and task.of.kept(task.figure, folder, self.quick) is not None


Step = tuple[Callable[[], None], Progress]
"""How a step ends, and is told of."""
Steps = Callable[[str], Step]


def make_figures(
    tasks: Sequence[Task], way: Way, step: Steps, processes: int | None = None
) -> list[Record]:
    """Make figures, and return their records in the order of the tasks.

    Args:
        tasks: the figures.
        way: how they are made.
        step: begins a step of the progress.
        processes: how many are made at a time; as many as there are processors by default.
    """
    processes = processes or len(os.sched_getaffinity(0))
    missing = [task for task in tasks if not way.is_made(task)]
    apart = missing if min(processes, len(missing)) > 1 else []
    found = _in_processes(apart, way, step, processes) if apart else {}
    for task in tasks:
        if task not in found:
            end, tell = step(str(task))
            found[task] = way.make(task, tell)
            end()
    return [found[task] for task in tasks]


def in_phases(tasks: Iterable[Task]) -> tuple[list[Task], list[Task]]:
    """The figures that can be made together, papers in turn; and those that are made alone.

    Examples:
        >>> tasks = [Task("star", "streamshed_lab.experiments.star", f) for f in ("5", "6")]
        >>> [[task.figure for task in phase] for phase in in_phases(tasks)]
        [['6'], ['5']]
    """
    papers: dict[str, list[Task]] = {}
    alone: list[Task] = []
    for task in tasks:
        timed = task.figure in task.of.timed
        (alone if timed else papers.setdefault(task.paper, [])).append(task)
    return [task for turn in zip_longest(*papers.values()) for task in turn if task], alone


def _in_processes(
    tasks: Iterable[Task], way: Way, step: Steps, processes: int
) -> dict[Task, Record]:
    """The records of figures, each made in one of some processes."""
    context = multiprocessing.get_context("spawn")
    told: multiprocessing.Queue[tuple[Task, str]] = context.Queue()
    found: dict[Task, Record] = {}
    steps: dict[Task, Step] = {}
    with ProcessPoolExecutor(processes, context, _begin, (told,)) as pool:
        try:
            for phase, at_a_time in zip(in_phases(tasks), (processes, 1), strict=True):
                left, running = deque(phase), dict[Future[Record], Task]()
                while left or running:
                    while left and len(running) < at_a_time:
                        task = left.popleft()
                        steps[task] = step(str(task))
                        running[pool.submit(_make, task, way)] = task
                    done, _ = wait(running, POLL, FIRST_COMPLETED)
                    for task, line in _lines(told):
                        steps[task][1](line)
                    for future in done:
                        task = running.pop(future)
                        found[task] = future.result()
                        steps[task][0]()
        except KeyboardInterrupt:  # the pool would wait for figures that take minutes
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    return found


def _lines(told: multiprocessing.Queue[tuple[Task, str]]) -> Iterator[tuple[Task, str]]:
    """What was told by now."""
    while True:
        try:
            yield told.get_nowait()
        except Empty:
            return


_told: list[multiprocessing.Queue[tuple[Task, str]]] = []
"""In a process that makes figures: where it tells what it does."""


def _begin(told: multiprocessing.Queue[tuple[Task, str]]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    _told[:] = [told]


def _make(task: Task, way: Way) -> Record:
    return way.make(task, lambda line: _told[0].put((task, line)))
