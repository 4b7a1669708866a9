"""All shedding policies on all workloads: the results that each keeps, cell by cell.

The settings are those of `streamshed_lab.experiments.cells`; the policies are whatever `shed` knows
by name and the join allows. A cell's results are summed over seeds, each of which makes another
workload, and each policy is run on the same ones. What is counted is the join's own ledger; no
result is built. A share is that of the bound: the results that no policy could exceed within the
budget, had it known the future (`streamshed_lab.offline`). In quick runs, and where a policy has
kept them all, that is the exact result. How much of what a policy keeps is luck is seen on the
streams of the first seed, which our own policies and `existence` join under several seeds.

What is required of our own policy, `density`, is compared with the worst cell. In a cell where
the others keep nothing there is nothing to compare with, and it does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from streamshed.errors import InputError, SpecError
from streamshed.join import Join
from streamshed.policies import NAMED
from streamshed_lab.experiments.cells import (
    FAMILIES,
    FULL,
    QUICK,
    Scale,
    Setting,
    Streams,
    settings,
)
from streamshed_lab.experiments.joining import key_join
from streamshed_lab.experiments.report import (
    Paper,
    Progress,
    Report,
    Row,
    markdown_table,
    stem,
    summarise,
)
from streamshed_lab.experiments.verdicts import Claim, Number, judge
from streamshed_lab.offline import most_results

TITLE = "Shedding policies compared"

OURS = ("density",)
"""The policies that no paper has; all others that are compared are from the papers."""
ELSEWHERE = ("pairwise", "sketch")
"""Those made for several attributes: `streamshed reproduce msketch` compares them, and this does
not yet."""
EP = "existence"
PATIENCE = 5.0
"""Seconds that a bound may take; what is known by then is one."""
REPEATS = 5
"""Seeds of the join under which the streams of the first seed are joined."""


class Cell(NamedTuple):
    """A setting under one budget."""

    family: str
    workload: str
    rows: int
    spread: float | None

    def __str__(self) -> str:
        return f"{self.family}: {self.workload}, {self.rows} rows"


@dataclass(frozen=True)
class Requirement:
    """What one of our policies is to reach in every cell of some.

    Attributes:
        says: the requirement in words.
        unit: of the values.
        bar: the least that each value may be.
        values: what was measured, by cell.
        at_most: whether the bar is the most that each may be, instead.
    """

    says: str
    unit: str
    bar: float
    values: Mapping[Cell, float]
    at_most: bool = False

    @property
    def worst(self) -> Cell:
        """The cell with the lowest value, or the highest."""
        worst = max if self.at_most else min
        return worst(self.values, key=lambda cell: self.values[cell])

    def number(self, cell: Cell) -> Number:
        """What was measured in a cell, and within what it is to be."""
        low, high = (None, self.bar) if self.at_most else (self.bar, None)
        return Number(self.values[cell], low, high)


@dataclass(frozen=True)
class Comparison:
    """What was measured, and what could not be.

    Attributes:
        runs: one row for each cell, policy and seed.
        left_out: settings that could not be run, and why.
    """

    runs: list[Row] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def policies(self) -> list[str]:
        """The policies that were run."""
        return list(dict.fromkeys(run["policy"] for run in self.runs))

    @property
    def of_papers(self) -> list[str]:
        """Those of them that are from the papers."""
        return [policy for policy in self.policies if policy not in OURS]

    @property
    def seeds(self) -> list[int]:
        """The seeds that were tried."""
        return list(dict.fromkeys(run["seed"] for run in self.runs))

    def kept(self) -> dict[Cell, dict[str, int]]:
        """For each cell the results of every policy, over all seeds."""
        return self._sums("results")

    def bounds(self) -> dict[Cell, int]:
        """For each cell what no policy could exceed, over all seeds."""
        return {cell: max(of.values()) for cell, of in self._sums("bound").items()}

    def exact(self) -> dict[Cell, int]:
        """For each cell the results of a join without a budget, over all seeds."""
        return {cell: max(of.values()) for cell, of in self._sums("exact").items()}

    def spreads(self, policy: str) -> dict[Cell, float]:
        """For each cell how far a policy's results are apart under several seeds of the join."""
        return {cell: spread for cell, (spread, _) in self._repeated(policy).items()}

    def seconds(self, policy: str) -> dict[Cell, float]:
        """For each cell how long a policy's join takes at least."""
        return {cell: seconds for cell, (_, seconds) in self._repeated(policy).items()}

    def _repeated(self, policy: str) -> dict[Cell, tuple[float, float]]:
        return {
            Cell(*(run[name] for name in Cell._fields)): (run["luck"], run["seconds"])
            for run in self.runs
            if run["policy"] == policy and run.get("luck") is not None
        }

    def _sums(self, column: str) -> dict[Cell, dict[str, int]]:
        sums: dict[Cell, dict[str, int]] = {}
        for run in self.runs:
            of_cell = sums.setdefault(Cell(*(run[name] for name in Cell._fields)), {})
            of_cell[run["policy"]] = of_cell.get(run["policy"], 0) + run[column]
        return sums


def compare(
    chosen: Iterable[Setting],
    seeds: Sequence[int],
    progress: Progress,
    bounded: int = 0,
    patience: float = PATIENCE,
) -> Comparison:
    """Run every policy in every cell of some settings.

    Args:
        chosen: the settings. One whose trace is not there is left out, and the comparison says so.
        seeds: of the workloads and the policies.
        progress: is told, line by line, what is being done.
        bounded: for how many of the seeds a bound tighter than the exact result is sought.
        patience: seconds that a bound may take.
    """
    found = Comparison()
    for setting in chosen:
        progress(str(setting))
        try:
            for number, seed in enumerate(seeds):
                repeats = REPEATS if number == 0 else 1
                seconds = patience if number < bounded else 0.0
                found.runs.extend(_runs(setting, seed, seconds, repeats))
        except InputError as missing:
            progress(f"left out, {setting}: {missing}")
            found.left_out[str(setting)] = str(missing)
    return found


def _runs(setting: Setting, seed: int, patience: float, repeats: int) -> list[Row]:
    """Every policy under every budget, on the streams of one seed."""
    streams = dict(setting.streams(seed))
    joined = key_join(streams, setting.window).seed(seed)
    exact = joined.count(streams).results
    runs = []
    for rows in setting.budgets:
        budgeted = joined.keep(total=rows) if setting.total else joined.keep(rows=rows)
        kept = {
            policy: budgeted.shed(policy).count(streams).results
            for policy in fitting(budgeted, streams)
        }
        again = {
            policy: _Repeats(budgeted.shed(policy), streams, kept[policy], repeats)
            for policy in kept
            if repeats > 1 and policy in (*OURS, EP)
        }
        bound = exact
        if patience and max(kept.values()) < exact:
            bound = most_results(budgeted, streams, seconds=patience).results
        for policy, results in kept.items():
            runs.append(
                {
                    "family": setting.family,
                    "workload": setting.workload,
                    "rows": rows,
                    "spread": setting.spread,
                    "seed": seed,
                    "policy": policy,
                    "results": results,
                    "exact": exact,
                    "bound": bound,
                    "share": results / bound if bound else 1.0,
                    "clairvoyant": patience > 0,
                    "luck": again[policy].spread if policy in again else None,
                    "seconds": again[policy].seconds if policy in again else None,
                }
            )
    return runs


class _Repeats:
    """The same streams joined under several seeds.

    Args:
        joined: the join, with its policy.
        streams: what is joined.
        results: what it makes under its own seed.
        times: under how many seeds it is run.

    Attributes:
        spread: how far the results are apart, as a part of their mean.
        seconds: of processor time, of the shortest run.
    """

    def __init__(self, joined: Join, streams: Streams, results: int, times: int) -> None:
        found, self.seconds = [results], float("inf")
        for seed in range(1, times):
            start = time.process_time()
            found.append(joined.seed(1_000 + seed).count(streams).results)
            self.seconds = min(self.seconds, time.process_time() - start)
        self.spread = (max(found) - min(found)) / fmean(found) if any(found) else 0.0


def fitting(joined: Join, streams: Streams) -> list[str]:
    """The policies, by name, that can serve a join; those of the papers come first."""
    schemas = {name: table.schema for name, table in streams.items()}
    found = []
    order = {name: number for number, name in enumerate(OURS, start=1)}
    for name in sorted(NAMED, key=lambda name: (order.get(name, 0), name)):
        if name in ELSEWHERE:
            continue
        try:
            joined.shed(name).plan(schemas)
        except SpecError:
            continue
        found.append(name)
    return found


# -- what is required -----------------------------------------------------------------------------


def requirements(found: Comparison) -> list[Requirement]:
    """All that is required of those of our policies that were run, as far as there are cells."""
    kept, bounds, exact = found.kept(), found.bounds(), found.exact()
    papers = found.of_papers

    def ratio(
        ours: str, others: Sequence[str], where: Callable[[Cell], bool] = lambda cell: True
    ) -> dict[Cell, float]:
        best = {cell: max(of[name] for name in others) for cell, of in kept.items() if where(cell)}
        return {cell: kept[cell][ours] / most for cell, most in best.items() if most}

    def spread_out(cell: Cell) -> bool:
        return cell.spread is not None and cell.spread >= 50.0

    required = []
    if "density" in found.policies:
        required += [
            Requirement(
                "results of density against those of the best policy of the papers",
                "times",
                0.98,
                ratio("density", papers),
            ),
            Requirement(
                "results of density against those of existence, spread 50 s or more",
                "times",
                3.0,
                ratio("density", [EP], spread_out),
            ),
            Requirement(
                "the same where existence keeps at most a third of the bound",
                "times",
                3.0,
                ratio(
                    "density",
                    [EP],
                    lambda cell: spread_out(cell) and 3 * kept[cell][EP] <= bounds[cell],
                ),
            ),
            Requirement(
                "share of the exact result that density keeps, spread 100 s, 500 rows",
                "of the exact result",
                0.85,
                {
                    cell: kept[cell]["density"] / exact[cell]
                    for cell in kept
                    if (cell.spread, cell.rows) == (100.0, 500) and exact[cell]
                },
            ),
            Requirement(
                "highest less lowest results of density under several seeds",
                "of the mean",
                0.1,
                found.spreads("density"),
                at_most=True,
            ),
        ]
    return [requirement for requirement in required if requirement.values]


def speeds(found: Comparison, policy: str, other: str) -> dict[Cell, float]:
    """For each cell the speed of a policy's join, as a multiple of that of another's."""
    taken, taken_by_other = found.seconds(policy), found.seconds(other)
    return {cell: taken_by_other[cell] / taken[cell] for cell in taken if cell in taken_by_other}


def against_the_best(found: Comparison) -> dict[str, tuple[float, Cell]]:
    """For each policy of the papers its results over those of the best of them, in the worst cell.

    None of them is good everywhere: this is how bad each can be.
    """
    papers = found.of_papers
    worst: dict[str, tuple[float, Cell]] = {}
    for cell, of in found.kept().items():
        most = max(of[name] for name in papers)
        for name in papers if most else []:
            worst[name] = min(worst.get(name, (1.0, cell)), (of[name] / most, cell))
    return worst


def shares(found: Comparison) -> dict[str, dict[str, float]]:
    """For each family the mean share of the bound that every policy keeps, cells counting alike."""
    means: dict[str, dict[str, list[float]]] = {}
    bounds = found.bounds()
    for cell, of in found.kept().items():
        for policy, results in of.items():
            listed_shares = means.setdefault(cell.family, {}).setdefault(policy, [])
            listed_shares.append(results / bounds[cell] if bounds[cell] else 1.0)
    return {
        family: {policy: sum(all_of) / len(all_of) for policy, all_of in of.items()}
        for family, of in means.items()
    }


def clairvoyant_share(found: Comparison, policy: str) -> tuple[float, int]:
    """The mean share of the bound that a policy keeps where one was sought, and in how many runs.

    Where a policy has kept all there is, the bound is known without being sought.
    """
    known = [
        run["share"] for run in found.runs if run["policy"] == policy and run.get("clairvoyant")
    ]
    return (fmean(known) if known else 1.0), len(known)


# -- the report -----------------------------------------------------------------------------------


def family(name: str) -> Callable[[Scale, Report], list[Claim]]:
    """The figure that compares the policies on a family of settings."""

    def figure(scale: Scale, report: Report) -> list[Claim]:
        bounded = len(scale.seeds) if scale.every == 1 else 0
        found = compare(settings(scale, [name]), scale.seeds, report.progress, bounded)
        if not found.runs:
            why = "; ".join(f"{setting}: {error}" for setting, error in found.left_out.items())
            return [judge(name, "there is such data here", why, {"data": False}, ours=True)]
        _write(report, found)
        return _claims(name, found)

    figure.__doc__ = f"Results kept of {name} settings, as a share of the bound."
    return figure


def _write(report: Report, found: Comparison) -> None:
    """Runs and a chart."""
    seeds = len(found.seeds)
    by = ["family", "workload", "rows"]
    for family in dict.fromkeys(run["family"] for run in found.runs):
        runs = [run for run in found.runs if run["family"] == family]
        name = stem("policies", "share-by-workload-rows", family=family, seeds=seeds)
        report.runs(name, runs)
        summary = summarise(runs, [*by, "policy"], "share")
        for value in ("results", "exact", "bound"):
            for row, more in zip(summary, summarise(runs, [*by, "policy"], value), strict=True):
                row[f"{value}_mean"] = more[f"{value}_mean"]
        report.chart(summary, "rows", "share", "policy", ["workload"])


def cells_page(found: Comparison) -> str:
    """All cells as Markdown: results kept, and the share of the bound."""
    kept, bounds, exact = found.kept(), found.bounds(), found.exact()
    policies, seeds = found.policies, len(found.seeds)
    said = ", ".join(map(str, found.seeds))
    parts = [f"Results kept, and share of the bound: means over seeds ({said})."]
    parts += [f"\nLeft out, {setting}: {why}" for setting, why in found.left_out.items()]
    overall = [
        [family, *(f"{of[policy]:.1%}" for policy in policies)]
        for family, of in shares(found).items()
    ]
    parts += ["", markdown_table(["mean share of the bound", *policies], overall)]
    for family in dict.fromkeys(cell.family for cell in kept):
        rows = [
            [
                f"{cell.workload}, {cell.rows} rows",
                *(
                    f"{of[policy] / seeds:,.0f} ({of[policy] / max(bounds[cell], 1):.1%})"
                    for policy in policies
                ),
                f"{bounds[cell] / seeds:,.0f}",
                f"{exact[cell] / seeds:,.0f}",
            ]
            for cell, of in kept.items()
            if cell.family == family
        ]
        heads = [f"{family}: cell", *policies, "bound", "exact"]
        parts += ["", markdown_table(heads, rows)]
    return "\n".join(parts) + "\n"


def _claims(name: str, found: Comparison) -> list[Claim]:
    worst = against_the_best(found)
    claims = [
        judge(
            name,
            "no policy of the papers is always near the best of them",
            markdown_table(
                ["policy", "of what the best keeps, in its worst cell", "cell"],
                [[policy, f"{share:.1%}", str(cell)] for policy, (share, cell) in worst.items()],
            )
            + f"\n\n{cells_page(found)}",
            {policy: share < 0.97 for policy, (share, _) in worst.items()},
            "",
            "Near is taken as: within 0.97.",
            ours=True,
        )
    ]
    for required in requirements(found):
        low = required.worst
        claims.append(
            judge(
                name,
                f"{required.says}: at {'most' if required.at_most else 'least'} {required.bar:.3g}",
                f"In the worst of {len(required.values)} cells: {required.values[low]:.3g} "
                f"{required.unit} ({low}).",
                {str(cell): required.number(cell) for cell in required.values},
                ours=True,
            )
        )
    return claims


PAPER = Paper(
    TITLE,
    {name: family(name) for name in FAMILIES},
    FULL,
    QUICK,
    about=__doc__,
    timed=frozenset(FAMILIES),
)
run = PAPER.run
