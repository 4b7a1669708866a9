"""The workloads that break policies: reproducible, in order, and as they say."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from streamshed_lab.workloads import (
    Auctions,
    Bursts,
    ClumpedKeys,
    DailyCycle,
    DailySessions,
    FlashCrowd,
    FlashKeys,
    HeavySessions,
    OneHeavyKey,
    RepeatingSessions,
    StoppingStream,
    SwappedKeys,
    Workload,
)

ALL = [
    Bursts,
    ClumpedKeys,
    DailyCycle,
    DailySessions,
    FlashCrowd,
    FlashKeys,
    HeavySessions,
    OneHeavyKey,
    RepeatingSessions,
    StoppingStream,
    SwappedKeys,
]


@pytest.mark.parametrize("kind", ALL)
def test_the_same_seed_makes_the_same_streams_in_order_of_time(kind: type[Workload]) -> None:
    one, again, other = (kind(seed=seed).tables() for seed in (1, 1, 2))
    assert list(one) == list(again)
    for name, rows in one.items():
        assert rows.equals(again[name])
        times = rows["time"].cast("int64").to_numpy()
        assert (times[1:] >= times[:-1]).all()
        assert rows.num_rows > 1_000
    assert any(not rows.equals(other[name]) for name, rows in one.items())


def test_one_heavy_key_has_few_rows_and_bursts_are_fast() -> None:
    for rows in OneHeavyKey(seed=3).tables().values():
        counts = pc.value_counts(rows["key"]).field("counts")
        assert 0.002 < pc.max(counts).as_py() / rows.num_rows < 0.1
    for rows in Bursts(seed=3).tables().values():
        seconds = pc.floor(pc.divide(rows["time"].cast("int64"), 1_000_000))
        busiest = pc.max(pc.value_counts(seconds).field("counts")).as_py()
        assert busiest > 5 * rows.num_rows / 2_000


def test_a_sale_closes_an_auction() -> None:
    offers, bids, sales = Auctions(seed=3).tables().values()
    assert offers.num_rows == 700
    closed = dict(zip(sales["key"].to_pylist(), sales["time"].to_pylist(), strict=True))
    assert 300 < len(closed) < 400
    for key, time in zip(bids["key"].to_pylist(), bids["time"].to_pylist(), strict=True):
        assert key not in closed or time <= closed[key]


def test_daily_sessions_come_once_a_day_for_a_while() -> None:
    workload = DailySessions(days=5, keys=20, present=1.0, seed=3)
    streams = workload.tables()
    rows = [table.num_rows for table in streams.values()]
    assert rows == sorted(rows, reverse=True)
    assert rows[0] > 10 * rows[-1]
    days: dict[tuple[int, int], list[float]] = {}
    for table in streams.values():
        seconds = pc.divide(pc.cast(table["time"], "int64"), 1e6).to_pylist()
        for key, second in zip(table["key"].to_pylist(), seconds, strict=True):
            days.setdefault((key, int(second // workload.day)), []).append(second)
    assert len(days) > 90
    assert all(max(of) - min(of) <= workload.lasting for of in days.values())
