"""GrubJoin: which parts of windows are gone through when there is no time for all of them.

Gedik, Wu, Yu, Liu: *GrubJoin: an adaptive, multi-way, windowed stream join with time
correlation-aware CPU load shedding*. Where the paper is silent, this was decided:

* **Work** is counted in comparisons, in the join's own time, not in time on the paper's machine.
  The capacity is what the full three-way, nonaligned join costs at 100 tuples a second, the rate at
  which the paper says that shedding begins. What adapting costs is not counted: it takes about a
  millisecond (figures 8 to 10).
* **RandomDrop** thins the streams out before the join, at the statically best rates, knowing rates
  and selectivities beforehand, and is given as many comparisons as GrubJoin made.
* **Lags and deviations** of the fourth and fifth stream (figures 13 and 15): 10 and 12 s, 50.
* **The throttle** is set anew by the work done (here), or by the rows processed in time alone, as
  section III-A has it (`by rows`): both in figures 11 and 16.
* **Runs** are a minute; the first 20 seconds do not count. Buffers hold 10 rows unless said.
* **The video streams** are synthetic: vectors of 512 elements, of which some are planted twice, a
  noisy copy in each stream within a minute. Windows are an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Literal

import numpy as np

from streamshed_lab.experiments.harvesting import (
    FULL,
    QUICK,
    Scale,
    figure_4,
    figure_7,
    figures_8_to_10,
)
from streamshed_lab.experiments.pacing import (
    WINDOW,
    epsilon_join,
    full_load,
    random_drop,
    taken_in_turn,
    watched,
)
from streamshed_lab.experiments.report import Paper, Report, Row, markdown_table, stem, summarise
from streamshed_lab.experiments.scenes import random_scenes, watch_scenes
from streamshed_lab.experiments.verdicts import QUARTER, Claim, judge, near, reading
from streamshed_lab.workloads import LaggingWorkload

TITLE = "GrubJoin: window harvesting and operator throttling (Gedik, Wu, Yu, Liu)"

LAGS = (0.0, 5.0, 15.0, 10.0, 12.0)
DEVIATIONS = (2.0, 2.0, 50.0, 50.0, 50.0)
BUFFER = 10
LENGTH = 60.0
KINDS = ("aligned", "nonaligned")
RULES: Mapping[str, Literal["work", "paper"]] = {"by work": "work", "by rows": "paper"}
"""How the throttle is set anew: by the work done, as here; or by the rows processed in time alone,
as section III-A has it."""
DECIDED = ("when it comes", "when it is taken")
"""When it is decided how a row goes through windows: as in the engine, or as in section III-B."""
PLAIN = {"throttle": "by work", "decided": "when it comes"}
"""How the paper was read at first."""


def work(
    kind: str,
    rate: float | tuple[tuple[float, float], ...],
    seed: int,
    streams: int = 3,
    third: float = DEVIATIONS[2],
    seconds: float = LENGTH,
) -> LaggingWorkload:
    """The streams of section VI-B."""
    lags = LAGS[:streams] if kind == "nonaligned" else (0.0,) * streams
    deviations = (*DEVIATIONS[:2], third, *DEVIATIONS[3:])[:streams]
    return LaggingWorkload(lags, deviations, seconds, rate, seed=seed)


def capacity() -> float:
    """Comparisons in a second: the full join at the rate at which shedding begins."""
    return full_load(work("nonaligned", 100.0, 0))


def compared(streams: LaggingWorkload, comparisons: float, **said: object) -> dict[str, float]:
    """The output of GrubJoin and of RandomDrop in a second, at equal comparisons."""
    join = epsilon_join(streams.names).throttle(
        **({"comparisons_per_second": comparisons, "part": "2 seconds", "buffer": BUFFER} | said)  # type: ignore[arg-type]
    )
    length = streams.seconds - WINDOW
    (ours,) = watched(join, streams.tables(), [WINDOW, streams.seconds])
    slow = work(_kind(streams), 50.0, 0, len(streams.lags), streams.deviations[2])
    dropped = random_drop(streams, slow, ours.comparisons / length)
    return {
        "grubjoin": ours.results / length,
        "randomdrop": dropped.results / length,
        "improvement": ours.results / max(1, dropped.results) - 1,
        "work": ours.comparisons / length / comparisons,
        "work of randomdrop": dropped.comparisons / length / comparisons,
        "throttle": ours.throttle,
    }


def _kind(streams: LaggingWorkload) -> str:
    return KINDS[any(streams.lags)]


def _improvements(
    report: Report, name: str, runs: list[Row], by: list[str]
) -> tuple[str, dict[tuple[object, ...], float]]:
    """Write tables and a chart of runs; returns a table in words, and the mean improvements.

    An improvement is that of the mean outputs: a run without any output would decide all.
    """
    report.runs(name, runs)
    ours, theirs = summarise(runs, by, "grubjoin"), summarise(runs, by, "randomdrop")
    lines = [
        {part: row[part] for part in by}
        | {
            "operator": name,
            "output_mean": row[f"{measure}_mean"],
            "output_deviation": row[f"{measure}_deviation"],
        }
        for name, measure, rows in (
            ("GrubJoin", "grubjoin", ours),
            ("RandomDrop", "randomdrop", theirs),
        )
        for row in rows
    ]
    report.chart(lines, by[-1], "output", "operator", by[:-1])
    rows: list[Row] = []
    for one, other, spent in zip(ours, theirs, summarise(runs, by, "work"), strict=True):
        gain = one["grubjoin_mean"] / max(1e-9, other["randomdrop_mean"]) - 1
        more = {"randomdrop_mean": other["randomdrop_mean"], "improvement_mean": gain}
        rows.append(one | more | {"work_mean": spent["work_mean"]})
    heads = [*by, "GrubJoin /s", "RandomDrop /s", "improvement", "work of the throttle"]
    cells = [
        [
            *(str(row[part]) for part in by),
            f"{row['grubjoin_mean']:,.0f}",
            f"{row['randomdrop_mean']:,.0f}",
            f"{row['improvement_mean']:+.0%}",
            f"{row['work_mean']:.1%}",
        ]
        for row in rows
    ]
    gains = {tuple(row[part] for part in by): row["improvement_mean"] for row in rows}
    return markdown_table(heads, cells), gains


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
        ),
        judge(
            "2",
            "work is never more than 5 % above the throttle, not in an interval after a change",
            f"At most {max(changed):.1%} in an interval.",
            {"all": max(changed) <= 1.05},
        ),
    ]


def figure_11(scale: Scale, report: Report) -> list[Claim]:
    """The output by the rate of the streams."""
    limit = capacity()
    runs: list[Row] = []
    for kind in KINDS:
        for rate in scale.rates:
            report.progress(f"{kind} at {rate:g}/s")
            for by, rule in RULES.items():
                for seed in scale.seeds:
                    found = compared(work(kind, rate, seed), limit, rule=rule)
                    said = {"throttle": by, "kind": kind, "rate": rate, "seed": seed}
                    runs.append(found | said | {"z": found["throttle"]})
    name = stem("fig11", "output-by-rate", capacity=round(limit))
    table, gains = _improvements(report, name, runs, ["throttle", "kind", "rate"])
    top = scale.rates[-1]
    return [
        judge(
            "11",
            "up to 65 % more output aligned, 150 % nonaligned",
            table,
            {
                reading(throttle=by).at(f"{kind}, {top:g}/s"): near(gains[by, kind, top], said)
                for by in RULES
                for kind, said in (("aligned", 0.65), ("nonaligned", 1.5))
            },
            tolerance=QUARTER,
        ),
        judge(
            "11",
            "the improvement grows with the rate",
            table,
            {
                reading(throttle=by).at(f"{kind}, {low:g} to {high:g}"): (
                    gains[by, kind, low] <= gains[by, kind, high]
                )
                for by in RULES
                for kind in KINDS
                for low, high in zip(scale.rates, scale.rates[1:], strict=False)
                if low >= 100
            },
        ),
    ]


def figure_12(scale: Scale, report: Report) -> list[Claim]:
    """The output by how strongly streams are correlated in time."""
    limit, said = capacity(), {25.0: 2.5, 50.0: 1.5, 75.0: 0.25}
    runs: list[Row] = []
    for third in (*said, 150.0, 300.0):
        report.progress(f"deviation {third:g} of the third stream")
        for seed in scale.seeds:
            found = compared(work("nonaligned", 200.0, seed, third=third), limit)
            runs.append({"deviation": third, "seed": seed} | found)
    name = stem("fig12", "output-by-deviation", rate=200, capacity=round(limit))
    table, gains = _improvements(report, name, runs, ["deviation"])
    return [
        judge(
            "12",
            "250, 150 and 25 % more output for deviations of 25, 50 and 75",
            table,
            {f"κ₃ = {third:g}": near(gains[(third,)], gain) for third, gain in said.items()},
            tolerance=QUARTER,
        ),
        judge(
            "12",
            "the improvement shrinks as correlations fade",
            table,
            {"25 to 300": gains[(25.0,)] > gains[(300.0,)]},
        ),
    ]


def figure_13(scale: Scale, report: Report) -> list[Claim]:
    """The improvement by the number of streams."""
    limit = capacity()
    runs: list[Row] = []
    for kind in KINDS:
        for streams in (3, 4, 5):
            report.progress(f"{kind}, {streams} streams")
            for seed in scale.seeds:
                found = compared(work(kind, 100.0, seed, streams), limit)
                runs.append({"kind": kind, "streams": streams, "seed": seed} | found)
    name = stem("fig13", "output-by-streams", rate=100, capacity=round(limit))
    table, gains = _improvements(report, name, runs, ["kind", "streams"])
    return [
        judge(
            "13",
            "the improvement grows with the number of streams, to 700 % for five",
            table,
            {
                **{f"{kind}, 3 to 4": gains[kind, 3] < gains[kind, 4] for kind in KINDS},
                **{f"{kind}, 4 to 5": gains[kind, 4] < gains[kind, 5] for kind in KINDS},
                "nonaligned, five": near(gains["nonaligned", 5], 7.0),
            },
            "Nonaligned, five streams cost very different amounts from one interval to the next; "
            "with buffers of 10 rows much of the work that is allowed is not done in the minute.",
            QUARTER,
        )
    ]


def figure_14(scale: Scale, report: Report) -> list[Claim]:
    """The output by the length of basic windows."""
    limit = capacity()
    runs: list[Row] = []
    for third in (25.0, 50.0, 75.0):
        for part in scale.parts:
            report.progress(f"deviation {third:g}, basic windows of {part:g} s")
            for seed in scale.seeds:
                streams = work("nonaligned", 200.0, seed, third=third)
                said = epsilon_join(streams.names).throttle(
                    comparisons_per_second=limit, part=f"{part:g} seconds", buffer=BUFFER
                )
                (span,) = watched(said, streams.tables(), [WINDOW, LENGTH])
                row = {"deviation": third, "part": part, "seed": seed}
                runs.append(row | {"output": span.results / (LENGTH - WINDOW)})
    name = stem("fig14", "output-by-part", rate=200, capacity=round(limit))
    report.runs(name, runs)
    summary = summarise(runs, ["deviation", "part"], "output")
    report.chart(summary, "part", "output", "deviation")
    made = {(row["deviation"], row["part"]): row["output_mean"] for row in summary}
    cells = [
        [f"{part:g} s", *(f"{made[third, part]:,.0f}" for third in (25.0, 50.0, 75.0))]
        for part in scale.parts
    ]
    table = markdown_table(["b", "κ₃ = 25", "κ₃ = 50", "κ₃ = 75"], cells)
    low, high = scale.parts[0], scale.parts[-1]
    return [
        judge(
            "14",
            "smaller basic windows make more output, the more so the stronger the correlations",
            table,
            {
                "κ₃ = 25": max(made[25.0, part] for part in scale.parts[:-1]) > made[25.0, high],
                "flatter": made[75.0, low] / made[75.0, high] < made[25.0, low] / made[25.0, high],
            },
            "That too small ones make less again is due to what setting them costs, which does not "
            "count here.",
        )
    ]


def figure_15(scale: Scale, report: Report) -> list[Claim]:
    """The output by how often what is gone through is said anew."""
    rates = tuple((8.0 * k, (100.0, 150.0, 50.0)[k % 3]) for k in range(8))
    limit = capacity()
    runs: list[Row] = []
    for streams in (3, 4, 5):
        for every in scale.intervals:
            report.progress(f"{streams} streams, adapting every {every:g} s")
            for seed in scale.seeds:
                lagging = work("nonaligned", rates, seed, streams, seconds=64.0)
                said = epsilon_join(lagging.names).throttle(
                    comparisons_per_second=limit,
                    every=f"{round(every * 1000)} ms",
                    part="2 seconds",
                    buffer=BUFFER,
                )
                (span,) = watched(said, lagging.tables(), [WINDOW, 64.0])
                row = {"streams": streams, "every": every, "seed": seed}
                runs.append(row | {"output": span.results / 44.0})
    name = stem("fig15", "output-by-interval", capacity=round(limit))
    report.runs(name, runs)
    summary = summarise(runs, ["streams", "every"], "output")
    report.chart(summary, "every", "output", "streams")
    made = {(row["streams"], row["every"]): row["output_mean"] for row in summary}
    cells = [
        [f"{every:g} s", *(f"{made[m, every]:,.1f}" for m in (3, 4, 5))]
        for every in scale.intervals
    ]
    short, long = scale.intervals[0], scale.intervals[-1]
    return [
        judge(
            "15",
            "where rates change often, a short interval makes more output than a long one",
            markdown_table(["Δ", "m = 3", "m = 4", "m = 5"], cells),
            {f"m = {m}": made[m, short] > made[m, long] for m in (3, 4, 5)},
            "That the best interval grows with m is due to what adapting costs, which does not "
            "count here.",
        )
    ]


def table_2(scale: Scale, report: Report) -> list[Claim]:
    """The improvement by what a comparison costs."""
    said = {1: 0.06, 2: 0.10, 4: 0.15, 6: 0.22, 8: 0.27, 10: 0.35}
    limit = capacity()
    runs: list[Row] = []
    for times in said:
        report.progress(f"comparisons that cost {times} times as much")
        for seed in scale.seeds:
            found = compared(work("nonaligned", 75.0, seed), limit / times)
            runs.append({"cost": times, "seed": seed} | found)
    name = stem("tab02", "improvement-by-cost", rate=75, capacity=round(limit))
    table, gains = _improvements(report, name, runs, ["cost"])
    return [
        judge(
            "II",
            "6, 10, 15, 22, 27 and 35 % more output for costs of 1, 2, 4, 6, 8 and 10",
            table,
            {f"× {times}": near(gains[(times,)], gain) for times, gain in said.items()},
            "With costs of 1 and 2 there is next to nothing to shed in this capacity.",
            QUARTER,
        )
    ]


def figure_16(scale: Scale, report: Report) -> list[Claim]:
    """Rows that are dropped in transition, by the size of the buffers."""
    limit, rate = capacity(), 200.0
    sizes = {"10 rows": 10, "1 s": round(rate), "2 s": round(2 * rate)}
    runs: list[Row] = []
    for (size, rows), seed, (by, rule) in product(sizes.items(), scale.seeds, RULES.items()):
        report.progress(f"buffers of {size}, throttle {by}, seed {seed}")
        streams = work("aligned", rate, seed)
        said = epsilon_join(streams.names).throttle(
            comparisons_per_second=limit, part="2 seconds", buffer=rows, rule=rule
        )
        (span,) = watched(said, streams.tables(), [LENGTH - 20, LENGTH], afresh=True)
        found = {DECIDED[0]: span}
        found[DECIDED[1]] = taken_in_turn(said, streams.tables(), LENGTH - 20, LENGTH, rows)
        for when, one in found.items():
            row = {"throttle": by, "decided": when, "buffer": size, "seed": seed}
            runs.append(row | {"dropped": one.shed / one.arrived})
    report.runs(stem("fig16", "dropped-by-buffer", capacity=round(limit), rate=rate), runs)
    summary = summarise(runs, ["decided", "throttle", "buffer"], "dropped")
    report.chart(summary, "buffer", "dropped", "throttle", ["decided"])
    lost = {(r["decided"], r["throttle"], r["buffer"]): r["dropped_mean"] for r in summary}
    cells = [
        [when, by, *(f"{lost[when, by, size]:.1%}" for size in sizes)]
        for when, by in product(DECIDED, RULES)
    ]
    return [
        judge(
            "16",
            "1 second buffers can cut the drop rate around 30 % and 2 seconds buffers around 50 %",
            markdown_table(["how a row is processed is decided", "throttle", *sizes], cells),
            {
                reading(throttle=by, decided=when).at(size): near(
                    1 - lost[when, by, size] / max(1e-9, lost[when, by, "10 rows"]), cut
                )
                for when, by in product(DECIDED, RULES)
                for size, cut in (("1 s", 0.3), ("2 s", 0.5))
            },
            "At 200 tuples/s, in 20 s that begin with full windows and a throttle of 1. Where it "
            "is decided when a row comes, rows from before the throttle was set anew hold the "
            "others up, the longer the more of them wait.",
            QUARTER,
        )
    ]


def video(scale: Scale, report: Report) -> list[Claim]:
    """Events in two streams of vectors: how many are missed."""
    runs: list[Row] = []
    for seed in range(scale.videos):
        report.progress(f"events in vectors, {seed + 1} of {scale.videos}")
        runs.append({"seed": seed} | watch_scenes(random_scenes(seed), throttle=0.2))
    report.runs(stem("video", "events", wide=512, throttle=0.2), runs)
    ours = sum(row["missed by grubjoin"] for row in runs)
    theirs = sum(row["missed by dropping"] for row in runs)
    events = sum(row["events"] for row in runs)
    return [
        judge(
            "video",
            "GrubJoin misses no event, random dropping about 15 %",
            f"Of {events} events GrubJoin misses {ours}, random dropping {theirs}"
            f" ({theirs / events:.0%}), at equal comparisons: a fifth of the full join's.",
            {"none missed": ours == 0, "dropping misses more": theirs > ours},
        )
    ]


FIGURES: Mapping[str, Callable[[Scale, Report], list[Claim]]] = {
    "2": figure_2,
    "4": figure_4,
    "7": figure_7,
    "8": figures_8_to_10,
    "11": figure_11,
    "12": figure_12,
    "13": figure_13,
    "14": figure_14,
    "15": figure_15,
    "16": figure_16,
    "II": table_2,
    "video": video,
}

PAPER = Paper(TITLE, FIGURES, FULL, QUICK, PLAIN, __doc__)
run = PAPER.run
