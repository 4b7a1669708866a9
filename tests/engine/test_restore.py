"""A join goes on from its state under another policy or another budget."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pyarrow.compute as pc
import pytest

from harness import TWO, driven, inputs, pairs, spec, stream
from oracles.workloads import POLICIES, generated
from streamshed.engine.build import restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import merged

QUICK = {"oldest", "density"}
PAIRS = [
    pytest.param(*pair, marks=[] if {*pair} <= QUICK else pytest.mark.slow)
    for pair in product(POLICIES, POLICIES)
]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_another_policy_seed_and_budget_take_effect(before: str, after: str) -> None:
    workload = generated(
        3, streams=3, rows=200, keys=40, disorder=5, late=5, window=("time", 60),
        keep_rows=(20, 20, 20), policy=before,
    )  # fmt: skip
    *_, (_, _, ledger, operator) = driven(workload, [])
    saved = Snapshot.from_bytes(operator.snapshot().to_bytes())
    changed = replace(workload, policy=after, keep_rows=(7, 25, 20), seed=9)
    data = inputs(changed)
    plan = spec(changed).plan({name: rows.schema for name, rows in data.items()})
    restored = restore_operator(plan, saved)
    then = restored.ledger()
    assert then.balanced
    assert then.results == ledger.results
    assert then.missed.value == ledger.missed.value > 0
    assert then.streams["a"].stored == 7
    assert then.streams["b"].stored == ledger.streams["b"].stored
    later = [table.set_column(1, "ts", pc.add(table["ts"], 200)) for table in data.values()]
    parts = [
        restored.read(position, table.combine_chunks().to_batches()[0])
        for position, table in enumerate(later)
    ]
    for _ in restored.process(merged(parts)):
        pass
    now = restored.ledger()
    assert now.balanced
    assert now.results > then.results
    assert now.missed.value > then.missed.value
    for name, most in zip("abc", (7, 25, 20), strict=True):
        assert now.streams[name].stored <= most


def test_rows_of_row_windows_leave_as_if_nothing_had_happened() -> None:
    """The first thing after a restart may be that a row leaves: what came is not needed for it."""
    workload = generated(
        1, streams=3, rows=25, keys=2, window=("last", 4), keep_total=2, policy="density"
    )  # fmt: skip
    *_, (_, expected, whole, _) = driven(workload, [])
    *_, (_, results, ledger, _) = driven(workload, range(1, 70), restore=True)
    assert results == expected
    assert ledger.streams == whole.streams


def test_keys_are_hashed_by_a_secret_that_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are the same without a secret, with one, and with another after a restart."""
    tables = {"a": stream(1), "b": stream(2)}
    expected = pairs(TWO.replay(tables).table)
    schemas = {name: rows.schema for name, rows in tables.items()}
    plans, found = [TWO.plan(schemas)], []
    session, state = None, None
    for number, secret in enumerate(["correct horse", "battery staple"]):
        monkeypatch.setenv("STREAMSHED_SECRET", secret)
        plans.append(TWO.plan(schemas))
        assert secret not in repr(plans[-1])
        session = TWO.open(schemas, state=state)
        for start in range(150 * number, 150 * (number + 1), 50):
            chosen = {
                name: rows.filter((pc.field("ts") >= start) & (pc.field("ts") < start + 50))
                for name, rows in tables.items()
            }
            found += pairs(session.push(chosen))
        state = session.snapshot()
        assert secret.encode() not in state
    assert Counter(found) == Counter(expected)
    assert len({plan.key_seed for plan in plans}) == 3
    assert len({plan.about()["seed"] for plan in plans}) == 3
