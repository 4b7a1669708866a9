"""The experiments on sensor networks run, on a small scale, and say what they found."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from streamshed import InputError
from streamshed_lab.baselines import MJoin, XJoinTree
from streamshed_lab.experiments import snjoin
from streamshed_lab.experiments.snjoin import field, running, spilling, variable
from streamshed_lab.experiments.snjoin.feedback import PAPER
from streamshed_lab.experiments.snjoin.field import MEASURES, reduced
from streamshed_lab.experiments.snjoin.running import Arrivals, sensor_join, sensors
from streamshed_lab.workloads import traces

TINY = snjoin.Scale(
    running.Scale((2, 3), (20, 40), minutes=2, tuples=2_000, outputs=800, readings=400, rounds=1),
    spilling.Scale(streams=(2, 3), rows=600, seeds=(1,), rounds=1, staged=(2,), staged_rows=300),
    field.Scale(
        sizes=(200, 1_000), swept=(200,), seconds=12.0, warm_up=6.0, seeds=(1,), sweeps=(1,)
    ),
)


@pytest.mark.parametrize("figure", snjoin.FIGURES)
def test_a_figure_leaves_tables_and_claims(figure, monkeypatch, tmp_path):
    monkeypatch.setattr(snjoin.PAPER, "quick", TINY)
    said = []
    claims = snjoin.run(tmp_path, quick=True, figures=[figure], progress=said.append)
    assert claims
    assert all(claim.says and claim.measured for claim in claims)
    record = json.loads((tmp_path / f"figure_{figure}.json").read_text(encoding="utf-8"))
    assert len(record["claims"]) == len(claims)
    assert said or figure == "10"  # a table of features, of which nothing is computed


def test_the_table_of_features_is_found_by_trying(tmp_path):
    (claim,) = snjoin.run(tmp_path, quick=True, figures=["10"])
    holds = {cell.name: cell.holds for cell in claim.outcomes[0].cells}
    assert holds["variable-arity join support, SNJoin"]
    assert holds["symmetric join, XJoin tree"]
    assert holds["memory overflow support, MJoin"]
    failed = {name.partition(",")[0] for name, held in holds.items() if not held}
    assert failed <= {"memory overflow support"}
    assert "| scalability | x | x | ✓ | ✓✓ |" in claim.measured


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("kind", [MJoin, XJoinTree])
def test_baselines_that_are_rearranged_make_the_same_results(kind, one_by_one, monkeypatch):
    times = []
    rearrange = kind.rearrange
    monkeypatch.setattr(kind, "rearrange", lambda *said: times.append(1) or rearrange(*said))
    some = sensors(30, 30 * 200, changes=10)
    tuples = Arrivals.of(sensor_join(), {"readings": some.table()})
    assert len(some.lives()[0]) > 30
    expected = variable.timed(tuples, tuples.operator())[1]
    assert expected > 0
    assert variable.changing(tuples, some, kind, one_by_one)[1] == expected
    assert len(times) > 5 if one_by_one else 1 <= len(times) <= 5


def test_real_sensors_are_left_out_where_there_are_none(monkeypatch, tmp_path):
    def missing(**said: object) -> pa.Table:
        raise InputError("no trace")

    monkeypatch.setattr(traces, "motes", missing)
    monkeypatch.setattr(snjoin.PAPER, "quick", TINY)
    claims = snjoin.run(tmp_path, quick=True, figures=["6"])
    assert variable.MOTES not in claims[0].measured


def test_tuples_are_cut_where_the_window_is_full():
    tuples = Arrivals.of(sensor_join(), {"readings": sensors(20, 400).table()})
    first = tuples.before.time[0]
    assert tuples.before.time[-1] < first + 75_000_000 <= tuples.timed.time[0]
    assert np.isclose(tuples.kept(0.5).count, tuples.count / 2, rtol=0.2)


def test_reductions_are_relative_and_of_drop_rates_in_points():
    without = dict.fromkeys(MEASURES, 4.0)
    without |= {"drop rate": 0.5, "bytes per second": 10.0, "members per second": 10.0}
    having = dict.fromkeys(MEASURES, 1.0)
    having |= {"drop rate": 0.2, "bytes per second": 5.0, "members per second": 19.0}
    found = reduced(without, having)
    assert found["probes"] == 75.0
    assert found["drop rate"] == pytest.approx(30.0)
    assert found["output"] == pytest.approx(90.0)


def test_the_papers_table_has_a_column_for_each_measure():
    assert all(len(row) == len(MEASURES) for row in PAPER.values())
