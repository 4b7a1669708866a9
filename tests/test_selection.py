"""Results with chosen columns: the same results, and nothing kept that they do not need."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamshed as ss
from harness import driven, inputs, multiset, replayed, spec
from oracles.rows import Workload
from oracles.workloads import POLICIES, workloads
from streamshed.replay import Replay

slow_generation = settings(
    max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
TWO = ss.join("a", "b").on("k").within(5, time="ts")


def projected(results: pa.Table, paths: Sequence[str]) -> list[dict[str, Any]]:
    """Whole results with the chosen columns only, streams in their order."""
    chosen: dict[str, list[str]] = {}
    for path in paths:
        stream, _, column = path.partition(".")
        chosen.setdefault(stream, []).append(column)

    def only(member: Any, columns: list[str]) -> Any:
        if isinstance(member, list):
            return [only(one, columns) for one in member]
        if not isinstance(member, dict) or columns == [""]:
            return member
        return {name: member[name] for name in columns}

    names = [name for name in results.column_names if name in (*chosen, "time")]
    return [
        {name: only(result[name], chosen.get(name, [""])) for name in names}
        for result in results.to_pylist()
    ]


def quietly(said: ss.Join, workload: Workload) -> Replay:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # late rows are expected here
        return said.replay(inputs(workload), order="arrival")


@st.composite
def selections(draw: st.DrawFn, workload: Workload) -> list[str]:
    """Some columns of some streams in any order, whole streams, or the time alone."""
    paths = []
    for stream in ["members"] if workload.by else workload.names:
        columns = ["k", "ts", "row", "worth", *(["stream"] if workload.by else [])]
        some = draw(st.permutations(columns))[: draw(st.integers(0, len(columns)))]
        whole = draw(st.integers(0, 5)) == 0
        paths += [str(stream)] if whole else [f"{stream}.{column}" for column in some]
    return draw(st.permutations(paths)) or ["time"]


def check_projection(workload: Workload, paths: Sequence[str]) -> None:
    whole, chosen = (quietly(said, workload) for said in (_said(workload), _said(workload, paths)))
    expected = projected(whole.table, paths)
    found = chosen.table.to_pylist()
    assert found == expected
    assert [list(result) for result in found] == [list(result) for result in expected]
    assert chosen.ledger.streams == whole.ledger.streams
    assert chosen.ledger.results == whole.ledger.results == len(found)
    assert chosen.ledger.payload_bytes <= whole.ledger.payload_bytes
    for name, late in chosen.late.items():
        assert late.to_pylist() == whole.late[name].select(late.column_names).to_pylist()


def _said(workload: Workload, paths: Sequence[str] = ()) -> ss.Join:
    return spec(workload).select(*paths) if paths else spec(workload)


@pytest.mark.parametrize("kind", ["complete", "partial", "by"])
def test_a_selection_is_a_projection_of_the_whole(kind: str) -> None:
    @slow_generation
    @given(workloads(by=kind == "by", partial=kind != "complete"), st.data())
    def check(workload: Workload, data: st.DataObject) -> None:
        check_projection(workload, data.draw(selections(workload)))

    check()


@pytest.mark.parametrize("policy", POLICIES)
def test_restarts_of_a_selection_change_nothing(policy: str) -> None:
    """The state has no more columns than are needed, also where rows are shed by one of them."""

    @settings(slow_generation, max_examples=15)
    @given(workloads(budget=True, policies=[policy]), st.data())
    def check(workload: Workload, data: st.DataObject) -> None:
        cuts = sorted(data.draw(st.sets(st.integers(0, len(workload.rows)), max_size=5)))
        expected, ledger = replayed(workload)
        said = _said(workload, [f"{name}.row" for name in workload.names])
        *_, (_, results, found, operator) = driven(workload, cuts, restore=True, join=said)
        assert multiset(results) == multiset(expected)
        assert found.streams == ledger.streams
        needed = {"k", "row", "__arrival", "__mark", *(["ts"] if workload.timed else ["__time"])}
        for segment in operator.snapshot().segments.values():
            assert needed | ({"worth"} if policy == "column" else set()) >= {*segment.schema.names}

    check()


def wide(seed: int, rows: int, key: str = "int") -> pa.Table:
    """Rows with a column that is large, and one whose name has dots."""
    random = np.random.default_rng(seed)
    keys = random.integers(0, rows // 10, rows)
    return pa.table(
        {
            "k": keys if key == "int" else [f"key {k}" for k in keys],
            "ts": np.arange(rows),
            "text": ["x" * 100] * rows,
            "a.row": np.arange(rows),
        }
    )


@pytest.mark.parametrize("key", ["int", "text"])
def test_a_selection_is_what_duckdb_says(key: str) -> None:
    a, b = wide(1, 2_000, key), wide(2, 2_000, key)
    done = TWO.within(100, time="ts").select("b.a.row").replay(a=a, b=b)
    assert done.table.schema.names == ["b", "time"]
    expected = duckdb.sql(
        """
        select b."a.row", greatest(a.ts, b.ts) from a join b using (k)
        where abs(a.ts - b.ts) <= 100 order by all
        """
    ).fetchall()
    assert len(expected) > 500
    assert sorted((r["b"]["a.row"], r["time"]) for r in done.table.to_pylist()) == expected


def test_nothing_is_kept_that_is_not_needed() -> None:
    """Rows that come piece by piece, of which one stream's are not asked for at all."""
    rows = 150_000
    a, b = wide(1, rows), wide(2, rows)

    def read(said: ss.Join) -> tuple[pa.Table, ss.Ledger]:
        readers = [
            pa.RecordBatchReader.from_batches(table.schema, table.to_batches(1_000))
            for table in (a, b)
        ]
        batches = said.replay_batches(a=readers[0], b=readers[1])
        table = pa.Table.from_batches(batches, batches.schema)
        return table, batches.ledger

    said = TWO.within(20_000, time="ts")
    whole, costs = read(said)
    for paths in (["b.a.row"], ["b.ts", "b.a.row"], ["time"]):
        chosen, ledger = read(said.select(*paths))
        assert chosen["time"].equals(whole["time"])
        if paths != ["time"]:
            place = whole["b"].combine_chunks().field("a.row")
            assert chosen["b"].combine_chunks().field("a.row").equals(place)
        assert ledger.streams == costs.streams
        columns = sum("." in path for path in paths)
        # A row counts 8 bytes for each number; up to half of the rows that are kept have left.
        assert ledger.payload_bytes <= 8 * columns * (2 * ledger.streams["b"].stored + 2**17)
        assert ledger.payload_bytes < costs.payload_bytes / 5


@pytest.mark.parametrize("count", [False, True])
def test_columns_that_are_not_needed_are_not_read(tmp_path, count: bool) -> None:
    table = wide(3, 500)
    for name in "ab":
        pq.write_table(table, tmp_path / name, compression="none", use_dictionary=False)
    file = tmp_path / "a"
    text = pq.ParquetFile(file).metadata.row_group(0).column(2)
    assert text.path_in_schema == "text"
    content = bytearray(file.read_bytes())
    start = text.data_page_offset
    content[start : start + text.total_compressed_size] = b"\xff" * text.total_compressed_size
    file.write_bytes(content)
    paths = {name: tmp_path / name for name in "ab"}
    with pytest.raises(OSError, match=r"(?i)page|thrift|deserialize"):
        TWO.replay(paths)
    expected = TWO.count(a=table, b=table).results
    if count:
        assert TWO.count(paths).results == expected
    else:
        assert TWO.select("a.a.row", "b").replay(paths).table.num_rows == expected


def test_late_rows_have_the_columns_that_the_join_needs() -> None:
    a = pa.table({"other": [0] * 4, "ts": [1, 9, 10, 3], "k": [1] * 4, "row": range(4)})
    said = TWO.within(5, time="ts", late=1).select("b.row")
    late = said.replay(a=a, b=a.slice(0, 2), order="arrival").late
    assert late["a"].to_pylist() == [{"ts": 3, "k": 1}]
    assert late["b"].column_names == ["ts", "k", "row"]


def test_members_that_are_null_and_members_that_are_not_there() -> None:
    rows = pa.table({"k": [1], "ts": [1], "text": pa.array([None], pa.string())})
    said = ss.join("a", "b", "c", "d").on("k").within(5, time="ts").partial()
    done = said.select("a.text", "c.text", "d.k").replay(
        a=rows, b=rows, c=rows.slice(0, 0), d=rows.slice(0, 0)
    )
    assert done.table.to_pylist() == [{"a": {"text": None}, "c": None, "d": None, "time": 1}]
