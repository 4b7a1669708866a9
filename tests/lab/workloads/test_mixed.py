"""Workloads side by side and one after another."""

import numpy as np
import pytest

from streamshed import StreamshedError, join
from streamshed_lab.workloads import ExistenceWorkload, MixedWorkload, NormalWorkload, ZipfWorkload

NEAR = ExistenceWorkload(streams=3, tuples=1_500, rate=5.0, spread=5.0, seed=1)
FAR = ExistenceWorkload(streams=3, tuples=1_500, rate=5.0, spread=60.0, seed=2)
VALUED = ZipfWorkload(streams=3, tuples=600, rate=2.0, keys=800, skew=0.5, seed=3)
OTHERS = ZipfWorkload(streams=3, tuples=600, rate=2.0, keys=800, skew=0.5, seed=4)

WORKLOADS = {
    "mixture": MixedWorkload(((NEAR, FAR),)),
    "change": MixedWorkload(((NEAR,), (FAR,))),
    "changing shares": MixedWorkload(((NEAR, VALUED), (FAR, OTHERS))),
    "one becomes the other": MixedWorkload(((NEAR,), (VALUED,), (FAR,), (OTHERS,))),
}


def count(tables):
    said = join(*tables).on("key").within("100 s", time="time", clock="max")
    return said.count(tables).results


def columns(table):
    return table["key"].to_numpy(), table["time"].cast("int64").to_numpy(), table["part"].to_numpy()


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_every_row_of_every_part_is_there_at_its_time(workload):
    for name, table in workload.tables().items():
        keys, times, places = columns(table)
        assert (np.diff(times) >= 0).all()
        begin = 0
        for phase in workload.phases:
            length = round(phase[0].seconds * 1e6)
            for place, part in enumerate(phase):
                mine = (places == place) & (times >= begin) & (times < begin + length)
                drawn = part.tables()[name]
                assert (times[mine] - begin == drawn["time"].cast("int64").to_numpy()).all()
                # Keys have other names, and which are equal stays as it was.
                pairs = set(zip(keys[mine].tolist(), drawn["key"].to_pylist(), strict=True))
                assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
            begin += length
        assert begin == round(workload.seconds * 1e6)


def test_parts_of_a_mixture_have_no_key_in_common_and_join_as_they_do_alone():
    mixed = MixedWorkload(((NEAR, FAR),)).tables()
    of_part = [
        {key for table in mixed.values() for key in columns(table)[0][columns(table)[2] == part]}
        for part in (0, 1)
    ]
    assert of_part[0].isdisjoint(of_part[1])
    assert count(mixed) == NEAR.exact_results(100.0) + FAR.exact_results(100.0)


def test_keys_that_are_unique_stay_so_when_the_workload_changes():
    changing = MixedWorkload(((NEAR,), (FAR,), (NEAR,))).tables()
    for table in changing.values():
        assert len(table["key"].unique()) == table.num_rows
    assert count(changing) == 2 * NEAR.exact_results(100.0) + FAR.exact_results(100.0)


@pytest.mark.parametrize(
    ("one", "other"), [(VALUED, OTHERS), (NormalWorkload(streams=3, tuples=50), VALUED)]
)
def test_keys_that_repeat_are_the_same_ones_after_a_change(one, other):
    drawn = [part.tables()["s1"]["key"].to_numpy() for part in (one, other)]
    changing = columns(MixedWorkload(((one,), (other,))).tables()["s1"])[0]
    before, after = changing[: len(drawn[0])], changing[len(drawn[0]) :]
    assert len(np.intersect1d(before, after)) == len(np.intersect1d(*drawn)) > 0


def test_a_unique_key_never_comes_again_as_a_value():
    changing = MixedWorkload(((NEAR,), (VALUED,), (FAR,))).tables()
    exact = NEAR.exact_results(100.0) + count(VALUED.tables()) + FAR.exact_results(100.0)
    assert count(changing) == exact
    kinds = [set(np.unique(columns(table)[0] % 2).tolist()) for table in changing.values()]
    assert kinds == [{0, 1}] * 3


@pytest.mark.parametrize(
    ("phases", "says"),
    [
        ((), "phases must be one or more, each of one workload or more, got ()"),
        (((NEAR,), ()), "each of one workload or more"),
        (((NEAR,), (ZipfWorkload(streams=2),)), "with as many streams each, got [2, 3]"),
        (((NEAR, ZipfWorkload(streams=3, tuples=50)),), "equally long, got [5.0, 300.0]"),
    ],
)
def test_what_cannot_be_laid_together_is_refused(phases, says):
    with pytest.raises(StreamshedError) as error:
        MixedWorkload(phases)
    assert says in str(error.value)
