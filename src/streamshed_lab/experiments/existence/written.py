"""The paper's policies step by step, with results counted and not made.

With normal values and the paper's sizes a join of five streams has 10¹¹ results (figure 10). How
many an arrival makes is a product: of how often its key is in the other windows. What the policies
want to know of results follows from such products too: how many a key has made (Output), and in how
many of them each row took part (the r of a pattern). This is a plain version for a key that all
streams share; where rows do not tie it decides as the engine does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

RULES = (
    "existence",
    "existence, completed first",
    "random",
    "frequency",
    "frequency, own window",
    "output",
    "oldest",
)
"""What can be counted, by the names of `POLICIES`."""
FULL_FIRST = -1.0
"""The standing of a full pattern: below all others."""


class Window:
    """The rows of one stream, in the order of their arrival."""

    def __init__(self) -> None:
        self.key: Ints = np.empty(0, np.int64)
        self.time: Ints = np.empty(0, np.int64)
        self.pattern: Ints = np.empty(0, np.int64)

    def __len__(self) -> int:
        return int(self.key.size)

    def append(self, key: int, time: int, pattern: int) -> None:
        """Store a row."""
        self.key = np.append(self.key, key)
        self.time = np.append(self.time, time)
        self.pattern = np.append(self.pattern, pattern)

    def remove(self, place: int) -> int:
        """Take a row out, and return its key."""
        key = int(self.key[place])
        self.key = np.delete(self.key, place)
        self.time = np.delete(self.time, place)
        self.pattern = np.delete(self.pattern, place)
        return key


def count_without_making(
    tables: Mapping[str, pa.Table], window: int, rows: int | None, rule: str, seed: int
) -> int:
    """The number of results of a complete join on `key`.

    Args:
        tables: streams of whole, non-negative keys, with `time`.
        window: in units of time.
        rows: that each window may hold; None for all.
        rule: one of `RULES`.
        seed: of what is decided by lot.
    """
    stream, time, key = _in_order(tables)
    state = Counted(len(tables), int(key.max(initial=0)) + 1, rule, seed)
    results = 0
    for position, now, value in zip(stream.tolist(), time.tolist(), key.tolist(), strict=True):
        state.expire(now - window)
        results += state.arrive(position, value)
        if rows is not None and len(state.windows[position]) == rows:
            state.drop(position, state.victim(position))
        state.store(position, value, now)
    return results


def _in_order(tables: Mapping[str, pa.Table]) -> tuple[Ints, Ints, Ints]:
    """Stream, time and key of all rows, by time, then by stream."""
    stream = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables.values()])
    time, key = (
        np.concatenate([table[name].cast("int64").to_numpy() for table in tables.values()])
        for name in ("time", "key")
    )
    order = np.lexsort((stream, time))
    return stream[order], time[order], key[order]


class Counted:
    """What is stored, and what the rules know of it.

    Args:
        streams: how many.
        keys: how many; they are numbered.
        rule: one of `RULES`.
        seed: of what is decided by lot.
    """

    def __init__(self, streams: int, keys: int, rule: str, seed: int) -> None:
        self.windows = [Window() for _ in range(streams)]
        self.held: Ints = np.zeros((streams, keys), np.int64)
        self.made: Floats = np.zeros(keys)
        self.rule, self.random = rule, np.random.default_rng([seed, 10])
        self.full = (1 << streams) - 1
        self.results: Floats = np.zeros((streams, self.full + 1))  # r, by pattern
        self.stored: Floats = np.zeros((streams, self.full + 1))  # n
        self.pattern = 0

    def expire(self, until: int) -> None:
        """Let go of rows from before a time."""
        for stream, window in enumerate(self.windows):
            while len(window) and window.time[0] < until:
                self.drop(stream, 0)

    def arrive(self, stream: int, key: int) -> int:
        """Count the results of a newcomer, and note whose they are."""
        counts = self.held[:, key]
        present = counts > 0
        present[stream] = True
        self.pattern = int((present << np.arange(present.size)).sum())
        if self.pattern != self.full:
            return 0
        others = np.delete(counts, stream)
        made = int(others.prod())
        self.made[key] += made
        self.results[stream, self.full] += made
        for other, window in enumerate(self.windows):
            if other == stream or not self.rule.startswith("existence"):
                continue
            mine = window.key == key
            patterns = np.bincount(window.pattern[mine], minlength=self.full + 1)
            if self.rule == "existence":
                self.results[other] += patterns * (made / counts[other])
            else:  # with its first result a row is of the full pattern, as which it makes the rest
                self.results[other] += patterns
                window.pattern[mine] = self.full
        return made

    def store(self, stream: int, key: int, time: int) -> None:
        """Store the newcomer."""
        self.windows[stream].append(key, time, self.pattern)
        self.held[stream, key] += 1
        self.stored[stream, self.pattern] += 1

    def drop(self, stream: int, place: int) -> None:
        """Take a row out; a key that has left all windows is forgotten."""
        key = self.windows[stream].remove(place)
        self.held[stream, key] -= 1
        if not self.held[:, key].any():
            self.made[key] = 0

    def victim(self, stream: int) -> int:
        """Who leaves a full window."""
        window = self.windows[stream]
        if self.rule == "oldest":
            return 0
        if self.rule == "random":
            return int(self.random.integers(len(window)))
        if self.rule.startswith("existence"):
            return self._of_worst_pattern(stream, window)
        standing: Any = self.held[stream, window.key]  # frequency, own window
        if self.rule == "frequency":
            standing = self.held[:, window.key].sum(axis=0)
        elif self.rule == "output":
            standing = self.made[window.key]
        lowest = np.flatnonzero(standing == standing.min())
        return int(lowest[self.random.integers(lowest.size)])

    def _of_worst_pattern(self, stream: int, window: Window) -> int:
        """The oldest row of the pattern with the fewest results for each row; full ones first."""
        with np.errstate(invalid="ignore", divide="ignore"):
            standing = self.results[stream] / self.stored[stream]
        standing[self.full] = FULL_FIRST
        by_row = standing[window.pattern]
        lowest = window.pattern[by_row == by_row.min()].min()
        return int(np.argmax(window.pattern == lowest))
