"""Keys whose hashes collide: partial joins make the results that they would make otherwise."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from harness import driven, inputs, members, spec
from oracles.rows import Workload, by_column, named
from oracles.simulator import simulate
from streamshed.engine import ingest


@pytest.fixture(autouse=True)
def _few_hashes(monkeypatch):
    """Two hashes for all keys."""
    real = ingest.key_hash

    def few(*arguments):
        hashed, null = real(*arguments)
        return hashed & np.uint64(1), null

    monkeypatch.setattr(ingest, "key_hash", few)


def told_apart(seed: int, at_least: int, window: int = 6, own: bool = False) -> Workload:
    random = np.random.default_rng(seed)
    rows = [
        (f"s{random.integers(5)}", f"k{random.integers(5)}", number // 2 - random.integers(3), 1)
        for number in range(90)
    ]
    lengths = (("s1", 9), ("s3", 2)) if own else ()
    cells = [(stream, key, int(time), worth) for stream, key, time, worth in rows]
    return by_column(cells, ("time", window), late=2, at_least=at_least, own=lengths)


def by_name(seed: int, at_least: int) -> Workload:
    random = np.random.default_rng(seed)
    streams = [
        [(f"k{random.integers(5)}", int(time), 1) for time in np.sort(random.integers(0, 30, 22))]
        for _ in range(4)
    ]
    windows = [("time", window) for window in (6, 6, 3, 8)]
    return named(streams, windows, at_least=at_least, clock="max")


@pytest.mark.parametrize("room", [None, 5, 1])
@pytest.mark.parametrize("at_least", [2, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_named_streams_make_what_they_would_make(seed, at_least, room, monkeypatch):
    if room is not None:
        monkeypatch.setattr("streamshed.engine.operator.OUTPUT", room)
    workload = by_name(seed, at_least)
    expected = simulate(workload)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = spec(workload).replay(inputs(workload))
        counted = spec(workload).count(inputs(workload))
    assert Counter(members(workload, done.table)) == expected.multiset()
    assert done.ledger.results == done.table.num_rows == counted.results == len(expected.results)
    assert done.ledger.results > 50


@pytest.mark.parametrize("room", [None, 5, 1])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("at_least", [2, 3])
def test_streams_told_apart_make_what_they_would_make(at_least, own, room, monkeypatch):
    if room is not None:
        monkeypatch.setattr("streamshed.engine.operator.OUTPUT", room)
    for seed in range(2):
        workload = told_apart(seed, at_least, own=own)
        expected = simulate(workload)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = spec(workload).replay(inputs(workload), order="arrival")
        updates = zip(
            done.table["update"].to_pylist(), done.table["extends"].to_pylist(), strict=True
        )
        made = zip(members(workload, done.table), updates, strict=True)
        said = [((r.members, r.time), (r.arrival, r.extends)) for r in expected.results]
        assert Counter(made) == Counter(said)
        assert done.ledger.results == done.table.num_rows == len(said) > 20


@pytest.mark.parametrize("cuts", [[1, 30, 31], range(1, 90, 4)])
def test_cuts_and_restarts_change_nothing(cuts):
    workload = told_apart(5, 2)
    expected = simulate(workload).multiset()
    for restore in (False, True):
        for _, results, ledger, _ in driven(workload, cuts, restore):
            assert ledger.results == len(results)
        assert Counter(results) == expected


@pytest.mark.parametrize("room", [None, 2])
def test_what_comes_from_disk_is_made_and_counted_alike(room, tmp_path: Path, monkeypatch):
    if room is not None:
        monkeypatch.setattr("streamshed.engine.operator.OUTPUT", room)
    workload = told_apart(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = spec(workload).replay(inputs(workload))
        done = spec(workload).keep(total=8).spill(to=tmp_path).replay(inputs(workload))
    assert sorted(map(repr, done.table.to_pylist())) == sorted(map(repr, exact.table.to_pylist()))
    assert done.ledger.results == done.table.num_rows
    assert 0 < done.ledger.spilled.results <= done.table.num_rows


def test_importance_is_that_of_the_true_members():
    workload = told_apart(6, 2)
    rows = inputs(workload)["input"]
    rows = rows.set_column(4, "worth", [np.arange(rows.num_rows, dtype=np.float64)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = spec(workload).weigh(column="worth").replay(rows)
    found = done.table.to_pylist()
    least = [min(member["worth"] for member in result["members"]) for result in found]
    assert [result["importance"] for result in found] == least
    assert done.ledger.importance == pytest.approx(sum(least))
