"""Workloads to test with: small and nasty ones for hypothesis, larger ones from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from .rows import (
    Key,
    Row,
    Stream,
    Window,
    Workload,
    Worth,
    arrival_order,
    by_column,
    named,
)
from .rules import RULES
from .sketch import AS_WRITTEN, EXPECTING, TIMED_ONLY

VARIANTS = tuple(name for name in RULES if "," in name and name not in AS_WRITTEN)
"""Rules that are policies of another name, with other parameters."""
POLICIES = tuple(name for name in RULES if "," not in name)
NAMED_ONLY = ("existence", "existence, completed", "frequency, window", *EXPECTING)
"""The policies that need streams with names."""
RESULTS = 3000

# A row as drawn: stream, key, time, worth, and how far it lags behind its place in order.
Drawn = tuple[Stream, Key | None, int | None, Worth | None, int]


@st.composite
def workloads(
    draw: st.DrawFn,
    *,
    by: bool = False,
    partial: bool | None = None,
    budget: bool | None = None,
    policies: Sequence[str] = POLICIES,
    windows: Sequence[str] = ("time", "last", "mixed", "both"),
    max_streams: int = 6,
    max_rows: int = 40,
) -> Workload:
    """Small workloads with ties, disorder, nulls, empty streams, tight windows and budgets.

    `partial` and `budget` fix what is otherwise drawn. A join by a column is always partial, has
    one kind of window and no existence patterns. The number of results stays below 20,000.
    """
    if not {*policies} - {*TIMED_ONLY}:
        windows = ("time",)
    rows, names, span = draw(_drawn_rows(by, max_streams, max_rows))
    kind = draw(st.sampled_from([w for w in windows if not (by and w == "mixed")]))
    late = st.one_of(st.just(0), st.integers(0, span // 6), st.integers(0, span))
    settings: dict[str, Any] = {"late": draw(late)}
    if by or (draw(st.booleans()) if partial is None else partial):
        settings["at_least"] = draw(st.integers(2, len(names) or 5))
    if not by:
        settings["clock"] = draw(st.sampled_from(["min", "max"]))
        idle = st.one_of(st.none(), st.integers(0, span), st.integers(0, span // 6))
        settings["idle"] = draw(idle)
    if draw(st.booleans()) if budget is None else budget:
        allowed = [p for p in policies if not (by and p in NAMED_ONLY)]
        settings["policy"] = draw(st.sampled_from(allowed))
        settings["seed"] = draw(st.one_of(st.integers(0, 3), st.integers(0, 2**63 - 1)))
        few = st.one_of(st.integers(1, 15), st.integers(1, 4))
        if by or draw(st.booleans()):
            settings["keep_total"] = draw(few)
        else:
            settings["keep_rows"] = tuple(draw(few) for _ in names)
    if kind == "both":
        kind = "time"
        lasts = st.one_of(st.none(), st.integers(1, 8))
        settings["lasts"] = tuple(draw(lasts) for _ in ([None] if by else names))
    if by:
        cells = [(stream, key, time, worth) for stream, key, time, worth, _ in rows]
        window = draw(_window(kind, span))
        values = sorted({stream for stream, *_ in cells}, key=str)
        if kind == "time" and values and draw(st.booleans()):
            length = _window(kind, span).map(lambda window: window[1])
            own = draw(st.dictionaries(st.sampled_from(values), length, max_size=4))
            settings["own"] = tuple(own.items())
        if kind == "time":
            settings["ahead"] = draw(st.one_of(st.none(), st.integers(0, span)))
            for wrong in draw(st.lists(st.integers(0, max(0, len(cells) - 1)), max_size=3)):
                if cells and cells[wrong][2] is not None:
                    stream, key, time, worth = cells[wrong]
                    cells[wrong] = stream, key, time + 1000 * span, worth
        return by_column(cells, window, **settings)
    streams = [
        [(key, time, worth) for stream, key, time, worth, _ in rows if stream == name]
        for name in names
    ]
    return named(streams, [draw(_window(kind, span)) for _ in names], names, **settings)


def _window(kind: str, span: int) -> st.SearchStrategy[Window]:
    short, long = st.integers(0, span // 4), st.integers(span // 4, 2 * span)
    time = st.tuples(st.just("time"), st.one_of(long, short))
    last = st.tuples(st.just("last"), st.integers(1, 8))
    return {"time": time, "last": last, "mixed": st.one_of(time, last)}[kind]


def _stream_count(most: int) -> st.SearchStrategy[int]:
    """Two or three streams more often than many: many make few results."""
    return st.one_of(st.integers(2, min(3, most)), st.integers(2, most))


@st.composite
def _drawn_rows(
    draw: st.DrawFn, by: bool, max_streams: int, max_rows: int
) -> tuple[list[Drawn], tuple[Stream, ...], int]:
    """Rows in the order of their input, the streams' names, and the span of time."""
    span = draw(st.sampled_from([6, 30, 200]))
    text = draw(st.booleans())
    distinct = draw(st.sampled_from([2, 1, 4, 8, 30]))
    keys: st.SearchStrategy[Any] = st.integers(0, distinct - 1)
    if draw(st.booleans()):
        keys = st.one_of(st.just(0), keys)
    if text:
        keys = keys.map("k{}".format)
    times: st.SearchStrategy[Any] = st.integers(0, span)
    worths: st.SearchStrategy[Any] = st.integers(-3, 3)
    if draw(st.booleans()):
        keys, times, worths = _or_null(keys), _or_null(times), _or_null(worths)
    disorder = draw(st.sampled_from([0, span // 6, span]))
    lag = st.integers(0, disorder)
    least = draw(st.integers(0, max_rows * 3 // 4))
    if by:
        many = draw(st.integers(1, 20))
        streams = st.integers(0, many - 1)
        row = st.tuples(streams.map("s{}".format) if text else streams, keys, times, worths, lag)
        parts = [draw(st.lists(row, min_size=least, max_size=3 * max_rows))]
        names: tuple[Stream, ...] = ()
    else:
        names = tuple("abcdefghij"[: draw(_stream_count(max_streams))])
        parts = []
        for name in names:
            row = st.tuples(st.just(name), keys, times, worths, lag)
            empty = draw(st.integers(0, 9)) == 9
            most = 0 if empty else max_rows
            parts.append(draw(st.lists(row, min_size=min(least, most), max_size=most)))
    start = draw(st.sampled_from([0, -1000, 2**40]))
    rows = [row for part in parts for row in _placed(part, start)]
    return _tamed(rows), names, span


def _or_null(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One in a dozen is null; a null shrinks to a value."""
    return st.tuples(values, st.integers(0, 11)).map(lambda pair: None if pair[1] == 7 else pair[0])


@st.composite
def interleavings(draw: st.DrawFn, workload: Workload) -> list[Row]:
    """Some order of arrival in which every stream keeps its own, as an operator may be given."""
    rows = arrival_order(workload)
    turns = draw(st.lists(st.integers(0, 9), min_size=len(rows), max_size=len(rows)))
    streams = [row.stream for _, row in sorted(zip(turns, rows, strict=True), key=lambda e: e[0])]
    waiting = {name: iter([r for r in rows if r.stream == name]) for name in workload.names}
    return [next(waiting[stream]) for stream in streams]


def _placed(rows: list[Drawn], start: int) -> list[Drawn]:
    """The times in order, each row then set back by its lag; nulls stay where they are."""
    times = iter(sorted(time for _, _, time, _, _ in rows if time is not None))
    return [
        (stream, key, None if time is None else start + next(times) - lag, worth, lag)
        for stream, key, time, worth, lag in rows
    ]


def _tamed(rows: list[Drawn]) -> list[Drawn]:
    """Without the rows that could bring the results of unlimited windows far over RESULTS."""
    counts: dict[Key, dict[Stream, int]] = {}
    results = 0
    kept = []
    for row in rows:
        stream, key = row[:2]
        if key is not None:
            there = counts.setdefault(key, {})
            others = [count for other, count in there.items() if other != stream]
            more = int(np.prod([max(1, count) for count in others], dtype=np.int64))
            if others and results + more > RESULTS:
                continue
            results += more
            there[stream] = there.get(stream, 0) + 1
        kept.append(row)
    return kept


def generated(
    seed: int,
    *,
    streams: int = 3,
    rows: int = 1000,
    keys: int = 200,
    skew: float = 0.0,
    span: int | None = None,
    disorder: int = 0,
    nulls: float = 0.0,
    window: Window | Sequence[Window] = ("time", 100),
    by: bool = False,
    **settings: Any,
) -> Workload:
    """A larger workload: `rows` of each stream (in all, when `by`) over `span` units of time.

    The key of rank i has weight 1/i**skew; times lag behind their order by up to `disorder`;
    `nulls` is the part of null keys, of null times and of null worths.
    """
    random = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, keys + 1) ** skew

    def cells() -> list[tuple[Any, Any, Any]]:
        times = np.sort(random.integers(0, span or rows, rows))
        times = times - random.integers(0, disorder + 1, rows)
        drawn = random.choice(keys, rows, p=weights / weights.sum())
        columns = [drawn.tolist(), times.tolist(), random.integers(0, 100, rows).tolist()]
        for column in columns:
            for place in np.flatnonzero(random.random(rows) < nulls):
                column[place] = None
        return list(zip(*columns, strict=True))

    single = isinstance(window[0], str)
    if by:
        values = random.integers(0, streams, rows).tolist()
        table = [(value, *cell) for value, cell in zip(values, cells(), strict=True)]
        return by_column(table, window if single else window[0], **settings)
    windows = [window] * streams if single else list(window)
    return named([cells() for _ in range(streams)], windows, **settings)
