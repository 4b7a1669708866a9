"""What experiments hand in."""

import json
import sys

import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from streamshed import StreamshedError
from streamshed_lab.experiments.report import (
    Claim,
    Paper,
    Report,
    judge,
    stem,
    summarise,
    verdict_markdown,
)

RUNS = [
    {"rows": 100, "policy": "a", "seed": 1, "results": 10},
    {"rows": 100, "policy": "a", "seed": 2, "results": 14},
    {"rows": 100, "policy": "b", "seed": 1, "results": 5},
    {"rows": 200, "policy": "a", "seed": 1, "results": 20},
    {"rows": 200, "policy": "b", "seed": 1, "results": 30},
]
CLAIMS = [
    Claim("5", "a beats b", "a 12, b 5", True),
    judge("6", "b | a", "a 12, b 5", {"near": True, "far": False}, "It is far."),
    judge("7", "b beats a", "b 1, a 2", {"near": False}),
]


def test_a_summary_keeps_the_order_of_settings():
    summary = summarise(RUNS, ["rows", "policy"], "results")
    assert [(row["rows"], row["policy"], row["results_mean"]) for row in summary] == [
        (100, "a", 12.0),
        (100, "b", 5.0),
        (200, "a", 20.0),
        (200, "b", 30.0),
    ]
    assert [row["runs"] for row in summary] == [2, 1, 1, 1]
    assert summary[0]["results_deviation"] == pytest.approx(8**0.5)
    assert summary[1]["results_deviation"] == 0.0


def test_a_claim_holds_if_it_holds_in_every_setting():
    assert judge("5", "x", "y", {"near": True, "far": True}).holds
    assert not CLAIMS[1].holds
    assert (CLAIMS[1].holds_for, CLAIMS[1].fails_for) == (("near",), ("far",))


def test_file_names_say_what_made_them():
    name = stem(
        "fig05", "results-by-rows", alpha=0.5, streams=5, window="100 seconds", orders="a/b"
    )
    assert name == "fig05_results-by-rows_alpha=0.5_streams=5_window=100seconds_orders=ab"


def test_runs_and_summaries_are_read_back_as_written(tmp_path):
    said = []
    report = Report(tmp_path / "deep" / "down", "A paper", said.append)
    runs = report.runs("fig05_results", RUNS)
    summary = report.summary("fig05_results", summarise(RUNS, ["rows", "policy"], "results"))
    assert runs.name == "fig05_results_runs.parquet"
    assert pq.read_table(runs).to_pylist() == RUNS
    assert csv.read_csv(summary)["results_mean"].to_pylist() == [12.0, 5.0, 20.0, 30.0]
    assert said == ["writing fig05_results_runs.parquet", "writing fig05_results_summary.csv"]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("panels", [(), ("place",), ("place", "kind")])
def test_charts_are_drawn_without_a_screen_or_a_warning(tmp_path, panels, log):
    pytest.importorskip("matplotlib")
    rows = [
        row | {"place": place, "kind": 0.5}
        for place in "vwxyz"
        for row in summarise(RUNS, ["rows", "policy"], "results")
    ]
    path = Report(tmp_path, "A paper").chart(
        "c", rows, "rows", "results", "policy", panels, log=log
    )
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    rows = summarise(RUNS, ["rows", "policy"], "results")
    with pytest.raises(StreamshedError, match=r"charts need matplotlib: .*streamshed\[lab\]"):
        Report(tmp_path, "A paper").chart("c", rows, "rows", "results", "policy")


def test_the_verdict_says_what_holds_where_and_why(tmp_path):
    path = Report(tmp_path, "A paper").verdict(CLAIMS)
    text = path.read_text(encoding="utf-8")
    assert "1 of 3 claims hold in every setting tried." in text
    assert "| 5 | a beats b | holds |" in text
    assert "| 6 | b \\| a | holds in 1 of 2 settings |" in text
    assert "| 7 | b beats a | fails |" in text
    assert "- Holds for: near.\n- Fails for: far." in text
    assert "It is far." in text
    assert text.count("a 12, b 5") == 1  # what was measured for two claims is told once
    data = json.loads((tmp_path / "verdict.json").read_text(encoding="utf-8"))
    assert data["title"] == "A paper"
    assert [claim["holds"] for claim in data["claims"]] == [True, False, False]
    assert data["claims"][1]["fails_for"] == ["far"]
    assert text == verdict_markdown("A paper", CLAIMS)


def test_parts_of_a_figure_are_made_as_one(tmp_path):
    made = []

    def figure(scale, report):
        made.append(scale)
        return [Claim("9a", "A is B", "It is.", True)]

    paper = Paper("A paper", {"9": figure}, full="large", quick="small")
    claims = paper.run(tmp_path, quick=True, figures=["9a", "9b", 9])
    assert made == ["small"]
    assert len(claims) == 1
    assert (tmp_path / "verdict_9.md").exists()
