"""The existence-pattern experiments run, on a very small scale, and say what they found."""

import json

import pytest

from harness import mostly_slow
from streamshed import InputError, StreamshedError
from streamshed_lab.experiments import existence
from streamshed_lab.workloads import traces

TINY = existence.Scale(
    tuples=1_500,
    seeds=(1, 2),
    memories=(50, 100),
    spreads=(5.0, 20.0),
    alphas=(0.0, 2.0),
    rates=(10.0, 16.7, 25.0),
    streams=(3, 4),
    timed_tuples=500,
    rounds=2,
    domain=20_000,
    normal_tuples=300,
    counted_tuples=300,
    variances=(15.0, 35.0),
    deviations=(30.0, 35.0),
    real_memories=(150,),
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(existence.PAPER, "quick", TINY)


@pytest.mark.parametrize(
    "figure", mostly_slow(["5", "6", "7", "8", "9", "10", "space"], "5", "6", "space")
)
def test_a_figure_leaves_tables_and_claims(figure, tiny, tmp_path):
    said = []
    claims = existence.run(tmp_path, quick=True, figures=[figure], progress=said.append)
    assert claims
    assert all(claim.says and claim.measured for claim in claims)
    record = json.loads((tmp_path / f"figure_{figure}.json").read_text(encoding="utf-8"))
    assert len(record["claims"]) == len(claims)
    assert bool(record["charts"]) == (figure != "space")
    assert said or figure == "space"  # which computes next to nothing


def test_real_traces(tiny, tmp_path):
    try:
        traces.data_folder()
    except InputError as missing:
        pytest.skip(str(missing))
    claims = existence.run(tmp_path, quick=True, figures=[11])
    assert [claim.figure for claim in claims] == ["11", "11"]


def test_real_traces_are_left_out_where_there_are_none(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSHED_DATA", str(tmp_path / "nowhere"))
    (claim,) = existence.run(tmp_path, quick=True, figures=[11])
    assert not claim.holds
    assert claim.measured == "Not measured."
    assert "nowhere" in claim.why


def test_the_space_formulas_give_the_papers_numbers(tmp_path):
    (claim,) = existence.run(tmp_path, figures=["space"])
    assert claim.holds_under({"bytes": "by the formulas"})
    assert "6,005,800 and 4,000,005,000 bytes" in claim.measured


def test_unknown_figures_are_refused(tmp_path):
    with pytest.raises(StreamshedError, match="no figure '12' to reproduce; there are '5', '6'"):
        existence.run(tmp_path, figures=["12"])
