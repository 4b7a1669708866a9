"""Rows wait on disk when memory is full: nothing is lost, and nothing is made twice."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamshed as ss
from harness import Result, bounded, driven, inputs, members, multiset, piece, spec
from oracles.exact import judged
from oracles.rows import Workload, arrival_order
from oracles.workloads import generated, workloads
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.gate import disk
from streamshed.engine.gate.disk import Disk
from streamshed.engine.gate.partitions import Partitions
from streamshed.engine.gate.spill_router import AWAY
from streamshed.engine.ingest import merged
from streamshed.engine.operator import Operator
from streamshed.kernels.core import NEWEST
from streamshed.ledger import Ledger

small = settings(
    max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
COUNTS = ("arrived", "stored", "expired", "shed", "filtered", "late", "queued")


@contextmanager
def folder() -> Iterator[str]:
    """A folder that a join must leave as it was."""
    with tempfile.TemporaryDirectory() as path:
        yield path
        assert os.listdir(path) == []


def spilled(workload: Workload, to: str, deadline: int | None = None) -> ss.Join:
    return bounded(spec(workload.unbounded()), workload).spill(to=to, deadline=deadline)


def replayed(workload: Workload, deadline: int | None = None) -> tuple[list[Result], Ledger]:
    with warnings.catch_warnings(), folder() as to:
        warnings.simplefilter("ignore")
        done = spilled(workload, to, deadline).replay(inputs(workload), order="arrival")
    return members(workload, done.table), done.ledger


def fed(
    workload: Workload, to: str, cuts: Sequence[int], restore: bool = False, deadline: int = 0
) -> tuple[list[Result], Ledger, list[Ledger]]:
    """The join fed in pieces, and to its end; and the ledger after each piece."""
    join = spilled(workload, to, deadline or None)
    ledgers = []
    for end, results, ledger, operator in driven(workload, cuts, restore, join):  # noqa: B007
        ledgers.append(ledger)
        assert ledger.balanced
        within_budget(operator, workload)
        if end == len(workload.rows):
            break
    for found in operator.finish():
        assert isinstance(found, Block)
        results.extend(members(workload, operator.results(found)))
    last = operator.ledger()
    operator.close()
    return results, last, ledgers


def within_budget(operator: Operator, workload: Workload) -> None:
    """No more rows in memory than allowed, those on their way to disk included."""
    ledger = operator.ledger()
    if workload.keep_total is not None:
        held = int(operator.core.pools["held"].sum()) + int(operator.router.numbers[0])
        assert held <= workload.keep_total
        stored = sum(stream.stored for stream in ledger.streams.values())
        assert stored == held - int(operator.router.numbers[0]) + ledger.spilled.rows
    else:
        stored = [ledger.streams[str(name)].stored for name in workload.names]
        in_memory = np.array(stored) - operator.spill.on_disk
        for held, rows in zip(in_memory, workload.keep_rows, strict=True):
            assert rows is None or held <= rows


def counts(ledger: Ledger) -> dict[object, list[int]]:
    return {name: [getattr(s, c) for c in COUNTS] for name, s in ledger.streams.items()}


def check_exact(workload: Workload) -> None:
    """Every result of the exact join, once, and the fate of every row as there."""
    expected, _ = judged(workload.unbounded())
    ours, ledger = replayed(workload)
    assert multiset(ours) == expected
    assert ledger.results == len(ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = spec(workload.unbounded()).replay(inputs(workload), order="arrival").ledger
    assert counts(ledger) == counts(exact)
    assert ledger.missed.value == 0


TIMED = {"budget": True, "windows": ["time"], "policies": ["oldest"]}


@small
@given(workloads(partial=False, **TIMED))
def test_complete_joins_are_what_duckdb_says(workload: Workload) -> None:
    check_exact(workload)


@small
@given(workloads(partial=True, **TIMED))
def test_partial_joins_are_what_duckdb_says(workload: Workload) -> None:
    check_exact(workload)


@small
@given(workloads(by=True, **TIMED))
def test_joins_by_a_column_are_what_duckdb_says(workload: Workload) -> None:
    check_exact(workload)


@settings(small, max_examples=12)
@given(workloads(**TIMED, max_rows=20), st.data())
def test_neither_cuts_nor_restarts_change_anything(workload: Workload, data: st.DataObject) -> None:
    size = len(workload.rows)
    deadline = data.draw(st.sampled_from([0, 3, 20]))
    every = range(1, size)
    some = data.draw(st.lists(st.integers(0, size), max_size=4).map(sorted))
    with folder() as to:
        whole, ledger, _ = fed(workload, to, [], deadline=deadline)
        for cuts, restore in ((every, False), (some, False), (some, True), (every, True)):
            results, then, ledgers = fed(workload, to, cuts, restore, deadline)
            assert results == whole
            assert counts(then) == counts(ledger)
            same = {"nbytes": 0, "most_bytes": 0, "written": 0}
            assert replace(then.spilled, **same) == replace(ledger.spilled, **same)
        one_by_one = ledgers
        _, _, ledgers = fed(workload, to, every, False, deadline)
        assert [counts(then) for then in ledgers] == [counts(then) for then in one_by_one]


@settings(small, max_examples=60)
@given(workloads(**TIMED), st.integers(1, 60))
def test_with_a_deadline_no_result_is_later_and_what_is_not_made_is_shed(
    workload: Workload, deadline: int
) -> None:
    exact, _ = judged(workload.unbounded())
    ours, ledger = replayed(workload, deadline)
    assert ledger.balanced
    assert ledger.spilled.longest_delay <= deadline
    shed = sum(stream.shed for stream in ledger.streams.values())
    assert ledger.shed_by == {"deadline": shed}
    if workload.at_least is None:
        assert not multiset(ours) - exact
    if shed == 0:
        assert multiset(ours) == exact


def larger(seed: int = 1, **given: object) -> Workload:
    usual = {
        "streams": 3, "rows": 900, "keys": 120, "span": 900, "window": ("time", 90),
        "disorder": 5, "late": 5, "keep_total": 135, "nulls": 0.01,
    }  # fmt: skip
    return generated(seed, **(usual | given))


LARGER = {
    "complete": {},
    "skewed": {"skew": 0.5, "keys": 300, "window": ("time", 60)},
    "one key": {"keys": 1, "rows": 150, "window": ("time", 100), "keep_total": 10},
    "rows of each": {"keep_total": None, "keep_rows": (45, 12, None)},
    "partial": {"at_least": 2, "rows": 600, "keys": 300},
    "told apart": {"by": True, "at_least": 2, "streams": 50, "rows": 2000, "keys": 600},
    "windows of their own": {"window": [("time", 90), ("time", 6), ("time", 0)]},
    "slow clock": {"clock": "min", "late": 30, "disorder": 30},
    "idle": {"clock": "min", "idle": 15},
}


@pytest.mark.parametrize("kind", LARGER)
def test_larger_joins_are_what_duckdb_says(kind: str) -> None:
    workload = larger(**LARGER[kind])
    check_exact(workload)
    _, ledger = replayed(workload)
    assert ledger.spilled.flushed > 0
    assert ledger.spilled.revisited > 0
    assert ledger.spilled.results > 0
    assert ledger.spilled.written >= ledger.spilled.most_bytes > 0


IN_ORDER = {
    "complete": {},
    "one key": {"keys": 1, "rows": 150, "window": ("time", 100), "keep_total": 10},
    "rows of each": {"keep_total": None, "keep_rows": (45, 12, None)},
    "windows of their own": {"window": [("time", 90), ("time", 6), ("time", 0)]},
    "some out of order": {"disorder": 5, "span": 4000, "window": ("time", 400), "keys": 500},
}


@pytest.mark.parametrize("kind", IN_ORDER)
def test_rows_from_disk_in_the_order_of_time_are_joined_at_once(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one by one: the same results, and the same accounts."""
    workload = larger(**({"disorder": 0} | IN_ORDER[kind]))
    visits = Counter[bool]()
    arranged = Partitions.to_join_at_once

    def noted(*arguments: object) -> object:
        found = arranged(*arguments)
        visits[found is not None] += 1
        return found

    monkeypatch.setattr(Partitions, "to_join_at_once", noted)
    check_exact(workload)
    at_once, ledger = replayed(workload)
    assert visits[True] > 0
    assert (visits[False] > 0) == (kind == "some out of order")
    monkeypatch.setattr(Partitions, "to_join_at_once", lambda *arguments: None)
    one_by_one, then = replayed(workload)
    assert multiset(at_once) == multiset(one_by_one)
    assert then.spilled == ledger.spilled
    assert counts(then) == counts(ledger)


@pytest.mark.parametrize("kind", ["complete", "rows of each", "told apart"])
def test_larger_joins_go_on_after_restarts(kind: str) -> None:
    workload = larger(**LARGER[kind])
    with folder() as to:
        whole, ledger, _ = fed(workload, to, [])
        results, then, _ = fed(workload, to, [277, 700, 701, 1500], restore=True)
        assert results == whole
        assert counts(then) == counts(ledger)


def test_a_burst_goes_to_disk_and_comes_back() -> None:
    """Once there is room again partitions are taken back into memory, and results are in time."""
    slow, burst = np.arange(0, 4000, 10), np.arange(2000, 2200)
    time = np.sort(np.concatenate([slow, np.repeat(burst, 5)]))
    rows = {"k": np.random.default_rng(1).integers(0, 300, len(time)), "ts": time}
    table = pa.table(rows).append_column("row", pa.array(np.arange(len(time))))
    join = ss.join("a", "b").on("k").within(300, time="ts")
    with folder() as to:
        batches = join.keep(total=600).spill(to=to).replay_batches(a=table, b=table)
        made = pa.Table.from_batches(list(batches), batches.schema)
        spilled = batches.ledger.spilled
        assert join.keep(total=600).spill(to=to).count(a=table, b=table).results == made.num_rows
    assert made.num_rows == join.count(a=table, b=table).results
    assert spilled.flushed > 0
    late_ones = made.filter(pa.compute.greater(made["time"], 3000))
    times = late_ones["time"].to_numpy()
    assert len(times) > 0
    assert (np.diff(times) >= 0).all()  # in order, as in a join that has never spilled
    assert spilled.rows == 0


def test_rows_come_back_as_they_were() -> None:
    """All kinds of columns, from batches that are forgotten, as DuckDB joins them."""
    random = np.random.default_rng(4)
    size = 5_000
    tables = {
        name: pa.table(
            {
                "key": pa.array([f"key {k}" for k in random.integers(0, 900, size)]),
                "ts": pa.array(np.sort(random.integers(0, 10**9, size)), pa.timestamp("us")),
                "text": pa.array([None if i % 7 == 0 else "x" * (i % 5) for i in range(size)]),
                "kind": pa.array([str(i % 3) for i in range(size)]).dictionary_encode(),
                "list": pa.array([[i] * (i % 3) for i in range(size)]),
                "number": pa.array(random.random(size)),
            }
        )
        for name in ("a", "b")
    }
    join = ss.join("a", "b").on("key").within("1 minute", time="ts").keep(rows=300)
    with folder() as to:
        readers = {name: table.to_reader(500) for name, table in tables.items()}
        found = join.spill(to=to).replay(readers)
    assert found.ledger.spilled.results > 100
    con = duckdb.connect()
    for name, table in tables.items():
        con.register(name, table)
    query = (
        "SELECT a.number, b.number FROM a JOIN b USING (key) "
        "WHERE abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 60000000"
    )
    rows = found.table.to_pylist()
    assert sorted((row["a"]["number"], row["b"]["number"]) for row in rows) == sorted(
        con.execute(query).fetchall()
    )
    by_number = {name: {r["number"]: r for r in t.to_pylist()} for name, t in tables.items()}
    for row in rows:
        for name in tables:
            assert row[name] == by_number[name][row[name]["number"]]


# -- restarts ------------------------------------------------------------------------------------


def fed_to(workload: Workload, to: str, end: int) -> Operator:
    """The operator after so many rows."""
    _, _, _, operator = next(driven(workload, [end], join=spilled(workload, to)))
    assert operator.ledger().spilled.rows > 0
    return operator


def plan_of(workload: Workload, to: str) -> object:
    data = inputs(workload)
    return spilled(workload, to).plan({name: rows.schema for name, rows in data.items()})


def test_two_runs_go_on_from_one_state_and_do_not_disturb_each_other() -> None:
    workload = larger()
    with folder() as to:
        operator = fed_to(workload, to, 900)
        snapshot = operator.snapshot()
        one, other = (restore_operator(plan_of(workload, to), snapshot) for _ in range(2))
        made = [sum(len(found.time) for found in join.finish()) for join in (one, other, operator)]
        assert made[0] == made[1] == made[2] > 0
        for join in (one, other, operator):
            join.close()


def test_files_that_are_gone_or_broken_are_told() -> None:
    workload = larger()
    with tempfile.TemporaryDirectory() as to:
        snapshot = fed_to(workload, to, 900).snapshot()
        files = sorted(Path(to).glob("*/*.arrows"))
        files[0].write_bytes(files[0].read_bytes()[:100])
        with pytest.raises(ss.StateError, match=r"spilled to '.*arrows'.*start anew"):
            restore_operator(plan_of(workload, to), snapshot)
        for file in files:
            file.unlink()
        with pytest.raises(ss.StateError, match="No such file"):
            restore_operator(plan_of(workload, to), snapshot)


def written(disk: Disk, number: int) -> int:
    """Write a file, and return its number."""
    rows = pa.record_batch({"row": [number]})
    return disk.write(np.zeros(1, AWAY), [rows]).number


def on_disk(disk: Disk) -> list[int]:
    return sorted(int(file.stem) for file in disk.folder.path.glob("*.arrows"))


def test_files_of_a_snapshot_stay_until_the_next_but_one() -> None:
    with folder() as to:
        run = Disk(to, AWAY)
        first, second = written(run, 1), written(run, 2)
        run.keep_files()
        run.drop(first)
        assert on_disk(run) == [first, second]
        run.keep_files()  # the snapshot before is not known to be safe yet
        assert on_disk(run) == [first, second]
        third = written(run, 3)
        run.drop(second)
        run.keep_files()
        assert on_disk(run) == [second, third]
        run.drop(third)
        run.keep_files()
        assert on_disk(run) == [third]
        run.close()


def test_the_folder_of_the_run_before_goes_with_the_second_snapshot() -> None:
    with folder() as to:
        run = Disk(to, AWAY)
        kept = written(run, 1)
        folders = [run.folder.path]
        for _ in range(4):  # each run makes one snapshot, from which the next goes on
            said = json.loads(json.dumps(run.saved()))
            run.keep_files()
            run = Disk(to, AWAY)
            run.go_on(said)
            folders.append(run.folder.path)
            assert run.files[kept].rows[0].to_pylist() == [{"row": 1}]
            there = [path.exists() for path in folders]
            assert there == [False] * (len(folders) - 3) + [True] * min(3, len(folders))
        run.keep_files()
        assert [path.exists() for path in folders] == [False] * 3 + [True] * 2
        run.keep_files()
        assert [path.exists() for path in folders] == [False] * 4 + [True]
        run.close()


@pytest.mark.parametrize("wrong", ["folder", "name", "token", "link"])
def test_a_folder_that_only_the_state_calls_ours_is_not_removed(wrong: str, tmp_path: Path) -> None:
    to = tmp_path / "spill"
    run = Disk(str(to), AWAY)
    said = run.saved()
    path, token = map(str, said["folder"])
    if wrong == "folder":
        foreign = tmp_path / "streamshed-spill-elsewhere"
    elif wrong == "name":
        foreign = to / "important"
    else:
        foreign = to / "streamshed-spill-foreign"
    foreign.mkdir()
    (foreign / "00000000.arrows").write_text("precious")
    (foreign / "owner").write_text("another" if wrong == "token" else token)
    named = foreign
    if wrong == "link":
        named = to / "streamshed-spill-link"
        named.symlink_to(foreign)
    later = Disk(str(to), AWAY)
    later.go_on(said | {"folder": [str(named), token], "earlier": [[str(named), token]]})
    later.keep_files()
    later.keep_files()
    later.close()
    assert (foreign / "00000000.arrows").read_text() == "precious"
    run.close()
    assert not Path(path).exists()


def test_files_of_another_owner_are_not_taken_over(tmp_path: Path) -> None:
    run = Disk(str(tmp_path), AWAY)
    written(run, 1)
    (run.folder.path / "owner").write_text("somebody")
    with pytest.raises(ss.StateError, match=r"'owner' of the run is missing or another's"):
        Disk(str(tmp_path), AWAY).go_on(run.saved())


def test_a_lower_budget_takes_effect_at_once() -> None:
    workload = larger()
    with folder() as to:
        operator = fed_to(workload, to, 900)
        saved = Snapshot.from_bytes(operator.snapshot().to_bytes())
        lower = replace(workload, keep_total=40)
        restored = restore_operator(plan_of(lower, to), saved)
        within_budget(restored, lower)
        assert counts(restored.ledger()) == counts(operator.ledger())
        made = [sum(len(found.time) for found in join.finish()) for join in (restored, operator)]
        assert made[0] == made[1]
        restored.close()
        operator.close()


def test_another_seed_finds_the_keys_that_were_spilled() -> None:
    workload = larger()
    with folder() as to:
        operator = fed_to(workload, to, 900)
        restored = restore_operator(plan_of(replace(workload, seed=7), to), operator.snapshot())
        made = [sum(len(found.time) for found in join.finish()) for join in (restored, operator)]
        assert made[0] == made[1] > 0
        restored.close()
        operator.close()


def test_a_join_that_sheds_does_not_take_over_what_was_spilled() -> None:
    workload = larger()
    with folder() as to:
        operator = fed_to(workload, to, 900)
        snapshot = operator.snapshot()
        data = inputs(workload)
        plan = spec(workload).plan({name: rows.schema for name, rows in data.items()})
        with pytest.raises(ss.StateError, match="overflow was 'spilled' and is 'shed'"):
            restore_operator(plan, snapshot)
        operator.close()


def test_who_stops_early_leaves_nothing_behind() -> None:
    workload = larger()
    with folder() as to, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batches = spilled(workload, to).replay_batches(inputs(workload), order="arrival")
        next(batches)
        assert len(os.listdir(to)) == 1
        del batches


# -- row windows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_row_windows_on_disk_are_those_in_memory(seed: int, tmp_path: Path) -> None:
    """Streams by rows, by rows or by time, by both; rows out of order; complete and partial."""
    random = np.random.default_rng(seed)
    size, last = int(random.integers(200, 900)), random.integers(1, 80, 3).tolist()
    tables = {
        name: pa.table(
            {
                "k": random.integers(0, 30, size),
                "ts": np.sort(random.integers(0, size, size)) + random.integers(0, 40, size),
                "row": np.arange(size),
            }
        )
        for name in "abc"
    }
    join = ss.join(*tables).on("k").last(dict(zip("abc", last, strict=True)), time="ts")
    if seed % 3 == 0:
        join = ss.join(*tables).on("k").last({"a": last[0]}, time="ts")
        join = join.within({"b": last[1], "c": last[2]}, time="ts", late=20)
    if seed % 3 == 1:
        join = join.within(last[0], time="ts", late=20)
    if seed % 2:
        join = join.partial(at_least=2)
    spilled = join.keep(total=int(random.integers(5, 60))).spill(to=str(tmp_path))
    expected = join.replay(tables, order="arrival")
    found = spilled.replay(tables, order="arrival")
    assert found.ledger.spilled.results > 0
    assert found.ledger.streams == expected.ledger.streams
    results = (Counter(map(str, made.table.to_pylist())) for made in (found, expected))
    assert next(results) == next(results)


# -- budgets in bytes ----------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [300, 2_000])
def test_a_budget_in_bytes_spills_by_bytes(largest: int, tmp_path: Path) -> None:
    """Rows of very different sizes are all joined, and memory never holds more than allowed.

    With the longer ones a third of the budget is less than a row.
    """
    random, size, budget = np.random.default_rng(largest), 600, 5_000
    tables = {
        name: pa.table(
            {
                "k": random.integers(0, 30, size),
                "ts": np.sort(random.integers(0, size, size)),
                "note": ["x" * long for long in random.integers(0, largest, size)],
            }
        )
        for name in "abc"
    }
    join = ss.join(*tables).on("k").within(60, time="ts")
    spilled = join.keep(memory=budget).spill(to=str(tmp_path))
    expected = join.replay(tables)
    found = spilled.replay(tables)
    assert found.ledger.spilled.results > 0
    assert found.ledger.streams == expected.ledger.streams
    assert budget // 2 < found.ledger.peak_bytes <= budget
    results = Counter(map(str, expected.table.to_pylist()))
    assert Counter(map(str, found.table.to_pylist())) == results
    schemas = {name: rows.schema for name, rows in tables.items()}
    session, pushed = spilled.open(schemas), []
    for start in range(0, size, 50):
        parts = {}
        for name, rows in tables.items():
            now = (rows["ts"].to_numpy() >= start) & (rows["ts"].to_numpy() < start + 50)
            parts[name] = rows.filter(pa.array(now))
        pushed += session.push(parts).to_pylist()
        assert session.ledger.held_bytes <= budget
        state = session.snapshot()
        before, session = session, spilled.open(schemas, state=state)
        before.close()
    pushed += session.finish().to_pylist()
    assert Counter(map(str, pushed)) == results
    with pytest.raises(ss.StateError, match="spilled by bytes"):
        join.keep(total=50).spill(to=str(tmp_path)).open(schemas, state=state)
    session.close()


def test_a_row_larger_than_the_budget_goes_to_disk_at_once(tmp_path: Path) -> None:
    notes = ["", "x" * 9_000, "", ""]
    rows = pa.table({"k": [1, 1, 2, 1], "ts": range(4), "note": notes})
    join = ss.join("a", "b").on("k").within(5, time="ts")
    found = join.keep(memory=5_000).spill(to=str(tmp_path)).replay(a=rows, b=rows)
    assert found.table.num_rows == join.replay(a=rows, b=rows).table.num_rows
    assert 9_000 < found.ledger.peak_bytes < 15_000


# -- what cannot be ------------------------------------------------------------------------------

TABLE = pa.table({"k": [1] * 9, "ts": range(9), "v": [0.5] * 9})
TWO = ss.join("a", "b").on("k").within(5, time="ts")
SPILLED = TWO.keep(total=4).spill(to="somewhere")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (lambda: TWO.spill(to=""), ["`to`", "''", "folder"]),
        (lambda: TWO.spill(to=3), ["`to`", "3"]),
        (lambda: TWO.spill(to="x", deadline=0), ["`deadline`", "0"]),
        (lambda: TWO.spill(to="x", deadline="soon"), ["`deadline`", "soon"]),
        (lambda: planned(TWO.spill(to="x")), ["no budget", ".keep(total=…)"]),
        (lambda: planned(SPILLED.shed("oldest")), [".spill()", ".shed('oldest')"]),
        (lambda: planned(SPILLED.on(ss.near("v", 1.0))), [".spill()", "by a condition"]),
        (lambda: planned(PAIRS.spill(to="x")), [".spill()", "equalities"]),
        (lambda: planned(SPILLED.through(TABLE, a="k", b="k")), [".spill()", ".through()"]),
    ],
)
def test_what_cannot_be_is_refused(said: Callable[[], object], words: list[str]) -> None:
    with pytest.raises(ss.SpecError) as raised:
        said()
    assert all(word in str(raised.value) for word in words), raised.value


def planned(join: ss.Join) -> object:
    return join.plan(dict.fromkeys(join._spec.streams, TABLE.schema))


PAIRS = ss.join("a", "b", "c").on("a.k = b.k", "b.ts = c.k").within(5, time="ts").keep(total=4)
QUEUE = SPILLED.queue(rows=3).throttle(rows_per_second=1)


def test_folders_that_cannot_be_are_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for to in (file, file / "below"):
        with pytest.raises(ss.SpillError, match="name"):
            TWO.keep(total=4).spill(to=to).replay(a=TABLE, b=TABLE)
    made = tmp_path / "not" / "yet"
    assert TWO.keep(total=4).spill(to=made).replay(a=TABLE, b=TABLE).table.num_rows > 0
    assert list(made.iterdir()) == []


def test_a_full_disk_is_told_and_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(sink: object, batch: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "write_ipc", full)
    with folder() as to, pytest.raises(ss.SpillError, match=r"No space left.*make room"):
        TWO.keep(total=4).spill(to=to).replay(a=TABLE, b=TABLE)


def test_it_is_written_as_it_was_said() -> None:
    said = TWO.keep(total=4).spill(to="x", deadline="2 min")
    assert repr(said).endswith(".keep(total=4).spill(to='x', deadline='2 minutes')")
    assert TWO.spill(to=Path("x")) == TWO.spill(to="x")


# -- what is told --------------------------------------------------------------------------------


def test_delay_and_order_are_told() -> None:
    workload = larger()
    with folder() as to:
        join = spilled(workload, to)
        late, overtaken, latest = [], 0, -(2**62)
        data = inputs(workload)
        operator = build_operator(join.plan({name: rows.schema for name, rows in data.items()}))
        rows = piece(operator, workload, data, arrival_order(workload))
        for found in chain(operator.process(rows), operator.finish()):
            if isinstance(found, Block):
                before = np.maximum.accumulate(np.append(latest, found.time))
                overtaken += int((found.time < before[:-1]).sum())
                latest = int(before[-1])
            if found.payload is operator.spill.aside.payload:
                late += (int(operator.core.numbers[NEWEST]) - found.time).tolist()
        told = operator.ledger().spilled
        operator.close()
    assert told.results == len(late) > 0
    assert told.delay == pytest.approx(np.mean(late))
    assert told.longest_delay == max(late)
    assert told.overtaken == overtaken > 0
    assert f"{told.results:,} results made from disk" in str(operator.ledger())


@pytest.mark.parametrize(
    "windows", [{"duration": 60}, {"duration": {3: 200, 4: 10}, "otherwise": 60}]
)
def test_updates_are_numbered_as_without_a_disk(windows: dict, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = pa.table(
        {
            "ts": np.sort(random.integers(0, 1500, 1500)),
            "s": random.integers(0, 20, 1500),
            "k": random.integers(0, 150, 1500),
        }
    )
    join = ss.join(by="s").on("k").within(time="ts", **windows)
    expected = join.replay(rows)
    done = join.keep(total=50).spill(to=tmp_path).replay(rows)
    assert done.ledger.spilled.results > 100
    assert sorted(map(repr, done.table.to_pylist())) == sorted(
        map(repr, expected.table.to_pylist())
    )
    assert done.ledger.streams == expected.ledger.streams


@pytest.mark.parametrize("seed", range(6))
def test_who_looks_at_the_ledger_meanwhile_changes_nothing(seed: int) -> None:
    random = np.random.default_rng(seed)
    tables = {
        name: pa.table({"k": random.integers(0, 300, 4_000), "ts": np.arange(4_000)})
        for name in ("l", "r")
    }
    exact = ss.join("l", "r").on("k").within({"l": 400, "r": 30}, time="ts")
    expected = exact.count(tables)
    with folder() as to:
        batches = exact.keep(total=200).spill(to=to).replay_batches(tables)
        handed_out = 0
        for batch in batches:
            handed_out += batch.num_rows
            if random.random() < 0.2:
                assert batches.ledger.balanced
                assert batches.ledger.results >= handed_out
        assert batches.ledger.streams == expected.streams
        assert batches.ledger.results == handed_out == expected.results


def test_budgets_for_each_stream_and_for_all_may_be_exchanged() -> None:
    data = pa.table({"k": [i % 7 for i in range(60)], "ts": range(60)})
    exact = ss.join("a", "b").on("k").within(20, time="ts")
    schemas = {"a": data.schema, "b": data.schema}
    with folder() as to:
        plans = [
            join.spill(to=to).plan(schemas)
            for join in (exact.keep(rows=4), exact.keep(total=9), exact.keep(rows=6))
        ]
        operator = build_operator(plans[0])
        made = 0
        for number, plan in enumerate(plans):
            operator = restore_operator(plan, operator.snapshot())
            part = data.slice(20 * number, 20).combine_chunks().to_batches()[0]
            tuples = merged([operator.read(position, part) for position in (0, 1)])
            made += sum(len(b.time) for b in operator.process(tuples) if isinstance(b, Block))
        made += sum(len(block.time) for block in operator.finish())
        assert made == exact.count(a=data, b=data).results
        operator.close()
