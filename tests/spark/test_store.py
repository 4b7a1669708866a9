"""What is written for a batch is in proportion to what it changed; restarts change nothing."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest

import streamshed as ss
from cells import BASES, NAMED, asking, data, pieces
from state_handle import Handle
from streamshed.engine import operator
from streamshed.engine.blocks import Block
from streamshed.engine.checkpoint import BLOCK, ArrayLog
from streamshed.engine.ingest import merged
from streamshed.engine.match.running_relation import RelationIndex, RunningRelation
from streamshed.engine.saving import head_of
from streamshed.plan.capabilities import FEATURES, KINDS, POLICIES, Kind
from streamshed.plan.plan import Plan
from streamshed.spark import shared_memory, store
from streamshed.spark.sharding import Sharding

ONE = Sharding(partitions=1)


@pytest.fixture(autouse=True)
def base(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_memory, "_base", lambda: tmp_path / "cache")
    monkeypatch.setattr(store, "_live", {})


# -- the log --------------------------------------------------------------------------------------


def changing(rounds: int) -> Iterator[dict[str, np.ndarray]]:
    """Arrays of which a little changes, that grow and shrink, and fall back to zero."""
    random = np.random.default_rng(5)
    record = np.dtype([("a", np.int64), ("b", np.float32)], align=True)
    arrays = {
        "numbers": np.zeros(700, np.int64),
        "records": np.zeros(50, record),
        "bytes": np.zeros(33, np.uint8),
        "none": np.empty(0, np.float64),
    }
    for number in range(rounds):
        arrays["numbers"][random.integers(0, 700, 5)] = random.integers(0, 3, 5)
        arrays["records"]["a"][random.integers(0, len(arrays["records"]))] = number
        if number % 7 == 3:
            size = int(random.integers(1, 200))
            arrays["records"] = np.resize(arrays["records"], size)
            arrays["records"][size // 2 :] = 0
        arrays["bytes"][number % 33] ^= 1
        yield {name: array.copy() for name, array in arrays.items()}


def test_a_log_holds_the_arrays_and_does_not_grow() -> None:
    log, entries, most = ArrayLog(), {}, 0
    for number, arrays in enumerate(changing(300)):
        new, removed = log.add(arrays)
        entries |= {name[1]: rows for name, rows in new.items()}
        for _, old in removed:
            del entries[old]
        assert entries.keys() == log.entries.keys()
        found = ArrayLog.read(log.saved(), entries)
        assert {name: array.tolist() for name, array in found.items()} == {
            name: array.tolist() for name, array in arrays.items()
        }
        most = max(most, sum(rows.num_rows for rows in entries.values()))
        if number % 10 == 0:  # somebody else goes on
            log = ArrayLog.from_saved(log.saved(), found)
    whole = sum(-(-array.nbytes // BLOCK) for array in arrays.values())
    assert most < 4 * whole


def test_arrays_of_another_join_begin_anew() -> None:
    log = ArrayLog()
    (first,), none = log.add({"a": np.arange(100), "b": np.arange(9)})
    assert none == []
    (second,), removed = log.add({"a": np.arange(100.0)})
    assert removed == [first] != [second]


def test_nothing_is_written_if_nothing_has_changed() -> None:
    log = ArrayLog()
    log.add({"a": np.arange(100)})
    assert log.add({"a": np.arange(100)}) == ({}, [])


# -- bytes ----------------------------------------------------------------------------------------

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("v", pa.float64()), ("ts", pa.int64())])
PER_ROW, AT_MOST = 1_500, 60_000
"""Bytes for each row that came, and for each batch."""


def rows(random: np.random.Generator, size: int, held: int, start: int) -> pa.RecordBatch:
    keys = (random.integers(0, held, size) for _ in "kx")
    times = np.arange(start, start + size)
    return pa.record_batch([*keys, random.random(size) * 1e9, times], schema=SCHEMA)


def written(join: ss.Join, held: int, size: int, batches: int) -> list[int]:
    """The bytes of small batches, after so many rows are held."""
    names = ("a", "b", "c")
    plan, handle, random = (
        join.plan(dict.fromkeys(names, SCHEMA)),
        Handle(),
        np.random.default_rng(1),
    )
    found, now = [], 0
    for part in [held, *[size // len(names)] * batches]:
        state = store.Store(handle, ONE).open(plan)
        read = [state.join.read(i, rows(random, part, held, now)) for i in range(len(names))]
        for _ in state.join.process(merged(read)):
            pass
        assert state.join.core.pools["held"].sum() >= held
        found.append(store.Store(handle, ONE).save(state))
        now += part
        if len(found) % 4 == 0:
            store._live.clear()
    return found[1:]


SHARED = ss.join("a", "b", "c").on("k").within(10**9, time="ts")
BOUNDED: dict[str, Callable[[int], ss.Join]] = {
    policy: lambda held, policy=policy: shed(SHARED.keep(total=held), policy)
    for policy, no in POLICIES.items()
    if "shared key" not in no
}
"""Joins that hold so many rows of each of three streams, or in all."""
OTHERS: dict[str, Callable[[int], ss.Join]] = {
    "exact": lambda held: SHARED.within(held, time="ts"),
    "equalities": lambda held: (
        ss.join("a", "b", "c").on("a.k = b.k", "b.x = c.x").within(10**9, time="ts")
    ).keep(total=held),
    "condition": lambda held: (
        ss.join("a", "b", "c").on(ss.near("v", 1.0)).within(10**9, time="ts")
    ).keep(total=held),
    "relation": lambda held: (
        ss.join("a", "b", "c").on(a="k", b="k", c="x").within(held, time="ts")
    ).through(pa.table({c: np.arange(held) for c in "pqr"}), a="p", b="q", c="r"),
}


def shed(join: ss.Join, policy: str) -> ss.Join:
    """The join under a policy."""
    if policy == "column":
        return join.shed(column="v")
    return (join.weigh(column="v") if policy == "importance" else join).shed(policy)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "exact" else pytest.mark.slow)
        for name in OTHERS | BOUNDED
    ],
)
def test_a_batch_writes_what_it_changed(name: str) -> None:
    medians = []
    for held in (3_000, 24_000):
        found = written((OTHERS | BOUNDED)[name](held), held, size=300, batches=9)
        medians.append(float(np.median(found)))
        assert np.mean(found) < PER_ROW * 300 + AT_MOST
    assert medians[1] < 1.5 * medians[0] + AT_MOST


def test_names_of_streams_are_written_once() -> None:
    """What a batch writes does not depend on how many streams there are."""
    schema = pa.schema([("s", pa.string()), ("k", pa.int64()), ("ts", pa.int64())])
    plan = ss.join(by="s").on("k").within(10**9, time="ts").plan({"input": schema})
    medians = []
    for streams in (1_000, 20_000):
        handle, found, now = Handle(), [], 0
        for size in (streams, *[50] * 5):
            state = store.Store(handle, ONE).open(plan)
            names = [f"sensor number {now + row}" for row in range(size)]
            numbers = np.arange(now, now + size)
            batch = pa.record_batch([names, numbers, numbers], schema=schema)
            for _ in state.join.process(merged([state.join.read(0, batch)])):
                pass
            found.append(store.Store(handle, ONE).save(state))
            now += size
        medians.append(float(np.median(found[1:])))
    assert medians[1] < 1.5 * medians[0] + 10_000


class CountingHandle(Handle):
    """The state of a shard that counts the messages to it."""

    messages = 0

    def getValue(self, key):  # noqa: N802 - Spark's name
        self.messages += 1
        return super().getValue(key)

    def updateValue(self, key, value):  # noqa: N802 - Spark's name
        self.messages += 1
        super().updateValue(key, value)

    def removeKey(self, key):  # noqa: N802 - Spark's name
        self.messages += 1
        super().removeKey(key)


@pytest.mark.parametrize("carried", [store.CARRIED, 10_000])  # all that is held, or a part
def test_batches_of_few_rows_take_few_messages(carried: int, monkeypatch) -> None:
    """What is carried and bundled is read again whole, and what nobody needs is removed."""
    monkeypatch.setattr(store, "CARRIED", carried)
    plan = SHARED.within(300, time="ts").plan(dict.fromkeys("abc", SCHEMA))
    handle, random, bundles = CountingHandle(), np.random.default_rng(1), set()
    for batch in range(40):
        state = store.Store(handle, ONE).open(plan)
        parts = [rows(random, 30, 50, 30 * batch) for _ in "abc"]
        read = [state.join.read(i, some) for i, some in enumerate(parts)]
        for _ in state.join.process(merged(read)):
            pass
        store.Store(handle, ONE).save(state)
        placed = state.placed
        assert {key[:2] for key in handle.values} == placed.parts.keys()
        assert placed.bundles.keys() <= placed.parts.keys()
        bundles |= placed.bundles.keys()
        found = store.stored(handle.iterator()).snapshot
        head = head_of(state.join)
        assert found.head.arrays.keys() == head.arrays.keys()
        assert all((found.head.arrays[name] == head.arrays[name]).all() for name in head.arrays)
        assert found.segments.keys() == {
            (position, number)
            for position, payload in enumerate(state.join.payload)
            for number in payload.sealed
        }
        if batch % 7 == 6:
            store._live.clear()
    if carried > 10_000:
        assert handle.messages == 2 * 40
    else:
        assert 0 < len(placed.bundles) < len(bundles)


# -- from worker to worker ------------------------------------------------------------------------

ESTIMATES = ("results", "missed", "missed_lately", "keys", "sample_rate")
APART = {"`spill`", "selection", "aggregates"}
"""Features that have files of their own, or are not of the operator."""
CELLS = [
    (kind, feature.name)
    for feature in FEATURES
    for kind in KINDS
    if kind not in feature.no and feature.name not in APART
]

GROWING = 0, 6, 30, 500, 900
"""When batches begin: those with more rows than all before come to arrays that others have made."""

CONDITIONS: dict[str, Callable[[], ss.Join]] = {
    "vectors": lambda: ss.join("a", "b", "c").on(ss.cosine("e", at_least=0.6)),
    "vectors of a key": lambda: ss.join("a", "b", "c").on("k", ss.inner_product("e", at_least=0)),
    "numbers of a key": lambda: ss.join("a", "b", "c").on("k", ss.near("v", 15)),
    "a function": lambda: ss.join("a", "b", "c").on(ss.where(lambda p, q: p.v < q.v / 8, "v")),
}
"""Conditions whose indexes are others than that of `BASES`."""
OF_CONDITIONS = [
    (name, feature)
    for name in CONDITIONS
    for kind, feature in CELLS
    if kind == "condition" and feature not in ("time and row windows of one stream", "selection")
]
FAST = [
    ("shared key", "row windows"),
    ("condition", "time windows"),
    ("vectors", "`keep(total=…)`"),
]
TOGETHER = [(kind, seed) for kind in KINDS for seed in range(6)]
"""Kinds, and seeds by which features are drawn that a join has together."""


@dataclass(frozen=True)
class SharedIndex:
    """The index of a relation, as all workers of an executor have it."""

    plan: Plan = field(repr=False)

    def __call__(self) -> RelationIndex:
        relation = RunningRelation(self.plan)
        return RelationIndex(relation.facts, relation.used)


def inputs_of(name: str) -> dict[str, pa.Table]:
    """The inputs of a join, with vectors if it is one of `CONDITIONS`."""
    if name not in CONDITIONS:
        return data(name)
    random = np.random.default_rng(4)
    vectors = [pa.array(random.normal(size=(len(rows), 4)).tolist()) for rows in NAMED.values()]
    return {
        name: rows.append_column("e", column)
        for (name, rows), column in zip(NAMED.items(), vectors, strict=True)
    }


def planned(name: str, *features: str) -> Plan:
    join = asking((BASES | CONDITIONS)[name](), *features)
    plan = join.plan({stream: rows.schema for stream, rows in inputs_of(name).items()})
    if plan.through is None:
        return plan
    return replace(plan, through=replace(plan.through, index=SharedIndex(plan)))


def drawn(kind: Kind, seed: int) -> tuple[Plan, list[int]]:
    """A join with three features that go together, and when its batches begin."""
    random = np.random.default_rng(seed)
    features = [feature for one, feature in CELLS if one == kind]
    starts = [0, *np.sort(random.choice(np.arange(1, 900), 5, replace=False)).tolist()]
    while True:
        with contextlib.suppress(ss.SpecError):
            return planned(kind, *random.choice(features, 3, replace=False).tolist()), starts


def batch_by_batch(
    plan: Plan, inputs: dict[str, pa.Table], forget: bool, starts: Sequence[int] = GROWING
) -> tuple[Counter, list[object]]:
    """The results of batches that different workers process, if they forget; and the accounts."""
    handle, made = Handle(), Counter()
    for parts in pieces(inputs, starts):
        state = store.Store(handle, ONE).open(plan)
        for found in state.join.process(merged([state.join.read(i, rows) for i, rows in parts])):
            if isinstance(found, Block):
                made.update(map(str, state.join.results(found).to_pylist()))
        store.Store(handle, ONE).save(state)
        if forget:
            check_shared(state)
            store._live.clear()
    ledger = state.join.ledger()
    return made, [ledger.streams, *(getattr(ledger, name) for name in ESTIMATES)]


def check_shared(state: store.Live) -> None:
    """All arrays are where the next worker looks for them, also those that have grown."""
    memory, join = state.folder.memory, state.join
    of_components = [(part.prefix, part.arrays()) for part in join.components]
    states = [(prefix, arrays) for prefix, arrays, _ in join.own_states()]
    for prefix, arrays in [*states, *of_components] if memory.shareable else []:
        for name, array in arrays.items():
            assert memory.open(prefix + name, array.dtype).tobytes() == array.tobytes()


def check_goes_on_elsewhere(
    plan: Plan, inputs: dict[str, pa.Table], starts: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same comes of it if each batch has a worker of its own, with shared memory or without."""
    restored = []
    restore = store.restore_operator
    monkeypatch.setattr(store, "restore_operator", lambda *a: restored.append(1) or restore(*a))
    expected = batch_by_batch(plan, inputs, False, starts)
    assert batch_by_batch(plan, inputs, True, starts) == expected
    assert not restored
    monkeypatch.setenv(shared_memory.SWITCH, "off")
    assert batch_by_batch(plan, inputs, True, starts) == expected
    assert restored


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        pytest.param(*cell, marks=[] if cell in FAST else pytest.mark.slow)
        for cell in [*CELLS, *OF_CONDITIONS]
    ],
)
def test_every_kind_of_join_goes_on_elsewhere(name: str, feature: str, monkeypatch) -> None:
    plan, inputs = planned(name, feature), inputs_of(name)
    check_goes_on_elsewhere(plan, inputs, GROWING, monkeypatch)
    assert batch_by_batch(plan, inputs, False)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), TOGETHER)
def test_joins_with_several_features_go_on_elsewhere(kind: Kind, seed: int, monkeypatch) -> None:
    plan, starts = drawn(kind, seed)
    check_goes_on_elsewhere(plan, data(kind), starts, monkeypatch)


def test_a_result_of_many_streams_goes_on_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has more members than the buffer of results has room for at first."""
    monkeypatch.setattr(operator, "OUTPUT", 8)
    streams = 50
    times = np.repeat([0, 1], [streams - 1, 1])
    table = pa.table({"s": np.arange(streams), "k": np.zeros(streams, np.int64), "ts": times})
    join = ss.join(by="s").on("k").partial(at_least=streams).within(10, time="ts")
    plan = join.plan({"input": table.schema})
    made, _ = batch_by_batch(plan, {"input": table}, True, starts=(0, 1))
    assert sum(made.values()) == 1
