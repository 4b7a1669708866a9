"""The experiments on GrubJoin run, on a small scale, and say what they found."""

import json
from collections import namedtuple

import pytest

import streamshed as ss
from streamshed_lab.experiments import grubjoin
from streamshed_lab.experiments.grubjoin.charging import (
    SIZE,
    Charge,
    at_charge,
    cost_tables,
    repeated,
    repeated_cost,
    result_charge,
)
from streamshed_lab.experiments.grubjoin.disaster import Claims, claims_join
from streamshed_lab.experiments.grubjoin.harvesting import (
    Scale,
    exhaustive,
    output_of,
    random_directions,
)
from streamshed_lab.experiments.grubjoin.output import (
    ALONE,
    DECIDED,
    capacity,
    compared,
    work,
)
from streamshed_lab.experiments.grubjoin.pacing import epsilon_join, watched
from streamshed_lab.experiments.grubjoin.scenes import random_scenes, watch_scenes
from streamshed_lab.offline.harvesting import best

TINY = Scale(
    runs=5, seeds=(1,), throttles=(0.1, 0.8), rates=(100, 200), parts=(2.0, 10.0),
    intervals=(2.0, 8.0), videos=1, shed=(0.0, 0.35),
)  # fmt: skip


@pytest.mark.parametrize("figure", ["4", "7", "8", "11", "17"])
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


def test_harvesting_beats_dropping_at_equal_comparisons(monkeypatch, tmp_path):
    """The paper's improvements at least, at twice the rate at which shedding begins."""
    monkeypatch.setattr(grubjoin.PAPER, "quick", TINY)
    asked = {"throttle": "by work", "charged": ALONE}
    claims = grubjoin.run(tmp_path, quick=True, figures=[11])
    outcomes = [outcome for claim in claims for outcome in claim.outcomes]
    tried = [outcome for outcome in outcomes if asked.items() <= outcome.reading.items()]
    assert {outcome.reading["decided"] for outcome in tried} == set(DECIDED)
    for outcome in tried:
        assert all(cell.holds or cell.value > cell.low for cell in outcome.cells)


def test_results_and_adaptations_that_are_charged_leave_fewer_comparisons():
    streams = work("aligned", 200.0, 1, seconds=30.0)
    limit, length = capacity(), 10.0

    def run(comparisons):
        said = epsilon_join(streams.names).throttle(comparisons_per_second=comparisons)
        (span,) = watched(said, streams.tables(), [20.0, 30.0])
        return span

    free = at_charge(run, limit, length, Charge())
    charged = at_charge(run, limit, length, Charge(result=10.0, adaptation=True), lost=0.1)
    assert charged.comparisons < 0.9 * free.comparisons
    work_done = (charged.comparisons + 10.0 * charged.results) / length
    assert work_done == pytest.approx(0.9 * limit, rel=0.25)


def test_costs_are_measured_by_joins_that_differ_in_one_thing():
    """As many comparisons, each by one evaluation, with and without results."""
    found = {}
    for meeting in (0.0, 0.1):
        tables = cost_tables(meeting, 1)
        join = ss.join(*tables).on(ss.where(repeated, "value", "times"))
        found[meeting] = join.within("20 seconds", time="time", clock="max").count(tables)
    none, some = found.values()
    assert none.results == 0
    assert some.results > 10_000
    assert some.comparisons == pytest.approx(none.comparisons, rel=0.1)
    assert none.comparisons < 2 * SIZE * (SIZE // 2 + 2)  # one choice for each newcomer at most
    # A result is some columns to write; it is not worth thousands of comparisons, nor none.
    assert 2 < result_charge().result < 500
    assert 1.02 < repeated_cost(2) < 2
    assert repeated_cost(10) < 10


@pytest.mark.parametrize("throttle", [0.1, 0.25, 0.7])
def test_brute_force_misses_nothing_by_what_it_leaves_out(throttle):
    for seed in range(3):
        known = random_directions(seed, 3, 5)
        of_all = output_of(known, exhaustive(known, throttle))
        assert output_of(known, best(known, throttle)) == pytest.approx(of_all)


def test_a_condition_that_is_repeated_is_evaluated_each_time():
    """The compiler must not see that it is the same."""
    row = namedtuple("row", "value times")
    assert repeated(row(1.0, 3), row(1.5, 3))
    assert not repeated(row(1.0, 3), row(2.5, 3))
    assert repeated_cost(1) == 1.0
    assert repeated_cost(10) > repeated_cost(2) > 1.0


def test_claims_follow_events_of_their_agents():
    tables = Claims(following=1.0, seed=1).tables()
    assert claims_join(3600).count(tables).results >= 0.99 * tables["claims"].num_rows


@pytest.mark.slow
def test_both_are_given_the_same_comparisons():
    found = compared(work("aligned", 200.0, 1), capacity())
    assert found["work"] == pytest.approx(found["work of randomdrop"], rel=0.05)
    seen = watch_scenes(random_scenes(1), throttle=0.2)
    assert seen["comparisons"] <= 1.05 * seen["comparisons allowed"]
    assert seen["comparisons of dropping"] == pytest.approx(seen["comparisons allowed"], rel=0.1)
