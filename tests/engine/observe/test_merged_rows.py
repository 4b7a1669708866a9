"""What the sample says where it has to merge rows, and the order of their times decides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss

Say = Callable[[ss.Join], ss.Join]

SAID: dict[str, Say] = {
    "in order": lambda join: join.in_order("a", "b", "c"),
    "strictly": lambda join: join.in_order("a", "b", "c", strictly=True),
    "between": lambda join: join.between("b", "a", -60, 90).between("c", "b", -60, 90),
}


def two_hot_keys(seed: int, tied: float = 0.0, rows: int = 2_400) -> dict[str, pa.Table]:
    """Streams of two keys; some rows have the time and key of one of the stream before."""
    random = np.random.default_rng([seed, 17])
    found: dict[str, pa.Table] = {}
    before: tuple[np.ndarray, ...] | None = None
    for name in "abc":
        time, key = np.sort(random.integers(0, 9 * rows, rows)), random.integers(0, 2, rows)
        if before is not None:
            same = random.random(rows) < tied
            time, key = np.where(same, before[0], time), np.where(same, before[1], key)
            order = np.argsort(time, kind="stable")
            time, key = time[order], key[order]
        before = time, key
        found[name] = pa.table({"k": key, "ts": time})
    return found


def errors(said: Say, tied: float, seeds: int = 12) -> tuple[list[float], list[bool]]:
    """By seed: how far off the estimate is, as a part of all; whether the interval holds."""
    off, held = [], []
    for seed in range(seeds):
        tables = two_hot_keys(seed, tied)
        join = said(ss.join(*tables).on("k").within(900, time="ts"))
        exact = join.count(tables).results
        ledger = join.keep(rows=20).shed("oldest").seed(seed).count(tables)
        assert ledger.sample_rate == 1  # both keys are followed: what is wrong is so by merging
        missed = exact - ledger.results
        off.append((ledger.missed.value - missed) / exact)
        held.append(ledger.missed.low <= missed <= ledger.missed.high)
    return off, held


@pytest.mark.parametrize("tied", [0.0, 0.8])
@pytest.mark.parametrize("kind", SAID)
def test_order_is_known_of_rows_that_are_merged(kind: str, tied: float) -> None:
    """An entry is before another as far as its rows are, and rows of equal time are counted."""
    off, held = errors(SAID[kind], tied)
    assert abs(np.mean(off)) < 0.006
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("rate", [None, 1.0])
def test_bounds_compare_times_where_windows_are_of_rows(rate: float | None) -> None:
    """And not the numbers of rows, by which these leave."""
    tables = two_hot_keys(1)
    join = ss.join("a", "b").on("k").last(90, time="ts").between("b", "a", 10, 300)
    tables = {name: tables[name] for name in "ab"}
    exact = join.count(tables).results
    ledger = join.keep(rows=20).shed("oldest").estimate(rate=rate).count(tables)
    missed = exact - ledger.results
    assert missed > 1_000
    assert abs(ledger.missed.value - missed) <= (0 if rate == 1 else 0.02 * missed)
    assert ledger.missed.low <= missed <= ledger.missed.high


def test_estimates_within_bounds_have_no_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the seeds of the lots, where few keys have room and those that are heavy are merged."""
    for name in ("CAPACITY", "LARGE"):
        monkeypatch.setattr(f"streamshed.engine.observe.estimator.{name}", 96)
    random = np.random.default_rng(8)
    tables = {
        name: pa.table({"k": np.minimum(random.zipf(1.5, 3_000), 5_000), "ts": np.arange(3_000)})
        for name in "abc"
    }
    join = ss.join(*tables).on("k").within(60, time="ts").between("b", "a", -20, 20)
    join = join.between("c", "b", -20, 20)
    exact = join.count(tables).results
    ledgers = [join.keep(rows=12).shed("oldest").seed(seed).count(tables) for seed in range(150)]
    assert all(ledger.sample_rate < 1 for ledger in ledgers)
    said = np.array([ledger.results + ledger.missed.value for ledger in ledgers])
    error = said.std(ddof=1) / np.sqrt(len(said))
    assert abs(said.mean() - exact) < 4 * error + 0.005 * exact
    held = [ledger.missed.low <= exact - ledger.results <= ledger.missed.high for ledger in ledgers]
    assert np.mean(held) >= 0.9
