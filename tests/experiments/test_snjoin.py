"""The experiments on sensor networks run, on a small scale, and say what they found."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from streamshed import InputError
from streamshed.baselines import MJoin, XJoinTree
from streamshed.experiments import snjoin
from streamshed.experiments.snjoin import variable
from streamshed.experiments.snjoin.running import Scale, Tuples, sensor_join, sensors
from streamshed.workloads import traces

pytest.importorskip("matplotlib")

TINY = Scale((2, 3), (20, 40), minutes=2, tuples=2_000, readings=400, rounds=1)


@pytest.mark.parametrize("figure", ["5", "6", "7", "10"])
def test_a_figure_leaves_tables_and_claims(figure, monkeypatch, tmp_path):
    monkeypatch.setattr(snjoin, "QUICK", TINY)
    said = []
    claims = snjoin.run(tmp_path, quick=True, figures=[figure], progress=said.append)
    assert claims
    assert all(claim.paper_says and claim.measured for claim in claims)
    verdict = json.loads((tmp_path / f"verdict_{figure}.json").read_text(encoding="utf-8"))
    assert len(verdict["claims"]) == len(claims)
    assert said


def test_the_table_of_features_is_found_by_trying(tmp_path):
    (claim,) = snjoin.run(tmp_path, quick=True, figures=["10"])
    assert "variable-arity join support, SNJoin" in claim.holds_for
    assert "symmetric join, XJoin tree" in claim.holds_for
    assert "memory overflow support, MJoin" in claim.holds_for
    assert {name.partition(",")[0] for name in claim.fails_for} <= {"memory overflow support"}
    assert "| scalability | x | x | ✓ | ✓✓ |" in (tmp_path / "fig10_features.md").read_text()


@pytest.mark.parametrize("kind", [MJoin, XJoinTree])
def test_baselines_that_are_rearranged_make_the_same_results(kind):
    field = sensors(30, 30 * 200, changes=10)
    tuples = Tuples.of(sensor_join(), {"readings": field.table()})
    assert len(field.lives()[0]) > 30
    expected = variable.timed(tuples, tuples.operator())[1]
    assert expected > 0
    assert variable.changing(tuples, field, kind)[1] == expected


def test_real_sensors_are_left_out_where_there_are_none(monkeypatch, tmp_path):
    def missing(**said: object) -> pa.Table:
        raise InputError("no trace")

    monkeypatch.setattr(traces, "motes", missing)
    monkeypatch.setattr(snjoin, "QUICK", TINY)
    claims = snjoin.run(tmp_path, quick=True, figures=["6"])
    assert variable.MOTES not in claims[0].measured


def test_tuples_are_cut_where_the_window_is_full():
    tuples = Tuples.of(sensor_join(), {"readings": sensors(20, 400).table()})
    first = tuples.before.time[0]
    assert tuples.before.time[-1] < first + 75_000_000 <= tuples.timed.time[0]
    assert np.isclose(tuples.kept(0.5).count, tuples.count / 2, rtol=0.2)
