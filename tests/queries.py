"""Queries in processes of their own, to be killed, and what they leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamshed as ss
from harness import spec, windowed
from oracles.rows import Workload
from oracles.workloads import generated
from streaming import Batch, Files, counts, cut, rows
from streamshed.ledger import Ledger
from streamshed.policies import Importance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent
BATCHES = 6
PATIENCE = 600.0


THROUGH = "through"
"""In place of a policy: a join through a relation that changes, weighed."""


STREAMED = "streamed"
"""The same, and the changes of the relation stream too."""


KEYED = "keyed"
"""The same, and all streams match one column of the relation, so that shards divide its facts."""


SPILLED = "spilled"
"""In place of a policy: a join that spills; see `spilled_join`."""


POLLED = "polled"
"""In place of a policy: a join through a table that the driver reads anew; see `polled_join`."""


CLUSTERED = "clustered"
"""In place of a policy: a join in clusters, with relevance feedback."""


def joined(policy: str) -> ss.Join:
    """The join that is to be done with the workload of a policy."""
    if policy in (THROUGH, STREAMED):
        return through(workload(policy))
    if policy == KEYED:
        return through_one_column(workload(policy))
    return spec(workload(policy))


def spilled_join(to: Path) -> ss.Join:
    """A join of two streams that spills to a folder."""
    join = ss.join("a", "b").on("k").within(SPILLING_WINDOW, time="ts")
    return join.keep(total=120).spill(to=str(to))


def spilled_batches(batches: int = 6, size: int = 300) -> list[Batch]:
    """Rows of which most wait on disk, and then such as meet nobody, who bring credit for them."""
    last = batches * size
    keys = {name: range(1000 * seed, 1000 * seed + 4) for name, seed in SPILLING.items()}
    return [
        {name: _spilled_rows(seed, size, start) for name, seed in SPILLING.items()}
        for start in range(0, last, size)
    ] + [
        {
            name: pa.table({"k": [*keys[name]] * 8, "ts": np.repeat(times, 4), "n": [-1] * 32})
            for name in SPILLING
        }
        for times in (np.arange(1, 17) * SPILLING_WINDOW + last).reshape(2, 8)
    ]


def _spilled_rows(seed: int, size: int, start: int) -> pa.Table:
    random = np.random.default_rng([seed, start])
    times = np.sort(random.integers(start, start + size, size))
    keys = random.integers(0, 40, size)
    return pa.table({"k": keys, "ts": times, "n": np.arange(start, start + size)})


SPILLING, SPILLING_WINDOW = {"a": 1, "b": 2}, 400
"""The seeds of the streams of a join that spills, and its window."""


def polled_join(folder: Path) -> ss.Join:
    """A join of two streams through a table that changes; the driver keeps what it has read."""
    table, versions = str(folder / "_pairs.parquet"), str(folder / "_versions")
    pairs = ss.relation(table, refresh="200 ms", versions=versions)
    return ss.join("r", "s").on("k").within(POLLED_WINDOW, time="ts").through(pairs, r="a", s="b")


def change_pairs(folder: Path, number: int, counts: bool = True) -> None:
    """Let each key of one stream meet another of the other one, and wait until that counts."""
    facts = {"a": range(KEYS), "b": [(key + number) % KEYS for key in range(KEYS)]}
    pq.write_table(pa.table({**facts, "number": [number] * KEYS}), folder / "_new.parquet")
    os.replace(folder / "_new.parquet", folder / "_pairs.parquet")
    until = time.monotonic() + PATIENCE
    while counts and len(versions_of(folder)) <= number:
        assert time.monotonic() < until, "the table is not read"
        time.sleep(0.05)
    time.sleep(2.1 if counts else 0)


def versions_of(folder: Path) -> list[int]:
    """The moments from which on the versions of the table count, in milliseconds."""
    return sorted(int(path.name.split("-")[1]) // 1000 for path in folder.glob("_versions/since-*"))


def polled_batches() -> list[Batch]:
    """Rows of which none is filtered, whatever the version of the table."""
    random = np.random.default_rng(8)

    def part(start: int) -> pa.Table:
        numbers = np.arange(start, start + 40)
        return pa.table({"k": random.integers(0, KEYS, 40), "ts": numbers, "n": numbers})

    return [{"r": part(40 * batch), "s": part(40 * batch)} for batch in range(BATCHES)]


KEYS, POLLED_WINDOW = 5, 60
"""Of the join through a table that is read anew."""


def with_changes(join: ss.Join, folder: Path, spark: SparkSession) -> ss.Join:
    """The join whose relation changes by what is in files; see `write_changes`."""
    said = join._spec.through_relation
    assert said is not None
    frame = Files(folder / "_changes").frames(spark)["log"]
    return join.through(replace(said.relation, changes=frame), **dict(said.columns.named))


def newest(batch: Batch) -> int:
    """The newest time of a batch."""
    return max(int(table["ts"].to_numpy().max()) for table in batch.values())


def write_changes(join: ss.Join, batches: Sequence[Batch], folder: Path, since: int = -1) -> None:
    """Write the changes of a relation as files, those up to the newest time of a batch with it."""
    said = join._spec.through_relation
    assert said is not None
    changes, times = said.relation.changes, said.relation.changes["time"].to_numpy()
    files = Files(folder / "_changes")
    for batch in batches:
        until = newest(batch)
        now = pa.array((times > since) & (times <= until))
        files.write([{"log": changes.filter(now)}])
        since = until


def through(workload: Workload, dynamic: bool = True) -> ss.Join:
    """A join of the same streams through a relation, by the importance of matches."""
    names = [str(name) for name in workload.names]
    keys = np.arange(24)
    columns = {f"k{p}": keys * (1, 5, 7, 11)[p] % 12 for p in range(len(names))}
    facts = pa.table({**columns, "f": keys})
    first, last = facts.slice(0, 18), facts.slice(12)
    changes = last.append_column("time", pa.array(np.arange(12) * 7))
    changes = changes.append_column("change", pa.array(["delete", "insert"] * 6))
    relation = ss.relation(first, name="fact", changes=changes if dynamic else None)
    join = windowed(ss.join(*names).on("k").seed(workload.seed), workload).weigh(column="worth")
    join = join.through(relation, **{name: f"k{p}" for p, name in enumerate(names)})
    return join.shed(Importance(matches="now")) if workload.bounded else join


def through_one_column(workload: Workload) -> ss.Join:
    """A join through a relation that all streams match by the same column, and that changes."""
    facts = pa.table({"p": np.arange(12), "note": np.arange(12)})
    keys, notes = [1, 7, 0, 8, 2, 1, 3, 9, 4, 2], [1, 7, 0, 8, 2, 10, 3, 9, 4, 20]
    times = np.arange(10) * max(row.time for row in workload.rows) // 10
    kinds = ["delete", "insert"] * 5
    changes = pa.table({"p": keys, "note": notes, "time": times, "change": kinds})
    relation = ss.relation(facts.slice(0, 6), name="fact", changes=changes)
    return spec(workload).through(relation, **{str(name): "p" for name in workload.names})


def workload(policy: str) -> Workload:
    """Streams in order of time, bounded unless the policy is `exact`."""
    policy = {THROUGH: "oldest", STREAMED: "oldest", KEYED: "exact"}.get(policy, policy)
    bounded = {"keep_rows": (9, 6, 12), "policy": policy} if policy != "exact" else {}
    return generated(3, rows=90, keys=12, skew=0.5, window=("time", 30), **bounded)


def written(folder: Path, policy: str) -> Files:
    """The workload of a policy in files, a batch of each stream in each."""
    files, batches = Files(folder), cut(workload(policy), BATCHES)
    files.write(batches)
    if policy == STREAMED:
        write_changes(joined(policy), batches, folder)
    return files


def environment(**more: str) -> dict[str, str]:
    """The variables with which Python workers find this package and these tests."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        **more,
    }


class Query:
    """A driver process, its Spark and its Python workers.

    Args:
        folder: of the query.
        policy: which query; see `joined`.
        options: of the driver.
        python: that of the driver and of its workers.
    """

    def __init__(
        self, folder: Path, policy: str, *options: str, python: str = sys.executable
    ) -> None:
        temporary = folder / "_tmp"
        temporary.mkdir(exist_ok=True)
        self.log = (folder / "_log").open("ab")
        self.process = subprocess.Popen(
            [python, str(TESTS / "spark" / "driver.py"), str(folder), policy, *options],
            env=environment(SPARK_LOCAL_DIRS=str(temporary), PYSPARK_PYTHON=python),
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill the driver and its Spark; the workers see it and end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def wait_for(self, happened: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not happened():
            assert self.process.poll() is None, "the driver ended too early"
            assert time.monotonic() < until, "the driver takes too long"
            time.sleep(0.002)

    def finish(self) -> None:
        assert self.process.wait(PATIENCE) == 0
        self.log.close()


@contextlib.contextmanager
def running(
    folder: Path, policy: str, *options: str, python: str = sys.executable
) -> Iterator[Query]:
    query = Query(folder, policy, *options, python=python)
    try:
        yield query
    finally:
        query.kill()


def struck(folder: Path, batch: int, moment: str) -> Callable[[], bool]:
    marker = folder / f"_struck-{batch}-{moment}"
    return lambda: marker.exists() and marker.read_text() != ""


def logged(folder: Path, log: str, batch: int) -> Callable[[], bool]:
    return (folder / "_checkpoint" / log / str(batch)).exists


def waits(*moments: tuple[int, str]) -> list[str]:
    """The options by which a worker waits at these moments to be killed."""
    return [word for batch, moment in moments for word in ("--disturb", str(batch), moment, "wait")]


def check(folder: Path, table: pa.Table, ledger: Ledger) -> None:
    """The query has left these results, row for row, and this ledger."""
    found = pq.read_table(folder / "_results.parquet")
    assert rows(found, table.schema) == rows(table)
    left = json.loads((folder / "_ledger.json").read_text())
    assert left == {"streams": counts(ledger), "results": ledger.results}
