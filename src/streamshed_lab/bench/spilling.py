"""Spilling: the same results with half the memory, how fast, and how much disk that takes.

Both joins go row by row (`order="arrival"`, of rows that are in the order of time), as live data
do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import streamshed as ss
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.timing import best_of, processor_time
from streamshed_lab.workloads import ExistenceWorkload, ZipfWorkload

WINDOW = 100
"""Seconds."""
WINDOWS = 5
"""So many of them are replayed."""
SPEED_BAR = 0.5
QUICK, FULL = ((20_000,), 2), ((20_000, 100_000, 400_000), 5)
"""Rows of each stream in a window, and how often everything is timed."""


def workloads(rows: int) -> dict[str, dict[str, pa.Table]]:
    """Three streams with so many rows in a window: keys that come once, and keys that recur."""
    size, rate = WINDOWS * rows, rows / WINDOW
    return {
        "unique keys": ExistenceWorkload(
            streams=3, tuples=size, rate=rate, spread=WINDOW / 2, seed=1, arrivals="poisson"
        ).tables(),
        "recurring keys": ZipfWorkload(
            streams=3, tuples=size, rate=rate, keys=2 * rows, skew=0.0, seed=1
        ).tables(),
    }


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure joins with half the memory that they need; see `streamshed_lab.bench.run`."""
    sizes, repeats = QUICK if quick else FULL
    for rows in sizes:
        for name, tables in workloads(rows).items():
            setting = f"half the memory, {name}, 3 streams, {rows:,} rows of each in a window"
            progress(f"spilling, {setting}")
            with TemporaryDirectory() as folder:
                yield from _measured(setting, tables, rows, folder, repeats)


def _measured(
    setting: str, tables: Mapping[str, pa.Table], rows: int, folder: str, repeats: int
) -> Iterator[Measurement]:
    exact = ss.join(*tables).on("key").within(f"{WINDOW} s", time="time", clock="max")
    spilled = exact.keep(total=len(tables) * rows // 2).spill(to=folder)
    expected, done = exact.replay(tables), spilled.replay(tables)
    wrong = len(_different(expected.table, done.table))
    yield Measurement(f"results missing or made twice, {setting}", wrong, "results", 0, True)
    told = done.ledger.spilled
    assert told is not None
    yield Measurement(f"results, {setting}", done.ledger.results, "results")
    yield Measurement(f"results made from disk, {setting}", told.results, "results")
    yield Measurement(f"their mean delay, {setting}", told.delay / 1e6, "s")
    yield Measurement(f"most on disk at once, {setting}", told.most_bytes, "bytes")
    yield Measurement(f"written to disk, {setting}", told.written, "bytes")
    runs = {
        name: partial(join.replay, tables, order="arrival")
        for name, join in (("exact", exact), ("spilled", spilled))
    }
    best = best_of(repeats, {name: partial(processor_time, work) for name, work in runs.items()})
    tuples = sum(table.num_rows for table in tables.values())
    for name, seconds in best.items():
        yield Measurement(f"replay, {name}, {setting}", tuples / seconds, "rows/s")
    ratio = best["exact"] / best["spilled"]
    yield Measurement(f"speed against the join in memory, {setting}", ratio, "times", SPEED_BAR)


def _different(one: pa.Table, other: pa.Table) -> npt.NDArray[np.void]:
    """The results that two joins did not make equally often."""
    first, second = _sorted(one), _sorted(other)
    if len(first) == len(second) and (first == second).all():
        return first[:0]
    (kinds, often), (others, seldom) = (
        np.unique(rows, return_counts=True) for rows in (first, second)
    )
    same = np.intersect1d(
        np.rec.fromarrays([*_columns(kinds), often]), np.rec.fromarrays([*_columns(others), seldom])
    )
    return np.empty(len(kinds) + len(others) - 2 * len(same), np.void)


def _columns(rows: npt.NDArray[np.void]) -> list[npt.NDArray[np.int64]]:
    return [rows[name] for name in rows.dtype.names or ()]


def _sorted(results: pa.Table) -> npt.NDArray[np.void]:
    """Results as records in some order: of every member its key and time."""
    flat = results.flatten()
    columns = [flat.column(i).cast(pa.int64()).to_numpy() for i in range(flat.num_columns)]
    rows: npt.NDArray[np.void] = np.rec.fromarrays(columns)
    return rows[np.lexsort(columns)]
