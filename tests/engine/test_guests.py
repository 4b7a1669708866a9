"""Guests of a join: tuples that are stored elsewhere, and only probe."""

import numpy as np
import pyarrow as pa

import streamshed as ss
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import merged

ROWS = pa.record_batch(
    {
        "who": ["a", "b", "c", "d", "b"],
        "k": [1, 1, 2, 1, None],
        "ts": [0, 1, 2, 3, 4],
        "row": [0, 1, 2, 3, 4],
    }
)
GUESTS = np.array([False, True, True, False, True])


def made(operator, rows, guests):
    tuples = operator.read(0, rows)._replace(visiting=guests)
    found = []
    for block in operator.process(merged([tuples])):
        assert isinstance(block, Block)
        found += operator.results(block)["members"].to_pylist()
    return [[member["row"] for member in members] for members in found]


def test_guests_meet_what_is_stored_and_leave_no_trace():
    plan = ss.join(by="who").on("k").within(10, time="ts").plan({"input": ROWS.schema})
    operator = build_operator(plan)
    # The guest in row 1 meets row 0; row 3 does not meet the guest.
    assert made(operator, ROWS, GUESTS) == [[1, 0], [3, 0]]
    streams = operator.ledger().streams
    assert {name: stream.arrived for name, stream in streams.items()} == {
        "a": 1, "b": 0, "c": 0, "d": 1,
    }  # fmt: skip
    assert operator.ledger().balanced
    assert sum(stream.stored for stream in streams.values()) == 2
    restored = restore_operator(plan, Snapshot.from_bytes(operator.snapshot().to_bytes()))
    more = pa.record_batch({"who": ["e"], "k": [1], "ts": [5], "row": [5]})
    assert made(restored, more, np.array([True])) == [[5, 3, 0]]


def test_guests_that_come_too_late_are_turned_away():
    plan = ss.join(by="who").on("k").within(10, time="ts").plan({"input": ROWS.schema})
    operator = build_operator(plan)
    home = pa.record_batch({"who": ["a"], "k": [1], "ts": [9], "row": [0]})
    late = pa.record_batch({"who": ["b"], "k": [1], "ts": [8], "row": [1]})
    assert made(operator, home, np.array([False])) == []
    assert made(operator, late, np.array([True])) == []
    assert operator.ledger().streams["b"].late == 0
