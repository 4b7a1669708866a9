"""DuckDB, beside which joins without a budget are timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamshed.errors import StreamshedError


def database(tables: Mapping[str, pa.Table]) -> Any:
    """A database on two threads that knows the tables by name."""
    try:
        import duckdb
    except ImportError as error:
        raise StreamshedError("this benchmark needs DuckDB: install streamshed[frames]") from error
    engine = duckdb.connect()
    engine.execute("set threads = 2")
    for name, table in tables.items():
        engine.register(name, table)
    return engine
