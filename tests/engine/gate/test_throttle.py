"""Throttled joins: the work that was allowed, nothing that the full join has not, no surprise."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.stats import norm

import streamshed as ss
from streamshed.engine.blocks import Block
from streamshed.engine.build import build_operator, restore_operator
from streamshed.engine.checkpoint import Snapshot
from streamshed.engine.gate.harvest_fractions import Directions, cost_and_output, ranked
from streamshed.engine.gate.throttle import Controller
from streamshed.engine.gate.throttle_state import NEXT_DUE, POPPED, PUSHED, SPENT, THROTTLE, TOLD
from streamshed.engine.ingest import merged
from streamshed.engine.match import condition_matcher
from streamshed.engine.operator import Operator
from streamshed.ledger import Ledger
from streamshed_lab.experiments.grubjoin.pacing import watched
from streamshed_lab.workloads import LaggingWorkload

NAMES = ["s1", "s2", "s3"]


def base(seconds: int = 20, names: list[str] = NAMES) -> ss.Join:
    join = ss.join(*names).on(ss.near("value", 1.0))
    return join.within(f"{seconds} seconds", time="time", clock="max")


def numbered(work: LaggingWorkload) -> dict[str, pa.Table]:
    tables = work.tables()
    return {n: t.append_column("row", pa.array(range(t.num_rows))) for n, t in tables.items()}


def made(table: pa.Table) -> Counter[tuple[int, ...]]:
    columns = [pc.struct_field(table[name], "row").to_pylist() for name in NAMES]
    return Counter(zip(*columns, strict=True))


@pytest.fixture(scope="module")
def busy() -> dict[str, pa.Table]:
    return numbered(LaggingWorkload(rate=60, seconds=40))


@pytest.fixture(scope="module")
def full(busy: dict[str, pa.Table]) -> ss.join:
    return base().replay(busy)


def test_with_time_enough_nothing_is_lost(busy: dict[str, pa.Table], full: object) -> None:
    done = base().throttle(comparisons_per_second=1e12).replay(busy)
    assert made(done.table) == made(full.table)  # type: ignore[attr-defined]
    assert done.ledger.throttle == done.ledger.harvest == 1


@pytest.mark.parametrize("said", [{}, {"conserve": True}, {"dropping": True}])
def test_what_is_made_is_in_the_full_join(
    busy: dict[str, pa.Table], full: object, said: dict[str, bool]
) -> None:
    allowed = 0.2 * full.ledger.comparisons / 40  # type: ignore[attr-defined]
    done = base().throttle(comparisons_per_second=allowed, part="2 seconds", **said).replay(busy)
    assert not made(done.table) - made(full.table)  # type: ignore[attr-defined]
    assert 0 < done.ledger.results < full.ledger.results  # type: ignore[attr-defined]
    assert done.ledger.comparisons <= 1.05 * allowed * 40
    assert done.ledger.balanced
    if "dropping" in said:  # rows are dropped, and the others go through all
        assert done.ledger.harvest == 1
    else:
        assert 0 < done.ledger.harvest < 0.8
        assert "% of the windows" in str(done.ledger)
    missed = full.ledger.results - done.ledger.results  # type: ignore[attr-defined]
    assert done.ledger.missed.low <= missed <= done.ledger.missed.high
    stored = sum(stream.stored for stream in done.ledger.streams.values())
    if said.get("conserve"):
        assert stored < 0.9 * sum(s.stored for s in full.ledger.streams.values())  # type: ignore[attr-defined]


def test_cuts_and_restarts_change_nothing(busy: dict[str, pa.Table]) -> None:
    join = base().throttle(comparisons_per_second=60_000, part="2 seconds", conserve=True).seed(5)
    expected = join.replay(busy)
    plan = join.plan({name: table.schema for name, table in busy.items()})
    for restore in (False, True):
        operator, tables = build_operator(plan), []
        for start in range(0, 40, 7):
            span = [start * 1_000_000, (start + 7) * 1_000_000]
            for found in operator.process(merged(_between(operator, busy, *span))):
                if isinstance(found, Block):
                    tables.append(operator.results(found))
            if restore:
                saved = Snapshot.from_bytes(operator.snapshot().to_bytes())
                operator = restore_operator(plan, saved)
        assert made(pa.Table.from_batches(tables)) == made(expected.table)
        assert operator.ledger().streams == expected.ledger.streams
        assert operator.ledger().comparisons == expected.ledger.comparisons
        assert operator.ledger().throttle == expected.ledger.throttle


def _between(operator: Operator, tables: dict[str, pa.Table], low: int, high: int) -> list[object]:
    parts = []
    for position, table in enumerate(tables.values()):
        time = table["time"].cast(pa.int64())
        rows = table.filter(pc.and_(pc.greater_equal(time, low), pc.less(time, high)))
        parts.append(operator.read(position, rows.combine_chunks().to_batches()[0]))
    return parts


def test_work_settles_at_the_throttle() -> None:
    work = LaggingWorkload(lags=(0, 0, 0), rate=150, seconds=120)
    join = base().select("time").throttle(
        comparisons_per_second=1_500_000, part="2 seconds", buffer=100
    )  # fmt: skip
    spans = watched(join, work.tables(), [60, 80, 100, 120])
    assert 0 < spans[-1].throttle < 0.5
    settled = sum(span.comparisons for span in spans) / 60 / 1_500_000
    assert settled == pytest.approx(1, abs=0.05)


def test_a_rise_of_rates_by_ten_is_met_within_one_interval() -> None:
    rates = ((0.0, 20.0), (40.0, 200.0))
    work = LaggingWorkload(lags=(0, 0, 0), rate=rates, seconds=70)
    join = base().select("time").throttle(
        comparisons_per_second=1_000_000, part="2 seconds", buffer=10
    )  # fmt: skip
    spans = watched(join, work.tables(), [40, 45, 50, 55, 60, 65, 70])
    assert all(span.comparisons <= 1.05 * 5_000_000 for span in spans)
    assert spans[-1].comparisons >= 0.9 * 5_000_000


def _fixed(join: ss.Join, tables: dict[str, pa.Table], z: float) -> Operator:
    """The join with a throttle that stays as it is."""
    plan = join.plan({name: table.schema for name, table in tables.items()})
    operator = build_operator(plan, whole=False)
    assert operator.throttle is not None
    state = operator.throttle.state
    state.pace[THROTTLE] = z
    state.steps[NEXT_DUE] = 2**60
    lanes = len(plan.streams)
    state.first[:] = operator.matcher.state.selectivity.orders.reshape(lanes, -1)[:, 0]
    return operator


def _run(operator: Operator, tables: dict[str, pa.Table]) -> None:
    parts = [
        operator.read(position, table.combine_chunks().to_batches()[0])
        for position, table in enumerate(tables.values())
    ]
    for _ in operator.process(merged(parts)):
        pass


def _before(table: pa.Table, seconds: int, before: bool = True) -> pa.Array:
    """Which rows came before a time, or from then on."""
    early = pc.less(table["time"].cast(pa.int64()), seconds * 1_000_000)
    return early if before else pc.invert(early)


def test_cost_and_output_are_those_of_a_simulation() -> None:
    """Streams without correlation: C and O of section IV-C against what is counted."""
    work = LaggingWorkload(deviations=(1e6, 1e6, 1e6), rate=120, seconds=60, span=60.0, period=1.0)
    tables = work.tables()
    join = base(10).throttle(comparisons_per_second=1e12, sample=0, part="1 seconds")
    operator = _fixed(join, tables, 0.999)
    chosen = operator.throttle.state.chosen.reshape(3, 3, 10)
    taken = np.array([[3, 10], [5, 2], [8, 6]])
    orders = operator.matcher.state.selectivity.orders.reshape(3, 2)
    random = np.random.default_rng(1)
    for i in range(3):
        for step in range(2):
            chosen[i, orders[i, step], random.permutation(10)[: taken[i, step]]] = True
    _run(operator, {name: table.filter(_before(table, 10)) for name, table in tables.items()})
    before = operator.matcher.comparisons, operator.ledger().results
    _run(
        operator, {name: table.filter(_before(table, 10, False)) for name, table in tables.items()}
    )
    # Values are uniform from 0 to 60: 2 of 60 are within 1 of a value, and 1.5 on average within 1
    # of two values that are themselves within 1 of each other.
    flat = ranked(np.ones(10)).yields
    known = Directions(
        np.full(3, 120.0), np.full((3, 2), 1200.0), np.array([[2 / 60, 1.5 / 60]] * 3),
        np.full((3, 2), 10), np.array([[flat] * 2] * 3),
    )  # fmt: skip
    cost, output = cost_and_output(known, taken)
    settled = 50  # seconds with full windows
    assert operator.matcher.comparisons - before[0] == pytest.approx(cost * settled, rel=0.05)
    assert operator.ledger().results - before[1] == pytest.approx(output * settled, rel=0.1)


def test_shredding_sees_differences_as_they_are() -> None:
    """Each result of two streams is seen with the chance z, together with those of the same lot.

    Newcomers whose arrival numbers agree but for the last 12 bits draw the same rows: so the
    results of such newcomers with a row are seen all, or none.
    """
    work = LaggingWorkload(lags=(0, 4), deviations=(2, 40), rate=200, seconds=60)
    tables = numbered(work)
    names = ["s1", "s2"]
    join = base(20, names).throttle(comparisons_per_second=1e12, sample=1, part="1 seconds")
    z = 0.3
    operator = _fixed(join.seed(3), tables, z)
    _run(operator, tables)
    histograms = operator.throttle.state.histograms
    seen = histograms.counts.reshape(2, -1)[1]
    assert seen.sum() == operator.ledger().results
    results = base(20, names).replay(tables).table
    one, two = (pc.struct_field(results[n], "time").cast(pa.int64()).to_numpy() for n in names)
    bucket = ((two - one - histograms.least) / histograms.width).astype(int)
    times = [tables[name]["time"].cast(pa.int64()).to_numpy() for name in names]
    arrivals = np.empty(sum(map(len, times)), np.int64)
    arrivals[np.argsort(np.concatenate(times), kind="stable")] = np.arange(len(arrivals))
    rows = [pc.struct_field(results[name], "row").to_numpy() for name in names]
    pairs = np.sort([arrivals[rows[0]], arrivals[len(times[0]) + rows[1]]], axis=0)
    together, lots = np.unique(
        np.array([pairs[0], pairs[1] >> 12, bucket]), axis=1, return_counts=True
    )
    expected = z * np.bincount(bucket, minlength=len(seen))
    variance = z * (1 - z) * np.bincount(together[2], lots.astype(float) ** 2, len(seen))
    enough = expected >= 5
    assert enough.sum() > 20
    off = (seen - expected)[enough] / np.sqrt(variance[enough])
    assert np.abs(off).max() < norm.isf(0.0005 / enough.sum())
    assert np.abs(off).max() > 0.5


def test_vectors_are_multiplied_only_where_they_are_gone_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is multiplied beforehand is no matter of meaning: all, nothing, or what is likely."""
    random = np.random.default_rng(2)
    tables = {}
    for lag, name in enumerate(NAMES):
        time = np.sort(random.integers(0, 40 * 1_000_000, 4800))
        scene = (time // 50_000 - 60 * lag) % 997
        vectors = np.random.default_rng(5).standard_normal((997, 16))[scene]
        vectors = (vectors + 0.1 * random.standard_normal(vectors.shape)).astype(np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 16)
        columns = {"time": time.astype("datetime64[us]"), "row": np.arange(4800), "v": column}
        tables[name] = pa.table(columns)
    join = ss.join(*NAMES).on(ss.cosine("v", at_least=0.9))
    join = join.within("20 seconds", time="time", clock="max").seed(3)
    full = _vectors_joined(join, tables)
    allowed = 0.05 * full[1].comparisons / 40
    slow = join.throttle(comparisons_per_second=allowed, part="1 second")
    results, ledger, multiplied = _vectors_joined(slow, tables)
    assert not results - full[0]
    assert len(results) > 0.1 * len(full[0])
    assert multiplied < 0.25 * full[2]
    for likely in (np.ones, np.zeros):
        monkeypatch.setattr(
            Controller,
            "wants",
            lambda _, modes, *rest, likely=likely: likely((rest[-1][0].size, modes.size), np.bool_),
        )
        monkeypatch.setattr(Controller, "draws", lambda _, modes, *__: np.zeros(modes.size, bool))
        again = _vectors_joined(slow, tables)
        assert again[0] == results
        assert again[1].streams == ledger.streams
        assert again[1].comparisons == ledger.comparisons


@pytest.mark.slow
def test_a_function_is_asked_of_the_rows_of_chosen_parts(busy: dict[str, pa.Table]) -> None:
    """A condition that is said as a function goes through the same parts as the index of it."""
    said = {"comparisons_per_second": 60_000, "part": "2 seconds", "sample": 0}
    function = ss.where(lambda one, other: abs(one.value - other.value) <= 1.0, "value")
    join = ss.join(*NAMES).on(function).within("20 seconds", time="time", clock="max")
    ours, expected = (j.throttle(**said).seed(5).replay(busy) for j in (join, base()))
    assert 0 < expected.ledger.throttle < 0.5
    assert made(ours.table) == made(expected.table)
    assert ours.ledger.comparisons == expected.ledger.comparisons
    assert ours.ledger.throttle == expected.ledger.throttle


def _vectors_joined(
    join: ss.Join, tables: dict[str, pa.Table]
) -> tuple[Counter[tuple[int, ...]], Ledger, int]:
    """The results, the ledger, and how many pairs of vectors were multiplied."""
    plan = join.plan({name: table.schema for name, table in tables.items()})
    operator = build_operator(plan)
    found, multiplied = [], 0
    note_likely = condition_matcher.note_likely

    def counted(index: object, products: npt.NDArray[np.float32], *rest: object) -> None:
        nonlocal multiplied
        multiplied += products.size
        note_likely(index, products, *rest)

    with mock.patch.object(condition_matcher, "note_likely", counted):
        for start in range(0, 40, 10):
            span = [start * 1_000_000, (start + 10) * 1_000_000]
            for block in operator.process(merged(_between(operator, tables, *span))):
                if isinstance(block, Block):
                    found.append(operator.results(block))
    return made(pa.Table.from_batches(found)), operator.ledger(), multiplied


@pytest.mark.parametrize(("begun", "factor"), [(4, 0.4), (10, 1.2), (11, 1.2)])
def test_by_the_papers_rule_the_throttle_goes_by_rows_alone(begun: int, factor: float) -> None:
    """z is β z if β < 1, and γ z if not, whatever work was done (section III-A)."""
    schema = pa.schema([("value", pa.float64()), ("time", pa.timestamp("us"))])
    join = base().throttle(comparisons_per_second=5.0, rule="paper")
    controller = build_operator(join.plan(dict.fromkeys(NAMES, schema)), whole=False).throttle
    told = np.zeros((len(NAMES), TOLD), np.int64)
    told[0, PUSHED], told[1, POPPED] = 10, begun
    controller.state.pace[THROTTLE], controller.state.pace[SPENT] = 0.5, 1e9
    controller._set_throttle(told, 1)
    assert controller.fraction == pytest.approx(0.5 * factor)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            {"comparisons_per_second": 0},
            "`comparisons_per_second` is 0; give a finite number above 0",
        ),
        ({"part": "30 seconds"}, "cut into parts that are no longer than itself"),
        ({"part": "100 ms"}, "a window has 200 parts, more than 64; give a longer one"),
        ({"boost": 1}, "`boost` is 1; give a finite number above 1"),
        ({"sample": 2}, "`sample` is 2; give a number from 0 to 1"),
        ({"buffer": 0}, "`buffer` is 0; give a whole number, 1 or more"),
        ({"every": "0 seconds"}, "`every` is 0; it must be greater than 0"),
        ({"rule": "x"}, "`rule` is 'x'; give 'work' to go by the work that was done"),
    ],
)
def test_throttles_that_cannot_be(said: dict[str, object], message: str) -> None:
    schema = pa.schema([("value", pa.float64()), ("time", pa.timestamp("us"))])
    with pytest.raises(ss.SpecError, match=message):
        base().throttle(**({"comparisons_per_second": 5.0} | said)).plan(
            dict.fromkeys(NAMES, schema)
        )
