"""The baselines make the results of the engine, which are those that DuckDB makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from streamshed.engine.batch import Batch
from streamshed.engine.blocks import Block
from streamshed.kernels.hashing import hash_words, secret_of
from streamshed_lab.baselines import (
    BASELINES,
    Baseline,
    MJoin,
    Query,
    SHJTree,
    SNJoin,
    XJoinTree,
)

SPILLING = [baseline for baseline in BASELINES if baseline.spills]


def drawn(seed: int, streams: int, rows: int, keys: int, span: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "stream": random.integers(0, streams, rows),
            "key": random.integers(0, keys, rows),
            "time": np.sort(random.integers(0, span, rows)),
            "row": np.arange(rows),
        }
    )


def batch_of(table: pa.Table) -> Batch:
    columns = {name: table[name].to_numpy() for name in table.column_names}
    return Batch(
        columns["stream"].astype(np.int32),
        columns["time"],
        hash_words(columns["key"].view(np.uint64), secret_of(0)),
        columns["row"],
        np.empty(0, np.bool_),
        np.empty(0, np.int64),
    )


def found(blocks: Iterable[Block]) -> Counter[tuple[tuple[int, ...], int]]:
    """The rows of each result, in their order, and its time."""
    results: Counter[tuple[tuple[int, ...], int]] = Counter()
    for block in blocks:
        parts = np.split(block.members, block.ends[:-1])
        for members, time in zip(parts, block.time.tolist(), strict=True):
            results[tuple(sorted(members.tolist())), time] += 1
    return results


def processed(join: Baseline, table: pa.Table, piece: int) -> Counter[tuple[tuple[int, ...], int]]:
    """All results of a table that comes in pieces, and of the disk."""
    results: Counter[tuple[tuple[int, ...], int]] = Counter()
    for start in range(0, table.num_rows, piece):
        results += found(join.process(batch_of(table.slice(start, piece))))
    results += found(join.finish())
    assert join.results == results.total()
    return results


def complete(table: pa.Table, streams: int, window: int) -> Counter[tuple[tuple[int, ...], int]]:
    names = [f"s{number}" for number in range(streams)]
    tables = {
        name: table.filter(pa.array(table["stream"].to_numpy() == number))
        for number, name in enumerate(names)
    }
    join = ss.join(*names).on("key").within(window, time="time", clock="max")
    results = join.replay(tables).table.to_pylist()
    return Counter(
        (tuple(sorted(result[name]["row"] for name in names)), result["time"]) for result in results
    )


def partial(table: pa.Table, window: int, at_least: int) -> Counter[tuple[tuple[int, ...], int]]:
    join = ss.join(by="stream").on("key").within(window, time="time").partial(at_least)
    results = join.replay(table).table.to_pylist()
    return Counter(
        (tuple(sorted(member["row"] for member in result["members"])), result["time"])
        for result in results
    )


@pytest.mark.parametrize("baseline", [*BASELINES, SNJoin])
@pytest.mark.parametrize("streams", [2, 3, 5])
def test_complete_joins(baseline: type[Baseline], streams: int) -> None:
    table = drawn(streams, streams, rows=1_500, keys=120, span=1_500)
    window = 60 * streams
    expected = complete(table, streams, window)
    assert expected.total() > 100
    for piece in (1_500, 7):
        join = baseline(Query(streams, window, room=8))
        assert processed(join, table, piece) == expected


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("at_least", [2, 4])
def test_joins_of_variable_arity(baseline: type[Baseline], at_least: int) -> None:
    streams = 40
    table = drawn(1, streams, rows=2_000, keys=150, span=2_000)
    expected = partial(table, 400, at_least)
    assert expected.total() > 800
    join = baseline(Query(streams, 400, at_least, room=4))
    assert processed(join, table, 333) == expected


def test_one_output_of_variable_arity_has_all_rows_that_an_arrival_meets() -> None:
    streams, window = 12, 200
    table = drawn(4, streams, rows=1_200, keys=90, span=1_200)
    expected: Counter[tuple[tuple[int, ...], int]] = Counter()
    rows = table.to_pylist()
    for at, row in enumerate(rows):
        met = [
            other["row"]
            for other in rows[:at]
            if other["key"] == row["key"]
            and other["stream"] != row["stream"]
            and row["time"] - other["time"] <= window
        ]
        if met:
            expected[tuple(sorted((row["row"], *met))), row["time"]] += 1
    assert expected.total() > 300
    for baseline in (SNJoin, MJoin):
        join = baseline(Query(streams, window, 2, room=4, factorised=True))
        assert processed(join, table, 77) == expected


@pytest.mark.parametrize("baseline", SPILLING)
@pytest.mark.parametrize("streams", [2, 4])
def test_nothing_is_lost_on_disk_and_nothing_made_twice(
    baseline: type[Baseline], streams: int
) -> None:
    table = drawn(7, streams, rows=1_500, keys=60, span=1_500)
    window = 40 * streams
    expected = complete(table, streams, window)
    assert expected.total() > 400
    for memory in (15, 60):
        join = baseline(Query(streams, window, room=8, memory=memory))
        assert processed(join, table, 111) == expected
        assert join.disk_bytes > 0
    assert processed(baseline(Query(streams, window)), table, 111) == expected


@pytest.mark.parametrize("baseline", SPILLING)
@pytest.mark.parametrize("streams", [2, 3])
def test_what_is_on_disk_is_revisited_while_no_tuples_come(
    baseline: type[Baseline], streams: int
) -> None:
    """After each piece the results so far are exactly those of the tuples so far."""
    table = drawn(9, streams, rows=900, keys=40, span=900)
    window, piece = 50 * streams, 90
    join = baseline(Query(streams, window, room=8, memory=20))
    made: Counter[tuple[tuple[int, ...], int]] = Counter()
    for start in range(0, table.num_rows, piece):
        made += found(join.process(batch_of(table.slice(start, piece))))
        made += found(join.revisit())
        assert made == complete(table.slice(0, start + piece), streams, window)
    assert 0 < join.late_results < join.results == made.total()
    assert list(join.finish()) == []


def test_mjoin_with_the_papers_costs_makes_the_same() -> None:
    table = drawn(5, 4, rows=1_500, keys=80, span=1_500)
    query = Query(4, 240, room=8)
    costly = replace(query, forms=True, ordered_every=1)
    assert processed(MJoin(costly), table, 99) == processed(MJoin(query), table, 99)


@pytest.mark.parametrize("baseline", [MJoin, SNJoin])
def test_one_output_per_arrival_has_all_rows_of_its_results(baseline: type[Baseline]) -> None:
    table = drawn(5, 4, rows=1_500, keys=80, span=1_500)
    query = Query(4, 240, room=8)
    all_of: dict[tuple[int, int], set[int]] = {}
    for (members, time), _ in processed(baseline(query), table, 99).items():
        all_of.setdefault((max(members), time), set()).update(members)  # rows are numbered in order
    outputs = processed(baseline(replace(query, factorised=True)), table, 99)
    assert outputs == Counter({(tuple(sorted(rows)), at[1]): 1 for at, rows in all_of.items()})


def test_bare_snjoin_probes_once_for_each_tuple() -> None:
    join = SNJoin(Query(5, 300))
    list(join.process(batch_of(drawn(1, 5, rows=800, keys=40, span=800))))
    assert join.probes == 800
    assert join.held <= 301 * 2


def test_mjoin_flushes_all_tables_together() -> None:
    join = MJoin(Query(3, 1_000, memory=50))
    list(join.process(batch_of(drawn(3, 3, rows=200, keys=40, span=200))))
    list(join.finish())
    for table, partition in join.flushes:
        assert join.flushes[table, partition] == join.flushes[0, partition]
    tree = XJoinTree(Query(3, 1_000, memory=50))
    list(tree.process(batch_of(drawn(3, 3, rows=200, keys=40, span=200))))
    list(tree.finish())
    assert any(tree.flushes_of(0)[p] != tree.flushes_of(1)[p] for p in range(16))


def test_mjoin_asks_the_stream_first_that_matches_least() -> None:
    """With one stream that never matches the probing stops after it."""
    random = np.random.default_rng(5)
    stream = random.integers(0, 6, 20_000)
    key = np.where(stream == 4, 10_000 + np.arange(20_000), random.integers(0, 20, 20_000))
    table = pa.table({"stream": stream, "key": key, "time": np.arange(20_000), "row": stream})
    join = MJoin(Query(6, 300))
    list(join.process(batch_of(table)))
    assert join.results == 0
    assert join.state.order[0] == 4
    assert join.probes < 1.5 * 20_000


@pytest.mark.parametrize("baseline", BASELINES)
def test_streams_that_come_and_go(baseline: type[Baseline]) -> None:
    """Streams 10 to 19 replace 0 to 9 in mid-stream, once what they sent has expired."""
    table = drawn(11, 20, rows=2_000, keys=50, span=2_000)
    stream, time = table["stream"].to_numpy(), table["time"].to_numpy()
    early = (stream < 10) & (time < 900)
    late = (stream >= 5) & (time >= 900)
    one, two = (table.filter(pa.array(chosen)) for chosen in (early, late))
    expected = partial(pa.concat_tables([one, two]), 200, 2)
    join = baseline(Query(10, 200, 2))
    results = processed(join, one, 500)
    join.rearrange(np.arange(10), 20)
    results += processed_more(join, two)
    assert results == expected


def processed_more(join: Baseline, table: pa.Table) -> Counter[tuple[tuple[int, ...], int]]:
    return found(join.process(batch_of(table)))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ss.SpecError, match="SHJ tree has no disk; leave `memory` \\(5\\) out"):
        SHJTree(Query(2, 10, memory=5))
    with pytest.raises(ss.SpecError, match="bare SNJoin makes complete results, or one output"):
        SNJoin(Query(2, 10, at_least=2))
    with pytest.raises(ss.SpecError, match="with a memory of 5 makes complete results only"):
        Query(2, 10, at_least=2, memory=5)
