"""A sample of the results: windowed averages and quartiles of it (figure 7)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import streamshed as ss
from streamshed.policies import Pairwise, Policy, Random, Sketch
from streamshed_lab.experiments.msketch.running import (
    SKEWED,
    WINDOW,
    Compared,
    Scale,
    region_join,
    region_work,
)
from streamshed_lab.experiments.report import Report, Row, stem, summarise
from streamshed_lab.experiments.verdicts import CLEARLY, Claim, Reading, judge, reading
from streamshed_lab.workloads.regions import NAMES

STEP = 50
"""Seconds between two windows that are looked at."""
DOMAIN = 1024
SAMPLES: Mapping[str, Policy] = {
    "MSketch_RS": Sketch(objective="sample"),
    "BJoin": Pairwise(),
    "Rand": Random(),
}
Counts = npt.NDArray[np.int64]


PLACES = ("all", "inside a region", "near a change")
"""Windows that are looked at: those of which all rows are of one region, the others, and both."""


def figure_7(scale: Scale, report: Report) -> list[Claim]:
    """Errors of windowed averages and quartiles of R1.A2, by memory."""
    runs: list[Row] = []
    for seed in scale.samples:
        report.progress(f"aggregates of samples, seed {seed}")
        work = region_work(scale, SKEWED, seed)
        tables = work.tables()
        truth = windows(histogram(region_join(seed), tables, 3 * scale.tuples))
        inside = inside_a_region(work.drifts(), len(truth))
        places = dict(zip(PLACES, (np.ones_like(inside), inside, ~inside), strict=True))
        for rows in scale.memories:
            for name, policy in SAMPLES.items():
                join = region_join(seed).keep(rows=rows).shed(policy)
                found = windows(histogram(join, tables, 3 * scale.tuples))
                said = {"memory": rows, "policy": name, "seed": seed}
                runs += [
                    {"windows": place, **said, **errors(truth[chosen], found[chosen])}
                    for place, chosen in places.items()
                    if chosen.any()
                ]
    name = stem("fig07", "errors-by-memory", tuples=scale.tuples)
    report.runs(name, runs)
    for value in ("average", "quartiles"):
        summary = summarise(runs, ["windows", "memory", "policy"], value)
        report.chart(summary, "memory", value, "policy", ["windows"])
    scarce = [run for run in runs if run["memory"] < max(scale.memories)]
    return [
        _smallest(scarce, "average", "7a", "errors in windowed averages"),
        _smallest(scarce, "quartiles", "7b", "differences in quartiles"),
    ]


def inside_a_region(drifts: list[int], steps: int) -> npt.NDArray[np.bool_]:
    """For windows that end with a step, whether no member of their results is of another region.

    A window has the results of its length, whose members may be older by another.

    Examples:
        >>> inside_a_region([1000], 32).nonzero()[0].tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 30, 31]
    """
    ends = (np.arange(steps) + 1) * STEP + WINDOW
    inside = np.ones(steps, np.bool_)
    for drift in drifts:
        inside &= (ends <= drift) | (ends - 2 * WINDOW > drift)
    return inside


def _smallest(runs: list[Row], measure: str, figure: str, what: str) -> Claim:
    ours, tables = "MSketch_RS", []
    tried: dict[Reading, bool] = {}
    for place in dict.fromkeys(run["windows"] for run in runs):
        chosen = [run for run in runs if run["windows"] == place]
        compared = Compared(chosen, "memory", measure, ".4f")
        means = compared.means()
        missing = Compared(chosen, "memory", "empty", ".1%").table()
        tables.append(
            f"Windows: {place}.\n\n{compared.table()}\n\nWithout any result:\n\n{missing}"
        )
        for other, rows in product((o for o in SAMPLES if o != ours), compared.settings()):
            won = compared.won(rows, ours, other, more=False)
            where = reading(windows=place).at(f"against {other}, {rows} rows ({won})")
            tried[where] = means[rows, ours] * CLEARLY < means[rows, other]
    return judge(
        figure,
        f"MSketch_RS has by far the smallest {what}",
        "\n\n".join(tables),
        tried,
        "Rows that were drawn at random make a sample of the results too, of which each is as "
        "likely to be made, and more of them than MSketch_RS makes, which lets those go that have "
        "made most. Where one value makes nearly all results, who keeps that one is off by little.",
        "By far is taken as: those of others are larger by more than a fifth.",
    )


def histogram(join: ss.Join, tables: Mapping[str, pa.Table], length: int) -> Counts:
    """How often each value of R1.A2 is in the results of each step of time."""
    steps = -(-length // STEP)
    counts = np.zeros(steps * DOMAIN, np.int64)
    for batch in join.select(f"{NAMES[0]}.a2").replay_batches(tables):
        step = batch.column("time").to_numpy() // STEP
        value = batch.column(NAMES[0]).field("a2").to_numpy()
        counts += np.bincount(step * DOMAIN + value, minlength=len(counts))
    return counts.reshape(steps, DOMAIN)


def windows(counts: Counts) -> Counts:
    """The same for each whole window that ends with a step."""
    total = np.cumsum(counts, axis=0)
    wide = WINDOW // STEP
    found: Counts = total[wide:] - total[:-wide]
    return found


def errors(truth: Counts, found: Counts) -> dict[str, float]:
    """The mean relative error of averages, and the mean difference of quartiles.

    Without any result that is compared they are as large as can be.
    """
    known = (truth.sum(axis=1) > 0) & (found.sum(axis=1) > 0)
    empty = ((truth.sum(axis=1) > 0) & ~known).mean()
    if not known.any():
        return {"average": 1.0, "quartiles": float(DOMAIN), "empty": float(empty)}
    true, ours = truth[known], found[known]
    values = np.arange(DOMAIN)
    average = [counts @ values / counts.sum(axis=1) for counts in (true, ours)]
    apart = [np.abs(_quantile(true, q) - _quantile(ours, q)) for q in (0.25, 0.5, 0.75)]
    return {
        "average": float(np.mean(np.abs(average[0] - average[1]) / np.maximum(1, average[0]))),
        "quartiles": float(np.mean(apart)),
        "empty": float(empty),
    }


def _quantile(counts: Counts, part: float) -> Counts:
    """The value up to which a part of those counted lies, for each row."""
    total = np.cumsum(counts, axis=1)
    found: Counts = np.argmax(total >= part * total[:, -1:], axis=1)
    return found
