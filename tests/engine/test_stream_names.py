"""Streams that a column tells apart come and go: their names are not kept for ever."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, replace

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from harness import members, piece, spec
from oracles.rows import Workload, arrival_order, by_column, table
from oracles.simulator import simulate
from streamshed.engine import saving
from streamshed.engine.batch import Batch
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import StreamNames
from streamshed.engine.saving import head_of
from streamshed.ledger import Ledger, StreamLedger


def passing(window: tuple[str, int] = ("time", 5), **settings: object) -> Workload:
    """Streams that have a few rows each, at one time, and then no more, but for one."""
    random = np.random.default_rng(2)
    rows = []
    for number in range(600):
        stream = "for ever" if number % 7 == 0 else f"s{number // 12}-{random.integers(4)}"
        rows.append((stream, int(random.integers(6)), number // 4, None))
    return by_column(rows, window, at_least=2, **settings)


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize(
    "workload",
    [
        passing(),
        passing(own=(("for ever", 9), ("s3-1", 1))),
        passing(keep_total=9, policy="random", rate=0.0),
        passing(("last", 2), keep_total=40, policy="oldest", rate=0.0),
    ],
    ids=["plain", "windows of their own", "budget", "row windows"],
)
def test_what_is_forgotten_is_still_counted(workload, restore, monkeypatch):
    monkeypatch.setattr(saving, "GONE", 8)
    data = {"input": table(workload)}
    plan = spec(workload).plan({"input": data["input"].schema})
    join, order, results, most = build_operator(plan), arrival_order(workload), [], 0
    for start in range(0, len(order), 50):
        for found in join.process(piece(join, workload, data, order[start : start + 50])):
            if isinstance(found, Block):
                results += members(workload, join.results(found))
        if restore:
            join = restore_operator(plan, Snapshot.from_bytes(join.snapshot().to_bytes()))
        else:
            join.seal()
        ledger = join.ledger()
        assert ledger.balanced
        most = max(most, len(head_of(join).names))
    expected = simulate(workload)
    assert Counter(results) == expected.multiset()
    assert ledger.others.arrived > 300 or workload.windows[0][0] == "last"
    assert most < 100 < len(expected.ledger)
    ours, theirs = (
        np.sum([astuple(replace(account, peak=0)) for account in accounts.values()], axis=0)
        for accounts in (
            ledger.accounts,
            {s: StreamLedger(**vars(e)) for s, e in expected.ledger.items()},
        )
    )
    assert ours.tolist() == theirs.tolist()
    if not workload.bounded:  # otherwise it may have been without a row once
        always = expected.ledger["for ever"]
        assert ledger.streams["for ever"] == StreamLedger(**vars(always))


def test_streams_read_but_not_processed_are_not_forgotten(monkeypatch):
    monkeypatch.setattr(saving, "GONE", 2)
    rows = pa.table({"s": ["a", "b", "c", "d"], "k": [None] * 4, "ts": range(4)})
    rows = rows.set_column(1, "k", pa.array([None] * 4, pa.int64()))
    join = build_operator(ss.join(by="s").on("k").within(5, time="ts").plan({"input": rows.schema}))
    read = join.read(0, rows.to_batches()[0])
    join.seal()
    assert list(join.ingest.names.number) == ["a", "b", "c", "d"]
    list(join.process(Batch(*read[:6])))
    join.seal()
    assert list(join.ingest.names.number) == []
    assert join.ledger().others == StreamLedger(arrived=4, filtered=4)


def test_numbers_are_given_again_also_after_a_restart():
    names = StreamNames()
    assert names.numbers(pa.array(["a", "b", "c", "d", "e"])).tolist() == [0, 1, 2, 3, 4]
    names.forget(np.array([1, 3, 4]))
    again = StreamNames(names.number)
    for known in (names, again):
        assert known.number == {"a": 0, "c": 2}
        assert known.numbers(pa.array(["x", "c", "y", "z"])).tolist()[1] == 2
        assert sorted(known.number.values()) == [0, 1, 2, 3, 4]
        assert known.size == 5
    assert names.number == again.number


def test_the_ledger_tells_of_those_forgotten():
    ledger = Ledger({"a": StreamLedger(1, 1)}, 0, StreamLedger(arrived=2, expired=2))
    assert ledger.to_table()["stream"].to_pylist() == ["a", None]
    assert ledger.to_table()["expired"].to_pylist() == [0, 2]
    assert "(forgotten)" in str(ledger)
    assert ledger.balanced
    assert not Ledger({}, 0, StreamLedger(arrived=2, expired=1)).balanced
