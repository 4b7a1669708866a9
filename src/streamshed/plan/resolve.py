"""From what was said to a plan: a join, checked against the schemas of its inputs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from streamshed import columns
from streamshed.columns import Column, stream_names
from streamshed.conditions import Cosine, InnerProduct
from streamshed.equalities import Equalities
from streamshed.errors import InputError, SpecError, listed, suggestion
from streamshed.kernels import hooks
from streamshed.kernels.compiling import is_implemented
from streamshed.kernels.hashing import seed_with
from streamshed.plan import capabilities
from streamshed.plan.bounds import bounded
from streamshed.plan.plan import MemoryPlan, Plan, RelationPlan, StreamPlan, WindowPlan
from streamshed.plan.times import (
    aggregates_of,
    clock_of,
    idleness,
    lateness,
    leeway,
    queue_of,
    spill_of,
    throttle_of,
    units,
    window_of,
)
from streamshed.policies import ByColumn, Density, Exact, Oldest, Policy, RelationDensity, Sketch
from streamshed.selection import Selection
from streamshed.spec import PER_KEY, Aggregation, Spec, too_few

SECRET = "STREAMSHED_SECRET"
"""The variable of the environment that holds a text on which the hash of keys depends, if any."""
MOST_LENGTHS = 64
"""Different lengths that the windows of streams named by a column may have."""


class _Input(NamedTuple):
    name: str
    schema: pa.Schema


def make_plan(spec: Spec, schemas: Mapping[str, pa.Schema]) -> Plan:
    """Check a join against the schemas of its inputs and resolve it to plain numbers.

    Args:
        spec: What was said of the join.
        schemas: The schema of every stream; for streams named by a column, of the one input.
    """
    _check_complete(spec)
    if spec.aggregation is not None:
        spec = replace(spec, selection=_aggregated_only(spec, spec.aggregation))
    inputs = _inputs(spec, schemas)
    if spec.by is not None:
        _check_by(spec, spec.by, inputs[0])
    policy = _policy(spec)
    time_type = _time_type(spec, inputs)
    key_seed, key_mark = _key_seed(spec)
    streams, bounds = bounded(spec, _streams(spec, inputs, policy, time_type), time_type)
    plan = Plan(
        streams=streams,
        by=spec.by,
        time_type=time_type,
        late=lateness(spec, time_type),
        clock=clock_of(spec),
        idle=idleness(spec, time_type),
        ahead=leeway(spec, time_type),
        total=spec.budget.total if spec.budget else None,
        policy=policy,
        at_least=2 if spec.by is not None and spec.at_least is None else spec.at_least,
        seed=spec.random_seed,
        key_seed=key_seed,
        key_mark=key_mark,
        rate=spec.sample_rate,
        through=_relation(spec),
        queue=queue_of(spec, policy, time_type),
        besides=spec.besides(),
        windows=_windows(spec, inputs[0], time_type),
        pairwise=spec.pairwise,
        throttle=throttle_of(spec, time_type),
        spill=spill_of(spec, time_type),
        memory=MemoryPlan(spec.budget.memory) if spec.budget and spec.budget.memory else None,
        bounds=bounds,
        unmatched=spec.unmatched,
        first=spec.first,
        factorised=spec.factorised,
        aggregates=aggregates_of(spec, time_type),
    )
    plan.policy.check(plan)
    _check_victim(plan)
    _check_payload(plan)
    return plan


def _check_victim(plan: Plan) -> None:
    """Refuse a policy that cannot say which row to evict: the process would crash."""
    policy = plan.policy
    if plan.bounded and not is_implemented(hooks.victim, policy.state):
        state = policy.state.__name__
        raise SpecError(
            f"the policy {policy.name!r} does not say which row to evict: implement the hook"
            f" `victim` for its state, with @implements(hooks.victim, {state})"
        )


def _aggregated_only(spec: Spec, aggregation: Aggregation) -> Selection:
    """The selection of a join that aggregates: its results need no other column."""
    path = f"{aggregation.stream}.{aggregation.column}"
    known = [aggregation.column]
    if aggregation.column not in spec.chosen_of(aggregation.stream, known):
        raise SpecError(
            f".aggregate(): the column {path!r} is not among those that .select() chooses; choose "
            "it too, or leave .select() out"
        )
    return Selection.of((path,), spec.result_names())


def _key_seed(spec: Spec) -> tuple[int, str]:
    """The seed of the hash of keys, and what may be told of it if it is not that of the join."""
    if not (password := os.environ.get(SECRET, "")):
        return spec.random_seed, ""
    seed = seed_with(password, spec.random_seed)
    return seed, f", keys {seed_with(password, seed) & 0xFFFFFFFF:08x}"


def _policy(spec: Spec) -> Policy:
    """The policy that decides: the one that was named, or else density, or its like."""
    if spec.spilled is not None:
        return Exact()
    chosen = spec.policy or Density()
    capabilities.check_policy(spec, chosen)
    if not isinstance(chosen, Density):
        return chosen
    # Where streams share no key there are no whole keys to keep, and rows are ranked one by one.
    match capabilities.kind_of(spec):
        case "relation":
            return RelationDensity()
        case "equalities":
            return Sketch()
        case "condition":
            return Oldest()
    return chosen


def _check_complete(spec: Spec) -> None:
    capabilities.check(spec)
    if spec.spilled is not None:
        _check_spilling(spec)
    if spec.through_relation is not None:
        _check_through(spec)
    elif spec.condition is None and spec.pairwise is None:
        raise SpecError("the join has no condition; say which rows belong together with .on('k')")
    elif len(spec.streams) == 1:
        raise too_few(spec.streams)
    _check_waiting(spec)
    _check_shedding(spec)
    _check_first(spec)
    bare = [
        stream
        # A join by a column has no names, and one window for its one input.
        for stream in spec.streams or ("",)
        if spec.length_of(stream) is None and spec.rows_of(stream) is None
    ]
    if bare and not (spec.time_windows or spec.row_windows):
        raise SpecError(
            "the join has no window; say how long rows stay with "
            ".within('10 minutes', time='ts') or .last(100)"
        )
    if bare:
        raise SpecError(
            f"there is no window for {listed(bare)}, neither by .within() nor by .last(); name it "
            "in one of the two mappings"
        )
    timeless = [stream for stream in spec.streams if spec.time_of(stream) is None]
    if timeless and (spec.time_windows or len(timeless) < len(spec.streams)):
        raise SpecError(
            f"there is no time column for {listed(timeless)}, but times are compared over all "
            "streams; name it, as in .last(100, time='ts')"
        )


def _check_first(spec: Spec) -> None:
    """Refuse first results with the rows of a stream that results need not have."""
    if spec.first is None or spec.first.per == PER_KEY:
        return
    if spec.at_least is not None:
        raise SpecError(
            f".first(per={spec.first.per!r}) cannot be combined with .partial(): a partial result "
            f"may have no row of {spec.first.per!r}; use .first(per='key'), or leave one out"
        )


def _check_waiting(spec: Spec) -> None:
    """Refuse a queue without the speed at which rows are taken, and the other way round."""
    if spec.queue_rows is not None and spec.speed is None and spec.throttled is None:
        raise SpecError(
            f".queue(): {spec.queue_rows} rows may wait, but nothing says how fast rows are taken; "
            "add .throttle(rows_per_second=…) or another .throttle(), or leave .queue() out"
        )
    if spec.queue_rows is None and spec.speed is not None:
        raise SpecError(
            f".throttle(): `rows_per_second` is {spec.speed}, but nothing says how many rows may "
            "wait; add .queue(rows=…), or leave .throttle() out"
        )


def _check_shedding(spec: Spec) -> None:
    """Refuse a policy that would never evict a row."""
    if spec.policy is not None and spec.budget is None and spec.queue_rows is None:
        said = f"column={spec.policy.column!r}" if isinstance(spec.policy, ByColumn) else ""
        raise SpecError(
            f".shed({said or repr(spec.policy.name)}): the join has no budget, so it never sheds "
            "a row; add one, as in .keep(rows=1000) or .keep(total=5000), or "
            "leave .shed() out"
        )


def _check_through(spec: Spec) -> None:
    """Refuse keys that do not fit the relation's."""
    if spec.pairwise is not None:
        raise SpecError(
            f".through() cannot be combined with .on({spec.pairwise}): rows joined through a "
            "relation are not compared with each other; leave one of them out"
        )
    if isinstance(spec.condition, Equalities):
        raise SpecError(
            ".on() says that columns of streams are equal, but .through() ties each of them to a "
            "relation; name the key column of each stream, as in .on(r='x', s='y')"
        )
    for stream in spec.streams:
        key, met = spec.key_of(stream), spec.relation_columns(stream)
        if len(key) != len(met):
            raise SpecError(
                f"the key of stream {stream!r} has {len(key)} columns ({listed(key)}), but "
                f".through() names {len(met)} of the relation for it ({listed(met)}); name equally "
                "many"
            )


def _check_spilling(spec: Spec) -> None:
    """Refuse what joins that spill have no use for."""
    if spec.budget is None:
        raise SpecError(
            ".spill(): the join has no budget, so it never spills; add one with .keep(total=…) or "
            ".keep(rows=…)"
        )
    if spec.policy is not None:
        raise SpecError(
            f".spill() cannot be combined with .shed({spec.policy.name!r}): rows are spilled to "
            "disk instead of being evicted; leave one of them out"
        )


def _check_payload(plan: Plan) -> None:
    """Refuse columns of which single rows cannot be picked."""
    found = [
        Column(stream.name, field.name, field.type)
        for stream in plan.streams
        for field in stream.schema
    ]
    if plan.through is not None:
        name = plan.through.relation.name
        found += [Column(name, f.name, f.type, "relation") for f in plan.through.schema]
    for column in found:
        columns.check_payload(column)


def _inputs(spec: Spec, schemas: Mapping[str, pa.Schema]) -> tuple[_Input, ...]:
    for name, schema in schemas.items():
        if not isinstance(schema, pa.Schema):
            raise InputError(
                f"for stream {name!r} a {type(schema).__name__} was given instead of a schema; "
                "give a pyarrow.Schema, such as table.schema"
            )
    if spec.by is not None:
        if len(schemas) != 1:
            raise InputError(
                f"{len(schemas)} inputs were given ({listed(schemas)}), but the streams are named "
                f"by the column {spec.by!r} of one input; give that one"
            )
        return tuple(_Input(name, schema) for name, schema in schemas.items())
    for name in schemas:
        if name not in spec.streams:
            raise InputError(
                f"there is no stream {name!r} in the join; its streams are "
                f"{listed(spec.streams)}.{suggestion(name, spec.streams)}"
            )
    missing = [stream for stream in spec.streams if stream not in schemas]
    if missing:
        which = "stream" if len(missing) == 1 else "streams"
        raise InputError(
            f"no input was given for {which} {listed(missing)}; give one for each of "
            f"{listed(spec.streams)}"
        )
    return tuple(_Input(stream, schemas[stream]) for stream in spec.streams)


def _check_by(spec: Spec, by: str, source: _Input) -> None:
    columns.key_family(columns.find(source.schema, source.name, by, "name of streams"))
    if by in spec.key_of(source.name):
        raise SpecError(
            f"the column {by!r} names the streams and is a key column too, so that no two "
            "streams could ever match; name another key column in .on()"
        )


def _key_types(spec: Spec, inputs: tuple[_Input, ...]) -> dict[str, tuple[pa.DataType, ...]]:
    """For each stream the types of its key: those of all streams', or of the relation's columns."""
    found = [
        [columns.find(schema, stream, name, "key") for name in spec.key_of(stream)]
        for stream, schema in inputs
    ]
    graph = spec.graph()
    if graph is not None:
        return _attribute_types(graph, inputs, found)
    if spec.through_relation is None:
        return dict.fromkeys((stream for stream, _ in inputs), _in_common(*found))
    relation = spec.through_relation.relation
    met = [[relation.column(name, "key") for name in spec.relation_columns(s)] for s, _ in inputs]
    return {
        stream: _in_common(one, other)
        for (stream, _), one, other in zip(inputs, found, met, strict=True)
    }


def _attribute_types(
    graph: Equalities, inputs: tuple[_Input, ...], found: list[list[Column]]
) -> dict[str, tuple[pa.DataType, ...]]:
    """For each stream the types of its columns: each that of all columns of its attribute."""
    numbers = [graph.attributes_of(stream) for stream, _ in inputs]
    same: dict[int, list[Column]] = {}
    for of_stream, own in zip(found, numbers, strict=True):
        for column, number in zip(of_stream, own, strict=True):
            same.setdefault(number, []).append(column)
    types = {number: columns.common_key_type(places) for number, places in same.items()}
    return {
        stream: tuple(types[number] for number in own)
        for (stream, _), own in zip(inputs, numbers, strict=True)
    }


def _in_common(*keys: list[Column]) -> tuple[pa.DataType, ...]:
    return tuple(columns.common_key_type(same_place) for same_place in zip(*keys, strict=True))


def _relation(spec: Spec) -> RelationPlan | None:
    if spec.through_relation is None:
        return None
    relation = spec.through_relation.relation
    begin, end = relation.ends()
    chosen = spec.chosen_of(relation.name, relation.schema.names)
    for name in chosen:
        found = relation.column(name, "column of the results")
        if spec.aggregation is not None:
            columns.check_aggregated(found)
    met = tuple(spec.relation_columns(stream) for stream in spec.streams)
    needed = {*chosen, *(name for names in met for name in names), begin, end}
    schema = pa.schema([column for column in relation.schema if column.name in needed])
    relation.check_changes([name for name in schema.names if name not in (begin, end)])
    return RelationPlan(relation, schema, chosen, met, begin, end)


def _time_type(spec: Spec, inputs: tuple[_Input, ...]) -> pa.DataType:
    found = [
        columns.find(schema, stream, name, "time")
        for stream, schema in inputs
        if (name := spec.time_of(stream)) is not None
    ]
    if spec.through_relation is not None:
        times = spec.through_relation.relation.time_columns()
        if times and not found:
            raise SpecError(
                f"{times[0]} says when rows are valid, but the streams have no time; name their "
                "time columns, as in .within('10 minutes', time='ts')"
            )
        found += times
    return columns.common_time_type(found) if found else pa.int64()


def _streams(
    spec: Spec, inputs: tuple[_Input, ...], policy: Policy, time_type: pa.DataType
) -> tuple[StreamPlan, ...]:
    worths = _worths(spec, inputs, policy)
    weights = _weights(spec, inputs)
    types = _key_types(spec, inputs)
    rows = spec.budget.rows if spec.budget else None
    chosen = {stream: _chosen(spec, stream, schema) for stream, schema in inputs}
    return tuple(
        StreamPlan(
            name=stream,
            schema=_needed(
                spec, stream, schema, {*chosen[stream], worths.get(stream), weights.get(stream)}
            ),
            chosen=chosen[stream],
            key=spec.key_of(stream),
            time=spec.time_of(stream),
            window=window_of(spec, stream, time_type),
            last=spec.rows_of(stream),
            rows=rows.get(stream) if rows else None,
            worth=worths.get(stream),
            key_types=types[stream],
            weight=weights.get(stream),
            attributes=spec.attributes_of(stream),
            compared=_compared(spec, stream, schema),
        )
        for stream, schema in inputs
    )


def _compared(spec: Spec, stream: str, schema: pa.Schema) -> tuple[str, ...]:
    """The columns by which the rows of a stream are compared with those of others."""
    if spec.pairwise is None:
        return ()
    for name in spec.pairwise.columns_for(stream):
        found = columns.find(schema, stream, name, "column to compare")
        if isinstance(spec.pairwise, Cosine | InnerProduct):
            columns.check_vector(found)
        else:
            columns.check_number(found, spec.pairwise.name)
    return spec.pairwise.columns_for(stream)


def _chosen(spec: Spec, stream: str, schema: pa.Schema) -> tuple[str, ...]:
    chosen = spec.chosen_of(stream, schema.names)
    role = "column of the results" if spec.aggregation is None else "column to aggregate"
    for name in chosen:
        found = columns.find(schema, stream, name, role)
        if spec.aggregation is not None:
            columns.check_aggregated(found)
    return chosen


def _needed(spec: Spec, stream: str, schema: pa.Schema, asked: set[str | None]) -> pa.Schema:
    """The columns of an input that are asked for, and those that the join works on."""
    compared = () if spec.pairwise is None else spec.pairwise.columns_for(stream)
    needed = {*asked, *spec.key_of(stream), *compared, spec.time_of(stream), spec.by}
    return pa.schema([column for column in schema if column.name in needed])


def _worths(spec: Spec, inputs: tuple[_Input, ...], policy: Policy) -> dict[str, str]:
    if not isinstance(policy, ByColumn):
        return {}
    found: list[Column] = [
        columns.find(schema, stream, policy.column_for(stream), "worth")
        for stream, schema in inputs
    ]
    columns.check_worth(found, compete=spec.budget is not None and spec.budget.rows is None)
    return {column.stream: column.name for column in found}


def _weights(spec: Spec, inputs: tuple[_Input, ...]) -> dict[str, str]:
    if spec.weights is None:
        return {}
    found = [
        columns.find(schema, stream, spec.weights.get(stream) or "", "importance")
        for stream, schema in inputs
    ]
    for column in found:
        columns.check_importance(column)
    return {column.stream: column.name for column in found}


def _windows(spec: Spec, source: _Input, time_type: pa.DataType) -> WindowPlan | None:
    """The windows of streams named by a column, where they differ."""
    if spec.by is None or spec.time_windows is None or not spec.time_windows.own:
        return None
    kind = columns.plain_type(source.schema.field(spec.by).type)
    said = {
        _stream_value(value, kind, spec.by): units(length, time_type, f"the window of {value!r}")
        for value, length in spec.time_windows.own
    }
    rest = units(spec.length_of("") or 0, time_type, "the window of all other streams")
    lengths = sorted({rest, *said.values()}, reverse=True)
    if len(lengths) > MOST_LENGTHS:
        raise SpecError(
            f".within(): the streams have windows of {len(lengths)} different lengths, more "
            f"than {MOST_LENGTHS}; round them to fewer"
        )
    if len(lengths) == 1:
        return None
    named = tuple((value, lengths.index(length)) for value, length in said.items())
    return WindowPlan(tuple(lengths), lengths.index(rest), named)


def _stream_value(value: Any, kind: pa.DataType, by: str) -> Any:
    """A value of the column that names streams, as it is read there."""
    try:
        return stream_names(pa.array([value], kind))[0]
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
        raise SpecError(
            f".within(): a window is given for {value!r}, which is no value of the column {by!r} "
            f"of type {kind} ({error}); name streams by values of that type"
        ) from error
