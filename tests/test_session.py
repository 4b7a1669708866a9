"""Sessions: the results of replay, however rows are cut into pushes and wherever one restarts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss

TWO = ss.join("a", "b").on("k").within(20, time="ts")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("row", pa.int64())])
SCHEMAS = {"a": SCHEMA, "b": SCHEMA}


def stream(seed: int, rows: int = 300) -> pa.Table:
    random = np.random.default_rng(seed)
    keys = pa.array(random.integers(0, 8, rows), mask=random.random(rows) < 0.02)
    return pa.table({"k": keys, "ts": np.arange(rows), "row": np.arange(rows)}, SCHEMA)


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    return [(row["a"]["row"], row["b"]["row"]) for row in table.to_pylist()]


def parts(table: pa.Table, ends: list[int]) -> list[pa.Table]:
    starts = [0, *ends]
    return [table.slice(s, e - s) for s, e in zip(starts, [*ends, len(table)], strict=True)]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("ends", [[100, 200], [1, 2, 150], []])
def test_any_cut_into_pushes_makes_the_results_of_replay(ends: list[int], restart: bool) -> None:
    a, b = stream(1), stream(2)
    expected = TWO.replay(a=a, b=b)
    session, made = TWO.open(SCHEMAS), []
    for one, other in zip(parts(a, ends), parts(b, ends), strict=True):
        # However the rows of one call stand, they are processed in the order of time.
        made.append(session.push(a=one.take(list(range(len(one)))[::-1]), b=other))
        assert session.ledger.balanced
        if restart:
            state = session.snapshot()
            session.close()
            session = TWO.open(SCHEMAS, state=state)
    table = pa.concat_tables(made)
    assert table.schema == session.schema == expected.table.schema
    assert sorted(pairs(table)) == sorted(pairs(expected.table))
    assert session.ledger.streams == expected.ledger.streams
    assert session.ledger.results == expected.ledger.results


def test_rows_within_a_call_come_in_the_order_of_time_or_as_they_stand() -> None:
    a = pa.table({"k": [1, 1, 1], "ts": [50, 60, 0], "row": [0, 1, 2]}, SCHEMA)
    b = pa.table({"k": [1, 1], "ts": [0, 55], "row": [0, 1]}, SCHEMA)
    with TWO.open(SCHEMAS) as session:
        assert sorted(pairs(session.push(a=a, b=b))) == [(0, 1), (1, 1), (2, 0)]
        assert session.late == {}
    with TWO.open(SCHEMAS) as session:
        assert sorted(pairs(session.push({"a": a, "b": b}, order="arrival"))) == [(0, 1), (1, 1)]
        assert session.late["a"].to_pylist() == [{"k": 1, "ts": 0, "row": 2}]
        assert session.ledger.streams["a"].late == 1
        # In a later call rows are late in either order, and a call without rows makes nothing.
        assert session.push(a=a.slice(2)).num_rows == 0
        assert session.late["a"].num_rows == 1
        assert session.push().num_rows == session.push(a=a.slice(3)).num_rows == 0
        assert session.late == {}
    assert session.ledger.streams["a"].late == 2


def test_rows_are_taken_in_any_form() -> None:
    a, b = stream(1, 50), stream(2, 50)
    expected = pairs(TWO.replay(a=a, b=b).table)
    with TWO.open(SCHEMAS) as session:
        # Other columns are left alone, whatever their order.
        wide = a.append_column("more", pa.array(["x"] * 50)).select(["more", "row", "ts", "k"])
        made = session.push(a=wide.to_reader(), b=b.combine_chunks().to_batches()[0])
    assert sorted(pairs(made)) == sorted(expected)


def test_what_cannot_be_read_leaves_no_trace() -> None:
    small = ss.join("a", "b").on("k").within(20, time="ts")
    far = pa.table({"k": [1], "ts": [2**62], "row": [0]}, SCHEMA)
    with small.open(SCHEMAS) as session:
        with pytest.raises(ss.InputError, match=r"stream 'b', column 'ts'.*beyond"):
            session.push(a=stream(1, 5), b=far)
        assert session.ledger.streams["a"].arrived == 0
        made = session.push(a=stream(1, 50), b=stream(2, 50))
    assert made.num_rows == small.count(a=stream(1, 50), b=stream(2, 50)).results


def test_streams_that_a_column_names() -> None:
    said = ss.join(by="who").on("k").within(20, time="ts").select("members.row")
    rows = pa.table({"who": ["x", "y"], "k": [1, 1], "ts": [1, 2], "row": [0, 1]})
    with said.open(rows.schema) as session:
        assert session.push(rows.slice(0, 1)).num_rows == 0
        assert session.push(rows.slice(1)).to_pylist() == [
            {"time": 2, "members": [{"row": 1}, {"row": 0}]}
        ]


def test_a_session_that_spills_goes_on_from_its_files(tmp_path: Path) -> None:
    said = TWO.keep(total=30).spill(to=tmp_path)
    a, b = stream(1), stream(2)
    made, state = [], None
    for one, other in zip(parts(a, [150]), parts(b, [150]), strict=True):
        with said.open(SCHEMAS, state=state) as session:
            made.append(session.push(a=one, b=other))
            state = session.snapshot()
    # Whoever only looks does not remove what the state refers to.
    said.open(SCHEMAS, state=state).close()
    with said.open(SCHEMAS, state=state) as session:
        made.append(session.finish())
        with pytest.raises(ss.StateError, match=r"the session has finished.*state=…"):
            session.push(a=a)
    assert sorted(pairs(pa.concat_tables(made))) == sorted(pairs(TWO.replay(a=a, b=b).table))
    assert list(tmp_path.iterdir()) == []


def test_what_a_session_refuses() -> None:
    with pytest.raises(ss.SpecError, match=r"\.aggregate\(\).*\.open\(\).*needs all of them"):
        TWO.aggregate("a.row", over=5).open(SCHEMAS)
    with pytest.raises(ss.StateError, match=r"`state` is a str; give the bytes.*snapshot"):
        TWO.open(SCHEMAS, state="state")  # type: ignore[arg-type]
    with pytest.raises(ss.StateError, match="not a complete snapshot"):
        TWO.open(SCHEMAS, state=b"state")
    with pytest.raises(ss.InputError, match=r"a int was given instead of a schema"):
        TWO.open({"a": 1, "b": SCHEMA})
    session = TWO.open(SCHEMAS)
    rows = stream(1, 5)
    for say, words in [
        (lambda: session.push(rows), r"by position.*'a', 'b'.*push\(a=…, b=…\)"),
        (lambda: session.push({"a": rows}, b=rows), "both by position and by name"),
        (
            lambda: session.push(dict.fromkeys("ab", rows.to_reader())),
            "'a' and 'b' were given the same RecordBatchReader",
        ),
        (lambda: session.push(c=rows), r"no stream 'c'.*'a', 'b'"),
        (lambda: session.push(a=rows.drop_columns("row")), r"'a' have no column 'row'.*'k', 'ts'"),
        (
            lambda: session.push(a=rows.set_column(0, "k", rows["k"].cast(pa.int32()))),
            r"column 'k' of stream 'a' is of type int32, but.*int64; cast it",
        ),
    ]:
        with pytest.raises(ss.InputError, match=words):
            say()
    with pytest.raises(ss.SpecError, match=r"`order` is 'any'; give 'time' or 'arrival'"):
        session.push(a=rows, order="any")  # type: ignore[arg-type]
    session.close()
    session.close()
    with pytest.raises(ss.StateError, match=r"the session has closed"):
        session.snapshot()


def test_a_session_that_fails_is_over() -> None:
    def picky(one, other):  # type: ignore[no-untyped-def]
        if one.row == 3:
            raise ValueError("three")
        return True

    said = ss.join("a", "b").on(ss.where(picky, "row")).within(20, time="ts")
    session = said.open(SCHEMAS)
    with pytest.raises(ss.StreamshedError, match="three"):
        session.push(a=stream(1, 9), b=stream(2, 9))
    with pytest.raises(ss.StateError, match="the session has failed"):
        session.push(a=stream(1, 9))
    session.close()
