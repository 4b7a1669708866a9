"""The operator that a plan asks for."""

from __future__ import annotations

from streamshed.kernels.core import Memory
from streamshed.operators.checkpoint import Snapshot
from streamshed.operators.graph import GraphJoin
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.nested import NestedJoin
from streamshed.operators.pacing import PacedGraphJoin, PacedJoin
from streamshed.operators.plan import Plan
from streamshed.operators.queued import QueuedJoin
from streamshed.operators.spilling import SpillingJoin
from streamshed.operators.star import StarJoin


def build_operator(plan: Plan, whole: bool = True, memory: Memory | None = None) -> KeyedJoin:
    """Build the operator of a plan, with empty windows.

    Args:
        plan: the join, checked against its inputs.
        whole: whether all columns of the plan are kept: checkpoints and late rows need them.
        memory: where the arrays are.
    """
    return operator_type(plan)(plan, whole, memory)


def restore_operator(plan: Plan, snapshot: Snapshot, memory: Memory | None = None) -> KeyedJoin:
    """Build the operator of a plan as it was when a snapshot was taken.

    Args:
        plan: the join, checked against its inputs.
        snapshot: the state, of this join or of one with another policy, seed or budget.
        memory: where the arrays are.
    """
    return operator_type(plan).restore(plan, snapshot, memory)


def operator_type(plan: Plan) -> type[KeyedJoin]:
    """Choose the class of the operator."""
    if plan.spill is not None:
        return SpillingJoin
    if plan.through is not None:
        return StarJoin
    if plan.queue is not None:
        return QueuedJoin
    if plan.graph:
        return GraphJoin if plan.throttle is None else PacedGraphJoin
    if plan.pairwise is not None:
        return NestedJoin
    return KeyedJoin if plan.throttle is None else PacedJoin
