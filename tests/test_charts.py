"""Charts as one HTML file."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import altair as alt
import pyarrow as pa
import pytest

from streamshed import StreamshedError
from streamshed.charts import Grid, write_html


def line(title="Lag </script> of time"):
    data = pa.table({"second": [0, 1, 2], "lag": [0.0, 1.5, 3.0]})
    return alt.Chart(data, title=title).mark_line().encode(x="second:Q", y="lag:Q")


class Loaded(HTMLParser):
    """What a page loads from elsewhere."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in {"src", "href"}]


def test_a_page_is_one_file_that_loads_nothing(tmp_path):
    grid = Grid(["who", "rows <held>"], [["ours", "1,000"]], caption="At the end")
    page = write_html(tmp_path / "page.html", "Burst & lag", "First.", line(), grid).read_text()
    loaded = Loaded()
    loaded.feed(page)
    assert loaded.found == []
    assert not re.search(r"\bimport\(|\bimport [\"{]", page)
    assert "<title>Burst &amp; lag</title>" in page
    assert "rows &lt;held&gt;" in page
    assert page.count("</script>") == 1
    # Vega came along, and the chart's data; a screen reader has its title.
    assert "vega" in page
    assert '"lag": 1.5' in page
    assert 'role="img" aria-label="Lag &lt;/script&gt; of time"' in page


def test_a_page_without_charts_needs_no_vega(tmp_path):
    page = write_html(tmp_path / "page.html", "Rows", "Only words.").read_text()
    assert len(page) < 2_000


def test_what_charts_need_is_said(tmp_path, monkeypatch):
    chart = line()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(StreamshedError, match=r"vl_convert is not installed.*streamshed\[charts\]"):
        write_html(tmp_path / "page.html", "Burst", chart)


def test_a_page_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(StreamshedError, match=r"page\.html' cannot be written: No such file"):
        write_html(tmp_path / "no" / "page.html", "Rows", "Only words.")
