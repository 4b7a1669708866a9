"""Figures are made side by side in processes, those that measure times alone, all as one by one."""

import multiprocessing
import sys
import time

import pytest

from streamshed import StreamshedError
from streamshed_lab.experiments import side_by_side
from streamshed_lab.experiments.side_by_side import Task, Way, in_phases, make_figures
from streamshed_lab.modules import PAPERS

PAPER = '''
"""A paper whose figures say when they began and ended."""
import time
from pathlib import Path
from streamshed import StreamshedError
from streamshed_lab.experiments.report import Paper
from streamshed_lab.experiments.verdicts import judge

def figure(name, beside=None):
    def make(scale, report):
        """A figure."""
        began = time.monotonic()
        report.progress(f"making {name}")
        report.out.mkdir(parents=True, exist_ok=True)
        (report.out / name).touch()
        while beside is not None and not (report.out / beside).exists():
            assert time.monotonic() < began + 120, "nothing is made beside it"
            time.sleep(0.01)
        time.sleep(0.1)
        return [judge(name, "", f"{began} {time.monotonic()}", {"": True})]
    return make

def failing(scale, report):
    """A figure without data."""
    raise StreamshedError("no data for it")

FIGURES = {"c": figure("c"), "d": figure("d"), "a": figure("a", "b"), "b": figure("b", "a")}
PAPER = Paper("Of tests", FIGURES | {"e": failing}, 1, 1, timed=frozenset("cd"))
'''


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    (tmp_path / "paper_of_tests.py").write_text(PAPER)
    monkeypatch.syspath_prepend(tmp_path)
    yield {name: Task("tests", "paper_of_tests", name) for name in "cdabe"}
    del sys.modules["paper_of_tests"]


@pytest.fixture
def steps():
    told = []

    def step(name):
        told.append(f"{name} begins")
        return lambda: told.append(f"{name} ends"), told.append

    return step, told


def test_figures_are_made_side_by_side_and_timed_ones_alone_at_the_end(
    tasks, steps, tmp_path, monkeypatch
):
    step, told = steps
    way, chosen = Way(tmp_path / "out"), [tasks[name] for name in "cdab"]
    made = make_figures(chosen, way, step, 2)
    assert [record["figure"] for record in made] == [*"cdab"]
    times = [tuple(map(float, record["claims"][0]["measured"].split())) for record in made]
    (c_begins, c_ends), (d_begins, d_ends), *together = times
    assert max(ends for _, ends in together) <= c_begins  # each of them waited for the other
    assert c_begins < c_ends <= d_begins < d_ends
    for name in "cdab":
        assert told.index(f"tests, figure {name} begins") < told.index(f"making {name}")
        assert told.index(f"making {name}") < told.index(f"tests, figure {name} ends")
    # Records that are there are read, without processes.
    monkeypatch.setattr(side_by_side, "ProcessPoolExecutor", None)
    assert make_figures(chosen, way, step, 2) == made
    assert len(told) == 4 * 3 + 4 * 2


def test_an_error_of_a_figure_is_told_and_other_figures_are_kept(tasks, steps, tmp_path):
    chosen = [tasks["e"], tasks["c"]]
    with pytest.raises(StreamshedError, match="no data for it"):
        make_figures(chosen, Way(tmp_path), steps[0], 1)
    chosen = [tasks[name] for name in "eabc"]
    with pytest.raises(StreamshedError, match="no data for it"):
        make_figures(chosen, Way(tmp_path), steps[0], 3)
    assert Way(tmp_path).is_made(tasks["a"])
    assert Way(tmp_path).is_made(tasks["b"])
    assert not Way(tmp_path).is_made(tasks["e"])


def test_an_interrupt_ends_figures_that_are_being_made(tasks, steps, tmp_path):
    def interrupt(line):
        raise KeyboardInterrupt

    def interrupted(name):
        return steps[0](name)[0], interrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):  # a would wait for b for two minutes
        make_figures([tasks["a"], tasks["e"]], Way(tmp_path), interrupted, 2)
    assert time.monotonic() < begin + 100
    assert not multiprocessing.active_children()


def test_figures_in_processes_find_what_they_find_in_one(steps, tmp_path):
    chosen = [
        Task(name, PAPERS[name], figure) for name, figure in (("grubjoin", "4"), ("snjoin", "10"))
    ]
    one, two = (
        make_figures(chosen, Way(tmp_path / str(many), quick=True), steps[0], many)
        for many in (1, 2)
    )
    assert [record["claims"] for record in one] == [record["claims"] for record in two]


def test_figures_that_begin_together_are_of_different_papers():
    names = ("star", "snjoin", "existence")
    tasks = [
        Task(name, PAPERS[name], one)
        for name in names
        for one in "5678"[: 4 if name != "star" else 2]
    ]
    together, alone = in_phases(tasks)
    assert sorted(together + alone) == sorted(tasks)
    assert [str(task) for task in alone] == [
        "star, figure 5",
        "snjoin, figure 5",
        "snjoin, figure 6",
        "snjoin, figure 7",
    ]
    assert [task.paper for task in together[:3]] == ["star", "snjoin", "existence"]


def test_every_figure_that_is_timed_is_one_of_its_paper():
    for name, module in PAPERS.items():
        paper = Task(name, module, "").of
        assert paper.timed <= set(paper.figures), name
