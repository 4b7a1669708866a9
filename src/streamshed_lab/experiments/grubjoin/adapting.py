"""Figures 2 and 14 to 16: how the throttle and what is gone through follow the streams."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np

from streamshed_lab.experiments.grubjoin.charging import Charge, adaptation_seconds, at_charge
from streamshed_lab.experiments.grubjoin.harvesting import Scale
from streamshed_lab.experiments.grubjoin.output import (
    BUFFER,
    DECIDED,
    EVERY,
    LENGTH,
    PART,
    RULES,
    capacity,
    charges,
    power,
    waiting,
    work,
)
from streamshed_lab.experiments.grubjoin.pacing import (
    WINDOW,
    Span,
    epsilon_join,
    watched,
)
from streamshed_lab.experiments.report import Report, Row, markdown_table, stem, summarise
from streamshed_lab.experiments.verdicts import QUARTER, Claim, judge, near, reading
from streamshed_lab.workloads import LaggingWorkload

DEVIATED = (25.0, 50.0, 75.0)
"""Of the third stream, κ₃, in figure 14."""
BUFFERS = ("as they are", "empty")
"""What waits in figure 16 when the throttle is set to 1: what did before; or nothing, as if there
had been time for all until then."""
LAST = 20.0
"""Seconds that are looked at in figure 16."""
BEST_INTERVALS = {3: 0.5, 4: 1.0, 5: 3.0}
"""Seconds between adaptations at which the paper has most output, by the number of streams."""


def figure_2(scale: Scale, report: Report) -> list[Claim]:
    """How the throttle follows changing rates; and how near the work is to what is allowed."""
    rates = ((0.0, 100.0), (40.0, 200.0), (80.0, 100.0), (120.0, 300.0))
    limit, seconds = capacity(), 160.0
    edges = np.arange(0.0, seconds + 1, 4.0)
    runs: list[Row] = []
    for seed in scale.seeds:
        report.progress(f"changing rates, seed {seed}")
        streams = work("aligned", rates, seed, seconds=seconds)
        said = epsilon_join(streams.names).throttle(
            comparisons_per_second=limit, every="4 seconds", part="2 seconds", buffer=100
        )
        for time, span in zip(
            edges[1:], watched(said, streams.tables(), edges.tolist()), strict=True
        ):
            rate = [rate for start, rate in rates if start < time][-1]
            spent = span.comparisons / 4.0 / limit
            runs.append({"time": time, "rate": rate, "throttle": span.throttle, "work": spent})
    name = stem("fig02", "throttle", capacity=round(limit), every="4s")
    report.runs(name, runs)
    summary = summarise(runs, ["time", "rate"], "throttle")
    for row, more in zip(summary, summarise(runs, ["time"], "work"), strict=True):
        row["work_mean"] = more["work_mean"]
    report.chart(summary, "time", "throttle", "rate")
    settled = {
        rate: [row for row in summary if row["rate"] == rate and start + WINDOW < row["time"]]
        for start, rate in rates[1:]
    }
    slow, fast = (
        np.mean([row["throttle_mean"] for row in settled[rate]]) for rate in (100.0, 300.0)
    )
    busy = [row["work_mean"] for row in settled[200.0]]
    table = f"Throttle {slow:.2f} at 100/s and {fast:.3f} at 300/s; work at 200/s, in intervals of"
    table += f" 4 s once windows are full: {', '.join(f'{share:.1%}' for share in busy)}."
    changed = [row["work_mean"] for row in summary if row["time"] > 4]
    return [
        judge("2", "the throttle goes down when rates go up", table, {"100 to 300": fast < slow}),
        judge(
            "2",
            "work is within 5 % of the throttle once settled",
            table,
            {"200/s": abs(float(np.mean(busy)) - 1) <= 0.05},
            "Taken as: the mean over all intervals with full windows.",
            ours=True,
        ),
        judge(
            "2",
            "work is never more than 5 % above the throttle, not in an interval after a change",
            f"At most {max(changed):.1%} in an interval.",
            {"all": max(changed) <= 1.05},
            ours=True,
        ),
    ]


def figure_16(scale: Scale, report: Report) -> list[Claim]:
    """Rows that are dropped in transition, by the size of the buffers."""
    rate = 200.0
    sizes = {"10 rows": 10, "1 s": round(rate), "2 s": round(2 * rate)}
    runs: list[Row] = []
    readings = list(product(charges(), DECIDED, BUFFERS, RULES))
    for (size, rows), seed in product(sizes.items(), scale.seeds):
        report.progress(f"buffers of {size}, seed {seed}")
        streams = work("aligned", rate, seed)
        for charged, when, before, by in readings:
            span = in_transition(streams, charges()[charged], rows, when, before, by)
            setting = {"charged": charged, "decided": when, "buffers": before, "throttle": by}
            found = {"buffer": size, "seed": seed, "dropped": span.shed / span.arrived}
            runs.append(setting | found)
    report.runs(stem("fig16", "dropped-by-buffer", capacity=round(capacity()), rate=rate), runs)
    by_setting = ["charged", "decided", "buffers", "throttle", "buffer"]
    summary = summarise(runs, by_setting, "dropped")
    report.chart(summary, "buffer", "dropped", "throttle", by_setting[:3])
    lost = {tuple(row[part] for part in by_setting): row["dropped_mean"] for row in summary}
    cells = [[*at, *(f"{lost[*at, size]:.1%}" for size in sizes)] for at in readings]
    heads = ["charged", "how a row is processed is decided", "buffers at first", "throttle", *sizes]
    return [
        judge(
            "16",
            "1 second buffers can cut the drop rate around 30 % and 2 seconds buffers around 50 %",
            markdown_table(heads, cells),
            {
                reading(charged=at[0], decided=at[1], buffers=at[2], throttle=at[3]).at(size): near(
                    1 - lost[*at, size] / max(1e-9, lost[*at, "10 rows"]), cut
                )
                for at in readings
                for size, cut in (("1 s", 0.3), ("2 s", 0.5))
            },
            "At 200 rows/s, in 20 s that begin with full windows and a throttle of 1. Where it "
            "is decided when a row comes, rows from before the throttle was set anew hold the "
            "others up, the longer the more of them wait. And a join that has fallen behind once "
            "keeps its buffers full, of whatever size: nothing in section III-A drains them.",
            QUARTER,
        )
    ]


def in_transition(
    streams: LaggingWorkload, charge: Charge, rows: int, when: str, before: str, by: str
) -> Span:
    """What a join does in the last seconds, which begin with a throttle of 1.

    Args:
        streams: what is joined.
        charge: what is charged besides comparisons.
        rows: of each stream that may wait.
        when: when it is decided how a row goes through windows.
        before: what waits as they begin.
        by: what the throttle is set by.
    """

    def run(comparisons: float) -> Span:
        join = epsilon_join(streams.names).throttle(
            comparisons_per_second=comparisons,
            every=f"{EVERY:g} seconds",
            part=f"{PART:g} seconds",
            buffer=rows,
            rule=RULES[by],
        )
        (span,) = watched(
            waiting(join, rows, when),
            streams.tables(),
            [LENGTH - LAST, LENGTH],
            afresh=True,
            unbounded=before == BUFFERS[1],
        )
        return span

    lost = 0.0
    if charge.adaptation:
        lost = adaptation_seconds(len(streams.lags), WINDOW / PART) / EVERY
    return at_charge(run, power(charge), LAST, charge, lost)


def charged_output(streams: LaggingWorkload, charge: Charge, every: float, part: float) -> float:
    """The results of a throttled join in a second, where adapting is charged or not."""
    length, tables = streams.seconds - WINDOW, streams.tables()

    def harvested(comparisons: float) -> Span:
        join = epsilon_join(streams.names).throttle(
            comparisons_per_second=comparisons,
            every=f"{round(every * 1000)} ms",
            part=f"{round(part * 1000)} ms",
            buffer=BUFFER,
        )
        (span,) = watched(join, tables, [WINDOW, streams.seconds])
        return span

    lost = 0.0
    if charge.adaptation:
        lost = adaptation_seconds(len(streams.lags), WINDOW / part) / every
    return at_charge(harvested, power(charge), length, charge, lost).results / length


def figure_14(scale: Scale, report: Report) -> list[Claim]:
    """The output by the length of basic windows."""
    runs: list[Row] = []
    for third, part in product(DEVIATED, scale.parts):
        report.progress(f"deviation {third:g}, basic windows of {part:g} s")
        for (charged, charge), seed in product(charges().items(), scale.seeds):
            streams = work("nonaligned", 200.0, seed, third=third)
            row = {"charged": charged, "deviation": third, "part": part, "seed": seed}
            runs.append(row | {"output": charged_output(streams, charge, EVERY, part)})
    name = stem("fig14", "output-by-part", rate=200, capacity=round(capacity()))
    report.runs(name, runs)
    summary = summarise(runs, ["charged", "deviation", "part"], "output")
    report.chart(summary, "part", "output", "deviation", ["charged"])
    made = {(r["charged"], r["deviation"], r["part"]): r["output_mean"] for r in summary}
    cells = [
        [charged, f"{part:g} s", *(f"{made[charged, third, part]:,.0f}" for third in DEVIATED)]
        for charged in charges()
        for part in scale.parts
    ]
    table = markdown_table(["charged", "b", *(f"κ₃ = {third:g}" for third in DEVIATED)], cells)
    low, high = scale.parts[0], scale.parts[-1]

    def best(charged: str, third: float) -> float:
        return max(scale.parts, key=lambda part: made[charged, third, part])

    return [
        judge(
            "14",
            "smaller basic windows make more output, the more so the stronger the correlations",
            table,
            {
                reading(charged=c).at(cell): holds
                for c in charges()
                for cell, holds in (
                    (
                        "κ₃ = 25",
                        max(made[c, 25.0, part] for part in scale.parts[:-1]) > made[c, 25.0, high],
                    ),
                    (
                        "flatter",
                        made[c, 75.0, low] / made[c, 75.0, high]
                        < made[c, 25.0, low] / made[c, 25.0, high],
                    ),
                )
            },
        ),
        judge(
            "14",
            "decreasing the basic window size further hurts",
            table,
            {
                reading(charged=c).at(f"κ₃ = {third:g}"): best(c, third) > low
                for c in charges()
                for third in DEVIATED
            },
            f"Taken as: the best size is not {low:g} s, the smallest of those tried.",
        ),
        judge(
            "14",
            "the best basic window size grows with decreasing correlations",
            table,
            {
                reading(charged=c).at(f"κ₃ = {one:g} to {other:g}"): best(c, one) <= best(c, other)
                for c in charges()
                for one, other in pairwise(DEVIATED)
            }
            | {
                reading(charged=c).at("25 to 75, at all"): best(c, 25.0) < best(c, 75.0)
                for c in charges()
            },
        ),
    ]


def figure_15(scale: Scale, report: Report) -> list[Claim]:
    """The output by how often what is gone through is said anew."""
    rates = tuple((8.0 * k, (100.0, 150.0, 50.0)[k % 3]) for k in range(8))
    runs: list[Row] = []
    for streams, every in product(BEST_INTERVALS, scale.intervals):
        report.progress(f"{streams} streams, adapting every {every:g} s")
        for (charged, charge), seed in product(charges().items(), scale.seeds):
            lagging = work("nonaligned", rates, seed, streams, seconds=64.0)
            row = {"charged": charged, "streams": streams, "every": every, "seed": seed}
            runs.append(row | {"output": charged_output(lagging, charge, every, PART)})
    name = stem("fig15", "output-by-interval", capacity=round(capacity()))
    report.runs(name, runs)
    summary = summarise(runs, ["charged", "streams", "every"], "output")
    report.chart(summary, "every", "output", "streams", ["charged"])
    made = {(r["charged"], r["streams"], r["every"]): r["output_mean"] for r in summary}
    cells = [
        [charged, f"{every:g} s", *(f"{made[charged, m, every]:,.1f}" for m in BEST_INTERVALS)]
        for charged in charges()
        for every in scale.intervals
    ]
    table = markdown_table(["charged", "Δ", *(f"m = {m}" for m in BEST_INTERVALS)], cells)
    short, long = scale.intervals[0], scale.intervals[-1]

    def best(charged: str, m: int) -> float:
        return max(scale.intervals, key=lambda every: made[charged, m, every])

    return [
        judge(
            "15",
            "where rates change often, a short interval makes more output than a long one",
            table,
            {
                reading(charged=c).at(f"m = {m}"): made[c, m, short] > made[c, m, long]
                for c in charges()
                for m in BEST_INTERVALS
            },
        ),
        judge(
            "15",
            "the best interval is 0.5 s for m = 3, 1 s for m = 4 and 3 s for m = 5",
            table,
            {
                reading(charged=c).at(f"m = {m}"): best(c, m) == _nearest(scale.intervals, said)
                for c in charges()
                for m, said in BEST_INTERVALS.items()
            },
            "Adapting costs as little as figure 8 says; what decides is how soon rates change.",
            "The one of those tried that is nearest to the paper's.",
        ),
        judge(
            "15",
            "the best interval grows with the number of streams",
            table,
            {
                reading(charged=c).at(f"m = {m} to {m + 1}"): best(c, m) <= best(c, m + 1)
                for c in charges()
                for m in (3, 4)
            }
            | {reading(charged=c).at("at all"): best(c, 3) < best(c, 5) for c in charges()},
        ),
    ]


def _nearest(values: tuple[float, ...], said: float) -> float:
    return min(values, key=lambda value: abs(value - said))
