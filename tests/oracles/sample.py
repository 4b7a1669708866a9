"""What the sample of whole keys says (docs/meaning.md, What shedding costs), from scratch.

Only the hash of a key is the engine's own.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from .exact import judged
from .rows import Key, Member, Workload, arrival_order
from .rules import MASK, hash_of, mix
from .simulator import simulate

GROUPS = 128


@dataclass
class Said:
    """What the sample has counted."""

    missed: float = 0.0
    certain: float = 0.0
    seen: float = 0.0
    rate: float = 1.0
    lately: float = 0.0
    spread: list[float] = field(default_factory=lambda: [0.0] * GROUPS)

    @property
    def variance(self) -> float:
        """The variance of the estimate, from random groups."""
        mean = sum(self.spread) / GROUPS
        return sum((part - mean) ** 2 for part in self.spread) * GROUPS / (GROUPS - 1)


def lot(workload: Workload, key: Key) -> int:
    """The number that decides whether a key is followed."""
    return mix(hash_of(key) ^ ((workload.seed + 1) * 0x9E3779B97F4A7C15 & MASK))


def sampled(
    workload: Workload,
    least: float,
    capacity: float = math.inf,
    patience: int = 1024,
    ordinary: int = 1024,
) -> Said:
    """Follow keys through a workload.

    Args:
        workload: with a budget.
        least: the rate at which thinning out ends.
        capacity: rows that the sample may hold.
        patience: after how many followed tuples the rate is halved.
        ordinary: of a key with one tuple in so many the chance is the rate.
    """
    made = Counter(result.arrival for result in simulate(workload).results)
    due = Counter(result.arrival for result in simulate(workload.unbounded()).results)
    _, judgement = judged(workload.unbounded())
    ends = {member: number for number, member in judgement.expiries}
    said = Said()
    chance: dict[Key, float] = {}
    came: dict[Key, int] = {}
    regulars: dict[Key, tuple[float, int]] = {}
    rows: dict[Member, Key] = {}
    steps: Counter[int] = Counter()
    length, step = _steps(workload)
    followed = now = 0
    newest: int | None = None
    for number, row in enumerate(arrival_order(workload)):
        if not workload.timed:
            now = number + 1
        if judgement.fates[number] != "taken":
            continue
        if workload.timed:
            now = row.time if newest is None else max(newest, row.time)
            newest = now
        rows = {member: key for member, key in rows.items() if ends.get(member, math.inf) > number}
        chance = {key: chance[key] for key in set(rows.values())}
        key = row.key
        assert key is not None
        if key not in chance:
            if key not in regulars and lot(workload, key) >= said.rate * 2**64:
                continue
            chance[key], came[key] = regulars.get(key, (said.rate, 0))
        missed = due[number] - made[number]
        assert missed >= 0
        said.missed += missed / chance[key]
        said.seen += missed
        steps[now // step] += missed / chance[key]
        said.certain += missed if chance[key] == 1 else 0
        group = lot(workload, key) % GROUPS
        said.spread[group] += missed / chance[key] * math.sqrt(1 - chance[key])
        rows[row.stream, row.row] = key
        came[key] += 1
        followed += 1
        while len(rows) > capacity or (followed >= patience and said.rate > least):
            crowded = len(rows) > capacity
            said.rate = said.rate / 2 if crowded else max(said.rate / 2, least)
            followed = 0
            known = regulars | {key: (chance[key], came[key]) for key in chance}
            for key, (before, times) in known.items():
                part = max(1, times * ordinary / (number + 1))
                known[key] = min(before, said.rate * part * part), times
            known = {k: c for k, c in known.items() if lot(workload, k) < c[0] * 2**64}
            chance = {key: known[key][0] for key in chance if key in known}
            regulars = {key: (c, times) for key, (c, times) in known.items() if c > said.rate}
            rows = {member: key for member, key in rows.items() if key in chance}
    said.lately = sum(n for when, n in steps.items() if when > now // step - -(-length // step))
    return said


def _steps(workload: Workload) -> tuple[int, int]:
    """What "lately" means, and the length of its steps."""
    times = workload.lengths
    length = max(1, max(times) if times else sum(size for _, size in workload.windows))
    return length, -(-length // 12)
