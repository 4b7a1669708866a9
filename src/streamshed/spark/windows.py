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
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from streamshed.aggregates import PIECES, UNKNOWN, WHOLE, Floats, Weights, Windows, summary
from streamshed.engine.observe.tallies import tally_of
from streamshed.errors import SpecError
from streamshed.estimates import Estimate
from streamshed.plan.plan import Plan
from streamshed.selection import TIME
from streamshed.spark.types import struct_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KNOWN = "streamshed known"
"""A column besides the results: of a row that is none it has the shard, and what that knows of all
results of a part of a window (`tally_of`), whose time the row has."""
VALUES = ("number", "value", "many", "made", "known")
"""What Spark gathers of results: their time as a number, what is aggregated, of how many, and of
how many results, with those that have no value; and what is known of all results."""
CONDENSED = "number long, value double, many long, made long, known array<double>"
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
        """The aggregates of results, among which there is what is known of all of them (`KNOWN`).

        Args:
            results: the results of all shards.
        """
        windows, known = self.windows, f.col(_quoted(KNOWN))
        member, first = f.col(_quoted(windows.stream)), f.lit(True)
        if self.plan.by is not None:  # each member counts for itself
            members = f.posexplode_outer(member).alias("place", windows.stream)
            results, first = results.select("time", known, members), f.col("place") == 0
        value = member.getField(windows.column).cast("double")
        made = (first & known.isNull()).cast("long")
        unit = _unit(windows)
        # A window of Spark's has its beginning and not its end; ours its end and not its beginning.
        number = _number(windows)
        at = f.timestamp_micros(f.col("number") * unit - 1)
        values = (
            results.select(
                number.alias("number"),
                value.alias("value"),
                made.alias("made"),
                known.alias("known"),
            )
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
        sheds = self.plan.bounded or self.plan.throttle is not None
        summarise = Summarise(windows, self.plan.policy.makes_sample, not sheds)
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


def with_known(schema: pa.Schema) -> pa.Schema:
    """The columns of results, and what is known of all of them."""
    return schema.append(pa.field(KNOWN, pa.list_(pa.float64())))


def with_nothing_known(results: pa.RecordBatch) -> pa.RecordBatch:
    """Results beside which nothing is said of others."""
    kind = pa.list_(pa.float64())
    return results.append_column(KNOWN, pa.nulls(len(results), kind))


def known_row(schema: pa.Schema, shard: int, time: int, known: Floats) -> pa.RecordBatch:
    """What a shard knows of all results of a part of a window, which has a time, as a row."""
    told = {TIME: pa.array([time]), KNOWN: pa.array([[float(shard), *known]])}
    columns = [
        told[field.name].view(field.type) if field.name in told else pa.nulls(1, field.type)
        for field in with_known(schema)
    ]
    return pa.record_batch(columns, with_known(schema))


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
        known = results.filter(results.column("known").is_valid())
        results = results.filter(results.column("known").is_null())
        number, value, made = (
            results.column(name).to_numpy(zero_copy_only=False)
            for name in ("number", "value", "made")
        )
        valued = results.column("value").is_valid().to_numpy(zero_copy_only=False)
        over, every = self.windows.over, self.windows.every
        # Results in the same windows: none of them begins or ends in between.
        places = [
            number * PIECES // over,
            -(-number // every),
            -(-(number + over) // every),
            valued,
        ]
        slices = np.unique(np.stack(places), axis=1, return_inverse=True)[1].ravel()
        order = np.lexsort((value, slices))
        sizes = np.bincount(slices)
        size = np.repeat(sizes, sizes)
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        group = np.where(size > GROUPS, rank * GROUPS // size, rank)
        group[~valued[order]] = 0  # they only count
        first = np.flatnonzero(np.diff(group, prepend=-1) | np.diff(slices[order], prepend=-1))
        alone = np.diff(first, append=len(order)) == 1
        many, results_made, summed = (
            np.add.reduceat(column[order], first) if len(first) else column
            for column in (valued.astype(np.int64), made, value)
        )
        with np.errstate(invalid="ignore"):
            means = np.where(alone, value[order][first], summed / many)
        parts = {"number": number[order][first], "value": means, "many": many, "made": results_made}
        nothing = np.zeros(len(known), np.int64)
        rest = {"number": known.column("number"), "value": known.column("value").cast("double")}
        parts["known"] = pa.nulls(len(first), pa.list_(pa.float64()))
        rest |= {"many": nothing, "made": nothing, "known": known.column("known")}
        return pa.concat_batches([pa.record_batch(parts), pa.record_batch(rest)])


@dataclass(frozen=True)
class Summarise:
    """Turns the results of windows into their aggregates.

    Attributes:
        windows: what to aggregate.
        sampled: whether the results are a sample of all.
        whole: whether they are all of them, if nothing is said of that.
    """

    windows: Windows
    sampled: bool
    whole: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Summarise the windows of one part, one after the other."""
        for batch in batches:
            windows = [
                (end, self._window(end, results.values))
                for end, results in zip(
                    batch.column("end").to_pylist(), batch.column("r"), strict=True
                )
            ]
            some = [(end, row) for end, row in windows if row["results"] or row["count"]]
            ends = np.array([end for end, _ in some], np.int64)
            yield from self.windows.table(ends, [row for _, row in some]).to_batches()

    def _window(self, end: int, results: pa.StructArray) -> dict[str, Any]:
        results = results.filter(pc.greater(results.field("number"), end - self.windows.over))
        results = results.take(np.argsort(results.field("number").to_numpy(), kind="stable"))
        many, made = (results.field(name).to_numpy() for name in ("many", "made"))
        times, values = (
            np.repeat(results.field(name).to_numpy(zero_copy_only=False), many)
            for name in ("number", "value")
        )
        exact = self._exact(results.field("known").drop_null())
        return summary(times, values, end, self.windows, exact, int(made.sum()), self.sampled)

    def _exact(self, known: pa.ListArray) -> Estimate | Weights:
        """The results without shedding, by what the shards know."""
        if not len(known):
            return WHOLE if self.whole else UNKNOWN
        of: dict[float, list[Floats]] = {}
        for one in known:
            shard, *numbers = one.values.to_numpy()
            of.setdefault(shard, []).append(np.array(numbers))
        return reduce(add, map(tally_of, of.values())).estimate()
