"""From the places of members to the results that users see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.engine.outputs import have_equal_keys, listed, without_collisions
from streamshed.kernels.core import NONE
from streamshed.plan.plan import Plan, RelationPlan, StreamPlan
from streamshed.selection import EXTENDS, KEY, MEMBERS, TIME, UPDATE
from streamshed.spec import CERTAIN, IMPORTANCE

if TYPE_CHECKING:
    from streamshed.engine.blocks import Block
    from streamshed.engine.match.running_relation import RunningRelation

Flags = npt.NDArray[np.bool_]

UPDATES = (UPDATE, EXTENDS)
NO_UPDATES: npt.NDArray[Any] = np.empty(0, [(name, np.int64) for name in UPDATES])


def result_schema(plan: Plan) -> pa.Schema:
    """The columns of a result: one for each stream of which there are any, and the time."""
    if plan.by is not None:
        return _listed_schema(plan)
    fields = []
    for stream in plan.streams:
        if stream.chosen:
            kind = pa.struct([stream.schema.field(name) for name in stream.chosen])
            fields.append(pa.field(stream.name, pa.list_(kind) if plan.factorised else kind))
    if plan.through is not None and plan.through.chosen:
        kind = pa.struct([plan.through.schema.field(name) for name in plan.through.chosen])
        fields.append(pa.field(plan.through.relation.name, kind))
    fields.append(pa.field(TIME, plan.time_type))
    if plan.weighed:
        fields.append(pa.field(IMPORTANCE, pa.float64()))
    if plan.unmatched:
        fields.append(pa.field(CERTAIN, pa.bool_()))
    return pa.schema(fields)


def _listed_schema(plan: Plan) -> pa.Schema:
    """The columns of a result of streams named by a column."""
    (stream,) = plan.streams
    keys = [stream.schema.field(name) for name in stream.key]
    kind = pa.struct([stream.schema.field(name) for name in stream.chosen])
    fields = {
        KEY: keys[0].type if len(keys) == 1 else pa.struct(keys),
        TIME: plan.time_type,
        MEMBERS: pa.list_(kind),
        UPDATE: pa.int64(),
        EXTENDS: pa.int64(),
        IMPORTANCE: pa.float64(),
    }
    chosen = {TIME, *plan.besides, *([MEMBERS] if stream.chosen else [])}
    chosen |= {IMPORTANCE} if plan.weighed else set()
    return pa.schema([(name, kind) for name, kind in fields.items() if name in chosen])


def build_results(
    plan: Plan, block: Block, checked: bool, relation: RunningRelation | None
) -> tuple[pa.RecordBatch, Flags]:
    """The results of a block as users see them, and which candidates were results.

    Args:
        plan: the join.
        block: the places of members.
        checked: whether equal hashes may belong to different keys.
        relation: through which the streams are joined, if they are.
    """
    if plan.factorised:
        return _outputs(plan, block, checked)
    if plan.by is not None:
        batch, true = _listed_results(plan, block, checked)
    else:
        batch, true = _struct_results(plan, block, checked, relation)
    return (batch if true.all() else batch.filter(pa.array(true))), true


def _outputs(plan: Plan, block: Block, checked: bool) -> tuple[pa.RecordBatch, Flags]:
    """Outputs that stand for several results, and which members have the newcomer's key."""
    true = np.ones(len(block.members), np.bool_)
    if checked and len(block.time):
        true = have_equal_keys(plan, block)
        if not true.all():
            block = without_collisions(plan, block, true)
    if plan.by is not None:
        return _listed_results(plan, block, False)[0], true
    schema = result_schema(plan)
    columns = [
        listed(block, position, schema.field(stream.name).type, list(stream.chosen))
        for position, stream in enumerate(plan.streams)
        if stream.chosen
    ]
    columns.append(_times(block.time, plan))
    return pa.RecordBatch.from_arrays(columns, schema=schema), true


def _struct_results(
    plan: Plan, block: Block, checked: bool, relation: RunningRelation | None
) -> tuple[pa.RecordBatch, Flags]:
    """Results with one struct column for each stream, and one for the fact of a relation."""
    through, schema = plan.through, result_schema(plan)
    streams = len(plan.streams)
    places = block.members.reshape(len(block.time), streams + (through is not None))
    taken = [
        rows.take(np.ascontiguousarray(places[:, i]), _asked(plan.streams[i], checked, block))
        for i, rows in enumerate(block.payload)
    ]
    columns: list[pa.Array] = [
        _struct(
            taken[i],
            schema.field(stream.name).type,
            places[:, i] < 0 if plan.at_least or block.certain is not None else None,
        )
        for i, stream in enumerate(plan.streams)
        if stream.chosen
    ]
    true = np.ones(len(block.time), np.bool_)
    if through is not None and relation is not None:
        met = [name for names in through.keys for name in names] if checked else []
        asked = list(dict.fromkeys([*through.chosen, *met]))
        facts = relation.payload.take(relation.places(places[:, streams]), asked)
        if through.chosen:
            columns.append(_struct(facts, schema.field(through.relation.name).type))
        if checked:
            true &= _meet_facts(plan, through, taken, facts)
    elif checked and len(block.time):
        true &= _have_equal_keys(plan, taken)
    columns.append(_times(block.time, plan))
    if plan.weighed:
        columns.append(pa.array(block.importance))
    if block.certain is not None:
        columns[-1] = _own_times(plan, block.time, places, taken)
        columns.append(pa.array(block.certain))
    elif plan.unmatched:
        columns.append(pa.array(np.ones(len(block.time), np.bool_)))
    return pa.RecordBatch.from_arrays(columns, schema=schema), true


def _have_equal_keys(plan: Plan, taken: Sequence[pa.RecordBatch]) -> Flags:
    """Which candidates have members with equal keys, by value."""
    true = np.ones(taken[0].num_rows, np.bool_)
    for shared in plan.shared():
        keys = [
            taken[i].column(stream.key[number]).cast(stream.key_types[number])
            for i, number in shared
            for stream in [plan.streams[i]]
        ]
        common = pc.coalesce(*keys)
        for key in keys:
            true &= pc.fill_null(pc.equal(key, common), True).to_numpy(zero_copy_only=False)
    return true


def _meet_facts(
    plan: Plan, through: RelationPlan, taken: Sequence[pa.RecordBatch], facts: pa.RecordBatch
) -> Flags:
    """Which candidates have members whose keys are the fact's, by value."""
    true = np.ones(facts.num_rows, np.bool_)
    for stream, rows, keys in zip(plan.streams, taken, through.keys, strict=True):
        for name, other, kind in zip(stream.key, keys, stream.key_types, strict=True):
            same = pc.equal(rows.column(name).cast(kind), facts.column(other).cast(kind))
            true &= same.to_numpy(zero_copy_only=False)
    return true


def _listed_results(plan: Plan, block: Block, checked: bool) -> tuple[pa.RecordBatch, Flags]:
    """Results with their key, a list of members each, the newcomer first, and what they update."""
    schema = result_schema(plan)
    asked = _asked(plan.streams[0], checked or KEY in plan.besides, block)
    taken = block.payload[0].take(block.members, asked)
    starts = np.concatenate([np.zeros(1, np.int64), block.ends])
    columns = {TIME: _times(block.time, plan)}
    if plan.streams[0].chosen:
        values = _struct(taken, schema.field(MEMBERS).type.value_type)
        columns[MEMBERS] = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values)
    if KEY in plan.besides:
        newcomers = taken.select(list(plan.streams[0].key)).take(pa.array(starts[:-1]))
        one = newcomers.num_columns == 1
        columns[KEY] = newcomers.column(0) if one else newcomers.to_struct_array()
    for name in {*UPDATES} & {*plan.besides}:
        columns[name] = pa.array(block.updates[name], mask=block.updates[name] == NONE)
    if plan.weighed:
        columns[IMPORTANCE] = pa.array(block.importance)
    batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    true = np.ones(len(block.time), np.bool_)
    if checked and len(block.time):
        firsts = pa.array(np.repeat(starts[:-1], np.diff(starts)))
        for name, kind in zip(plan.streams[0].key, plan.key_types, strict=True):
            key = taken.column(name).cast(kind)
            same = pc.equal(key, key.take(firsts)).to_numpy(zero_copy_only=False)
            true &= np.logical_and.reduceat(same, starts[:-1])
    return batch, true


def _asked(stream: StreamPlan, checked: bool, block: Block) -> list[str]:
    """The columns that are taken: those of results, the key where it has to be checked, and times.

    Only rows without a match may have no time.
    """
    time = () if block.certain is None or stream.time is None else (stream.time,)
    return list(dict.fromkeys([*stream.chosen, *(stream.key if checked else ()), *time]))


def _times(time: npt.NDArray[np.int64], plan: Plan) -> pa.Array:
    return pa.array(time).view(plan.time_type)


def _own_times(
    plan: Plan,
    time: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    taken: Sequence[pa.RecordBatch],
) -> pa.Array:
    """The times of rows without a match, null for those that have none."""
    null = np.zeros(len(time), np.bool_)
    for i, stream in enumerate(plan.streams):
        if stream.time is not None and stream.name in plan.unmatched:
            column = taken[i].column(stream.time)
            null |= (places[:, i] >= 0) & column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(time, mask=null).view(plan.time_type)


def _struct(
    rows: pa.RecordBatch, kind: pa.StructType, absent: npt.NDArray[np.bool_] | None = None
) -> pa.StructArray:
    mask = None if absent is None else pa.array(absent)
    arrays = [rows.column(kind.field(i).name) for i in range(kind.num_fields)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)
