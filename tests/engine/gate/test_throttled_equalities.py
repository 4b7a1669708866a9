"""Joins by equal columns whose work is bounded: as much as allowed, nothing that is not so."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamshed as ss
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import merged
from streamshed.engine.operator import Operator
from streamshed_lab.experiments.grubjoin.pacing import watched

NAMES = ["a", "b", "c"]
SECOND = 1_000_000
SECONDS = 40


@cache
def tables(seconds: int = SECONDS, rate: int = 50, lag: float = 0.0) -> dict[str, pa.Table]:
    """Streams of equal rates; rows of one key come close together, a lag apart."""
    random = np.random.default_rng(seconds)
    found = {}
    for position, name in enumerate(NAMES):
        count = seconds * rate
        time = np.sort(random.integers(0, seconds * SECOND, count))
        values = {c: random.integers(0, 120, count) for c in "xyz"}
        if lag:
            values["x"] = ((time / SECOND - lag * position).astype(np.int64) // 2) % 50
        columns = {"ts": time.astype("datetime64[us]"), "row": np.arange(count), **values}
        found[name] = pa.table(columns)
    return found


JOINS = {
    "keyed": ss.join(*NAMES).on("x"),
    "chain": ss.join(*NAMES).on("a.x = b.x", "b.y = c.y"),
    "cycle": ss.join(*NAMES).on("a.x = b.x", "b.y = c.y", "c.z = a.z"),
}
FACTOR = {"keyed": 0.2, "chain": 0.2, "cycle": 0.6}


def base(kind: str) -> ss.Join:
    return JOINS[kind].within("10 seconds", time="ts").seed(5)


@cache
def full(kind: str) -> ss.Join:
    return base(kind).throttle(comparisons_per_second=1e15).replay(tables())


def throttled(kind: str, **said: object) -> ss.Join:
    allowed = FACTOR[kind] * full(kind).ledger.comparisons / SECONDS
    return base(kind).throttle(comparisons_per_second=allowed, part="1 second", **said)


def made(table: pa.Table) -> Counter[tuple[int, ...]]:
    columns = [pc.struct_field(table[name], "row").to_pylist() for name in NAMES]
    return Counter(zip(*columns, strict=True))


@pytest.mark.parametrize("kind", JOINS)
def test_with_time_enough_nothing_is_lost(kind: str) -> None:
    expected = base(kind).replay(tables())
    assert made(full(kind).table) == made(expected.table)
    assert full(kind).ledger.throttle == 1
    assert full(kind).ledger.streams == expected.ledger.streams
    # Each tuple is looked up; what it makes was looked at before, unless that is shared.
    assert full(kind).ledger.comparisons > expected.ledger.results + 3 * SECONDS * 50


def test_with_time_enough_nothing_is_lost_of_rows_that_come_seldom() -> None:
    """Few rows cost next to nothing: all keys and all of the windows, whatever rounding says."""
    random, streams = np.random.default_rng(8), {}
    for name in "ab":
        time = np.sort(random.integers(0, 600_000_000, 200)).astype("datetime64[us]")
        streams[name] = pa.table({"ts": time, "x": random.integers(0, 20, 200)})
    join = ss.join("a", "b").on("x").within("10 seconds", time="ts")
    done = join.throttle(comparisons_per_second=1e9).count(streams)
    assert done.throttle == 1
    assert done.results == join.count(streams).results > 0


def test_a_partial_join_with_time_enough_is_the_same() -> None:
    join = base("keyed").partial(at_least=2)
    small = {name: table.slice(0, 400) for name, table in tables().items()}
    expected = join.replay(small)
    done = join.throttle(comparisons_per_second=1e15).replay(small)
    assert done.table.sort_by("time").equals(expected.table.sort_by("time"))
    less = join.throttle(comparisons_per_second=200).replay(small)
    assert 0 < less.ledger.results < expected.ledger.results
    assert less.ledger.balanced


@pytest.mark.parametrize("said", [{}, {"conserve": True}, {"dropping": True}])
@pytest.mark.parametrize("kind", JOINS)
def test_what_is_made_is_in_the_full_join(kind: str, said: dict[str, bool]) -> None:
    join = throttled(kind, **said)
    done = join.replay(tables())
    assert not made(done.table) - made(full(kind).table)
    assert 0 < done.ledger.results < full(kind).ledger.results
    assert done.ledger.capacity == pytest.approx(join._spec.throttled.comparisons)
    assert done.ledger.comparisons <= 1.1 * done.ledger.capacity * SECONDS
    assert done.ledger.balanced
    shed = sum(stream.shed for stream in done.ledger.streams.values())
    if not said.get("conserve"):
        assert done.ledger.shed_by == ({"throttle": shed} if shed else {})
    elif kind != "cycle":
        assert shed > done.ledger.shed_by.get("throttle", 0)


@pytest.mark.slow
def test_what_it_costs_is_estimated() -> None:
    """With all keys followed it is known exactly, whether rows are left out or shed."""
    for keep in (base("keyed"), base("keyed").keep(rows=300).shed("random")):
        join = keep.estimate(rate=1)
        allowed = 0.1 * full("keyed").ledger.comparisons / SECONDS
        for said in ({}, {"buffer": 1}):
            done = join.throttle(comparisons_per_second=allowed, **said).replay(tables())
            ledger = done.ledger
            assert ledger.missed.value + ledger.results == full("keyed").ledger.results
            assert ledger.missed.value > ledger.results
    some = base("keyed").throttle(comparisons_per_second=allowed).replay(tables()).ledger
    low, high = some.missed.low + some.results, some.missed.high + some.results
    assert low <= full("keyed").ledger.results <= high


@pytest.mark.parametrize("kind", ["keyed", "chain"])
def test_cuts_and_restarts_change_nothing(kind: str) -> None:
    join = throttled(kind, conserve=kind == "chain")
    if kind == "keyed":
        join = join.keep(rows=400).shed("random")
    expected = join.replay(tables())
    plan = join.plan({name: table.schema for name, table in tables().items()})
    for restore in (False, True):
        running, found = build_operator(plan), []
        for start in range(0, SECONDS, 7):
            batch = merged(_between(running, start * SECOND, (start + 7) * SECOND))
            for block in running.process(batch):
                if isinstance(block, Block):
                    found.append(running.results(block))
            if restore:
                saved = Snapshot.from_bytes(running.snapshot().to_bytes())
                running = restore_operator(plan, saved)
        assert made(pa.Table.from_batches(found)) == made(expected.table)
        ours, theirs = running.ledger(), expected.ledger
        for name in ("streams", "comparisons", "throttle", "capacity", "shed_by", "missed"):
            assert getattr(ours, name) == getattr(theirs, name)


def _between(operator: Operator, low: int, high: int) -> list[object]:
    parts = []
    for position, table in enumerate(tables().values()):
        time = table["ts"].cast(pa.int64())
        rows = table.filter(pc.and_(pc.greater_equal(time, low), pc.less(time, high)))
        parts.append(operator.read(position, rows.combine_chunks().to_batches()[0]))
    return parts


@pytest.mark.slow
def test_density_learns_from_all_keys_that_are_followed() -> None:
    """Rows for which there is no time are followed too."""
    join = base("keyed").keep(rows=300).estimate(rate=1)
    done = join.throttle(comparisons_per_second=500, buffer=1).replay(tables())
    assert done.ledger.missed.value + done.ledger.results == full("keyed").ledger.results
    assert done.ledger.shed_by["throttle"] > 0
    assert done.ledger.shed_by["density"] > 0
    assert done.ledger.balanced


@pytest.mark.parametrize("kind", ["keyed", "chain"])
def test_work_settles_at_the_throttle(kind: str) -> None:
    long = tables(120)
    (whole,) = watched(base(kind).throttle(comparisons_per_second=1e15), long, [60, 120])
    allowed = 0.3 * whole.comparisons / 60
    join = base(kind).select("time").throttle(comparisons_per_second=allowed, part="1 second")
    (span,) = watched(join, long, [60, 120])
    assert span.comparisons / 60 / allowed == pytest.approx(1, abs=0.05)
    assert span.throttle < 1


def test_dropping_at_random_does_the_work_that_it_is_allowed() -> None:
    """Where results are nearly all of the work, nobody can make more of it than another."""
    join = base("keyed").select("time")
    lagging = tables(lag=1.0)
    allowed = 0.3 * join.throttle(comparisons_per_second=1e15).count(lagging).comparisons / SECONDS
    ours, dropping = (
        join.throttle(comparisons_per_second=allowed, part="1 second", dropping=dropping).count(
            lagging
        )
        for dropping in (False, True)
    )
    assert dropping.comparisons == pytest.approx(allowed * SECONDS, rel=0.05)
    assert ours.comparisons <= 1.05 * allowed * SECONDS
    made = [ledger.results / ledger.comparisons for ledger in (ours, dropping)]
    assert made[0] == pytest.approx(made[1], rel=0.02)


def test_all_results_of_some_keys_are_more_than_those_of_some_rows() -> None:
    """With a twentieth of the work whole keys are dropped, and results stay known exactly."""
    long, join = tables(120), base("keyed").estimate(rate=1)
    whole = base("keyed").throttle(comparisons_per_second=1e15).count(long)
    allowed = 0.05 * whole.comparisons / 120
    assert allowed < 2 * 3 * 50  # less than two units of work for each row
    done = {
        dropping: join.throttle(
            comparisons_per_second=allowed, part="1 second", dropping=dropping
        ).count(long)
        for dropping in (False, True)
    }
    assert done[False].results > 1.3 * done[True].results
    assert done[False].comparisons == pytest.approx(120 * allowed, rel=0.15)
    assert done[False].missed.value + done[False].results == whole.results


# -- the clock of the machine ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["keyed", "chain"])
def test_the_time_of_a_core_becomes_work(kind: str) -> None:
    """With a clock by which a unit of work takes a microsecond, and all else nothing."""
    said = base(kind).select("time").throttle(cpu=0.001)
    plan = said.plan({name: table.schema for name, table in tables(120).items()})
    running = build_operator(plan)
    assert isinstance(running, Operator)
    assert running.ledger().capacity is None
    asked = [0]

    def clock() -> float:
        asked[0] += 1
        return running.throttle.work * 1e-6

    running.throttle.clock = clock
    parts = [
        running.read(position, table.combine_chunks().to_batches()[0])
        for position, table in enumerate(tables(120).values())
    ]
    for _ in running.process(merged(parts)):
        pass
    ledger = running.ledger()
    assert asked[0] > 100
    assert ledger.capacity == pytest.approx(1_000, rel=0.01)
    assert ledger.throttle < 1
    assert "comparisons a second" in str(ledger)


def test_much_time_bounds_nothing_and_little_does() -> None:
    expected = base("keyed").count(tables())
    assert base("keyed").throttle(cpu=1).count(tables()).results == expected.results
    little = base("keyed").throttle(cpu=1e-5).count(tables())
    assert little.results < 0.8 * expected.results
    assert little.balanced
    assert little.throttle < 1
    assert little.capacity > 0


def test_comparisons_of_any_condition_take_time_too() -> None:
    join = ss.join(*NAMES).on(ss.near("x", 1.0)).within("10 seconds", time="ts")
    plan = join.throttle(cpu=0.01).plan({n: t.schema for n, t in tables().items()})
    running = build_operator(plan)
    running.throttle.clock = lambda: running.throttle.work * 1e-7
    parts = [
        running.read(position, table.combine_chunks().to_batches()[0])
        for position, table in enumerate(tables().values())
    ]
    for _ in running.process(merged(parts)):
        pass
    assert running.ledger().capacity == pytest.approx(100_000, rel=0.01)
    assert running.ledger().throttle < 1


def test_replay_has_nothing_to_keep_up_with() -> None:
    with pytest.raises(
        ss.SpecError, match=r"is for live data, on Spark or by \.open\(\); replay has"
    ):
        base("keyed").throttle("keep up").replay(tables())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (lambda j: j.throttle(), "`cpu` is None and `rows_per_second` is None; give exactly one"),
        (lambda j: j.throttle(cpu=0.5, comparisons_per_second=5), "give exactly one of them"),
        (lambda j: j.throttle("keep up", cpu=0.5), "argument is 'keep up'.* give exactly one"),
        (lambda j: j.throttle("fast"), "'fast' is no throttle; say 'keep up', or name what is"),
        (lambda j: j.throttle(cpu=0), "`cpu` is 0; give a finite number above 0"),
        (lambda j: j.throttle(cpu=2), "`cpu` is 2.0; give a number from 0 to 1"),
    ],
)
def test_throttles_that_cannot_be(said: object, message: str) -> None:
    schemas = {name: table.schema for name, table in tables().items()}
    with pytest.raises(ss.SpecError, match=message):
        said(base("keyed")).plan(schemas)


def test_what_was_said_is_written() -> None:
    for join in (base("keyed").throttle("keep up"), base("keyed").throttle(cpu=0.25, buffer=7)):
        assert eval(repr(join), {"join": ss.join}) == join
