"""The experiments on GrubJoin run, on a small scale, and say what they found."""

import json

import pytest

from streamshed_lab.experiments import grubjoin
from streamshed_lab.experiments.harvesting import Scale
from streamshed_lab.experiments.pacing import epsilon_join, taken_in_turn, watched
from streamshed_lab.experiments.scenes import random_scenes, watch_scenes

TINY = Scale(
    runs=5, seeds=(1,), throttles=(0.1, 0.8), rates=(100, 200), parts=(2.0, 10.0),
    intervals=(2.0, 8.0), videos=1,
)  # fmt: skip


@pytest.mark.parametrize("figure", ["4", "7", "8", "11"])
def test_a_figure_leaves_tables_and_claims(figure, monkeypatch, tmp_path):
    monkeypatch.setattr(grubjoin.PAPER, "quick", TINY)
    claims = grubjoin.run(tmp_path, quick=True, figures=[figure])
    assert all(claim.says and claim.measured for claim in claims)
    record = json.loads((tmp_path / f"figure_{figure}.json").read_text(encoding="utf-8"))
    assert len(record["claims"]) == len(claims) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("figure", ["2", "12", "13", "14", "15", "16", "II", "video"])
def test_the_other_figures_do_too(figure, monkeypatch, tmp_path):
    test_a_figure_leaves_tables_and_claims(figure, monkeypatch, tmp_path)


def test_rows_that_wait_are_processed_when_they_are_taken():
    streams = grubjoin.work("aligned", 40.0, 1, seconds=23.0)
    tables = streams.tables()

    def throttled(comparisons):
        said = epsilon_join(streams.names)
        return said.throttle(comparisons_per_second=comparisons, part="2 seconds", buffer=5)

    idle = taken_in_turn(throttled(1e9), tables, 21.0, 23.0, 5)
    (usual,) = watched(throttled(1e9), tables, [21.0, 23.0])
    assert (idle.results, idle.shed) == (usual.results, 0)
    assert idle.arrived == usual.arrived
    small, large = (taken_in_turn(throttled(2e4), tables, 21.0, 23.0, n) for n in (2, 30))
    assert small.shed > large.shed


def test_harvesting_beats_dropping_at_equal_comparisons(monkeypatch, tmp_path):
    """The paper's improvements at least, at twice the rate at which shedding begins."""
    monkeypatch.setattr(grubjoin.PAPER, "quick", TINY)
    for claim in grubjoin.run(tmp_path, quick=True, figures=[11]):
        for outcome in claim.outcomes:
            if outcome.reading["throttle"] == "by work":
                assert all(cell.holds or cell.value > cell.low for cell in outcome.cells)


@pytest.mark.slow
def test_both_are_given_the_same_comparisons():
    found = grubjoin.compared(grubjoin.work("aligned", 200.0, 1), grubjoin.capacity())
    assert found["work"] == pytest.approx(found["work of randomdrop"], rel=0.05)
    seen = watch_scenes(random_scenes(1), throttle=0.2)
    assert seen["comparisons"] <= 1.05 * seen["comparisons allowed"]
    assert seen["comparisons of dropping"] == pytest.approx(seen["comparisons allowed"], rel=0.1)
