"""Puts the components of a running join together, as its plan asks for."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from streamshed.engine.allocation import first_shape
from streamshed.engine.bulk.bulk import joins_at_once
from streamshed.engine.bulk.by_equalities import GraphBulk
from streamshed.engine.bulk.by_key import KeyBulk
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.gate.spill import DiskSpill
from streamshed.engine.gate.spill_router import SHARED_BITS
from streamshed.engine.ingest import Ingest
from streamshed.engine.match.attribute_matcher import AttributeMatcher
from streamshed.engine.match.condition_matcher import ConditionMatcher
from streamshed.engine.match.key_window_matcher import KeyWindowMatcher
from streamshed.engine.match.matcher import Matcher
from streamshed.engine.match.relation_matcher import RelationMatcher
from streamshed.engine.memory import within_memory
from streamshed.engine.observe.estimator import LossEstimator, is_estimated
from streamshed.engine.observe.sample_join import SampleJoin
from streamshed.engine.operator import Operator
from streamshed.engine.restore import restore
from streamshed.kernels.core import BOUNDLESS, Memory
from streamshed.plan.plan import Plan


def build_operator(plan: Plan, whole: bool = True, memory: Memory | None = None) -> Operator:
    """The running join of a plan, which has seen nothing yet.

    Args:
        plan: the join, checked against its inputs.
        whole: whether all columns of the plan are kept: checkpoints and late rows need them.
        memory: where the arrays are.
    """
    memory = memory or Memory()
    plan = within_memory(plan)
    if plan.spill is None:
        return _in_memory(plan, whole, memory)
    join = _in_memory(replace(plan.unbounded, memory=plan.memory), whole, memory)
    # A part of the keys sees a part of the times: its clock is no later than that of all. Row
    # windows move by the rows of all keys, so that it is told there which rows leave.
    streams = tuple(replace(s, last=None) for s in plan.unbounded.streams)
    alone = replace(plan.unbounded, streams=streams, idle=None, queue=None, rate=0.0)
    if plan.ahead is not None or all(stream.window is None for stream in streams):
        # Nor is a row late that stands behind one that is far ahead, or if time does not count.
        alone = replace(alone, ahead=None, late=BOUNDLESS // 2)
    visitor = _in_memory(replace(alone, throttle=None), whole, Memory())
    visitor.throttle, visitor.warmed = join.throttle, join.warmed
    if join.loss is not None:
        join.loss = LossEstimator(plan, join.shape, memory)  # as large as the budgets allow
    bulk = None
    if join.loss is None and joins_at_once(replace(plan.unbounded, spill=None)):
        bulk = KeyBulk(visitor, threads=1, shared=SHARED_BITS)
    join.spill = DiskSpill(plan, plan.spill, join, visitor, bulk)
    return join


def build_bulk_operator(plan: Plan, whole: bool = True) -> Operator:
    """The same for rows that all come in the order of time, which may be joined many at once.

    Args:
        plan: the join, checked against its inputs.
        whole: whether all columns of the plan are kept.
    """
    join = build_operator(plan, whole)
    if joins_at_once(plan):
        join.bulk = GraphBulk(join) if plan.graph else KeyBulk(join)
    return join


def restore_operator(plan: Plan, snapshot: Snapshot, memory: Memory | None = None) -> Operator:
    """The join as it was when the snapshot was taken."""
    join = build_operator(plan, memory=memory)
    restore(join, snapshot)
    return join


def _in_memory(plan: Plan, whole: bool, memory: Memory) -> Operator:
    ingest = Ingest(plan)
    join = Operator(plan, ingest, _matcher(plan, ingest, memory), whole, memory)
    if is_estimated(plan) and not plan.makes_products:
        join.loss = SampleJoin(join, partial(_second, plan, join))
    return join


def _second(plan: Plan, join: Operator, depth: int) -> Operator:
    """A join like another, of rows that it has read; it has no budget and hands out no columns.

    Its relation, if there is one, has the facts of a depth.
    """
    streams = tuple(replace(stream, weight=None, chosen=()) for stream in plan.streams)
    alone = replace(plan, streams=streams, throttle=None, queue=None, rate=0.0, aggregates=None)
    alone = replace(alone, memory=None, unmatched=())  # nobody takes rows without a match
    if plan.through is not None and depth:
        alone = replace(alone, through=replace(plan.through, chosen=(), depth=depth))
    if plan.pairwise is None:  # a function of the user's is compiled for one policy only
        alone = alone.unbounded
    second = _in_memory(alone, False, Memory())
    second.ingest = join.ingest
    return second


def _matcher(plan: Plan, ingest: Ingest, memory: Memory) -> Matcher:
    """The matcher that a plan asks for."""
    shape = first_shape(plan)
    if plan.through is not None:
        return RelationMatcher(plan, shape, memory)
    if plan.pairwise is not None:
        return ConditionMatcher(plan, ingest.compared, shape, memory)
    if plan.graph:
        return AttributeMatcher(plan, shape, memory)
    if plan.throttle is not None and not plan.throttle.dropping:
        return KeyWindowMatcher(plan, shape, memory)
    return Matcher(plan, shape, memory)
