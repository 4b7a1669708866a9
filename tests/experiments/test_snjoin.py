"""The experiments on networks of sensors run, on a small scale, and say what they found."""

import json

import pytest

from streamshed.experiments import snjoin
from streamshed.experiments.snjoin.feedback import PAPER
from streamshed.experiments.snjoin.field import MEASURES, Scale, reduced

pytest.importorskip("matplotlib")

TINY = Scale(sizes=(200, 1_000), swept=(200,), seconds=12.0, warm_up=6.0, seeds=(1,), sweeps=(1,))


@pytest.mark.parametrize("figure", ["8", "9"])
def test_a_figure_leaves_tables_and_claims(figure, monkeypatch, tmp_path):
    monkeypatch.setattr(snjoin, "QUICK", TINY)
    said = []
    claims = snjoin.run(tmp_path, quick=True, figures=[figure], progress=said.append)
    assert claims
    assert all(claim.paper_says and claim.measured for claim in claims)
    verdict = json.loads((tmp_path / f"verdict_{figure}.json").read_text(encoding="utf-8"))
    assert len(verdict["claims"]) == len(claims)
    assert said


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
