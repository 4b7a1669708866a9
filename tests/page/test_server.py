"""The page's server: what it tells, to whom, and what it costs."""

from __future__ import annotations

import json
import time
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

pytest.importorskip("pyspark")
from fake_queries import START, Query, progress
from streamshed import InputError
from streamshed.page import serve
from streamshed.page.figures import figures, prometheus
from streamshed.page.server import _Watched

# -- figures --------------------------------------------------------------------------------------


def test_figures_of_a_batch_are_numbers_and_rates():
    first = figures(progress(0))
    second = figures(progress(1), first)
    assert (second["started"], second["ended"], second["past"]) == (START + 2, START + 2.5, 2.0)
    assert (second["input_rate"], second["joined_rate"]) == (500.0, None)
    assert second["behind"] == {"maxOffsetsBehindLatest of source 1": 7.0}
    (name,) = second["joins"]
    join = second["joins"][name]
    assert name == "clicks, orders"
    assert (join["arrived"], join["stored"], join["shed"]) == (2_000, 1_000, 1_000)
    assert (join["results_rate"], join["shed_rate"], join["budget"]) == (5.0, 250.0, 5_000)
    assert join["shed_by"] == {"density": 1_000}
    assert join["streams"]["orders"]["arrived"] == 1_000
    # Of a query that went on from a checkpoint it is not known how many came in this batch.
    assert figures(progress(5))["joins"][name]["results_rate"] is None
    assert "contents" not in json.dumps([first, second])


def test_metrics_are_in_prometheus_text_format():
    told = prometheus({'a "b"\\': (True, figures(progress(1))), "idle": (False, None)})
    lines = told.splitlines()
    assert told.endswith("\n")
    assert 'streamshed_query_active{query="a \\"b\\"\\\\"} 1' in lines
    assert 'streamshed_query_active{query="idle"} 0' in lines
    labels = 'query="a \\"b\\"\\\\",join="clicks, orders"'
    assert f"streamshed_results_total{{{labels}}} 20" in lines
    assert f"streamshed_budget_rows{{{labels}}} 5000" in lines
    assert f'streamshed_rows_total{{{labels},stream="clicks",fate="shed"}} 500' in lines
    assert f'streamshed_rows{{{labels},stream="clicks",fate="stored"}} 500' in lines
    # One head for each metric, before all of its samples.
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    seen = [line.split("{")[0] for line in lines if not line.startswith("#")]
    assert list(dict.fromkeys(seen)) == names
    for line in lines:
        if not line.startswith("#"):
            float(line.rpartition(" ")[2])


def test_a_budget_of_bytes_and_rows_without_a_match_are_told():
    counts = {"clicks.unmatched": 7, "orders.unmatched": 2, "orders.uncertain": 1}
    told = progress(1, budget=None, nbytes=4_000, also=counts | {"held_bytes": 1_000})
    (join,) = figures(told)["joins"].values()
    assert (join["budget"], join["held_bytes"], join["budget_bytes"]) == (None, 1_000, 4_000)
    assert (join["unmatched"], join["uncertain"]) == (9, 1)
    lines = prometheus({"q": (True, figures(told))}).splitlines()
    labels = 'query="q",join="clicks, orders"'
    for line in ("held_bytes 1000", "budget_bytes 4000", "unmatched_total 9", "uncertain_total 1"):
        name, value = line.split()
        assert f"streamshed_{name}{{{labels}}} {value}" in lines


def test_the_throttle_and_how_far_sources_are_behind_are_told():
    told = progress(1, paced=(0.25, 900.0, 0.125))
    files = {"numFilesOutstanding": "3", "numBytesOutstanding": "900", "numInputRows": "5"}
    told["sources"].append({"description": "Delta", "metrics": files})
    found = figures(told)
    (join,) = found["joins"].values()
    assert (join["throttle"], join["capacity"], join["harvest"]) == (0.25, 900.0, 0.125)
    assert found["behind"] == {
        "maxOffsetsBehindLatest of source 1": 7,
        "numFilesOutstanding of source 2": 3,
        "numBytesOutstanding of source 2": 900,
    }
    lines = prometheus({"q": (True, found)}).splitlines()
    assert 'streamshed_harvest{query="q",join="clicks, orders"} 0.125' in lines


# -- the server -----------------------------------------------------------------------------------


def connection(page):
    url = urlsplit(page.url)
    return closing(HTTPConnection(url.hostname, url.port, timeout=10))


def get(page, path, **headers):
    """The answer: its status, headers and text."""
    with connection(page) as asked:
        asked.request("GET", path, headers=headers)
        with asked.getresponse() as response:
            stream = response.headers["Content-Type"] == "text/event-stream"
            text = "" if stream else response.read().decode()
            return SimpleNamespace(status=response.status, headers=response.headers, text=text)


@contextmanager
def events(page):
    """What is told, message by message."""
    with connection(page) as asked:
        asked.request("GET", "/events")
        with asked.getresponse() as response:
            lines = iter(response.readline, b"")
            yield (json.loads(line[6:]) for line in lines if line.startswith(b"data: "))


def test_the_page_tells_what_is_new_once():
    query = Query(2)
    with serve(query, port=0) as page:
        with events(page) as told:
            seen = []
            while not seen:  # the first message may come before the first look
                (one,) = next(told)["queries"]
                seen += [batch["batch"] for batch in one["batches"]]
            assert seen == [0, 1]
            assert (one["name"], one["active"]) == ("funnel", True)
            assert one["status"] == "Processing new data"
            query.add()
            query.isActive, query.failure = False, ValueError("contents of a row")
            for message in told:
                (one,) = message["queries"]
                seen += [batch["batch"] for batch in one["batches"]]
                if one["failed"] and len(seen) > 2:
                    break
            assert "contents" not in json.dumps(message)
            assert seen == [0, 1, 2]
        with events(page) as told:  # another browser is told all of it
            (one,) = next(told)["queries"]
            assert [batch["batch"] for batch in one["batches"]] == [0, 1, 2]
        assert "streamshed_batch_id" in get(page, "/metrics").text
    with pytest.raises(ConnectionError):
        get(page, "/")


def test_the_page_loads_nothing_from_elsewhere():
    with serve([Query()], port=0) as page:
        assert page.url.startswith("http://127.0.0.1:")
        index = get(page, "/")
        assert "default-src 'none'" in index.headers["Content-Security-Policy"]
        assert "//" not in index.text
        for name in ("page.js", "page.css", "uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE"):
            assert get(page, f"/{name}").status == 200
        assert "MIT" in get(page, "/uPlot.LICENSE").text
        assert get(page, "/../server.py").status == 404
        assert get(page, "/events/x").status == 404


def test_only_who_knows_the_token_sees_figures():
    with serve(Query(1), port=0, token="s3cret") as page:
        assert page.url.endswith("?token=s3cret")
        assert get(page, "/").status == 200
        for path in ("/metrics", "/events", "/metrics?token=", "/metrics?token=s3cre"):
            assert get(page, path).status == 401, path
        assert get(page, "/metrics?token=s3cret").status == 200
        assert get(page, "/metrics", Authorization="Bearer s3cret").status == 200
        assert get(page, "/metrics", Authorization="Bearer other").status == 401


def test_an_address_for_others_has_a_token_and_a_local_one_only_local_names():
    with serve(Query(1), port=0, host="0.0.0.0") as page:
        token = page.url.partition("?token=")[2]
        assert len(token) >= 20
    with serve(Query(1), port=0) as page:
        assert "token" not in page.url
        assert get(page, "/metrics", Host="localhost:1").status == 200
        # A name that its owner lets point here.
        assert get(page, "/metrics", Host="evil.example:80").status == 401


def test_what_cannot_be_served_is_refused():
    with (
        serve(Query(), port=0) as page,
        pytest.raises(
            InputError, match=rf"cannot listen at 127.0.0.1:{urlsplit(page.url).port} \("
        ),
    ):
        serve(Query(), port=urlsplit(page.url).port)
    with pytest.raises(InputError, match=r"a str was given; give the query that \.writeStream"):
        serve(["query"], port=0)


class Kept:
    """The progress of a batch in Java, which counts how often it is read."""

    read = 0

    def __init__(self, batch, rows=1_000):
        self.told = {**progress(batch), "numInputRows": rows}

    def batchId(self):  # noqa: N802 - Java's name
        return self.told["batchId"]

    def json(self):
        Kept.read += 1
        return json.dumps(self.told)


def test_a_batch_is_read_once():
    """Java keeps a hundred: to read them all for each batch would cost more than all else."""
    kept = [Kept(batch) for batch in range(100)]
    query = Query()
    query._jsq = SimpleNamespace(lastProgress=lambda: kept[-1], recentProgress=lambda: kept)
    watched = _Watched(query)
    watched.look()
    assert (watched.done, Kept.read) == (100, 100)
    kept.append(Kept(100, rows=0))  # a batch without rows is no news, and is not read again
    for _ in range(3):
        watched.look()
    assert (watched.done, Kept.read) == (100, 101)
    kept.append(Kept(101))
    watched.look()
    assert (watched.done, Kept.read, watched.batches[-1]["batch"]) == (101, 102, 101)


def test_a_look_at_very_many_streams_costs_little_and_a_lost_query_is_over():
    query = Query()
    names = tuple(f"s{number}" for number in range(1_000))
    query.recentProgress = [progress(0, streams=names)]
    watched = _Watched(query)
    start = time.thread_time()
    for batch in range(1, 11):
        watched.look()
        query.recentProgress = [progress(batch, streams=names)]
    assert (time.thread_time() - start) / 10 < 0.1
    lost = _Watched(SimpleNamespace(runId=1, name=None, id=2))
    lost.look()
    assert (lost.name, lost.active, lost.status) == ("2", False, "stopped")
