"""What a join takes in memory: its tables, what it keeps of each row, and the rows themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamshed.conditions import Cosine, InnerProduct, Near
from streamshed.engine.allocation import first_shape, is_sparse
from streamshed.engine.match.attribute_index import index_layout
from streamshed.engine.match.key_windows import key_windows_layout
from streamshed.engine.match.pairs import selectivity_layout, vectors_by_row
from streamshed.engine.match.row_facts import row_facts_layout
from streamshed.engine.match.sorted_windows import WINDOW_ROWS, sorted_layout
from streamshed.engine.match.vectors import PLACES, vector_layout
from streamshed.engine.observe import estimator, sample_join
from streamshed.engine.observe.estimator import is_estimated
from streamshed.engine.observe.recorder import NOTE
from streamshed.engine.observe.state import loss_layout
from streamshed.engine.row_sizes import fixed_bits
from streamshed.errors import SpecError
from streamshed.kernels.core import Field, Shape, core_layout
from streamshed.plan.plan import Plan
from streamshed.policies import Exact
from streamshed.sizes import rounded

MANY = 1 << 20
"""Rows from which the bytes of each are computed."""


def within_memory(plan: Plan) -> Plan:
    """The plan of a join whose budget is in bytes, divided into tables and rows; others stay.

    Raises:
        SpecError: the tables alone are larger than the budget.
    """
    if plan.memory is None:
        return plan
    each = bytes_of_row(plan)
    schemas = [stream.schema for stream in plan.streams]
    least = each + min(-(-sum(fixed_bits(f.type) for f in schema) // 8) for schema in schemas)
    tables = bytes_of_tables(replace(plan, total=plan.memory.nbytes // least))
    memory = replace(plan.memory, tables=tables, each=each)
    if memory.for_rows < least:
        raise SpecError(
            f".keep(memory=…): {rounded(memory.nbytes)} is less than the {rounded(tables + least)}"
            f" that the tables of shed({plan.policy.name!r}) and a single row need"
            f"{' in each shard; give more, or fewer shards' if plan.shards[1:] else '; give more'}"
        )
    rows, part = memory.for_rows // least, plan.part
    if part is not None:
        whole = memory.for_rows * part.shards
        part = replace(part, nbytes=whole, budgets=(rows * part.shards,))
    return replace(plan, memory=memory, total=rows, part=part)


def bytes_of_row(plan: Plan) -> int:
    """Bytes that are kept of a row, of a key of its own, besides its payload."""
    return -(-(_bytes(plan, 2 * MANY) - _bytes(plan, MANY)) // MANY)


def bytes_of_tables(plan: Plan) -> int:
    """Bytes of all that does not depend on how many rows are stored."""
    return _bytes(plan, 0) + (bytes_of_sample(plan) if is_estimated(plan) else 0)


def bytes_of_sample(plan: Plan) -> int:
    """Bytes of the sample from which missed results are estimated."""
    entries = entries_of_sample(plan)
    if not plan.makes_products:
        return _bytes(plan.unbounded, entries) + entries * NOTE.itemsize
    bits = estimator.sketch_bits(first_shape(plan).budget, len(plan.streams))
    layout = loss_layout(entries, bits, plan)
    return first_shape(plan).nbytes(layout)


def entries_of_sample(plan: Plan) -> int:
    """The entries, or rows, of the sample from which missed results are estimated."""
    budget = first_shape(plan).budget
    if plan.makes_products:
        return estimator.sample_entries(budget)
    return sample_join.sample_entries(budget)


def _bytes(plan: Plan, rows: int) -> int:
    """Bytes of the store, the policy and the matcher for so many rows."""
    shape = _shape(plan, rows)
    policy = plan.policy if plan.bounded else Exact()
    layouts = [core_layout(), policy.layout(shape)]
    if plan.by_whole_keys and plan.throttle is not None and not plan.throttle.dropping:
        layouts.append(key_windows_layout(len(plan.streams)))
    if plan.graph:
        layouts.append(index_layout(plan))
    if plan.through is not None:
        layouts.append(row_facts_layout())
    if plan.pairwise is not None:
        layouts += [selectivity_layout(shape.lanes), _compared_layout(plan, rows)]
    partners = rows * np.dtype(np.int32).itemsize * (2 if plan.by is not None else 1)
    return partners + sum(shape.nbytes(layout) for layout in layouts)


def _compared_layout(plan: Plan, rows: int) -> dict[str, Field]:
    """What is kept of rows that a condition compares, besides what is compared.

    Basic windows may have places free: so many are counted for each lane, and for all rows.
    """
    lanes, keyed = len(plan.streams), bool(plan.streams[0].key)
    if isinstance(plan.pairwise, Near) and not keyed:
        return sorted_layout(2 * lanes + 1 + 4 * rows // WINDOW_ROWS)
    if isinstance(plan.pairwise, Cosine | InnerProduct) and not keyed and plan.queue is None:
        return vector_layout(np.float64, 0, 2 * lanes + 1 + 2 * rows // PLACES)
    return vectors_by_row(np.float64, 0)


def _shape(plan: Plan, rows: int) -> Shape:
    """The room of a join that holds so many rows, each of a key of its own."""
    shape = first_shape(plan)
    return replace(
        shape,
        rows=rows,
        keys=rows + 1,
        # An upper bound: a directory for as many keys has up to 2.5 places for each, or 5.
        table=(6 if is_sparse(rows, plan.bounded) else 3) * rows,
        held=-(-rows // shape.pools) if plan.bounded else 0,
    )
