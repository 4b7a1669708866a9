"""Sensors: their readings, their comings and goings, and events."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from streamshed import StreamshedError
from streamshed_lab.workloads import EventWorkload, SensorWorkload, traces
from streamshed_lab.workloads.traces import InputError


def test_waiting_times_are_exponential():
    table = SensorWorkload(sensors=5, seconds=4_000.0, every=2.0, seed=3).table()
    times = table["time"].cast("int64").to_numpy()
    assert (np.diff(times) >= 0).all()
    for sensor in range(5):
        gaps = np.diff(times[table["sensor"].to_numpy() == sensor]) / 1e6
        assert stats.kstest(gaps, "expon", args=(0, 2.0)).pvalue > 1e-4


@pytest.mark.parametrize("popular", ["own", "same"])
def test_values_are_zipf(popular):
    field = SensorWorkload(2, 30_000.0, values=50, skews=(1.5,), popular=popular, seed=1)
    weights = 1.0 / np.arange(1, 51) ** 1.5
    most = []
    for table in field.tables().values():
        counts = np.bincount(table["key"].to_numpy(), minlength=50)
        most.append(int(counts.argmax()))
        expected = weights / weights.sum() * counts.sum()
        assert (
            stats.chisquare(np.sort(counts)[::-1][:20], expected[:20], sum_check=False).pvalue
            > 1e-4
        )
    assert (most == [0, 0]) == (popular == "same")


def test_values_that_last_for_a_while():
    field = SensorWorkload(4, 100.0, values=10, popular="same", lasts=5.0, seed=2)
    table = field.table()
    epoch = table["time"].cast("int64").to_numpy() // 5_000_000
    assert (table["key"].to_numpy() // 10 == epoch).all()


def test_sensors_come_and_go():
    field = SensorWorkload(100, 3_600.0, every=60.0, changes=20, seed=4)
    begins, ends = map(np.array, field.lives())
    there = [int(((begins <= t) & (ends > t)).sum()) for t in np.arange(0.0, 3_600.0, 60.0)]
    assert there[0] == 100
    assert all(1 <= abs(b - a) <= 20 for a, b in pairwise(there))
    assert abs(np.mean(there) - 100) < 10
    table = field.table()
    sensor, times = table["sensor"].to_numpy(), table["time"].cast("int64").to_numpy() / 1e6
    assert (times >= begins[sensor] - 1e-5).all()
    assert (times <= ends[sensor] + 1e-5).all()
    assert table.equals(field.table())


def test_events_are_reported_once():
    tables = EventWorkload(3, 2_000, 10.0, reported=0.9, delay=2.0, seed=5).tables()
    for table in tables.values():
        keys = table["key"].to_numpy()
        assert len(set(keys.tolist())) == len(keys) == pytest.approx(1_800, rel=0.05)
        assert (np.diff(table["time"].cast("int64").to_numpy()) >= 0).all()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"sensors": 1}, "sensors must be 2 or more, got 1"),
        ({"skews": ()}, "skews must be"),
        ({"lasts": 0.0}, "lasts must be more than 0, or None"),
        ({"changes": 2_000}, "changes must be fewer than sensors"),
        ({"popular": "none"}, "popular must be"),
    ],
)
def test_what_cannot_be_is_refused(said, words):
    with pytest.raises(StreamshedError, match=words):
        SensorWorkload(**said)


def test_readings_of_a_laboratory():
    try:
        table = traces.motes(digits=1)
    except InputError as missing:
        pytest.skip(str(missing))
    assert table.num_rows == 128_377
    assert len(set(table["sensor"].to_pylist())) == 52
    with pytest.raises(InputError, match="no reading named 'heat'"):
        traces.motes("heat")
