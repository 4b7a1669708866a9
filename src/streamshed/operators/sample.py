"""The sample of a running join: made, given room, saved and read again; and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamshed.estimates import Tally
from streamshed.kernels.core import (
    ARRIVALS,
    BOUNDLESS,
    KEY_HASH,
    KEYS_USED,
    NEWEST,
    ROWS_USED,
    Core,
    Field,
    Memory,
    Shape,
    core_layout,
    make,
)
from streamshed.kernels.random import GOLDEN
from streamshed.kernels.sampling import GROUPS, STEPS, Sample, sample_layout
from streamshed.operators.buffers import Batch
from streamshed.operators.keyed_loop import live_rows
from streamshed.operators.plan import Plan
from streamshed.operators.room import directory, enough

SAMPLE, TRUE = "sample.", "true."
"""What names of arrays begin with: those of the tallies, and those of the sample's core."""

OF_SAMPLE = ("sample row", "sample key")
"""The arrays that belong to rows and keys of the sample, and are made anew with it."""

PLACE = np.dtype([("row", np.int32), ("key", np.int32)])
SAVED = np.dtype(
    [("stream", np.int32), ("time", np.int64), ("arrival", np.int64), ("hash", np.uint64)]
)
"""A row of the sample: where it is, and what is saved of it."""

PATIENCE = 1 << 10
"""Tuples that are followed at a rate before the next lower one will do."""
ORDINARY = 1 << 10
"""A key with more than one tuple in so many is followed with a chance that grows with its part."""
CAPACITY = 1 << 12
"""Rows that a sample may hold in any case, if it chooses its rate by itself."""
PART = 32
"""Beyond that it may hold one row for so many that the budget allows."""
_MINUTE = 60_000_000


def new_sample(plan: Plan, core: Core, shape: Shape, memory: Memory, least: float) -> Sample:
    """An empty sample.

    Args:
        plan: the join.
        core: its state, of which the sample's is a likeness.
        shape: the room of the arrays.
        memory: where they are.
        least: the rate to which the sample comes down if it chooses its rate by itself.
    """
    settings = core.settings._replace(pooled=True, pools=1)
    true = make(Core, core_layout(), shape.of_sample, memory, TRUE, settings=settings)
    true.numbers[:] = core.numbers
    true.lanes[:] = core.lanes
    # The rows have no budget, but hooks are called for rows of bounded pools alone.
    true.pools["budget"] = BOUNDLESS - 1
    sample = make(Sample, sample_layout(), shape, memory, SAMPLE, core=true)
    budgets = [rows for rows in core.pools["budget"].tolist() if rows < BOUNDLESS]
    if not budgets or plan.rate == 0:
        return sample
    sieve = sample.sieve[0]
    sieve["limit"] = 2**64 - 1
    sieve["salt"] = (plan.seed + 1) * int(GOLDEN) % 2**64
    sieve["rate"] = 1.0
    sieve["least"] = least if plan.rate is None else plan.rate
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


def sampled_rows(sample: Sample) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The rows of the sample in the order of their arrival: where they are, and as saved."""
    true = sample.core
    used = true.rows[: true.numbers[ROWS_USED]]
    rows = live_rows(used)
    rows = rows[np.argsort(used["arrival"][rows])]
    places, saved = np.empty(len(rows), PLACE), np.empty(len(rows), SAVED)
    places["row"], places["key"] = rows, used["key"][rows]
    for name in ("stream", "time", "arrival"):
        saved[name] = used[name][rows]
    words = true.keys.reshape(-1, true.settings.key_words)
    hashes = np.ascontiguousarray(words[:, KEY_HASH : KEY_HASH + 2]).view(np.uint64)[:, 0]
    saved["hash"] = hashes[places["key"]]
    return places, saved


def rows_again(saved: npt.NDArray[Any]) -> tuple[Batch, npt.NDArray[np.int64]]:
    """The rows of the sample as they were saved: tuples, and their arrival numbers."""
    stream, time, hashed, arrival = (
        np.ascontiguousarray(saved[name]) for name in ("stream", "time", "hash", "arrival")
    )
    nothing = np.empty(0, np.int64)
    batch = Batch(stream, time, hashed, np.zeros(len(time), np.int64), nothing > 0, nothing)
    return batch, arrival


def in_use(array: npt.NDArray[Any], form: Field, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array as a checkpoint keeps it.

    What belongs to rows or keys of the sample stands in the order in which these will be entered
    again: rows by their arrival, keys by that of their first row.
    """
    if form.per not in OF_SAMPLE:
        return array.copy()
    order: npt.NDArray[Any] = places["row"]
    if form.per == "sample key":
        _, first = np.unique(places["key"], return_index=True)
        order = places["key"][np.sort(first)]
    chosen: npt.NDArray[Any] = array.reshape(-1, form.times)[order]
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
