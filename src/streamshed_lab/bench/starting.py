"""What a new process pays before it works: imports, cached kernels, and a compiler's first time.

Each figure is that of a process of its own. A cold compile begins with an empty cache; what it
takes is nearly all of the first call. *In bulk* is a replay of tables without a budget; *row by
row* is the same join as sessions and Spark run it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryDirectory

from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.timing import best_of, in_new_process

IMPORT_BAR = 0.04
FIRST_CALL_BAR = 0.3

_TINY = """
import pyarrow
import streamshed
rows = pyarrow.table({"k": [1, 2], "y": [1, 2], "ts": [1, 2]})
keyed = streamshed.join('a', 'b', 'c').on('k').within(5, time='ts')
graph = streamshed.join('a', 'b', 'c').on('a.k = b.k', 'b.y = c.y').within(5, time='ts')
"""
_EXISTENCE = "keyed.keep(rows=1).shed('existence').replay(a=rows, b=rows, c=rows)"
_EXACT = "keyed.replay(a=rows, b=rows, c=rows)"

COLD = {
    "exact, in bulk": (_EXACT, 8.0),
    "exact, row by row": ("keyed.replay(a=rows, b=rows, c=rows, order='arrival')", 8.0),
    "density": ("keyed.keep(rows=1).replay(a=rows, b=rows, c=rows)", 15.0),
    "graph with sketch": (
        "graph.keep(rows=1).shed('sketch').replay(a=rows, b=rows, c=rows)",
        15.0,
    ),
}
"""What is compiled, and in how many seconds."""


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    repeats = 3 if quick else 5
    with TemporaryDirectory() as bytecode:
        yield from _warm(repeats, bytecode, progress)
        for what, (call, bar) in COLD.items():
            progress(f"compiling: {what}")
            with TemporaryDirectory() as empty:
                seconds = in_new_process(_TINY, call, bytecode, cache=empty)
            name = f"first replay in a new process, nothing cached, {what}"
            yield Measurement(name, seconds, "s", bar, at_most=True)


def _warm(repeats: int, bytecode: str, progress: Progress) -> Iterator[Measurement]:
    progress("starting new processes")
    runs = {
        "import streamshed in a new process": ("", "import streamshed", IMPORT_BAR),
        "first replay in a new process, kernels cached, existence": (
            _TINY,
            _EXISTENCE,
            FIRST_CALL_BAR,
        ),
        "first replay in a new process, kernels cached, exact": (_TINY, _EXACT, FIRST_CALL_BAR),
    }
    for prepare, timed, _ in runs.values():
        in_new_process(prepare, timed, bytecode)  # whatever is not compiled yet is compiled here
    best = best_of(
        repeats,
        {
            name: partial(in_new_process, prepare, timed, bytecode)
            for name, (prepare, timed, _) in runs.items()
        },
    )
    for name, seconds in best.items():
        yield Measurement(name, seconds, "s", bar=runs[name][2], at_most=True)
