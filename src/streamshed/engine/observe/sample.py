"""The sample of a running join: made, given room, saved and read again; and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.engine.allocation import directory, enough
from streamshed.engine.observe.sampling import GROUPS, ORDINARY, STEPS, Sample, sample_layout
from streamshed.estimates import Tally
from streamshed.kernels.core import (
    ARRIVALS,
    BOUNDLESS,
    KEYS_USED,
    NEWEST,
    Core,
    Field,
    Memory,
    Shape,
    core_layout,
    make,
)
from streamshed.kernels.random import GOLDEN
from streamshed.plan.plan import Plan

SAMPLE, TRUE = "sample.", "true."
"""What names of arrays begin with: those of the tallies, and those of the sample's core."""

SIEVE, OF_SAMPLE = ("sieve", "regulars", "beyond"), ("sample row", "sample key")
"""The arrays by name, and those by row or key, that are made anew with the sample."""
OF_ROWS = ("row", "key", "entry")
"""The arrays by row or key of the join itself."""

PLACE = np.dtype([("row", np.int32), ("key", np.int32)])
"""Where a row is, and its key."""

PATIENCE = 1 << 10
"""Tuples that are followed at a rate before the next lower one will do."""
CAPACITY = 1 << 12
"""Rows that a sample may hold in any case, if it chooses its rate by itself."""
PART = 8
"""Beyond that it may hold one row for so many that the budget allows."""
LEAST, LESSONS = 1 / 32, 256
"""A policy may ask for a higher rate than the least, but not beyond so many rows of the budget."""
_MINUTE = 60_000_000


def new_sample(plan: Plan, core: Core, shape: Shape, memory: Memory, least: float) -> Sample:
    """An empty sample.

    Args:
        plan: the join.
        core: its state, of which the sample's is a likeness.
        shape: the room of the arrays.
        memory: where they are.
        least: the rate to which the sample comes down if it chooses its rate by itself and the
            budget is small.
    """
    settings = core.settings._replace(pooled=True, pools=1)
    true = make(Core, core_layout(), shape.of_sample, memory, TRUE, settings=settings)
    true.numbers[:] = core.numbers
    true.lanes[:] = core.lanes
    # The rows have no budget, but hooks are called for rows of bounded pools alone.
    true.pools["budget"] = BOUNDLESS - 1
    sample = make(Sample, sample_layout(), shape, memory, SAMPLE, core=true)
    budgets = [rows for rows in core.pools["budget"].tolist() if rows < BOUNDLESS]
    if (not budgets and plan.throttle is None) or plan.rate == 0:
        return sample
    sieve = sample.sieve[0]
    sieve["limit"] = 2**64 - 1
    sieve["salt"] = (plan.seed + 1) * int(GOLDEN) % 2**64
    sieve["rate"] = 1.0
    asked = max(LEAST, min(least, LESSONS / sum(budgets))) if budgets else LEAST
    sieve["least"] = asked if plan.rate is None else plan.rate
    sieve["capacity"] = max(CAPACITY, sum(budgets) // PART) if plan.rate is None else BOUNDLESS
    sieve["ordinary"], sieve["patience"] = ORDINARY, PATIENCE
    sieve["step"] = -(-lately(plan) // STEPS)
    return sample


def lately(plan: Plan) -> int:
    """What "lately" means: a minute, or else the longest window (in time, or in rows of all)."""
    if pa.types.is_timestamp(plan.time_type):
        return _MINUTE
    windows = [stream.window for stream in plan.streams if stream.window is not None]
    return max(1, max(windows) if windows else sum(stream.last or 0 for stream in plan.streams))


def sample_room(
    sample: Sample, old: Shape, tuples: int, restored: int, disordered: bool
) -> dict[str, int]:
    """The room that the sample needs for so many followed tuples more, as fields of a shape."""
    sieve, true = sample.sieve[0], sample.core
    if sieve["limit"] == 0:
        return {}
    held, capacity = int(true.pools["held"][0]), int(sieve["capacity"])
    # One row above the capacity is held for a moment; after a restart there may be more of them.
    rows = enough(old.sample_rows, held + tuples, max(min(capacity, BOUNDLESS) + 1, restored))
    disorder = int(true.sizes.max()) + tuples if disordered else 0
    keys = min(rows, int(true.numbers[KEYS_USED]) + tuples)
    return {
        "sample_rows": rows,
        "sample_table": max(old.sample_table, directory(keys)),
        "sample_disorder": enough(old.sample_disorder, disorder, rows),
    }


def sample_bytes(sample: Sample, used: Shape) -> int:
    """Bytes in use by the sample, given the room that is in use; none if there is no sample."""
    if sample.sieve[0]["limit"] == 0:
        return 0
    true = sample.core
    of_sample = replace(
        used.of_sample,
        keys=int(true.numbers[KEYS_USED]),
        disorder=min(used.sample_disorder, int(true.sizes.max())),
    )
    return of_sample.nbytes(core_layout()) + used.nbytes(sample_layout())


def places_of(core: Core, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Where rows and their keys are."""
    places = np.empty(len(rows), PLACE)
    places["row"], places["key"] = rows, core.rows["key"][rows]
    return places


def in_use(
    array: npt.NDArray[Any],
    form: Field,
    lanes: int,
    stored: npt.NDArray[Any],
    followed: npt.NDArray[Any],
) -> npt.NDArray[Any]:
    """An array as a checkpoint keeps it.

    What belongs to rows or keys, of the join or of the sample, stands in the order in which these
    will be entered again: rows by their arrival, keys by that of their first row.

    Args:
        array: as it is now.
        form: how it is laid out.
        lanes: the number of lanes.
        stored: the places of the rows stored, in the order of their arrival.
        followed: the same of the rows in the sample.
    """
    if form.per not in (*OF_SAMPLE, *OF_ROWS):
        return array.copy()
    places = followed if form.per in OF_SAMPLE else stored
    order: npt.NDArray[Any] = places["row"]
    if form.per not in ("row", "sample row"):
        _, first = np.unique(places["key"], return_index=True)
        order = places["key"][np.sort(first)]
    width = form.times * (lanes if form.per == "entry" else 1)
    chosen: npt.NDArray[Any] = array.reshape(-1, width)[order]
    return chosen.ravel()


def tallied(sample: Sample) -> Tally:
    """What is known of the results missed so far."""
    return _tally(sample, sample.total, sample.spread)


def tallied_lately(sample: Sample, plan: Plan, core: Core) -> Tally:
    """What is known of those missed in the last minute, or window."""
    step = int(sample.sieve[0]["step"])
    now = int(core.numbers[NEWEST if core.settings.timed else ARRIVALS]) // step
    first = now - -(-lately(plan) // step)
    recent = sample.steps["number"] > first
    spread = sample.step_spread.reshape(STEPS, GROUPS)[recent].sum(axis=0)
    return _tally(sample, sample.steps[recent], spread)


def _tally(sample: Sample, tallies: npt.NDArray[Any], spread: npt.NDArray[np.float64]) -> Tally:
    rate = float(sample.sieve[0]["rate"])
    off = spread - spread.mean()
    return Tally(
        missed=float(tallies["missed"].sum()),
        certain=float(tallies["certain"].sum()),
        seen=float(tallies["seen"].sum()),
        variance=float(off @ off) * GROUPS / (GROUPS - 1),
        # One more key could have missed as much as one of a group has, or one result.
        unit=max(float(np.abs(off).max()), (1 - rate) ** 0.5 / rate) if rate < 1 else 0.0,
    )
