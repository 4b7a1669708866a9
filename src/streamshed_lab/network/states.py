"""What a simulated network has besides its tables: heads at work, messages under way, accounts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.kernels.compiling import implements
from streamshed.kernels.hooks import precedes

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

READING, REQUEST, RESULT, NOTE, AMENDMENT = range(5)
"""Kinds of messages: sensor to head, head to head, head to DSMS, and back; and what a head adds to
the result of a request that it has served before."""
KINDS = ("readings", "requests", "results", "notes", "amendments")

ARRIVED, DROPPED, SKIPPED, PROBES, STREAMS, PAIRS, AMENDED, DELIVERED, MESSAGES = range(9)
BYTES = MESSAGES + len(KINDS)
COUNTS = BYTES + len(KINDS)
"""Places of `Accounts.counts`; of messages and bytes one for each kind."""

EVENTS, SENT, NEXT_INPUT, FREE, LOGGED, VISITS = range(6)
"""Places of `Progress.at`."""


class Setting(NamedTuple):
    """What is the same all the time; times are in microseconds."""

    window: int
    late: int
    delays: Floats
    """Of messages, one after the other, and from the beginning again."""
    work: Floats
    """How long a visit takes at each head."""
    members: Ints
    """Of each cluster."""
    feedback: bool
    by_selectivity: bool
    by_sensor: bool
    reading: int
    by_share: bool
    least: float
    seed: np.uint64
    measured_from: int
    sampled: int
    """Of one in how many readings the width of results is found."""
    logging: bool


class Heads(NamedTuple):
    """Cluster heads: at most one visit each at a time, requests before readings."""

    job: Ints
    """IDLE, the reading being processed, or the flight being served as -2 - flight."""
    requests: Ints
    """Flights that wait, a ring for each head."""
    request_first: Ints
    request_count: Ints
    readings: Ints
    """Readings that wait, in order, a row for each head."""
    reading_count: Ints
    probed: Ints
    """Visits, by head."""
    matched: Ints
    """Pairs found, by head."""
    stored: Ints
    """Readings stored, by head."""


class Flights(NamedTuple):
    """The requests under way, each with its sequence and what it has found."""

    number: Ints
    """The reading; of an unused flight, the next unused one."""
    kind: Ints
    """Of the message that is on its way, or waits."""
    step: Ints
    length: Ints
    pairs: Ints
    carried: Ints
    """The members that the message carries."""
    sequence: Ints
    found: Floats
    """Pairs found at each step; at last the weights of a note."""


class Events(NamedTuple):
    """A heap of what comes next: item h is head h, item heads + f is flight f."""

    items: Ints
    place: Ints
    sizes: Ints
    when: Floats
    order: Ints


@implements(precedes, Events)
def _sooner(policy, core, item, other):  # type: ignore[no-untyped-def]
    if policy.when[item] != policy.when[other]:
        return policy.when[item] < policy.when[other]
    return policy.order[item] < policy.order[other]


class Progress(NamedTuple):
    """How far a run has come, and what it has counted so far."""

    at: Ints
    counts: Ints
    delay: Floats
    """The sum over results, in microseconds."""
    pairs: Ints
    """By reading."""
    width: Ints
    """By reading: sensors in its result besides its own, for those that are sampled."""
    processed: npt.NDArray[np.uint8]
    seen: Ints
    """By sensor: the last visit that met it."""
    log: Ints
    """Pairs, two numbers each, if they are logged."""
