"""A field of sensors: readings as section 7 of the SNJoin paper has them, shared by neighbours."""

import math

import numpy as np
import pytest
from scipy import stats

from streamshed.errors import StreamshedError
from streamshed_lab.workloads import FieldWorkload


def columns(work):
    table = work.table()
    return [table[name].cast("int64").to_numpy() for name in ("sensor", "key", "time")]


def test_readings_come_at_exponential_distances_in_time_order():
    sensor, _, time = columns(FieldWorkload(sensors=50, seconds=400.0, rate=2.0, seed=1))
    assert (np.diff(time) >= 0).all()
    gaps = np.concatenate([np.diff(time[sensor == one]) for one in range(50)]) / 1e6
    assert stats.kstest(gaps, stats.expon(scale=0.5).cdf).pvalue > 0.001


def test_sensors_have_skews_from_one_to_five():
    sensor, key, _ = columns(FieldWorkload(sensors=100, seconds=300.0, seed=2))
    # Without a reach the key is the rank: the part of rank 0 tells the skew.
    first = np.array([(key[sensor == one] == 0).mean() for one in range(100)])
    expected = [1 / (np.arange(1.0, 1_001.0) ** -skew).sum() for skew in range(1, 6)]
    nearest = np.abs(first[:, None] - np.array(expected)).min(axis=1)
    assert nearest.max() < 0.12
    assert len({int(np.abs(one - np.array(expected)).argmin()) for one in first}) == 5


def test_values_reach_so_far_and_no_further():
    work = FieldWorkload(sensors=300, seconds=60.0, reach=4.0, seed=3)
    sensor, key, _ = columns(work)
    place = work.positions()[sensor]
    for value in np.unique(key):
        spread = np.ptp(place[key == value], axis=0)
        assert (spread <= 4.0).all()


def test_a_field_is_the_same_for_the_same_seed():
    work = FieldWorkload(sensors=20, seconds=10.0, reach=2.0, seed=4)
    assert work.table().equals(work.table())
    assert (work.positions() == work.positions()).all()
    assert work.side == math.sqrt(20)


def test_what_cannot_be_generated_is_refused():
    with pytest.raises(StreamshedError, match="reach must be more than 0, got 0"):
        FieldWorkload(reach=0)
