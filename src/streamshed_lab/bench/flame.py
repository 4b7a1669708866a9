"""Flame graphs of loops: which kernels the time of a row goes to, as SVG without anything else.

A loop is compiled into one function, in which a profiler sees no kernels. So a new process compiles
it with counters (`streamshed_lab.bench.profiling`), which takes longer than usual, and runs it on
rows of the benchmark once windows are full. Times are those of this build: what the counters take
is subtracted, but kernels are optimised less across their borders.
"""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from streamshed.engine.build import build_bulk_operator, build_operator
from streamshed.engine.ingest import merged
from streamshed.errors import StreamshedError, listed, suggestion
from streamshed.join import Join
from streamshed.kernels.cache import QUIET
from streamshed.kernels.kernel_files import FOLDERS, WRITABLE
from streamshed.kernels.lazy import PROFILE
from streamshed_lab.bench import BENCHMARKS, profiling
from streamshed_lab.bench.profiling import Frame
from streamshed_lab.modules import lab_module

FILLING = 0.4
"""The part of all rows that fills windows before anything is counted."""
IN_BULK = "in bulk"

_WIDTH, _HEIGHT, _LETTER, _MARGIN = 1200, 18, 6.6, 24
_NARROWEST = 0.0005
"""Parts of the whole that are smaller are not drawn."""

Loop = Callable[[], tuple[Join, Mapping[str, pa.Table]]]
"""Makes a join and its inputs."""


def loops_of(name: str) -> dict[str, Loop]:
    """The loops of a benchmark, by name."""
    if name not in BENCHMARKS:
        raise StreamshedError(
            f"there is no benchmark {name!r}; there are {listed(BENCHMARKS)}."
            f"{suggestion(name, BENCHMARKS)}"
        )
    loops: dict[str, Loop] = getattr(lab_module(BENCHMARKS[name]), "LOOPS", {})
    if not loops:
        with_loops = [one for one in BENCHMARKS if hasattr(lab_module(BENCHMARKS[one]), "LOOPS")]
        raise StreamshedError(
            f"the benchmark {name!r} has no loop to draw; give one of {listed(with_loops)}"
        )
    return loops


def flame_graph(name: str, loop: str | None = None) -> str:
    """Profile a loop of a benchmark in a new process; returns its flame graph as SVG.

    Args:
        name: of the benchmark.
        loop: one of `loops_of` it; the first by default.
    """
    loops = loops_of(name)
    chosen = loop or next(iter(loops))
    if chosen not in loops:
        raise StreamshedError(
            f"the benchmark {name!r} has no loop {chosen!r}; there are {listed(loops)}."
            f"{suggestion(chosen, loops)}"
        )
    with TemporaryDirectory() as folder:
        environment = {PROFILE: profiling.__name__, WRITABLE: folder, FOLDERS: "", QUIET: "1"}
        done = subprocess.run(
            [sys.executable, "-m", "streamshed_lab.bench.flame", name, chosen],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | environment,
        )
    if done.returncode:
        raise StreamshedError(f"the loop could not be profiled: {done.stderr.strip()[-500:]}")
    return drawn(_frame(json.loads(done.stdout)), f"{name}, {chosen}")


def profiled(loop: Loop, bulk: bool) -> Frame:
    """Where the time of a loop goes; only in a process whose kernels are compiled for that."""
    join, tables = loop()
    plan = join.select("time").plan({name: rows.schema for name, rows in tables.items()})

    def prepare() -> Callable[[], None]:
        operator = (build_bulk_operator if bulk else build_operator)(plan, whole=False)
        if operator.bulk is not None:
            operator.bulk.threads = 1  # counters are those of one thread
        parts = [
            operator.read(position, rows.combine_chunks().to_batches()[0])
            for position, rows in enumerate(tables.values())
        ]
        batch = merged(parts)
        size = batch.time.size
        cut = 0 if bulk else round(FILLING * size)

        def work(start: int, end: int) -> None:
            for found in (operator.process(batch.part(start, end)), operator.finish()):
                for _ in found:
                    pass

        if cut:
            work(0, cut)
        return partial(work, cut, size)

    return profiling.profile(prepare)


# -- drawing --------------------------------------------------------------------------------------


def drawn(frame: Frame, title: str) -> str:
    """A flame graph as SVG: a kernel's width is its time, what it calls stands above it.

    Examples:
        >>> inner = Frame("streamshed.engine.loop._emit", 3, 0.25)
        >>> text = drawn(Frame("all", 0, 0.0, [Frame("loop.run", 1, 0.75, [inner])]), "exact")
        >>> "engine.loop._emit: 25.0 %, 3 calls" in text
        True
    """
    boxes = [*_boxes(frame, 0.0, 0)]
    depth = 1 + max((level for _, _, level in boxes), default=0)
    height = _MARGIN + depth * _HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        f' font-family="monospace" font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="4" y="16">{html.escape(title)}</text>',
    ]
    for one, left, level in boxes:
        x, width = left * _WIDTH, one.total * _WIDTH
        y = height - (level + 1) * _HEIGHT
        short = one.name.removeprefix("streamshed.")
        told = f"{short}: {one.total:.1%}".replace("%", " %")
        own = f"{one.own:.1%}".replace("%", " %")
        label = short.rpartition(".")[2][: max(0, int((width - 4) / _LETTER))]
        lines.append(
            f"<g><title>{html.escape(told)}, {one.calls:,} calls; own {own}</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{max(0.5, width - 0.5):.1f}" height="{_HEIGHT - 1}"'
            f' fill="{_colour(short)}"/>'
            f'<text x="{x + 2:.1f}" y="{y + 12}">{html.escape(label)}</text></g>'
        )
    return "\n".join([*lines, "</svg>\n"])


def _boxes(frame: Frame, left: float, level: int) -> Iterator[tuple[Frame, float, int]]:
    """The frames that are wide enough, each with its left edge and its level."""
    if frame.total < _NARROWEST:
        return
    yield frame, left, level
    for one in sorted(frame.below, key=lambda one: one.total, reverse=True):
        yield from _boxes(one, left, level + 1)
        left += one.total


def _colour(name: str) -> str:
    """A colour for each module of kernels, the same in every graph."""
    module = name.rpartition(".")[0]
    hue = sum(place * ord(letter) for place, letter in enumerate(module, 1)) % 360
    return f"hsl({hue}, 60%, 78%)"


def _frame(said: Mapping[str, Any]) -> Frame:
    below = [_frame(one) for one in said["below"]]
    return Frame(said["name"], said["calls"], said["own"], below)


def _as_dict(frame: Frame) -> dict[str, Any]:
    below = [_as_dict(one) for one in frame.below]
    return {"name": frame.name, "calls": frame.calls, "own": frame.own, "below": below}


if __name__ == "__main__":
    _, benchmark, of = sys.argv
    print(json.dumps(_as_dict(profiled(loops_of(benchmark)[of], of == IN_BULK))))
