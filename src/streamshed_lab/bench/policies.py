"""How much each shedding policy keeps, and how fast ours decide.

The cells and what is required in them are those of `streamshed_lab.experiments.policies`; here each
requirement is one number, that of the worst cell, beside its bar.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import streamshed as ss
from streamshed.demo.workload import FunnelWorkload
from streamshed.errors import InputError
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.keyed import Setting, loop_speeds
from streamshed_lab.bench.timing import best_of, processor_time
from streamshed_lab.experiments.cells import FULL, QUICK, settings
from streamshed_lab.experiments.coverage import (
    Run,
    coverage,
    drawn,
    judge,
    keys_coverage,
    lately_coverage,
    runs,
    windows_coverage,
)
from streamshed_lab.experiments.judged import JUDGED, LARGE, SHARDED
from streamshed_lab.experiments.policies import (
    EP,
    PATIENCE,
    Comparison,
    against_the_best,
    clairvoyant_share,
    compare,
    requirements,
    shares,
    speeds,
)

LOOP_BAR = 4_000_000
FUNNEL_BAR = 1_000_000
BOUND_BAR = 0.85
QUICK_PATIENCE = 1.0
"""Seconds that a bound may take in a quick run."""
AGAINST_EP_BAR = 1 / 3
DRAWN, SEEDS = 4, range(20)
"""How often a family is run: in all, as policies take turns, or for each policy."""
LEAST_COVERAGE, MOST_COVERAGE, IN_FAMILY = 0.93, 0.98, 0.9
"""An interval of 95 % that holds the truth more often than that is wider than it need be."""
LARGEST_ERROR = 0.1
SAMPLE_BAR = 0.05


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    scale = QUICK if quick else FULL
    patience = QUICK_PATIENCE if quick else PATIENCE
    found = compare(settings(scale), scale.seeds, progress, bounded=1, patience=patience)
    yield from _kept(found)
    yield from _covered(quick, progress)
    yield from _speed(quick, progress)


def _kept(found: Comparison) -> Iterator[Measurement]:
    """Shares by family, and the worst cell of each policy and for each requirement."""
    missing = len(found.left_out)
    yield Measurement("settings left out because their trace is not there", missing, "settings")
    for family, of in shares(found).items():
        for policy, share in of.items():
            yield Measurement(f"mean share of the bound, {policy}, {family}", share, "of the bound")
    for policy, (share, cell) in against_the_best(found).items():
        name = f"results of {policy} against those of the best policy of the papers"
        yield Measurement(name, share, "times", cell=str(cell))
    share, runs_of_known = clairvoyant_share(found, "density")
    yield Measurement(
        f"mean share of the clairvoyant bound, density, {runs_of_known} cells",
        share,
        "of the bound",
        BOUND_BAR,
    )
    for required in requirements(found):
        worst = required.worst
        yield Measurement(
            required.says,
            required.values[worst],
            required.unit,
            required.bar,
            required.at_most,
            cell=str(worst),
        )
    if faster := speeds(found, "density", EP):
        slowest = min(faster, key=lambda cell: faster[cell])
        name = "speed of density against that of existence, counting results"
        yield Measurement(name, faster[slowest], "times", AGAINST_EP_BAR, cell=str(slowest))


def _covered(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """How often the interval of the results missed holds the truth, and how far off the value is.

    By families that the estimator was not tuned by.
    """
    progress("how often the interval of the results missed holds the truth")
    found = list(drawn(DRAWN, JUDGED, progress) if quick else _all_runs(progress))
    name = f"intervals of the results missed that hold the truth, of {len(found)} runs"
    yield Measurement(name, coverage(found), "of the runs", LEAST_COVERAGE)
    yield Measurement(f"{name}, at most", coverage(found), "of the runs", MOST_COVERAGE, True)
    for family, verdict in judge(found).items():
        about = f"{family}, {verdict.runs} runs"
        yield Measurement(f"the same, {about}", verdict.coverage, "of the runs", IN_FAMILY)
        yield Measurement(
            f"median error of the results missed, {about}",
            verdict.error,
            "of the truth",
            LARGEST_ERROR,
            at_most=True,
        )
        for what, held in (
            ("of keys", verdict.keys_coverage),
            ("of the last minute", verdict.lately_coverage),
            ("of aggregates", verdict.windows_coverage),
        ):
            if held is not None:
                yield Measurement(f"the same {what}, {about}", held, "of the runs", IN_FAMILY)
        yield Measurement(f"bias of the results missed, {about}", verdict.bias, "of the truth")
        if family in LARGE:
            name = f"largest part of the memory that a sample takes, {about}"
            yield Measurement(name, verdict.sample, "of the memory", SAMPLE_BAR, at_most=True)
    in_shards = [run for run in found if run.workload in SHARDED]
    for what, held in (
        ("the keys with a result", keys_coverage(found)),
        ("the results missed in the last minute", lately_coverage(found)),
        ("counts, sums and averages of windows", windows_coverage(found)),
        ("the results missed, in shards", coverage(in_shards) if in_shards else None),
    ):
        if held is not None:
            name = f"intervals of {what} that hold the truth"
            yield Measurement(name, held, "of the runs", LEAST_COVERAGE)


def _all_runs(progress: Progress) -> Iterator[Run]:
    """Every family with every policy; those whose trace is not there are left out."""
    for name, setting in JUDGED.items():
        try:
            yield from runs(SEEDS, settings={name: setting})
        except InputError as missing:
            progress(f"left out, {name}: {missing}")


def _speed(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """The compiled loop under density, and under existence beside it."""
    timed, repeats = (200_000, 3) if quick else (1_000_000, 5)
    setting = Setting(5, 500, timed, repeats, policies=("density", EP), end_to_end=False)
    yield from _beside_existence(
        f"loop, density, {setting}", loop_speeds(setting, progress), LOOP_BAR
    )
    for rows in (5_000, 50_000):
        funnel = Funnel(rows, repeats)
        bar = FUNNEL_BAR if rows == 50_000 else None
        yield from _beside_existence(f"density, {funnel}", funnel.speeds(progress), bar)


def _beside_existence(
    name: str, measured: Mapping[str, float], bar: float | None
) -> Iterator[Measurement]:
    yield Measurement(name, measured["density"], "rows/s", bar)
    ratio = measured["density"] / measured[EP]
    yield Measurement(f"{name}, against existence", ratio, "times", AGAINST_EP_BAR)


@dataclass(frozen=True)
class Funnel:
    """The demonstration's shop, whose keys come again and again, under a total budget.

    Attributes:
        rows: the budget of all streams together.
        repeats: how often it is timed.
    """

    rows: int
    repeats: int

    def __str__(self) -> str:
        return f"funnel, total of {self.rows:,} rows"

    def speeds(self, progress: Progress) -> dict[str, float]:
        """Rows a second of a join that counts its results, by policy."""
        progress(f"timing the {self}")
        tables = FunnelWorkload(seed=1).tables()
        rows = sum(table.num_rows for table in tables.values())
        join = ss.join(*tables).on("session").within("10 minutes", time="ts").keep(total=self.rows)
        some = {name: table.slice(0, 1_000) for name, table in tables.items()}
        runs = {}
        for policy in ("density", EP):
            join.shed(policy).count(some)  # whatever is not compiled yet is compiled here
            runs[policy] = partial(processor_time, partial(join.shed(policy).count, tables))
        return {policy: rows / taken for policy, taken in best_of(self.repeats, runs).items()}
