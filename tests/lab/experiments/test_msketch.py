"""The experiments on joins by equalities run, on a small scale, and say what they found."""

import json

import numpy as np
import pytest

from harness import mostly_slow
from streamshed_lab.experiments import msketch
from streamshed_lab.experiments.msketch import running
from streamshed_lab.experiments.msketch.running import Compared, Scale
from streamshed_lab.experiments.msketch.sampling import DOMAIN, errors
from streamshed_lab.experiments.msketch.written import results_of_bjoin
from streamshed_lab.workloads.regions import RegionWorkload

TINY = Scale(
    tuples=600, regions=2, seeds=(1, 2), samples=(1, 2), memories=(8, 42), volumes=(100,),
    census=300, rounds=1,
)  # fmt: skip


@pytest.mark.parametrize("figure", mostly_slow("2345678", "5", "8"))
def test_a_figure_leaves_tables_and_claims(figure, monkeypatch, tmp_path):
    monkeypatch.setattr(msketch.PAPER, "quick", TINY)
    said = []
    claims = msketch.run(tmp_path, quick=True, figures=[figure], progress=said.append)
    assert claims
    assert all(claim.says and claim.measured for claim in claims)
    record = json.loads((tmp_path / f"figure_{figure}.json").read_text(encoding="utf-8"))
    assert len(record["claims"]) == len(claims)
    assert said


def test_policies_are_compared_by_means_and_seed_by_seed():
    runs = [
        {"memory": 1, "seed": seed, "policy": policy, "results": results}
        for seed, a, b in [(1, 10, 5), (2, 10, 11)]
        for policy, results in [("a", a), ("b", b)]
    ]
    compared = Compared(runs, "memory")
    assert compared.means() == {(1, "a"): 10, (1, "b"): 8}
    assert compared.won(1, "a", "b") == "1 of 2 seeds"
    assert [*compared.more([("a", "b")]).values()] == [True]
    assert [*compared.more([("a", "b")], times=1.25).values()] == [False]
    assert [*compared.alike([("a", "b")]).values()] == [False]


def test_errors_are_those_of_averages_and_quartiles():
    truth, found = np.zeros((3, DOMAIN), np.int64), np.zeros((3, DOMAIN), np.int64)
    truth[0, [10, 20, 30, 40]] = 1
    found[0, [20, 40]] = 5
    truth[1, 7] = 3
    measured = errors(truth, found)
    assert measured["average"] == pytest.approx(abs(25 - 30) / 25)
    assert measured["quartiles"] == pytest.approx((10 + 0 + 10) / 3)
    assert measured["empty"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("rows", [3, 10, 60])
def test_bjoin_step_by_step_is_the_policy_where_r3_stands_by_r2(rows):
    tables = RegionWorkload(tuples=400, regions=2, seed=rows).tables()
    join = running.region_join(1).within(120, time="time", clock="max").keep(rows=rows)
    expected = join.shed(running.SUBSET["BJoin"]).count(tables).results
    assert results_of_bjoin(tables, 120, rows, "R2") == expected


def test_bjoin_over_results_makes_the_same_where_nothing_is_shed():
    tables = RegionWorkload(tuples=200, regions=2, seed=1).tables()
    expected = running.region_join(1).count(tables).results
    assert results_of_bjoin(tables, running.WINDOW, 1_000, "R1 ⋈ R2") == expected
