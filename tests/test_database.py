"""Relations in PostgreSQL: read, kept in step with their changes, and out of reach for a while."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import streamshed as ss
from databases import Server, server
from pages import ROOT, blocks
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.ingest import merged
from streamshed.engine.operator import Operator
from streamshed.errors import InputError, SpecError, StreamshedError

R = pa.table({"ts": [1, 2, 3, 4, 5, 6], "a": [1, 2, 3, 1, 2, 3]})
S = pa.table({"ts": [1, 2, 3, 4, 5, 6], "b": ["p", "q", "q", "p", "q", "q"]})
JOIN = ss.join("r", "s").within(1, time="ts", clock="max")

TABLE = "CREATE TABLE pairs (a bigint, b text, note text, since bigint, until bigint)"
FILL = (
    "INSERT INTO pairs VALUES (1, 'p', 'u', NULL, 3), (2, 'q', 'v', 2, NULL), (3, 'z', 'w', 0, 9)"
)
LOG = """
    CREATE TABLE log (
        version bigserial PRIMARY KEY, "time" bigint, change text, a bigint, b text, note text
    )"""


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    with server() as started:
        yield started


@pytest.fixture
def log(database: Server) -> Iterator[Server]:
    database.run(LOG)
    yield database
    database.run("DROP TABLE log")


def noted(time: int, change: str, a: int, b: str, note: str) -> str:
    return (
        f'INSERT INTO log ("time", change, a, b, note)'
        f" VALUES ({time}, '{change}', {a}, '{b}', '{note}')"
    )


def found(table: pa.Table | pa.RecordBatch) -> list[tuple[int, int, str]]:
    return sorted((x["r"]["ts"], x["s"]["ts"], x["pair"]["note"]) for x in table.to_pylist())


@pytest.mark.parametrize(
    ("url", "has_one"),
    [
        ("postgres://ann:secret@host/db", True),
        ("postgres://ann:se/cret@host:5432/db", True),
        ("postgres://ann@host/db?password=secret", True),
        ("postgres://host/db?connect_timeout=3&pass%77ord=secret", True),
        ("postgres://host/db?sslpassword=secret", True),
        ("postgres://ann@host:5432/db", False),
        ("postgres://ann:@host:5432/db?password=", False),
        ("postgres://host:5432,other:5432/db?passfile=here", False),
    ],
)
def test_a_password_is_found_and_never_shown(url: str, has_one: bool) -> None:
    table = ss.postgres(url, "pairs")
    assert table.has_password is has_one
    assert "cret" not in repr(table)


def test_the_table_of_changes_of_the_docs(database: Server) -> None:
    """The SQL of docs/relations.md: a trigger notes what happens to a table."""
    (block,) = (one for one in blocks(ROOT / "docs" / "relations.md") if one.kind == "sql")
    parts = re.split(r";\n(?=CREATE)", block.content)
    database.run("CREATE TABLE pairs (a bigint, b text)", *parts)
    try:
        database.run(
            "INSERT INTO pairs VALUES (1, 'p')",
            "UPDATE pairs SET b = 'q' WHERE a = 1",
            "DELETE FROM pairs",
        )
        log = ss.postgres(database.url, "pair_changes", version="version")
        now = pa.array([datetime.now(UTC) + timedelta(hours=1)])  # later than all changes below
        joined = ss.join("r", "s").within("1 minute", time="ts")
        joined = joined.through(ss.relation(changes=log), r="a", s="b")
        rows = {"r": pa.table({"ts": now, "a": [1]}), "s": pa.table({"ts": now, "b": ["q"]})}
        assert joined.count(rows).results == 0  # the pair is gone
        database.run("INSERT INTO pairs VALUES (1, 'q')")
        assert joined.count(rows).results == 1
    finally:
        database.run("DROP TABLE pairs, pair_changes", "DROP FUNCTION note_pair")


def test_a_table_is_read_as_any_other_relation(database: Server) -> None:
    database.run(TABLE, FILL)
    table = ss.postgres(database.url, "public.pairs")
    bounds = {"name": "pair", "begin": "since", "end": "until"}
    same = pa.table(
        {
            "a": [1, 2, 3],
            "b": ["p", "q", "z"],
            "note": ["u", "v", "w"],
            "since": [None, 2, 0],
            "until": [3, None, 9],
        }
    )
    made = [
        JOIN.through(ss.relation(data, **bounds), r="a", s="b").replay(r=R, s=S).table
        for data in (table, same)
    ]
    assert found(made[0]) == found(made[1]) == [(1, 1, "u"), (2, 2, "v"), (2, 3, "v"), (5, 5, "v"),
                                                (5, 6, "v")]  # fmt: skip


def followed(database: Server, **settings: Any) -> ss.Join:
    changes = ss.postgres(database.url, "log", version="version", every=0, **settings)
    return JOIN.through(ss.relation(changes=changes, name="pair"), r="a", s="b")


def operator(join: ss.Join) -> Operator:
    return build_operator(join.plan({"r": R.schema, "s": S.schema}))


def fed(running: Operator, time: int) -> list[tuple[int, int, str]]:
    """What the tuples of a time make."""
    parts = [
        running.read(position, rows.slice(time - 1, 1).combine_chunks().to_batches()[0])
        for position, rows in enumerate((R, S))
    ]
    return [
        result
        for block in running.process(merged(parts))
        if isinstance(block, Block)
        for result in found(running.results(block))
    ]


def test_changes_are_followed_as_they_are_made(log: Server) -> None:
    log.run(noted(0, "insert", 1, "p", "first"))
    running = operator(followed(log))
    assert fed(running, 1) == [(1, 1, "first")]
    log.run(noted(2, "insert", 2, "q", "second"))
    assert fed(running, 2) == [(2, 2, "second")]
    log.run(noted(3, "insert", 3, "q", "third"), noted(4, "delete", 1, "p", ""))
    assert fed(running, 3) == [(2, 3, "second"), (3, 3, "third")]
    assert fed(running, 4) == []
    # One that is known too late counts from then on, and not for what has come before.
    log.run(noted(2, "insert", 1, "p", "late"))
    assert fed(running, 5) == [(5, 5, "second")]
    # Whoever starts now finds them all.
    again = restore_operator(running.plan, running.snapshot())
    expected = [(5, 6, "second"), (6, 5, "third"), (6, 6, "third")]
    assert fed(again, 6) == fed(running, 6) == expected


def test_what_is_not_committed_yet_is_not_passed_over(log: Server) -> None:
    """A version that is given out early may appear late."""
    from adbc_driver_postgresql import dbapi

    running = operator(followed(log))
    with dbapi.connect(log.url) as slow:
        with slow.cursor() as cursor:
            cursor.execute(noted(0, "insert", 1, "p", "slow"))
        log.run(noted(0, "insert", 2, "q", "quick"))
        assert fed(running, 1) == []
        assert fed(running, 2) == []
        slow.commit()
    assert fed(running, 3) == []
    assert fed(running, 4) == [(4, 4, "slow")]
    assert fed(running, 5) == [(5, 5, "quick")]


def test_a_database_that_comes_back_is_waited_for(log: Server) -> None:
    log.run(noted(0, "insert", 1, "p", "first"))
    running = operator(followed(log, patience=30))
    assert fed(running, 1) == [(1, 1, "first")]
    log.stop()
    back = threading.Timer(1.0, log.start)
    back.start()
    begin = time.monotonic()
    assert fed(running, 2) == []
    assert time.monotonic() - begin > 0.5
    back.join()
    assert fed(running, 4) == [(4, 4, "first")]


def test_a_query_does_not_lose_its_place_when_the_database_is_out_of_reach(log: Server) -> None:
    log.run(noted(0, "insert", 1, "p", "first"), noted(4, "insert", 2, "q", "second"))
    running = operator(followed(log, patience=0.3))
    assert fed(running, 1) == [(1, 1, "first")]
    saved = running.snapshot()
    log.stop()
    try:
        with pytest.raises(InputError) as error:
            fed(running, 4)
    finally:
        log.start()
    said = str(error.value)
    for words in ("relation 'pair'", "cannot be reached", "0.3 seconds", "the last checkpoint"):
        assert words in said
    again = restore_operator(operator(followed(log)).plan, saved)
    assert fed(again, 4) == [(4, 4, "first")]
    assert fed(again, 5) == [(5, 5, "second")]
    assert again.ledger().streams["r"].arrived == 3


def test_what_cannot_be_read(database: Server) -> None:
    database.run("CREATE TABLE IF NOT EXISTS empty (a bigint)")

    def told(relation: Any) -> str:
        with pytest.raises(InputError) as error:
            JOIN.through(relation, r="a", s="b").replay(r=R, s=S)
        return str(error.value)

    said = told(ss.postgres(database.url, "nowhere"))
    assert "relation 'relation'" in said
    assert "'nowhere'" in said
    assert "check the names" in said
    assert "has no column 'b'" in told(ss.postgres(database.url, "empty"))
    growing = ss.postgres(database.url, "empty", version="a")
    assert "relation(changes=…)" in told(growing)
    secret = ss.postgres("postgresql://me:secret@127.0.0.1:1/x", "pairs", patience=0)
    said = told(secret)
    assert "postgresql://127.0.0.1:1/x cannot be reached" in said
    assert "secret" not in said + repr(secret)


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda: ss.postgres("mysql://x", "t"), ["'mysql://x'", "postgresql://user@host/name"]),
        (lambda: ss.postgres("postgresql://x/y", ""), ["the table", "''"]),
        (lambda: ss.postgres("postgresql://x/y", "t", version=3), ["`version`", "3"]),
        (lambda: ss.postgres("postgresql://x/y", "t", every=-1), ["`every`", "-1", "seconds"]),
    ],
)
def test_what_cannot_be_is_refused_at_once(say: Any, words: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        say()
    for word in words:
        assert word in str(error.value)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    table = ss.postgres("postgresql://x/y", "pairs")
    with pytest.raises(StreamshedError, match=r"relation 'relation'.*streamshed\[postgres\]"):
        JOIN.through(table, r="a", s="b").replay(r=R, s=S)
