"""From the places of members to the results that users see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.kernels.core import NONE
from streamshed.operators.payload import Payload, Places
from streamshed.operators.plan import Plan, StreamPlan
from streamshed.selection import EXTENDS, KEY, MEMBERS, TIME, UPDATE
from streamshed.spec import IMPORTANCE

UPDATES = (UPDATE, EXTENDS)
NO_UPDATES: npt.NDArray[Any] = np.empty(0, [(name, np.int64) for name in UPDATES])


def result_schema(plan: Plan) -> pa.Schema:
    """The columns of a result: one for each stream of which there are any, and the time."""
    if plan.by is not None:
        return _told_apart_schema(plan)
    fields = []
    for stream in plan.streams:
        if stream.chosen:
            kind = pa.struct([stream.schema.field(name) for name in stream.chosen])
            fields.append(pa.field(stream.name, kind))
    if plan.through is not None and plan.through.chosen:
        kind = pa.struct([plan.through.schema.field(name) for name in plan.through.chosen])
        fields.append(pa.field(plan.through.relation.name, kind))
    fields.append(pa.field(TIME, plan.time_type))
    return pa.schema([*fields, pa.field(IMPORTANCE, pa.float64())] if plan.weighed else fields)


def _told_apart_schema(plan: Plan) -> pa.Schema:
    """The columns of a result of streams told apart by a column."""
    (stream,) = plan.streams
    keys = [stream.schema.field(name) for name in stream.key]
    kind = pa.struct([stream.schema.field(name) for name in stream.chosen])
    fields = {
        KEY: keys[0].type if len(keys) == 1 else pa.struct(keys),
        TIME: plan.time_type,
        MEMBERS: pa.list_(kind),
        UPDATE: pa.int64(),
        EXTENDS: pa.int64(),
    }
    chosen = {TIME, *plan.besides, *([MEMBERS] if stream.chosen else [])}
    return pa.schema([(name, kind) for name, kind in fields.items() if name in chosen])


def named_results(
    plan: Plan,
    payload: Sequence[Payload],
    checked: bool,
    time: npt.NDArray[np.int64],
    members: Places,
) -> tuple[pa.RecordBatch, int]:
    """Results with one struct column for each stream, and how many candidates were no results."""
    places = members.reshape(len(time), len(plan.streams))
    taken = [
        rows.take(np.ascontiguousarray(places[:, i]), _asked(plan.streams[i], checked))
        for i, rows in enumerate(payload)
    ]
    schema = result_schema(plan)
    structs = [
        _struct(taken[i], schema.field(stream.name).type, places[:, i] < 0)
        if plan.at_least
        else _struct(taken[i], schema.field(stream.name).type)
        for i, stream in enumerate(plan.streams)
        if stream.chosen
    ]
    batch = pa.RecordBatch.from_arrays([*structs, _times(time, plan)], schema=schema)
    if not checked or len(time) == 0:
        return batch, 0
    true = np.ones(len(time), np.bool_)
    for shared in plan.shared():
        keys = [
            taken[i].column(stream.key[number]).cast(stream.key_types[number])
            for i, number in shared
            for stream in [plan.streams[i]]
        ]
        common = pc.coalesce(*keys)
        for key in keys:
            true &= pc.fill_null(pc.equal(key, common), True).to_numpy(zero_copy_only=False)
    return _only(batch, true)


def told_apart_results(
    plan: Plan,
    payload: Sequence[Payload],
    checked: bool,
    time: npt.NDArray[np.int64],
    members: Places,
    ends: npt.NDArray[np.int64],
    updates: npt.NDArray[Any],
) -> tuple[pa.RecordBatch, int]:
    """Results with their key, a list of members each, the newcomer first, and what they update."""
    schema = result_schema(plan)
    taken = payload[0].take(members, _asked(plan.streams[0], checked or KEY in plan.besides))
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    columns = {TIME: _times(time, plan)}
    if plan.streams[0].chosen:
        values = _struct(taken, schema.field(MEMBERS).type.value_type)
        columns[MEMBERS] = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values)
    if KEY in plan.besides:
        newcomers = taken.select(list(plan.streams[0].key)).take(pa.array(starts[:-1]))
        one = newcomers.num_columns == 1
        columns[KEY] = newcomers.column(0) if one else newcomers.to_struct_array()
    for name in {*UPDATES} & {*plan.besides}:
        columns[name] = pa.array(updates[name], mask=updates[name] == NONE)
    batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    if not checked or len(time) == 0:
        return batch, 0
    firsts = pa.array(np.repeat(starts[:-1], np.diff(starts)))
    true = np.ones(len(time), np.bool_)
    for name, kind in zip(plan.streams[0].key, plan.key_types, strict=True):
        key = taken.column(name).cast(kind)
        same = pc.equal(key, key.take(firsts)).to_numpy(zero_copy_only=False)
        true &= np.logical_and.reduceat(same, starts[:-1])
    return _only(batch, true)


def related_results(
    plan: Plan,
    payload: Sequence[Payload],
    facts: Payload,
    checked: bool,
    time: npt.NDArray[np.int64],
    members: Sequence[Places],
    importance: npt.NDArray[np.float64],
) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
    """Results through a relation, and which candidates were results.

    Args:
        plan: the join.
        payload: the rows of each stream.
        facts: the rows of the relation.
        checked: whether equal hashes may belong to different keys.
        time: of each result.
        members: for each stream, and last for the relation, the places of its members.
        importance: of each result.
    """
    through = plan.through
    assert through is not None
    met = [name for names in through.keys for name in names] if checked else []
    asked = [_asked(stream, checked) for stream in plan.streams]
    asked.append(list(dict.fromkeys([*through.chosen, *met])))
    taken = [
        rows.take(np.ascontiguousarray(places), columns)
        for rows, places, columns in zip([*payload, facts], members, asked, strict=True)
    ]
    schema = result_schema(plan)
    names = [*(s.name for s in plan.streams if s.chosen)]
    names += [through.relation.name] if through.chosen else []
    chosen = [bool(stream.chosen) for stream in plan.streams] + [bool(through.chosen)]
    rows_of = [rows for rows, wanted in zip(taken, chosen, strict=True) if wanted]
    columns: list[pa.Array] = [
        _struct(rows, schema.field(name).type) for rows, name in zip(rows_of, names, strict=True)
    ]
    columns.append(_times(time, plan))
    if plan.weighed:
        columns.append(pa.array(importance))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    true = np.ones(len(time), np.bool_)
    if checked:
        for stream, rows, keys in zip(plan.streams, taken[:-1], through.keys, strict=True):
            for name, other, kind in zip(stream.key, keys, stream.key_types, strict=True):
                same = pc.equal(rows.column(name).cast(kind), taken[-1].column(other).cast(kind))
                true &= same.to_numpy(zero_copy_only=False)
    return (batch if true.all() else batch.filter(pa.array(true))), true


def _asked(stream: StreamPlan, checked: bool) -> list[str]:
    """The columns that are taken: those of results, and the key where it has to be checked."""
    return list(dict.fromkeys([*stream.chosen, *(stream.key if checked else ())]))


def _only(batch: pa.RecordBatch, true: npt.NDArray[np.bool_]) -> tuple[pa.RecordBatch, int]:
    rejected = int((~true).sum())
    return (batch.filter(pa.array(true)) if rejected else batch), rejected


def _times(time: npt.NDArray[np.int64], plan: Plan) -> pa.Array:
    return pa.array(time).view(plan.time_type)


def _struct(
    rows: pa.RecordBatch, kind: pa.StructType, absent: npt.NDArray[np.bool_] | None = None
) -> pa.StructArray:
    mask = None if absent is None else pa.array(absent)
    arrays = [rows.column(kind.field(i).name) for i in range(kind.num_fields)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)
