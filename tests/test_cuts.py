"""Shards with a budget make the same wherever their rows are cut into batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streamshed as ss
from state_handle import Handle
from streaming import rows
from streamshed import replay
from streamshed.engine.checkpoint import from_ipc
from streamshed.join import spec_of
from streamshed.ledger import Ledger
from streamshed.spark.blobs import Pack
from streamshed.spark.processor import FATES, SHED_BY, TOTALS, JoinProcessor
from streamshed.spark.sharding import Sharding

SHARDS = 3
POLICIES = ("random", "frequency", "output", "density", "existence")
BUDGETS: dict[str, dict[str, Any]] = {
    "rows": {"rows": 40},
    "total": {"total": 90},
    "bytes": {"memory": SHARDS * 5_200},
}


def uneven(seed: int) -> dict[str, pa.Table]:
    """Streams in the order of time, of which one has few rows, and all have equal times.

    A shard sees few rows of that one, and so its own clock is far behind that of all.
    """
    random = np.random.default_rng(seed)
    data = {}
    for name, count in {"a": 600, "b": 300, "c": 40}.items():
        times = np.sort(random.integers(0, 2_000, count) ** 2 // 2_000)
        keys = random.integers(0, 40, count)
        data[name] = pa.table({"k": keys, "ts": times, "n": np.arange(count)})
    return data


def join_of(policy: str, budget: str) -> ss.Join:
    join = ss.join("a", "b", "c").on("k").within(500, time="ts").partial(at_least=2)
    return join.keep(**BUDGETS[budget]).shed(policy).estimate(rate=0).seed(3)


def accounts(ledger: Ledger) -> dict[str, tuple[int, ...]]:
    """What became of the rows, but for the most that were stored at once."""
    return {
        name: tuple(n for fate, n in zip(FATES, astuple(stream), strict=True) if fate != "peak")
        for name, stream in ledger.streams.items()
    }


@pytest.mark.parametrize(
    ("policy", "budget"),
    [
        (policy, budget)
        for policy in POLICIES
        for budget in BUDGETS
        if (policy, budget) != ("density", "bytes")  # whose tables are larger
    ],
)
def test_cuts_change_nothing_in_threads(policy: str, budget: str) -> None:
    join, shed = join_of(policy, budget), 0
    for seed in range(4):
        data = uneven(seed)
        whole = join.replay(data, shards=SHARDS)
        shed += sum(stream.shed for stream in whole.ledger.streams.values())
        for chunk in (7, 23, 100):
            made = replay.replay_batches(spec_of(join), data, shards=SHARDS, chunk=chunk)
            found = pa.Table.from_batches(list(made), made.schema)
            assert rows(found) == rows(whole.table)
            assert made.ledger.streams == whole.ledger.streams
    assert shed > 100


def processed(
    join: ss.Join, data: dict[str, pa.Table], cuts: list[int]
) -> tuple[Counter[str], dict[str, tuple[int, ...]]]:
    """What Spark's processor makes of batches up to some times, with a new worker for each."""
    plan, sharding = join.plan({name: table.schema for name, table in data.items()}), Sharding(3)
    handles = {label: Handle() for label in sharding.labels}
    made: Counter[str] = Counter()
    counts = {}
    for start, end in zip([-1, *cuts], [*cuts, 10_000], strict=True):
        packed = []
        for position, table in enumerate(data.values()):
            times = table["ts"].to_numpy()
            some = table.filter(pa.array((times > start) & (times <= end)))
            pack = Pack(position, plan, sharding, by_key=True)
            packed += list(pack(iter(some.combine_chunks().to_batches())))
        blobs = pa.Table.from_batches(packed).to_pandas()
        for label, handle in handles.items():
            worker = JoinProcessor(plan, sharding)
            worker.init(handle)
            frames = list(worker.handleInputRows((label,), iter([_of(label, blobs)]), None))
            for blob in (blob for frame in frames for blob in frame.rows if blob is not None):
                made += Counter(map(repr, rows(pa.Table.from_batches([from_ipc(blob)]))))
            counts[label] = frames[-1].counts.iloc[-1]
    own = np.array([of[len(TOTALS) : -len(SHED_BY)] for of in counts.values()]).sum(axis=0)
    by_stream = dict(zip(data, own.reshape(-1, len(FATES)).tolist(), strict=True))
    peak = FATES.index("peak")
    return made, {name: (*of[:peak], *of[peak + 1 :]) for name, of in by_stream.items()}


def _of(label: int, blobs: pd.DataFrame) -> pd.DataFrame:
    return blobs[blobs.shard == label].assign(moment=0)


@pytest.mark.parametrize(("policy", "budget"), [("random", "total"), ("frequency", "rows")])
def test_cuts_and_restarts_change_nothing_in_spark_s_processor(policy: str, budget: str) -> None:
    """And it makes what threads make; stored rows may expire a little later, for it has no end."""
    join, data = join_of(policy, budget), uneven(1)
    threads = join.replay(data, shards=SHARDS)
    whole, stored = processed(join, data, [])
    assert whole == Counter(map(repr, rows(threads.table)))
    for cuts in ([333], [100, 101, 102, 700, 1_500], [*range(0, 2_000, 61)]):
        assert processed(join, data, cuts) == (whole, stored)
    for name, of in accounts(threads.ledger).items():
        assert sum(of) == sum(stored[name])
        assert of[FATES.index("shed")] == stored[name][FATES.index("shed")]
