"""A table among the inputs of a join: the streams are joined through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamshed.arguments import PerStream
from streamshed.conditions import SharedKey
from streamshed.errors import InputError, SpecError, listed, suggestion
from streamshed.plan.capabilities import FEATURES
from streamshed.relations import Table
from streamshed.spec import Spec, Through


def with_table(spec: Spec, data: Mapping[str, Any]) -> tuple[Spec, Mapping[str, Any]]:
    """The join of the streams through a table among its inputs, and the other inputs.

    Without a table, the join and its inputs as they are.
    """
    tables = [name for name, given in data.items() if isinstance(given, Table)]
    if not tables:
        return spec, data
    name = tables[0]
    streams = tuple(stream for stream in spec.streams if stream != name)
    if not streams:
        raise InputError(
            f"the input {name!r} is a table, but a join needs at least one stream; give the rows "
            "themselves instead of ss.table(…)"
        )
    if len(tables) > 1:
        raise InputError(
            f"the inputs {listed(tables)} are tables, but a join takes one; join the tables to one "
            "table first"
        )
    if spec.through_relation is not None:
        raise InputError(
            f"the input {name!r} is a table, but .through() joins the streams through a relation "
            "already; join the table with the relation first"
        )
    if name not in spec.streams:
        raise InputError(
            f"the table is given for {name!r}, but the streams of the join are "
            f"{listed(spec.streams)}.{suggestion(name, spec.streams)}"
        )
    if spec.condition is None or spec.pairwise is not None or spec.graph() is not None:
        raise SpecError(
            f"{name!r} is a table, but tables are matched by a key that all inputs share; name it, "
            "as in .on('k')"
        )
    for feature in FEATURES:
        if feature.is_said(spec) and "relation" in feature.no:
            raise SpecError(
                f"{feature.method} cannot be combined with a table among the inputs, and {name!r} "
                "is one; leave it out, or join the results with the table afterwards"
            )
    if method := _ordering(spec, name):
        raise SpecError(
            f"{method} names {name!r}, but that is a table, whose rows have no time and match at "
            "any; name streams only"
        )
    relation = replace(data[name], name=name)
    key, columns = spec.key_of(name), relation.schema.names
    if missing := [column for column in key if column not in columns]:
        said = ", ".join(f"{stream}={spec.key_of(stream)[0]!r}" for stream in streams)
        raise InputError(
            f"table {name!r} has no column {missing[0]!r}, which the join uses as its key; its "
            f"columns are {listed(columns)}. Name its key, as in .on({said}, {name}={columns[0]!r})"
        )
    keys = {stream: spec.key_of(stream) for stream in streams}
    met = PerStream(named=tuple((stream, spec.key_of(name)) for stream in streams))
    return replace(
        spec,
        streams=streams,
        condition=SharedKey(PerStream(named=tuple(keys.items()))),
        through_relation=Through(relation, met),
    ), {stream: given for stream, given in data.items() if stream != name}


def _ordering(spec: Spec, name: str) -> str | None:
    """The method that bounds the times of an input's rows; None if there is none."""
    if spec.order is not None and name in spec.order.streams:
        return ".in_order()"
    if any(name in (interval.later, interval.earlier) for interval in spec.intervals):
        return ".between()"
    return None
