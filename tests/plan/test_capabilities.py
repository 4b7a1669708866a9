"""Every cell of the capability table: what composes does so exactly, and the rest says why not."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from cells import (
    BASES,
    BOTH,
    FACTORISED,
    FACTS,
    LAST,
    LAST_OF_BOTH,
    NAMED,
    WINDOW,
    data,
    expanded,
    pieces,
    said,
)
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import merged
from streamshed.plan import capabilities
from streamshed.plan.capabilities import (
    EXCLUSIVE,
    FEATURES,
    KINDS,
    NOT_IN,
    POLICIES,
    RUNTIMES,
    Feature,
    Kind,
    Runtime,
)

MATCHES = {
    "shared key": "FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k",
    "equalities": "FROM a JOIN b ON a.k = b.k JOIN c ON b.x = c.x",
    "condition": "FROM a JOIN b ON abs(a.v - b.v) <= 0.5 JOIN c ON abs(b.v - c.v) <= 0.5 AND "
    "abs(a.v - c.v) <= 0.5",
    "relation": "FROM facts JOIN a ON a.k = facts.p JOIN b ON b.x = facts.q "
    "JOIN c ON c.k = facts.r",
}
"""What DuckDB is asked for the combinations of rows that match, at whatever time."""
MET = {"a": ("k", "p"), "b": ("x", "q"), "c": ("k", "r")}
"""The column by which each stream meets the facts, and theirs."""
SHEDDING = {
    "`keep(rows=…)`",
    "`keep(total=…)`",
    "`keep(memory=…)`",
    "`queue` with a rate",
    "`throttle` by work or time",
}
ORDER = "order in time (`in_order`, `between`)"
UNMATCHED = "rows without a match (`unmatched`)"
NOT_JUDGED = {"partial results", "first results (`first`)"}
"""Features whose results are judged elsewhere: `engine/test_contract.py` and
`engine/options`."""


def exact(kind: Kind, *features: str) -> Counter:
    """The rows of the members of every result, if nothing is shed."""
    with duckdb.connect() as database:
        for name, rows in (NAMED | {"facts": FACTS}).items():
            database.register(name, rows)
        found = database.sql(f"SELECT a.row, b.row, c.row {MATCHES[kind]}").fetchnumpy()
    members = dict(zip(NAMED, found.values(), strict=True))
    times = {name: rows["ts"].to_numpy() for name, rows in NAMED.items()}
    # Rows arrive in the order of (time, stream, row).
    arrivals = {
        name: times[name] * 3_000 + position * 1_000 + np.arange(len(times[name]))
        for position, name in enumerate(NAMED)
    }
    newest = np.max([arrivals[name][members[name]] for name in NAMED], axis=0)
    latest = np.max([times[name][members[name]] for name in NAMED], axis=0)
    by_rows = set(NAMED) if {"row windows", BOTH} & {*features} else set()
    if "time windows" in features:
        by_rows.discard("a")
    kept = np.ones(len(newest), bool)
    for name in NAMED:
        if name in by_rows:
            counts = np.ones(len(arrivals[name]), bool)
            if kind == "relation":  # rows that no fact matches move no row window
                column, met = MET[name]
                counts = np.isin(NAMED[name][column], FACTS[met])
            came = np.searchsorted(arrivals[name][counts], newest)
            is_newcomer = arrivals[name][members[name]] == newest
            last = LAST_OF_BOTH if BOTH in features else LAST
            kept &= is_newcomer | (came - (np.cumsum(counts) - 1)[members[name]] <= last)
        if name not in by_rows or BOTH in features:
            kept &= latest - times[name][members[name]] <= WINDOW
    if ORDER in features:
        kept &= times["a"][members["a"]] <= times["b"][members["b"]]
    return Counter(zip(*(members[name][kept].tolist() for name in NAMED), strict=True))


def driven(join: ss.Join, inputs: dict[str, pa.Table], restart: bool) -> tuple[Counter, object]:
    """The results of a join that is fed in pieces, and restarted between any two of them."""
    plan = join.plan({name: rows.schema for name, rows in inputs.items()})
    operator = build_operator(plan)
    found: Counter = Counter()

    def take(blocks: Iterator[object]) -> None:
        for block in blocks:
            if isinstance(block, Block):
                found.update(map(str, operator.results(block).to_pylist()))

    for parts in pieces(inputs):
        read = [operator.read(position, rows) for position, rows in parts]
        if read:
            take(operator.process(merged(read)))
        if restart:
            saved = Snapshot.from_bytes(operator.snapshot().to_bytes())
            operator = restore_operator(plan, saved)
    take(operator.finish())
    ledger = operator.ledger()
    operator.close()
    return found, ledger


def replayed(join: ss.Join, inputs: dict[str, pa.Table]) -> ss.Replay:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return join.replay(inputs)


def check(kind: Kind, *features: str, policy: str | None = None) -> None:
    """The contract of a cell: oracle, budget, ledger, any cut into batches, any restart."""
    join, inputs = said(kind, *features), data(kind)
    if policy is not None:
        join = join.weigh(column="w") if policy == "importance" else join
        join = join.shed(column="w") if policy == "column" else join.shed(policy)
    whole = replayed(join, inputs)
    ledger = whole.ledger
    assert ledger.balanced
    expected = Counter(map(str, whole.table.to_pylist()))
    alone = sum(stream.unmatched for stream in ledger.streams.values())
    results = whole.table.to_pylist()
    if FACTORISED not in features:
        assert len(results) == ledger.results + alone
    elif "selection" not in features:  # no members are left then that could be told apart
        results = expanded(whole.table)
        assert len(results) == ledger.results
    for restart in (False, True):
        found, account = driven(join, inputs, restart)
        if "update" not in whole.table.column_names:
            assert found == expected, f"restart={restart}"
        assert account.results == ledger.results
        assert account.streams == ledger.streams
    # A queue sheds others where rows spill: there is no policy to rank those that wait.
    if "`spill`" in features and not {"`throttle` by work or time", "`queue` with a rate"} & {
        *features
    }:
        without = said(kind, *(feature for feature in features if feature != "`spill`"))
        assert without_updates(whole.table) == without_updates(without.replay(inputs).table)
    if "aggregates" in features and "selection" not in features:
        check_aggregates(join, kind, whole.table)
    if "`keep(rows=…)`" in features:
        assert all(stream.stored <= 12 for stream in ledger.streams.values())
    if "`keep(total=…)`" in features:
        assert sum(stream.stored for stream in ledger.streams.values()) <= 30
    if "`keep(memory=…)`" in features:
        assert 0 < ledger.held_bytes <= ledger.peak_bytes <= join._spec.budget.memory
    # Rows that are shed while they wait do not move a row window: its results are others.
    by_rows = {"row windows", BOTH} & {*features}
    is_other = (by_rows and "`queue` with a rate" in features) or NOT_JUDGED & {*features}
    if kind in MATCHES and not is_other and "selection" not in features:
        check_results(results, exact(kind, *features), features)


def check_results(
    results: list[dict[str, Any]], expected: Counter, features: tuple[str, ...]
) -> None:
    """All results are right, and none is missing where nothing is shed."""
    made, alone = members_of(results)
    assert not made - expected
    if SHEDDING & {*features}:
        return
    assert made == expected
    if UNMATCHED in features:
        for position, name in enumerate("ab"):
            matched = {rows[position] for rows in expected}
            assert alone[name] == Counter({*range(NAMED[name].num_rows)} - matched)


def members_of(results: list[dict[str, Any]]) -> tuple[Counter, dict[str, Counter]]:
    """The rows of each result's members, and for each stream its rows without a match."""
    made: Counter = Counter()
    alone: dict[str, Counter] = {name: Counter() for name in NAMED}
    for result in results:
        there = {name: result[name]["row"] for name in NAMED if result[name] is not None}
        if len(there) == len(NAMED):
            made[tuple(there.values())] += 1
        else:
            ((name, row),) = there.items()
            alone[name][row] += 1
    return made, alone


def without_updates(results: pa.Table) -> Counter:
    """The results, but not which of them each extends, which follows from when they are made."""
    kept = [name for name in results.column_names if name not in ("update", "extends")]
    return Counter(map(str, results.select(kept).to_pylist()))


def check_aggregates(join: ss.Join, kind: Kind, results: pa.Table) -> None:
    """They are made of the values in the results, each in its window."""
    stream = "members" if kind == "streams by a column" else "a"
    found = join.aggregate(f"{stream}.w", over=100).replay(data(kind)).table
    members = [row[stream] for row in results.to_pylist() if row[stream] is not None]
    flat = [m for row in members for m in row] if kind == "streams by a column" else members
    if join._spec.budget is not None and join._spec.budget.memory is not None:
        assert sum(found["results"].to_pylist()) >= len(flat)  # fewer columns, so more rows
    else:
        assert sum(found["results"].to_pylist()) == len(flat)


YES = [(kind, f.name) for f in FEATURES for kind in KINDS if kind not in f.no]
NO = [(kind, f) for f in FEATURES for kind in KINDS if kind in f.no]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "feature"), YES)
def test_a_feature_composes_with_a_kind_of_join(kind: Kind, feature: str) -> None:
    check(kind, feature)


USERS = pa.table({"k": [*range(0, 40, 2), 8], "name": [f"n{i}" for i in range(21)]})


@pytest.mark.slow
@pytest.mark.parametrize(
    "feature", [f for f in FEATURES if "relation" not in f.no], ids=lambda f: f.name
)
def test_a_feature_composes_with_a_table_among_the_inputs(feature: Feature) -> None:
    """As the table says of joins through a relation, with results that have the table's columns."""
    streams = said("shared key", feature.name)
    through = replayed(streams.through(USERS, a="k", b="k", c="k"), NAMED).table
    join = replace(streams, _spec=replace(streams._spec, streams=("a", "users", "b", "c")))
    with_users = replayed(join, {**NAMED, "users": ss.table(USERS)}).table
    shared = [name for name in through.column_names if name in with_users.column_names]
    assert set(with_users.column_names) - {*shared} <= {"users"}
    assert with_users.select(shared).to_pylist() == through.select(shared).to_pylist()
    assert len(through) > 0


@pytest.mark.parametrize(
    "feature", [f for f in FEATURES if "relation" in f.no], ids=lambda f: f.name
)
def test_what_does_not_compose_with_a_table_says_so(feature: Feature) -> None:
    streams = said("shared key", feature.name)
    join = replace(streams, _spec=replace(streams._spec, streams=("a", "users", "b", "c")))
    with pytest.raises(ss.SpecError, match="cannot be combined with a table among the inputs"):
        join.count({**NAMED, "users": ss.table(USERS)})


def says_windows(kind: Kind, *names: str) -> bool:
    """Whether the windows of a pair of features are said by them: those of time are there anyway.

    Windows of both kinds, of different streams, need streams with names.
    """
    if BOTH in names:
        return not {"time windows", "row windows"} & {*names}
    mixed = {*names} == {"time windows", "row windows"}
    return "time windows" not in names or (mixed and kind != "streams by a column")


def excluded(*names: str) -> bool:
    """Whether features exclude each other; a stream with both windows has row windows."""
    said = {*names, "row windows"} if BOTH in names else {*names}
    return any({*pair} <= said for pair in EXCLUSIVE)


BUDGETS = {"`keep(rows=…)`", "`keep(total=…)`", "`keep(memory=…)`", "`spill`"}
"""Features that say a budget, of which there is one."""
PAIRS = [
    (kind, one.name, other.name)
    for kind in KINDS
    for i, one in enumerate(FEATURES)
    for other in FEATURES[i + 1 :]
    if kind not in one.no
    and kind not in other.no
    and not excluded(one.name, other.name)
    and not {one.name, other.name} <= BUDGETS
    and says_windows(kind, one.name, other.name)
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "one", "other"), PAIRS)
def test_features_compose_with_each_other(kind: Kind, one: str, other: str) -> None:
    check(kind, one, other)


@pytest.mark.parametrize(
    ("kind", "feature"), NO, ids=[f"{kind}-{feature.name}" for kind, feature in NO]
)
def test_what_does_not_compose_says_why(kind: Kind, feature: Feature) -> None:
    with pytest.raises(ss.SpecError) as raised:
        said(kind, feature.name).plan({name: rows.schema for name, rows in data(kind).items()})
    assert feature.no[kind] in str(raised.value)


@pytest.mark.parametrize(("one", "other"), EXCLUSIVE)
def test_features_that_exclude_each_other_say_why(one: str, other: str) -> None:
    join = said("shared key", one, other)
    if "aggregates" in (one, other):
        join = join.aggregate("a.w", over=100)
    with pytest.raises(ss.SpecError) as raised:
        join.plan({name: rows.schema for name, rows in NAMED.items()})
    assert EXCLUSIVE[one, other] in str(raised.value)


@pytest.mark.parametrize(("features", "runtime"), NOT_IN)
def test_what_a_runtime_does_not_have_says_why(features: tuple[str], runtime: Runtime) -> None:
    join = said("shared key", *features)
    if "aggregates" in features:
        join = join.aggregate("a.w", over=100)
    for other in RUNTIMES:
        lacking = [NOT_IN[n, w] for n, w in NOT_IN if w == other and {*n} <= {*features}]
        if lacking:
            with pytest.raises(ss.SpecError) as raised:
                capabilities.check_runtime(join._spec, other)
            assert lacking[0] in str(raised.value)
            assert str(raised.value).endswith(".replay() or .stream()") == (len(features) == 1)
            assert ".replay()" in str(raised.value)
        else:
            capabilities.check_runtime(join._spec, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "policy"),
    [(kind, policy) for policy, no in POLICIES.items() for kind in KINDS if kind not in no],
)
def test_a_policy_composes_with_a_kind_of_join(kind: Kind, policy: str) -> None:
    check(kind, "`keep(total=…)`", policy=policy)


BY_THE_WALL = {
    "cpu": lambda join: join.throttle(cpu=0.001, every="20 s"),
    "keep up": lambda join: join.throttle("keep up", every="20 s"),
}
"""Throttles whose work depends on how fast the machine is."""


@pytest.mark.slow
@pytest.mark.parametrize("throttle", BY_THE_WALL)
@pytest.mark.parametrize("kind", KINDS)
def test_a_throttle_by_time_makes_nothing_that_is_not_so(kind: Kind, throttle: str) -> None:
    inputs = {
        name: rows.set_column(
            rows.column_names.index("ts"), "ts", rows["ts"].cast(pa.timestamp("s"))
        )
        for name, rows in data(kind).items()
    }
    join = BASES[kind]().within(f"{WINDOW} s", time="ts").seed(3)
    free = replayed(join, inputs)
    # Of the two, replay has only the one that goes by the clock of a core.
    schemas = {name: rows.schema for name, rows in inputs.items()}
    with BY_THE_WALL[throttle](join).open(schemas) as session:
        made = session.push(inputs)
    assert session.ledger.balanced
    assert session.ledger.results == made.num_rows <= free.table.num_rows
    if kind in MATCHES:
        assert not members_of(made.to_pylist())[0] - exact(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_without_a_meaning_says_why(kind: Kind) -> None:
    for policy, no in POLICIES.items():
        if kind in no:
            join = said(kind, "`keep(total=…)`").shed(policy)
            with pytest.raises(ss.SpecError) as raised:
                join.plan({name: rows.schema for name, rows in data(kind).items()})
            assert no[kind] in str(raised.value)


def test_the_support_table_is_the_one_in_the_docs(pytestconfig: pytest.Config) -> None:
    written = pytestconfig.rootpath / "docs" / "support.md"
    assert written.read_text() == capabilities.support_table()
