"""Every cell of the capability table: what composes does so exactly, and the rest says why not."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.ingest import InputRows, merged
from streamshed.engine.operator import Block, Operator
from streamshed.plan import capabilities
from streamshed.plan.capabilities import EXCLUSIVE, FEATURES, KINDS, POLICIES, Feature, Kind

ROWS, WINDOW = 400, 60


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "k": rng.integers(0, 40, ROWS),
            "x": rng.integers(0, 40, ROWS),
            "v": rng.random(ROWS) * 40,
            "w": rng.random(ROWS),
            "ts": np.sort(rng.integers(0, 1_000, ROWS)),
            "row": np.arange(ROWS),
        }
    )


NAMED = {name: table(seed) for seed, name in enumerate("abc")}
TOGETHER = pa.concat_tables(
    [rows.append_column("stream", pa.array([name] * ROWS)) for name, rows in NAMED.items()]
).sort_by([("ts", "ascending"), ("stream", "ascending")])
FACTS = pa.table(
    {
        "p": np.random.default_rng(7).integers(0, 40, 60),
        "q": np.random.default_rng(8).integers(0, 40, 60),
        "r": np.random.default_rng(9).integers(0, 40, 60),
    }
)

BASES: dict[Kind, Callable[[], ss.Join]] = {
    "shared key": lambda: ss.join("a", "b", "c").on("k"),
    "equalities": lambda: ss.join("a", "b", "c").on("a.k = b.k", "b.x = c.x"),
    "condition": lambda: ss.join("a", "b", "c").on(ss.near("v", 0.5)),
    "relation": lambda: (
        ss.join("a", "b", "c").on(a="k", b="x", c="k").through(FACTS, a="p", b="q", c="r")
    ),
    "streams by a column": lambda: ss.join(by="stream").on("k").partial(at_least=2),
}
WITHIN = f"greatest(a.ts, b.ts, c.ts) - least(a.ts, b.ts, c.ts) <= {WINDOW}"
EXACT = {
    "shared key": f"FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k WHERE {WITHIN}",
    "equalities": f"FROM a JOIN b ON a.k = b.k JOIN c ON b.x = c.x WHERE {WITHIN}",
    "condition": "FROM a JOIN b ON abs(a.v - b.v) <= 0.5 JOIN c ON abs(b.v - c.v) <= 0.5 AND "
    f"abs(a.v - c.v) <= 0.5 WHERE {WITHIN}",
    "relation": "FROM facts JOIN a ON a.k = facts.p JOIN b ON b.x = facts.q "
    f"JOIN c ON c.k = facts.r WHERE {WITHIN}",
}
"""What DuckDB is asked where nothing is shed."""


def in_bytes(join: ss.Join) -> ss.Join:
    """A budget for some thirty rows, besides the tables of the join."""
    tables = 144_500 if join._spec.pairwise is not None else 600
    return join.keep(memory=tables + 9_000).shed("oldest").estimate(rate=0)


SAYS: dict[str, Callable[[ss.Join], ss.Join]] = {
    "time windows": lambda join: join,
    "row windows": lambda join: join,
    "`keep(rows=…)`": lambda join: join.keep(rows=12),
    "`keep(total=…)`": lambda join: join.keep(total=30),
    "`keep(memory=…)`": in_bytes,
    "`queue` with a rate": lambda join: join.queue(rows=8).throttle(rows_per_second=0.6),
    "`throttle` by work or time": lambda join: join.throttle(comparisons_per_second=0.8, every=50),
    "partial results": lambda join: join.partial(at_least=2),
    "importance (`weigh`)": lambda join: join.weigh(column="w"),
    "`spill`": lambda join: join.keep(total=30).spill(to=tempfile.mkdtemp()),
    "order in time (`in_order`, `between`)": lambda join: join.in_order("a", "b"),
    "rows without a match (`unmatched`)": lambda join: join.unmatched("a", "b"),
    "first results (`first`)": lambda join: join.first(per="key"),
    "selection": lambda join: join.select("time"),
    "aggregates": lambda join: join,  # of the same results, see `check_aggregates`
}
SHEDDING = {
    "`keep(rows=…)`",
    "`keep(total=…)`",
    "`keep(memory=…)`",
    "`queue` with a rate",
    "`throttle` by work or time",
}

OTHER_RESULTS = {
    "row windows",
    "partial results",
    "order in time (`in_order`, `between`)",
    "first results (`first`)",
}


def said(kind: Kind, *features: str) -> ss.Join:
    join = BASES[kind]()
    by_rows = "row windows" in features
    join = join.last(30, time="ts") if by_rows else join.within(WINDOW, time="ts")
    for feature in features:
        join = SAYS[feature](join)
    return join.seed(3)


def data(kind: Kind) -> dict[str, pa.Table]:
    return {"input": TOGETHER} if kind == "streams by a column" else NAMED


def pieces(operator: Operator, inputs: dict[str, pa.Table]) -> Iterator[list[InputRows]]:
    """The inputs in pieces of 97 units of time, read by whoever runs then."""
    for start in range(0, 1_000, 97):
        parts = []
        for position, rows in enumerate(inputs.values()):
            times = rows["ts"].to_numpy()
            chosen = rows.filter(pa.array((times >= start) & (times < start + 97)))
            batch = chosen.combine_chunks().to_batches()
            if batch:
                parts.append((position, batch[0]))
        yield parts


def driven(join: ss.Join, inputs: dict[str, pa.Table], restart: bool) -> tuple[Counter, object]:
    """The results of a join that is fed in pieces, and restarted between any two of them."""
    plan = join.plan({name: rows.schema for name, rows in inputs.items()})
    operator = build_operator(plan)
    found: Counter = Counter()

    def take(blocks: Iterator[object]) -> None:
        for block in blocks:
            if isinstance(block, Block):
                found.update(map(str, operator.results(block).to_pylist()))

    for parts in pieces(operator, inputs):
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


def check(kind: Kind, *features: str) -> None:
    join, inputs = said(kind, *features), data(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = join.replay(inputs)
    ledger = whole.ledger
    assert ledger.balanced
    expected = Counter(map(str, whole.table.to_pylist()))
    alone = sum(stream.unmatched for stream in ledger.streams.values())
    assert sum(expected.values()) == ledger.results + alone
    for restart in (False, True):
        found, account = driven(join, inputs, restart)
        if "update" not in whole.table.column_names:
            assert found == expected, f"restart={restart}"
        assert account.results == ledger.results
        assert account.streams == ledger.streams
    if "`spill`" in features and "`throttle` by work or time" not in features:
        without = said(kind, *(feature for feature in features if feature != "`spill`"))
        assert without_updates(whole.table) == without_updates(without.replay(inputs).table)
    if "aggregates" in features and "selection" not in features:
        check_aggregates(join, kind, whole.table)
    sheds = any(feature in SHEDDING for feature in features)
    if "`keep(rows=…)`" in features:
        assert all(stream.stored <= 12 for stream in ledger.streams.values())
    if "`keep(total=…)`" in features:
        assert sum(stream.stored for stream in ledger.streams.values()) <= 30
    if "`keep(memory=…)`" in features:
        assert 0 < ledger.held_bytes <= ledger.peak_bytes <= join._spec.budget.memory
    if not sheds and kind in EXACT and not OTHER_RESULTS & {*features}:
        con = duckdb.connect()
        for name, rows in (NAMED | {"facts": FACTS}).items():
            con.register(name, rows)
        assert ledger.results == con.sql(f"SELECT count(*) {EXACT[kind]}").fetchall()[0][0]


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
    assert sum(found["results"].to_pylist()) == len(flat)


YES = [(kind, f.name) for f in FEATURES for kind in KINDS if kind not in f.no]
NO = [(kind, f) for f in FEATURES for kind in KINDS if kind in f.no]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "feature"), YES)
def test_a_feature_composes_with_a_kind_of_join(kind: Kind, feature: str) -> None:
    check(kind, feature)


BUDGETS = {"`keep(rows=…)`", "`keep(total=…)`", "`keep(memory=…)`", "`spill`"}
"""Features that say a budget, of which there is one."""
PAIRS = [
    (kind, one.name, other.name)
    for kind in KINDS
    for i, one in enumerate(FEATURES)
    for other in FEATURES[i + 1 :]
    if kind not in one.no
    and kind not in other.no
    and (one.name, other.name) not in EXCLUSIVE
    and (other.name, one.name) not in EXCLUSIVE
    and {one.name, other.name} != {"time windows", "row windows"}
    and not {one.name, other.name} <= BUDGETS
    and "time windows" not in (one.name, other.name)
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
