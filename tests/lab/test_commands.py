"""The commands of the laboratory: what they print, and how they refuse."""

from __future__ import annotations

import json
import sys
import types

import pytest
from typer.testing import CliRunner

from streamshed import StreamshedError, cli
from streamshed_lab import commands
from streamshed_lab.bench import BENCHMARKS, Measurement
from streamshed_lab.experiments.report import Paper
from streamshed_lab.experiments.verdicts import judge, reading
from streamshed_lab.modules import lab_module


def run(*arguments: str, code: int = 0):
    done = CliRunner().invoke(cli.app, list(map(str, arguments)))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["reproduce", "existance"], ["'existance'", "Did you mean 'existence'?"]),
        (["bench", "key"], ["'key'", "Did you mean 'keyed'?"]),
        (["bench", "keyed", "--loop", "oldest"], ["--loop oldest", "give --flame FILE"]),
    ],
)
def test_names_that_are_unknown_are_refused(command, words):
    refused = run(*command, code=2).stderr
    assert all(word in refused for word in words)


def test_a_package_that_is_missing_is_named():
    with pytest.raises(StreamshedError, match=r"gone is not installed; .*'streamshed\[lab\]'"):
        lab_module("gone")


def figure(scale, report):
    """A against B."""
    report.progress("measuring")
    rows = [{"rows": 1, "policy": "a", "results_mean": 2.0}]
    report.chart(rows, "rows", "results", "policy")
    return [
        judge("5", "A beats B", "A 3, B 2", {"all": True}),
        judge("6", "B is flat", "B 1, 2", {reading(spread=s): s == "x" for s in "xyz"}),
    ]


@pytest.fixture
def fake_paper(monkeypatch):
    paper = Paper("A fake", {"5": figure, "6": figure}, "full", "quick", {"spread": "y"})
    monkeypatch.setitem(sys.modules, "fake_paper", types.SimpleNamespace(PAPER=paper))
    monkeypatch.setattr(commands, "PAPERS", {"fake": "fake_paper"})


def test_reproduce_prints_verdicts_and_writes_a_report(fake_paper, tmp_path):
    done = run("reproduce", "--out", tmp_path, "--quick", "--processes", 1)
    assert "[2/2] fake, figure 6" in done.stderr
    assert "measuring" in done.stderr
    assert "A beats B" in done.stdout
    assert "holds under 1 of 3 readings" in done.stdout
    assert "4 claims: 2 hold as we read the paper at first, 4 under the best single" in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 100_000
    verdicts = json.loads((tmp_path / "verdicts.json").read_text(encoding="utf-8"))
    assert verdicts["fake"]["tally"]["best"] == 4
    again = run("reproduce", "fake", "--out", tmp_path, "--quick", "--figure", 5)
    assert "[1/1] fake, figure 5" in again.stderr
    assert "measuring" not in again.stderr
    anew = run("reproduce", "fake", "--out", tmp_path, "--quick", "--figure", 5, "--again")
    assert "measuring" in anew.stderr


def test_a_figure_needs_its_paper(fake_paper):
    assert "--figure needs the paper" in run("reproduce", "--figure", 5, code=2).stderr


def test_stored_verdicts_are_printed_without_a_run():
    assert "hold under the best single reading" in run("reproduce", "--stored").stdout


MEASURED = [
    Measurement("speed", 1234567.0, "rows/s", bar=10.0),
    Measurement("memory", 12.5, "bytes/row", bar=10.0, at_most=True),
    Measurement("results", 7, "results", cell="a far spread"),
]


@pytest.fixture
def measured(monkeypatch):
    fake = types.SimpleNamespace(run=lambda quick, progress: iter(MEASURED))
    monkeypatch.setitem(sys.modules, "fake_bench", fake)
    monkeypatch.setitem(BENCHMARKS, "fake", "fake_bench")


def test_bench_prints_one_object_a_line(measured):
    head, *lines = map(json.loads, run("bench", "fake", "--json").stdout.splitlines())
    assert head["benchmark"] == "fake"
    assert not head["quick"]
    assert all(head[name] for name in ("commit", "date", "machine"))
    memory = {"name": "memory", "value": 12.5, "unit": "bytes/row", "bar": 10.0, "holds": False}
    assert lines == [
        {"name": "speed", "value": 1234567.0, "unit": "rows/s", "bar": 10.0, "holds": True},
        memory | {"at_most": True},
        {"name": "results", "value": 7, "unit": "results", "cell": "a far spread"},
    ]


def test_bench_prints_a_table(measured):
    shown = run("bench", "fake").stdout
    for words in ("speed", "1,234,567", "≥ 10", "yes", "≤ 10", "no", "bytes/row", "a far spread"):
        assert words in shown
