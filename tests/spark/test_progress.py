"""The ledgers of a query, of one join or several."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamshed as ss
from fake_queries import observed
from streaming import Files, rows
from streamshed.engine.observe.state import GROUPS, SPREADS
from streamshed.estimates import Estimate
from streamshed.spark import Combined, LedgerListener, combined, ledger, ledgers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIR = ss.join("a", "b").on("k").within(30, time="ts")


def table(*times: int) -> pa.Table:
    return pa.table({"k": pa.array([1] * len(times)), "ts": pa.array(times)})


def test_a_union_of_two_joins_has_two_ledgers(spark: SparkSession, files: Files) -> None:
    files.write([{"a": table(1, 2), "b": table(3), "c": table(4, 5)}])
    frames = files.frames(spark)
    first = PAIR.stream(a=frames["a"], b=frames["b"], shards=1)
    second = PAIR.stream(a=frames["a"], b=frames["c"], shards=1)
    frame = first.union(second)
    query = files.start(frame)
    query.awaitTermination()
    found = ledgers(query)
    assert {name: one.results for name, one in found.items()} == {"a, b": 2, "a, b (2)": 4}
    assert files.results(frame).num_rows == 6
    with pytest.raises(
        ss.InputError, match=r"has 2 joins, of a, b; a, b \(2\); use ledgers\(query\), as in"
    ):
        ledger(query)


def test_a_join_of_a_join(spark: SparkSession, files: Files) -> None:
    files.write([{"a": table(1, 2), "b": table(3), "c": table(4, 5)}])
    frames = files.frames(spark)
    pairs = PAIR.stream(a=frames["a"], b=frames["b"], shards=1).selectExpr("b.k", "time as ts")
    again = ss.join("pairs", "c").on("k").within(30, time="ts")
    frame = again.stream(pairs=pairs, c=frames["c"], shards=1)
    query = files.start(frame)
    query.awaitTermination()
    found = ledgers(query)
    assert {name: one.results for name, one in found.items()} == {"a, b": 2, "pairs, c": 4}
    assert len(rows(files.results(frame))) == 4


def test_what_clusters_made_together_is_added_up_batch_by_batch() -> None:
    def batch(exact: float, made: int) -> dict[str, Any]:
        numbers = [1.0, 0.0, 0.0, exact, exact, exact, 0.0, 0.0, *[0.0] * (SPREADS * GROUPS)]
        clusters = {"about": None, "combined": [numbers]}
        metrics = {"streamshed 1: sensor": clusters, "streamshed combined 2": {"results": made}}
        return {"observedMetrics": metrics}

    progress = [batch(10.0, 6), {"observedMetrics": {}}, batch(10.0, 5)]
    query: Any = SimpleNamespace(recentProgress=progress)
    assert combined(query) == Combined(2, 11, Estimate(9.0, 9.0, 9.0))
    assert combined(query).recall.value == 11 / 20
    assert combined(SimpleNamespace(recentProgress=progress[1:2])) is None
    with pytest.raises(ss.InputError, match=r"combined\(\): a dict was given; give the query that"):
        combined({})


def test_the_listener_names_the_joins(caplog: pytest.LogCaptureFixture) -> None:
    def event(*names: str, query: str | None = "funnel") -> Any:
        metrics = dict.fromkeys(names, ACCOUNTS)
        progress = SimpleNamespace(
            batchId=7, runId="run", id="4f5a", name=query, observedMetrics=metrics
        )
        return SimpleNamespace(progress=progress)

    with caplog.at_level(logging.INFO, logger="streamshed.spark"):
        LedgerListener().onQueryProgress(event("streamshed 11: a, b", "of another"))
        LedgerListener().onQueryProgress(event("streamshed 10: a, b", "streamshed 9: c, d"))
        LedgerListener().onQueryProgress(event("streamshed 1: a, b", query=None))
    assert [message.split("\n")[0] for message in caplog.messages] == [
        "batch 7 of funnel",
        "batch 7 of funnel, join of c, d",
        "batch 7 of funnel, join of a, b",
        "batch 7 of 4f5a",
    ]


def test_the_listener_warns_of_late_rows(caplog: pytest.LogCaptureFixture) -> None:
    listener = LedgerListener()
    with caplog.at_level(logging.WARNING, logger="streamshed.spark"):
        for late in (4, 12, 40, 99):
            metrics = {"streamshed 1: a": observed("a", {"a.late": late})}
            progress = SimpleNamespace(batchId=7, runId="r", name="q", observedMetrics=metrics)
            listener.onQueryProgress(SimpleNamespace(progress=progress))
    (said,) = caplog.messages
    assert said.startswith("query q: 12 rows were left out as late (12 of stream 'a'); allow for")


def query(*batches: dict[str, Any]) -> Any:
    return SimpleNamespace(name="funnel", id="1", recentProgress=list(batches))


def test_a_query_without_accounts_says_so() -> None:
    """As on a server of Spark Connect that does not report them."""
    assert ledger(query()) is None
    assert ledger(query({"observedMetrics": {}, "numInputRows": 0})) is None
    with pytest.raises(
        ss.InputError, match=r"the query funnel has done batches, but .* no accounts of a join"
    ):
        ledger(query({"observedMetrics": {}, "numInputRows": 5}, {"numInputRows": 0}))
    found = ledger(query({"observedMetrics": {"streamshed 1: a": ACCOUNTS}, "numInputRows": 5}))
    assert found is not None
    assert list(found.streams) == ["a"]


ACCOUNTS = observed("a", {})
