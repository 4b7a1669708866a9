"""The page in a real browser."""

from __future__ import annotations

import shutil
import time

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("playwright")
from playwright import sync_api

from fake_queries import Query
from streamshed.page import serve, server

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]


@pytest.fixture
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def opened(browser, page, **context):
    """A tab with the page, which keeps what it asked for and what went wrong."""
    tab = browser.new_context(**context).new_page()
    tab.asked, tab.wrong = [], []
    tab.on("request", lambda request: tab.asked.append(request.url))
    tab.on("pageerror", lambda error: tab.wrong.append(str(error)))
    tab.on("console", lambda line: tab.wrong.append(line.text) if line.type == "error" else None)
    tab.goto(page.url)
    return tab


def card(tab, name):
    return tab.locator("#now > div", has=tab.locator("dt", has_text=name)).locator("dd span").first


def test_the_page_shows_what_the_query_does(browser):
    query = Query(5)
    with serve(query, port=0, token="t0ken") as page:
        tab = opened(browser, page)
        sync_api.expect(card(tab, "Rows held")).to_have_text("2,500", timeout=20_000)
        assert tab.locator("#now").inner_text().count("50.0 % of 5,000") == 1
        sync_api.expect(tab.locator("#state")).to_have_text("funnel: Processing new data")
        query.add()
        sync_api.expect(card(tab, "Rows held")).to_have_text("3,000", timeout=20_000)
        assert tab.locator("#batches tbody tr").count() == 6
        assert tab.locator("#streams tbody th").all_inner_texts() == ["clicks", "orders"]
        # Charts have a canvas each, and words for those who do not see it.
        charts = tab.locator("#charts [role=img]")
        assert charts.count() == tab.locator("#charts canvas").count() == 7
        assert "held 3,000, budget 5,000" in charts.nth(1).get_attribute("aria-label")
        # By the keyboard alone: the first stop skips to the figures.
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Skip to the figures"
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "figures"
        assert tab.get_by_role("table").count() >= 2
        assert tab.get_by_role("heading", level=1).inner_text() == "Streamshed"
        assert not tab.wrong
        assert all(url.startswith(page.url.partition("?")[0]) for url in tab.asked)
        query.isActive, query.failure = False, ValueError("contents of a row")
        sync_api.expect(tab.locator("#state")).to_have_text(
            "funnel: failed: see the log of the job", timeout=20_000
        )
        assert "contents" not in tab.content()


def test_the_page_shows_the_throttle_and_one_figure_of_each_source(browser):
    query = Query(2, paced=(0.5, 0.0, 0.25))
    for batch in query.recentProgress:
        batch["sources"][0]["metrics"] |= {"minOffsetsBehindLatest": "1"}
    with serve(query, port=0) as page:
        tab = opened(browser, page)
        sync_api.expect(card(tab, "Harvest")).to_have_text("25.0 %", timeout=20_000)
        said = [c.get_attribute("aria-label") for c in tab.locator("#charts [role=img]").all()]
        assert any("work 50 %, windows 25 %" in text for text in said)
        assert any("offsets or files 7" in text for text in said)  # not the sum of most and least
        assert not tab.wrong


def test_the_page_is_readable_in_the_dark_and_on_a_phone(browser):
    with serve(Query(3), port=0) as page:
        tab = opened(
            browser,
            page,
            color_scheme="dark",
            viewport={"width": 360, "height": 740},
            is_mobile=True,
        )
        sync_api.expect(card(tab, "Rows held")).to_have_text("1,500", timeout=20_000)
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        tab.emulate_media(color_scheme="light")
        assert (
            tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert not tab.wrong


@pytest.mark.slow
@pytest.mark.spark
def test_the_page_shows_a_running_job_and_costs_little(browser, tmp_path, monkeypatch):
    import streaming
    import streamshed as ss

    spent = []
    look = server._Watched.look

    def measured(watched):
        start = time.thread_time()
        look(watched)
        spent.append(time.thread_time() - start)

    monkeypatch.setattr(server._Watched, "look", measured)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    spark = streaming.session()
    rate = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    frames = {name: rate.selectExpr("value % 50 as k", "timestamp as ts") for name in "ab"}
    joined = ss.join("a", "b").on("k").within("1 minute", time="ts").keep(total=500)
    query = (
        joined.stream(frames, shards=1)
        .writeStream.format("noop")
        .queryName("rates")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        with serve(query, port=0) as page:
            tab = opened(browser, page)
            sync_api.expect(tab.locator("#batches tbody tr").nth(3)).to_be_visible(timeout=240_000)
            assert "rates: " in tab.locator("#state").inner_text()
            assert "of 500" in tab.locator("#now").inner_text()
            sync_api.expect(card(tab, "Recall")).to_contain_text("%")
            assert not tab.wrong
            time.sleep(10)
    finally:
        query.stop()
        spark.stop()
    assert sum(spent) / len(spent) < 0.01  # a look a second: under 1 % of a core
