"""Real data: surveys joined by age and education (figure 8)."""

from __future__ import annotations

import streamshed as ss
from streamshed.errors import InputError
from streamshed_lab.experiments.msketch.running import SUBSET, Compared, Scale
from streamshed_lab.experiments.msketch.subset import measured
from streamshed_lab.experiments.report import Report, Row, stem
from streamshed_lab.experiments.verdicts import Claim, judge
from streamshed_lab.workloads.traces import census

YEARS = (1994, 1995, 2004)
WINDOWS = {500: (0.05, 0.25, 0.5, 0.75), 1000: (0.025, 0.05, 0.25, 0.5)}
"""Seconds, and the parts of a full window that are kept."""


def figure_8(scale: Scale, report: Report) -> list[Claim]:
    """Results by memory, for two lengths of the window."""
    try:
        tables = census(YEARS, scale.census)
    except InputError as error:
        why = f"There is no such data here: {error}"
        says = "MSketch outperforms the others on census data"
        return [judge("8", says, "Not measured.", {"data": False}, why)]
    one, two, three = tables
    conditions = (f"{one}.age = {two}.age", f"{two}.education = {three}.education")
    claims: list[Claim] = []
    for window, parts in WINDOWS.items():
        runs: list[Row] = []
        for part in parts:
            rows = round(window / 3 * part)
            report.progress(f"census, window {window} s, {rows} rows")
            join = ss.join(*tables).on(*conditions).within(window, time="time", clock="max")
            for seed in scale.seeds[:2]:
                kept = join.keep(rows=rows).seed(seed)
                runs += measured(kept, tables, SUBSET, memory=rows, seed=seed)
        name = stem("fig08", "census-by-memory", window=window, rows=scale.census)
        report.runs(name, runs)
        claims.append(
            Compared(runs, "memory").beats(
                "8",
                f"MSketch outperforms all others, window of {window} s",
                [("MSketch", other) for other in SUBSET if other != "MSketch"],
                "Surveys of 1994, 1995 and 2004 in place of 2003 and 2004; seeds are those of the "
                "policies alone.",
            )
        )
    return claims
