"""Basic windows below keys: what a newcomer looks at is what a list of the rows of its key says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.gate.throttle import Controller
from streamshed.engine.gate.throttle_state import NEXT_DUE, THROTTLE, WINDOWS
from streamshed.engine.ingest import merged
from streamshed.engine.match.key_windows import INSIDE
from streamshed.engine.operator import Operator
from streamshed.kernels.core import NONE, ROWS_USED
from streamshed.kernels.table import key_head

WINDOW, PART, PARTS = 100, 10, 10
NAMES = ("a", "b")


def streams(seed: int, rows: int, keys: int, disorder: int = 0) -> dict[str, pa.Table]:
    """Rows that come nearly in order, some of them at the same time."""
    random = np.random.default_rng(seed)
    found = {}
    for name in NAMES:
        time = np.sort(random.integers(0, rows, rows)) + random.integers(0, disorder + 1, rows)
        found[name] = pa.table({"ts": time, "k": random.integers(0, keys, rows)})
    return found


def started(join: ss.Join, tables: dict[str, pa.Table]) -> Operator:
    return build_operator(join.plan({name: table.schema for name, table in tables.items()}))


def process(operator: Operator, tables: dict[str, pa.Table]) -> None:
    parts = [
        operator.read(position, table.combine_chunks().to_batches()[0])
        for position, table in enumerate(tables.values())
    ]
    for _ in operator.process(merged(parts)):
        pass


def skips(operator: Operator) -> dict[int, int]:
    """What is known of each stored row."""
    used = int(operator.core.numbers[ROWS_USED])
    stored = np.flatnonzero(operator.core.rows["arrival"][:used] != NONE)
    return {int(row): int(operator.matcher.state.skip[row]) for row in stored}


def plain_skips(operator: Operator) -> dict[int, int]:
    """The same, from the rows of each key and stream, the newest first."""
    rows, found = operator.core.rows, {}
    rings: dict[tuple[int, int], list[int]] = {}
    for row in skips(operator):
        rings.setdefault((int(rows["key"][row]), int(rows["stream"][row])), []).append(row)
    for (key, stream), ring in rings.items():
        row = head = int(key_head.py_func(operator.core, key, stream))
        ordered = [head]
        while (row := int(rows["older"][row])) != head:
            ordered.append(row)
        assert sorted(ordered) == sorted(ring)
        times = rows["time"][ordered]
        assert (np.diff(times) <= 0).all()
        newest: dict[int, int] = {}
        for row, time in zip(ordered, times, strict=True):
            newest.setdefault(int(time) // PART, row)
        first = list(newest.values())
        found |= dict.fromkeys(ordered, INSIDE)
        found |= dict(zip(first, [*first[1:], NONE], strict=True))
    return found


@pytest.mark.parametrize("budget", [None, 150])
@pytest.mark.parametrize("disorder", [0, 60])
def test_the_newest_row_of_each_basic_window_knows_the_one_before(budget, disorder):
    tables = streams(1, 3_000, keys=7, disorder=disorder)
    join = ss.join(*NAMES).on("k").within(WINDOW, time="ts", late=disorder)
    join = join.throttle(comparisons_per_second=1e12, part=PART)
    if budget is not None:
        join = join.keep(rows=budget).shed("random")
    operator = started(join, tables)
    for start in range(0, 3_000, 250):
        process(operator, {name: table.slice(start, 250) for name, table in tables.items()})
        known = skips(operator)
        assert known == plain_skips(operator)
        assert {NONE, INSIDE} < {*known.values()}
    plan = join.plan({name: table.schema for name, table in tables.items()})
    restored = restore_operator(plan, Snapshot.from_bytes(operator.snapshot().to_bytes()))
    assert skips(restored) == plain_skips(restored) == known


CHOSEN = ((7,), (0, 4, 5), (2, 9), (0, 1, 2, 3), ())


@pytest.mark.parametrize("chosen", CHOSEN)
@pytest.mark.parametrize("keys", [3, 200])
def test_who_is_looked_at_is_what_a_list_says(chosen, keys):
    """The parts are chosen by hand; work and results are counted over lists of rows."""
    tables = streams(2, 2_000, keys)
    join = ss.join(*NAMES).on("k").within(WINDOW, time="ts", clock="max")
    operator = started(join.throttle(comparisons_per_second=1e12, part=PART, sample=1e-9), tables)
    throttle = operator.throttle
    throttle.state.steps[NEXT_DUE] = np.iinfo(np.int64).max
    throttle.state.pace[[THROTTLE, WINDOWS]] = 0.5
    parts = np.zeros((2, 2, throttle.most), np.bool_)
    parts[:, :, list(chosen)] = True
    throttle.state.chosen[:] = parts.reshape(-1)
    throttle._set_ends(parts)
    process(operator, tables)
    assert (operator.ledger().results, operator.throttle.work) == plain_work(tables, chosen)


def plain_work(tables: dict[str, pa.Table], chosen: tuple[int, ...]) -> tuple[int, int]:
    """The results and the work of all rows, by docs/meaning.md."""
    rows = [
        (time, position, key)
        for position, table in enumerate(tables.values())
        for time, key in zip(table["ts"].to_pylist(), table["k"].to_pylist(), strict=True)
    ]
    held: dict[tuple[int, int], list[int]] = {}  # by (key, stream): times, the newest last
    results = work = 0
    for time, position, key in sorted(rows, key=lambda row: row[:2]):
        work += 1
        ring = [then for then in held.get((key, 1 - position), []) if time - then <= WINDOW]
        oldest = max(chosen, default=-1)  # of what is chosen
        ring = [t for t in ring if oldest == PARTS - 1 or time - t < PART * (oldest + 1)]
        place = len(ring) - 1
        while place >= 0:
            then = ring[place]
            work += 1
            mine = min((time - then) // PART, PARTS - 1)
            if mine in chosen:
                results, work = results + 1, work + 1
                place -= 1
                continue
            newest = place == len(ring) - 1 or ring[place + 1] // PART != then // PART
            following = [part for part in chosen if part > mine]
            place -= 1
            if newest and following and then // PART > (time - PART * following[0]) // PART:
                while place >= 0 and ring[place] // PART == then // PART:
                    place -= 1
        held.setdefault((key, position), []).append(time)
    return results, work


def test_a_segment_that_lags_behind_is_picked(monkeypatch):
    """Of a lag of most of the window, with a tenth of the work: from anywhere, or the newest on."""
    random, tables = np.random.default_rng(3), {}
    for name in NAMES:
        time = np.sort(random.integers(0, 10_000, 40_000))
        tables[name] = pa.table({"ts": time, "k": random.integers(0, 20, time.size)})
    join = ss.join(*NAMES).on("k").within(1_000, time="ts", clock="max")
    join = join.between("a", "b", 800, 900)
    whole = join.throttle(comparisons_per_second=1e12).count(tables)
    allowed = 0.1 * whole.comparisons / 10_000
    said = {"comparisons_per_second": allowed, "part": 100, "every": 250}
    ours = join.throttle(**said).count(tables)
    dropping = join.throttle(**said, dropping=True).count(tables)
    picked = Controller._ranked

    def newest_on(self, direction, stream, parts, few):
        return picked(self, direction, stream, parts, few=False)

    monkeypatch.setattr(Controller, "_ranked", newest_on)
    prefix = join.throttle(**said).count(tables)
    for ledger in (ours, dropping, prefix):
        assert ledger.comparisons <= 1.05 * 0.1 * whole.comparisons
    assert ours.results > 2 * max(dropping.results, prefix.results)
