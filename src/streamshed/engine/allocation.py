"""How much room the arrays of a join need, and how they grow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamshed.kernels.core import (
    ALL,
    BOUNDLESS,
    CLOCK,
    FIRST_SEEN,
    FREE_KEY,
    FREE_ROW,
    NEVER,
    NEWEST,
    NONE,
    PINNED,
    Core,
    Memory,
    Settings,
    Shape,
    core_layout,
    grown,
    key_words,
    make,
)
from streamshed.kernels.core import PER_KEY as FIRST_OF_KEY
from streamshed.kernels.table import refill
from streamshed.plan.plan import Plan
from streamshed.spec import PER_KEY

CACHED_KEYS = 1 << 16
"""So many keys stay in the cache by themselves."""


def first_shape(plan: Plan) -> Shape:
    """The room of a join that has seen nothing yet."""
    lanes = len(plan.streams)
    per_key = plan.first is not None and plan.first.per == PER_KEY
    budget = _sized_for(plan)
    shed_places = 1 << min(16, max(8, (8 * budget).bit_length()))
    return Shape(
        rows=0,
        keys=1,
        table=2,
        streams=lanes,
        lanes=lanes,
        sweeps=len(plan.windows.lengths) if plan.windows else lanes,
        pools=lanes if any(stream.rows is not None for stream in plan.streams) else 1,
        held=0,
        recent=sum(stream.last or 0 for stream in plan.streams),
        disorder=0,
        out_of_order=False,
        budget=budget,
        weighted=plan.weighed,
        sized=plan.memory is not None,
        counted=plan.bounded and (plan.policy.counts_keys or plan.memory is not None),
        bounded=bool(plan.bounds),
        met=bool(plan.unmatched) or (plan.first is not None and not per_key),
        unmatched=bool(plan.unmatched),
        shed_places=shed_places if plan.unmatched and plan.bounded else 0,
        first_keys=per_key,
    )


def _sized_for(plan: Plan) -> int:
    """The rows for which tables are made that do not grow: those of all budgets.

    Of a budget in bytes most is payload, and fewer rows come than would fit without it.
    """
    if plan.memory is not None:
        return (plan.total or 0) // 4
    return plan.total or sum(stream.rows or 0 for stream in plan.streams)


def empty_core(plan: Plan, shape: Shape, memory: Memory, prefix: str) -> Core:
    """The core of a join that has seen nothing yet."""
    timed = any(stream.window is not None for stream in plan.streams)
    settings = Settings(
        by=plan.by is not None,
        pooled=shape.pools == 1,
        complete=plan.at_least is None,
        at_least=plan.at_least or len(plan.streams),
        late=min(plan.late, BOUNDLESS),
        idle=BOUNDLESS if plan.idle is None else plan.idle,
        ahead=BOUNDLESS if plan.ahead is None else min(plan.ahead, BOUNDLESS),
        clock_max=plan.clock == "max",
        timed=timed,
        lazy=plan.by_whole_keys and not plan.bounded and plan.memory is None,
        seed=np.uint64(plan.seed),
        lanes=shape.lanes,
        sweeps=shape.sweeps,
        shortest=plan.windows.lengths[-1] if plan.windows else BOUNDLESS,
        pools=shape.pools,
        key_words=key_words(shape.lanes),
        width=shape.lanes + (plan.through is not None),
        first=_first(plan),
        last_touch=plan.first is not None and plan.first.last_touch,
        unmatched=np.uint64(
            sum(1 << i for i, stream in enumerate(plan.streams) if stream.name in plan.unmatched)
        ),
    )
    core = make(Core, core_layout(), shape, memory, prefix, settings=settings)
    core.numbers[[FREE_ROW, FREE_KEY, PINNED]] = NONE
    core.numbers[[CLOCK, NEWEST, FIRST_SEEN]] = NEVER
    if plan.bounds:
        core.bounds[:] = np.minimum(np.ravel(plan.bounds), BOUNDLESS)
    for lane, stream in enumerate(plan.streams):
        core.lanes["window"][lane] = BOUNDLESS if stream.window is None else stream.window
        core.lanes["last"][lane] = stream.last or 0
        core.lanes["recent"][lane] = core.lanes["last"][:lane].sum()
    if plan.windows is not None:
        core.lanes["window"] = plan.windows.lengths
        core.lanes["last"] = plan.streams[0].last or 0
    core.lanes["newest"] = NEVER
    budgets = [stream.rows for stream in plan.streams] if len(core.pools) > 1 else [plan.total]
    core.pools["budget"] = [BOUNDLESS if rows is None else rows for rows in budgets]
    core.pools["limit"] = BOUNDLESS if plan.memory is None else plan.memory.for_rows
    return core


def _first(plan: Plan) -> int:
    """Of what the first result only is made."""
    if plan.first is None:
        return ALL
    names = [stream.name for stream in plan.streams]
    return FIRST_OF_KEY if plan.first.per == PER_KEY else names.index(plan.first.per)


def allowed(budgets: npt.NDArray[np.int64]) -> int:
    """The rows that all budgets together allow."""
    return int(min(sum(budgets.tolist()), BOUNDLESS))


def enough(have: int, needed: int, most: int = BOUNDLESS) -> int:
    """Room that grows fourfold, so that growing is rare, and never beyond the most."""
    needed = min(needed, most)
    return have if needed <= have else min(most, 4 * needed)


def directory(keys: int, bounded: bool = True) -> int:
    """The size of a directory for so many keys: a power of two, at most four fifths full.

    It grows with the keys, not with the room. Rows mostly share keys, so that it is seldom as full
    as that.
    """
    places = 2.5 if is_sparse(keys, bounded) else 1.25
    return 1 << int(keys * places + 1).bit_length()


def is_sparse(keys: int, bounded: bool) -> bool:
    """Whether a directory for so many keys is two fifths full at most.

    If a key leaves, the hashes of all keys are read that stand behind it. Where keys are not in the
    cache this costs more than the place, unless bytes are counted against a budget.
    """
    return not bounded and keys > CACHED_KEYS


def roomier(core: Core, shape: Shape, memory: Memory, prefix: str) -> Core:
    """The core with room for the shape; a larger directory is filled anew."""
    layout = core_layout()
    table = layout.pop("table")
    larger = grown(core, layout, shape, memory, prefix)
    if shape.table > len(core.table):
        empty = table.grown(table.nothing(), shape, memory, prefix + "table")
        larger = larger._replace(table=empty)
        refill(larger)
    return larger
