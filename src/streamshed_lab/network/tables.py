"""What heads store: the readings of their members, by value and in order of time.

Readings are numbered in the order (time, sensor, as they came), which is the order of the join: of
two that match, the one of the larger number makes the result. A request takes only smaller numbers
than its own, and a head remembers what it has served: a reading that comes to its head only
after a request of a larger number was served there is added to the result of that request. So each
pair is found once, in whatever order messages come.

(The paper's mark, the Last-Processed-Tuple of a head, leaves a pair twice if two requests cross on
their way: each finds the other's reading, processed before it came.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import kernel
from streamshed.kernels.core import NONE

Ints = npt.NDArray[np.int64]


class Trace(NamedTuple):
    """All readings, by number."""

    time: Ints
    sensor: npt.NDArray[np.int32]
    cluster: npt.NDArray[np.int32]
    value: npt.NDArray[np.int32]
    arrives: npt.NDArray[np.float64]
    """When the reading comes to its head."""
    coming: Ints
    """Readings in the order in which they come."""
    alike: Ints
    """Readings by value, those of a value in their order."""
    rank: Ints
    """Where a reading is in `alike`."""
    ends: Ints
    """Where each value ends there."""


class Tables(NamedTuple):
    """The hash tables of all heads: for each value and cluster a list of readings, in order."""

    lists: npt.NDArray[np.int32]
    """The list of each value (row) and cluster (column), NONE if there will never be one."""
    start: Ints
    size: Ints
    readings: Ints
    served: npt.NDArray[np.uint8]
    """Whether the request of a reading (row) has been served in a cluster (column)."""


@kernel
def store(trace, tables, number):  # type: ignore[no-untyped-def]
    """Insert a reading at its head: at the end of its list, or in its place if it comes late."""
    place = tables.lists[trace.value[number], trace.cluster[number]]
    start = tables.start[place]
    at = start + tables.size[place]
    tables.size[place] += 1
    while at > start and tables.readings[at - 1] > number:
        tables.readings[at] = tables.readings[at - 1]
        at -= 1
    tables.readings[at] = number


@kernel
def matching(trace, tables, cluster, number, oldest):  # type: ignore[no-untyped-def]
    """From where to where the readings in a cluster are that a reading meets.

    Those of its own sensor are among them.
    """
    place = tables.lists[trace.value[number], cluster]
    if place == NONE:
        return 0, 0
    start = tables.start[place]
    end = start + tables.size[place]
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        if tables.readings[middle] < number:
            low = middle + 1
        else:
            high = middle
    last = low
    low, high = start, last
    while low < high:
        middle = (low + high) >> 1
        if trace.time[tables.readings[middle]] < oldest:
            low = middle + 1
        else:
            high = middle
    return low, last


@kernel
def own_among(trace, tables, number, low, high):  # type: ignore[no-untyped-def]
    """How many of some readings are of the reading's own sensor."""
    sensor = trace.sensor[number]
    count = 0
    for at in range(low, high):
        if trace.sensor[tables.readings[at]] == sensor:
            count += 1
    return count


@kernel
def sensors_among(trace, tables, seen, number, low, high, visit):  # type: ignore[no-untyped-def]
    """Of how many sensors some readings are, the reading's own left out."""
    seen[trace.sensor[number]] = visit
    count = 0
    for at in range(low, high):
        sensor = trace.sensor[tables.readings[at]]
        if seen[sensor] != visit:
            seen[sensor] = visit
            count += 1
    return count


@kernel
def later_end(trace, number, until):  # type: ignore[no-untyped-def]
    """Up to where in `alike` the later readings of the same value come no later than a time."""
    at = trace.rank[number] + 1
    end = trace.ends[trace.value[number]]
    while at < end and trace.time[trace.alike[at]] <= until:
        at += 1
    return at
