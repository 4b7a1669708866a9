"""What was said of time, in units of a join's time column: windows, lateness, and how much work."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from streamshed.aggregates import Windows
from streamshed.durations import LIMIT, Duration, describe, parse, to_units
from streamshed.errors import SpecError
from streamshed.plan.plan import MOST_PARTS, PARTS, QueuePlan, SpillPlan, ThrottlePlan
from streamshed.policies import Policy
from streamshed.spec import Spec

SHARE_TO_KEEP_UP = 0.8
"""The part of the time that a join takes which is to keep up; the rest is for what is around it."""


def window_of(spec: Spec, stream: str, time_type: pa.DataType) -> int | None:
    """The length of a stream's time window, if it has one; where they differ, of the longest."""
    length = spec.length_of(stream)
    if length is None or spec.time_windows is None:
        return None
    lengths = [length, *(of_own for _, of_own in spec.time_windows.own)]
    window = max(units(one, time_type, f"the window of stream {stream!r}") for one in lengths)
    if window + lateness(spec, time_type) >= 2 * LIMIT:
        raise SpecError(
            f"the window of stream {stream!r} and `late` are {window} and "
            f"{lateness(spec, time_type)}, together beyond 2**63 units of time; give a shorter one"
        )
    return window


def lateness(spec: Spec, time_type: pa.DataType) -> int:
    """How late rows may come."""
    # Rows that leave by their number cannot come too late.
    return units(spec.time_windows.late, time_type, "`late`") if spec.time_windows else LIMIT


def idleness(spec: Spec, time_type: pa.DataType) -> int | None:
    """How far a stream may fall behind before the clock waits for it no longer, if ever."""
    if spec.time_windows is None or spec.time_windows.idle is None:
        return None
    return units(spec.time_windows.idle, time_type, "`idle`")


def leeway(spec: Spec, time_type: pa.DataType) -> int | None:
    """How far a row may be ahead of all others and still move the clock; None: as far as it is."""
    windows = spec.time_windows
    if spec.by is None or windows is None:
        return None
    if windows.ahead is not None:
        return units(windows.ahead, time_type, "`ahead`")
    longest = window_of(spec, "", time_type)
    return None if longest is None else longest + lateness(spec, time_type)


def spill_of(spec: Spec, time_type: pa.DataType) -> SpillPlan | None:
    """Where rows go when memory is full, and until when they are joined, in units of time."""
    if spec.spilled is None:
        return None
    deadline = spec.spilled.deadline
    if deadline is None:
        return SpillPlan(spec.spilled.to, None)
    return SpillPlan(spec.spilled.to, units(deadline, time_type, ".spill(): `deadline`"))


def clock_of(spec: Spec) -> Literal["min", "max"]:
    """Which stream sets the clock."""
    # Streams named by a column share one clock, the largest time seen.
    if spec.by is not None:
        return "max"
    return spec.time_windows.clock if spec.time_windows else "min"


def queue_of(spec: Spec, policy: Policy, time_type: pa.DataType) -> QueuePlan | None:
    """The queue in which rows wait, if there is one."""
    if spec.queue_rows is None:
        return None
    second = _second(time_type)
    gap = 0.0 if spec.speed is None else 1 / (spec.speed * second)
    each = spec.queue_per == "stream"
    if each and spec.by is not None:
        raise SpecError(
            ".queue(): `per` is 'stream', but the streams are known only as they appear; leave "
            "`per` out, so that they share a queue"
        )
    return QueuePlan(spec.queue_rows, gap, policy.makes_sample, second, per_stream=each)


def aggregates_of(spec: Spec, time_type: pa.DataType) -> Windows | None:
    """The aggregates that are asked for, if any."""
    said = spec.aggregation
    if said is None:
        return None
    method = ".aggregate()"
    over = units(said.over, time_type, f"{method}: `over`")
    every = over if said.every is None else units(said.every, time_type, f"{method}: `every`")
    wait = None if said.wait is None else units(said.wait, time_type, f"{method}: `wait`")
    return Windows(said.stream, said.column, over, every, said.quantiles, time_type, wait)


def _second(time_type: pa.DataType) -> float:
    """The seconds of a unit of time; a plain number is taken for as many."""
    return 1e-6 if pa.types.is_timestamp(time_type) else 1.0


def throttle_of(spec: Spec, time_type: pa.DataType) -> ThrottlePlan | None:
    """How much work the join may do, if that is bounded."""
    said = spec.throttled
    if said is None:
        return None
    method = ".throttle()"
    every = said.every
    if not pa.types.is_timestamp(time_type) and every == parse("5 seconds", ""):
        every = 5  # a unit of a plain number is taken for a second
    part = None if said.part is None else units(said.part, time_type, f"{method}: `part`")
    found = [window_of(spec, stream, time_type) for stream in spec.streams or ("",)]
    windows = [window for window in found if window is not None]
    shortest, longest = min(windows, default=0), max(windows, default=0)
    if part is not None and not 0 < part <= shortest:
        raise SpecError(
            f"{method}: `part` is {describe(said.part or 0)}, but a window is cut into parts that "
            f"are no longer than itself, and the shortest has {shortest} units of time; give a "
            "shorter one"
        )
    plan = ThrottlePlan(
        capacity=None if said.comparisons is None else said.comparisons * _second(time_type),
        share=SHARE_TO_KEEP_UP if said.keep_up else said.cpu,
        wall=said.keep_up,
        second=_second(time_type),
        every=units(every, time_type, f"{method}: `every`"),
        boost=said.boost,
        part=part,
        parts=PARTS,
        sample=said.sample,
        buffer=said.buffer,
        dropping=said.dropping,
        conserve=said.conserve,
        by_rows=said.rule == "paper",
    )
    if plan.every <= 0:
        raise SpecError(f"{method}: `every` is {describe(said.every)}; it must be greater than 0")
    if part is not None and -(-longest // part) > MOST_PARTS:
        raise SpecError(
            f"{method}: `part` is {describe(said.part or 0)}, so that a window has "
            f"{-(-longest // part)} parts, more than {MOST_PARTS}; give a longer one"
        )
    return plan


def units(duration: Duration, time_type: pa.DataType, what: str) -> int:
    """A duration in units of a join's time column."""
    return to_units(duration, time_is_timestamp=pa.types.is_timestamp(time_type), what=what)
