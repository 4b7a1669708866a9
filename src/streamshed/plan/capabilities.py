"""What composes with what: one table, from which errors, docs/support.md and contract tests come.

A join is of one *kind*, by what makes rows match. A *feature* is a method of the spec. Every cell
of the table is yes, or a reason why not; a pair of features may exclude each other, with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from streamshed.errors import SpecError

if TYPE_CHECKING:
    from streamshed.policies import Policy
    from streamshed.spec import Spec

Kind = Literal["shared key", "equalities", "condition", "relation", "streams by a column"]
KINDS: tuple[Kind, ...] = (
    "shared key",
    "equalities",
    "condition",
    "relation",
    "streams by a column",
)

_METHOD: dict[Kind, str] = {
    "shared key": ".on('k')",
    "equalities": ".on() by equalities between pairs",
    "condition": ".on() by a condition",
    "relation": ".through()",
    "streams by a column": "join(by=…)",
}
"""How a kind of join is said, for messages."""


def kind_of(spec: Spec) -> Kind:
    """The kind of a join."""
    if spec.by is not None:
        return "streams by a column"
    if spec.through_relation is not None:
        return "relation"
    if spec.pairwise is not None:
        return "condition"
    return "shared key" if spec.graph() is None else "equalities"


@dataclass(frozen=True)
class Feature:
    """A method of the spec, and the kinds of joins that it is not for.

    Attributes:
        name: as the support table names it.
        method: as messages name it.
        is_said: whether a spec asks for it.
        no: for some kinds the reason why not, as a clause.
    """

    name: str
    method: str
    is_said: Callable[[Spec], bool]
    no: Mapping[Kind, str] = field(default_factory=dict)


_NO_KEY = "a partial result is defined by a key that all streams share"
_NO_PARTITION = "a key that all streams share assigns rows to partitions on disk"
NO_NAMES = "streams that a column names are known only as they appear"
_COPIED = (
    "without a key that all streams share, rows are copied to several shards, and none of them"
    " knows whether a row has a match in another"
)
_NO_FIRST = "first results are found by a key that all streams share"
_NO_PRODUCT = (
    "an output stands for every choice of partners, and without a key that all streams share not"
    " every choice is a result"
)
NO_STREAM_BUDGET = (
    "the streams are known only as they appear, so none can have a budget of its own: use"
    " .keep(total=…)"
)

FEATURES: tuple[Feature, ...] = (
    Feature("time windows", ".within()", lambda spec: spec.time_windows is not None),
    Feature("row windows", ".last()", lambda spec: spec.row_windows is not None),
    Feature(
        "time and row windows of one stream",
        ".within() and .last()",
        lambda spec: any(
            spec.length_of(stream) is not None and spec.rows_of(stream) is not None
            for stream in spec.streams or ("",)
        ),
    ),
    Feature(
        "`keep(rows=…)`",
        ".keep(rows=…)",
        lambda spec: spec.budget is not None and spec.budget.rows is not None,
        {"streams by a column": NO_STREAM_BUDGET},
    ),
    Feature(
        "`keep(total=…)`",
        ".keep(total=…)",
        lambda spec: spec.budget is not None and spec.budget.total is not None,
    ),
    Feature(
        "`keep(memory=…)`",
        ".keep(memory=…)",
        lambda spec: spec.budget is not None and spec.budget.memory is not None,
    ),
    Feature("`queue` with a rate", ".queue()", lambda spec: spec.queue_rows is not None),
    Feature("`throttle` by work or time", ".throttle()", lambda spec: spec.throttled is not None),
    Feature(
        "partial results",
        ".partial()",
        lambda spec: spec.at_least is not None,
        dict.fromkeys(("equalities", "condition", "relation"), _NO_KEY),
    ),
    Feature("importance (`weigh`)", ".weigh()", lambda spec: spec.weights is not None),
    Feature(
        "`spill`",
        ".spill()",
        lambda spec: spec.spilled is not None,
        dict.fromkeys(("equalities", "condition", "relation"), _NO_PARTITION),
    ),
    Feature(
        "order in time (`in_order`, `between`)",
        ".in_order() or .between()",
        lambda spec: spec.order is not None or bool(spec.intervals),
        {"streams by a column": NO_NAMES},
    ),
    Feature(
        "rows without a match (`unmatched`)",
        ".unmatched()",
        lambda spec: bool(spec.unmatched),
        {
            "equalities": _COPIED,
            "condition": _COPIED,
            "relation": "rows that match no fact are filtered on arrival",
            "streams by a column": NO_NAMES,
        },
    ),
    Feature(
        "first results (`first`)",
        ".first()",
        lambda spec: spec.first is not None,
        dict.fromkeys(("equalities", "condition", "relation"), _NO_FIRST),
    ),
    Feature(
        "one output for each arrival (`factorised`)",
        ".factorised()",
        lambda spec: spec.factorised,
        dict.fromkeys(("equalities", "condition", "relation"), _NO_PRODUCT),
    ),
    Feature("selection", ".select()", lambda spec: spec.selection is not None),
    Feature("aggregates", ".aggregate()", lambda spec: spec.aggregation is not None),
)

_BY_NAME = {feature.name: feature for feature in FEATURES}

_ORDER, _UNMATCHED, _FIRST, _FACTORISED = (
    "order in time (`in_order`, `between`)",
    "rows without a match (`unmatched`)",
    "first results (`first`)",
    "one output for each arrival (`factorised`)",
)

EXCLUSIVE: dict[tuple[str, str], str] = {
    ("partial results", _ORDER): (
        "which members a partial result has would depend on the order of all of them"
    ),
    **{
        (_UNMATCHED, feature): "rows that are skipped for lack of time may have a match"
        for feature in ("`queue` with a rate", "`throttle` by work or time")
    },
    (_UNMATCHED, "row windows"): (
        "row windows close when rows arrive, not when time passes: use .within() instead"
    ),
    (_UNMATCHED, "importance (`weigh`)"): (
        "only results have an importance, and unmatched rows are in none"
    ),
    (
        _UNMATCHED,
        "aggregates",
    ): "aggregates are computed from results, and unmatched rows are in none",
    (_UNMATCHED, "`spill`"): "rows on disk find their matches after their windows have closed",
    (_FIRST, "`spill`"): "rows on disk make their results after rows that arrived later",
    ("importance (`weigh`)", _FACTORISED): (
        "an output stands for several results, each of an importance of its own"
    ),
    (_ORDER, _FACTORISED): (
        "an output stands for every choice of partners, and not every choice is in order"
    ),
    (_UNMATCHED, _FACTORISED): (
        "an output lists the partners of a row, and rows without a match have none"
    ),
    (_FIRST, _FACTORISED): "a first result is one choice of partners, and an output all of them",
    (_FACTORISED, "aggregates"): (
        "aggregates are computed from single results, and an output stands for several"
    ),
}
"""Pairs of features that exclude each other, and why."""

Runtime = Literal["replay", "open", "stream"]
RUNTIMES: dict[Runtime, str] = {
    "replay": "in this process over whole inputs",
    "open": "in this process on live data",
    "stream": "on Spark",
}
"""The methods that run a join, and where."""

NOT_IN: dict[tuple[tuple[str, ...], Runtime], str] = {
    (("aggregates",), "open"): (
        "a session returns results as they are made, and an aggregate needs all of them"
    ),
    (("`spill`", "aggregates"), "stream"): (
        "a window of aggregates closes by the time of its results, and those from disk come later"
    ),
}
"""Features that a runtime does not have, alone or together, and why."""

_RANKS_KEYS = "it ranks keys that all streams share, and these streams share none"
_RANKS_ATTRIBUTES = "it ranks rows by equal columns, and these rows match by a condition"
_RANKS_BY_FACTS = (
    "it ranks rows by columns that streams share, and these are joined through a relation"
)

POLICIES: dict[str, Mapping[Kind, str]] = {
    "density": {},
    "random": {},
    "oldest": {},
    "column": {},
    "importance": {},
    "frequency": dict.fromkeys(("equalities", "condition", "relation"), _RANKS_KEYS),
    "output": dict.fromkeys(("equalities", "condition", "relation"), _RANKS_KEYS),
    "existence": {
        **dict.fromkeys(("equalities", "condition", "relation"), _RANKS_KEYS),
        "streams by a column": NO_NAMES,
    },
    "sketch": {
        "condition": _RANKS_ATTRIBUTES,
        "relation": _RANKS_BY_FACTS,
        "streams by a column": NO_NAMES,
    },
    "pairwise": {
        "condition": _RANKS_ATTRIBUTES,
        "relation": _RANKS_BY_FACTS,
        "streams by a column": NO_NAMES,
    },
}
"""For each policy the kinds of joins that it is not for, and why."""


def check(spec: Spec) -> None:
    """Refuse a combination that the table says no to, with its reason."""
    kind = kind_of(spec)
    said = [feature for feature in FEATURES if feature.is_said(spec)]
    for feature in said:
        if kind in feature.no:
            raise SpecError(
                f"{feature.method} cannot be combined with {_METHOD[kind]}: {feature.no[kind]};"
                " leave one of them out"
            )
    for (one, other), reason in EXCLUSIVE.items():
        if _BY_NAME[one] in said and _BY_NAME[other] in said:
            raise SpecError(
                f"{_BY_NAME[one].method} cannot be combined with {_BY_NAME[other].method}:"
                f" {reason}; leave one of them out"
            )


def check_runtime(spec: Spec, runtime: Runtime) -> None:
    """Refuse what a runtime does not have."""
    said = {feature.name for feature in FEATURES if feature.is_said(spec)}
    lacks = {where: (names, why) for (names, where), why in NOT_IN.items() if said >= {*names}}
    if runtime in lacks:
        names, reason = lacks[runtime]
        others = " or ".join(f".{other}()" for other in RUNTIMES if other not in lacks)
        methods = " with ".join(_BY_NAME[name].method for name in names)
        out = methods if len(names) == 1 else "one of them"
        raise SpecError(
            f"{methods} is not available in .{runtime}(): {reason}; leave {out} out, or use"
            f" {others}"
        )


def check_policy(spec: Spec, policy: Policy) -> None:
    """Refuse a policy that has no meaning for a kind of join."""
    kind = kind_of(spec)
    reason = POLICIES.get(policy.name, {}).get(kind)
    if reason is not None:
        able = [name for name, no in POLICIES.items() if kind not in no]
        raise SpecError(
            f"the policy {policy.name!r} does not fit this join: {reason}; use one of"
            f" {', '.join(map(repr, able))}"
        )


def support_table() -> str:
    """The table as Markdown: docs/support.md."""
    lines = [
        "# What composes with what",
        "",
        "<!-- Written by `python -m streamshed.plan.capabilities`; do not edit. -->",
        "",
        "Every cell holds for `replay`, for sessions (`open`) and on Spark (`stream`), except for"
        " the runtimes named at the end. A number refers to a reason below.",
        "",
        "A join on a shared key with a table among its inputs (`ss.table`; on Spark, a DataFrame"
        " that does not stream) is one through a relation, and has what that column says.",
        "",
        f"| | {' | '.join(KINDS)} |",
        f"|---|{'---|' * len(KINDS)}",
    ]
    reasons: list[str] = []

    def row(name: str, no: Mapping[Kind, str]) -> str:
        cells = []
        for kind in KINDS:
            if kind not in no:
                cells.append("yes")
                continue
            if no[kind] not in reasons:
                reasons.append(no[kind])
            cells.append(f"no ({reasons.index(no[kind]) + 1})")
        return f"| {name} | {' | '.join(cells)} |"

    lines += [row(feature.name, feature.no) for feature in FEATURES]
    lines += [row(f"`shed('{name}')`", no) for name, no in POLICIES.items()]
    lines += ["", *(f"{number}. {_sentence(text)}" for number, text in enumerate(reasons, 1))]
    lines += ["", f"Features compose with each other{', except:' if EXCLUSIVE else '.'}"]
    lines += ["", *(f"- {one} and {other}: {why}." for (one, other), why in EXCLUSIVE.items())]
    lines += ["", "Not every runtime has every feature:", ""]
    for (names, runtime), why in NOT_IN.items():
        lines.append(f"- {' with '.join(names)} is not in `{runtime}`: {why}.")
    return "\n".join(lines).rstrip() + "\n"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    print(support_table(), end="")
