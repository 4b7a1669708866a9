"""Aggregates of a join's results in windows of time, as a Spark DataFrame.

Spark gathers the results of each window, and drops what is over by its own watermark; what is made
of them is what `replay(…).aggregate` makes (`streamshed.aggregates`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from streamshed.aggregates import Weights, Windows, summary
from streamshed.durations import parse, to_units
from streamshed.engine.results import result_schema
from streamshed.errors import SpecError
from streamshed.plan.plan import Plan
from streamshed.spark.processor import JoinProcessor, shard_plans
from streamshed.spark.streaming import compiled, pipeline, prepared

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamshed.join import Join

WEIGHTS = ("weight", "weight_low", "weight_high")
"""Columns besides the results: what each stands for."""
VALUES = ("number", "value", *WEIGHTS)
"""What Spark gathers of each result: its time as a number, what is aggregated, and those."""


def stream_aggregate(
    join: Join,
    data: Mapping[str, DataFrame],
    of: str,
    over: Any,
    every: Any = None,
    quantiles: Sequence[float] = (0.25, 0.5, 0.75),
    wait: Any = None,
    shards: int | None = None,
) -> DataFrame:
    """Aggregates of the results of DataFrames: streaming if they stream, batch otherwise.

    Args:
        join: what to do.
        data: the DataFrame of each stream.
        of: the column, as in `"clicks.price"`.
        over: the length of a window.
        every: how far apart windows end, at multiples of this; as long as they are if not said.
        quantiles: the parts of results for which the value is asked up to which they lie.
        wait: how far results may be behind the newest one; the longest window and what may be late
            unless said, and no result is further behind than that.
        shards: in how many parts the join is done.
    """
    plan, frames, labels = prepared(join, data, shards)
    windows = Windows.of_results(result_schema(plan), of, over, every, quantiles)
    behind = _behind(plan, windows, wait)
    processor = JoinProcessor(shard_plans(plan, labels), weights=WEIGHTS)
    results = pipeline(compiled(plan), frames, labels, processor, weighed(result_schema(plan)))
    stream, _, column = of.partition(".")
    value = f.col(stream).getField(column).cast("double")
    unit = _unit(windows)
    # A window of Spark's has its beginning and not its end; ours its end and not its beginning.
    number = _number(windows)
    at = f.timestamp_micros(number * unit - 1)
    values = results.select(at.alias("at"), number.alias("number"), value.alias("value"), *WEIGHTS)
    step = windows.every
    length = max(windows.over, step)
    slide = f.window(
        "at", *(f"{many * unit} microseconds" for many in (length, step, -length % step))
    )
    gathered = (
        values.where("value is not null")
        .withWatermark("at", f"{behind * unit} microseconds")
        .groupBy(slide.alias("w"))
        .agg(f.collect_list(f.struct(*VALUES)).alias("r"))
        .select(f.expr(f"unix_micros(w.end) div {unit}").alias("end"), "r")
    )
    summarise = Summarise(windows, plan.policy.makes_sample)
    return gathered.mapInArrow(summarise, from_arrow_schema(windows.schema))


def weighed(schema: pa.Schema) -> pa.Schema:
    """The columns of results that say what they stand for."""
    for name in WEIGHTS:
        schema = schema.append(pa.field(name, pa.float64()))
    return schema


def _unit(windows: Windows) -> int:
    """How many microseconds a unit of time is for Spark, whose watermarks are in milliseconds."""
    return 1 if pa.types.is_timestamp(windows.time) else 1000


def _number(windows: Windows) -> Column:
    """The time of results as a number, whatever its type."""
    if not pa.types.is_timestamp(windows.time):
        return f.col("time")
    if windows.time.tz is not None:
        return f.unix_micros("time")
    # As an instant it would be read in the time zone of the session.
    return f.expr("timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01', time)")


def _behind(plan: Plan, windows: Windows, wait: Any) -> int:
    """How far a result can be behind the newest."""
    if wait is not None:
        return to_units(parse(wait, "`wait`"), pa.types.is_timestamp(windows.time), "`wait`")
    longest = [stream.window for stream in plan.streams if stream.window is not None]
    if len(longest) < len(plan.streams):
        raise SpecError(
            "stream_aggregate(): a window of rows does not tell how far results may be behind the "
            "newest one; say how long to `wait` for them"
        )
    return max(longest) + plan.late


@dataclass(frozen=True)
class Summarise:
    """Turns the results of windows into their aggregates."""

    windows: Windows
    sampled: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Summarise the windows of one part, one after the other."""
        for batch in batches:
            ends, gathered = batch.column("end").to_numpy(), batch.column("r")
            rows = [
                self._window(end, results.values)
                for end, results in zip(ends.tolist(), gathered, strict=True)
            ]
            yield from self.windows.table(ends, rows).to_batches()

    def _window(self, end: int, results: pa.StructArray) -> dict[str, Any]:
        results = results.filter(pc.greater(results.field("number"), end - self.windows.over))
        order = np.argsort(results.field("number").to_numpy(), kind="stable")
        times, values, *weights = (
            results.field(name).to_numpy(zero_copy_only=False)[order] for name in VALUES
        )
        return summary(times, values, end, self.windows, Weights(*weights), self.sampled)
