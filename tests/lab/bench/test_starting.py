"""The benchmark of new processes: which figures there are, and what each process is given."""

from __future__ import annotations

from streamshed_lab.bench import run, starting


def test_every_figure_has_its_bar_and_a_process_of_its_own(monkeypatch):
    asked = []

    def process(prepare, timed, bytecode, cache=None):
        asked.append((timed, cache))
        compile(prepare + timed, "<asked>", "exec")
        return 0.01 if cache is None else 10.0

    monkeypatch.setattr(starting, "in_new_process", process)
    found = {one.name: one for one in run("starting", quick=True)}
    bars = {name: one.bar for name, one in found.items()}
    cold = "first replay in a new process, nothing cached, "
    assert {name.removeprefix(cold): bar for name, bar in bars.items() if cold in name} == {
        "exact, in bulk": 8.0,
        "exact, row by row": 8.0,
        "density": 15.0,
        "graph with sketch": 15.0,
    }
    assert found[f"{cold}density"].holds
    assert not found[f"{cold}exact, in bulk"].holds
    assert sum(bar == 0.3 for bar in bars.values()) == 2
    empty = [cache for _, cache in asked if cache is not None]
    assert len({*empty}) == len(starting.COLD)
