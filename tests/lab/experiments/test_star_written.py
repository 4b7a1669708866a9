"""The star policies step by step: with rows that are held they are the engine's."""

import pytest

import streamshed as ss
from streamshed.policies import Importance
from streamshed_lab.experiments.star.written import importance_made
from streamshed_lab.workloads import StarWorkload

RULES = {
    "simp": Importance(),
    "simpprob": Importance(matches="at arrival"),
    "dimpprob": Importance(matches="now"),
    "dgl": Importance(gain_loss=(256, 0.5)),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", [1, 2])
def test_with_rows_that_are_held_it_is_the_engine(rule, seed):
    work = StarWorkload(tuples=400, keys=30, facts=60, seed=seed)
    tables, relation = work.tables(), work.relation()
    join = ss.join("r", "s").within(9, time="time", clock="max").through(relation, r="a", s="b")
    join = join.weigh(column="importance")
    said = {"lifetime": 10, "gain_loss": (256, 0.5)}
    for rows in (3, 10):
        expected = join.keep(rows=rows).shed(RULES[rule]).count(tables).importance
        assert importance_made(tables, relation, rule, rows=rows, **said) == expected


@pytest.mark.parametrize("rule", RULES)
def test_with_relations_that_change_it_is_the_engine(rule):
    work = StarWorkload(tuples=400, keys=30, facts=60, churn=1.0, seed=4)
    tables, relation = work.tables(), work.relation()
    join = ss.join("r", "s").within(9, time="time", clock="max").through(relation, r="a", s="b")
    join = join.weigh(column="importance")
    said = {"lifetime": 10, "gain_loss": (256, 0.5)}
    exact = join.count(tables).importance
    assert importance_made(tables, relation, rule, rows=10, **said) == exact
    made = join.keep(rows=3).shed(RULES[rule]).count(tables).importance
    assert importance_made(tables, relation, rule, rows=3, **said) == made


def test_matches_of_the_whole_window_do_not_depend_on_what_is_held():
    work = StarWorkload(tuples=300, keys=30, facts=60, seed=3)
    tables, relation = work.tables(), work.relation()
    made = {
        among: importance_made(tables, relation, "simpprob", rows=2, lifetime=10, among=among)
        for among in ("held", "window")
    }
    assert made["window"] > made["held"]
