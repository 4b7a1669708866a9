"""Numbers that rise and wrap around, with lags."""

import numpy as np
import pytest
from scipy import stats

from streamshed import StreamshedError
from streamshed_lab.workloads import LaggingWorkload


def columns(table):
    return table["time"].cast("int64").to_numpy() / 1e6, table["value"].to_numpy()


def test_values_are_the_papers_process():
    work = LaggingWorkload(seconds=100, rate=50, seed=2)
    for table, lag, deviation in zip(
        work.tables().values(), work.lags, work.deviations, strict=True
    ):
        time, value = columns(table)
        assert len(time) == 5_000
        assert (np.diff(time) >= 0).all()
        assert ((value >= 0) & (value < 1000)).all()
        off = (value - 20 * (time + lag) + 500) % 1000 - 500
        assert stats.kstest(off, stats.norm(0, deviation).cdf).pvalue > 1e-3


def test_rates_may_change():
    work = LaggingWorkload(seconds=30, rate=((0, 10), (20, 100)))
    time, _ = columns(work.tables()["s1"])
    assert (time < 20).sum() == 200
    assert (time >= 20).sum() == 1_000


def test_a_seed_gives_the_same_streams_and_another_seed_others():
    assert LaggingWorkload(seed=1).tables() == LaggingWorkload(seed=1).tables()
    assert LaggingWorkload(seed=1).tables() != LaggingWorkload(seed=2).tables()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"lags": (0,)}, "lags must be of 2 streams or more"),
        ({"deviations": (1, 2)}, "deviations must be as many as lags"),
        ({"seconds": 0}, "seconds must be more than 0"),
        ({"rate": 0}, "rate must be more than 0"),
        ({"rate": ((5, 10),)}, "rate must be given from time 0 on"),
    ],
)
def test_what_cannot_be_is_refused(said, message):
    with pytest.raises(StreamshedError, match=message):
        LaggingWorkload(**said)
