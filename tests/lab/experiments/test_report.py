"""What experiments hand in, and the report that is made of it."""

import json
import re
import shutil
import sys
import time
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from streamshed import StreamshedError
from streamshed_lab.experiments import keeping, page
from streamshed_lab.experiments.report import Paper, Report, stem, summarise
from streamshed_lab.experiments.verdicts import Claim, Number, judge, near, reading, tally
from streamshed_lab.marks import with_parts

RUNS = [
    {"rows": 100, "policy": "a", "seed": 1, "results": 10},
    {"rows": 100, "policy": "a", "seed": 2, "results": 14},
    {"rows": 100, "policy": "b", "seed": 1, "results": 5},
    {"rows": 200, "policy": "a", "seed": 1, "results": 20},
    {"rows": 200, "policy": "b", "seed": 1, "results": 30},
]
NEAR, FAR = reading(spread="near"), reading(spread="far")
CLAIMS = [
    judge("5", "a beats b", "| rows | a |\n|---|---|\n| 100 | <12> |", {NEAR: True, FAR: True}),
    judge("6", "b | a", "a 12, b 5", {NEAR.at("100"): True, FAR.at("100"): False}, "It is far."),
    judge("7", "65 % more", "561 %", {"all": near(5.61, 0.65)}, tolerance="A quarter."),
    judge("7", "c is ours", "c 1", {"all": False}, ours=True),
]


def figure_5(scale, report):
    """Results by memory."""
    rows = [row | {"exact": 40, "place": p} for row in SUMMARY for p in ("here", "<there>")]
    report.progress("measuring")
    report.runs("fig05", RUNS)
    report.chart(
        rows, "rows", "results", "policy", ["place"], exact="exact", paper={(100, "a"): 11.0}
    )
    report.chart(SUMMARY, "policy", "results", "rows", log=True)
    return CLAIMS


SUMMARY = summarise(RUNS, ["rows", "policy"], "results")


@pytest.fixture
def paper():
    return Paper("A paper & more", {"5": figure_5}, "large", "small", {"spread": "far"}, "Decided.")


def test_a_summary_keeps_the_order_of_settings():
    assert [(row["rows"], row["policy"], row["results_mean"]) for row in SUMMARY] == [
        (100, "a", 12.0),
        (100, "b", 5.0),
        (200, "a", 20.0),
        (200, "b", 30.0),
    ]
    assert [row["runs"] for row in SUMMARY] == [2, 1, 1, 1]
    assert SUMMARY[0]["results_deviation"] == pytest.approx(8**0.5)
    assert SUMMARY[1]["results_deviation"] == 0.0


def test_numbers_are_within_limits_on_both_sides():
    assert near(0.5, 0.65)
    assert not near(0.48, 0.65)
    assert not near(5.61, 0.65)
    assert near(-0.2, -0.25)
    assert Number(3, low=3)
    assert not Number(3.1, high=3)


def test_a_claim_is_judged_reading_by_reading_and_cell_by_cell():
    claim = CLAIMS[1]
    assert not claim.holds
    assert [outcome.holds for outcome in claim.outcomes] == [True, False]
    assert claim.holds_under({"spread": "near", "other": "x"})
    assert not claim.holds_under({"spread": "elsewhere"})
    assert claim.outcome == "holds under 1 of 2 readings"
    cells = judge("8", "x", "y", {"a": True, "b": False})
    assert cells.outcome == "fails (holds in 1 of 2 cells)"
    assert judge("8", "x", "y", {"a": False}).outcome == "fails"


def test_a_claim_names_the_readings_that_it_needs():
    assert CLAIMS[0].readings == ""
    assert CLAIMS[1].readings == "with spread near"
    assert judge("8", "x", "y", {NEAR: False, FAR: False}).readings == "tried: spread near or far"
    assert judge("8", "x", "y", {"a": False}).readings == "tried: one reading only"


def test_claims_are_read_back_as_written():
    for claim in CLAIMS:
        told = json.loads(json.dumps(claim.to_json()))
        assert Claim.from_json(told) == claim
        assert told["holds"] == claim.holds
    (cell,) = CLAIMS[2].to_json()["outcomes"][0]["cells"]
    assert cell == {"name": "all", "holds": False, "value": 5.61, "low": 0.4875, "high": 0.8125}


def test_the_best_single_reading_answers_all_questions_at_once():
    two = judge("8", "x", "y", {reading(spread=s, order=o): s == o for s in "ab" for o in "ab"})
    one = judge("9", "x", "y", {reading(order=o): o == "b" for o in "ab"})
    found = tally([one, two, *CLAIMS], {"spread": "far"})
    assert (found.claims, found.always, found.plain) == (5, 1, 1)
    assert (found.best, found.reading) == (3, {"order": "b", "spread": "near"})
    assert found.sometimes == 4


def test_file_names_say_what_made_them():
    name = stem(
        "fig05", "results-by-rows", alpha=0.5, streams=5, window="100 seconds", orders="a/b"
    )
    assert name == "fig05_results-by-rows_alpha=0.5_streams=5_window=100seconds_orders=ab"


def test_runs_are_read_back_as_written(tmp_path):
    runs = Report(tmp_path / "deep" / "down").runs("fig05_results", RUNS)
    assert runs.name == "fig05_results_runs.parquet"
    assert pq.read_table(runs).to_pylist() == RUNS


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path, paper, monkeypatch):
    told = []
    first = paper.record("5", tmp_path, quick=True, progress=told.append)
    assert told == ["measuring"]
    assert paper.record("5", tmp_path, quick=True, progress=told.append) == first
    assert told == ["measuring"]
    assert paper.record("5", tmp_path, quick=False, progress=told.append)["quick"] is False
    assert len(told) == 2  # another scale is another run
    paper.record("5", tmp_path, quick=False, progress=told.append, again=True)
    assert len(told) == 3
    assert {"commit", "date", "machine", "seconds"} <= set(first)


def test_parts_of_a_figure_are_made_as_one(tmp_path, paper):
    assert len(paper.run(tmp_path, figures=["5a", "5b", 5])) == len(CLAIMS)
    with pytest.raises(StreamshedError, match="no figure '12' to reproduce; there are '5'"):
        paper.run(tmp_path, figures=["12"])


def test_times_of_a_busy_machine_are_marked(tmp_path):
    def waits(scale, report):
        """Times, while others have the processor."""
        time.sleep(0.1)
        return CLAIMS

    timed = Paper("Timed", {"5": waits}, 1, 1, timed=frozenset({"5"}))
    record = timed.record("5", tmp_path / "a")
    assert record["busy"]
    told = page.verdicts({"a": [record]}, {"a": timed})
    assert "| Figure 5 | a beats b | holds (times of a busy machine) |" in (
        page.verdicts_markdown(told)
    )
    page.write_page(tmp_path / "report.html", {"a": [record]}, {"a": timed})
    assert "on a busy machine" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not Paper("Not timed", {"5": waits}, 1, 1).record("5", tmp_path / "b")["busy"]


@pytest.mark.parametrize(
    ("values", "exact", "scale"),
    [
        ((10.0, 40.0), 50.0, {"zero": True}),
        ((0.93, 0.99), 1.0, {"zero": False}),  # else no line could be told from another
        ((10.0, 40.0), 400.0, {"type": "log"}),  # else all but the exact result would be flat
        ((0.0, 40.0), 400.0, {"type": "symlog"}),
    ],
)
def test_the_scale_of_a_chart_lets_every_line_be_seen(values, exact, scale):
    rows = [
        {"x": i, "y": y, "deviation": 0.0, "line": kind, "panel": "", "kind": kind}
        for kind, ys in (("measured", values), ("exact", (exact, exact)))
        for i, y in enumerate(ys)
    ]
    spec = page.chart("Title", {"rows": rows, "x": "x", "y": "y", "log": False}).to_dict()
    assert spec["layer"][0]["encoding"]["y"]["scale"] == scale
    assert ("Logarithmic." in spec["title"]["subtitle"]) == ("type" in scale)


@pytest.fixture
def written(tmp_path, paper):
    paper.record("5", tmp_path / "a", quick=True)
    records = page.read_records(tmp_path, {"a": paper, "b": paper})
    return page.write_page(tmp_path / "report.html", records, {"a": paper}), records


def test_the_report_is_one_file_that_loads_nothing(written):
    text = written[0].read_text(encoding="utf-8")
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert not re.search(r'(src|href)="(?!#)', outside)
    assert "A paper &amp; more" in outside
    assert "&lt;12&gt;" in outside  # tables are HTML, and their cells are escaped
    assert "holds under 1 of 2 readings" in outside
    assert "5.61 (to be 0.487 to 0.812)" in outside or "5.61 (to be 0.488 to 0.812)" in outside
    assert "c is ours (ours, not the paper&#x27;s)" in outside
    assert "color-scheme: light dark" in text


def test_verdicts_are_data_and_are_quoted_from_them(written, paper):
    told = json.loads(json.dumps(page.verdicts(written[1], {"a": paper})))
    assert told["a"]["figures_of_paper"] == len(told["a"]["figures"]) == 1
    assert told["a"]["tally"]["best"] == 2
    assert "charts" not in told["a"]["figures"][0]
    quoted = page.verdicts_markdown(told)
    counts = "| A paper & more | 3 | 1 | 2 (spread near) | 2 | 3 of 5 | 1 of 1 figures, 1 quick; "
    assert counts in quoted
    assert "| Figure 6 | b \\| a | holds under 1 of 2 readings; with spread near |" in quoted


def test_the_stored_verdicts_are_those_that_the_docs_quote(pytestconfig):
    written = (pytestconfig.rootpath / "docs" / "papers.md").read_text(encoding="utf-8")
    stored = page.stored_verdicts()
    assert written == keeping.page_of(stored)
    network = (pytestconfig.rootpath / "docs" / "network.md").read_text(encoding="utf-8")
    assert network == with_parts(network, keeping.network_of(stored))


def test_a_stored_claim_that_fails_names_the_readings_tried():
    for paper in page.stored_verdicts().values():
        for figure in paper["figures"]:
            for claim in map(Claim.from_json, figure["claims"]):
                if not (claim.ours or any(outcome.holds for outcome in claim.outcomes)):
                    assert claim.readings.startswith("tried: "), claim.says


def test_a_run_that_is_kept_takes_the_place_of_its_figures(tmp_path, paper, monkeypatch):
    monkeypatch.setattr(keeping, "PAPERS", {"a": "of tests"})
    monkeypatch.setattr(keeping, "lab_module", lambda name: SimpleNamespace(PAPER=paper))
    stored, run = (tmp_path / name for name in ("kept.json", "run.json"))

    def keep(quick, says, said=""):
        claim = judge("5", says, "", {said: True})
        monkeypatch.setattr(sys.modules[__name__], "CLAIMS", [claim])
        paper.record("5", tmp_path / "a", quick=quick, again=True)
        page.write_verdicts(
            run, page.verdicts(page.read_records(tmp_path, {"a": paper}), {"a": paper})
        )
        keeping.main([str(run)], stored, tmp_path)
        (figure,) = json.loads(stored.read_text(encoding="utf-8"))["a"]["figures"]
        return figure["quick"], figure["claims"][0]["says"]

    assert keep(True, "a beats b") == (True, "a beats b")
    assert keep(False, "a beats b") == (False, "a beats b")
    assert keep(True, "a beats b") == (False, "a beats b")  # a quick run does not replace it
    assert keep(True, "b beats a") == (True, "b beats a")  # but one of other claims does
    assert keep(False, "b beats a") == (False, "b beats a")
    assert keep(True, "b beats a", NEAR) == (True, "b beats a")  # or of other readings
    told = (tmp_path / "papers.md").read_text(encoding="utf-8")
    assert "| Figure 5 | b beats a | holds |" in told
    (figure,) = json.loads(stored.read_text(encoding="utf-8"))["a"]["figures"]
    assert set(figure["spent"]) == {"quick", "full"}  # of the last run of either kind
    assert "quick 0 s (1 of 1 figures), in full 0 s (1 of 1 figures)" in told


BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture
def tab():
    """A tab of a browser, which keeps what it asked for and what went wrong."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        tab = chromium.new_context(viewport={"width": 1200, "height": 900}).new_page()
        tab.asked, tab.wrong = [], []
        tab.on("request", lambda request: tab.asked.append(request.url))
        tab.on("pageerror", lambda error: tab.wrong.append(str(error)))
        tab.on("console", lambda line: tab.wrong.append(line.text) if line.type == "error" else 0)
        yield tab
        chromium.close()


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium")
def test_the_report_is_drawn_by_a_browser_in_light_dark_and_on_paper(written, tab, tmp_path):
    tab.goto(written[0].as_uri())
    for number in (0, 1):
        tab.wait_for_selector(f"#chart{number} svg.marks")
    assert tab.locator("svg.marks").count() == 2
    assert tab.asked == [written[0].as_uri()]
    drawn = tab.locator("#chart0 svg.marks")
    texts = drawn.locator("text").all_text_contents()
    assert {"Figure 5. Results by memory.", "memory (rows of each stream)", "results"} <= {*texts}
    assert {"a", "b", "exact", "place here", "place <there>"} <= {*texts}
    assert any("Crosses: the paper's numbers." in text for text in texts)
    # The colours follow the reader's; the charts need not be drawn anew.
    label = "getComputedStyle(document.querySelector('#chart0 .role-axis text')).fill"
    inks = []
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        inks.append(tab.evaluate(label))
        assert inks[-1] == tab.evaluate("getComputedStyle(document.body).color")
    assert inks == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    # A click on a name in the legend leaves the line of that name.
    faded = "#chart0 [aria-roledescription='line mark'][opacity='0.12']"
    assert tab.locator(faded).count() == 0
    drawn.locator(".role-legend-symbol path").first.click()
    tab.wait_for_selector(faded, state="attached")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1200
    # What is folded on the screen is printed.
    cells = tab.get_by_text("(to be 0.48")
    assert not cells.is_visible()
    tab.emulate_media(media="print", color_scheme="light")
    assert cells.evaluate("e => e.checkVisibility({contentVisibilityAuto: true})")
    assert len(tab.pdf()) > 20_000
    assert tab.wrong == []
