"""Spark's types for those of Arrow, the same with every version of Spark.

Spark 4.1 takes a time without a zone for one in the session's zone, unless told not to; results
would then leave with a zone that their streams did not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def type_of(kind: pa.DataType) -> DataType:
    """Spark's type of a column."""
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def struct_of(schema: pa.Schema) -> StructType:
    """Spark's schema of a table."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
