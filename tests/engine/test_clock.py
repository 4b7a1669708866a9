"""Rows ahead of all others, where a column tells streams apart and all share one clock."""

from __future__ import annotations

import warnings
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamshed as ss
from harness import driven, replayed
from oracles.exact import judged
from oracles.rows import by_column
from oracles.simulator import simulate
from oracles.workloads import workloads
from streamshed.engine.clock import ENOUGH_ROWS, agreed_time
from streamshed.kernels.core import NEVER

FAR = 10**9
BY = ss.join(by="s").on("k")


def rows(*came: tuple[str, int]) -> pa.Table:
    """Rows of one key, in the order in which they come."""
    streams, times = zip(*came, strict=True)
    return pa.table({"s": streams, "k": [1] * len(came), "ts": times})


def late(join: ss.Join, table: pa.Table) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledger = join.replay(table, order="arrival").ledger
    assert ledger.balanced
    return sum(stream.late for stream in ledger.streams.values())


USUAL = [(name, time) for time in range(2, 60) for name in ("a", "b")]


def test_a_single_row_far_ahead_makes_no_other_late():
    table = rows(("a", 0), ("b", 1), ("a", FAR), *USUAL)
    assert late(BY.within(5, time="ts"), table) == 0
    assert late(BY.within(5, time="ts", ahead=FAR), table) == len(USUAL)
    done = BY.within(5, time="ts").replay(table, order="arrival")
    without = BY.within(5, time="ts").replay(rows(("a", 0), ("b", 1), *USUAL))
    assert done.ledger.results == without.ledger.results
    stored = sum(stream.stored for stream in done.ledger.streams.values())
    assert stored == 1 + sum(stream.stored for stream in without.ledger.streams.values())


def test_nor_do_all_rows_of_a_device_whose_clock_is_wrong():
    usual = [
        row for time in range(100) for row in (("a", time), ("wrong", FAR + time), ("b", time))
    ]
    table = rows(*usual)
    assert late(BY.within(5, time="ts"), table) == 0


@pytest.mark.parametrize(
    ("came", "clock"),
    [
        ([("a", 0), ("a", 5)], 5),
        ([("a", 0), ("a", 6)], 0),
        ([("a", 0), ("a", 50), ("a", 51)], 0),
        ([("a", 0), ("a", 50), ("b", 52)], 52),
        ([("a", 0), ("a", 52), ("b", 50)], 50),
        ([("a", 0), ("a", 50), ("b", 90)], 50),
        ([("a", 0), ("a", 50), ("b", 90), ("a", 91)], 91),
        ([("a", 0), ("a", 50), ("a", 1), ("b", 50)], 1),
        ([("a", 0), *[("a", 50 + n) for n in range(ENOUGH_ROWS - 1)]], 0),
        ([("a", 0), *[("a", 50 + n // 32) for n in range(ENOUGH_ROWS)]], 51),
        ([("a", 0), *[("a", 50 + n) for n in range(ENOUGH_ROWS)]], 50),
    ],
)
def test_when_time_moves_on(came, clock):
    cells = [(stream, 1, time, None) for stream, time in came]
    workload = by_column(cells, ("time", 3), late=2, at_least=2)
    assert simulate(workload).clocks[-1] == clock
    *_, (_, _, _, operator) = driven(workload, range(1, len(came)), restore=True)
    assert operator.core.numbers[0] == clock


@settings(max_examples=60, deadline=None)
@given(workloads(by=True, budget=False, windows=["time"]), st.data())
def test_the_clock_is_what_the_oracles_say(workload, data):
    expected, judgement = judged(workload)
    simulated = simulate(workload)
    assert simulated.clocks == judgement.clocks
    assert simulated.multiset() == expected
    ours, ledger = replayed(workload)
    assert Counter(ours) == expected
    cuts = sorted(data.draw(st.sets(st.integers(0, len(workload.rows)), max_size=4)))
    *_, (_, results, then, _) = driven(workload, cuts, restore=data.draw(st.booleans()))
    assert Counter(results) == expected
    for stream, account in simulated.ledger.items():
        for found in (ledger.streams[stream], then.streams[stream]):
            assert (found.late, found.expired) == (account.late, account.expired)


@pytest.mark.parametrize(
    ("times", "newest", "agreed"),
    [
        ([], 7, 7),
        ([NEVER, 9], 7, 9),
        ([9, FAR], 7, 9),
        ([FAR], 7, 7),
        ([FAR + 1, FAR], 7, FAR + 1),
        ([FAR + 50, FAR], 7, FAR),
        ([3], NEVER, NEVER),
        ([3, FAR], NEVER, 3),
        ([3, 4], NEVER, 4),
    ],
)
def test_what_the_partitions_of_an_input_agree_on(times, newest, agreed):
    assert agreed_time(times, newest, 5) == agreed
    if [time for time in times if time != NEVER]:
        assert agreed_time(times, newest, None) == max(times)


def test_it_is_said_and_refused_in_words():
    said = BY.within("5 minutes", time="ts", ahead="1 hour")
    assert repr(said).endswith(".within('5 minutes', time='ts', ahead='1 hour')")
    with pytest.raises(ss.SpecError, match=r"`ahead` is '1 h'.*named by a column"):
        ss.join("a", "b").on("k").within(5, time="ts", ahead="1 h")
