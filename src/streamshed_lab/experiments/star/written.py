"""The online policies of section 3.2, step by step, with matches counted as one likes.

The number of matches mn() of a row is taken "in the opposite window". Our engine counts the rows
that are held there (`among="held"`); if the window is Rʷ, all rows that came in the last m units
of time, shed or not, count (`among="window"`). That is known of the streams alone, but takes memory
that the paper does not charge. Rows of the relation come and go; a pair of values is related once
at most. A row of which all facts have ended is of no use, and leaves (rule 8): with
`leaves_useless=False` it stays until it is shed or expires, to see what the rule is worth. With
rows that are held, and the rule, this makes what the engine makes. (Where the relation changes, a
match needs a fact that was active when each of the two rows came; values of the whole window count
by the facts that are active now.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Among = Literal["held", "window"]
Rule = Literal["simp", "simpprob", "dimpprob", "dgl"]
NEVER = np.iinfo(np.int64).max
Times = npt.NDArray[np.float64]


class Facts:
    """By (own value, value of the other stream) when the fact that joins them begins and ends.

    Args:
        begin: infinite where there is none.
        end: infinite where it never does.
    """

    def __init__(self, begin: Times, end: Times) -> None:
        self.begin, self.end = begin, end
        self.known_at, self.known = -1, np.zeros(begin.shape)
        self.changes = bool(np.isfinite(end).any() or (np.isfinite(begin) & (begin >= 0)).any())

    def of_others(self) -> Facts:
        """The same as the other stream sees it."""
        return Facts(self.begin.T.copy(), self.end.T.copy())

    def active(self, now: int) -> Times:
        """By (own value, other value): 1 where a fact is active."""
        if self.known_at < 0 or (self.changes and self.known_at != now):
            self.known = ((self.begin <= now) & (now < self.end)).astype(np.float64)
            self.known_at = now
        return self.known

    def matches(
        self, now: int, values: npt.NDArray[np.int64], times: Times, other: Window, among: Among
    ) -> Times:
        """For rows of values and times: how many rows of the opposite window match them."""
        if among == "window" or not self.changes:
            return np.asarray((self.active(now) @ other.counted(among))[values])
        begin, end = (known[values][:, other.values] for known in (self.begin, self.end))
        first = np.minimum(times[:, None], other.rows["time"])
        last = np.maximum(times[:, None], other.rows["time"])
        return np.asarray(((begin <= first) & (last < end)).sum(axis=1), np.float64)

    def since(self, now: int, value: npt.NDArray[np.int64], time: Times) -> npt.NDArray[np.bool_]:
        """For rows of values and times: whether a fact of theirs from then is active still."""
        begin, end = self.begin[value], self.end[value]
        return np.asarray(((begin <= time[:, None]) & (now < end)).any(axis=1))


class Window:
    """The rows that are held of a stream, and how often values came of late.

    Args:
        facts: by (value, value of the other stream).
        room: rows that it may hold.
        lifetime: of rows.
    """

    def __init__(self, facts: Facts, room: int, lifetime: int) -> None:
        self.facts, self.room, self.lifetime = facts, room, lifetime
        fields = ("value", "importance", "time", "priority", "since", "matches")
        self.rows: dict[str, npt.NDArray[np.float64]] = {name: np.empty(0) for name in fields}
        self.came = np.zeros(facts.begin.shape[0])
        self.recent: list[tuple[int, int]] = []

    @property
    def values(self) -> npt.NDArray[np.int64]:
        """The values of the rows that are held."""
        return self.rows["value"].astype(np.int64)

    def expire(self, now: int, leaves_useless: bool) -> None:
        """Let go of what is over."""
        self.keep(self.rows["time"] > now - self.lifetime)
        if leaves_useless and self.facts.changes and self.values.size:
            self.keep(self.facts.since(now, self.values, self.rows["time"]))
        while self.recent and self.recent[0][0] <= now - self.lifetime:
            self.came[self.recent.pop(0)[1]] -= 1

    def keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Keep some rows only."""
        if not chosen.all():
            self.rows = {name: column[chosen] for name, column in self.rows.items()}

    def counted(self, among: Among) -> npt.NDArray[np.float64]:
        """By value, how many rows count as those of the window."""
        if among == "window":
            return self.came
        return np.bincount(self.values, minlength=self.came.size).astype(np.float64)


def importance_made(
    tables: Mapping[str, pa.Table],
    relation: pa.Table,
    rule: Rule,
    *,
    rows: int,
    lifetime: int,
    among: Among = "held",
    gain_loss: tuple[float, float] = (200.0, 0.5),
    leaves_useless: bool = True,
) -> float:
    """The importance of all results of two streams that come in turn, a row each at every time.

    Args:
        tables: `r` and `s`, with `time`, the joining attribute, and `importance`.
        relation: pairs of `a` and `b`, and when each is active: from `begin` on, before `end`.
        rule: SIMP, SIMPPROB, DIMPPROB or DGL.
        rows: that each window may hold.
        lifetime: of rows, m.
        among: which rows of the opposite window are matches.
        gain_loss: α and β of DGL.
        leaves_useless: whether a row leaves when all of its facts have ended (rule 8).
    """
    a, b = (relation[name].to_numpy() for name in ("a", "b"))
    streams = [_columns(tables["r"], "a"), _columns(tables["s"], "b")]
    size = 1 + int(max(column.max(initial=0) for column in (a, b, streams[0][0], streams[1][0])))
    begin, end = np.full((size, size), np.inf), np.full((size, size), np.inf)
    begin[a, b] = relation["begin"].to_numpy()
    end[a, b] = relation["end"].fill_null(NEVER).to_numpy()
    facts = Facts(begin, np.where(end == NEVER, np.inf, end))
    windows = [Window(facts, rows, lifetime), Window(facts.of_others(), rows, lifetime)]
    made = 0.0
    for now in range(len(streams[0][0])):
        for position in (0, 1):
            value, importance = (column[now] for column in streams[position])
            made += _arrive(
                windows[position],
                windows[1 - position],
                now,
                int(value),
                float(importance),
                rule,
                among,
                gain_loss,
                leaves_useless,
            )
    return made


def _columns(table: pa.Table, attribute: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    return table[attribute].to_numpy(), table["importance"].to_numpy()


def _arrive(
    own: Window,
    other: Window,
    now: int,
    value: int,
    importance: float,
    rule: Rule,
    among: Among,
    gain_loss: tuple[float, float],
    leaves_useless: bool,
) -> float:
    """Let a row arrive; returns the importance of the results that it makes."""
    for window in (own, other):
        window.expire(now, leaves_useless)
    active = own.facts.active(now)
    if not active[value].any():
        return 0.0  # pre-filtering
    alpha, beta = gain_loss
    met = active[value][other.values]
    if own.facts.changes:  # a fact must have been there when the other row came
        met = met * (own.facts.begin[value][other.values] <= other.rows["time"])
    made = float((met * np.minimum(importance, other.rows["importance"])).sum())
    matches = float(
        own.facts.matches(now, np.array([value]), np.array([float(now)]), other, among)[0]
    )
    own.recent.append((now, value))
    own.came[value] += 1
    if rule == "dgl" and (raised := met > 0).any():
        held = other.rows
        counts = other.facts.matches(now, other.values, held["time"], own, among)
        if among == "held":  # the newcomer counts for others from its arrival on
            counts = counts + met
        lost = beta * np.maximum(0, now - 1 - held["since"])
        left = held["time"] + other.lifetime - now
        gained = held["importance"] * counts * left / alpha
        held["priority"] = np.where(
            raised, np.maximum(0, held["priority"] - lost) + gained, held["priority"]
        )
        held["since"] = np.where(raised, now, held["since"])
    counted = 0.0 if rule == "simp" else matches
    priority = importance if rule == "simp" else importance * matches
    newcomer = (value, importance, now, priority, now, counted)
    if len(own.values) == own.room:
        standing = _standing(own, other, now, rule, among, beta)
        lowest = min(range(own.room), key=lambda place: (*standing[place], own.rows["time"][place]))
        if (priority, importance, counted) < standing[lowest]:
            return made
        own.keep(np.arange(own.room) != lowest)
    own.rows = {
        name: np.append(column, field)
        for (name, column), field in zip(own.rows.items(), newcomer, strict=True)
    }
    return made


def _standing(
    own: Window, other: Window, now: int, rule: Rule, among: Among, beta: float
) -> list[tuple[float, float, float]]:
    """By row that is held its priority, importance and matches as they are."""
    held = own.rows
    priority, matches = held["priority"], held["matches"]
    if rule in ("dimpprob", "dgl"):
        matches = own.facts.matches(now, own.values, held["time"], other, among)
    if rule == "dimpprob":
        priority = held["importance"] * matches
    if rule == "dgl":
        priority = np.maximum(0, priority - beta * (now - held["since"]))
    return list(zip(priority.tolist(), held["importance"].tolist(), matches.tolist(), strict=True))
