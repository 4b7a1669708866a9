"""The settings in which policies are compared are what their names say."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamshed import InputError
from streamshed_lab.experiments.cells import FAMILIES, FULL, QUICK, Scale, settings
from streamshed_lab.experiments.joining import key_join
from streamshed_lab.experiments.policies import OURS, fitting
from streamshed_lab.workloads import traces

SMALL = Scale(tuples=2_000)
GENERATED = [setting for setting in settings(SMALL) if setting.family != "real"]
EVEN = [setting for setting in GENERATED if setting.family != "adversarial"]
"""Those with a rate of ten rows in a second throughout."""


def times(table):
    return table["time"].cast("int64").to_numpy() / 1e6


def test_every_cell_has_a_name_of_its_own():
    for scale in (FULL, QUICK):
        names = [str(setting) for setting in settings(scale)]
        assert len(set(names)) == len(names)
        assert {setting.family for setting in settings(scale)} == set(FAMILIES)
    assert {str(setting) for setting in settings(QUICK)} <= set(map(str, settings(FULL)))


def test_the_existence_patterns_are_tried_with_every_spread_skew_and_budget():
    tried = {setting.workload: setting.budgets for setting in settings(FULL, ["existence"])}
    for spread in (5, 20, 50, 100, 150):
        for alpha in (0, 1, 2):
            assert tried[f"spread {spread} s, α {alpha}"] == (100, 200, 300, 400, 500)


@pytest.mark.parametrize("setting", GENERATED, ids=str)
def test_streams_are_in_order_and_follow_from_the_seed(setting):
    streams = setting.streams(1)
    assert all((np.diff(times(table)) >= 0).all() for table in streams.values())
    assert setting.streams(1) == streams != setting.streams(2)


@pytest.mark.parametrize("setting", EVEN, ids=str)
def test_streams_have_their_rate_and_no_budget_is_more_than_half_a_window(setting):
    for table in setting.streams(1).values():
        at = times(table)
        in_a_window = setting.window * table.num_rows / (at[-1] - at[0])
        assert max(setting.budgets) <= 0.51 * in_a_window
        assert in_a_window == pytest.approx(setting.window * 10, rel=0.02)


def best_in(streams, begin, end, rows):
    """The policy of the papers that keeps most of what happens in some seconds."""
    part = {
        name: table.filter(pa.array((times(table) >= begin) & (times(table) < end)))
        for name, table in streams.items()
    }
    joined = key_join(part, 100.0).keep(rows=rows).seed(1)
    papers = [name for name in fitting(joined, part) if name not in OURS]
    kept = {name: joined.shed(name).count(part).results for name in papers}
    return max(kept, key=kept.get)


@pytest.mark.slow
@pytest.mark.parametrize("setting", settings(FULL, ["changing"]), ids=str)
def test_what_is_best_in_a_changing_mixture_changes_with_it(setting):
    streams = setting.streams(1)
    for rows in setting.budgets:
        assert best_in(streams, 0, 1_000, rows) != best_in(streams, 1_000, 2_000, rows)


def test_drifting_spreads_and_popular_keys_do_change():
    named = {setting.workload: setting.streams(1) for setting in settings(SMALL, ["drift"])}

    streams = named["spread 5 s, then 100 s"]
    seen = {}
    for table in streams.values():
        for key, at in zip(table["key"].to_pylist(), times(table).tolist(), strict=True):
            seen.setdefault(key, []).append(at)
    spans = {half: [] for half in (0, 1)}
    for at in seen.values():
        spans[int(min(at) >= 200.0)].append(max(at) - min(at))
    assert max(spans[0]) < 10
    assert 90 < max(spans[1]) < 110

    table = named["skew 0.5, then other popular keys"]["s1"]
    popular = []
    for half in (table.slice(0, 2_000), table.slice(2_000)):
        keys, counts = np.unique(half["key"].to_numpy(), return_counts=True)
        popular.append(set(keys[np.argsort(-counts)[:10]].tolist()))
    assert len(popular[0] & popular[1]) <= 2


def test_the_real_settings_read_the_traces(monkeypatch):
    samples = Path(__file__).parents[2] / "data"
    monkeypatch.setenv(traces.FOLDER_VARIABLE, str(samples))
    named = {setting.workload: setting for setting in settings(FULL, ["real"])}
    for setting in named.values():
        if "news" in setting.workload:
            assert list(setting.streams(1)) == ["abc", "cnn", "nyt", "wapo"]
        else:
            with pytest.raises(InputError, match="no trace at"):
                setting.streams(1)
