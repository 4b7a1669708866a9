"""The experiments on joins through a relation run, on a small scale, and say what they found."""

import json

import pytest

from streamshed.experiments import star

pytest.importorskip("matplotlib")

TINY = star.Scale(tuples=300, seeds=(1, 2), memories=(4, 20), facts=(50, 250), rounds=1)


@pytest.mark.parametrize("figure", ["4", "5"])
def test_a_figure_leaves_tables_and_claims(figure, monkeypatch, tmp_path):
    monkeypatch.setattr(star, "QUICK", TINY)
    said = []
    claims = star.run(tmp_path, quick=True, figures=[figure], progress=said.append)
    assert all(claim.paper_says and claim.measured for claim in claims)
    verdict = json.loads((tmp_path / f"verdict_{figure}.json").read_text(encoding="utf-8"))
    assert len(verdict["claims"]) == len(claims) >= 2
    assert list(tmp_path.glob("*_summary.csv"))
    assert list(tmp_path.glob("*.png"))
    assert said


def test_the_order_of_figure_4_is_the_papers(monkeypatch, tmp_path):
    """What follows from the plans being optimal cannot fail."""
    monkeypatch.setattr(star, "QUICK", TINY)
    claims = star.run(tmp_path, quick=True, figures=[4])
    assert all(claim.holds for claim in claims[:2])
