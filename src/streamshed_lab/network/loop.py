"""The life of a field of sensors, message by message."""

from __future__ import annotations

import numpy as np

from streamshed.kernels.compiling import kernel, loop
from streamshed.kernels.core import NONE
from streamshed.kernels.heap import heap_push, heap_remove, heap_top
from streamshed.kernels.random import draw
from streamshed.kernels.relevance import choose_parties, feed_back, relevance_class
from streamshed_lab.network.states import (
    AMENDED,
    AMENDMENT,
    ARRIVED,
    BYTES,
    DELIVERED,
    DROPPED,
    EVENTS,
    FREE,
    LOGGED,
    MESSAGES,
    NEXT_INPUT,
    NOTE,
    PAIRS,
    PROBES,
    READING,
    REQUEST,
    RESULT,
    SENT,
    SKIPPED,
    STREAMS,
    VISITS,
)
from streamshed_lab.network.tables import later_end, matching, own_among, sensors_among, store

IDLE = NONE
DONE, FULL = 0, 1
"""What a run returns: all is over, or room is needed to go on."""

HEADER, VALUE, STREAM, TIME, CLUSTER, NUMBER = 8, 8, 4, 8, 2, 4
"""Bytes: of a message's header, and of what messages carry."""
TUPLE, MEMBER, STEP = VALUE + STREAM + TIME, STREAM + TIME, CLUSTER + NUMBER
"""A reading; a member of a result; a cluster in a sequence, with what it found or its weight."""


@loop
def run_network(  # type: ignore[no-untyped-def]
    setting, trace, tables, heads, flights, events, relevance, progress
):
    """Go on until nothing is under way any more, or room is needed.

    Room is needed where no flight is free, or the log could overflow: nothing has been done then of
    what needs it.
    """
    while True:
        item = heap_top(events, 0)
        reading = progress.at[NEXT_INPUT]
        if reading < trace.coming.size:
            number = trace.coming[reading]
            if item == NONE or trace.arrives[number] <= events.when[item]:
                progress.at[NEXT_INPUT] += 1
                _reading_comes(setting, trace, heads, events, progress, number)
                continue
        if item == NONE:
            return DONE
        now = events.when[item]
        if item < heads.job.size:
            if not _has_room(setting, trace, heads, progress, item):
                return FULL
            heap_remove(events, setting, 0, item)
            job = heads.job[item]
            if job >= 0:
                _process(
                    setting,
                    trace,
                    tables,
                    heads,
                    flights,
                    events,
                    relevance,
                    progress,
                    item,
                    job,
                    now,
                )
            else:
                flight = -2 - job
                found, carried = _visit(
                    setting, trace, tables, heads, progress, item, flights.number[flight], now
                )
                _served(
                    setting, trace, flights, events, progress, heads, flight, found, carried, now
                )
            _next_job(setting, heads, events, progress, item, now)
        else:
            heap_remove(events, setting, 0, item)
            flight = item - heads.job.size
            kind = flights.kind[flight]
            if kind == REQUEST:
                _request_comes(setting, trace, heads, flights, events, progress, flight, now)
            elif kind == RESULT:
                _result_comes(setting, trace, heads, flights, events, progress, flight, now)
            else:
                _note_comes(setting, trace, flights, relevance, progress, flight)


@kernel
def _has_room(setting, trace, heads, progress, head):  # type: ignore[no-untyped-def]
    job = heads.job[head]
    if job >= 0 and progress.at[FREE] == NONE:
        return False
    if not setting.logging:
        return True
    # No visit finds more than all that match.
    most = trace.alike.size
    return progress.at[LOGGED] + 2 * most <= progress.log.size


@kernel
def _measured(setting, trace, number):  # type: ignore[no-untyped-def]
    return trace.time[number] >= setting.measured_from


@kernel
def _sampled(setting, number):  # type: ignore[no-untyped-def]
    return number % setting.sampled == 0


@kernel
def _schedule(events, progress, setting, item, when):  # type: ignore[no-untyped-def]
    events.when[item] = when
    events.order[item] = progress.at[EVENTS]
    progress.at[EVENTS] += 1
    heap_push(events, setting, 0, item)


@kernel
def _account(setting, trace, progress, number, kind, size):  # type: ignore[no-untyped-def]
    """Count a message that is sent on behalf of a reading."""
    if _measured(setting, trace, number):
        progress.counts[MESSAGES + kind] += 1
        progress.counts[BYTES + kind] += size


@kernel
def _send(  # type: ignore[no-untyped-def]
    setting, trace, heads, flights, events, progress, flight, kind, size, now
):
    flights.kind[flight] = kind
    _account(setting, trace, progress, flights.number[flight], kind, size)
    delay = setting.delays[progress.at[SENT] % setting.delays.size]
    progress.at[SENT] += 1
    _schedule(events, progress, setting, heads.job.size + flight, now + delay)


@kernel
def _start(setting, heads, events, progress, head, job, now):  # type: ignore[no-untyped-def]
    heads.job[head] = job
    _schedule(events, progress, setting, head, now + setting.work[head])


@kernel
def _next_job(setting, heads, events, progress, head, now):  # type: ignore[no-untyped-def]
    """Let a head go on: with a request if one waits, so that what is begun comes to an end."""
    if heads.request_count[head] > 0:
        first = heads.request_first[head]
        flight = heads.requests[head, first]
        heads.request_first[head] = (first + 1) % heads.requests.shape[1]
        heads.request_count[head] -= 1
        _start(setting, heads, events, progress, head, -2 - flight, now)
    elif heads.reading_count[head] > 0:
        number = heads.readings[head, 0]
        _leave_buffer(heads, head, 0)
        _start(setting, heads, events, progress, head, number, now)
    else:
        heads.job[head] = IDLE


@kernel
def _leave_buffer(heads, head, place):  # type: ignore[no-untyped-def]
    heads.reading_count[head] -= 1
    for at in range(place, heads.reading_count[head]):
        heads.readings[head, at] = heads.readings[head, at + 1]


@kernel
def _reading_comes(setting, trace, heads, events, progress, number):  # type: ignore[no-untyped-def]
    """Process a reading at its head, or let it wait; if there is no room, drop one at random."""
    head = trace.cluster[number]
    if _measured(setting, trace, number):
        progress.counts[ARRIVED] += 1
    _account(setting, trace, progress, number, READING, HEADER + TUPLE)
    if heads.job[head] == IDLE:
        _start(setting, heads, events, progress, head, number, trace.arrives[number])
        return
    room = heads.readings.shape[1]
    if heads.reading_count[head] == room:
        leaves = np.int64(draw(setting.seed ^ np.uint64(1), number) % np.uint64(room + 1))
        dropped = number if leaves == room else heads.readings[head, leaves]
        if _measured(setting, trace, dropped):
            progress.counts[DROPPED] += 1
        if leaves == room:
            return
        _leave_buffer(heads, head, leaves)
    heads.readings[head, heads.reading_count[head]] = number
    heads.reading_count[head] += 1


@kernel
def _request_comes(  # type: ignore[no-untyped-def]
    setting, trace, heads, flights, events, progress, flight, now
):
    """Serve a request, or let it wait; if there is no room, it passes on unserved."""
    head = flights.sequence[flight, flights.step[flight]]
    room = heads.requests.shape[1]
    if heads.job[head] == IDLE:
        _start(setting, heads, events, progress, head, -2 - flight, now)
    elif heads.request_count[head] < room:
        end = (heads.request_first[head] + heads.request_count[head]) % room
        heads.requests[head, end] = flight
        heads.request_count[head] += 1
    else:
        if _measured(setting, trace, flights.number[flight]):
            progress.counts[SKIPPED] += 1
        _served(setting, trace, flights, events, progress, heads, flight, 0, 0, now)


@kernel
def _served(  # type: ignore[no-untyped-def]
    setting, trace, flights, events, progress, heads, flight, found, carried, now
):
    """Note what a request has found at a head, and send it on."""
    flights.found[flight, flights.step[flight]] = found
    flights.pairs[flight] += found
    flights.carried[flight] += carried
    flights.step[flight] += 1
    _forward(setting, trace, heads, flights, events, progress, flight, now)


@kernel
def _forward(  # type: ignore[no-untyped-def]
    setting, trace, heads, flights, events, progress, flight, now
):
    """Send a request to its next head; from the last one, what was found to the DSMS."""
    length = flights.length[flight]
    size = HEADER + TUPLE + (length + 1) * STEP + flights.carried[flight] * MEMBER
    if flights.step[flight] < length:
        size += NUMBER
        _send(setting, trace, heads, flights, events, progress, flight, REQUEST, size, now)
    elif flights.pairs[flight] > 0:
        _send(setting, trace, heads, flights, events, progress, flight, RESULT, size, now)
    else:
        _end_flight(flights, progress, flight)


@kernel
def _end_flight(flights, progress, flight):  # type: ignore[no-untyped-def]
    flights.number[flight] = progress.at[FREE]
    progress.at[FREE] = flight


@kernel
def _process(  # type: ignore[no-untyped-def]
    setting, trace, tables, heads, flights, events, relevance, progress, head, number, now
):
    """Insert a reading, probe its own cluster, and set out for others."""
    progress.processed[number] = 1
    store(trace, tables, number)
    heads.stored[head] += 1
    found, carried = _visit(setting, trace, tables, heads, progress, head, number, now)
    _amend(setting, trace, tables, heads, progress, head, number, now)
    flight = progress.at[FREE]
    progress.at[FREE] = flights.number[flight]
    flights.number[flight] = number
    flights.step[flight] = 0
    flights.pairs[flight] = found
    flights.carried[flight] = carried
    sequence = flights.sequence[flight]
    if setting.feedback:
        row = relevance[head, relevance_class(np.uint64(trace.value[number]), relevance.shape[1])]
        length = choose_parties(row, head, setting.reading, setting.seed, number, sequence)
    else:
        length = 0
        for step in range(1, heads.job.size):
            sequence[length] = (head + step) % heads.job.size
            length += 1
        if setting.by_selectivity:
            _by_selectivity(heads, sequence, length)
    flights.length[flight] = length
    _forward(setting, trace, heads, flights, events, progress, flight, now)


@kernel
def _by_selectivity(heads, sequence, length):  # type: ignore[no-untyped-def]
    """Put clusters in descending order of their selectivity: pairs by visit and reading stored."""
    for i in range(1, length):
        head = sequence[i]
        mine = _selectivity(heads, head)
        at = i
        while at > 0 and _selectivity(heads, sequence[at - 1]) < mine:
            sequence[at] = sequence[at - 1]
            at -= 1
        sequence[at] = head


@kernel
def _selectivity(heads, head):  # type: ignore[no-untyped-def]
    return heads.matched[head] / (max(heads.probed[head], 1) * max(heads.stored[head], 1))


@kernel
def _visit(  # type: ignore[no-untyped-def]
    setting, trace, tables, heads, progress, head, number, now
):
    """Find the readings in a cluster that come before a reading and match it.

    Returns:
        How many there are, and how many members the request carries on for them.
    """
    # What has expired at the head is not met any more, however old the request is.
    oldest = max(trace.time[number] - setting.window, now - setting.window - setting.late)
    low, high = matching(trace, tables, head, number, oldest)
    own = 0
    if head == trace.cluster[number]:
        own = own_among(trace, tables, number, low, high)
    found = high - low - own
    tables.served[number, head] = 1
    heads.probed[head] += 1
    heads.matched[head] += found
    progress.pairs[number] += found
    if _measured(setting, trace, number):
        progress.counts[PROBES] += 1
        progress.counts[STREAMS] += setting.members[head]
        progress.counts[PAIRS] += found
    carried = found
    if _sampled(setting, number):
        progress.at[VISITS] += 1
        sensors = sensors_among(
            trace, tables, progress.seen, number, low, high, progress.at[VISITS]
        )
        progress.width[number] += sensors
        if setting.by_sensor:
            carried = sensors
    if setting.logging:
        for at in range(low, high):
            other = tables.readings[at]
            if trace.sensor[other] != trace.sensor[number]:
                _log(progress, number, other)
    return found, carried


@kernel
def _log(progress, number, other):  # type: ignore[no-untyped-def]
    at = progress.at[LOGGED]
    progress.log[at] = number
    progress.log[at + 1] = other
    progress.at[LOGGED] = at + 2


@kernel
def _amend(  # type: ignore[no-untyped-def]
    setting, trace, tables, heads, progress, head, number, now
):
    """Add a reading to the results of later ones whose requests were served before it came."""
    time = trace.time[number]
    end = later_end(trace, number, min(time + setting.window, now))
    for at in range(trace.rank[number] + 1, end):
        later = trace.alike[at]
        if not tables.served[later, head] or trace.sensor[later] == trace.sensor[number]:
            continue
        if trace.time[later] < now - setting.window - setting.late:
            continue  # requests are forgotten as readings are
        progress.pairs[later] += 1
        heads.matched[head] += 1
        if _measured(setting, trace, later):
            progress.counts[PAIRS] += 1
            progress.counts[AMENDED] += 1
        _account(setting, trace, progress, later, AMENDMENT, HEADER + TUPLE + MEMBER)
        if _sampled(setting, later):
            low, high = matching(trace, tables, head, later, trace.time[later] - setting.window)
            # The sensor is new to the result if this is its only reading in it.
            if own_among(trace, tables, number, low, high) == 1:
                progress.width[later] += 1
        if setting.logging:
            _log(progress, later, number)


@kernel
def _result_comes(  # type: ignore[no-untyped-def]
    setting, trace, heads, flights, events, progress, flight, now
):
    """Take a result in at the DSMS, and send back how much each cluster contributed."""
    number = flights.number[flight]
    if _measured(setting, trace, number):
        progress.counts[DELIVERED] += 1
        progress.delay[0] += now - trace.time[number]
    if not setting.feedback or flights.length[flight] == 0:
        _end_flight(flights, progress, flight)
        return
    for step in range(flights.length[flight]):
        found = flights.found[flight, step]
        # A result has a member of every sensor that matches: a cluster is in all or in none.
        if setting.by_share:
            flights.found[flight, step] = found / flights.pairs[flight]
        else:
            flights.found[flight, step] = 1.0 if found > 0.0 else 0.0
    size = HEADER + VALUE + flights.length[flight] * STEP
    _send(setting, trace, heads, flights, events, progress, flight, NOTE, size, now)


@kernel
def _note_comes(setting, trace, flights, relevance, progress, flight):  # type: ignore[no-untyped-def]
    number = flights.number[flight]
    classes = relevance.shape[1]
    row = relevance[trace.cluster[number], relevance_class(np.uint64(trace.value[number]), classes)]
    feed_back(
        row, flights.sequence[flight], flights.found[flight], flights.length[flight], setting.least
    )
    _end_flight(flights, progress, flight)
