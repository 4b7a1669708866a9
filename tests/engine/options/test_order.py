"""Members in an order of time, against DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from oracles.duck import (
    BASE,
    NEAR,
    ORDERS,
    PAIR,
    PAIRS,
    SHUFFLED,
    SORTED,
    WINDOW,
    asked,
    exact,
    pair,
    pushed,
    rows,
)


@pytest.mark.parametrize(("say", "where"), ORDERS)
def test_members_come_in_order(say: Callable[[ss.Join], ss.Join], where: str) -> None:
    expected = exact(where)
    assert 0 < expected.total() < exact().total()
    result = say(BASE).replay(SORTED)
    assert rows(result.table) == expected
    assert say(BASE).count(SORTED).results == expected.total()
    unsorted = BASE.within(WINDOW, time="ts", late=9)
    assert rows(say(unsorted).replay(SHUFFLED, order="arrival").table) == exact(where, SHUFFLED)


@pytest.mark.parametrize(("say", "where"), ORDERS[::2])
def test_equalities_have_an_order_too(say: Callable[[ss.Join], ss.Join], where: str) -> None:
    join = ss.join("a", "b", "c").on("a.k = b.k", "b.x = c.x").within(WINDOW, time="ts")
    expected = exact(where, on=PAIRS)
    assert rows(say(join).replay(SORTED).table) == expected


FACTS = pa.table(
    {
        "p": np.random.default_rng(7).integers(0, 40, 60),
        "q": np.random.default_rng(8).integers(0, 20, 60),
        "r": np.random.default_rng(9).integers(0, 40, 60),
    }
)


def close(one: Any, other: Any) -> bool:
    return abs(one.k - other.k) <= 2 and one.x != other.x


def every_two(pair: str) -> str:
    """A condition between every two members, for DuckDB; `{0}` and `{1}` stand for the two."""
    both = " AND ".join(pair.format(*two) for two in ("ab", "ac", "bc"))
    return f"FROM a, b, c, facts0 WHERE {both}"


THREE = ss.join("a", "b", "c").within(WINDOW, time="ts", late=9)
COSINE = "list_cosine_similarity({0}.v, {1}.v) >= 0.95"
BY_OTHERS: dict[str, tuple[ss.Join, str]] = {
    "near": (THREE.on(ss.near("k", 1)), every_two("abs({0}.k - {1}.k) <= 1")),
    "near of a key": (
        THREE.on("x", ss.near("k", 9)),
        every_two("abs({0}.k - {1}.k) <= 9 AND {0}.x = {1}.x"),
    ),
    "where": (
        THREE.on(ss.where(close, "k", "x")),
        every_two("abs({0}.k - {1}.k) <= 2 AND {0}.x != {1}.x"),
    ),
    "cosine": (THREE.on(ss.cosine("v", at_least=0.95)), every_two(COSINE)),
    "cosine of a key": (
        THREE.on("k", ss.cosine("v", at_least=0.1)),
        every_two(COSINE.replace("0.95", "0.1") + " AND {0}.k = {1}.k"),
    ),
    "relation": (
        THREE.on(a="k", b="x", c="k").through(FACTS, a="p", b="q", c="r"),
        "FROM a, b, c, facts WHERE a.k = p AND b.x = q AND c.k = r",
    ),
}
"""Joins that share no key, or not only a key, and what DuckDB is asked for their results."""


def with_vectors(data: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The same with a vector in each row."""
    made = {}
    for seed, (name, part) in enumerate(data.items()):
        drawn = np.random.default_rng(seed).normal(size=(len(part), 3))
        made[name] = part.append_column("v", pa.array(drawn.tolist(), pa.list_(pa.float64())))
    return made


def matched_by(on: str, where: str, data: dict[str, pa.Table]) -> Counter:
    tables = data | {"facts": FACTS, "facts0": pa.table({"one": [1]})}
    return asked(f"SELECT a.row, b.row, c.row {on} AND {NEAR} AND {where}", tables)


@pytest.mark.parametrize("kind", BY_OTHERS)
def test_joins_without_a_shared_key_have_an_order_too(kind: str) -> None:
    join, on = BY_OTHERS[kind]
    for data, restart in ((with_vectors(SORTED), True), (with_vectors(SHUFFLED), False)):
        for say, where in ORDERS:
            expected = matched_by(on, where, data)
            assert 0 < expected.total() < matched_by(on, "true", data).total()
            found = say(join).replay(data, order="arrival")
            assert rows(found.table) == expected
            if restart:
                made, ledger = pushed(say(join), data, restart)
                assert rows(made) == expected
                assert ledger.streams == found.ledger.streams


@pytest.mark.parametrize("kind", BY_OTHERS)
def test_their_estimates_know_of_the_order(kind: str) -> None:
    """All rows are followed, so that the estimate is no estimate."""
    join, on = BY_OTHERS[kind]
    data = with_vectors(SORTED)
    for say, where in ORDERS:
        held = say(join).keep(total=25).shed("oldest").estimate(rate=1).replay(data)
        expected = matched_by(on, where, data)
        assert not rows(held.table) - expected
        assert held.ledger.missed is not None
        assert held.ledger.results + held.ledger.missed.value == expected.total()


def test_rows_out_of_order_are_not_compared() -> None:
    """What cannot be a result is not made, and then left out."""
    join, _ = BY_OTHERS["near"]
    every, ordered = join.count(SORTED), join.in_order("a", "b", "c").count(SORTED)
    assert ordered.comparisons < every.comparisons / 2


def test_rows_that_can_no_longer_take_part_leave_at_once() -> None:
    kept = BASE.replay(SORTED).ledger.streams
    ordered = BASE.in_order("a", "b", "c").replay(SORTED).ledger.streams
    assert ordered["c"].stored < kept["c"].stored / 2
    soon = BASE.between("b", "a", 0, 5).between("c", "b", 0, 5).replay(SORTED).ledger.streams
    assert soon["a"].stored < kept["a"].stored / 2


@pytest.mark.parametrize(("say", "where"), ORDERS)
def test_what_is_missed_knows_of_the_order(say: Callable[[ss.Join], ss.Join], where: str) -> None:
    """All rows are followed, so that the estimate is no estimate."""
    join = say(BASE).keep(total=25).shed("oldest").estimate(rate=1)
    ledger = join.replay(SORTED).ledger
    assert ledger.missed is not None
    assert ledger.results + ledger.missed.value == exact(where).total()


def test_a_plan_tells_of_what_was_asked() -> None:
    join = BASE.in_order("a", "b", "c").unmatched("b").first(per="key")
    text = str(join.explain(SORTED))
    assert "a: 60 by 'ts'; b: 60 by 'ts'; c: 0 by 'ts'" in text
    assert "whose times are in order and within bounds, the first only per 'key'; rows of b" in text


def test_intervals_may_be_durations() -> None:
    moments = {
        name: part.set_column(2, "ts", part["ts"].cast(pa.timestamp("s")))
        for name, part in SORTED.items()
    }
    join = PAIR.within("1 minute", time="ts").between("b", "a", "5 seconds", "30 seconds")
    expected = asked(
        "SELECT a.row, b.row FROM a, b WHERE a.k = b.k AND b.ts - a.ts BETWEEN 5 AND 30"
    )
    assert rows(join.replay(a=moments["a"], b=moments["b"]).table) == expected


@pytest.mark.parametrize(
    ("say", "message"),
    [
        (lambda: BASE.in_order("a", "d"), r"\.in_order\(\): there is no stream 'd'"),
        (lambda: BASE.in_order("a", "b", "a"), "the stream 'a' was named twice; name it once"),
        (lambda: BASE.in_order("a"), "name at least two streams, the earliest first"),
        (lambda: BASE.between("a", "a", 0, 1), "the stream 'a' was named twice"),
        (lambda: BASE.between("a", "b", 5, 1), "is 5 and the largest 1; give the smaller one"),
        (lambda: BASE.between("a", "b", 0, "-1 s"), "largest '-1 second'; give the smaller one"),
        (
            lambda: BASE.between("a", "b", 5, 9).in_order("a", "b").count(SORTED),
            r"\.in_order\(\) and \.between\(\): .* contradict each other; widen",
        ),
        (lambda: BASE.between("a", "b", 61, 99).count(SORTED), "contradict each other"),
        (
            lambda: ss.join("a", "b").on("k").last(9).in_order("a", "b").count(pair(SORTED)),
            r"no time column is named for 'a', 'b'; name it, as in \.last\(100, time='ts'\)",
        ),
        (lambda: ss.join(by="s").in_order("a", "b"), "known only as they appear"),
        (lambda: BASE.unmatched("d"), r"\.unmatched\(\): there is no stream 'd'"),
        (BASE.unmatched, "names no stream"),
        (lambda: BASE.unmatched("a", "a"), "was named twice"),
        (lambda: ss.join("a", "certain").unmatched("a"), "a stream is named 'certain'"),
        (
            lambda: ss.join("a", "b").on("k").last(9).unmatched("a").count(pair(SORTED)),
            r"\.unmatched\(\) cannot be combined with \.last\(\): .*use \.within\(\) instead",
        ),
        (lambda: BASE.first(per="d"), r"`per` is 'd'; give 'key', or one of the streams"),
        (lambda: BASE.first(per="key", last_touch=True), "name the stream, as in"),
        (
            lambda: BASE.first(per="a").partial().count(SORTED),
            r"a partial result may have no row of 'a'; use \.first\(per='key'\)",
        ),
    ],
)
def test_what_cannot_be_says_why(say: Callable[[], object], message: str) -> None:
    with pytest.raises(ss.SpecError, match=message):
        say()
