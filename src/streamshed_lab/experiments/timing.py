"""Processor time, by several runs in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def least_times(rounds: int, runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The least processor time of each run, over some rounds in which they take turns.

    Examples:
        >>> sorted(least_times(2, {"a": lambda: None, "b": lambda: None}))
        ['a', 'b']
    """
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, work in runs.items():
            start = time.process_time()
            work()
            least[name] = min(least[name], time.process_time() - start)
    return least
