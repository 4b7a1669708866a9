"""A queue before a join whose work is bounded: what a row goes through is decided when it is taken.

The plain version hands rows one by one to a join without a queue, each when it is its turn, and
keeps those that wait, the time at which the join is free, and the throttle's intervals by itself.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.engine.batch import Batch
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.gate.throttle_state import (
    BUSY_UNTIL,
    CAPACITY,
    NEXT_DUE,
    POPPED,
    PUSHED,
    TOLD,
)
from streamshed.engine.ingest import merged
from streamshed.engine.operator import Operator
from streamshed_lab.workloads import LaggingWorkload

SECONDS = 24
TABLES = LaggingWorkload(rate=60, seconds=SECONDS).tables()
NAMES = [*TABLES]
CONDITION = ss.join(*NAMES).on(ss.near("value", 1.0))
KEYED = ss.join(*NAMES).on("key")


def throttled(join: ss.Join, work: float, rule: str = "work") -> ss.Join:
    join = join.within("8 seconds", time="time", clock="max").select("time")
    return join.throttle(comparisons_per_second=work, every="2 seconds", part="1 second", rule=rule)  # type: ignore[arg-type]


def with_keys() -> dict[str, pa.Table]:
    """The same streams, with keys to match by."""
    random = np.random.default_rng(4)
    return {
        name: table.append_column("key", pa.array(random.integers(0, 60, table.num_rows)))
        for name, table in TABLES.items()
    }


class Outcome(NamedTuple):
    """What a join did."""

    results: int
    comparisons: int | None
    shed: dict[str, int]
    waiting: dict[str, int]
    throttle: float | None


def outcome(operator: Operator) -> Outcome:
    ledger = operator.ledger()
    return Outcome(
        ledger.results,
        ledger.comparisons,
        {name: stream.shed for name, stream in ledger.streams.items()},
        {name: stream.queued for name, stream in ledger.streams.items()},
        ledger.throttle,
    )


def all_rows(operator: Operator, tables: dict[str, pa.Table]) -> Batch:
    parts = [
        operator.read(position, table.combine_chunks().to_batches()[0])
        for position, table in enumerate(tables.values())
    ]
    return merged(parts)


def started(join: ss.Join, tables: dict[str, pa.Table]) -> Operator:
    return build_operator(join.plan({name: t.schema for name, t in tables.items()}))


def one_by_one(join: ss.Join, tables: dict[str, pa.Table], room: int, each: bool) -> Outcome:
    """The plain version: a list of those that wait, and a join that is handed a row at a time."""
    operator = started(join, tables)
    throttle = operator.throttle
    assert throttle is not None
    state, every = throttle.state, throttle.throttle.every
    told = state.told.reshape(-1, TOLD)
    batch = all_rows(operator, tables)
    came, begun, shed = (np.zeros(len(tables), np.int64) for _ in range(3))
    waiting: deque[int] = deque()
    free_at, due = -np.inf, None

    def take(row: int) -> None:
        nonlocal free_at, due
        now = max(free_at, float(batch.time[row]))
        state.steps[NEXT_DUE] = np.iinfo(np.int64).max
        begun[batch.stream[row]] += 1
        if due is None:
            due = int(now) + every
            throttle.began = int(now)
        elif now >= due:
            told[:, PUSHED], told[:, POPPED] = came, begun
            came[:], begun[:] = 0, 0
            state.steps[NEXT_DUE] = due
            throttle.adapt(operator.matcher.known(operator), int(now))
            due += every * (1 + int(now - due) // every)
            state.steps[NEXT_DUE] = np.iinfo(np.int64).max
        state.pace[BUSY_UNTIL] = -np.inf
        before = throttle.work
        for _ in operator.process(Batch._make(column[row : row + 1] for column in batch)):
            pass
        free_at = now + (throttle.work - before) / state.pace[CAPACITY]

    for row in range(batch.time.size):
        while waiting and free_at <= batch.time[row]:
            take(waiting.popleft())
        came[batch.stream[row]] += 1
        if not waiting and free_at <= batch.time[row]:
            take(row)
            continue
        waiting.append(row)
        rivals = [one for one in waiting if not each or batch.stream[one] == batch.stream[row]]
        if len(rivals) > room:  # the first of them goes
            shed[batch.stream[rivals[0]]] += 1
            waiting.remove(rivals[0])
    left = np.bincount(batch.stream[list(waiting)], minlength=len(tables))
    found = outcome(operator)
    return found._replace(
        shed={name: found.shed[name] + int(shed[i]) for i, name in enumerate(tables)},
        waiting=dict(zip(tables, left.tolist(), strict=True)),
    )


@pytest.mark.parametrize("per", ["stream", "join"])
@pytest.mark.parametrize("rule", ["work", "paper"])
@pytest.mark.parametrize("room", [3, 60])
def test_rows_wait_and_are_taken_as_the_plain_version_says(per, rule, room):
    join = throttled(CONDITION, 20_000, rule)
    expected = one_by_one(join, TABLES, room, per == "stream")
    operator = started(join.queue(rows=room, per=per), TABLES)
    for _ in operator.process(all_rows(operator, TABLES)):
        pass
    found = outcome(operator)
    assert sum(found.shed.values()) > 0  # there was more than could be done
    assert found == expected


def test_with_time_enough_nobody_waits():
    join = throttled(CONDITION, 1e9)
    assert join.queue(rows=1).count(TABLES).results == join.count(TABLES).results


@pytest.mark.parametrize("kind", ["condition", "keyed"])
def test_cuts_and_restarts_change_nothing(kind):
    tables = with_keys()
    join = throttled(*((CONDITION, 20_000) if kind == "condition" else (KEYED, 2_500)))
    join = join.queue(rows=20, per="stream")
    whole = started(join, tables)
    for _ in whole.process(all_rows(whole, tables)):
        pass
    expected = outcome(whole)
    assert sum(expected.shed.values()) > 0
    assert sum(expected.waiting.values()) > 0
    operator = started(join, tables)
    for start in range(0, SECONDS, 5):
        part = {name: between(table, start, start + 5) for name, table in tables.items()}
        for _ in operator.process(all_rows(operator, part)):
            pass
        saved = Snapshot.from_bytes(operator.snapshot().to_bytes())
        plan = join.plan({name: table.schema for name, table in tables.items()})
        operator = restore_operator(plan, saved)
    assert outcome(operator) == expected


def between(table: pa.Table, start: int, end: int) -> pa.Table:
    seconds = np.asarray(table["time"].cast(pa.int64())) / 1e6
    return table.filter(pa.array((seconds >= start) & (seconds < end)))


def test_a_join_by_keys_does_as_much_as_it_may():
    """It has to heed who came and was not begun, or it would never know that it falls behind."""
    tables = with_keys()
    full = started(throttled(KEYED, 1e9), tables)
    for _ in full.process(all_rows(full, tables)):
        pass
    allowed = 0.3 * (outcome(full).comparisons or 0) / SECONDS
    taken = []
    for seed in range(3):
        operator = started(throttled(KEYED, allowed).queue(rows=20).seed(seed), tables)
        for _ in operator.process(all_rows(operator, tables)):
            pass
        found = outcome(operator)
        taken.append((found.comparisons or 0) / (allowed * SECONDS))
        assert taken[-1] <= 1.02
        assert (found.throttle or 1) < 0.6
    assert fmean(taken) > 0.8


def test_the_plan_says_when_rows_are_taken():
    said = throttled(CONDITION, 1e6).queue(rows=20, per="stream")
    told = str(said.explain(TABLES))
    assert "rows are taken when the work for those before is done" in told
    assert "up to 20 rows of each stream wait" in told


def test_by_the_clock_of_the_machine_rows_wait_in_the_same_queues():
    join = CONDITION.within("8 seconds", time="time", clock="max").select("time")
    join = join.throttle(cpu=1e-6, every="2 seconds", part="1 second")
    ledger = join.queue(rows=20, per="stream").count(TABLES)
    assert ledger.capacity is not None  # measured
    assert (ledger.throttle or 1) < 1
    for stream in ledger.streams.values():
        assert stream.shed > 0
        assert stream.queued <= 20
        assert stream.arrived == stream.stored + stream.expired + stream.shed + stream.queued
