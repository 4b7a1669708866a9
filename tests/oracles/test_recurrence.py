"""What came for each arrival that was expected."""

import math

import pytest

from oracles.recurrence import Recurrence


class TestRecurrence:
    """Factors of rates, on one gap."""

    def test_by_gap_and_by_streams(self) -> None:
        """Expected is the integral over the part of the gap in each bin."""
        rule = Recurrence(2)
        assert rule.of_set({0}, 1) == 1.0
        rule.learn({0}, [0.0, 4.0], [0.0, 2.0], 3 / 4096, 4095.0, 1)
        ends = [0.0, 1 / 4096, 2 / 4096, 3 / 4096]
        for place in range(3):
            parts = 4.0 * 0.3 * (math.exp(-ends[place] / 0.3) - math.exp(-ends[place + 1] / 0.3))
            parts += 2.0 * 3 * (math.exp(-ends[place] / 3) - math.exp(-ends[place + 1] / 3))
            assert rule.expected["gap", 1, place] == pytest.approx(parts)
        came = {at: number for at, number in rule.came.items() if number}
        assert came == {("gap", 1, 2): 1.0, ("set", 1, frozenset({0})): 1.0}
        expected = rule.expected["set", 1, frozenset({0})]
        assert expected == pytest.approx(0.0044, rel=0.01)
        rule.find_anew()
        assert rule.of_set({0}, 1) == pytest.approx(9 / (8 + expected))
        # Young keys come more often now; who was silent for longer does not.
        assert rule.rate(1, 1, 1.0, 0.0) > Recurrence(2).rate(1, 1, 1.0, 0.0)
        assert rule.rate(1, 40, 1.0, 0.0) == Recurrence(2).rate(1, 40, 1.0, 0.0)
