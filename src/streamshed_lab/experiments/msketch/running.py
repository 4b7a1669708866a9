"""What the figures have in common: scales, policies by the paper's names, and the join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamshed as ss
from streamshed.policies import Density, Oldest, Pairwise, Policy, Random, Sketch
from streamshed_lab.experiments.report import Row, markdown_table, summarise
from streamshed_lab.experiments.verdicts import Reading
from streamshed_lab.workloads.regions import CONDITIONS, NAMES, RegionWorkload

WINDOW = 500
"""Of the join, in seconds; a row comes every second."""
PARTS = {8: "5 %", 42: "25 %", 84: "50 %", 126: "75 %", 167: "100 %"}
"""Rows of each window that are kept, and the part of a full window that they are."""
FLAT, SKEWED = (0.1, 0.5), (1.6, 2.0)
SKEWS = (FLAT, (0.6, 1.0), (1.1, 1.5), SKEWED)
"""Ranges of z-intra."""

SUBSET: Mapping[str, Policy] = {
    "MSketch": Sketch(),
    "BJoin": Pairwise(),
    "MSketch*Age": Sketch(aging=True),
    "Aging": Oldest(),
    "Rand": Random(),
}
BESIDE: Mapping[str, Policy] = {"density": Density()}
"""What is ours, and is shown beside the paper's: of joins by equalities it is MSketch itself."""
ORDERS = {"(R1 ⋈ R2) ⋈ R3": NAMES, "R1 ⋈ (R2 ⋈ R3)": NAMES[::-1]}
"""Sequences of binary joins, as the order of streams: each is joined with the first that it can."""
IN_TURN, LAST_TWO = ORDERS
OTHER_BJOIN = f"BJoin, {LAST_TWO}"
RESULTS_BJOIN = "BJoin, R3 with R1 ⋈ R2"
PLAIN = {
    "queue": "shared, by results added",
    "processed": "a row in 5 seconds",
    "gap": "times as many, of shares",
    "volume": "100",
    "memory": "of each window",
    "windows": "all",
    "time": "for each row",
    "others": "with MSketch*Age",
    "poor": "by more than a fifth",
    "improvement": "some, within a fifth",
}
"""How the paper was read at first."""
OTHERS = {
    "with MSketch*Age": ("BJoin", "MSketch*Age", "Aging", "Rand"),
    "BJoin, Aging and Rand": ("BJoin", "Aging", "Rand"),
}
"""Whom MSketch outperforms: all that are shown, or those of which section 5.1.1 says, of the queue,
that they are compared; the other is MSketch itself with its measure times the lifetime left."""
ABOUT = 0.2
ALIKE = "About is taken as: within a fifth."
ANY = Reading()
MORE = "More is taken as: a larger mean."
MUCH_MORE = "Taken as: a mean that is larger by more than the fifth within which results are alike."


@dataclass(frozen=True)
class Scale:
    """How much of everything to run."""

    tuples: int = 10_000
    regions: int = 10
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    samples: tuple[int, ...] = tuple(range(1, 21))
    memories: tuple[int, ...] = tuple(PARTS)
    volumes: tuple[int, ...] = (100, 1_000, 10_000)
    census: int = 50_000
    rounds: int = 3


FULL = Scale()

QUICK = Scale(
    tuples=1_500,
    regions=3,
    seeds=(1, 2),
    samples=(1, 2, 3, 4, 5),
    memories=(8, 42, 84),
    volumes=(100, 1_000),
    census=3_000,
    rounds=2,
)


def region_join(seed: int, late: int = 0, order: str = IN_TURN, window: int = WINDOW) -> ss.Join:
    """The paper's query, without a budget.

    Args:
        seed: of what policies decide by lot.
        late: so many seconds rows may be taken out of order.
        order: of binary joins, where a policy goes by one of `ORDERS`.
        window: in the time that passes from one row to the next.
    """
    join = ss.join(*ORDERS[order]).on(*CONDITIONS)
    return join.within(window, time="time", late=late, clock="max").seed(seed)


def region_work(
    scale: Scale, intra: tuple[float, float], seed: int, volume: int = 100
) -> RegionWorkload:
    """The paper's data."""
    return RegionWorkload(
        tuples=scale.tuples, regions=scale.regions, volume=volume, intra=intra, seed=seed
    )


def ranged(intra: tuple[float, float]) -> str:
    """A range of skews in words, for tables and the names of files."""
    return f"{intra[0]:g}-{intra[1]:g}"


@dataclass(frozen=True)
class Compared:
    """Runs of several policies in several settings and seeds, compared setting by setting.

    Attributes:
        runs: one row each, with the columns `policy` and `seed`, the setting and the measure.
        setting: the column that tells settings apart.
        measure: what was measured.
        form: how its values are written.
    """

    runs: Sequence[Row]
    setting: str
    measure: str = "results"
    form: str = ",.0f"

    def means(self) -> dict[tuple[object, str], float]:
        """The mean over seeds, by setting and policy."""
        rows = summarise(self.runs, [self.setting, "policy"], self.measure)
        return {(row[self.setting], row["policy"]): row[f"{self.measure}_mean"] for row in rows}

    def settings(self) -> list[object]:
        """All settings, in their order."""
        return list(dict.fromkeys(run[self.setting] for run in self.runs))

    def policies(self) -> list[str]:
        """All policies, in their order."""
        return list(dict.fromkeys(run["policy"] for run in self.runs))

    def won(self, setting: object, one: str, other: str, more: bool = True) -> str:
        """In how many seeds a policy has more (or less) than another, in words."""
        found: dict[object, dict[str, float]] = {}
        for run in self.runs:
            if run[self.setting] == setting:
                found.setdefault(run["seed"], {})[run["policy"]] = run[self.measure]
        wins = sum((pair[one] > pair[other]) == more for pair in found.values())
        return f"{wins} of {len(found)} seeds"

    def table(self) -> str:
        """Means and deviations over seeds, as Markdown."""
        form = self.form
        rows = summarise(self.runs, [self.setting, "policy"], self.measure)
        cells = {
            (
                row[self.setting],
                row["policy"],
            ): f"{row[f'{self.measure}_mean']:{form}} ± {row[f'{self.measure}_deviation']:{form}}"
            for row in rows
        }
        policies = self.policies()
        return markdown_table(
            [self.setting, *policies],
            [
                [str(setting), *(cells[setting, policy] for policy in policies)]
                for setting in self.settings()
            ],
        )

    def _there(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The pairs of which both were run."""
        ran = set(self.policies())
        return [pair for pair in pairs if ran.issuperset(pair)]

    def more(
        self,
        pairs: Sequence[tuple[str, str]],
        said: Reading = ANY,
        times: float = 1.0,
    ) -> dict[Reading, bool]:
        """Whether the first of each pair has the larger mean, setting by setting, in a reading.

        Args:
            pairs: the one that is to have more, and the other.
            said: the reading.
            times: by how many times it is to be larger.
        """
        means = self.means()
        pairs = self._there(pairs)
        return {
            said.at(
                f"{one} over {other}, {self.setting} {setting} ({self.won(setting, one, other)})"
            ): means[setting, one] > times * means[setting, other]
            for one, other in pairs
            for setting in self.settings()
        }

    def alike(
        self,
        pairs: Sequence[tuple[str, str]],
        said: Reading = ANY,
    ) -> dict[Reading, bool]:
        """Whether the two of each pair are about equal, setting by setting, in a reading."""
        means = self.means()
        pairs = self._there(pairs)
        return {
            said.at(f"{one} and {other}, {self.setting} {setting}"): (
                abs(means[setting, one] / means[setting, other] - 1) <= ABOUT
            )
            for one, other in pairs
            for setting in self.settings()
        }
