"""A join written out as the code that makes it."""

from __future__ import annotations

from keyword import iskeyword
from typing import TYPE_CHECKING

from streamshed.arguments import PerStream
from streamshed.durations import Duration, describe, parse
from streamshed.equalities import Equalities
from streamshed.errors import SpecError
from streamshed.sizes import describe_bytes
from streamshed.spec import (
    KEEP_UP,
    Aggregation,
    Budget,
    RowWindows,
    Spec,
    Spill,
    Throttle,
    Through,
    TimeWindows,
)

if TYPE_CHECKING:
    from streamshed.conditions import PairCondition, SharedKey
    from streamshed.policies import Policy


def written(spec: Spec) -> str:
    """The chain of calls that makes the join."""
    parts = [_streams(spec)]
    if spec.condition or spec.pairwise:
        parts.append(_on(spec.condition, spec.pairwise))
    if spec.time_windows:
        parts.append(_within(spec.time_windows))
    if spec.row_windows:
        parts.append(_last(spec.row_windows))
    if spec.budget:
        parts.append(_keep(spec.budget))
    if spec.policy is not None:
        parts.append(f".shed({_policy(spec.policy)})")
    if spec.at_least is not None:
        parts.append(f".partial(at_least={spec.at_least})")
    if spec.through_relation is not None:
        parts.append(_through(spec.through_relation))
    if spec.weights is not None:
        parts.append(f".weigh(column={spec.weights.said()!r})")
    if spec.throttled is not None:
        parts.append(_throttle(spec.throttled))
    if spec.selection is not None:
        parts.append(f".select({', '.join(map(repr, spec.selection.said()))})")
    if spec.aggregation is not None:
        parts.append(_aggregate(spec.aggregation))
    if spec.queue_rows is not None:
        each = ", per='stream'" if spec.queue_per == "stream" else ""
        parts.append(f".queue(rows={spec.queue_rows}{each})")
    if spec.speed is not None:
        parts.append(f".throttle(rows_per_second={spec.speed:g})")
    if spec.spilled is not None:
        parts.append(_spill(spec.spilled))
    if spec.order is not None:
        strictly = ", strictly=True" if spec.order.strictly else ""
        parts.append(f".in_order({', '.join(map(repr, spec.order.streams))}{strictly})")
    for said in spec.intervals:
        ends = f"{describe(said.least)!r}, {describe(said.most)!r}"
        parts.append(f".between({said.later!r}, {said.earlier!r}, {ends})")
    if spec.unmatched:
        parts.append(f".unmatched({', '.join(map(repr, spec.unmatched))})")
    if spec.first is not None:
        touch = ", last_touch=True" if spec.first.last_touch else ""
        parts.append(f".first(per={spec.first.per!r}{touch})")
    if spec.factorised:
        parts.append(".factorised()")
    if spec.sample_rate is not None:
        parts.append(f".estimate(rate={spec.sample_rate!r})")
    if spec.random_seed:
        parts.append(f".seed({spec.random_seed})")
    return "".join(parts)


def _streams(spec: Spec) -> str:
    said = f"by={spec.by!r}" if spec.by is not None else ", ".join(map(repr, spec.streams))
    return f"join({said})"


def _on(condition: SharedKey | Equalities | None, pairwise: PairCondition | None) -> str:
    if isinstance(condition, Equalities):
        return f".on({', '.join(map(repr, condition.said()))})"
    said = [] if pairwise is None else [str(pairwise)]
    if condition is not None and condition.columns.everywhere is not None:
        said = [*map(repr, condition.columns.everywhere), *said]
    elif condition is not None:
        said = [*said, _by_stream(condition.columns)]
    return f".on({', '.join(said)})"


def _through(said: Through) -> str:
    return f".through({said.relation!r}, {_by_stream(said.columns)})"


def _throttle(said: Throttle) -> str:
    terms = [repr(KEEP_UP)] if said.keep_up else []
    if said.comparisons is not None:
        terms.append(f"comparisons_per_second={said.comparisons!r}")
    if said.cpu is not None:
        terms.append(f"cpu={said.cpu!r}")
    if said.every != parse("5 seconds", ""):
        terms.append(f"every={describe(said.every)!r}")
    if said.part is not None:
        terms.append(f"part={describe(said.part)!r}")
    usual: dict[str, object] = {"boost": 1.2, "sample": 0.1, "buffer": 100}
    usual |= {"dropping": False, "conserve": False, "rule": "work"}
    terms += [
        f"{name}={getattr(said, name)!r}"
        for name, value in usual.items()
        if getattr(said, name) != value
    ]
    return f".throttle({', '.join(terms)})"


def _aggregate(said: Aggregation) -> str:
    terms = [repr(f"{said.stream}.{said.column}"), f"over={describe(said.over)!r}"]
    if said.every is not None:
        terms.append(f"every={describe(said.every)!r}")
    if said.quantiles != (0.25, 0.5, 0.75):
        terms.append(f"quantiles={list(said.quantiles)!r}")
    if said.wait is not None:
        terms.append(f"wait={describe(said.wait)!r}")
    return f".aggregate({', '.join(terms)})"


def _spill(said: Spill) -> str:
    deadline = "" if said.deadline is None else f", deadline={describe(said.deadline)!r}"
    return f".spill(to={said.to!r}{deadline})"


def _by_stream(columns: PerStream[tuple[str, ...]]) -> str:
    said = {stream: names[0] if len(names) == 1 else list(names) for stream, names in columns.named}
    if all(name.isidentifier() and not iskeyword(name) for name in said):
        return ", ".join(f"{name}={names!r}" for name, names in said.items())
    return f"**{said!r}"


def _within(windows: TimeWindows) -> str:
    terms = [_lengths(windows.lengths)]
    if windows.own:
        own = PerStream(named=windows.own)
        terms = [_lengths(own), f"otherwise={terms[0]}"]
    terms.append(f"time={windows.times.said()!r}")
    if windows.late != 0:
        terms.append(f"late={describe(windows.late)!r}")
    if windows.clock != "min":
        terms.append(f"clock={windows.clock!r}")
    if windows.idle is not None:
        terms.append(f"idle={describe(windows.idle)!r}")
    if windows.ahead is not None:
        terms.append(f"ahead={describe(windows.ahead)!r}")
    return f".within({', '.join(terms)})"


def _lengths(lengths: PerStream[Duration]) -> str:
    if lengths.everywhere is not None:
        return repr(describe(lengths.everywhere))
    return repr({stream: describe(length) for stream, length in lengths.named})


def _last(windows: RowWindows) -> str:
    time = f", time={windows.times.said()!r}" if windows.times else ""
    return f".last({windows.rows.said()!r}{time})"


def _keep(budget: Budget) -> str:
    if budget.rows is not None:
        return f".keep(rows={budget.rows.said()!r})"
    if budget.memory is not None:
        return f".keep(memory={describe_bytes(budget.memory)!r})"
    return f".keep(total={budget.total})"


def _policy(policy: Policy) -> str:
    # Where there is a policy, the module is loaded already.
    from streamshed import policies

    if isinstance(policy, policies.ByColumn):
        column = policy.column
        said = column if isinstance(column, str) else dict(column)
        return f"column={said!r}"
    try:
        if policies.by_name(policy.name) == policy:
            return repr(policy.name)
    except SpecError:  # a policy of the user's own, which has no name here
        pass
    ours = getattr(policies, type(policy).__name__, None) is type(policy)
    return f"policies.{policy!r}" if ours else repr(policy)
