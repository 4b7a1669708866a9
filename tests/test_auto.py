"""`shed("auto")`: policies tried in miniature, and the best of them at work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamshed as ss
from oracles.rules import mix
from streamshed.errors import SpecError
from streamshed.kernels.core import ARRIVALS, RESULTS
from streamshed.kernels.random import GOLDEN
from streamshed.operators import resting, trials
from streamshed.operators.auto import AutoJoin, running_join
from streamshed.operators.checkpoint import Snapshot
from streamshed.operators.intake import key_hash, merged
from streamshed.operators.keyed import KeyedJoin
from streamshed.operators.table_join import Block
from streamshed.policies import Policy, auto
from streamshed_lab.workloads import ExistenceWorkload, MixedWorkload, ZipfWorkload

Streams = dict[str, pa.Table]


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds and rests so short that small workloads have many; the worst policy sheds first."""
    monkeypatch.setattr(trials, "SHORTEST_ROUND", 200)
    monkeypatch.setattr(resting, "AWAKE", 10)
    monkeypatch.setattr(resting, "FIRST_REST", 3)
    monkeypatch.setattr(trials, "LEAST_ROWS", 10)
    monkeypatch.setattr(auto, "CANDIDATES", auto.CANDIDATES[::-1])


def changing(seed: int = 1) -> Streams:
    """First keys close together in time, for which age is all; then values that recur."""
    near = ExistenceWorkload(streams=3, tuples=1500, spread=5.0, seed=seed)
    valued = ZipfWorkload(streams=3, tuples=1500, keys=3000, skew=0.6, seed=seed)
    return dict(MixedWorkload(((near,), (valued,))).tables())


def join_of(streams: Streams, rows: int = 60, policy: str = "auto") -> ss.Join:
    said = ss.join(*streams).on("key").within("100 s", time="time", clock="max").seed(3)
    return said.keep(rows=rows).shed(policy)


def operator_of(join: ss.Join, streams: Streams) -> KeyedJoin:
    plan = join.plan({name: table.schema for name, table in streams.items()})
    return running_join(plan)(plan)


def pieces(streams: Streams, cuts: Sequence[int]) -> Iterator[Streams]:
    """The streams cut at the same rows."""
    size = max(table.num_rows for table in streams.values())
    for start, end in zip([0, *cuts], [*cuts, size], strict=True):
        yield {name: table.slice(start, end - start) for name, table in streams.items()}


def fed(operator: KeyedJoin, piece: Streams) -> list[dict[str, Any]]:
    parts = []
    for position, table in enumerate(piece.values()):
        batches = table.combine_chunks().to_batches()
        empty = pa.RecordBatch.from_pylist([], schema=table.schema)
        parts.append(operator.read(position, batches[0] if batches else empty))
    made = []
    for found in operator.process(merged(parts)):
        if isinstance(found, Block):
            made.extend(operator.results(found).to_pylist())
    return made


def test_a_plan_says_which_kind_of_join_runs() -> None:
    streams = changing()
    assert isinstance(operator_of(join_of(streams), streams), AutoJoin)
    assert type(operator_of(join_of(streams, policy="oldest"), streams)) is KeyedJoin
    unbounded = ss.join(*streams).on("key").within("100 s", time="time").shed("auto")
    assert type(operator_of(unbounded, streams)) is KeyedJoin


def test_it_needs_keys_that_are_followed() -> None:
    streams = changing()
    with pytest.raises(SpecError, match=r"estimate\(rate=0\) follows none"):
        operator_of(join_of(streams).estimate(rate=0), streams)


@pytest.mark.usefixtures("short_rounds")
def test_each_policy_is_tried_as_an_ordinary_join_over_some_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resting, "AWAKE", 1000)
    streams = changing()
    operator = operator_of(join_of(streams), streams)
    assert isinstance(operator, AutoJoin)
    fed(operator, streams)
    tried = operator.trials
    assert 0 < tried.rate < 1
    few = {name: _chosen(table, tried.rate, seed=3) for name, table in streams.items()}
    assert sum(table.num_rows for table in few.values()) == tried.arrived()
    assert [policy.name for policy in tried.joins] == [policy.name for policy in auto.CANDIDATES]
    for policy, join in tried.joins.items():
        rows = round(60 * tried.rate)
        alone = join_of(few, rows, policy.name).estimate(rate=1).count(few)
        assert alone.results == join.core.numbers[RESULTS], policy
        assert alone.results > 0


def _chosen(table: pa.Table, rate: float, seed: int) -> pa.Table:
    """The rows of the keys whose lot is within the rate."""
    batch = table.combine_chunks().to_batches()[0]
    hashes, _ = key_hash(batch, ["key"], [batch.schema.field("key").type])
    salt = (seed + 1) * int(GOLDEN) % 2**64
    lots = [mix(int(word) ^ salt) for word in hashes]
    return table.filter(pa.array([lot < rate * 2**64 for lot in lots]))


@pytest.mark.usefixtures("short_rounds")
def test_the_best_of_late_sheds_and_the_ledger_says_so() -> None:
    streams = changing()
    ledger = join_of(streams).count(streams)
    assert ledger.switches > 0
    assert len(ledger.shed_by) > 1
    assert sum(ledger.shed_by.values()) == sum(s.shed for s in ledger.streams.values())
    assert f"{ledger.switches} switches" in str(ledger)
    assert ledger.balanced


def test_another_policy_takes_over_only_if_it_is_clearly_better() -> None:
    streams = changing()
    operator = operator_of(join_of(streams), streams)
    assert isinstance(operator, AutoJoin)
    tried, newest = operator.trials, operator.core.lanes["newest"]
    first, second, *_ = tried.joins
    made = 0

    def round_ends(*results: int) -> Policy:
        nonlocal made
        made += int(1000 / tried.rate)
        for policy, more in zip((first, second), results, strict=True):
            tried.joins[policy].core.numbers[RESULTS] += more
        return tried.end_round(first, newest, made)

    assert round_ends(1000, 1010) == first
    for _ in range(4):  # once or twice may be luck
        assert round_ends(1000, 3000) == first
    assert round_ends(1000, 3000) == second
    tried._clear()
    for _ in range(10):  # the keys that matter are not in the trial
        assert round_ends(100, 3000) == first


@pytest.mark.usefixtures("short_rounds")
def test_trials_rest_when_nothing_changes_and_then_begin_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto, "CANDIDATES", auto.CANDIDATES[::-1])  # the best sheds first
    monkeypatch.setattr(resting, "AWAKE", 4)
    monkeypatch.setattr(resting, "CHANGE", 1e9)
    streams = dict(ExistenceWorkload(streams=3, tuples=2000, spread=5.0, seed=1).tables())
    operator = operator_of(join_of(streams, rows=30), streams)
    assert isinstance(operator, AutoJoin)
    tried = operator.trials
    had, rested = [], []
    for piece in pieces(streams, range(10, 2000, 10)):
        fed(operator, piece)
        had.append(tried.arrived())
        rested.append(tried.rest.left > 0)
    assert operator.ledger().switches == 0
    assert all(arrived == 0 for arrived, rests in zip(had, rested, strict=True) if rests)
    assert rested.count(True) > rested.count(False) / 2
    ends = [place for place in range(1, len(rested)) if rested[place - 1] and not rested[place]]
    assert len(ends) > 1
    assert all(had[place + 5] > 0 for place in ends if place + 5 < len(had))


def test_what_was_learned_stays_through_a_rest() -> None:
    """The same stream twice, far apart: the second time density knows it from the beginning."""
    streams = dict(ExistenceWorkload(streams=3, tuples=1500, spread=20.0, seed=1).tables())
    operator = operator_of(join_of(streams), streams)
    assert isinstance(operator, AutoJoin)
    density = operator.policy

    def made() -> int:
        return int(operator.trials.joins[density].core.numbers[RESULTS])

    fed(operator, streams)
    first = made()
    operator.trials._clear()
    assert made() == 0
    hours = pa.scalar(10**10, pa.duration("us"))
    place = streams["s1"].schema.get_field_index("time")
    later = {
        name: table.set_column(place, "time", pc.add(table["time"], hours))
        for name, table in streams.items()
    }
    fed(operator, later)
    assert made() > 0.9 * first


@pytest.mark.usefixtures("short_rounds")
@pytest.mark.parametrize("restore", [False, True])
def test_cuts_and_restarts_change_nothing(restore: bool) -> None:
    streams = changing()
    join = join_of(streams)
    whole = operator_of(join, streams)
    expected = fed(whole, streams)
    assert whole.ledger().switches > 0
    operator = operator_of(join, streams)
    made = []
    for piece in pieces(streams, [300, 301, 900, 1700, 2200]):
        made.extend(fed(operator, piece))
        if restore:
            saved = Snapshot.from_bytes(operator.snapshot().to_bytes())
            operator = AutoJoin.restore(operator.plan, saved)
    assert made == expected
    ours, theirs = operator.ledger(), whole.ledger()
    assert ours.streams == theirs.streams
    assert (ours.switches, ours.shed_by) == (theirs.switches, theirs.shed_by)
    assert ours.missed == theirs.missed


def test_going_over_to_another_policy_is_a_restart_under_it() -> None:
    streams = changing()
    choosing = operator_of(join_of(streams), streams)
    plain = operator_of(join_of(streams, policy="density"), streams)
    assert isinstance(choosing, AutoJoin)
    begin, rest = pieces(streams, [300])  # 900 arrivals: the first round is not over
    fed(choosing, begin)
    fed(plain, begin)
    oldest = next(policy for policy in choosing.trials.joins if policy.name == "oldest")
    choosing._switch(oldest)
    saved = plain.snapshot()
    other = join_of(streams, policy="oldest").estimate(rate=None)
    again = KeyedJoin.restore(operator_of(other, streams).plan, saved)
    choosing.trials.round = 1 << 40
    assert fed(choosing, rest) == fed(again, rest)
    assert choosing.ledger().streams == again.ledger().streams


@pytest.mark.usefixtures("short_rounds")
def test_the_same_seed_gives_the_same_run() -> None:
    streams = changing()
    first, second = (join_of(streams).count(streams) for _ in range(2))
    assert first == second


def test_a_budget_is_kept_through_every_switch(short_rounds: None) -> None:
    streams = changing()
    operator = operator_of(join_of(streams), streams)
    for piece in pieces(streams, range(40, 1500, 40)):
        fed(operator, piece)
        ledger = operator.ledger()
        assert ledger.balanced
        assert all(stream.stored <= 60 for stream in ledger.streams.values())
    assert operator.core.numbers[ARRIVALS] == sum(table.num_rows for table in streams.values())
