"""A table among streams, against DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamshed as ss
from oracles.duck import SORTED, WINDOW, asked, pair

USERS = pa.table({"id": [*range(25), 7], "name": [f"n{i}" for i in range(26)], "end": [0] * 26})
VISITS = ss.join("a", "users", "b").on(a="k", users="id", b="k").within(WINDOW, time="ts")
WITH_USERS = {"a": SORTED["a"], "b": SORTED["b"], "users": ss.table(USERS)}


def test_the_rows_of_a_table_match_at_any_time() -> None:
    result = VISITS.replay(WITH_USERS)
    found = Counter(
        (row["a"]["row"], row["b"]["row"], row["users"]["name"]) for row in result.table.to_pylist()
    )
    expected = asked(
        f"""SELECT a.row, b.row, users.name FROM a JOIN b ON a.k = b.k
        JOIN users ON users.id = a.k WHERE abs(a.ts - b.ts) <= {WINDOW}""",
        SORTED | {"users": USERS},
    )
    assert found == expected
    assert VISITS.count(WITH_USERS).results == expected.total()
    chosen = VISITS.select("users.name").replay(WITH_USERS).table
    assert chosen.column_names == ["users", "time"]
    with VISITS.open({**{n: SORTED[n].schema for n in "ab"}, "users": ss.table(USERS)}) as session:
        assert len(session.push(pair(SORTED))) == expected.total()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"users": ss.table(USERS.select(["name"]))}, "(?s)'id'.*'name'"),
        ({"b": ss.table(USERS)}, "join the tables to one table first"),
        ({"guests": ss.table(USERS)}, "join the tables"),
        (
            {"users": ss.table(pa.table({"id": [1, None, None], "name": ["x", "y", "z"]}))},
            "table 'users', column 'id': 2 of the rows have no key, first row 1; leave out",
        ),
    ],
)
def test_a_table_that_does_not_fit_says_why(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ss.StreamshedError, match=message):
        VISITS.replay({**WITH_USERS, **given})


def test_streams_with_a_table_have_an_order() -> None:
    found = VISITS.in_order("b", "a", strictly=True).between("a", "b", 2, 30).replay(WITH_USERS)
    made = Counter(
        (row["a"]["row"], row["b"]["row"], row["users"]["name"]) for row in found.table.to_pylist()
    )
    assert made == asked(
        """SELECT a.row, b.row, users.name FROM a JOIN b ON a.k = b.k
        JOIN users ON users.id = a.k WHERE a.ts - b.ts BETWEEN 2 AND 30""",
        SORTED | {"users": USERS},
    )


@pytest.mark.parametrize(
    "say",
    [
        lambda: VISITS.in_order("a", "users"),
        lambda: VISITS.between("users", "b", 0, 9),
    ],
)
def test_the_rows_of_a_table_have_no_order(say: Callable[[], ss.Join]) -> None:
    with pytest.raises(
        ss.SpecError, match=r"\(\) names 'users', but that is a table.*streams only"
    ):
        say().count(WITH_USERS)


def visits(session: ss.Session, time: int) -> list[tuple[int, str]]:
    """What a session makes of two visits of each user at a time."""
    rows = pa.table({"k": range(4), "ts": [time] * 4})
    made = session.push(a=rows, b=rows).to_pylist()
    return sorted((row["a"]["k"], row["users"]["name"]) for row in made if row["a"] == row["b"])


def test_a_session_reads_its_table_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rows that were there before match what the table has now, and nothing if it has nothing."""
    file = tmp_path / "users.parquet"
    pq.write_table(pa.table({"id": [0, 1, 1], "name": ["a", "b", "c"]}), file)
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
    users = ss.table(str(file), refresh="1 us")
    with VISITS.open({"a": schema, "b": schema, "users": users}) as session:
        assert visits(session, 0) == [(0, "a"), (1, "b"), (1, "c")]
        pq.write_table(pa.table({"id": [1, 2], "name": ["B", "C"]}), file)
        assert visits(session, 1) == [(1, "B"), (2, "C")]
        state = session.snapshot()
        # User 0 is in the table no more, so that its rows of time 0 can match nothing.
        assert session.ledger.streams["a"].filtered == 2 + 2 + 1
        old = pa.table({"k": [1], "ts": [2]})
        assert len(session.push(b=old)) == 2  # those of the times 0 and 1
        file.unlink()
        assert visits(session, 3) == [(1, "B"), (2, "C")]
        assert "table 'users' cannot be read anew" in caplog.text
    pq.write_table(pa.table({"id": [3], "name": ["D"]}), file)
    with VISITS.open({"a": schema, "b": schema, "users": users}, state=state) as session:
        assert visits(session, 4) == [(3, "D")]


def test_a_table_may_come_from_a_function() -> None:
    names = iter("xyz")

    def users() -> pa.Table:
        return pa.table({"id": [0], "name": [next(names)]})

    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
    given = {"a": schema, "b": schema, "users": ss.table(users, refresh="1 us")}
    with VISITS.open(given) as session:
        assert [visits(session, 0), visits(session, 1)] == [[(0, "y")], [(0, "z")]]


@pytest.mark.parametrize(
    ("data", "refresh", "message"),
    [
        (USERS, "1 hour", "a Table stays as it is; give what can be read again"),
        ("users.parquet", "0 s", "greater than 0"),
        ("users.parquet", "1 parsec", "'parsec' is not a unit"),
        ("users.parquet", 60, "say its unit, as in '60 seconds'"),
    ],
)
def test_a_table_that_cannot_be_read_anew_says_why(data: Any, refresh: Any, message: str) -> None:
    with pytest.raises(ss.SpecError, match=message):
        ss.table(data, refresh=refresh)


def test_a_table_needs_a_key() -> None:
    join = ss.join("a", "users").on(ss.near("x", 1)).within(WINDOW, time="ts")
    with pytest.raises(ss.SpecError, match="matched by a key that all inputs share; name it"):
        join.count(a=SORTED["a"], users=ss.table(USERS))
    with pytest.raises(ss.SpecError, match="the table is None"):
        ss.table(None)
    with pytest.raises(ss.InputError, match="for 'guests', but the streams of the join are"):
        ss.join("a", "b").on("k").count(a=SORTED["a"], guests=ss.table(USERS))
