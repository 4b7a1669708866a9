"""What one shard carries, and how its cost grows with streams, rows, budget and shards.

In this process a join takes one core. Rows have keys of which each comes about once to every stream
in a window, so that the work is that of storing and probing, not of writing results. On Spark the
same files are joined in more and more shards on two cores; batches of few rows show what a batch
and a shard cost by themselves. `python -m streamshed_lab.bench.page` derives from a run what more
cores would carry (docs/scale.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed_lab.bench import Measurement, Progress, shown
from streamshed_lab.bench.timing import best_of, processor_time

WINDOW = 60
STREAMS = (2, 3, 4, 8)
HELD = (30_000, 300_000, 3_000_000)
"""Rows that a window holds, of all streams."""
PARTS = (0.5, 0.1)
"""Budgets, as parts of what the window holds."""
SHARDS = (1, 2, 4, 8, 16)
CORES = 2
"""Of the Spark that is measured."""
FEW = 1_000
"""Rows of a stream in a batch that shows what a batch costs by itself."""
MANY = 100_000
_ROUNDS = 2
"""Numbers of shards take turns, and the best of so many rounds counts."""
_AT_ONCE = 4_096
"""Rows of a stream that one shard is given at once."""

TRIGGER = 10.0
"""Seconds between batches, for what is derived."""
CLUSTERS = (10, 100, 1_000)


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    rows, repeats = (400_000, 2) if quick else (2_000_000, 3)
    yield from _one_shard(rows, repeats, HELD[:2] if quick else HELD, progress)
    yield from _shards(SHARDS[:3] if quick else SHARDS, progress)


# -- one shard -------------------------------------------------------------------------------------


def _one_shard(
    rows: int, repeats: int, held: tuple[int, ...], progress: Progress
) -> Iterator[Measurement]:
    usual = held[1]
    settings: dict[str, tuple[ss.Join, dict[str, pa.Table]]] = {}
    for count in STREAMS:
        named = f"{count} streams, {usual:,} rows held"
        settings[named] = _join(count), _tables(count, rows, usual)
    for size in held:
        named = f"3 streams, {size:,} rows held"
        settings.setdefault(named, (_join(3), _tables(3, max(rows, 2 * size), size)))
    tables = _tables(3, rows, usual)
    for policy in ("density", "oldest"):
        for part in PARTS:
            budget = round(part * usual)
            named = f"3 streams, {usual:,} rows in the window, {budget:,} kept by {policy}"
            settings[named] = _join(3).keep(total=budget).shed(policy), tables
    for name, (join, streams) in settings.items():
        progress(f"one shard: {name}")
        join.count({stream: table.slice(0, 100).to_reader() for stream, table in streams.items()})
        ledgers: list[ss.Ledger] = []

        def once(
            join: ss.Join = join,
            streams: Mapping[str, pa.Table] = streams,
            ledgers: list[ss.Ledger] = ledgers,
        ) -> float:
            # Whole tables without a budget would be joined in bulk, which is not what a shard does.
            readers = {n: table.to_reader(_AT_ONCE) for n, table in streams.items()}
            return processor_time(lambda: ledgers.append(join.count(readers)))

        (seconds,) = best_of(repeats, {name: once}).values()
        arrived = sum(stream.arrived for stream in ledgers[-1].streams.values())
        yield Measurement(f"one shard, {name}", arrived / seconds, "rows/s")
        if "in the window" not in name:
            peak = sum(stream.peak for stream in ledgers[-1].streams.values())
            size = ledgers[-1].state_bytes
            yield Measurement(f"one shard, {name}, beyond the row itself", size / peak, "bytes/row")


def _join(streams: int) -> ss.Join:
    return ss.join(*_names(streams)).on("key").within(WINDOW, time="time")


def _names(streams: int) -> list[str]:
    return [f"s{number}" for number in range(1, streams + 1)]


def _tables(streams: int, rows: int, held: int) -> dict[str, pa.Table]:
    """Streams of so many rows together, of which a window holds `held`."""
    each = rows // streams
    span = max(2, round(WINDOW * rows / held))
    found = {}
    for number, name in enumerate(_names(streams)):
        random = np.random.default_rng([streams, held, number])
        found[name] = pa.table(
            {
                "key": random.integers(0, held // streams, each),
                "time": np.sort(random.integers(0, span, each)),
                "value": random.random(each),
            }
        )
    return found


# -- shards on Spark -------------------------------------------------------------------------------


def _shards(numbers: tuple[int, ...], progress: Progress) -> Iterator[Measurement]:
    from streamshed_lab.bench.spark import SparkBench, local_spark

    with TemporaryDirectory() as folder, local_spark(Path(folder), progress) as session:
        bench = SparkBench(session, Path(folder), progress)
        bench.in_shards(FEW, numbers[-1], batches=4)  # Java gets faster while it runs
        best: dict[tuple[int, int], float] = {}
        for _ in range(_ROUNDS):
            for shards, rows in product(numbers, (FEW, MANY)):
                seconds = bench.in_shards(rows, shards, batches=6)
                best[shards, rows] = min(seconds, best.get((shards, rows), seconds))
    for shards in numbers:
        few, many = best[shards, FEW], best[shards, MANY]
        here = f"{shards} shard{'s' if shards > 1 else ''} on {CORES} cores"
        yield Measurement(f"{here}, a batch of 3 × {FEW:,} rows", few, "s")
        yield Measurement(f"{here}, a batch of 3 × {MANY:,} rows", many, "s")
        marginal = 3 * (MANY - FEW) / (many - few)
        yield Measurement(f"{here}, beyond what a batch costs", marginal, "rows/s")


# -- what follows ----------------------------------------------------------------------------------


def derived(measured: Mapping[str, float]) -> str:
    """What more cores would carry, as Markdown: from the figures of a run by their names.

    What a batch costs by itself, and each shard besides, is a line by least squares through the
    batches of few rows. Where the time of a shard is spent makes the difference: in executors, side
    by side, or one after the other in the driver; the truth lies between. In the rest of the time
    each core joins rows as fast as here.
    """
    few = {
        int(name.split()[0]): value
        for name, value in measured.items()
        if name.endswith(f"a batch of 3 × {FEW:,} rows")
    }
    slope, fixed = np.polyfit(list(few), list(few.values()), 1)
    each = max(float(slope), 0.0)
    rate = measured[f"{CORES} shards on {CORES} cores, beyond what a batch costs"] / CORES
    lines = [
        f"A batch costs {fixed:.2f} s, and {1000 * each:.0f} ms more for each shard on {CORES}"
        f" cores; besides, a core joins {shown(rate)} rows a second. With one shard per core and a"
        f" batch every {TRIGGER:.0f} s, in rows a second:",
        "",
        "| cores | if the time per shard is the executors' | if it is the driver's |",
        "|---|---|---|",
    ]
    for cores in CLUSTERS:
        carried = [
            f"{round(cores * rate * max(0.0, 1 - (fixed + spent) / TRIGGER), -3):,.0f}"
            for spent in (CORES * each, cores * each)
        ]
        lines.append(f"| {cores:,} | {' | '.join(carried)} |")
    return "\n".join(lines)


def table(measured: Mapping[str, float], units: Mapping[str, Any]) -> str:
    """The figures of a run as Markdown."""
    lines = ["| | |", "|---|---|"]
    lines += [f"| {name} | {shown(value)} {units[name]} |" for name, value in measured.items()]
    return "\n".join(lines)
