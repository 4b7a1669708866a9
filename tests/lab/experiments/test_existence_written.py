"""The policies step by step, with results counted: they decide as the engine does."""

import numpy as np
import pyarrow as pa
import pytest

from streamshed_lab.experiments.existence.measuring import count_results
from streamshed_lab.experiments.existence.tables import KINDS, decide, new_tables
from streamshed_lab.experiments.existence.written import RULES, count_without_making
from streamshed_lab.workloads import ExistenceWorkload, NormalWorkload

WINDOW = 10.0
DECIDED = ("existence", "existence, completed first", "oldest")
"""Rules by which no lot decides."""


def counted(tables, rows, rule, seed=1):
    return count_without_making(tables, round(WINDOW * 1_000_000), rows, rule, seed)


@pytest.mark.parametrize("rule", DECIDED)
@pytest.mark.parametrize("rows", [7, 20, None])
def test_it_counts_what_the_engine_makes(rule, rows):
    for work in (
        NormalWorkload(streams=3, tuples=400, variance=4.0, seed=2),
        ExistenceWorkload(streams=4, tuples=300, spread=5.0, seed=3),
    ):
        tables = work.tables()
        assert counted(tables, rows, rule) == count_results(tables, WINDOW, rows, rule, 1)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in DECIDED])
def test_where_a_lot_decides_it_makes_about_as_many(rule):
    made = []
    for seed in range(4):
        tables = NormalWorkload(streams=3, tuples=600, variance=16.0, seed=seed).tables()
        made.append(
            (counted(tables, 20, rule, seed), count_results(tables, WINDOW, 20, rule, seed))
        )
    ours, engine = np.array(made).sum(axis=0)
    assert ours == pytest.approx(engine, rel=0.15)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_of_section_4_drop_about_what_the_policy_drops(kind):
    """Without expiry as many keys are completed, but for ties, which the queue breaks by place."""
    streams, rows = 3, 12
    tables = ExistenceWorkload(streams=streams, tuples=200, spread=3.0, seed=5).tables()
    merged = pa.concat_tables(
        table.append_column("stream", pa.array([number] * table.num_rows))
        for number, table in enumerate(tables.values())
    ).sort_by([("time", "ascending"), ("stream", "ascending")])
    stream, key = (merged[name].to_numpy() for name in ("stream", "key"))
    state = new_tables(KINDS[kind], streams, int(key.max()) + 1, rows)
    found = decide(state, KINDS[kind], streams, rows, stream, key)
    rule = {"existence": "existence", "frequency": "frequency, own window"}.get(kind, kind)
    expected = count_without_making(tables, 10**12, rows, rule, 1)
    assert found == pytest.approx(expected, rel=0.5)
    assert (state.held == rows).all()
