"""Changes of a relation that come as a streaming DataFrame, of which every shard gets all.

Spark reads them with the rows of a batch, so that a batch that is done again has the same ones. A
shard keeps those that it was given in its state, with the times from which on they hold: after a
restart the relation is what it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from streamshed.columns import no_rows
from streamshed.engine.encoding import times_of
from streamshed.errors import InputError
from streamshed.plan.plan import Plan
from streamshed.relations import Relation
from streamshed.sources import Source, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamshed.engine.match.relation_matcher import RelationMatcher
    from streamshed.engine.operator import Operator
    from streamshed.spec import Spec

CHANGES = -3
"""The stream of a blob of changes, and of the changes in the state store."""


@dataclass(frozen=True)
class StreamedChanges:
    """Changes that come with the batches of a query.

    Attributes:
        name: what tells them from those of another query.
        schema: their columns.
        waiting: those that were given to the join and that it has not read yet.
    """

    name: str
    schema: pa.Schema = field(compare=False)
    waiting: deque[pa.RecordBatch] = field(default_factory=deque, compare=False, repr=False)

    def source(self, name: str) -> Source:
        """The changes as an input without an end."""

        def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
            nothing = no_rows(self.schema).select(columns)
            while True:
                yield self.waiting.popleft().select(columns) if self.waiting else nothing

        return Source(name, self.schema, read, whole=False, rows=None, grows=True)


@dataclass(frozen=True, eq=False, repr=False)
class StreamedRelation(Relation):
    """A relation whose changes come with the batches of a query."""

    @cached_property
    def news(self) -> Source | None:
        """The changes."""
        found: Source = self.changes.source(self.name)
        return found


def without_frame(spec: Spec) -> tuple[Spec, DataFrame | None]:
    """The join without the streaming DataFrame of changes that its relation has, and that, if any.

    A plan goes to the workers, and a DataFrame cannot.
    """
    through = spec.through_relation
    if through is None or not getattr(through.relation.changes, "isStreaming", False):
        return spec, None
    relation, frame = through.relation, through.relation.changes
    told = {part.name: getattr(relation, part.name) for part in fields(Relation)}
    changes = StreamedChanges(f"changes of {relation.name}", spark_schema(frame))
    streamed = StreamedRelation(**(told | {"changes": changes}))
    return replace(spec, through_relation=replace(through, relation=streamed)), frame


def changes_of(plan: Plan) -> StreamedChanges | None:
    """The changes of a join that come with its batches, if there are any."""
    found: Any = None if plan.through is None else plan.through.relation.changes
    return found if isinstance(found, StreamedChanges) else None


def with_own_changes(plan: Plan) -> Plan:
    """The plan for one operator: what waits for it is given to no other."""
    changes = changes_of(plan)
    if changes is None or plan.through is None:
        return plan
    own = replace(changes, waiting=deque())
    relation = replace(plan.through.relation, changes=own)
    return replace(plan, through=replace(plan.through, relation=relation))


def in_effect(
    join: Operator, changes: Sequence[pa.RecordBatch], latest: int
) -> tuple[pa.RecordBatch, int]:
    """The changes of a batch with the times from which on they hold, in their order, and the last.

    Nothing that was done is undone: a change that comes after its time holds from now on.

    Args:
        join: what has come to some time.
        changes: as they came.
        latest: the time of the last change before them.
    """
    plan = join.plan
    assert plan.through is not None
    relation, matcher = plan.through.relation, cast("RelationMatcher", join.matcher)
    rows = pa.concat_batches(changes)
    where = f"the changes of relation {relation.name!r}, column {relation.time!r}"
    times, null = times_of(rows.column(relation.time), plan.time_type, where)
    if null.size:
        raise InputError(f"{where}: {int(null.sum()):,} changes have no time; give them one")
    order = np.argsort(times, kind="stable")
    after = max(latest, matcher.relation.asked + 1)
    effective = np.maximum.accumulate(np.maximum(times[order], after))
    column = pa.array(effective, pa.int64()).cast(plan.time_type)
    place = rows.schema.get_field_index(relation.time)
    ordered = rows.take(pa.array(order)).set_column(place, relation.time, column)
    return ordered, int(effective[-1])
