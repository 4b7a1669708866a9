"""The workload of three relations that are dense in a few regions."""

import numpy as np
import pytest

import streamshed as ss
from streamshed_lab.workloads import RegionWorkload
from streamshed_lab.workloads.regions import CONDITIONS, NAMES


def test_the_same_seed_makes_the_same_relations():
    work = RegionWorkload(tuples=200, seed=3)
    assert work.tables() == work.tables()
    assert work.tables() != RegionWorkload(tuples=200, seed=4).tables()


def test_a_tuple_comes_every_second_of_each_relation_in_turn():
    tables = RegionWorkload(tuples=50, seed=1).tables()
    times = np.sort(np.concatenate([tables[name]["time"].to_numpy() for name in NAMES]))
    assert times.tolist() == list(range(150))


def test_regions_have_the_shares_of_a_zipf_distribution_and_come_one_after_the_other():
    work = RegionWorkload(tuples=2_929, regions=10, inter=1.0, seed=2)
    assert work.sizes().tolist() == [1000, 500, 333, 250, 200, 167, 143, 125, 111, 100]
    region = work.tables()["r2"]["region"].to_numpy()
    changes = np.flatnonzero(np.diff(region)) + 1
    assert len(changes) == 9
    assert [3 * int(change) for change in changes] == work.drifts()


@pytest.mark.parametrize(("skew", "most"), [(0.0, 0.01), (2.0, 0.6116)])
def test_the_skew_is_that_within_a_region(skew, most):
    tables = RegionWorkload(tuples=100_000, regions=1, intra=(skew, skew), seed=5).tables()
    pairs = tables["r1"]["a1"].to_numpy() * 1024 + tables["r1"]["a2"].to_numpy()
    _, counts = np.unique(pairs, return_counts=True)
    assert len(counts) == 100
    assert counts.max() / 100_000 == pytest.approx(most, rel=0.12)


def test_joined_attributes_share_their_centres():
    tables = RegionWorkload(tuples=2_000, seed=1).tables()
    join = ss.join(*NAMES).on(*CONDITIONS).within(500, time="time")
    assert join.count(tables).results > 100_000


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"tuples": 0}, "tuples"),
        ({"regions": 0}, "regions"),
        ({"domain": 5}, "domain"),
        ({"inter": -1.0}, "inter"),
        ({"intra": (-1.0, 0.0)}, "intra"),
        ({"offset": -1}, "offset"),
    ],
)
def test_what_cannot_be_generated_is_refused(wrong, word):
    with pytest.raises(ss.StreamshedError, match=word):
        RegionWorkload(**wrong)
