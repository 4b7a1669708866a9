"""DuckDB, beside which joins without a budget are timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamshed.errors import StreamshedError
from streamshed_lab.bench import Measurement
from streamshed_lab.bench.timing import best_of, wall_time

if TYPE_CHECKING:
    from streamshed.join import Join


def beside(
    join: Join, tables: Mapping[str, pa.Table], query: str, repeats: int, setting: str, bar: float
) -> Iterator[Measurement]:
    """Time a join of tables and the same in SQL, in turn, each to a table of results.

    Args:
        join: without a budget.
        tables: its inputs, and the database's.
        query: the join in SQL.
        repeats: how often each is timed.
        setting: what is joined, in words.
        bar: how many times as long as DuckDB the join may take.
    """
    engine = _database(tables)
    found: dict[str, int] = {}

    def ours() -> None:
        found["ours"] = join.replay(tables).table.num_rows

    def theirs() -> None:
        found["DuckDB's"] = engine.sql(query).to_arrow_table().num_rows

    ours()
    theirs()
    if found["ours"] != found["DuckDB's"]:
        raise StreamshedError(f"the results differ in number, so no times are compared: {found}")
    best = best_of(
        repeats, {"ours": partial(wall_time, ours), "DuckDB": partial(wall_time, theirs)}
    )
    yield Measurement(f"results, {setting}", found["ours"], "results")
    yield Measurement(f"our time, {setting}", best["ours"], "s")
    yield Measurement(f"DuckDB's time on 2 threads, {setting}", best["DuckDB"], "s")
    ratio = best["ours"] / best["DuckDB"]
    name = f"our time against DuckDB's, {setting}"
    yield Measurement(name, ratio, "times", bar=bar, at_most=True)


def _database(tables: Mapping[str, pa.Table]) -> Any:
    """A database on two threads that knows the tables by name."""
    try:
        import duckdb
    except ImportError as error:
        raise StreamshedError("this benchmark needs DuckDB: install streamshed[lab]") from error
    engine = duckdb.connect()
    engine.execute("set threads = 2")
    for name, table in tables.items():
        engine.register(name, table)
    return engine
