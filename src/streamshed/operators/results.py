"""From the places of members to the results that users see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.operators.payload import Payload, Places
from streamshed.operators.plan import Plan, StreamPlan
from streamshed.selection import MEMBERS, TIME


def result_schema(plan: Plan) -> pa.Schema:
    """The columns of a result: one for each stream of which there are any, and the time."""
    fields = []
    for stream in plan.streams:
        if stream.chosen:
            kind = pa.struct([stream.schema.field(name) for name in stream.chosen])
            members = pa.field(MEMBERS, pa.list_(kind))
            fields.append(pa.field(stream.name, kind) if plan.by is None else members)
    return pa.schema([*fields, pa.field(TIME, plan.time_type)])


def named_results(
    plan: Plan,
    payload: Sequence[Payload],
    checked: bool,
    time: npt.NDArray[np.int64],
    members: Places,
    ends: npt.NDArray[np.int64],
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
    for number, kind in enumerate(plan.key_types):
        keys = [
            rows.column(stream.key[number]).cast(kind)
            for rows, stream in zip(taken, plan.streams, strict=True)
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
) -> tuple[pa.RecordBatch, int]:
    """Results with a list of members each, the newcomer first."""
    schema = result_schema(plan)
    taken = payload[0].take(members, _asked(plan.streams[0], checked))
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    lists = []
    if plan.streams[0].chosen:
        values = _struct(taken, schema.field(MEMBERS).type.value_type)
        lists = [pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values)]
    batch = pa.RecordBatch.from_arrays([*lists, _times(time, plan)], schema=schema)
    if not checked or len(time) == 0:
        return batch, 0
    firsts = pa.array(np.repeat(starts[:-1], np.diff(starts)))
    true = np.ones(len(time), np.bool_)
    for name, kind in zip(plan.streams[0].key, plan.key_types, strict=True):
        key = taken.column(name).cast(kind)
        same = pc.equal(key, key.take(firsts)).to_numpy(zero_copy_only=False)
        true &= np.logical_and.reduceat(same, starts[:-1])
    return _only(batch, true)


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
