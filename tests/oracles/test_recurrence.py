"""What came for each arrival that was expected."""

import math

import pytest

from oracles.recurrence import GAPS, Recurrence

BIN = 1 / 4096
"""The first bins of gaps are a cell wide."""


def _integral(fast: float, slow: float, since: float, until: float) -> float:
    parts = fast * 0.3 * (math.exp(-since / 0.3) - math.exp(-until / 0.3))
    return parts + slow * 3 * (math.exp(-since / 3) - math.exp(-until / 3))


class TestRecurrence:
    """Factors of rates, on one gap."""

    def test_by_gap_and_by_streams(self) -> None:
        """Expected is the integral over the bins that are over, and half of that of the last."""
        rule = Recurrence(2)
        assert rule.of_set({0}, 1) == 1.0
        to_come = [0.0, 4.0], [0.0, 2.0]
        rule.hear({0}, *to_come, 0, 2, 1)
        rule.come({0}, *to_come, [(2, 0.25), (1, 0.75)], 1)
        parts = [_integral(4.0, 2.0, place * BIN, (place + 1) * BIN) for place in range(2)]
        parts.append(_integral(4.0, 2.0, 2 * BIN, 4 * BIN) / 2)
        pace = rule.pace(6.0)
        assert (rule.pace(0.0), pace, rule.pace(15.9), rule.pace(1e9)) == (0, 4, 4, 7)
        came = {at: number for at, number in rule.came.items() if number}
        assert came == {(1, pace, 1): 0.75, (1, pace, 2): 0.25}
        for place, part in enumerate(parts):
            assert rule.expected(1, pace, place) == pytest.approx(part)
        at_first = [math.sqrt(0.1 / (2**place * BIN)) for place in range(3)]
        doubts = [1 + 0.1 * 2.0 ** (2 * pace - 5) * 2**place * BIN for place in range(3)]
        factors = [(here / doubt) ** 0.7 for here, doubt in zip(at_first, doubts, strict=True)]
        expected = sum(part * factor for part, factor in zip(parts, factors, strict=True))
        assert rule.expected_of_set[1, frozenset({0})] == pytest.approx(expected)
        rule.find_anew()
        assert rule.of_set({0}, 1) == pytest.approx(9 / (8 + expected))
        of_all = (0.75 + 0.5 * at_first[1]) / (parts[1] + 0.5)
        assert rule.factors[1, 0, 1] == pytest.approx((of_all / (1 + 0.1 / 32 * 2 * BIN)) ** 0.7)
        of_pace = (0.75 + 4 * of_all / doubts[1]) / (parts[1] + 4)
        assert rule.factors[1, pace, 1] == pytest.approx(of_pace**0.7)

    def test_silence_is_learned_as_it_lasts(self) -> None:
        """In parts it is the same as at once, and who is forgotten has passed all bins."""
        at_once, in_parts = Recurrence(2), Recurrence(2)
        at_once.hear({0}, [0.0, 4.0], [0.0, 2.0], 0, GAPS, None)
        for since, until in ((0, 3), (3, 9), (9, GAPS)):
            in_parts.hear({0}, [0.0, 4.0], [0.0, 2.0], since, until, None)
        assert not any(at_once.came.values())
        assert (in_parts.fast, in_parts.slow) == (at_once.fast, at_once.slow)
        found = [rule.expected_of_set[1, frozenset({0})] for rule in (at_once, in_parts)]
        assert found[0] == pytest.approx(found[1])
        spent = sum(at_once.expected(1, at_once.pace(6.0), place) for place in range(GAPS))
        assert spent == pytest.approx(_integral(4.0, 2.0, 0.0, 4.0))
        at_once.find_anew()
        assert at_once.of_set({0}, 1) < 1.0
