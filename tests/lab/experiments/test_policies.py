"""All policies compared, in small: what is counted, what is required, what is written."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streamshed import SpecError, StreamshedError
from streamshed.policies import NAMED, Oldest
from streamshed_lab.experiments import policies as experiment
from streamshed_lab.experiments.cells import Scale, Setting, settings
from streamshed_lab.experiments.policies import (
    Cell,
    Comparison,
    clairvoyant_share,
    compare,
    requirements,
    speeds,
)
from streamshed_lab.workloads import ExistenceWorkload, traces

PAPERS = ["existence", "frequency", "oldest", "output", "random"]
SMALL = Scale(seeds=(1, 2), spreads=(20.0,), alphas=(0.0,), budgets=(20, 100), tuples=2_000)
SAMPLES = Path(__file__).parents[2] / "data"


def silent(line):
    pass


@pytest.fixture
def papers_only(monkeypatch):
    for name in experiment.OURS:
        monkeypatch.delitem(NAMED, name, raising=False)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(experiment.PAPER, "quick", SMALL)


def runs_of(cells):
    """Cell → (bound, results by policy), as runs of one seed."""
    return Comparison(
        [
            {**cell._asdict(), "policy": name, "results": n, "exact": bound, "bound": bound}
            for cell, (bound, kept) in cells.items()
            for name, n in kept.items()
        ]
    )


def cell(rows=500, spread=None, family="zipf"):
    return Cell(family, "as it may be", rows, spread)


def test_every_policy_meets_the_same_streams_and_ledgers_are_what_is_counted(papers_only):
    workload = ExistenceWorkload(tuples=1_000, spread=20.0, seed=3)
    setting = Setting(
        "existence", "small", lambda seed: workload.tables(), 100.0, (50, 1_000), 20.0
    )
    found = compare([setting], [3], silent)
    assert found.policies == PAPERS
    exact = workload.exact_results(100.0)
    assert {run["exact"] for run in found.runs} == {exact}
    for cell_of, kept in found.kept().items():
        if cell_of.rows == 1_000:  # all that a window holds
            assert set(kept.values()) == {exact}
        else:
            assert max(kept.values()) < exact
    assert len(found.kept()) == 2


def test_results_are_summed_over_seeds(papers_only):
    (setting,) = settings(SMALL, ["existence"])[:1]
    both = compare([setting], [1, 2], silent).kept()
    alone = [compare([setting], [seed], silent).kept() for seed in (1, 2)]
    for of, kept in both.items():
        assert kept == {name: sum(one[of][name] for one in alone) for name in kept}


def test_a_policy_that_does_not_fit_is_not_run(papers_only, monkeypatch):
    class Picky(Oldest):
        def check(self, plan):
            raise SpecError("no join is good enough")

    monkeypatch.setitem(NAMED, "picky", Picky)
    workload = ExistenceWorkload(tuples=200, spread=5.0)
    setting = Setting("existence", "tiny", lambda seed: workload.tables(), 10.0, (20,))
    assert compare([setting], [1], silent).policies == PAPERS


def test_a_trace_that_is_not_there_is_named(papers_only, monkeypatch):
    monkeypatch.setenv(traces.FOLDER_VARIABLE, str(SAMPLES))
    said = []
    found = compare(settings(SMALL, ["real"]), [1], said.append)
    assert {run["workload"] for run in found.runs} == {
        "news headlines, 6 hours",
        "news headlines, 1 day",
    }
    assert len(found.left_out) == 4
    assert "no trace at" in found.left_out["real: honeypots, all contacts, 1 hour"]
    assert any(line.startswith("left out, real: SDSC pages") for line in said)
    assert "Left out, real: SDSC pages" in experiment.cells_page(found)


def test_nothing_is_required_of_policies_that_were_not_run(papers_only):
    kept = dict.fromkeys(PAPERS, 10)
    assert requirements(runs_of({cell(): (100, kept)})) == []


def test_requirements_look_at_the_worst_cell():
    near, far, half = cell(spread=20.0), cell(100, spread=50.0), cell(500, 100.0)
    changing = cell(family="changing")
    low = dict.fromkeys(PAPERS, 10)
    found = runs_of(
        {
            near: (100, low | {"oldest": 100, "density": 99}),
            far: (300, low | {"existence": 100, "density": 290}),
            half: (100, low | {"density": 84}),
            changing: (100, low | {"density": 50}),
            cell(1): (0, dict.fromkeys([*PAPERS, "density"], 0)),
        }
    )
    required = {r.says.partition(",")[0]: r for r in requirements(found)}
    told = {says: (r.worst, r.values[r.worst], r.bar) for says, r in required.items()}
    assert told == {
        "results of density against those of the best policy of the papers": (near, 0.99, 0.98),
        "results of density against those of existence": (far, 2.9, 3.0),
        "the same where existence keeps at most a third of the bound": (far, 2.9, 3.0),
        "share of the exact result that density keeps": (half, 0.84, 0.85),
    }


def test_luck_and_speed_are_those_of_several_seeds_on_the_same_streams():
    (setting,) = settings(SMALL, ["existence"])[:1]
    found = compare([setting], [1, 2], silent, bounded=1)
    cells = set(found.kept())
    assert set(found.spreads("density")) == set(speeds(found, "density", "existence")) == cells
    assert found.spreads("oldest") == {}
    assert all(0 <= spread < 1 for spread in found.spreads("density").values())
    (required,) = (r for r in requirements(found) if r.at_most)
    assert required.values[required.worst] == max(required.values.values())
    share, known = clairvoyant_share(found, "density")
    assert known == len(cells)
    assert 0 < share <= 1


def test_existence_cannot_be_outdone_threefold_where_it_keeps_more_than_a_third():
    good, poor = cell(500, 50.0), cell(100, 50.0)
    low = dict.fromkeys(PAPERS, 10)
    found = runs_of(
        {
            good: (100, low | {"existence": 90, "density": 100}),
            poor: (100, low | {"existence": 5, "density": 60}),
        }
    )
    asked, possible = (r for r in requirements(found) if r.bar == 3.0)
    assert set(asked.values) == {good, poor}
    assert set(possible.values) == {poor}


def test_the_report_has_all_cells_charts_and_claims(small, monkeypatch, tmp_path):
    monkeypatch.setitem(NAMED, "density", Oldest)
    claims = experiment.run(tmp_path, quick=True, figures=["existence", "mixture"])
    assert len(claims) > 1
    assert all(claim.ours for claim in claims)
    kept = [c for c in claims if c.says.startswith("results of density against those of the best")]
    assert [claim.figure for claim in kept] == ["existence", "mixture"]
    assert not kept[0].holds
    assert "In the worst of" in kept[0].measured
    cells = "".join(claim.measured for claim in claims)
    assert "| spread 20 s, α 0, 20 rows |" in cells
    assert "| spread 5 s with 100 s, 100 rows |" in cells
    assert "| density | bound | exact |" in cells
    (runs,) = tmp_path.glob("*family=mixture*_runs.parquet")
    assert set(pq.read_table(runs)["seed"].to_pylist()) == {1, 2}
    for family in ("existence", "mixture"):
        assert json.loads((tmp_path / f"figure_{family}.json").read_text("utf-8"))["charts"]


def test_an_unknown_family_is_refused(tmp_path):
    with pytest.raises(StreamshedError, match="no figure 'normel' to reproduce; there are 'exist"):
        experiment.run(tmp_path, figures=["normel"])
