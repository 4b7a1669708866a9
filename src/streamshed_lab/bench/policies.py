"""How much each shedding policy keeps, and how fast ours decide.

The cells and what is required in them are those of `streamshed_lab.experiments.policies`; here each
requirement is one number, that of the worst cell, beside its bar.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamshed.errors import InputError
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.keyed import Setting, loop_speeds
from streamshed_lab.experiments.cells import FULL, QUICK, settings
from streamshed_lab.experiments.coverage import JUDGED, Run, coverage, drawn, judge, runs
from streamshed_lab.experiments.policies import (
    EP,
    Comparison,
    against_the_best,
    compare,
    requirements,
    shares,
)

LOOP_BAR = 4_000_000
AGAINST_EP_BAR = 1 / 3
DRAWN, SEEDS = 4, range(20)
"""How often a family is run: in all, as policies take turns, or for each policy."""
LEAST_COVERAGE, MOST_COVERAGE, IN_FAMILY = 0.93, 0.98, 0.9
"""An interval of 95 % that holds the truth more often than that is wider than it need be."""
LARGEST_ERROR = 0.1


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    scale = QUICK if quick else FULL
    found = compare(settings(scale), scale.seeds, progress)
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
    for required in requirements(found):
        worst = required.worst
        yield Measurement(
            required.says, required.values[worst], required.unit, required.bar, cell=str(worst)
        )


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
        yield Measurement(f"bias of the results missed, {about}", verdict.bias, "of the truth")


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
    speeds = loop_speeds(setting, progress)
    yield Measurement(f"loop, density, {setting}", speeds["density"], "tuples/s", LOOP_BAR)
    yield Measurement(
        f"speed of the loop, density against existence, {setting}",
        speeds["density"] / speeds[EP],
        "times",
        AGAINST_EP_BAR,
    )
