"""The policies step by step, with results counted: they decide as the engine does."""

from collections import Counter

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


FULL = 7
"""The pattern of a value that is in all of three windows."""


class PlainTables:
    """The tables of section 4 for three streams, as lists: who may leave, and what is counted."""

    def __init__(self, kind):
        self.kind, self.rows = kind, [[], [], []]  # (value, group), the oldest first
        self.made, self.stored = Counter(), Counter()  # by (stream, group)

    def may_leave(self, own):
        """The values of which one leaves a full window: ties may be broken in any way."""
        held = self.rows[own]
        groups = {group for _, group in held}
        if self.kind == "existence" and FULL in groups:
            lowest = {FULL}
        else:
            standing = {group: self.standing(own, group) for group in groups}
            lowest = {group for group in groups if standing[group] == min(standing.values())}
        return {next(value for value, of in held if of == group) for group in lowest}

    def standing(self, own, group):
        made, stored = self.made[own, group], self.stored[own, group]
        return {"existence": made / stored, "frequency": stored, "output": made}[self.kind]

    def remove(self, own, value):
        self.rows[own] = [row for row in self.rows[own] if row[0] != value]
        if self.kind != "existence":
            self.stored[own, value] -= 1

    def insert(self, own, value):
        there = [s for s in range(3) if s == own or value in dict(self.rows[s])]
        pattern = sum(1 << s for s in there)
        self.rows[own].append((value, pattern if self.kind == "existence" else value))
        self.stored[own, self.rows[own][-1][1]] += 1
        if pattern != FULL:
            return 0
        for s in range(3):
            self.made[s, dict(self.rows[s])[value]] += 1
        return 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_of_section_4_drop_whom_the_policy_drops(kind):
    """Every decision is one that the policy allows, and all that is counted is as it says.

    Totals cannot be compared closely: policies break ties by lot or by number, a queue by place,
    and of unique values most tie.
    """
    streams, rows = 3, 12
    tables = ExistenceWorkload(streams=streams, tuples=200, spread=3.0, seed=5).tables()
    merged = pa.concat_tables(
        table.append_column("stream", pa.array([number] * table.num_rows))
        for number, table in enumerate(tables.values())
    ).sort_by([("time", "ascending"), ("stream", "ascending")])
    stream, key = (merged[name].to_numpy() for name in ("stream", "key"))
    domain = int(key.max()) + 1
    state = new_tables(KINDS[kind], streams, domain, rows)
    plain, completed, dropped = PlainTables(kind), 0, 0
    for at, (own, value) in enumerate(zip(stream.tolist(), key.tolist(), strict=True)):
        allowed = plain.may_leave(own) if len(plain.rows[own]) == rows else set()
        found = decide(state, KINDS[kind], streams, rows, stream[at : at + 1], key[at : at + 1])
        held = set(np.flatnonzero(state.row_of.reshape(streams, domain)[own] >= 0).tolist())
        gone = set(dict(plain.rows[own])) - held
        assert gone <= allowed
        assert len(gone) == bool(allowed)
        for victim in gone:
            plain.remove(own, victim)
            dropped += 1
        assert found == plain.insert(own, value)
        completed += found
    assert dropped > 300
    assert completed > 5
    assert (state.held == rows).all()
    if kind == "existence":
        expected = {group: made for group, made in plain.made.items() if made}
        assert sum(state.made) == sum(expected.values()) == streams * completed
