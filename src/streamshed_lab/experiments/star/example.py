"""The worked example of section 3.1.1."""

from __future__ import annotations

import streamshed as ss
from streamshed_lab.experiments.report import Report, Row
from streamshed_lab.experiments.star.scale import Scale
from streamshed_lab.experiments.verdicts import Claim, judge
from streamshed_lab.offline.star import Budget, optimum, read_star
from streamshed_lab.workloads import StarExample

SIZES_ALLOW = (31, 32, 34, 35)
"""The importance that plans of the most results can have; the paper's has 34."""


def example(scale: Scale, report: Report) -> list[Claim]:
    """What the join makes, what the best plan makes, and what the plan of most results does."""
    work = StarExample()
    tables, relation = work.tables(), work.relation()
    star = read_star(tables, relation, through={"r": "a", "s": "b"}, lifetime=work.lifetime)
    budget = Budget(rows=work.memory // 2)
    join = ss.join("r", "s").within(work.lifetime - 1, time="time", clock="max")
    ledger = join.through(relation, r="a", s="b").weigh(column="importance").count(tables)
    best, larger = optimum(star, budget), optimum(star, budget, of="results")
    smaller = optimum(star, budget, of="results", ties="least")
    made: dict[str, tuple[int, float]] = {
        "the join": (ledger.results, ledger.importance or 0.0),
        "ossj": (best.results, best.importance),
        "sja-s, most important": (larger.results, larger.importance),
        "sja-s, least important": (smaller.results, smaller.importance),
    }
    runs: list[Row] = [
        {"plan": name, "results": results, "importance": importance}
        for name, (results, importance) in made.items()
    ]
    report.runs("example", runs)
    for line in best.path().splitlines():
        report.progress(line)

    def said(name: str) -> str:
        return f"{made[name][0]} results of importance {made[name][1]:g}"

    least, most = made["sja-s, least important"], made["sja-s, most important"]
    return [
        judge(
            "example",
            "the exact result has 15 tuples of importance 43",
            said("the join"),
            {"": made["the join"] == (15, 43) == tuple(star.exact())},
        ),
        judge(
            "example",
            "the optimal one has 11 of importance 38",
            said("ossj"),
            {"": made["ossj"] == (11, 38)},
        ),
        judge(
            "example",
            "the one by semantic load shedding has 12, of importance 34",
            f"{most[0]} of importance {least[1]:g} to {most[1]:g}",
            {"": most[0] == least[0] == 12 and {least[1], most[1]} <= set(SIZES_ALLOW)},
            "Plans that make 12 results are not equally important; the paper's is one of them.",
        ),
    ]
