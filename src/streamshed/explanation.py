"""The plan of a join as text: how it will run, and what it will cost in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa

from streamshed.arguments import positive
from streamshed.conditions import Cosine, InnerProduct, Near
from streamshed.durations import describe
from streamshed.engine.memory import (
    bytes_of_row,
    bytes_of_tables,
    entries_of_sample,
    within_memory,
)
from streamshed.engine.observe.estimator import is_estimated
from streamshed.engine.results import result_schema
from streamshed.engine.row_sizes import fixed_bits, is_varying
from streamshed.errors import InputError
from streamshed.plan.plan import Plan, StreamPlan, ThrottlePlan
from streamshed.plan.resolve import make_plan
from streamshed.plan.routing import axes_of, best_shares
from streamshed.policies import ByColumn
from streamshed.sizes import rounded
from streamshed.sources import is_read_once, open_source, spark_schema, without_views
from streamshed.spec import Spec
from streamshed.writing import written


class Explanation(str):
    """The text of a plan, which a console shows line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain(spec: Spec, data: Mapping[str, Any], shards: int = 1) -> Explanation:
    """Describe how a join will run.

    Args:
        spec: the join.
        data: the schema of each stream, or its input.
        shards: the number of shards on Spark for which the budget is divided.
    """
    shards = positive(shards, "explain(): `shards`")
    plan = make_plan(spec, {name: _schema_of(name, given) for name, given in data.items()})
    plan = within_memory(plan)
    told = {
        "match": _match(plan),
        "results": _results(plan),
        "windows": "; ".join(_window(plan, stream) for stream in plan.streams),
        "clock": _clock(plan),
        "budget": _budget(plan, 1 if _reason_for_one_shard(plan, shards) else shards),
        "policy": _policy(plan, spec.policy is not None),
        "queue": _queue(plan),
        "throttle": _throttle(plan),
        "spill": _spill(plan),
        "estimate": _estimate(plan),
        "Spark": _routing(plan, shards),
        "memory": _memory(plan),
        "payload": "; ".join(map(_payload, plan.streams)),
    }
    width = max(map(len, told)) + 2
    lines = [f"{name:<{width}}{text}" for name, text in told.items() if text]
    return Explanation("\n".join([written(spec), *lines]))


def _schema_of(name: str, given: Any) -> Any:
    """The schema of an input, of which no row is taken."""
    if isinstance(given, pa.Schema):
        return without_views(given)
    if isinstance(given, pa.RecordBatchReader):
        return without_views(given.schema)
    if is_read_once(given):
        raise InputError(
            f"explain(): stream {name!r} is a {type(given).__name__}, whose batches can be "
            "read only once; give its schema instead"
        )
    if hasattr(given, "sparkSession"):
        return spark_schema(given)
    return open_source(name, given).schema


# -- what is joined -------------------------------------------------------------------------------


def _match(plan: Plan) -> str:
    if plan.through is not None:
        name = plan.through.relation.name
        met = _equal(
            f"{stream.name}.{key} = {name}.{other}"
            for stream, others in zip(plan.streams, plan.through.keys, strict=True)
            for key, other in zip(stream.key, others, strict=True)
        )
        return f"rows through the relation {name!r} ({met}), found by an index of its facts"
    equal = _equal(
        " = ".join(f"{plan.streams[i].name}.{plan.streams[i].key[column]}" for i, column in places)
        for places in plan.shared()
    )
    if plan.pairwise is not None:
        besides = f" and have equal keys ({equal})" if equal else ""
        how = "by comparing all pairs"
        if isinstance(plan.pairwise, Near):
            how = "in windows sorted by value"
        elif isinstance(plan.pairwise, Cosine | InnerProduct):
            how = "by products of matrices"
        return f"pairs of rows that meet {plan.pairwise}{besides}, found {how}"
    if plan.graph:
        return f"rows with equal columns ({equal}), found by indexes in an order that is measured"
    if plan.by is not None:
        key = ", ".join(plan.streams[0].key)
        return f"rows of different {plan.by!r} with equal keys ({key}), found in a hash table"
    return f"rows with equal keys ({equal}), found in a hash table"


def _equal(pairs: Iterable[str]) -> str:
    return ", ".join(pairs)


def _results(plan: Plan) -> str:
    kind = "complete, with a row of every stream"
    if plan.at_least is not None:
        kind = f"partial, with at least {plan.at_least} members"
    if plan.bounds:
        kind += ", whose times are in order and within bounds"
    if plan.first is not None:
        kind += f", the first only per {plan.first.per!r}"
    if plan.factorised:
        kind += ", one output for all that a row makes"
    if plan.unmatched:
        kind += f"; rows of {', '.join(plan.unmatched)} without a match"
    if plan.aggregates is not None:
        windows = plan.aggregates
        over, every = (_length(plan, units) for units in (windows.over, windows.every))
        return f"{kind}; {windows.stream}.{windows.column} aggregated over {over} every {every}"
    return f"{kind}; columns {', '.join(result_schema(plan).names)}"


def _window(plan: Plan, stream: StreamPlan) -> str:
    who = f"each {plan.by!r}" if plan.by is not None else stream.name
    last = "" if stream.last is None else f"the last {_rows(stream.last)}"
    if stream.window is None:
        return f"{who}: {last}"
    last = f", {last}" if last else ""
    if plan.windows is not None:
        rest = _length(plan, plan.windows.lengths[plan.windows.otherwise])
        own = (f"{name}: {_length(plan, plan.windows.lengths[at])}" for name, at in _named(plan))
        return f"{'; '.join(own)}; each other {plan.by!r}: {rest} by {stream.time!r}{last}"
    return f"{who}: {_length(plan, stream.window)} by {stream.time!r}{last}"


def _named(plan: Plan) -> tuple[tuple[Any, int], ...]:
    return () if plan.windows is None else plan.windows.named


def _clock(plan: Plan) -> str:
    if all(stream.window is None for stream in plan.streams):
        return "none: row windows alone, no row is ever late"
    who = "the newest time of all streams" if plan.clock == "max" else "that of the slowest stream"
    if plan.idle is not None:
        who += f", unless it is {_length(plan, plan.idle)} behind"
    if plan.ahead is not None:
        who += f", unless a row alone is {_length(plan, plan.ahead)} ahead"
    late = f"rows more than {_length(plan, plan.late)} behind it are late"
    return f"{who}; {late if plan.late else 'rows behind it are late'}"


# -- what is bounded ------------------------------------------------------------------------------


def _budgets(plan: Plan) -> dict[str, int]:
    if plan.total is not None:
        return {"all windows together": plan.total}
    return {stream.name: stream.rows for stream in plan.streams if stream.rows is not None}


def _budget(plan: Plan, shards: int) -> str:
    if plan.memory is not None:
        said = f"all windows together: {rounded(plan.memory.nbytes)}"
        part = rounded(-(-plan.memory.nbytes // shards))
        return said if shards == 1 else f"{said}. In each of {shards} shards: {part}"
    budgets = _budgets(plan)
    if not budgets:
        return "none: windows hold all their rows"
    said = "; ".join(f"{who}: {_rows(rows)}" for who, rows in budgets.items())
    if shards > 1:
        parts = "; ".join(f"{who}: {_rows(-(-rows // shards))}" for who, rows in budgets.items())
        first = "" if plan.moments is None else " at first"
        said += f". In each of {shards} shards{first}: {parts}"
    return said


def _policy(plan: Plan, named: bool) -> str:
    if not plan.bounded:
        return ""
    said = repr(plan.policy.name)
    if isinstance(plan.policy, ByColumn):
        said = "the lowest value of " + ", ".join(f"{s.name}.{s.worth}" for s in plan.streams)
    if plan.memory is not None:
        said += ", for each byte"
    who = "stored rows are evicted" if _budgets(plan) else "waiting rows are shed"
    return f"{who} by {said}{'' if named else ' (the default)'}"


def _queue(plan: Plan) -> str:
    if plan.queue is None:
        return ""
    each = " of each stream" if plan.queue.per_stream else ""
    waiting = f"up to {_rows(plan.queue.rows)}{each} wait"
    if plan.queue.by_work:
        return f"rows are taken when the work for those before is done; {waiting}"
    speed = 1 / (plan.queue.gap * plan.queue.second)
    return f"{_number(speed)} rows a second are taken; {waiting}"


def _throttle(plan: Plan) -> str:
    throttle = plan.throttle
    if throttle is None:
        return ""
    return f"{_work(throttle)}, adapted every {_length(plan, throttle.every)}"


def _work(throttle: ThrottlePlan) -> str:
    if throttle.capacity is not None:
        return f"at most {_number(throttle.capacity / throttle.second)} comparisons a second"
    if throttle.wall:
        return "as much work as rows leave time for, on the clock on the wall"
    return f"at most {throttle.share:.0%} of a core's time"


def _spill(plan: Plan) -> str:
    if plan.spill is None:
        return ""
    until = "whenever there is time"
    if plan.spill.deadline is not None:
        until = f"within {_length(plan, plan.spill.deadline)}, or shed"
    return f"rows beyond the budget wait in {plan.spill.to!r}, and are joined {until}"


def _estimate(plan: Plan) -> str:
    if plan.spill is not None and plan.spill.deadline is None:
        return "nothing is missed"
    if not plan.bounded and plan.throttle is None and plan.spill is None:
        return "nothing is shed, and nothing is missed"
    if not is_estimated(plan):
        return "missed results are not estimated"
    keyed = plan.makes_products
    what, each = ("recall and keys", "keys") if keyed else ("and recall", "rows")
    sample = f"{entries_of_sample(plan):,} {'entries' if keyed else 'rows'}"
    if plan.rate is not None:
        sample = f"all {each}" if plan.rate == 1 else f"{plan.rate:.2%} of all {each} at least"
    comma = "," if keyed else ""
    return f"missed results{comma} {what}, with 95 % intervals, from a sample of {sample}"


# -- on Spark -------------------------------------------------------------------------------------


def _reason_for_one_shard(plan: Plan, shards: int) -> str:
    """Why the join cannot be divided, or nothing if it can."""
    if any(stream.last is not None for stream in plan.streams):
        return "one shard: row windows count the rows of a whole stream"
    if plan.through is not None and len(plan.streams) > 1:
        if plan.through.relation.grows:
            return "one shard: the changes of the relation have no end"
        if shards == 1:
            parts = "copies of rows" if axes_of(plan) else "a part of the facts"
            return f"one shard, unless shards= says more: then each has {parts}"
    return ""


def _routing(plan: Plan, shards: int) -> str:
    if reason := _reason_for_one_shard(plan, shards):
        return reason
    axes = axes_of(plan)
    if plan.through is not None and len(plan.streams) > 1 and not axes:
        return "facts are divided among shards, and rows go to those of their facts"
    if not axes:
        return "rows go to a shard by the hash of their key"
    if isinstance(plan.pairwise, Near):
        column = plan.pairwise.columns_for(plan.streams[0].name)[0]
        return (
            f"rows go to shards by cells of {column!r}; about a quarter of the rows of all streams "
            "but the first is copied"
        )
    shares = best_shares(axes, [1.0] * len(plan.streams), shards)
    what = "attribute" if plan.graph else "stream"
    return (
        f"rows are copied to shards by the share of each {what} "
        f"({' × '.join(map(str, shares))} for {shards} shard{'s' if shards > 1 else ''})"
    )


# -- what it costs --------------------------------------------------------------------------------


def _memory(plan: Plan) -> str:
    budgets = _budgets(plan)
    bounded = plan.total is not None or len(budgets) == len(plan.streams)
    each, tables = bytes_of_row(plan), bytes_of_tables(plan)
    said = f"{rounded(tables)} for tables, and {each:,} bytes for each row held besides its payload"
    if bounded:
        rows = sum(budgets.values())
        said += f"; {rounded(tables + rows * each)} at the budget of {_rows(rows)}"
    return said if plan.through is None else f"{said}; and the relation with its index"


def _payload(stream: StreamPlan) -> str:
    bits = sum(fixed_bits(column.type) for column in stream.schema)
    varying = [column.name for column in stream.schema if is_varying(column.type)]
    said = f"{stream.name}: {-(-bits // 8):,} bytes a row"
    return said if not varying else f"{said} and the values of {', '.join(varying)}"


def _length(plan: Plan, units: int) -> str:
    if pa.types.is_timestamp(plan.time_type):
        return str(describe(timedelta(microseconds=units) if units else 0))
    return f"{units:,}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"
