"""The experiment on disk support runs, on a small scale, and says what it found."""

from __future__ import annotations

import json

from streamshed.experiments import snjoin
from streamshed.experiments.snjoin.spilling import Scale, claims


def test_it_leaves_tables_and_claims(monkeypatch, tmp_path):
    monkeypatch.setattr(snjoin, "QUICK", Scale((2, 4), rows=800, seeds=(1,), rounds=1))
    said = []
    found = snjoin.run(tmp_path, quick=True, figures=["disk"], progress=said.append)
    verdict = json.loads((tmp_path / "verdict_disk.json").read_text(encoding="utf-8"))
    assert len(verdict["claims"]) == len(found) == 3
    assert found[-1].holds  # nothing is lost
    assert said
    assert len(list(tmp_path.glob("section71_*"))) == 2


def test_gains_are_judged():
    runs = [
        {"streams": streams, "overflow": overflow, "results": n, "rate": n, "seconds": 1.0}
        for streams, shed, spilled in ((2, 50, 75), (20, 50, 60))
        for overflow, n in (("memory", spilled), ("shed", shed), ("spilled", spilled))
    ]
    assert [claim.holds for claim in claims(runs)] == [True, True, True]
    assert "| 2 | +50% |" in claims(runs)[0].measured
