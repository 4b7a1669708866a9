"""The two cases of section 3.3 of the existence-pattern paper (Kwon, Lee, Kim 2010), as data.

Packets pass routers 1, 2 and 3; most that pass all of them do so in the order 1 → 2 → 3 or
3 → 2 → 1. A first part of the traffic teaches this; then, after a pause in which everything
expires, the windows of figure 4b are built up, and the newcomers of the cases arrive.
"""

from __future__ import annotations

from typing import NamedTuple

from .rows import Cell, Member, Workload, named
from .simulator import Fate

STREAMS = ("s1", "s2", "s3")
SPAN = 100
BUDGET = 4

# Journeys over the routers (0, 1, 2) and how often each is made.
TRAFFIC = {
    (0, 1, 2): 8,
    (2, 1, 0): 8,
    (0,): 2,
    (2,): 2,
    (0, 1): 1,
    (2, 1): 1,
    (1, 0, 2): 1,
    (1, 0): 6,
    (1, 2): 4,
}

# Figure 4b, in an order of arrival that gives the patterns named in the text.
FIGURE = (
    ("t1", 0, 1),
    ("t2", 0, 2),
    ("t5", 1, 4),
    ("t6", 1, 1),
    ("t9", 2, 5),
    ("t7", 1, 5),
    ("t8", 1, 2),
    ("t3", 0, 4),
    ("t4", 0, 5),
)
PATTERNS = {
    "t1": "100", "t2": "100", "t3": "110", "t4": "111",
    "t5": "010", "t6": "110", "t7": "011", "t8": "110",
}  # fmt: skip


class Case(NamedTuple):
    """A workload, the names of its tuples, and who is to be shed for whom."""

    workload: Workload
    tuples: dict[str, Member]
    fates: list[Fate]


def case_1(policy: str = "existence", seed: int = 0) -> Case:
    """Newcomers at W1: t4 (pattern 111) is dropped, then t3 (110), sooner than t1 and t2 (100)."""
    return _case([("n1", 0, 6), ("n2", 0, 7)], ["t4", "t3"], policy, seed)


def case_2(policy: str = "existence", seed: int = 0) -> Case:
    """A newcomer at W2: t5 (010) is dropped, sooner than t6, t8 (110) and t7 (011)."""
    return _case([("n1", 1, 6)], ["t5"], policy, seed)


def _case(
    newcomers: list[tuple[str, int, int]], victims: list[str], policy: str, seed: int
) -> Case:
    streams: list[list[Cell]] = [[], [], []]
    tuples: dict[str, Member] = {}
    arrivals: dict[str, int] = {}
    time = 0

    def pass_by(router: int, packet: int, label: str | None = None) -> None:
        nonlocal time
        time += 1
        if label is not None:
            tuples[label] = STREAMS[router], len(streams[router])
            arrivals[label] = sum(map(len, streams))
        streams[router].append((packet, time, 0))

    packet = 1000
    for journey, times in TRAFFIC.items():
        for _ in range(times):
            packet += 1
            for router in journey:
                pass_by(router, packet)
            time += 2 * SPAN
    for label, router, key in (*FIGURE, *newcomers):
        pass_by(router, key, label)

    workload = named(
        streams,
        [("time", SPAN)] * 3,
        STREAMS,
        clock="max",
        keep_rows=(BUDGET,) * 3,
        policy=policy,
        seed=seed,
    )
    fates = [
        Fate(arrivals[label], tuples[victim])
        for (label, _, _), victim in zip(newcomers, victims, strict=True)
    ]
    return Case(workload, tuples, fates)
