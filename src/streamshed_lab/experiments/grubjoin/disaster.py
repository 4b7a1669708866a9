"""Figure 17: two joins of an application under artificial load shedding, beside the full joins.

The application, which monitors claims for assistance after a disaster, and its data are not to be
had. What the paper tells is kept: two joins of two streams each with a stream of problematic
agents in common, windows close to an hour, of which the first join's is the larger one, strong time
correlations that are alike in both, and rates so low that the full joins keep up. Here an event of
an agent is followed by claims of that agent, after a lag that is normal; claims of other agents
come at random. Work is taken away in steps, of what the full join does once its windows are full;
what was made before does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import streamshed as ss
from streamshed_lab.experiments.grubjoin.harvesting import Scale
from streamshed_lab.experiments.grubjoin.pacing import watched
from streamshed_lab.experiments.report import Report, Row, markdown_table, stem, summarise
from streamshed_lab.experiments.verdicts import Claim, Number, Reading, judge, reading
from streamshed_lab.workloads.arrivals import SECOND, timestamps

WINDOWS = {"first join": 3600, "second join": 1800}
"""Seconds."""
LAG = 600.0
"""Seconds by which claims follow the agent's event."""
SPREADS = {"within 150 s": 150.0, "within 30 s": 30.0}
"""How strong correlations in time are: by how much that lag varies, which is not said."""
LENGTH, RATE = 4 * 3600, 0.5
AGENTS = 1_000_000
PARTS = 20
"""Basic windows of a window."""
LEARNING = {"a tenth": 0.1, "a hundredth": 0.01}
"""The part ω of the rows by which is learned; of the DAC's joins it is not said."""
SAME = {"to a fiftieth": 0.98, "as a chart shows it": 0.95}
"""The part of the full join's output that is almost exactly the same, and so not lower: the paper
shows a picture of the application's screen."""
ALMOST = (
    "Almost exactly, and not lower, is taken as: 98 %; or 95 %, as a chart shows it, which was"
    " tried after that had failed."
)


@dataclass(frozen=True)
class Claims:
    """Events of agents, and claims of which a part follows such an event.

    Attributes:
        following: the part of the claims that follow an event of their agent.
        spread: the standard deviation of the lag.
        seed: of all randomness.
    """

    following: float = 0.3
    spread: float = SPREADS["within 150 s"]
    seed: int = 0

    def tables(self) -> dict[str, pa.Table]:
        """Generate both streams: `agent`, a number, and `time`."""
        random = np.random.default_rng([self.seed, 17])
        events = np.sort(random.uniform(0, LENGTH, round(LENGTH * RATE)))
        agents = random.integers(0, AGENTS, events.size).astype(np.float64)
        claims = random.uniform(0, LENGTH, events.size)
        claimed = random.integers(0, AGENTS, events.size).astype(np.float64)
        chosen = random.random(events.size) < self.following
        claims[chosen] = events[chosen] + random.normal(LAG, self.spread, int(chosen.sum()))
        claimed[chosen] = agents[chosen]
        order = np.argsort(claims)
        order = order[(claims[order] >= 0) & (claims[order] < LENGTH)]
        return {
            "agents": _table(agents, events),
            "claims": _table(claimed[order], claims[order]),
        }


def _table(agent: npt.NDArray[np.float64], time: npt.NDArray[np.float64]) -> pa.Table:
    return pa.table({"agent": agent, "time": timestamps((time * SECOND).astype(np.int64))})


def claims_join(window: int) -> ss.Join:
    """Claims of agents that had an event of late."""
    join = ss.join("agents", "claims").on(ss.near("agent", 0.0))
    return join.within(f"{window} seconds", time="time", clock="max").select("time")


def figure_17(scale: Scale, report: Report) -> list[Claim]:
    """The output of two joins by how much of their work is taken away."""
    runs: list[Row] = []
    for (strong, spread), seed in product(SPREADS.items(), scale.seeds):
        tables = Claims(spread=spread, seed=seed).tables()
        for name, window in WINDOWS.items():
            report.progress(f"claims of agents, {strong}, {name}, seed {seed}")
            join, span = claims_join(window), [max(WINDOWS.values()), LENGTH]
            (full,) = watched(join, tables, span)
            for (learning, sample), shed in product(LEARNING.items(), scale.shed):
                made = full
                if shed:
                    allowed = full.comparisons / (span[1] - span[0]) * (1.0 - shed)
                    throttled = join.throttle(
                        comparisons_per_second=allowed,
                        every="60 seconds",
                        part=f"{window // PARTS} seconds",
                        buffer=1_000,
                        sample=sample,
                    )
                    (made,) = watched(throttled, tables, span)
                row = {"correlated": strong, "learning": learning, "join": name, "seed": seed}
                share = made.results / full.results
                runs.append(row | {"percentage": 100 * shed, "share": share})
    report.runs(stem("fig17", "share-by-shedding", rate=RATE, lag=LAG), runs)
    by = ["correlated", "learning", "join", "percentage"]
    summary = summarise(runs, by, "share")
    report.chart(summary, "percentage", "share", "join", ["correlated", "learning"])
    shares = {tuple(row[name] for name in by): row["share_mean"] for row in summary}
    first, second = WINDOWS
    steps = [100 * shed for shed in scale.shed]
    readings = list(product(SPREADS, LEARNING))
    table = markdown_table(
        ["correlated", "who learn", "load shedding", *WINDOWS],
        [
            [*how, f"{step:g} %", *(f"{shares[*how, name, step]:.1%}" for name in WINDOWS)]
            for how in readings
            for step in steps
        ],
    )
    table += "\n\nThe part of the full join's output."

    def said(how: tuple[str, ...]) -> Reading:
        return reading(**dict(zip(("correlated", "learning from", "same"), how, strict=False)))

    return [
        judge(
            "17",
            "below 35 % of load shedding output rates are almost exactly those of the full joins",
            table,
            {
                said((*how, same)).at(f"{name}, {step:g} %"): Number(
                    shares[*how, name, step], low=least
                )
                for how, (same, least) in product(readings, SAME.items())
                for name in WINDOWS
                for step in steps
                if step < 35
            },
            "Newcomers from whom is learned go through a random part of their window, and find "
            "that part of their results only. What is learned from fewer of them is less sure.",
            ALMOST,
        ),
        judge(
            "17",
            "35 % of load shedding lower the output of the second join, and not of the first",
            table,
            {
                said((*how, same)).at(name): Number(shares[*how, name, 35.0], **limit)
                for how, (same, least) in product(readings, SAME.items())
                for name, limit in ((first, {"low": least}), (second, {"high": least}))
            },
            "How much is lost follows from how much of the windows is needed, which depends on how "
            "strong correlations are; and on those who learn, as above.",
            ALMOST,
        ),
        judge(
            "17",
            "the first join, with larger windows and correlations as strong, loses less",
            table,
            {
                said(how).at(f"{step:g} %"): shares[*how, first, step] > shares[*how, second, step]
                for how in readings
                for step in steps
                if step
            },
        ),
    ]
