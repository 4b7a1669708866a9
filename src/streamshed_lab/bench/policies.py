"""How much each shedding policy keeps, and how fast ours decide.

The cells and what is required in them are those of `streamshed_lab.experiments.policies`; here each
requirement is one number, that of the worst cell, beside its bar. A full run takes all cores, but
not for the speeds of loops. What it finds it writes to `results/bench-policies`, setting by
setting, so that a run that was stopped goes on where it was, if the commit is the same and the
checkout is clean; a run that comes to its end removes it.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import streamshed as ss
from streamshed.demo.workload import FunnelWorkload
from streamshed_lab.bench import Measurement, Progress
from streamshed_lab.bench.keyed import Setting, loop_speeds
from streamshed_lab.bench.page import header_of
from streamshed_lab.bench.timing import best_of, processor_time
from streamshed_lab.experiments.cells import FULL, QUICK, settings
from streamshed_lab.experiments.coverage import (
    Run,
    coverage,
    drawn,
    judge,
    keys_coverage,
    lately_coverage,
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
QUICKLY_DRAWN, DRAWN = 4, 24
"""How often a family is run in all, as policies take turns."""
LEAST_COVERAGE, MOST_COVERAGE, IN_FAMILY = 0.93, 0.98, 0.9
"""An interval of 95 % that holds the truth more often than that is wider than it need be."""
LARGEST_ERROR = 0.1
SAMPLE_BAR = 0.05

UNFINISHED = Path("results", "bench-policies")
"""Where a full run writes what it has found."""

Item = TypeVar("Item")
Found = TypeVar("Found")


def run(quick: bool, progress: Progress) -> Iterator[Measurement]:
    """Measure everything; see `streamshed_lab.bench.run`."""
    yield from _kept(_quickly_compared(progress) if quick else _compared(progress))
    yield from _covered(quick, progress)
    yield from _speed(quick, progress)
    if not quick:
        shutil.rmtree(UNFINISHED, ignore_errors=True)


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
    found = list(drawn(QUICKLY_DRAWN, JUDGED, progress)) if quick else _drawn(progress)
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


def _quickly_compared(progress: Progress) -> Comparison:
    return compare(settings(QUICK), QUICK.seeds, progress, bounded=1, patience=QUICK_PATIENCE)


def _compared(progress: Progress) -> Comparison:
    """Every cell with every seed."""
    all_of = Comparison()
    for found in _on_all_cores(_compare_one, range(len(settings(FULL))), progress):
        all_of.runs.extend(found.runs)
        all_of.left_out.update(found.left_out)
    return all_of


def _compare_one(number: int) -> Comparison:
    """The cells of a setting, by its number."""
    return compare([settings(FULL)[number]], FULL.seeds, _silent, bounded=1, patience=PATIENCE)


def _drawn(progress: Progress) -> list[Run]:
    """The runs of all families."""
    found = []
    for family, runs in zip(JUDGED, _on_all_cores(_drawn_of, JUDGED, progress), strict=True):
        found += runs
        if not runs:
            progress(f"left out, {family}: its trace is not there")
    return found


def _drawn_of(family: str) -> list[Run]:
    """The runs of a family; none if its trace is not there."""
    return list(drawn(DRAWN, {family: JUDGED[family]}))


def _silent(line: str) -> None:
    """Tell nobody: what a process of its own prints would be among the measurements."""


def _on_all_cores(
    task: Callable[[Item], Found], items: Collection[Item], progress: Progress
) -> Iterator[Found]:
    """What a function finds for each of some items, in their order, in processes of their own."""
    processes = len(os.sched_getaffinity(0))
    commit = header_of("policies", False).commit
    written = None if commit == "unknown" or commit.endswith("-dirty") else UNFINISHED / commit
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for number, found in enumerate(pool.map(_Once(task, written), items), start=1):
            progress(f"{number} of {len(items)} are done")
            yield found


@dataclass(frozen=True)
class _Once(Generic[Item, Found]):
    """A function whose findings are written to a folder, and read from there the next time.

    Attributes:
        task: the function.
        folder: None if nothing is to be written.
    """

    task: Callable[[Item], Found]
    folder: Path | None

    def __call__(self, item: Item) -> Found:
        if self.folder is None:
            return self.task(item)
        name = str(item).replace("/", "-")
        path = self.folder / self.task.__name__ / f"{name}.pickle"
        if path.exists():
            known: Found = pickle.loads(path.read_bytes())
            return known
        found = self.task(item)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(pickle.dumps(found))
        part.replace(path)
        return found


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
