"""How much of everything to run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """How much of everything to run.

    Attributes:
        tuples: of each stream.
        seeds: each makes other data.
        memories: M, in the offline experiments.
        facts: rows of the relation, where the time is measured.
        rounds: of measuring the time.
        online: M, in the online experiments.
        values: how many the joining attributes have, of both streams or of each, in the online
            experiments.
        tuning: seeds by which the constants of DGL are chosen; none of those that count.
        churn: parts of the relation that are replaced while the streams run.
    """

    tuples: int = 5_000
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    memories: tuple[int, ...] = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20)
    facts: tuple[int, ...] = (50, 100, 250, 500, 750, 1000)
    rounds: int = 3
    online: tuple[int, ...] = (10, 20, 40, 60, 80, 100)
    values: tuple[int | tuple[int, int], ...] = (50, 100, (50, 200))
    tuning: tuple[int, ...] = (101, 102, 103)
    churn: tuple[float, ...] = (0.0, 0.5, 1.0)


FULL = Scale()

QUICK = Scale(
    seeds=(1, 2),
    memories=(4, 10, 20),
    facts=(50, 250, 1000),
    online=(10, 40, 100),
    values=(50, (50, 200)),
    tuning=(101,),
    churn=(0.0, 1.0),
)
