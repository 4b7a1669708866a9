"""The benchmark of the join on any condition, in small."""

from __future__ import annotations

from streamshed_lab.bench import Measurement, nested


def test_what_is_measured_says_which_bars_hold():
    told = []
    found = [
        *nested._scan(20.0, 1, told.append),
        *nested._against_duckdb(10.0, 1, told.append),
        *nested._harvesting(3, told.append),
    ]
    assert all(isinstance(measurement, Measurement) for measurement in found)
    assert all(measurement.value > 0 for measurement in found)
    assert len({measurement.name for measurement in found}) == len(found)
    assert [measurement.bar for measurement in found if measurement.bar] == [1.0, 0.98, 10.0]
    assert told
