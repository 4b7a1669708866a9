"""Joins through a relation: what the paper says, what DuckDB says, what the plain version says."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamshed as ss
from harness import mostly_slow, piece, same_ledger, slow_generation, windowed
from oracles.rows import arrival_order, tables
from oracles.through import (
    ALPHA,
    BETA,
    POLICIES,
    Change,
    Fact,
    Made,
    Star,
    batches,
    judged,
    simulate,
    stars,
)
from oracles.workloads import generated
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.match.running_relation import RunningRelation
from streamshed.ledger import Ledger
from streamshed.policies import Importance

TUNED = {
    "alone": Importance(),
    "at arrival": Importance(matches="at arrival"),
    "now": Importance(matches="now"),
    "gained": Importance(gain_loss=(ALPHA, BETA)),
}


def spec(star: Star, one_by_one: bool = False) -> ss.Join:
    workload = star.workload
    names = [str(name) for name in workload.names]
    changes = batches(star) if one_by_one and star.changes else star.news()
    facts = ss.relation(star.relation(), name="facts", changes=changes)
    join = windowed(ss.join(*names).on("k").seed(workload.seed), workload)
    join = join.through(facts, **{name: f"k{p}" for p, name in enumerate(names)})
    join = join.weigh(column="worth")
    if workload.bounded:
        policy = TUNED.get(star.policy, star.policy)
        join = join.shed(column="worth") if policy == "column" else join.shed(policy)
    return join


def inputs(star: Star) -> dict[str, pa.Table]:
    return {str(name): rows for name, rows in tables(star.workload).items()}


def made(star: Star, results: pa.Table | pa.RecordBatch) -> list[Made]:
    return [
        (
            result["facts"]["f"],
            tuple(sorted((name, result[str(name)]["row"]) for name in star.workload.names)),
            result["time"],
            result["importance"],
        )
        for result in results.to_pylist()
    ]


def replayed(star: Star, one_by_one: bool = False) -> tuple[list[Made], Ledger]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # late rows are expected here
        done = spec(star, one_by_one).replay(inputs(star), order="arrival")
    return made(star, done.table), done.ledger


@slow_generation
@given(stars(budget=False, windows=("time",)))
def test_results_are_what_duckdb_says(star: Star) -> None:
    ours, ledger = replayed(star)
    assert Counter(ours) == judged(star)
    assert ledger.balanced
    assert ledger.results == len(ours)
    assert ledger.importance == sum(importance for *_, importance in ours)


def check_decisions(star: Star, one_by_one: bool = False) -> None:
    expected = simulate(star)
    ours, ledger = replayed(star, one_by_one)
    assert Counter(ours) == Counter(expected.results)
    same_ledger(ledger, expected.simulation.ledger)


@slow_generation
@given(stars(budget=False))
def test_rows_are_filtered_as_by_the_plain_version(star: Star) -> None:
    check_decisions(star, one_by_one=True)


@pytest.mark.parametrize("policy", mostly_slow(POLICIES, "density", "oldest"))
def test_every_policy_decides_as_its_plain_version(policy: str) -> None:
    @settings(slow_generation, max_examples=80)
    @given(stars(budget=True, policies=(policy,), windows=windows_for(policy)))
    def check(star: Star) -> None:
        check_decisions(star)

    check()


def windows_for(policy: str) -> tuple[str, ...]:
    return ("time",) if policy == "gained" else ("time", "last", "mixed")


def driven(
    star: Star, cuts: Sequence[int], restore: bool
) -> Iterator[tuple[int, list[Made], Ledger]]:
    """The operator itself, fed in pieces that end at the cuts of the arrival order."""
    data = inputs(star)
    plan = spec(star).plan({name: rows.schema for name, rows in data.items()})
    operator = build_operator(plan)
    order = arrival_order(star.workload)
    results: list[Made] = []
    start = 0
    for end in [*cuts, len(order)]:
        for found in operator.process(piece(operator, star.workload, data, order[start:end])):
            if isinstance(found, Block):
                results.extend(made(star, operator.results(found)))
        operator.compact()
        start = end
        yield end, results, operator.ledger()
        if restore:
            operator = restore_operator(plan, Snapshot.from_bytes(operator.snapshot().to_bytes()))


def eager(
    star: Star, cuts: Sequence[int], restore: bool
) -> Iterator[tuple[int, list[Made], Ledger]]:
    """As `driven`; whatever has ended in the relation is given up as soon as may be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunningRelation, "grown", lambda facts: facts.timed)
        yield from driven(star, cuts, restore)


@pytest.mark.parametrize("policy", mostly_slow(POLICIES, "density", "oldest"))
def test_cuts_and_restarts_change_nothing(policy: str) -> None:
    @settings(slow_generation, max_examples=25)
    @given(stars(budget=True, policies=(policy,), windows=windows_for(policy)), st.data())
    def check(star: Star, data: st.DataObject) -> None:
        count = len(star.workload.rows)
        cuts = sorted(data.draw(st.sets(st.integers(0, count), max_size=5)))
        expected = simulate(star)
        for restore in (False, True):
            for end, results, ledger in eager(star, cuts, restore):  # noqa: B007
                assert ledger.balanced
                if end:
                    same_ledger(ledger, expected.trace[end - 1])
                    within_budget(star, ledger)
            assert Counter(results) == Counter(expected.results)
            assert ledger.importance == sum(importance for *_, importance in results)

    check()


def within_budget(star: Star, ledger: Ledger) -> None:
    stored = {name: stream.stored for name, stream in ledger.streams.items()}
    if star.workload.keep_total is not None:
        assert sum(stored.values()) <= star.workload.keep_total
    if star.workload.keep_rows is not None:
        for name, most in zip(star.workload.names, star.workload.keep_rows, strict=True):
            assert most is None or stored[str(name)] <= most


def test_a_checkpoint_goes_on_under_another_policy_and_a_lower_budget() -> None:
    star = generated_star()
    data = inputs(star)
    half = len(star.workload.rows) // 2
    order = arrival_order(star.workload)
    schemas = {name: rows.schema for name, rows in data.items()}
    *_, (_, _, ledger) = driven(star, [], restore=False)
    for policy in ("random", *TUNED.values()):
        operator = build_operator(spec(star).plan(schemas))
        list(operator.process(piece(operator, star.workload, data, order[:half])))
        saved = operator.snapshot()
        join = spec(star).keep(rows=5).shed(policy)
        again = restore_operator(join.plan(schemas), saved)
        assert {stream.stored for stream in again.ledger().streams.values()} == {5}
        list(again.process(piece(again, star.workload, data, order[half:])))
        found = again.ledger()
        assert found.balanced
        assert 0 < found.results < ledger.results
        for name, stream in found.streams.items():
            assert stream.arrived == ledger.streams[name].arrived
            assert stream.stored == 5


def generated_star() -> Star:
    workload = generated(
        1, streams=2, rows=150, keys=20, window=("time", 40), keep_rows=(20, 20), policy="oldest"
    )
    facts = tuple(Fact((key, (3 * key) % 20), None, None) for key in range(20))
    changes = tuple(Change(10 * i, i % 2 == 1, (i % 20, (3 * i) % 20)) for i in range(15))
    return Star(workload, facts, changes, timed=False, policy="now")


# -- the paper's example --------------------------------------------------------------------------


def table(names: str, *rows: tuple[Any, ...]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(dict(zip(names.split(), map(list, columns), strict=True)))


R = table("ts x importance", (0, 1, 5), (1, 0, 1), (2, 1, 4), (3, 0, 8), (4, 2, 3), (5, 5, 2))
S = table("ts y importance", (0, 1, 1), (1, 3, 5), (2, 3, 2), (3, 8, 6), (4, 3, 4), (5, 5, 3))
F = table(
    "a b begin end",
    (0, 3, -1, None),
    (1, 5, -1, None),
    (0, 8, -1, None),
    (4, 5, -1, None),
    (1, 3, -1, 5),
    (5, 8, 3, None),
)
CHANGES = table("a b time change", (5, 8, 3, "insert"), (1, 3, 5, "delete"))
JOIN = ss.join("r", "s").on(r="x", s="y").within(3, time="ts").weigh(column="importance")


def test_the_example_of_the_paper() -> None:
    """Section 3.1.1; a lifetime of 4 means that a tuple of time i meets those up to time i + 3."""
    for clock in ("min", "max"):
        join = JOIN.within(3, time="ts", clock=clock).through(F, r="a", s="b")
        done = join.replay(r=R, s=S)
        assert (done.ledger.results, done.ledger.importance) == (15, 43.0)
        assert done.table.num_rows == 15
        assert sum(done.table.column("importance").to_pylist()) == 43


def test_a_relation_that_changes_is_one_with_intervals() -> None:
    before = F.filter(pa.array([True] * 5 + [False])).select(["a", "b"])
    join = JOIN.through(ss.relation(before, changes=CHANGES), r="a", s="b")
    expected = JOIN.through(F.select(["a", "b", "begin", "end"]), r="a", s="b")
    columns = ["r", "s", "time", "importance"]
    ours, theirs = join.replay(r=R, s=S), expected.replay(r=R, s=S)
    assert ours.table.select(columns) == theirs.table.select(columns)
    assert ours.ledger.streams == theirs.ledger.streams
    assert ours.ledger.importance == 43


def test_one_stream_alone_keeps_nothing() -> None:
    done = ss.join("r").on("x").within(0, time="ts").through(F, r="a").replay(r=R)
    assert [(row["r"]["ts"], row["relation"]["b"]) for row in done.table.to_pylist()] == [
        (0, 5), (0, 3), (1, 3), (1, 8), (2, 5), (2, 3), (3, 3), (3, 8), (5, 8),
    ]  # fmt: skip
    stream = done.ledger.streams["r"]
    assert (stream.stored, stream.expired, stream.filtered) == (0, 5, 1)
