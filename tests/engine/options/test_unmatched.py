"""Rows without a match, against the outer joins of DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from oracles.duck import BASE, PAIR, ROWS, SORTED, SPARSE, WINDOW, asked, exact, pair, rows


def outer(kind: str, data: dict[str, pa.Table]) -> Counter:
    on = f"a.k = b.k AND abs(a.ts - b.ts) <= {WINDOW}"
    return asked(f"SELECT a.row, b.row FROM a {kind} JOIN b ON {on}", data)


def with_nulls(data: dict[str, pa.Table]) -> dict[str, pa.Table]:
    none = pa.scalar(None, pa.int64())
    return {
        name: part.set_column(
            0, "k", pa.compute.if_else(np.arange(ROWS) % 11 == 0, none, part["k"])
        ).set_column(2, "ts", pa.compute.if_else(np.arange(ROWS) % 17 == 0, none, part["ts"]))
        for name, part in data.items()
    }


@pytest.mark.parametrize(
    ("streams", "kind"), [(("a",), "LEFT"), (("b",), "RIGHT"), (("b", "a"), "FULL")]
)
def test_two_streams_make_the_outer_joins_of_sql(streams: Sequence[str], kind: str) -> None:
    for data in (SPARSE, with_nulls(SPARSE)):
        expected = outer(kind, data)
        result = PAIR.unmatched(*streams).replay(data)
        assert rows(result.table) == expected
        assert result.table["certain"].to_pylist() == [True] * len(result.table)
        accounts = result.ledger.streams
        assert accounts["a"].unmatched == sum(n for (_, b), n in expected.items() if b is None)
        assert accounts["b"].unmatched == sum(n for (a, _), n in expected.items() if a is None)
        assert result.ledger.balanced
        counted = PAIR.unmatched(*streams).count(data)
        assert counted.streams == accounts
        assert counted.results == result.ledger.results
    times = {
        row["time"] for row in result.table.to_pylist() if row["a"] is None or row["b"] is None
    }
    assert None in times  # of the rows without a time
    narrow = PAIR.unmatched("a").select("a.row").replay(SPARSE).table
    assert narrow.column_names == ["a", "time", "certain"]
    assert len(narrow) == outer("LEFT", SPARSE).total()


def test_a_row_is_handed_out_when_its_window_closes() -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
    join = PAIR.within(10, time="ts", late=5).unmatched("a")

    def at(time: int, key: int = 9) -> pa.Table:
        return pa.table({"k": [key], "ts": [time]}, schema)

    with join.open({"a": schema, "b": schema}) as session:
        assert len(session.push(a=at(0, 1), b=at(0))) == 0
        assert len(session.push(a=at(99, 2), b=at(15))) == 0  # one of time 10 may still come
        left = session.push(b=at(16)).to_pylist()
        assert left == [{"a": {"k": 1, "ts": 0}, "b": None, "time": 0, "certain": True}]
        assert [row["time"] for row in session.finish().to_pylist()] == [99]


@pytest.mark.parametrize("policy", ["oldest", "density"])
def test_what_is_certain_under_a_budget_is_never_wrong(policy: str) -> None:
    whole = outer("FULL", SPARSE)
    certain = 0
    for budget in (20, 40, 80):
        result = PAIR.unmatched("a", "b").keep(total=budget).shed(policy).replay(SPARSE)
        made = result.table.filter(result.table["certain"])
        assert all(whole[key] >= n for key, n in rows(made).items())
        accounts = result.ledger.streams.values()
        uncertain = len(result.table) - len(made)
        assert sum(stream.uncertain for stream in accounts) == uncertain
        assert (
            sum(stream.unmatched for stream in accounts)
            == len(result.table) - result.ledger.results
        )
        certain += sum(n for key, n in rows(made).items() if None in key)
        once = Counter(row[0] for row, n in rows(result.table).items() if row[1] is None)
        assert max(once.values()) == 1
    assert certain > 50


SHEDDING: list[Callable[[ss.Join], ss.Join]] = [
    lambda join: join.keep(total=9).shed("oldest"),
    lambda join: join.keep(total=200).shed("oldest"),
    lambda join: join.keep(total=20).shed("oldest").seed(7),
    lambda join: join,
]


@pytest.mark.parametrize("then", SHEDDING)
@pytest.mark.parametrize("budget", [9, 40])
def test_what_was_shed_is_known_after_a_restart_with_another_budget(
    budget: int, then: Callable[[ss.Join], ss.Join]
) -> None:
    """All rows have a match where nothing is shed, so that none without one is certain."""
    keys = pa.table({"k": range(200), "ts": [0] * 200, "row": range(200)})
    join, schemas = PAIR.unmatched("b"), dict.fromkeys("ab", keys.schema)
    begun = join.keep(total=budget).shed("oldest").open(schemas)
    assert len(begun.push(a=keys)) == 0
    goes_on = then(join).open(schemas, state=begun.snapshot())
    results = pa.concat_tables([goes_on.push(b=keys), goes_on.finish()])
    alone = [row for row in results.to_pylist() if row["a"] is None]
    assert len({row["b"]["row"] for row in alone}) == len(alone) >= 200 - budget
    assert not any(row["certain"] for row in alone)


def test_rows_that_a_lower_budget_evicts_are_handed_out_whoever_is_asked_for_a_state() -> None:
    join, data = PAIR.unmatched("a", "b"), pair(SORTED)
    schemas = {name: part.schema for name, part in data.items()}
    begun = join.keep(total=200).shed("oldest").open(schemas)
    made = [begun.push({name: part.slice(0, 100) for name, part in data.items()})]
    lower = join.keep(total=9).shed("oldest")
    between = lower.open(schemas, state=begun.snapshot())
    goes_on = lower.open(schemas, state=between.snapshot())
    made += [goes_on.push({name: part.slice(100) for name, part in data.items()}), goes_on.finish()]
    handed = sum(None in row for row in rows(pa.concat_tables(made)).elements())
    assert handed == sum(stream.unmatched for stream in goes_on.ledger.streams.values())


def test_a_key_that_made_its_first_result_later_makes_rows_uncertain() -> None:
    """The row of time 12 has a match where nothing is shed: its key makes results from 12 on."""
    join = PAIR.within(10, time="ts").first(per="key").unmatched("a")
    a = pa.table({"k": [1, 2, 1, 1], "ts": [0, 0, 5, 12], "row": range(4)})
    b = pa.table({"k": [1, 1], "ts": [1, 6], "row": range(2)})
    assert rows(join.replay(a=a, b=b).table)[3, 1] == 1
    held = join.keep(rows={"a": 1}).shed("oldest").replay(a=a, b=b).table
    assert (3, None) in rows(held)
    assert (3, None) not in rows(held.filter(held["certain"]))


def test_of_three_streams_rows_in_no_result_are_unmatched() -> None:
    inner = exact()
    result = BASE.unmatched("b").replay(SORTED)
    alone = {row[1] for row in rows(result.table) if row[0] is None}
    assert alone == set(range(ROWS)) - {row[1] for row in inner}
    held = BASE.unmatched("b").keep(total=60).shed("oldest").replay(SORTED).table
    sure = {row[1] for row in rows(held.filter(held["certain"])) if row[0] is None}
    assert sure <= alone
