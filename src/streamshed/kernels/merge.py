"""Several streams into one, in the order in which their tuples arrive."""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import driver


@driver
def merge_order(arrival_time, starts, ends, order):  # type: ignore[no-untyped-def]
    """Find the order of processing of tuples that stand stream by stream.

    Args:
        arrival_time: the time at which each tuple arrives, ascending within each stream.
        starts: where each stream begins.
        ends: where each stream ends.
        order: where to put positions by (arrival time, stream, position).
    """
    streams = starts.size
    heads = starts.copy()
    # The streams that have tuples left, in their order; few, so a scan finds the next fastest.
    left = np.empty(streams, np.int64)
    count = 0
    for stream in range(streams):
        if starts[stream] < ends[stream]:
            left[count] = stream
            count += 1
    filled = 0
    while count > 1:
        best = 0
        earliest = arrival_time[heads[left[0]]]
        following = np.iinfo(np.int64).max  # when the runner-up takes over
        behind = False  # whether the runner-up stands before the best in a tie
        for j in range(1, count):
            time = arrival_time[heads[left[j]]]
            if time < earliest:
                following = earliest
                behind = True
                earliest = time
                best = j
            elif time < following:
                following = time
                behind = False
        stream = left[best]
        position = heads[stream]
        end = ends[stream]
        while True:  # a run of the same stream needs no scan
            order[filled] = position
            filled += 1
            position += 1
            if position == end:
                break
            time = arrival_time[position]
            if time > following or (time == following and behind):
                break
        heads[stream] = position
        if position == end:
            for j in range(best, count - 1):
                left[j] = left[j + 1]
            count -= 1
    if count == 1:
        for position in range(heads[left[0]], ends[left[0]]):
            order[filled] = position
            filled += 1


@driver
def put_in_order(order, columns, ordered):  # type: ignore[no-untyped-def]
    """Four columns in a new order; faster in one go than one by one."""
    stream, time, hashed, payload = columns
    streams, times, hashes, payloads = ordered
    for i in range(order.size):
        place = order[i]
        streams[i] = stream[place]
        times[i] = time[place]
        hashes[i] = hashed[place]
        payloads[i] = payload[place]


@driver
def running_maximum(times, null, so_far):  # type: ignore[no-untyped-def]
    """The largest time up to each tuple, and the number of tuples that came behind it."""
    largest = so_far
    maxima = np.empty(times.size, np.int64)
    behind = 0
    for i in range(times.size):
        if null.size == 0 or not null[i]:
            if times[i] > largest:
                largest = times[i]
            elif times[i] < largest:
                behind += 1
        maxima[i] = largest
    return maxima, behind
