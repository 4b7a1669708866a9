"""The benchmark of the policies, in small."""

from __future__ import annotations

import pickle
from argparse import Namespace

import pytest

from streamshed_lab.bench import policies, run
from streamshed_lab.bench.keyed import Setting, loop_speeds
from streamshed_lab.experiments.cells import Scale, settings
from streamshed_lab.experiments.coverage import TUNED

SMALL = Scale(seeds=(1,), spreads=(100.0,), alphas=(0.0,), budgets=(100, 500), tuples=2_500)


@pytest.fixture
def small(monkeypatch):
    chosen = settings(SMALL, ["existence", "changing"])
    monkeypatch.setattr(policies, "QUICK", SMALL)
    monkeypatch.setattr(policies, "QUICKLY_DRAWN", 1)
    monkeypatch.setattr(policies, "JUDGED", TUNED)
    monkeypatch.setattr(policies, "settings", lambda scale: chosen)


def measured(told):
    found = list(run("policies", quick=True, progress=told.append))
    named = {measurement.name: measurement for measurement in found}
    assert len(named) == len(found)
    return named


def test_every_requirement_has_its_bar(small, monkeypatch):
    speeds = {"density": 3e6, "existence": 8e6}
    monkeypatch.setattr(policies, "loop_speeds", lambda *said: speeds)
    monkeypatch.setattr(policies.Funnel, "speeds", lambda *said: speeds)
    told = []
    named = measured(told)
    assert told
    assert 0 < named["mean share of the bound, oldest, changing"].value < 1
    assert named["settings left out because their trace is not there"].value == 0
    worst = named["results of random against those of the best policy of the papers"]
    assert worst.value < 0.5
    assert worst.cell.endswith(" rows")
    with_bars = [m for m in named.values() if m.bar is not None]
    assert [m.bar for m in with_bars] == [
        0.85, 0.98, 3.0, 3.0, 0.85, 0.1, 1 / 3, 0.93, 0.98, *(0.9, 0.1, 0.9) * len(TUNED), 0.93,
        4_000_000, 1 / 3, 1 / 3, 1_000_000, 1 / 3,
    ]  # fmt: skip
    assert all(m.cell for m in with_bars[1:7])
    assert [m.holds for m in with_bars[-5:]] == [False, True, True, True, True]


def test_the_speed_of_a_loop_is_that_of_the_keyed_benchmark():
    setting = Setting(3, 100, timed=3_000, repeats=1, policies=("oldest",), end_to_end=False)
    told = []
    speeds = loop_speeds(setting, told.append)
    assert list(speeds) == ["oldest"]
    assert speeds["oldest"] > 10_000
    assert told


def test_a_full_run_takes_all_cores(monkeypatch):
    monkeypatch.setattr(policies, "header_of", lambda *said: Namespace(commit="1a2b-dirty"))
    told = []
    assert list(policies._on_all_cores(abs, [-3, 2], told.append)) == [3, 2]
    assert told == ["1 of 2 are done", "2 of 2 are done"]


def test_a_run_that_was_stopped_goes_on_where_it_was(monkeypatch, tmp_path):
    """Of the same commit, if the checkout is clean."""
    monkeypatch.setattr(policies, "UNFINISHED", tmp_path)
    monkeypatch.setattr(policies, "header_of", lambda *said: Namespace(commit="1a2b"))
    assert list(policies._on_all_cores(abs, [-3, 2], print)) == [3, 2]
    (tmp_path / "1a2b" / "abs" / "-3.pickle").write_bytes(pickle.dumps(7))
    assert list(policies._on_all_cores(abs, [-3, 2, -5], print)) == [7, 2, 5]
    monkeypatch.setattr(policies, "header_of", lambda *said: Namespace(commit="1a2b-dirty"))
    assert list(policies._on_all_cores(abs, [-3], print)) == [3]
