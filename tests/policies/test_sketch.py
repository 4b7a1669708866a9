"""Sketches: signs that are independent for any four values, and sizes of joins without bias."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import streamshed as ss
from streamshed.engine.build import build_operator
from streamshed.engine.ingest import merged
from streamshed.engine.operator import Operator
from streamshed.kernels.compiling import driver
from streamshed.kernels.sketch import PRIME, polynomial
from streamshed.policies import Sketch
from streamshed_lab.workloads.regions import CONDITIONS, NAMES, RegionWorkload

FIELD = int(PRIME)
words = st.integers(0, 2**64 - 1)


@driver
def at(coefficients, value):
    return polynomial(coefficients, 0, value)


def plain(coefficients: list[int], value: int) -> int:
    result = 0
    for coefficient in coefficients:
        result = (result * value + coefficient) % FIELD
    return result


elements = st.one_of(st.integers(0, FIELD - 1), st.sampled_from([0, 1, FIELD - 1, 2**60]))


@settings(max_examples=300)
@given(st.lists(elements, min_size=4, max_size=4), words)
def test_polynomials_are_those_of_the_field(coefficients: list[int], value: int) -> None:
    found = at(np.array(coefficients, np.uint64), np.uint64(value))
    assert int(found) == plain(coefficients, value)


@settings(max_examples=60)
@given(
    st.lists(elements, min_size=4, max_size=4, unique=True),
    st.lists(elements, min_size=4, max_size=4),
)
def test_any_four_values_can_have_any_four_images(points: list[int], images: list[int]) -> None:
    """Exactly one polynomial does it: so images of four values are independent and uniform."""
    coefficients = interpolated(points, images)
    for point, image in zip(points, images, strict=True):
        assert int(at(np.array(coefficients, np.uint64), np.uint64(point))) == image


def interpolated(points: list[int], images: list[int]) -> list[int]:
    """The coefficients, highest first, of the polynomial through four points (Lagrange)."""
    total = [0] * 4
    for i, image in enumerate(images):
        basis, scale = [1], 1
        for j, point in enumerate(points):
            if j != i:
                basis = [
                    ((basis[k] if k < len(basis) else 0) - point * (basis[k - 1] if k else 0))
                    % FIELD
                    for k in range(len(basis) + 1)
                ]
                scale = scale * (points[i] - point) % FIELD
        factor = image * pow(scale, -1, FIELD)
        total = [(t + factor * b) % FIELD for t, b in zip(total, basis, strict=True)]
    return total


EXACT = ss.join("a", "b", "c").on("a.x = b.x", "b.y = c.z").within(10**6, time="ts")
CHAIN = EXACT.keep(rows=1)


def chain(seed: int, rows: int = 60, values: int = 8) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)

    def column() -> np.ndarray:
        return random.zipf(1.6, rows) % values

    ts = np.arange(rows)
    return {
        "a": pa.table({"ts": ts, "x": column()}),
        "b": pa.table({"ts": ts, "x": column(), "y": column()}),
        "c": pa.table({"ts": ts, "z": column()}),
    }


def processed(data: dict[str, pa.Table], policy: Sketch, seed: int) -> Operator:
    join = CHAIN.shed(policy).seed(seed)
    operator = build_operator(join.plan({name: table.schema for name, table in data.items()}))
    parts = [operator.read(p, table.to_batches()[0]) for p, table in enumerate(data.values())]
    list(operator.process(merged(parts)))
    return operator


def sketches(data: dict[str, pa.Table], copies: int, seed: int) -> np.ndarray:
    """The atomic sketches of each stream, after all rows have come."""
    operator = processed(data, Sketch(copies=copies), seed)
    found: np.ndarray = operator.state.current.reshape(3, copies)
    return found


def size(data: dict[str, pa.Table]) -> int:
    return EXACT.count(data).results


def test_signs_of_four_values_and_of_two_copies_are_independent() -> None:
    """Every pattern of signs is as likely as any other, within a copy and across copies."""
    other = chain(0, rows=1)
    signs = np.array(
        [
            sketches(other | {"a": pa.table({"ts": [0], "x": [value]})}, 6000, seed=5)[0] > 0
            for value in (1, 2, 3, 2**40)
        ]
    )
    shifted = [signs[0], signs[1], np.roll(signs[2], 1), np.roll(signs[3], 1)]
    for four in (signs, np.array(shifted)):
        patterns = np.array([8, 4, 2, 1]) @ four
        assert stats.chisquare(np.bincount(patterns, minlength=16)).pvalue > 1e-4


@pytest.mark.parametrize("data_seed", range(3))
def test_the_size_of_a_join_is_estimated_without_bias(data_seed: int) -> None:
    data = chain(data_seed)
    truth = size(data)
    estimates = [sketches(data, 240, seed).prod(axis=0).mean() for seed in range(60)]
    assert stats.ttest_1samp(estimates, truth).pvalue > 1e-4
    assert abs(np.mean(estimates) - truth) < 4 * stats.sem(estimates)


def test_the_error_falls_with_the_root_of_the_copies() -> None:
    data = chain(7)
    truth = size(data)
    numbers = [30, 120, 480, 1920]
    errors = [
        np.std([sketches(data, n, seed).prod(axis=0).mean() - truth for seed in range(60)])
        for n in numbers
    ]
    slope = np.polyfit(np.log(numbers), np.log(errors), 1)[0]
    assert -0.65 < slope < -0.35


def test_groups_take_the_median_of_means() -> None:
    """The estimate for the last newcomer, of stream c, from the first two streams' sketches."""
    for groups in (3, 4):
        state = processed(chain(1), Sketch(copies=70, groups=groups), seed=2).state
        bits = state.word[:, None] >> np.arange(60, dtype=np.uint64)
        signs = 1 - 2 * (bits & np.uint64(1)).astype(int)
        signs = signs.reshape(groups, 120)[:, :70]
        others = state.current.reshape(3, groups, 70)[:2].prod(axis=0)
        assert state.newcomer[0] == np.median((signs * others).mean(axis=1))


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda: Sketch(objective="some"), ["'some'", "'subset'", "'sample'"]),
        (lambda: Sketch(objective="sample", aging=True), ["`aging`", "'sample'"]),
        (lambda: Sketch(copies=0), ["`copies`", "0"]),
        (lambda: Sketch(groups=0), ["`groups`", "0"]),
    ],
)
def test_what_cannot_be_is_refused(say, words: list[str]) -> None:
    with pytest.raises(ss.SpecError) as error:
        say()
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("policy", [Sketch(aging=True), ss.policies.Pairwise(life=True)])
def test_lifetimes_need_times(policy: ss.policies.Policy) -> None:
    join = ss.join("a", "b").on("k").last(5).keep(rows=2).shed(policy)
    schema = pa.schema({"k": pa.int64()})
    with pytest.raises(ss.SpecError, match=r"give all streams windows by \.within"):
        join.plan({"a": schema, "b": schema})


@pytest.mark.parametrize("policy", ["sketch", "pairwise"])
def test_streams_need_names(policy: str) -> None:
    join = ss.join(by="s").on("k").last(5).keep(total=2).shed(policy)
    with pytest.raises(
        ss.SpecError, match="streams that a column names are known only as they appear"
    ):
        join.plan({"in": pa.schema({"k": pa.int64(), "s": pa.int64()})})


def test_samples_are_as_uniform_as_random_ones_and_more_than_others() -> None:
    """Kolmogorov and Smirnov's distance from the exact results, by Wilcoxon's test over seeds."""
    policies = {"sample": Sketch(objective="sample"), "random": "random", "pairwise": "pairwise"}
    apart: dict[str, list[float]] = {name: [] for name in policies}
    for seed in range(10):
        tables = RegionWorkload(tuples=400, regions=1, intra=(0.6, 1.0), seed=seed).tables()
        join = ss.join(*NAMES).on(*CONDITIONS).within(300, time="time", clock="max").seed(seed)
        exact = values(join, tables)
        for name, policy in policies.items():
            found = values(join.keep(rows=15).shed(policy), tables)
            apart[name].append(stats.ks_2samp(exact, found).statistic)
    assert stats.wilcoxon(apart["sample"], apart["pairwise"], alternative="less").pvalue < 0.02
    assert stats.wilcoxon(apart["sample"], apart["random"], alternative="greater").pvalue > 0.02


def values(join: ss.Join, tables: dict[str, pa.Table]) -> np.ndarray:
    results = join.select("r1.a2").replay(tables).table
    found: np.ndarray = results["r1"].combine_chunks().field("a2").to_numpy()
    return found


@pytest.mark.parametrize("policy", ["sketch", "pairwise"])
def test_tumbling_windows_begin_with_the_streams(policy: str) -> None:
    """Where a multiple of the window lies in time changes nothing."""
    tables = RegionWorkload(tuples=400, regions=3, intra=(0.6, 1.0), seed=3).tables()
    join = ss.join(*NAMES).on(*CONDITIONS).within(100, time="time", clock="max").seed(3)
    kept = set()
    for later in (0, 37, 50, 1_000_063):
        moved = {
            name: table.set_column(
                table.column_names.index("time"), "time", pc.add(table["time"], later)
            )
            for name, table in tables.items()
        }
        kept.add(join.keep(rows=12).shed(policy).count(moved).results)
    assert len(kept) == 1
    assert kept != {join.keep(rows=12).shed("oldest").count(tables).results}
