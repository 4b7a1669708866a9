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
    ],
)
def test_names_that_are_unknown_are_refused(command, words):
    refused = run(*command, code=2).stderr
    assert all(word in refused for word in words)


def test_a_package_that_is_missing_is_named():
    with pytest.raises(StreamshedError, match=r"gone is not installed; .*'streamshed\[lab\]'"):
        lab_module("gone")


def test_reproduce_prints_the_verdict(monkeypatch, tmp_path):
    called = {}

    def fake(out, quick, figures, progress):
        called.update(out=out, quick=quick, figures=figures)
        progress("figure 5")
        claim = types.SimpleNamespace(figure="5", paper_says="A beats B", holds=True)
        other = types.SimpleNamespace(
            figure="6", paper_says="B is flat", holds=False, holds_for=("x",), fails_for=("y", "z")
        )
        return [claim, other]

    monkeypatch.setitem(sys.modules, "fake_paper", types.SimpleNamespace(run=fake))
    monkeypatch.setitem(commands.PAPERS, "fake", "fake_paper")
    done = run("reproduce", "fake", "--out", tmp_path, "--quick", "--figure", 5, "--figure", 6)
    assert called == {"out": tmp_path, "quick": True, "figures": ["5", "6"]}
    assert "A beats B" in done.stdout
    assert "in 1 of 3 settings" in done.stdout
    assert "1 of 2 claims hold" in done.stdout


MEASURED = [
    Measurement("speed", 1234567.0, "tuples/s", bar=10.0),
    Measurement("memory", 12.5, "bytes/row", bar=10.0, at_most=True),
    Measurement("results", 7, "results", cell="a far spread"),
]


@pytest.fixture
def measured(monkeypatch):
    fake = types.SimpleNamespace(run=lambda quick, progress: iter(MEASURED))
    monkeypatch.setitem(sys.modules, "fake_bench", fake)
    monkeypatch.setitem(BENCHMARKS, "fake", "fake_bench")


def test_bench_prints_one_object_a_line(measured):
    lines = [json.loads(line) for line in run("bench", "fake", "--json").stdout.splitlines()]
    assert lines == [
        {"name": "speed", "value": 1234567.0, "unit": "tuples/s", "bar": 10.0, "holds": True},
        {"name": "memory", "value": 12.5, "unit": "bytes/row", "bar": 10.0, "holds": False},
        {"name": "results", "value": 7, "unit": "results", "cell": "a far spread"},
    ]


def test_bench_prints_a_table(measured):
    shown = run("bench", "fake").stdout
    for words in ("speed", "1,234,567", "≥ 10", "yes", "≤ 10", "no", "bytes/row", "a far spread"):
        assert words in shown
