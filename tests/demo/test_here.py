"""The burst without Spark, from its command to its chart."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from streamshed import cli
from streamshed.charts import Grid
from streamshed.demo import funnel
from streamshed.demo.story import Outcome, Sample, Truth, bars, picture, write_page
from streamshed.demo.workload import FunnelWorkload

SMALL = FunnelWorkload(sessions=40, minutes=15, burst=5, seed=3)


def test_the_truth_is_what_the_exact_join_makes_of_the_rows_so_far():
    truth = Truth.of(SMALL)
    minutes = list(SMALL.by_minute())
    schemas = {name: table.schema for name, table in minutes[0].items()}
    most = 0
    with funnel().open(schemas) as session:
        for minute, tables in enumerate(minutes):
            session.push(**tables)
            assert session.ledger.results == truth.results[minute]
            arrived = sum(stream.arrived for stream in session.ledger.streams.values())
            assert arrived == truth.rows[minute]
            assert truth.due(arrived) == session.ledger.results
            most = max(most, sum(stream.stored for stream in session.ledger.streams.values()))
    # The join's clock is that of the slowest stream: it holds rows a little longer.
    assert truth.peak == pytest.approx(most, rel=0.02)


def test_the_command_shows_what_each_policy_keeps(tmp_path):
    chart = tmp_path / "chart.html"
    arguments = ["demo", "--here", "--minutes", "12", "--chart", str(chart)]
    arguments += ["--policy", "exact", "--policy", "oldest"]
    done = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    exact, oldest = (
        re.split(r"\s*│\s*", line)[1:-1] for line in done.stdout.splitlines() if line[:1] == "│"
    )
    assert (exact[0], exact[4], exact[5]) == ("exact", "100.0 %", "100.0 %")
    assert oldest[0] == "oldest"
    held, kept = (int(row[1].replace(",", "")) for row in (exact, oldest))
    assert held / 3.2 < kept < held / 2.8
    assert 0 < float(oldest[4].rstrip(" %")) < 100
    assert f"a budget of {oldest[1]}" in done.stdout
    assert "joining with oldest" in done.stderr
    assert "█" in done.stdout
    page = chart.read_text()
    assert "peak rows held" in page
    assert '"join": "oldest"' in page


def test_a_chart_may_be_a_small_picture(tmp_path):
    samples = [Sample(float(n), n, n, n, 1_000_000 * n, lag=n / 2) for n in range(9)]
    figures = {"lag": "seconds behind", "held": "rows held", "results": "results"}
    grid = Grid(["join"], [["ours"]])
    path = tmp_path / "burst.svg"
    write_page(path, "A burst", [Outcome("ours", samples)], figures, (2.0, 5.0), [grid], [])
    drawn = path.read_text()
    assert drawn.startswith("<svg")
    assert "seconds behind" in drawn
    assert "rows held" not in drawn
    assert "burst" in drawn


def test_a_picture_has_one_scale_for_all():
    samples = [Sample(float(second), 0, 0.0, 0, 0, lag=second / 2) for second in range(9)]
    lines = picture([Outcome("slow", samples), Outcome("fast", samples[:3])], "lag", "{:.1f} s")
    said = [line.partition("│")[2] for line in lines]
    assert said == ["", "", " slow: up to 4.0 s", "", "", " fast: up to 1.0 s"]
    assert lines[0].rstrip("│").endswith("█")
    assert not lines[3].rstrip("│").strip()
    assert bars([0.0], top=0.0, width=3, height=1) == ["   "]
