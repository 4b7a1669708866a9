"""A queue before a join: who waits, who is shed, and what the ledger says of it."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace

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
    mostly_slow,
    same_ledger,
    slow_generation,
)
from oracles.graph import graphs
from oracles.queue import Queued, simulate
from oracles.sketch import AS_WRITTEN
from streaming import on_the_wall, rows, whole
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.ingest import merged
from streamshed.ledger import Ledger
from streamshed.plan.plan import Plan
from streamshed_lab.experiments.msketch.running import FULL, SKEWED, region_join, region_work


def spec(queued: Queued) -> ss.Join:
    per = "stream" if queued.per_stream else "join"
    join = graph_spec(queued.graph).queue(rows=queued.rows, per=per)
    return join.throttle(rows_per_second=queued.speed)


@st.composite
def queues(draw: st.DrawFn, policy: str) -> Queued:
    graph = draw(graphs(budget=True, policies=(policy,), most_streams=4, max_rows=20))
    rows = draw(st.integers(1, 6))
    speed, per_stream = draw(st.sampled_from([0.125, 0.5, 1.0, 4.0])), draw(st.booleans())
    return Queued(graph, rows, speed, per_stream)


def replayed(queued: Queued) -> tuple[list[object], Ledger]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # late rows are expected here
        done = spec(queued).replay(queued.graph.inputs(), order="arrival")
    return members(queued.graph.workload, done.table), done.ledger


@pytest.mark.parametrize("policy", mostly_slow([*GRAPH_POLICIES, *AS_WRITTEN], "oldest", "sketch"))
def test_who_waits_and_who_leaves_is_what_the_plain_version_says(policy: str) -> None:
    @settings(slow_generation, max_examples=20)
    @given(queues(policy))
    def check(queued: Queued) -> None:
        expected = simulate(queued)
        ours, ledger = replayed(queued)
        assert Counter(ours) == expected.multiset()
        assert ledger.balanced
        same_ledger(ledger, expected.ledger)
        waiting = [stream.queued for stream in ledger.streams.values()]
        assert max(waiting) <= queued.rows
        assert queued.per_stream or sum(waiting) <= queued.rows

    check()


@pytest.mark.parametrize("policy", mostly_slow(GRAPH_POLICIES, "oldest", "sketch"))
def test_cuts_and_restarts_change_nothing(policy: str) -> None:
    @settings(slow_generation, max_examples=8)
    @given(queues(policy), st.data())
    def check(queued: Queued, data: st.DataObject) -> None:
        workload = queued.graph.workload
        cuts = sorted(data.draw(st.sets(st.integers(0, len(workload.rows)), max_size=5)))
        expected = simulate(queued)
        for restore in (False, True):
            runs = driven(workload, cuts, restore, spec(queued), queued.graph.inputs())
            for end, results, ledger, _ in runs:  # noqa: B007
                if end:
                    same_ledger(ledger, expected.trace[end - 1])
            assert Counter(results) == expected.multiset()

    check()


@pytest.mark.parametrize("seed", [1, 2])
def test_of_those_that_wait_the_one_leaves_that_adds_least(seed: int) -> None:
    """With five times as many tuples as are taken, as in figure 6 of the paper."""
    tables = region_work(replace(FULL, tuples=1_500), SKEWED, seed).tables()
    slow = region_join(seed).queue(rows=10).throttle(rows_per_second=0.2).keep(rows=25)
    results = {p: slow.shed(p).count(tables).results for p in ("sketch", "pairwise", "random")}
    assert results["sketch"] > 2 * results["random"]
    assert results["pairwise"] > 1.5 * results["random"]


TWO = ss.join("a", "b").on("k").within(10, time="ts")
ROWS = pa.table({"ts": range(100), "k": [0] * 100})


def test_a_queue_needs_no_budget_and_serves_a_shared_key() -> None:
    slow = TWO.queue(rows=3).throttle(rows_per_second=0.5)
    done = slow.shed("oldest").count(a=ROWS, b=ROWS)
    assert done.balanced
    assert sum(stream.queued for stream in done.streams.values()) == 3
    taken = sum(stream.stored + stream.expired for stream in done.streams.values())
    assert taken == 50
    assert done.shed_by == {"oldest": 200 - 50 - 3}
    fast = TWO.queue(rows=3).throttle(rows_per_second=100)
    ledger = fast.count(a=ROWS, b=ROWS)
    assert ledger.results == TWO.count(a=ROWS, b=ROWS).results - 11  # the last row waits still
    assert [stream.queued for stream in ledger.streams.values()] == [0, 1]


@pytest.mark.parametrize("policy", ["sketch", "random", "oldest"])
def test_on_the_wall_who_comes_one_by_one_waits_as_in_the_time_of_the_join(policy: str) -> None:
    random = np.random.default_rng(3)
    came = [
        {name: pa.table({"ts": [i], "k": [int(random.integers(3))]})}
        for i, name in enumerate(random.choice(["a", "b"], 300).tolist())
    ]
    slow = TWO.keep(rows=5).shed(policy).queue(rows=4).throttle(rows_per_second=0.7071)
    expected = slow.replay(whole(came))
    found = on_the_wall(slow, came, [1.7e15 + 1e6 * i for i in range(len(came))])
    assert rows(found.table) == rows(expected.table)
    assert found.ledger.streams == expected.ledger.streams
    assert 0 < queued(found.ledger) < sum(found.ledger.shed_by.values())


def test_on_the_wall_rows_come_evenly_since_the_last_ones() -> None:
    def batch(count: int) -> dict[str, pa.Table]:
        return {n: pa.table({"ts": [0] * count, "k": [0] * count}) for n in "ab"}

    slow = TWO.queue(rows=2).throttle(rows_per_second=1).shed("oldest")
    ledgers = [
        on_the_wall(slow, [batch(5), batch(10), batch(4)][:n], [0, 20e6, 20e6][:n]).ledger
        for n in (1, 2, 3)
    ]
    # At once: one is taken, two wait. Then one comes each second. Then all at once again.
    assert [taken(ledger) for ledger in ledgers] == [1, 21, 21]
    assert [queued(ledger) for ledger in ledgers] == [2, 2, 2]
    assert [ledger.shed_by for ledger in ledgers] == [{"oldest": n} for n in (7, 7, 15)]


def taken(ledger: Ledger) -> int:
    return sum(stream.stored + stream.expired for stream in ledger.streams.values())


def queued(ledger: Ledger) -> int:
    return sum(stream.queued for stream in ledger.streams.values())


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda: TWO.queue(rows=0), ["`rows`", "0"]),
        (lambda: TWO.throttle(rows_per_second=0), ["`rows_per_second`", "above 0"]),
        (lambda: TWO.throttle(rows_per_second="x"), ["'x'", "above 0"]),
        (
            lambda: planned(TWO.queue(rows=5)),
            ["5 rows may wait", "add .throttle(rows_per_second=…)"],
        ),
        (lambda: planned(TWO.throttle(rows_per_second=5)), ["5.0", "add .queue(rows=…)"]),
        (lambda: TWO.queue(rows=5, per="row"), ["`per` is 'row'", "'join'", "'stream'"]),
        (
            lambda: (
                ss.join(by="s")
                .on("k")
                .last(5)
                .queue(rows=5, per="stream")
                .throttle(rows_per_second=1)
                .plan({"a": SENSORS})
            ),
            ["`per` is 'stream'", "known only as they appear"],
        ),
        (lambda: ss.policies.Sketch(queue="x"), ["sketch: `queue` is 'x'", "'added'", "'paper'"]),
        (lambda: ss.policies.Pairwise(queue="x"), ["pairwise: `queue` is 'x'"]),
    ],
)
def test_what_cannot_be_is_refused(say, words: list[str]) -> None:
    with pytest.raises(ss.SpecError) as error:
        say()
    for word in words:
        assert word in str(error.value)


SENSORS = pa.schema([("s", pa.int64()), ("k", pa.int64())])
BOTH = TWO.queue(rows=5).throttle(rows_per_second=1)


def planned(join: ss.Join) -> Plan:
    return join.plan({"a": ROWS.schema, "b": ROWS.schema})


@pytest.mark.parametrize(
    "worths", [[2**60, 2**60 + 5, 2**60 + 1, 2**60 + 3], [1.0, 1 + 5e-14, 1 + 1e-14, 1 + 3e-14]]
)
def test_values_that_are_close_are_told_apart(worths: list[float]) -> None:
    slow = ss.join("a", "b").on("k").within(1000, time="ts").queue(rows=2)
    a = pa.table({"ts": [0] * 4, "k": [1] * 4, "w": worths})
    b = pa.table({"ts": [100, 200], "k": [1, 1], "w": [2 * worths[0]] * 2})
    done = slow.throttle(rows_per_second=1).shed(column="w").replay(a=a, b=b)
    assert {row["a"]["w"] for row in done.table.to_pylist()} == {worths[0], worths[1], worths[3]}


def test_those_that_wait_are_not_taken_over_by_a_join_without_a_queue() -> None:
    plan = planned(BOTH)
    operator = build_operator(plan)
    parts = [operator.read(position, ROWS.to_batches()[0]) for position in (0, 1)]
    for _ in operator.process(merged(parts)):
        pass
    other = planned(TWO)
    with pytest.raises(ss.StateError, match=r"queue was .* and is 'none'"):
        restore_operator(other, operator.snapshot())
