"""What could be made, had the future been known: figures 4 and 5."""

from __future__ import annotations

import time
from collections.abc import Mapping

import streamshed as ss
from streamshed_lab.experiments.report import Report, Row, markdown_table, stem, summarise
from streamshed_lab.experiments.star.scale import Scale
from streamshed_lab.experiments.verdicts import Claim, judge, near, reading
from streamshed_lab.offline.star import Budget, Plan, Star, Total, optimum, read_star
from streamshed_lab.offline.star.reading import Filter
from streamshed_lab.workloads import StarWorkload

LIFETIME = 10
"""Of rows, m, in the offline experiments."""

PLANS = ("exact", "ossj", "sja-s, most important", "sja-s, least important")
RAND = "rand-s"

FILTERS: Mapping[str, Filter] = {
    "nothing": "nothing",
    "by the relation": "relation",
    "by what will come": "future",
}


def in_its_model(work: StarWorkload) -> Star:
    """A workload in the paper's model."""
    return read_star(
        work.tables(), work.relation(), through={"r": "a", "s": "b"}, lifetime=LIFETIME
    )


def figure_4(scale: Scale, report: Report) -> list[Claim]:
    """The importance of what is made, by memory: OSSJ, SJA-S and EXACT."""
    runs: list[Row] = []
    for seed in scale.seeds:
        report.progress(f"optimal plans, seed {seed}")
        work = StarWorkload(tuples=scale.tuples, seed=seed)
        star = in_its_model(work)
        for memory in scale.memories:
            budget = Budget(rows=memory // 2)
            made: dict[str, Plan | Total] = {
                RAND: dropped_at_random(work, memory // 2, seed),
                PLANS[0]: star.exact(),
                PLANS[1]: optimum(star, budget, filtered="future"),
                PLANS[2]: optimum(star, budget, filtered="future", of="results"),
                PLANS[3]: optimum(star, budget, filtered="future", of="results", ties="least"),
            }
            runs += [
                {
                    "memory": memory,
                    "seed": seed,
                    "plan": name,
                    "results": plan.results,
                    "importance": plan.importance,
                }
                for name, plan in made.items()
            ]
    name = stem("fig04", "importance-by-memory", tuples=scale.tuples, lifetime=LIFETIME, facts=250)
    report.runs(name, runs)
    summary = summarise(runs, ["memory", "plan"], "importance")
    for row, more in zip(summary, summarise(runs, ["memory", "plan"], "results"), strict=True):
        row["results_mean"] = more["results_mean"]
    report.chart(summary, "memory", "importance", "plan")
    return _claims_4(scale, summary)


def dropped_at_random(work: StarWorkload, rows: int, seed: int) -> Total:
    """What is made where rows that the relation lets pass are dropped at random."""
    join = ss.join("r", "s").within(LIFETIME - 1, time="time", clock="max")
    join = join.through(work.relation(), r="a", s="b").weigh(column="importance")
    ledger = join.keep(rows=rows).shed("random").seed(seed).count(work.tables())
    return Total(ledger.results, ledger.importance or 0.0)


def _claims_4(scale: Scale, summary: list[Row]) -> list[Claim]:
    exact, ossj, most, least = PLANS
    worth = {(row["memory"], row["plan"]): row["importance_mean"] for row in summary}
    count = {(row["memory"], row["plan"]): row["results_mean"] for row in summary}
    measured = markdown_table(
        ["M", *PLANS, RAND],
        [
            [
                str(memory),
                *(
                    f"{worth[memory, plan]:,.0f} ({count[memory, plan]:,.0f})"
                    for plan in (*PLANS, RAND)
                ),
            ]
            for memory in scale.memories
        ],
    )
    measured += f"\n\nImportance, and results in brackets: means over {len(scale.seeds)} seeds."
    steps = list(zip(scale.memories, scale.memories[1:], strict=False))
    large = scale.memories[-1]
    claims = [
        judge(
            "4",
            "the approximation error decreases as the memory increases",
            measured,
            {
                f"{plan}, M = {low} to {high}": worth[low, plan] <= worth[high, plan]
                for plan in (*PLANS[1:], RAND)
                for low, high in steps
            },
        ),
        judge(
            "4",
            "both OSSJ and SJA-S outperform RAND-S for all memory sizes",
            measured,
            {
                f"{plan}, M = {memory}": worth[memory, plan] > worth[memory, RAND]
                for plan in PLANS[1:]
                for memory in scale.memories
                if worth[memory, RAND] < worth[memory, exact]
            },
            "RAND-S takes rows one after the other, r before s, as all online policies do; where "
            "it makes the exact result there is nothing to compare.",
        ),
        judge(
            "4",
            "OSSJ makes more important results than SJA-S for all memory sizes, SJA-S more results",
            measured,
            {
                f"M = {memory}": worth[memory, ossj] > worth[memory, least]
                and worth[memory, ossj] >= worth[memory, most]
                and count[memory, ossj] <= count[memory, most]
                for memory in scale.memories
                if worth[memory, least] < worth[memory, exact]
            },
            "Taken as: more important than the least important of the plans of most results, and "
            "not less than the most important one. Where both make the exact result there is "
            "nothing to compare.",
        ),
        judge(
            "4",
            "SJA-S converges upon OSSJ, and both upon EXACT",
            measured,
            {
                plan: worth[large, plan] >= 0.99 * worth[large, exact]
                and worth[large, ossj] - worth[large, plan]
                <= worth[scale.memories[0], ossj] - worth[scale.memories[0], plan]
                for plan in (ossj, most, least)
            },
            f"Taken as: with M = {large} within 1 % of EXACT.",
        ),
    ]
    if 4 in scale.memories:
        sizes = {
            "OSSJ, importance": near(worth[4, ossj], 4107, 0.15),
            "OSSJ, results": near(count[4, ossj], 2184, 0.15),
            "SJA-S, results": near(count[4, most], 2221, 0.15),
        }
        claims.append(
            judge(
                "4",
                "for M = 4 OSSJ makes 2184 results of importance 4107, SJA-S 2221 of 3797",
                f"OSSJ {count[4, ossj]:,.0f} of {worth[4, ossj]:,.0f}, SJA-S {count[4, most]:,.0f}"
                f" of {worth[4, least]:,.0f} to {worth[4, most]:,.0f}.",
                sizes,
                "The number of values and the scale of importance were chosen for this.",
                "Within 15 %, on both sides.",
            )
        )
    return claims


def figure_5(scale: Scale, report: Report) -> list[Claim]:
    """The time of OSSJ by the size of the relation, with and without pre-filtering."""
    memory = 10
    runs: list[Row] = []
    for facts in scale.facts:
        star = in_its_model(StarWorkload(tuples=scale.tuples, facts=facts, seed=1))
        report.progress(f"timing |F| = {facts}")
        for turn in range(-1, scale.rounds):  # the first one only warms up
            for name, filtered in FILTERS.items():
                begin = time.process_time()
                plan = optimum(star, Budget(rows=memory // 2), filtered=filtered)
                seconds = time.process_time() - begin
                if turn >= 0:
                    runs.append(
                        {
                            "facts": facts,
                            "filtered": name,
                            "round": turn,
                            "seconds": seconds,
                            "states": plan.states,
                            "importance": plan.importance,
                        }
                    )
    name = stem(
        "fig05", "time-by-facts", tuples=scale.tuples, memory=memory, lifetime=LIFETIME, seed=1
    )
    report.runs(name, runs)
    summary = summarise(runs, ["facts", "filtered"], "seconds")
    for row, more in zip(summary, summarise(runs, ["facts", "filtered"], "states"), strict=True):
        row["states"] = int(more["states_mean"])
    report.chart(summary, "facts", "seconds", "filtered")

    spent = {(row["facts"], row["filtered"]): row["seconds_mean"] for row in summary}
    states = {(row["facts"], row["filtered"]): row["states"] for row in summary}
    without = next(iter(FILTERS))
    measured = markdown_table(
        ["F", *FILTERS],
        [
            [
                str(facts),
                *(f"{spent[facts, by]:.3f} s ({states[facts, by]:,})" for by in FILTERS),
            ]
            for facts in scale.facts
        ],
    )
    measured += "\n\nProcessor time, and memory states in brackets, by what is filtered out."
    gain = {
        (by, facts): spent[facts, without] / spent[facts, by]
        for by in FILTERS
        if by != without
        for facts in scale.facts
    }
    steps = list(zip(scale.facts, scale.facts[1:], strict=False))
    return [
        judge(
            "5",
            "OSSJ with pre-filtering outperforms OSSJ without",
            measured,
            {
                reading(filtered=by).at(f"|F| = {facts}"): states[facts, by]
                < states[facts, without]
                and spent[facts, by] < spent[facts, without]
                for by in FILTERS
                if by != without
                for facts in scale.facts
            },
            "Where there are as many states with pre-filtering as without, every value of the "
            "streams is in the relation, and there is nothing to filter: by what will come, there "
            "always is.",
        ),
        judge(
            "5",
            "the gain increases as the relation becomes smaller",
            measured,
            {
                reading(filtered=by).at(f"|F| = {high} to {low}"): gain[by, low] > gain[by, high]
                for by in FILTERS
                if by != without
                for low, high in steps
                if states[low, by] < states[low, without]
            },
            "Times faster: "
            + ", ".join(f"{by}, {facts}: {times:.2f}" for (by, facts), times in gain.items())
            + ".",
        ),
    ]
