"""The benchmark of spilling, in small."""

from __future__ import annotations

from streamshed_lab.bench import spilling


def test_everything_is_measured_once(monkeypatch):
    monkeypatch.setattr(spilling, "QUICK", ((300, 400), 1))
    found = list(spilling.run(quick=True, progress=lambda line: None))
    named = {measurement.name: measurement for measurement in found}
    assert len(named) == len(found) == 36
    for name, measured in named.items():
        if name.startswith("results missing"):
            assert measured.value == 0
            assert measured.holds
        else:
            assert measured.value > 0
    assert sum(measured.bar == 0.5 for measured in found) == 4
    tables = spilling.workloads(200)["recurring keys"]
    exact = spilling.ss.join(*tables).on("key").within("100 s", time="time").replay(tables).table
    assert len(spilling._different(exact, exact)) == 0
    assert len(spilling._different(exact, exact.slice(3))) >= 3
