"""What order in time, rows without a match and first results cost beside the join of all results.

Three streams of keys that return now and then, in windows that hold a fifth of all rows; and the
honeypots, where a few keys make nearly all results. On Spark rows without a match are compared with
Spark's own left outer join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamshed as ss
from streamshed.errors import StreamshedError
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.timing import best_of, processor_time
from streamshed_lab.workloads.traces import HONEYPOT, data_folder

COST_BAR = 1.15
FIRST_BAR = 20.0
OUTER_BAR = 4.0

ASKED: dict[str, Callable[[ss.Join], ss.Join]] = {
    "in_order": lambda join: join.in_order("a", "b", "c"),
    "between": lambda join: join.between("b", "a", 0, 100_000).between("c", "b", 0, 100_000),
    "unmatched": lambda join: join.unmatched("a", "b"),
    "first(per='key')": lambda join: join.first(per="key"),
    "first(per='b', last_touch=True)": lambda join: join.first(per="b", last_touch=True),
}


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    rows, repeats = (200_000, 5) if quick else (1_000_000, 7)
    yield from _costs(rows, repeats, progress)
    yield from _first(quick, progress)
    if not quick:
        yield from _outer(progress)


def _costs(rows: int, repeats: int, progress: Progress) -> Iterator[Measurement]:
    """The time of each, counting its results, beside that of the join of all."""
    progress(f"3 × {rows:,} rows: the cost of each")
    rng = np.random.default_rng(1)
    data = {
        name: pa.table(
            {"k": rng.integers(0, rows, rows), "ts": np.sort(rng.integers(0, 1_000_000, rows))}
        )
        for name in "abc"
    }
    base = ss.join("a", "b", "c").on("k").within(200_000, time="ts")
    joins = {"all results": base} | {name: say(base) for name, say in ASKED.items()}

    def counted(join: ss.Join) -> int:
        return join.count(data, order="arrival").results  # row by row, as all of them can be

    def timed(join: ss.Join) -> Callable[[], float]:
        return lambda: processor_time(lambda: counted(join))

    made = {name: counted(join) for name, join in joins.items()}  # and they are compiled

    best = best_of(repeats, {name: timed(join) for name, join in joins.items()})
    setting = f"3 × {rows:,} rows, counted"
    speed = 3 * rows / best["all results"]
    yield Measurement(
        f"the join of all {made['all results']:,} results, {setting}", speed, "rows/s"
    )
    for name in ASKED:
        yield Measurement(
            f"time of {name} ({made[name]:,} results) over that of all results, {setting}",
            best[name] / best["all results"],
            "times",
            bar=COST_BAR,
            at_most=True,
        )


def _first(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """The first result of each attacker of the honeypots, beside all of them."""
    try:
        path = data_folder() / HONEYPOT
        events = pq.read_table(path, columns=["host", "src", "ts"])
    except (StreamshedError, FileNotFoundError) as error:
        progress(f"the honeypots are left out: {error}")
        return
    if quick:
        events = events.slice(0, 60_000)
    progress("honeypots: the first result of each key, and all results")
    join = ss.join(by="host").on("src").within(600, time="ts").partial(at_least=3)
    first = join.first(per="key")
    found = first.replay(events).table
    firsts = best_of(3, {"first": lambda: processor_time(lambda: first.replay(events))})["first"]
    made = 0

    def make() -> None:
        nonlocal made
        made = sum(batch.num_rows for batch in join.replay_batches(events))

    everything = processor_time(make)
    keys = len({*found["key"].to_pylist()})
    setting = f"honeypots, {events.num_rows:,} rows"
    yield Measurement(f"first results of {keys:,} keys, {setting}", found.num_rows, "results")
    yield Measurement(f"time to make them, {setting}", firsts, "s")
    yield Measurement(f"all results, {setting}", made, "results")
    yield Measurement(f"time to make them all, {setting}", everything, "s")
    # The first days have few results, so that little is saved.
    bar = None if quick else FIRST_BAR
    name = f"first results over all results, {setting}"
    yield Measurement(name, everything / firsts, "times", bar=bar)


def _outer(progress: Progress) -> Iterator[Measurement]:
    """Rows without a match on Spark, beside Spark's own left outer join on RocksDB."""
    from streamshed_lab.bench import spark

    with TemporaryDirectory() as folder, spark.local_spark(Path(folder), progress) as session:
        bench = spark.SparkBench(session, Path(folder), progress)
        yield from bench.outer(100_000, batches=7, bar=OUTER_BAR)
