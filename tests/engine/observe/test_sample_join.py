"""What is said of missed results where rows share no key: by equalities, conditions, relations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import merged
from streamshed.engine.observe import recorder, sample_join
from streamshed.engine.observe.sample_log import depths_of
from streamshed.kernels.compiling import loop

ROWS, WINDOW = 1_500, 400


def data(streams: str, seed: int = 3) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)
    return {
        name: pa.table(
            {
                "x": random.integers(0, 40, ROWS),
                "y": random.integers(0, 40, ROWS),
                "v": random.random(ROWS) * 300,
                "ts": np.sort(random.integers(0, 5_000, ROWS)),
                "z": random.integers(0, 300, ROWS),
            }
        )
        for name in streams
    }


FACTS = pa.table({"p": np.arange(80) % 40, "q": (np.arange(80) * 7) % 40})
CHANGES = pa.table(
    {
        "p": np.arange(20),
        "q": (np.arange(20) * 7) % 40,
        "change": ["delete"] * 10 + ["insert"] * 10,
        "time": np.arange(20) * 240,
    }
)
CHAIN = ss.join("a", "b", "c").on("a.x = b.x", "b.y = c.y")
JOINS = {
    "equalities": CHAIN.within(WINDOW, time="ts"),
    "row windows": CHAIN.last(100, time="ts"),
    "both windows": CHAIN.within(WINDOW, time="ts").last(60),
    "distance": ss.join("a", "b").on(ss.near("v", 2.0)).within(WINDOW, time="ts"),
    "relation": ss.join("a", "b")
    .on(a="x", b="y")
    .through(FACTS, a="p", b="q")
    .within(WINDOW, time="ts"),
    "relation that changes": ss.join("a", "b")
    .on(a="x", b="y")
    .through(ss.relation(FACTS, changes=CHANGES), a="p", b="q")
    .within(WINDOW, time="ts"),
    "first of a key": ss.join("a", "b").on("z").within(WINDOW, time="ts").first(per="key"),
    "first of a row": ss.join("a", "b").on("z").within(WINDOW, time="ts").first(per="b"),
    "first of a key, row windows": ss.join("a", "b").on("z").last(100, time="ts").first(per="key"),
    "first of a row, both windows": ss.join("a", "b")
    .on("z")
    .within(WINDOW, time="ts")
    .last(90)
    .first(per="b"),
    "first by a column": ss.join(by="s")
    .on("z")
    .within({"d": 150}, otherwise=WINDOW, time="ts")
    .first(per="key"),
    "first by a column, row windows": ss.join(by="s").on("z").last(60, time="ts").first(per="key"),
}
QUEUED = {
    kind: JOINS[kind].throttle(rows_per_second=0.4).queue(rows=10)
    for kind in ("equalities", "row windows", "distance", "relation", "relation that changes")
}
KINDS = pytest.mark.parametrize("kind", JOINS)


def of(join: ss.Join, seed: int = 3) -> dict[str, pa.Table]:
    if "by=" in repr(join):
        rows = data("a", seed)["a"]
        names = np.random.default_rng([seed, 7]).choice(list("defgh"), ROWS)
        return {"in": rows.append_column("s", pa.array(names))}
    return data("abc" if "'c'" in repr(join) else "ab", seed)


def keep(join: ss.Join, times: int = 1) -> ss.Join:
    """The join with a budget of 20 rows of each stream, or so many times as much."""
    return join.keep(total=60 * times) if "by=" in repr(join) else join.keep(rows=20 * times)


def counted(join: ss.Join, tables: dict[str, pa.Table]) -> ss.Ledger:
    return join.count(tables.get("in", tables))


@pytest.fixture(params=["room", "work"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that have little room, or may do little work and have few facts."""
    work = {"GRACE": 1 << 12, "SHARE": 4, "MOST_FACTS": 16}
    little = {"room": {"CAPACITY": 100}, "work": work}
    for name, value in little[request.param].items():
        monkeypatch.setattr(sample_join, name, value)


@KINDS
def test_a_sample_of_all_rows_tells_exactly_what_is_missed(kind: str) -> None:
    join = JOINS[kind]
    exact = counted(join, of(join)).results
    ledger = counted(keep(join).shed("oldest").estimate(rate=1), of(join))
    assert 0 < ledger.results < exact
    assert ledger.missed == ss.Estimate(*[exact - ledger.results] * 3)
    assert 0 < ledger.missed_lately.value < ledger.missed.value
    assert ledger.sample_bytes > 0


@pytest.mark.usefixtures("small")
@KINDS
def test_the_estimate_has_no_bias_and_intervals_hold(kind: str) -> None:
    join = JOINS[kind]
    errors, held = [], []
    for seed in range(60):
        tables = of(join, seed)
        exact = counted(join, tables).results
        ledger = counted(keep(join).shed("oldest").seed(seed), tables)
        assert ledger.sample_rate < 1
        errors.append((ledger.results + ledger.missed.value) / exact - 1)
        held.append(ledger.missed.low <= exact - ledger.results <= ledger.missed.high)
    assert abs(np.mean(errors)) < 4 * np.std(errors, ddof=1) / np.sqrt(len(errors))
    assert np.mean(held) >= 0.85


@pytest.mark.usefixtures("small")
@KINDS
def test_cuts_and_restarts_change_no_estimate(kind: str) -> None:
    join = keep(JOINS[kind]).shed("oldest")
    tables = of(join)
    plan = join.plan({name: table.schema for name, table in tables.items()})
    told = []
    for cuts, restart in (([], False), ([700, 1_100], False), ([700, 1_100], True)):
        operator = build_operator(plan)
        for start, end in zip([0, *cuts], [*cuts, ROWS], strict=True):
            parts = []
            for position, table in enumerate(tables.values()):
                rows = table.slice(start, end - start).select(plan.streams[position].schema.names)
                parts.append(operator.read(position, rows.combine_chunks().to_batches()[0]))
            for _ in operator.process(merged(parts)):
                pass
            if restart:
                saved = operator.snapshot().to_bytes()
                operator = restore_operator(plan, Snapshot.from_bytes(saved))
        ledger = operator.ledger()
        told.append((ledger.results, ledger.sample_rate, ledger.missed))
    assert told[1] == told[2]
    assert all(missed.value > 0 for _, _, missed in told)


def test_a_row_with_too_many_results_makes_the_sample_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sample_join, "CAPACITY", 10_000)
    monkeypatch.setattr(sample_join, "MOST", 30)
    monkeypatch.setattr(sample_join, "BUFFER", 16)
    join = JOINS["equalities"]
    tables = of(join)
    exact = join.count(tables).results
    ledgers = [join.keep(rows=20).shed("oldest").seed(seed).count(tables) for seed in range(12)]
    assert all(ledger.sample_rate < 1 for ledger in ledgers)
    said = np.array([ledger.results + ledger.missed.value for ledger in ledgers])
    assert abs(said.mean() - exact) < 4 * said.std(ddof=1) / np.sqrt(len(said))


def test_nothing_is_estimated_by_choice() -> None:
    join = JOINS["distance"].keep(rows=20).shed("oldest").estimate(rate=0)
    assert join.count(of(join)).missed is None


@pytest.mark.parametrize("kind", QUEUED)
def test_what_a_queue_sheds_or_still_holds_is_missed(kind: str) -> None:
    exact = JOINS[kind].count(of(JOINS[kind])).results
    ledger = QUEUED[kind].shed("oldest").estimate(rate=1).count(of(JOINS[kind]))
    assert ledger.streams["a"].shed > 0
    assert 0 < ledger.results < exact
    assert ledger.missed == ss.Estimate(*[exact - ledger.results] * 3)


def test_rows_that_wait_are_known_to_a_sample_that_begins_anew() -> None:
    join, tables = QUEUED["equalities"].shed("oldest").estimate(rate=1), of(JOINS["equalities"])
    schemas = {name: table.schema for name, table in tables.items()}
    operator = build_operator(join.plan(schemas))
    exact = JOINS["equalities"].count(tables).results
    for cut in (slice(0, 700), slice(700, ROWS)):
        parts = []
        for position, table in enumerate(tables.values()):
            chosen = table.slice(cut.start, cut.stop - cut.start)
            rows = chosen.select(operator.plan.streams[position].schema.names)
            parts.append(operator.read(position, rows.combine_chunks().to_batches()[0]))
        for _ in operator.process(merged(parts)):
            pass
        assert sum(stream.queued for stream in operator.ledger().streams.values()) > 0
        saved = operator.snapshot().to_bytes()
        operator = restore_operator(join.seed(9).plan(schemas), Snapshot.from_bytes(saved))
    said = operator.ledger()
    assert said.missed.value == pytest.approx(exact - said.results, rel=0.15)


def test_changes_are_read_once() -> None:
    plain = JOINS["relation that changes"]
    exact = plain.count(of(plain)).results
    reader = pa.RecordBatchReader.from_batches(CHANGES.schema, CHANGES.to_batches(max_chunksize=7))
    once = ss.relation(FACTS, changes=reader)
    join = ss.join("a", "b").on(a="x", b="y").through(once, a="p", b="q").within(WINDOW, time="ts")
    ledger = join.keep(rows=20).shed("oldest").estimate(rate=1).count(of(plain))
    assert ledger.missed.value == exact - ledger.results > 0


@KINDS
def test_the_second_join_does_a_part_of_the_work(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_join, "GRACE", 0)
    join = keep(JOINS[kind], 10).shed("oldest")
    tables = of(join)
    operator = build_operator(join.plan({name: table.schema for name, table in tables.items()}))
    for start in range(0, ROWS, 100):
        parts = []
        for position, table in enumerate(tables.values()):
            names = operator.plan.streams[position].schema.names
            rows = table.slice(start, 100).select(names).combine_chunks()
            parts.append(operator.read(position, rows.to_batches()[0]))
        for _ in operator.process(merged(parts)):
            pass
    operator.loss.catch_up()
    numbers = operator.loss.state.numbers
    begun, begun_second = numbers[recorder.WORK_CHECKED], numbers[recorder.SECOND_CHECKED]
    assert 0 < numbers[recorder.SECOND] < numbers[recorder.WORK] / 2
    assert begun > 0
    assert begun_second > 0


def test_streams_that_come_and_go_are_forgotten_by_the_sample_too() -> None:
    step = np.arange(12_000)
    rows = pa.table({"s": step // 4, "z": step * 7 // 11 % 13, "ts": step})
    said = ss.join(by="s").on("z").within(30, time="ts").last(3).first(per="key")
    exact = said.count(rows).results
    plan = said.keep(total=6).shed("oldest").estimate(rate=1).plan({"in": rows.schema})
    operator = build_operator(plan)
    for batch in rows.to_batches(max_chunksize=1_000):
        for _ in operator.process(merged([operator.read(0, batch)])):
            pass
        saved = operator.snapshot().to_bytes()  # lets go of streams, too
    assert operator.ledger().others.arrived > 0
    told = [operator.ledger(), restore_operator(plan, Snapshot.from_bytes(saved)).ledger()]
    assert all(ledger.missed.value == exact - ledger.results > 0 for ledger in told)


def test_levels_are_quarters_of_powers_of_2() -> None:
    lots = np.random.default_rng(5).integers(2, 2**64, 100_000, dtype=np.uint64)
    found = np.zeros(len(lots), np.int64)
    _depths(lots, found)
    assert found.tolist() == depths_of(lots).tolist()
    for level in range(9):
        assert (found >= level).mean() == pytest.approx(2.0 ** (-level / 4), rel=0.03)


@loop
def _depths(lots, found):  # type: ignore[no-untyped-def]
    for i in range(lots.size):
        found[i] = recorder.depth_of(lots[i])
