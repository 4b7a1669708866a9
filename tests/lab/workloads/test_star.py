"""Streams and a relation, with importance."""

from itertools import pairwise

import numpy as np
import pyarrow.compute as pc
import pytest
from scipy import stats

from streamshed import StreamshedError
from streamshed_lab.workloads import StarExample, StarWorkload


def test_the_example_is_the_papers():
    tables = StarExample().tables()
    rows = [tuple(row.values()) for row in tables["r"].to_pylist()]
    assert rows == [(0, 1, 5), (1, 0, 1), (2, 1, 4), (3, 0, 8), (4, 2, 3), (5, 5, 2)]
    rows = [tuple(row.values()) for row in tables["s"].to_pylist()]
    assert rows == [(0, 1, 1), (1, 3, 5), (2, 3, 2), (3, 8, 6), (4, 3, 4), (5, 5, 3)]
    facts = [tuple(row.values()) for row in StarExample().relation().to_pylist()]
    assert (1, 3, -1, 5) in facts
    assert (5, 8, 3, None) in facts
    assert len(facts) == 6


def test_values_follow_their_distributions():
    work = StarWorkload(tuples=20_000, seed=3)
    r, s = work.tables().values()
    counts = np.sort(np.bincount(r["a"].to_numpy(), minlength=work.keys))[::-1]
    expected = stats.zipfian(1.0, work.keys).pmf(np.arange(work.keys) + 1) * 20_000
    # Sorted by what came, rare values trade places: they are compared in parts.
    parts = [0, 1, 2, 3, 5, 10, 20, 50]
    observed = np.add.reduceat(counts, parts)
    assert np.abs(observed / np.add.reduceat(expected, parts) - 1).max() < 0.1
    uniform = np.bincount(s["b"].to_numpy(), minlength=work.keys)
    assert stats.chisquare(uniform).pvalue > 1e-4


def test_what_comes_often_is_less_important():
    work = StarWorkload(levels=7, seed=2)
    for table, column in zip(work.tables().values(), ("a", "b"), strict=True):
        values, importance = table[column].to_numpy(), table["importance"].to_numpy()
        levels = {int(value): set(importance[values == value]) for value in np.unique(values)}
        assert all(len(of_value) == 1 for of_value in levels.values())
        counts = np.bincount(values)
        by_level = [
            [counts[value] for value, of_value in levels.items() if of_value == {level}]
            for level in range(1, 8)
        ]
        assert all(min(low) >= max(high) for low, high in pairwise(by_level))


def test_the_relation_keeps_its_size_while_it_changes():
    work = StarWorkload(facts=250, churn=0.4, seed=4)
    relation = work.relation()
    assert relation.num_rows == 350
    begin = relation["begin"].to_numpy()
    end = pc.fill_null(relation["end"], work.tuples).to_numpy()
    for time in (0, 10, 2_500, work.tuples - 1):
        assert np.sum((begin <= time) & (time < end)) == 250
    pairs = relation["a"].to_numpy() * work.keys + relation["b"].to_numpy()
    assert np.unique(pairs).size == 350
    assert StarWorkload(seed=4).relation()["end"].null_count == 250


def test_a_seed_gives_the_same_and_another_seed_others():
    one, again, other = (StarWorkload(seed=seed, churn=0.1) for seed in (1, 1, 2))
    assert one.tables() == again.tables()
    assert one.relation() == again.relation()
    assert one.tables() != other.tables()
    assert one.relation() != other.relation()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tuples": 0}, "tuples must be 1 or more, got 0"),
        ({"keys": 0}, "keys must be 1 or more, got 0"),
        ({"skews": (1.0, -1.0)}, "skews must be two, 0 or more, got (1.0, -1.0)"),
        ({"levels": 0}, "levels must be 1 or more, got 0"),
        ({"churn": 1.5}, "churn must be from 0 to 1, got 1.5"),
        (
            {"keys": 10, "facts": 90, "churn": 0.5},
            "facts must be from 0 to 55, as no pair is twice",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(change, says):
    with pytest.raises(StreamshedError) as error:
        StarWorkload(**change)
    assert says in str(error.value)
