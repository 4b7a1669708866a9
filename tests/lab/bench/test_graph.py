"""The benchmark of the join by equalities, in small."""

from __future__ import annotations

from streamshed_lab.bench import graph, run


def test_everything_is_measured_once(monkeypatch):
    monkeypatch.setattr(graph, "ROWS", 3_000)
    monkeypatch.setattr(graph, "KEYS", (500,))
    monkeypatch.setattr(graph, "BUDGETS", (50,))
    monkeypatch.setattr(graph, "PARTS", (0.25,))
    monkeypatch.setattr(graph, "QUICK", graph.Effort(1, 3_000, 500))
    told = []
    found = list(run("graph", quick=True, progress=told.append))
    named = {measurement.name: measurement for measurement in found}
    assert len(named) == len(found)
    bars = sorted((m.bar, m.at_most) for m in found if m.bar is not None)
    assert bars == [(0.25, True), (1.0, True), (500_000, False)]
    assert all(m.value > 0 for m in found if "share" not in m.name)
    assert told
