"""Aggregates of a join's results in windows of time, as a Spark DataFrame.

Spark gathers the results of each window, and drops what is over by its own watermark; what is made
of them is what replay makes (`streamshed.aggregates`). So that it need not hold all results, those
of a batch are condensed before: where there are many in a sixteenth of a window, groups of
neighbours in value stand together, with their mean. Counts, sums and averages stay what they are,
and quantiles are off by a small part of the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from streamshed.aggregates import PIECES, Weights, Windows, summary
from streamshed.errors import SpecError
from streamshed.plan.plan import Plan
from streamshed.spark.types import struct_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WEIGHTS = ("weight", "weight_low", "weight_high")
"""Columns besides the results: what each stands for."""
VALUES = ("number", "value", *WEIGHTS, "many")
"""What Spark gathers of results: their time as a number, what is aggregated, those, and of how
many."""
CONDENSED = ", ".join(
    f"{name} {'long' if name in ('number', 'many') else 'double'}" for name in VALUES
)
GROUPS = 256
"""Groups of neighbours in value, at most, that stand for the results of a batch in a sixteenth of a
window."""
_AT_ONCE = 1 << 18
"""Results that are condensed at once."""


@dataclass(frozen=True)
class Aggregates:
    """The aggregates that a plan asks for."""

    plan: Plan
    windows: Windows

    def __post_init__(self) -> None:
        self._behind()

    def of(self, results: DataFrame) -> DataFrame:
        """The aggregates of results that say what they stand for (`weighed`).

        Args:
            results: the results of all shards.
        """
        windows = self.windows
        member = f.col(_quoted(windows.stream))
        if self.plan.by is not None:  # each member counts for itself
            results = results.select("time", *WEIGHTS, f.explode(member).alias(windows.stream))
        value = member.getField(windows.column).cast("double")
        unit = _unit(windows)
        # A window of Spark's has its beginning and not its end; ours its end and not its beginning.
        number = _number(windows)
        at = f.timestamp_micros(f.col("number") * unit - 1)
        values = (
            results.select(number.alias("number"), value.alias("value"), *WEIGHTS)
            .where("value is not null")
            .mapInArrow(Condense(windows), CONDENSED)
            .withColumn("at", at)
        )
        step = windows.every
        length = max(windows.over, step)
        slide = f.window(
            "at", *(f"{many * unit} microseconds" for many in (length, step, -length % step))
        )
        gathered = (
            values.withWatermark("at", f"{self._behind() * unit} microseconds")
            .groupBy(slide.alias("w"))
            .agg(f.collect_list(f.struct(*VALUES)).alias("r"))
            .select(f.expr(f"unix_micros(w.end) div {unit}").alias("end"), "r")
        )
        summarise = Summarise(windows, self.plan.policy.makes_sample)
        return gathered.mapInArrow(summarise, struct_of(windows.schema))

    def _behind(self) -> int:
        """How far a result can be behind the newest."""
        if self.windows.wait is not None:
            return self.windows.wait
        lengths = [stream.window for stream in self.plan.streams if stream.window is not None]
        if len(lengths) < len(self.plan.streams):
            raise SpecError(
                ".aggregate(): a row window does not bound how far results may be behind the "
                "newest one; say how long to `wait` for them, as in .aggregate(…, wait='1 minute')"
            )
        return max(lengths) + self.plan.late


def _quoted(name: str) -> str:
    """A column's name as Spark takes it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"


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


@dataclass(frozen=True)
class Condense:
    """Puts many results together that are in the same windows, and near each other in value."""

    windows: Windows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Condense the results of one part."""
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if sum(one.num_rows for one in waiting) >= _AT_ONCE:
                yield self._condensed(pa.concat_batches(waiting))
                waiting = []
        if sum(one.num_rows for one in waiting):
            yield self._condensed(pa.concat_batches(waiting))

    def _condensed(self, results: pa.RecordBatch) -> pa.RecordBatch:
        number, value, *weights = (
            results.column(name).to_numpy(zero_copy_only=False) for name in VALUES[:-1]
        )
        over, every = self.windows.over, self.windows.every
        # Results in the same windows: none of them begins or ends in between.
        places = [number * PIECES // over, -(-number // every), -(-(number + over) // every)]
        slices = np.unique(np.stack(places), axis=1, return_inverse=True)[1].ravel()
        order = np.lexsort((value, slices))
        sizes = np.bincount(slices)
        size = np.repeat(sizes, sizes)
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        group = np.where(size > GROUPS, rank * GROUPS // size, rank)
        first = np.flatnonzero(np.diff(group, prepend=-1) | np.diff(slices[order], prepend=-1))
        many = np.diff(first, append=len(order))

        def summed(column: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            found: npt.NDArray[np.float64] = np.add.reduceat(column[order], first)
            return found

        weight = summed(weights[0])
        means = {name: summed(one) / many for name, one in zip(WEIGHTS, weights, strict=True)}
        values = np.where(many > 1, summed(weights[0] * value) / weight, value[order][first])
        whole = {"number": number[order][first], "value": values, **means, "many": many}
        return pa.record_batch(whole)


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
        many = results.field("many").to_numpy()[order]
        times, values, *weights = (
            np.repeat(results.field(name).to_numpy(zero_copy_only=False)[order], many)
            for name in VALUES[:-1]
        )
        return summary(times, values, end, self.windows, Weights(*weights), self.sampled)
