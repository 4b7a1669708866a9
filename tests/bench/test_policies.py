"""The benchmark of the policies, in small."""

from __future__ import annotations

import pytest

from streamshed.bench import policies, run
from streamshed.bench.keyed import Setting, loop_speeds
from streamshed.experiments.cells import Scale, settings
from streamshed.policies import NAMED, Oldest, Random

SMALL = Scale(seeds=(1,), spreads=(100.0,), alphas=(0.0,), budgets=(100, 500), tuples=2_500)


@pytest.fixture
def small(monkeypatch):
    chosen = settings(SMALL, ["existence", "changing"])
    monkeypatch.setattr(policies, "QUICK", SMALL)
    monkeypatch.setattr(policies, "settings", lambda scale: chosen)


def measured(told):
    found = list(run("policies", quick=True, progress=told.append))
    named = {measurement.name: measurement for measurement in found}
    assert len(named) == len(found)
    return named


def test_without_policies_of_our_own_there_are_shares_and_no_bars(small, monkeypatch):
    for name in ("density", "auto"):
        monkeypatch.delitem(NAMED, name, raising=False)
    told = []
    named = measured(told)
    assert told
    assert 0 < named["mean share of the bound, oldest, changing"].value < 1
    assert all(measurement.bar is None for measurement in named.values())
    worst = named["results of random against those of the best policy of the papers"]
    assert worst.value < 0.5
    assert worst.cell.endswith(" rows")
    assert named["settings left out because their trace is not there"].value == 0


def test_every_bar_is_there_once_the_policies_are(small, monkeypatch):
    monkeypatch.setitem(NAMED, "density", Oldest)
    monkeypatch.setitem(NAMED, "auto", Random)
    monkeypatch.setattr(policies, "loop_speeds", lambda *said: {"density": 3e6, "existence": 8e6})
    with_bars = {name: m for name, m in measured([]).items() if m.bar is not None}
    assert [(m.bar, m.holds) for m in with_bars.values()] == [
        (0.98, False),
        (3.0, False),
        (3.0, False),
        (0.85, False),
        (0.97, False),
        (1, False),
        (4_000_000, False),
        (1 / 3, True),
    ]
    in_cells = [m for m in with_bars.values() if "loop" not in m.name]
    assert all(m.cell for m in in_cells)


def test_the_speed_of_a_loop_is_that_of_the_keyed_benchmark():
    setting = Setting(3, 100, timed=3_000, repeats=1, policies=("oldest",), end_to_end=False)
    told = []
    speeds = loop_speeds(setting, told.append)
    assert list(speeds) == ["oldest"]
    assert speeds["oldest"] > 10_000
    assert told
