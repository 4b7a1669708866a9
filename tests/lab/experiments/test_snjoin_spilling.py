"""The experiment on disk support says what it found."""

from __future__ import annotations

from streamshed_lab.experiments.snjoin.spilling import claims


def test_gains_are_judged():
    runs = [
        {"streams": streams, "overflow": overflow, "results": n, "rate": n, "seconds": 1.0}
        for streams, shed, spilled in ((2, 50, 75), (20, 50, 60))
        for overflow, n in (("memory", spilled), ("shed", shed), ("spilled", spilled))
    ]
    assert [claim.holds for claim in claims(runs)] == [True, True, True]
    assert "| 2 | +50% |" in claims(runs)[0].measured
