"""Budgets that follow the rows over the shards of a join."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamshed as ss
from streaming import rows
from streamshed.engine.budget_parts import BudgetParts, Counted, count_rows, promises_of
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import from_ipc
from streamshed.engine.loop import pass_moments, run
from streamshed.kernels.core import BOUNDLESS, NEVER, NONE, Memory
from streamshed.plan.plan import BudgetPart, Plan
from streamshed.shards import counted_rows, divided, shards_by_key, split
from streamshed.spark.blobs import to_blob
from streamshed_lab.workloads import Auctions

SHARDS, EVERY = 3, 5


def skewed(seed: int, count: int = 3_000, keys: int = 200, streams: int = 2) -> dict[str, pa.Table]:
    """Streams in order of time, of keys with rows by Zipf's law."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, keys + 1) ** 1.1
    drawn = [random.choice(keys, count, p=weights / weights.sum()) for _ in range(streams)]
    times = pa.array(np.arange(count))
    return {
        name: pa.table({"k": keys_of, "ts": times, "n": times})
        for name, keys_of in zip("abc", drawn, strict=False)
    }


def join_of(budget: dict[str, Any], policy: str = "frequency") -> ss.Join:
    return ss.join("a", "b").on("k").within(300, time="ts").keep(**budget).shed(policy)


def parts_of_all(*budgets: int | None, every: int = EVERY) -> list[BudgetParts]:
    from streamshed.engine.allocation import first_shape

    schema = skewed(0, 1)["a"].schema
    shape = first_shape(join_of({"total": 9}).plan({"a": schema, "b": schema}))
    plans = [BudgetPart(shard, SHARDS, every, budgets, 2) for shard in range(SHARDS)]
    return [BudgetParts(plan, shape, Memory()) for plan in plans]


def told(seed: int, times: npt.NDArray[np.int64], every: int = EVERY) -> list[Counted]:
    """Rows of two streams whose keys move from shard to shard as time goes on."""
    some = np.random.default_rng(seed).integers(0, 2**60, 400)[times]
    hashed = np.where(times // 40 % 2 == 0, 3, some).astype(np.uint64)
    none = np.empty(0, np.bool_)
    return [count_rows(position, hashed, none, times, none, every, SHARDS) for position in (0, 1)]


def passed(
    parts: BudgetParts, counted: list[Counted], newest: int
) -> list[tuple[int, list[int], list[int]]]:
    """The moments that a batch passes: their time, what is known of streams, and the budgets."""
    told = parts.take(parts.see(counted, newest)).tolist()
    assert told.pop()[0] == BOUNDLESS
    known, budgets = 1 + len(parts.seen), len(parts.part.budgets)
    return [(now[0], now[1:known], now[known : known + budgets]) for now in told]


def changes(
    parts: BudgetParts, cuts: list[int], restart: bool = False
) -> list[tuple[int, list[int], list[int]]]:
    """All that happens at moments, of rows that are told batch by batch."""
    found = [(-1, [NEVER, NEVER], parts.budgets)]
    for start, end in zip([0, *cuts], [*cuts, 400], strict=True):
        if restart:
            saved = json.loads(json.dumps(parts.save()))
            parts = BudgetParts(parts.part, parts.shape, Memory())
            parts.load(saved)
        times = np.arange(start, end)
        counted = told(0, times, parts.part.every) if times.size else []
        found += passed(parts, counted, end - 1 if times.size else NEVER)
    return found


@pytest.mark.parametrize("budgets", [(40,), (9, 6), (3, None)])
def test_all_parts_together_are_never_more_than_the_budget(budgets: tuple[int | None, ...]) -> None:
    of_all = [{at: own for at, _, own in changes(parts, [])} for parts in parts_of_all(*budgets)]
    now = [dict.__getitem__(found, -1) for found in of_all]
    moved = False
    for time in range(400):
        later = [found.get(time, own) for found, own in zip(of_all, now, strict=True)]
        for stream, whole in enumerate(budgets):
            if whole is None:
                continue
            # Shards come past a moment one after the other, in any order.
            most = [max(a[stream], b[stream]) for a, b in zip(now, later, strict=True)]
            assert sum(most) <= whole
            assert min(own[stream] for own in later) >= 1
            moved |= later != now
        now = later
    assert moved or budgets == (3, None)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("every", [EVERY, 1])
def test_parts_do_not_depend_on_how_rows_are_cut(restart: bool, every: int) -> None:
    """However many moments are in a batch: there are 400 in the longest."""
    cuts = [1, 17, 17, 80, 203]
    both = (parts_of_all(40, every=every) for _ in range(2))
    for parts, others in zip(*both, strict=True):
        whole = changes(parts, [])
        assert whole == changes(others, cuts, restart)
        assert len({tuple(budgets) for *_, budgets in whole}) > 4
        # Nobody is said to be further than his rows are, nor more than a moment behind.
        assert [known for at, known, _ in whole[1:]] == [
            [at - every, at - every] for at, *_ in whole[1:]
        ]


def test_rows_of_the_past_and_without_a_key_or_a_time_change_nothing() -> None:
    parts, times = parts_of_all(40)[0], np.arange(100)
    passed(parts, told(0, times), 99)
    before = parts.budgets
    assert passed(parts, told(1, np.arange(20)), 99) == []
    assert parts.budgets == before
    missing = np.ones(100, np.bool_)
    none = np.empty(0, np.bool_)
    for no_key, no_time in ((missing, none), (none, missing)):
        counted = count_rows(0, times.astype(np.uint64), no_key, times, no_time, EVERY, SHARDS)
        assert counted.moments.size == 0


def test_counts_pass_through_arrow() -> None:
    for counted in told(0, np.arange(13)):
        again = Counted.of_rows(counted.as_rows())
        assert set(again.moments.tolist()) == {0, 1, 2}
        for column, other in zip(again, counted, strict=True):
            assert column.tolist() == other.tolist()
        assert counted.rows.sum() == 13
        nothing = counted.chosen(slice(0, 0))
    assert Counted.of_rows(nothing.as_rows()).moments.size == 0


@pytest.mark.parametrize("spread", [1, 1_000, 100_000, 2**62])
def test_shards_are_told_few_bytes(spread: int) -> None:
    """However many moments there are, and in whatever order."""
    random, none = np.random.default_rng(0), np.empty(0, np.bool_)
    count = 50_000
    times = random.integers(-spread, spread, count)
    hashed = random.integers(0, 2**63, count).astype(np.uint64)
    counted = count_rows(1, hashed, none, times, none, EVERY, SHARDS)
    told = from_ipc(to_blob(counted.as_rows()))
    again = Counted.of_rows(told)
    order = np.argsort(counted.moments, kind="stable")
    for column, other in zip(again, counted.chosen(order), strict=True):
        assert column.dtype == other.dtype
        assert column.tolist() == other.tolist()
    few = 2_500 if spread == 1 else 4 * count
    assert len(to_blob(counted.as_rows())) < (12 * count if spread == 2**62 else few)


@pytest.mark.parametrize("shards", [1, 3, 300])
@pytest.mark.parametrize("spread", [20, 5_000, 2**62])
def test_rows_are_counted_whatever_their_order(shards: int, spread: int) -> None:
    random = np.random.default_rng(0)
    times = random.integers(-spread, spread, 3_000)
    hashed = random.integers(0, 2**63, 3_000).astype(np.uint64)
    none = np.empty(0, np.bool_)
    counted = count_rows(1, hashed, none, times, none, EVERY, shards)
    found: Counter[tuple[int, int]] = Counter()
    for moment, cell, count in zip(*(column.tolist() for column in counted), strict=True):
        found[moment, cell] += count
    own = max(1, 256 // shards)
    assert found == Counter(
        (time // EVERY, (shards + key % shards) * own + ((key >> 32) * own >> 32))
        for time, key in zip(times.tolist(), hashed.tolist(), strict=True)
    )


def parts_of_the_only_shard_with_rows(lag: int, until: int = 400) -> list[int]:
    """As time goes on, where a stream lags behind the other, and ends."""
    parts, none, found = parts_of_all(90)[0], np.empty(0, np.bool_), []
    for start in range(0, 400, 10):
        times = np.arange(start, start + 10)
        behind = times[times < until] - lag
        counted = [
            count_rows(position, np.full(of.size, 3, np.uint64), none, of, none, EVERY, SHARDS)
            for position, of in enumerate((times, behind[behind >= 0]))
        ]
        assert not [own for *_, own in passed(parts, counted, start + 9) if sum(own) > 90]
        found += parts.budgets
    return found


@pytest.mark.parametrize("lag", [0, 9, 15, 19])
def test_parts_follow_rows_of_streams_that_lag(lag: int) -> None:
    assert min(parts_of_the_only_shard_with_rows(lag)[8:]) > 80


def test_parts_stay_while_a_stream_pauses() -> None:
    assert min(parts_of_the_only_shard_with_rows(0, until=200)[8:]) > 80


def test_what_is_kept_of_counts_does_not_grow_with_batches() -> None:
    parts, none = parts_of_all(90)[0], np.empty(0, np.bool_)
    for time in range(500):
        one = np.full(1, time // 100), np.full(1, 3, np.uint64)
        passed(parts, [count_rows(0, one[1], none, one[0], none, EVERY, SHARDS)], time // 100)
    assert parts.rows.rows.tolist() == [500]


def test_rows_promise_the_combinations_that_are_results() -> None:
    rows = np.random.default_rng(0).integers(0, 4, (2, 3, 2, 5)).astype(np.float64)
    for at_least in (2, 3):
        for moment, found in enumerate(promises_of(rows, at_least).tolist()):
            assert found == [
                sum(
                    math.prod(rows[moment, list(members), shard, place])
                    for place in range(5)
                    for count in range(at_least, 4)
                    for members in itertools.combinations(range(3), count)
                )
                for shard in range(2)
            ]


@pytest.mark.parametrize("change", [{}, {"total": 70}, {"seed": 5}, {"policy": "random"}])
def test_a_shard_keeps_its_part_when_it_is_restored(change: dict[str, Any]) -> None:
    data = skewed(0, keys=2_000)
    schemas = {name: table.schema for name, table in data.items()}

    def plans(total: int = 60, policy: str = "frequency", seed: int = 0) -> list[Plan]:
        join = join_of({"total": total}, policy).seed(seed)
        return divided(join.plan(schemas), tuple(range(SHARDS)), 1)

    larger = 0
    for before, after in zip(plans(), plans(**change), strict=True):
        join, read = build_operator(before), []
        batches = [data[name].combine_chunks().to_batches()[0] for name in "ab"]
        counted = [counted_rows(before, at, rows, SHARDS) for at, rows in enumerate(batches)]
        join.begin_batch([one for one in counted if one is not None], 2_999)
        shards = [shards_by_key(before.streams[0], rows, SHARDS) for rows in batches]
        assert before.part is not None
        for at, (batch, of) in enumerate(zip(batches, shards, strict=True)):
            own = split(batch, of, SHARDS)[before.part.shard]
            read.append(join.read(at, own))
        list(join.process_inputs(read))
        join.advance([[2_999], [2_999]])
        held = int(join.core.pools["held"].sum())
        again = restore_operator(after, join.snapshot())
        assert int(again.core.pools["held"].sum()) == held
        larger += held > -(-60 // SHARDS)
    assert larger == 1


@pytest.mark.parametrize(
    ("budget", "gain"), [({"total": 60}, 1.1), ({"rows": 30}, 1.1), ({"rows": {"a": 20}}, 1.02)]
)
def test_shards_make_more_of_skewed_keys(
    budget: dict[str, Any], gain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is read at once, within the budget; of even parts they would make less."""
    from streamshed import replay
    from streamshed.join import spec_of

    data, join = skewed(0), join_of(budget)
    whole = join.replay(data, shards=SHARDS)
    for chunk in (70, 1_000):
        made = replay.replay_batches(spec_of(join), data, shards=SHARDS, chunk=chunk)
        found = pa.Table.from_batches(list(made), made.schema)
        assert rows(found) == rows(whole.table)
        stored = {name: stream.stored for name, stream in made.ledger.streams.items()}
        if "total" in budget:
            assert sum(stored.values()) <= 60
        else:
            assert stored["a"] <= (30 if budget["rows"] == 30 else 20)
    monkeypatch.setattr(Plan, "moments", None)
    even = join.replay(data, shards=SHARDS)
    assert whole.ledger.results > gain * even.ledger.results


def test_batches_of_many_windows_are_as_good_as_short_ones() -> None:
    """A batch has some hundred moments, and what keys are frequent changes with time."""
    from streamshed import replay
    from streamshed.join import spec_of

    of_keys = skewed(0, count=20_000)
    data = {
        name: table.set_column(
            0, "k", pc.add(table["k"], pc.multiply(pc.divide(table["n"], 600), 199))
        )
        for name, table in of_keys.items()
    }
    join = ss.join("a", "b").on("k").within(60, time="ts").keep(total=30).shed("frequency")
    whole = join.replay(data, shards=2)
    for chunk in (4_096, 37):
        made = replay.replay_batches(spec_of(join), data, shards=2, chunk=chunk)
        assert rows(pa.Table.from_batches(list(made), made.schema)) == rows(whole.table)


def test_one_shard_and_those_before_which_rows_wait_keep_their_parts() -> None:
    schema = skewed(0, 1)["a"].schema
    schemas = {"a": schema, "b": schema}
    for budget in ({"total": 60}, {"memory": "1 MB"}):
        assert all(part.part for part in divided(join_of(budget).plan(schemas), (0, 1), 1))
    for join, labels in (
        (join_of({"total": 60}), (0,)),
        (join_of({"total": 60}, "oldest").queue(rows=9).throttle(rows_per_second=5), (0, 1)),
    ):
        assert all(part.part is None for part in divided(join.plan(schemas), labels, 1))


def test_what_is_compiled_beforehand_is_all_that_shards_need() -> None:
    """Executors get the kernels of a driver, which has no shards."""
    data, join = skewed(0, 500), join_of({"total": 30}, "output")
    build_operator(join.plan({name: table.schema for name, table in data.items()})).warm()
    known = len(run.signatures), len(pass_moments.signatures)
    assert join.replay(data, shards=SHARDS).ledger.results
    assert (len(run.signatures), len(pass_moments.signatures)) == known


@pytest.mark.parametrize("policy", ["frequency", "output"])
def test_rows_without_a_budget_are_not_ranked(policy: str) -> None:
    """Their positions say so, wherever their keys are looked up."""
    data = skewed(0)
    join = build_operator(
        join_of({"rows": {"a": 20}}, policy).plan({name: t.schema for name, t in data.items()})
    )
    batches = [table.combine_chunks().to_batches()[0] for table in data.values()]
    list(join.process_inputs([join.read(at, rows) for at, rows in enumerate(batches)]))
    pools = join.core.pools["held"].tolist()
    ranked = join.state.position[: join.core.rows.size] != NONE
    assert pools[0] == 20 < pools[1]
    assert int(ranked.sum()) == 20


def test_density_stays_within_the_rows_in_front_when_its_budget_shrinks() -> None:
    """It put rows in front at a place beyond all rows, and read what is not its own."""
    streams = Auctions(seconds=12_000.0, auctions=3_600, sold=0.5, seed=113).tables()
    join = ss.join(*streams).on("key").within("800 s", time="time").keep(rows=440).seed(23)
    ledger = join.count(streams, shards=4)
    assert 10_000 < ledger.results < join.keep(rows=100_000).count(streams).results
