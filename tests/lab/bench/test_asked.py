"""The benchmark of what people ask for, in small."""

from __future__ import annotations

from streamshed_lab.bench import asked


def test_each_has_its_cost_beside_the_join_of_all_results():
    everything, *costs = asked._costs(500, 1, lambda line: None)
    assert "results, 3 × 500 rows" in everything.name
    assert [one.bar for one in costs] == [1.15] * len(asked.ASKED)
    assert all(one.at_most and one.value > 0 for one in costs)
