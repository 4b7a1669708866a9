"""A join as a Spark DataFrame: pack, join, observe, unpack."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

from streamshed.columns import no_rows
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import in_order_of_time, merged
from streamshed.engine.memory import within_memory
from streamshed.engine.results import result_schema
from streamshed.errors import InputError, SpecError, listed
from streamshed.plan.capabilities import check_runtime
from streamshed.plan.plan import Plan
from streamshed.plan.resolve import make_plan
from streamshed.plan.routing import (
    axes_of,
    best_shares,
    by_one_key,
    check_shards,
    check_spilling,
    smallest_budget,
)
from streamshed.shards import counted_rows
from streamshed.sources import spark_schema
from streamshed.spark.blobs import PACKED, Pack, PackChanges, Unpack
from streamshed.spark.changes import without_frame
from streamshed.spark.deferred import Deferred
from streamshed.spark.folders import checked_folder
from streamshed.spark.hypercube import shards_of
from streamshed.spark.processor import OUTPUT, JoinProcessor, shard_plans
from streamshed.spark.progress import Budgets, observed
from streamshed.spark.refreshing import follow
from streamshed.spark.savepoint import held_rows, read_savepoint
from streamshed.spark.settings import (
    check_python,
    cores,
    partitions,
    sparing_workers,
    start_coordinator,
    use_rocksdb,
)
from streamshed.spark.sharding import MOST, Sharding
from streamshed.spark.shipping import facts_apart, relation_rows, ship, ship_kernels
from streamshed.spark.types import struct_of
from streamshed.spark.windows import Aggregates, with_known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from streamshed.spec import Spec


def stream(
    spec: Spec,
    data: Mapping[str, DataFrame],
    shards: int | None = None,
    late_to: str | None = None,
    rates: Mapping[str, float] | None = None,
    resume: str | None = None,
) -> DataFrame:
    """The join of DataFrames as a DataFrame: streaming if they stream, batch otherwise.

    Args:
        spec: the join.
        data: the DataFrame of each stream.
        shards: the number of shards; by default `spark.sql.shuffle.partitions`, but at most 16, and
            1 for row windows and for streams that match different columns of a relation.
        late_to: a folder for rows that are too late, one Parquet file for each batch and shard: a
            path that all executors can write to, or a URI (`s3://…`).
        rates: the relative rates of the streams, equal by default, if the join copies rows to
            several shards.
        resume: a savepoint whose rows the join begins with, if it has no checkpoint yet.
    """
    late_to = None if late_to is None else checked_folder(late_to, "late_to")
    spec, changes = without_frame(spec)
    plan, frames, sharding = prepared(spec, data, shards, rates)
    if changes is not None and plan.through is not None and not frames[0].isStreaming:
        raise InputError(
            f"the changes of relation {plan.through.relation.name!r} stream, and the inputs do not;"
            " read the changes with spark.read, or the inputs with readStream"
        )
    check_spilling(plan, resume)
    aggregates = None if plan.aggregates is None else Aggregates(plan, plan.aggregates)
    session = frames[0].sparkSession
    held = None if resume is None else read_savepoint(resume, plan, session)
    compiled(plan)
    processor = JoinProcessor(plan, sharding, late_to, not frames[0].isStreaming, held)
    initial = None
    if resume is not None and held is not None:
        rows = [
            held_rows(session, resume, held.held, plan, position)
            for position in range(len(plan.streams))
        ]
        with sparing_workers(session):
            initial = packed_rows(plan, rows, sharding)
    schema = result_schema(plan)
    if aggregates is None:
        return pipeline(plan, frames, sharding, processor, schema, initial, changes)
    schema = with_known(schema)
    return aggregates.of(pipeline(plan, frames, sharding, processor, schema, initial, changes))


def prepared(
    spec: Spec,
    data: Mapping[str, DataFrame],
    shards: int | None,
    rates: Mapping[str, float] | None = None,
) -> tuple[Plan, list[DataFrame], Sharding]:
    """The plan of a join, its DataFrames in order, and its shards."""
    check_runtime(spec, "stream")
    through = spec.through_relation
    if through is not None and through.relation.refresh is not None:
        # A relation remembers what it has read, maybe for another query and long ago.
        spec = replace(spec, through_relation=replace(through, relation=through.relation.anew()))
    plan = make_plan(spec, {name: _arrow(name, frame) for name, frame in data.items()})
    frames = [data[stream.name] for stream in plan.streams]
    session = frames[0].sparkSession
    check_python(session)
    use_rocksdb(session)
    start_coordinator(session)
    sharding = _sharding(session, plan, shards)
    for part in shard_plans(plan, sharding).values():
        within_memory(part)  # to refuse here what no executor could hold
    if plan.throttle is not None and plan.throttle.wall and not frames[0].isStreaming:
        raise InputError(
            ".throttle('keep up') is for live data, and these inputs do not stream;"
            " read them with readStream, or give .throttle(cpu=…)"
        )
    if plan.queue is not None and not plan.queue.by_work and frames[0].isStreaming:
        plan = replace(plan, queue=plan.queue.by_wall())
    if own := axes_of(plan):
        sharding = replace(sharding, shards=sharding.count)
        plan = replace(plan, shares=best_shares(own, _rates(plan, rates), sharding.count))
    elif rates is not None:
        raise SpecError(
            f"rates is {dict(rates)!r}, but it matters only where streams share no key and rows"
            " are copied to several shards; leave it out"
        )
    given, rows, versions = plan, None, None
    if plan.through is not None:
        rows = relation_rows(plan.through)
    plan, cells = ship(given, rows, session, sharding.count)
    if given.through is not None and frames[0].isStreaming:
        versions = follow(given, rows, session, facts_apart(given, sharding.count))
    if cells is not None:  # which were divided for so many shards, whatever a checkpoint says
        sharding = replace(sharding, shards=sharding.count)
    return plan, frames, replace(sharding, cells=cells, versions=versions)


def _rates(plan: Plan, rates: Mapping[str, float] | None) -> list[float]:
    """How many rows of each input come: as many of each, unless said."""
    names = [stream.name for stream in plan.streams]
    if rates is None:
        return [1.0] * len(names)
    if {*rates} != {*names} or not all(rate > 0 for rate in rates.values()):
        raise SpecError(f"rates is {dict(rates)!r}; give each of {listed(names)} a number above 0")
    return [float(rates[name]) for name in names]


def pipeline(
    plan: Plan,
    frames: list[DataFrame],
    sharding: Sharding,
    processor: StatefulProcessor,
    schema: pa.Schema | None = None,
    initial: DataFrame | None = None,
    changes: DataFrame | None = None,
) -> DataFrame:
    """Pack, process, observe, unpack.

    Args:
        plan: the join.
        frames: the DataFrame of each stream.
        sharding: the shards.
        processor: what is done with the blobs of a shard.
        schema: of what it makes; that of results, unless said.
        initial: blobs that shards begin with, if any.
        changes: of the relation, if they stream.
    """
    with sparing_workers(frames[0].sparkSession):
        packed = packed_rows(plan, frames, sharding)
        if changes is not None:
            packed = packed.union(_packed_changes(plan, changes, sharding))
        return processed(plan, packed, processor, schema, initial)


def _packed_changes(plan: Plan, changes: DataFrame, sharding: Sharding) -> DataFrame:
    """The changes of a relation as blobs for all shards."""
    assert plan.through is not None
    schema = plan.through.relation.change_schema(plan.through.schema)
    names = ["`" + name.replace("`", "``") + "`" for name in schema.names]
    return changes.select(*names).mapInArrow(PackChanges(schema, sharding), PACKED)


def packed_rows(plan: Plan, frames: list[DataFrame], sharding: Sharding) -> DataFrame:
    """The rows of all streams as blobs for their shards."""
    kernels = ship_kernels(frames[0].sparkSession)
    packed = [
        _packed(frame, plan, Pack(position, plan, sharding, kernels=kernels))
        for position, frame in enumerate(frames)
    ]
    return reduce(lambda one, other: one.union(other), packed)


def processed(
    plan: Plan,
    packed: DataFrame,
    processor: StatefulProcessor,
    schema: pa.Schema | None = None,
    initial: DataFrame | None = None,
) -> DataFrame:
    """Process blobs, observe, unpack."""
    timed = plan.on_wall or getattr(processor, "refreshed", False)
    if hasattr(processor, "kernels"):
        processor.kernels = ship_kernels(packed.sparkSession)
        processor = Deferred(processor)
    if timed:
        # The time of the batch, which Spark writes down: if the batch is done again it is the same.
        # (With timers, which know it too, Spark would do empty batches without end.)
        packed = packed.withColumn("moment", f.unix_micros(f.current_timestamp()))
    joined = packed.groupBy("shard").transformWithStateInPandas(
        processor, OUTPUT, "Append", "None", None if initial is None else initial.groupBy("shard")
    )
    names = [plan.by] if plan.by is not None else [stream.name for stream in plan.streams]
    budgets = Budgets(plan.budget, None if plan.memory is None else plan.memory.nbytes)
    accounts = observed(joined, names, budgets)
    results = accounts.where(f.col("rows").isNotNull()).select("rows")
    schema = schema or result_schema(plan)
    return results.mapInArrow(Unpack(schema), struct_of(schema))


def _arrow(name: str, frame: Any) -> pa.Schema:
    if not hasattr(frame, "sparkSession"):
        raise InputError(
            f"for stream {name!r} a {type(frame).__name__} was given instead of a Spark DataFrame;"
            " use .replay(…) for data in this process"
        )
    return spark_schema(frame)


def _sharding(session: SparkSession, plan: Plan, shards: int | None) -> Sharding:
    check_shards(plan, shards)
    own = Sharding(partitions(session), cores=cores(session))
    if shards is not None:
        return replace(own, shards=shards)
    by_rows = any(stream.last is not None for stream in plan.streams)
    apart = plan.through is not None and not by_one_key(plan, plan.through)
    if by_rows or apart:
        return replace(own, shards=1)
    smallest = smallest_budget(plan)
    return replace(own, most=MOST if smallest is None else smallest)


def needed_columns(frame: DataFrame, plan: Plan, position: int) -> tuple[DataFrame, dict[str, str]]:
    """The columns of a stream that the join needs, and what each goes by."""
    # Spark takes a dot in a name for a field, so the columns go by their numbers.
    numbered = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    number_of = {name: f"c{number}" for number, name in enumerate(frame.columns)}
    chosen = [number_of[name] for name in plan.streams[position].schema.names]
    return numbered.select(*chosen), number_of


def _packed(frame: DataFrame, plan: Plan, pack: Pack) -> DataFrame:
    needed, number_of = needed_columns(frame, plan, pack.position)
    if not plan.shares:
        return needed.mapInArrow(replace(pack, by_key=True), PACKED)
    columns = {name: f.col(number_of[name]) for name in pack.schema.names}
    placed = needed.withColumn("shards", shards_of(plan, pack.position, columns))
    copied = placed.withColumn("shard", f.explode("shards")).drop("shards")
    return copied.mapInArrow(pack, PACKED)


def compiled(plan: Plan) -> None:
    """Compile all that a batch needs here, once, so that workers need not."""
    if plan.spill is not None:  # whose folder is on the executors
        with tempfile.TemporaryDirectory() as folder:
            _compiled(replace(plan, spill=replace(plan.spill, to=folder)))
    else:
        _compiled(plan)


def _compiled(plan: Plan) -> None:
    join = build_operator(plan)
    counted_rows(plan, 0, no_rows(plan.streams[0].schema), shards=2)
    merged(
        [
            in_order_of_time(join.read(position, no_rows(source.schema)))
            for position, source in enumerate(plan.streams)
        ]
    )
    join.warm()
    join.close()
