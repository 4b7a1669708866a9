"""Runs of the join, their summaries, and what they say of the policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamshed_lab.experiments.existence.scale import (
    BOTH,
    OF_EP,
    OF_RIVALS,
    POLICIES,
    WINDOW,
    Scale,
    Variant,
)
from streamshed_lab.experiments.joining import key_join
from streamshed_lab.experiments.report import Report, Row, markdown_table, stem, summarise
from streamshed_lab.experiments.verdicts import Reading
from streamshed_lab.workloads import ExistenceWorkload

QUEUE = 100
"""Rows that may wait where the speed of the join is bounded."""
Means = dict[tuple[Any, ...], float]


def measure(
    workload: ExistenceWorkload,
    memories: Iterable[int],
    report: Report,
    policies: Iterable[str] = tuple(POLICIES),
    speed: float | None = None,
) -> list[Row]:
    """Run policies at every memory size on one workload.

    Args:
        workload: makes the streams.
        memories: rows of each window.
        report: is told of it.
        policies: which; all of them by default.
        speed: rows that the join takes in a second, if that is bounded.
    """
    report.progress(
        f"{workload.streams} streams, rate {workload.rate:g}, α {workload.alpha:g}, spread "
        f"{workload.spread:g} s, orders {workload.repertoire or 'all'}, seed {workload.seed}"
    )
    tables = workload.tables()
    exact = workload.exact_results(WINDOW)
    setting = {
        "streams": workload.streams,
        "tuples": workload.tuples,
        "rate": workload.rate,
        "alpha": workload.alpha,
        "spread": workload.spread,
        "orders": str(workload.repertoire or "all"),
        "ranking": workload.ranking,
        "seed": workload.seed,
        "exact": exact,
    }
    measured = []
    for rows in memories:
        for policy in policies:
            results = count_results(tables, WINDOW, rows, policy, workload.seed, speed)
            share = results / exact if exact else 1.0
            measured.append(
                setting | {"rows": rows, "policy": policy, "results": results, "share": share}
            )
    return measured


def count_results(
    tables: Mapping[str, pa.Table],
    window: float,
    rows: int | None,
    policy: str,
    seed: int,
    speed: float | None = None,
) -> int:
    """Count the results of one join; without a budget there is nothing to shed."""
    joined = key_join(tables, window)
    if speed is not None:
        joined = joined.queue(rows=QUEUE).throttle(rows_per_second=speed)
    if rows is not None:
        joined = joined.keep(rows=rows).shed(POLICIES[policy]).seed(seed)
    return joined.count(dict(tables)).results


def write_figure(
    report: Report,
    figure: str,
    runs: Sequence[Row],
    scale: Scale,
    by: Sequence[str],
    value: str = "results",
    **fixed: object,
) -> list[Row]:
    """Write runs, summary and chart of a figure; return the summary."""
    name = stem(figure, f"{value}-by-{'-'.join(by)}", **fixed, seeds=len(scale.seeds))
    report.runs(name, runs)
    summary = summarise(runs, [*by, "policy"], value)
    if "exact" in runs[0]:
        exact = summarise(runs, by, "exact")
        of_setting = {tuple(row[c] for c in by): row["exact_mean"] for row in exact}
        summary = [row | {"exact_mean": of_setting[tuple(row[c] for c in by)]} for row in summary]
    exact_line = "exact_mean" if value == "results" and "exact" in runs[0] else None
    report.chart(summary, by[-1], value, "policy", by[:-1], exact=exact_line)
    return summary


def means(
    summary: Sequence[Row], by: Sequence[str] = ("orders", "spread", "rows")
) -> tuple[Means, Means]:
    """Mean results by (setting…, policy), and mean exact results by (setting…)."""
    mean = {tuple(row[c] for c in (*by, "policy")): row["results_mean"] for row in summary}
    exact = {tuple(row[c] for c in by): row["exact_mean"] for row in summary}
    return mean, exact


Cells = Mapping[str, tuple[Any, ...]]
"""Where the paper looks: name → what is added to the key of a setting."""
HERE: Cells = {"": ()}


def tried(
    settings: Mapping[Reading, tuple[Any, ...]],
    cells: Cells,
    variants: Sequence[Variant],
    holds: Callable[[tuple[Any, ...], Variant], bool],
) -> dict[Reading, bool]:
    """Whether something holds, for each reading of workload and policies, and each cell.

    Args:
        settings: the readings of the workload, and the keys of their means.
        cells: the cells of each.
        variants: the readings of the policies: `BOTH`, `OF_EP` or `OF_RIVALS`.
        holds: says it of a key and a variant.
    """
    found = {}
    for said, key in settings.items():
        for variant in variants:
            answers = {}
            if variants in (BOTH, OF_EP):
                answers["completed"] = variant.completed
            if variants in (BOTH, OF_RIVALS):
                answers["frequency"] = variant.counted
            for cell, more in cells.items():
                where = Reading((*said.said, *answers.items()), cell)
                found[where] = holds((*key, *more), variant)
    return found


def ep_is_best(mean: Means, setting: tuple[Any, ...], variant: Variant, times: float = 1.0) -> bool:
    """Whether EP has so many times the results of each policy that the paper compares it with."""
    made = mean[*setting, variant.ep]
    return all(made > times * mean[*setting, rival] for rival in variant.rivals)


def rivals_are_alike(mean: Means, exact: Means, setting: tuple[Any, ...], variant: Variant) -> bool:
    """Whether Frequency and Output are about Random."""
    random = mean[*setting, "random"]
    near = max(0.2 * random, 0.01 * exact[setting])
    return all(abs(mean[*setting, p] - random) <= near for p in (variant.frequency, "output"))


ALIKE = "Alike is taken as: within a fifth, or within a hundredth of the exact results."


def results_table(
    mean: Means, exact: Means, settings: Mapping[Any, tuple[Any, ...]], corner: str
) -> str:
    """Markdown: settings down, policies across, the exact number last."""
    return markdown_table(
        [corner, *POLICIES, "exact"],
        [
            [
                str(label),
                *(f"{mean[*key, policy]:,.0f}" for policy in POLICIES),
                f"{exact[key]:,.0f}",
            ]
            for label, key in settings.items()
        ],
    )
