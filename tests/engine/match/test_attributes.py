"""Joins by a graph of equalities: what DuckDB says, what the plain version says."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamshed as ss
from harness import (
    GRAPH_POLICIES,
    driven,
    graph_spec,
    members,
    same_ledger,
    slow_generation,
    within_budget,
)
from oracles.graph import Graph, graphs, judged, simulate
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import merged
from streamshed.engine.match.attribute_matcher import AttributeMatcher
from streamshed.engine.match.matcher import Matcher
from streamshed.ledger import Ledger
from streamshed_lab.offline import most_results


def replayed(graph: Graph) -> tuple[list[object], Ledger]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # late rows are expected here
        done = graph_spec(graph).replay(graph.inputs(), order="arrival")
    return members(graph.workload, done.table), done.ledger


@settings(slow_generation, max_examples=120)
@given(graphs(budget=False))
def test_results_are_what_duckdb_says(graph: Graph) -> None:
    ours, ledger = replayed(graph)
    assert Counter(ours) == judged(graph)
    assert ledger.balanced
    assert ledger.results == len(ours)


@pytest.mark.parametrize("policy", GRAPH_POLICIES)
def test_every_policy_decides_as_its_plain_version(policy: str) -> None:
    @settings(slow_generation, max_examples=25)
    @given(graphs(budget=True, policies=(policy,)))
    def check(graph: Graph) -> None:
        expected = simulate(graph)
        ours, ledger = replayed(graph)
        assert Counter(ours) == expected.multiset()
        same_ledger(ledger, expected.ledger)

    check()


@pytest.mark.parametrize("policy", GRAPH_POLICIES)
def test_cuts_and_restarts_change_nothing(policy: str) -> None:
    @settings(slow_generation, max_examples=8)
    @given(graphs(budget=True, policies=(policy,)), st.data())
    def check(graph: Graph, data: st.DataObject) -> None:
        count = len(graph.workload.rows)
        cuts = sorted(data.draw(st.sets(st.integers(0, count), max_size=5)))
        expected = simulate(graph)
        for restore in (False, True):
            runs = driven(graph.workload, cuts, restore, graph_spec(graph), graph.inputs())
            for end, results, ledger, _ in runs:  # noqa: B007
                assert ledger.balanced
                if end:
                    same_ledger(ledger, expected.trace[end - 1])
                    within_budget(graph.workload, ledger)
            assert Counter(results) == expected.multiset()

    check()


ONE = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])


def matcher_of(*conditions: str, streams: str = "abc") -> type[Matcher]:
    join = ss.join(*streams).on(*conditions).within(5, time="ts")
    return type(build_operator(join.plan(dict.fromkeys(streams, ONE))).matcher)


def test_equalities_that_come_down_to_one_key_are_joined_by_it() -> None:
    assert matcher_of("a.x = b.y", "b.y = c.x") is Matcher
    assert matcher_of("a.x = b.y", "a.x = c.x", "b.y = c.x") is Matcher
    assert matcher_of("a.x = b.x", "b.y = a.y", streams="ab") is Matcher
    assert matcher_of("a.x = b.y", "b.x = c.x") is AttributeMatcher
    assert matcher_of("a.x = b.y", "a.y = b.y", streams="ab") is AttributeMatcher


CHAIN = ss.join("a", "b", "c").on("a.x = b.x", "b.y = c.y").within(5, time="ts")


@pytest.mark.parametrize(
    ("join", "words"),
    [
        (CHAIN.partial(at_least=2), [".partial()", "a key that all streams share"]),
        (CHAIN.keep(rows=5).shed("output"), ["'output'", "share none", "'random'"]),
        (CHAIN.keep(rows=5).shed("existence"), ["'existence'", "share none", "'random'"]),
        (CHAIN.through(pa.table({"x": [1]}), a="x", b="x", c="x"), ["each of them", ".on(r='x'"]),
    ],
)
def test_what_cannot_be_is_refused(join: ss.Join, words: list[str]) -> None:
    with pytest.raises(ss.SpecError) as error:
        join.plan(dict.fromkeys("abc", ONE))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("join", [CHAIN.keep(rows=5), CHAIN.keep(rows=5).shed("density")])
def test_density_ranks_rows_where_streams_share_no_key(join: ss.Join) -> None:
    assert join.plan(dict.fromkeys("abc", ONE)).policy.name == "sketch"


def test_the_most_results_are_not_known() -> None:
    with pytest.raises(ss.SpecError, match="equalities between pairs"):
        most_results(CHAIN, {})


def test_orders_follow_what_is_measured() -> None:
    """The stream of which fewer rows match is looked up first, also when that changes."""
    random = np.random.default_rng(1)
    rows = 6000

    def stream(*columns: tuple[str, int, int]) -> pa.Table:
        half = rows // 2
        drawn = {
            name: np.concatenate([random.integers(0, few, half), random.integers(0, more, half)])
            for name, few, more in columns
        }
        return pa.table({"ts": np.arange(rows), **drawn})

    data = {
        "a": stream(("x", 4, 400)),
        "b": stream(("x", 4, 400), ("y", 400, 4)),
        "c": stream(("y", 400, 4)),
    }
    join = ss.join("a", "b", "c").on("a.x = b.x", "b.y = c.y").within(50, time="ts")
    plan = join.plan({name: table.schema for name, table in data.items()})
    operator = build_operator(plan)
    firsts = []
    for start in range(0, rows, 500):
        parts = [
            operator.read(p, table.slice(start, 500).combine_chunks().to_batches()[0])
            for p, table in enumerate(data.values())
        ]
        list(operator.process(merged(parts)))
        firsts.append(int(operator.matcher.state.order.levels["stream"].reshape(3, 2)[1, 0]))
    assert firsts[3] == 2
    assert firsts[-1] == 0
