"""The experiment on disk support says what it found."""

from __future__ import annotations

import numpy as np
import pytest

from streamshed_lab.baselines import MJoin, XJoinTree
from streamshed_lab.experiments.joining import key_join
from streamshed_lab.experiments.snjoin.spilling import (
    VALUES,
    WINDOW,
    appearances,
    claims,
    outputs_made,
    staged,
    zipf_rows,
)


def test_gains_are_judged():
    runs = [
        {"streams": streams, "overflow": overflow, "results": n, "rate": n, "seconds": 1.0}
        for streams, shed, spilled in ((2, 50, 75), (20, 50, 60))
        for overflow, n in (("memory", spilled), ("shed", shed), ("spilled", spilled))
    ]
    found = claims(runs, runs, [])
    assert [claim.holds for claim in found] == [True, True, True]
    assert "| 2 | +50% |" in found[0].measured


@pytest.mark.parametrize("streams", [2, 4])
def test_outputs_are_counted_one_for_each_arrival_that_meets_all_streams(streams):
    stream, time, value = zipf_rows(streams, 120, seed=3)
    room = 60
    expected = exact = 0
    rows = list(zip(stream.tolist(), time.tolist(), value.tolist(), strict=True))
    for at, (own, now, key) in enumerate(rows):
        met = {s for s, t, v in rows[:at] if v == key and now - t <= WINDOW * 1e6} - {own}
        exact += len(met) == streams - 1
    counts = np.zeros((VALUES, streams), np.int64)
    made = outputs_made(stream, time, value, counts, WINDOW * 1e6, len(rows), 1)
    assert made == exact > 50
    counts = np.zeros((VALUES, streams), np.int64)
    expected = outputs_made(stream, time, value, counts, WINDOW * 1e6, room, 1)
    assert 0 < expected < exact
    assert counts.sum() <= room
    assert counts.min() == 0


@pytest.mark.parametrize("baseline", [MJoin, XJoinTree])
def test_results_of_a_baseline_with_a_disk_are_made_in_one_of_three_stages(baseline):
    tables = appearances(3, 60, seed=2)
    found = staged(baseline, tables, memory=60)
    stages = [found[name] for name in ("in memory", "revisiting", "at the end")]
    assert sum(stages) == found["results"] == key_join(tables, WINDOW).count(tables).results
    assert min(stages) > 0
