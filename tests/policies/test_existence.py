"""The two cases of section 3.3 of the existence-pattern paper, on the engine."""

from __future__ import annotations

import pytest

from harness import driven
from oracles.cases import Case, case_1, case_2
from oracles.rows import Member, arrival_order
from streamshed.engine.operator import Operator
from streamshed.kernels.core import NONE, ROWS_USED


def stored(case: Case, operator: Operator) -> set[Member]:
    """The rows in the windows, by stream and row number."""
    order = arrival_order(case.workload)
    arrivals = operator.core.rows["arrival"][: operator.core.numbers[ROWS_USED]]
    return {(order[i].stream, order[i].row) for i in arrivals[arrivals != NONE].tolist()}


@pytest.mark.parametrize("case", [case_1(), case_2()], ids=["case 1", "case 2"])
def test_the_victims_of_section_3_3(case: Case) -> None:
    order = arrival_order(case.workload)
    newcomers = [fate.arrival for fate in case.fates]
    windows = {
        end: stored(case, operator)
        for end, _, _, operator in driven(
            case.workload, [newcomers[0], *(n + 1 for n in newcomers)]
        )
    }
    for fate in case.fates:
        newcomer = order[fate.arrival]
        before, after = windows[fate.arrival], windows[fate.arrival + 1]
        assert fate.victim in before
        assert after == before - {fate.victim} | {(newcomer.stream, newcomer.row)}


def test_the_figure_s_tuples_are_in_their_windows() -> None:
    case = case_1()
    first = case.fates[0].arrival
    _, _, ledger, operator = next(driven(case.workload, [first]))
    named = {label: case.tuples[label] for label in case.tuples if label.startswith("t")}
    assert stored(case, operator) == set(named.values())
    assert ledger.streams["s1"].stored == ledger.streams["s2"].stored == 4


def test_the_oldest_would_have_been_another() -> None:
    case = case_1("oldest")
    first = case.fates[0].arrival
    cuts = [first, first + 1]
    before, after, _ = [stored(case, operator) for _, _, _, operator in driven(case.workload, cuts)]
    assert before - after == {case.tuples["t1"]}
