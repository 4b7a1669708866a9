"""Options of results together: restarts, and small joins against plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

import streamshed as ss
from oracles.duck import BASE, BUDGETS, ORDERS, ROWS, SORTED, pushed
from oracles.options import drawn, expected

ASKED: list[Callable[[ss.Join], ss.Join]] = [
    ORDERS[0][0],
    ORDERS[2][0],
    lambda join: join.unmatched("a", "c"),
    lambda join: join.in_order("a", "b").unmatched("b"),
    lambda join: join.first(per="key"),
    lambda join: join.first(per="b", last_touch=True),
]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("say", ASKED)
def test_a_restart_between_any_two_batches_changes_nothing(
    say: Callable[[ss.Join], ss.Join], budget: Callable[[ss.Join], ss.Join]
) -> None:
    join = budget(say(BASE))
    whole = join.replay(SORTED)
    for restart in (False, True):
        made, ledger = pushed(join, SORTED, restart)
        assert Counter(map(str, made.to_pylist())) == Counter(map(str, whole.table.to_pylist()))
        assert ledger.streams == whole.ledger.streams
    assert whole.ledger.balanced
    assert eval(repr(join), {"join": ss.join}) == join


def test_a_state_of_another_order_is_refused() -> None:
    schemas = {name: part.schema for name, part in SORTED.items()}
    state = BASE.in_order("a", "b").open(schemas).snapshot()
    with pytest.raises(ss.StateError, match="bounds was"):
        BASE.open(schemas, state=state)


def test_the_ledger_has_the_most_rows_held() -> None:
    ledger = BASE.replay(SORTED).ledger
    assert all(stream.stored < stream.peak < ROWS for stream in ledger.streams.values())
    assert "peak" in ledger.to_table().column_names
    held = BASE.keep(rows=7).shed("oldest").replay(SORTED).ledger
    assert {stream.peak for stream in held.streams.values()} == {7}


def check_case(seed: int, budget: bool) -> bool:
    """A join is what plain Python says, in any batches, with restarts; False if it is refused."""
    case = drawn(seed, budget)
    try:
        plan = case.join.plan(case.schemas)
    except ss.SpecError:  # bounds that contradict each other
        return False
    want = expected(case, {stream.name: stream.window or 0 for stream in plan.streams})
    made: Counter = Counter()
    handed: dict[tuple[str, int], int] = {}
    certain = set()
    session = case.join.open(case.schemas)
    for batch, tables in enumerate([*case.tables(), None]):
        if batch and (seed + batch) % 3:
            session = case.join.open(case.schemas, state=session.snapshot())
        results = session.finish() if tables is None else session.push(tables)
        for row in results.to_pylist():
            there = {name: row[name]["row"] for name in case.names if row[name] is not None}
            if len(there) == len(case.names):
                made[tuple(there.values())] += 1
                continue
            assert not {*there.items()} & {*handed}
            handed |= dict.fromkeys(there.items(), batch)
            certain |= {*there.items()} if row["certain"] else set()
    ledger = session.ledger
    assert ledger.balanced
    assert ledger.results == made.total()
    for name, stream in ledger.streams.items():
        assert stream.late == want.late[name]
        assert stream.unmatched == sum(name == other for other, _ in handed)
        assert stream.uncertain == sum(name == other for other, _ in {*handed} - certain)
    assert certain <= {*want.unmatched}
    if not budget:
        assert made == want.results
        assert handed == want.unmatched
        assert certain == {*handed}
        return True
    assert not made - want.possible
    if case.first is None and ledger.missed is not None:
        assert ledger.results + ledger.missed.value == pytest.approx(want.results.total())
    return True


@pytest.mark.parametrize("budget", [False, True])
def test_small_joins_are_what_plain_python_says(budget: bool) -> None:
    assert sum(check_case(seed, budget) for seed in range(60)) > 30


@pytest.mark.slow
@pytest.mark.parametrize("budget", [False, True])
def test_many_small_joins_are_what_plain_python_says(budget: bool) -> None:
    assert sum(check_case(seed, budget) for seed in range(60, 1_000)) > 500
