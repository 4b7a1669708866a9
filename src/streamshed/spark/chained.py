"""A join by Spark's own means, to compare with: two-way joins, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def chained(
    streams: Mapping[str, DataFrame], key: str, time: str, within: str, how: str = "inner"
) -> DataFrame:
    """The complete join of streams on a key, within a window.

    Args:
        streams: streaming DataFrames in order of time, so that watermarks have no delay.
        key: the key column.
        time: the time column.
        within: the length of the window, as in SQL: `10 minutes`.
        how: the kind of join, as Spark calls it.

    Returns:
        A DataFrame with the columns of every stream, named `stream_column`.
    """
    window = f.expr(f"interval {within}")

    def side(name: str) -> DataFrame:
        frame = streams[name].withWatermark(time, "0 seconds")
        return frame.select(*(f.col(column).alias(f"{name}_{column}") for column in frame.columns))

    first, *others = streams
    frame, joined = side(first), [first]
    for name in others:
        mine = f"{name}_{time}"
        condition = f.col(f"{first}_{key}") == f.col(f"{name}_{key}")
        for other in joined:
            theirs = f.col(f"{other}_{time}")
            condition &= f.col(mine).between(theirs - window, theirs + window)
        frame = frame.join(side(name), condition, how)
        # Spark joins no further while two columns carry the mark of an event's time.
        frame = frame.withColumn(mine, f.col(mine).alias(mine, metadata={}))
        joined.append(name)
    return frame
