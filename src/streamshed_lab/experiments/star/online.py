"""What policies make that do not know the future: figure 6."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from statistics import geometric_mean

import streamshed as ss
from streamshed.policies import Density, Importance, Policy, Random
from streamshed_lab.experiments.report import Report, Row, markdown_table, stem, summarise
from streamshed_lab.experiments.star.scale import Scale
from streamshed_lab.experiments.star.written import Among, Rule, importance_made
from streamshed_lab.experiments.verdicts import Claim, Number, Reading, judge, reading
from streamshed_lab.offline.star import Budget, near_optimum, read_star
from streamshed_lab.workloads import StarWorkload

LIFETIME = 50
"""Of rows, m, in the online experiments."""

RAND, SIMP, SIMPPROB, DIMPPROB, DGL = "rand-s", "simp-s", "simpprob-s", "dimpprob-s", "dgl-s"
OURS = "density"
POLICIES: Mapping[str, Policy] = {
    RAND: Random(),
    SIMP: Importance(),
    SIMPPROB: Importance(matches="at arrival"),
    DIMPPROB: Importance(matches="now"),
    DGL: Importance(gain_loss=(200.0, 0.5)),
    OURS: Density(),
}
WRITTEN: Mapping[str, Rule] = {SIMPPROB: "simpprob", DIMPPROB: "dimpprob", DGL: "dgl"}
AMONG = {"held": "", "window": ", all of the window"}
"""Which rows of the opposite window are matches: those that are held, or all that came."""
PLAIN = {"matches": "held", "filtered": "by the relation", "generally": "every M"}
"""How the paper was read at first."""
OSSJ, SJA, EXACT = "ossj", "sja-s", "exact"
ALL = (*POLICIES, *(name + AMONG["window"] for name in WRITTEN), SJA, OSSJ, EXACT)

Values = int | tuple[int, int]
Setting = tuple[str, int]
"""How many values there are, in words, and M."""
GAIN_LOSS = [(alpha, beta) for alpha in (50.0, 200.0, 800.0) for beta in (0.1, 0.5, 2.0)]
"""The constants of DGL that are tried: α and β, which the paper does not give."""


def figure_6(scale: Scale, report: Report) -> list[Claim]:
    """The importance of what is made, by memory, for each online policy."""
    runs: list[Row] = []
    chosen: dict[str, tuple[float, float]] = {}
    for values in scale.values:
        report.progress(f"constants of DGL, {_in_words(values)} values")
        chosen[_in_words(values)] = best_gain_loss(scale, values)
        for seed in scale.seeds:
            report.progress(f"online policies, {_in_words(values)} values, seed {seed}")
            work = StarWorkload(tuples=scale.tuples, keys=values, seed=seed)
            for memory in scale.online:
                made = _made(work, memory, seed, chosen[_in_words(values)])
                best = made[OSSJ]
                runs += [
                    {
                        "values": _in_words(values),
                        "memory": memory,
                        "seed": seed,
                        "policy": name,
                        "importance": made[name],
                        "share": made[name] / best if best else 1.0,
                    }
                    for name in ALL
                ]
    name = stem("fig06", "importance-by-memory", tuples=scale.tuples, lifetime=LIFETIME, facts=250)
    report.runs(name, runs)
    by = ["values", "memory", "policy"]
    summary = summarise(runs, by, "importance")
    for row, more in zip(summary, summarise(runs, by, "share"), strict=True):
        row["share_mean"] = more["share_mean"]
    report.chart(summary, "memory", "importance", "policy", ["values"])
    return _claims(scale, runs, summary, chosen)


def _in_words(values: Values) -> str:
    return str(values) if isinstance(values, int) else " and ".join(map(str, values))


def best_gain_loss(scale: Scale, values: Values) -> tuple[float, float]:
    """The constants with which DGL makes most, on seeds that do not count otherwise."""
    made = dict.fromkeys(GAIN_LOSS, 0.0)
    for seed in scale.tuning:
        work = StarWorkload(tuples=scale.tuples, keys=values, seed=seed)
        tables, join = work.tables(), _join(work, seed)
        for memory in scale.online:
            kept = join.keep(rows=memory // 2)
            for pair in GAIN_LOSS:
                ledger = kept.shed(Importance(gain_loss=pair)).count(tables)
                made[pair] += ledger.importance or 0.0
    return max(made, key=lambda pair: made[pair])


def _join(work: StarWorkload, seed: int) -> ss.Join:
    """The join of section 4.3, without a budget."""
    join = ss.join("r", "s").within(LIFETIME - 1, time="time", clock="max")
    join = join.through(work.relation(), r="a", s="b").weigh(column="importance")
    return join.seed(seed)


def _made(
    work: StarWorkload, memory: int, seed: int, gain_loss: tuple[float, float]
) -> dict[str, float]:
    """The importance that is made under each policy, by plans, and without a budget."""
    tables, relation, join = work.tables(), work.relation(), _join(work, seed)
    kept = join.keep(rows=memory // 2)
    policies = {**POLICIES, DGL: Importance(gain_loss=gain_loss)}
    made = {
        name: kept.shed(policy).count(tables).importance or 0.0 for name, policy in policies.items()
    }
    for name, rule in WRITTEN.items():
        made[name + AMONG["window"]] = importance_made(
            tables,
            relation,
            rule,
            rows=memory // 2,
            lifetime=LIFETIME,
            among="window",
            gain_loss=gain_loss,
        )
    star = read_star(
        tables, relation, through={"r": "a", "s": "b"}, lifetime=LIFETIME, order="in turn"
    )
    budget = Budget(rows=memory // 2)
    made[SJA] = near_optimum(star, budget, of="results").plan.importance
    made[OSSJ] = near_optimum(star, budget).most
    made[EXACT] = join.count(tables).importance or 0.0
    return made


def generally(times: Mapping[Reading, float]) -> dict[Reading, Number]:
    """What is said to be so generally: with every memory, and in the mean over all.

    Args:
        times: by reading and cell by how many times one makes as much as another.

    Examples:
        >>> few, many = reading(values=5).at("M = 1"), reading(values=5).at("M = 2")
        >>> found = generally({few: 0.8, many: 2.0})
        >>> {str(at): round(number.value, 2) for at, number in found.items()}
        {'values 5, generally every M, M = 1': 0.8, 'values 5, generally every M, M = 2': 2.0,
        'values 5, generally in the mean': 1.26}
    """
    found: dict[Reading, Number] = {}
    means: dict[Reading, list[float]] = {}
    for at, by in times.items():
        found[Reading((*at.said, ("generally", "every M")), at.cell)] = Number(by, 1.0)
        means.setdefault(Reading((*at.said, ("generally", "in the mean"))), []).append(by)
    return found | {at: Number(geometric_mean(by), 1.0) for at, by in means.items()}


def _claims(
    scale: Scale,
    runs: list[Row],
    summary: list[Row],
    chosen: Mapping[str, tuple[float, float]],
) -> list[Claim]:
    worth = {(r["values"], r["memory"], r["policy"]): r["importance_mean"] for r in summary}
    share = {(r["values"], r["memory"], r["policy"]): r["share_mean"] for r in summary}
    settings = [(_in_words(values), memory) for values in scale.values for memory in scale.online]
    # Where every policy makes all there is, there is nothing to compare.
    open_ones = [s for s in settings if worth[*s, RAND] < 0.999 * worth[*s, EXACT]]
    measured = markdown_table(
        ["values", "M", *ALL],
        [
            [
                values,
                str(memory),
                *(f"{worth[values, memory, n]:,.0f} ({share[values, memory, n]:.0%})" for n in ALL),
            ]
            for values, memory in settings
        ],
    )
    measured += (
        f"\n\nImportance, and the share of OSSJ: means over {len(scale.seeds)} seeds. DGL has"
    )
    measured += " α and β of " + "; ".join(
        f"{alpha:g} and {beta:g} with {values} values" for values, (alpha, beta) in chosen.items()
    )
    measured += f", the best of {len(GAIN_LOSS)} pairs on other seeds."

    def every() -> Iterator[tuple[Reading, Setting, Callable[[str], str]]]:
        """Each reading in each setting, and what policies are called there."""
        for among, suffix in AMONG.items():

            def called(name: str, suffix: str = suffix) -> str:
                return name + suffix if name in WRITTEN else name

            for s in open_ones:
                yield reading(matches=among, values=s[0]).at(f"M = {s[1]}"), s, called

    def tried(holds: Callable[[Setting, Callable[[str], str]], bool]) -> dict[Reading, bool]:
        """For each reading and setting whether something holds, given what policies are called."""
        return {at: holds(s, called) for at, s, called in every()}

    small, large = scale.online[0], scale.online[-1]
    return [
        judge(
            "6",
            "DGL has the best performance of the paper's policies",
            measured,
            tried(
                lambda s, of: (
                    worth[*s, of(DGL)] >= max(worth[*s, of(n)] for n in (SIMP, SIMPPROB, DIMPPROB))
                )
            ),
        ),
        judge(
            "6",
            "DIMPPROB and SIMPPROB perform alike",
            measured,
            tried(lambda s, of: abs(worth[*s, of(DIMPPROB)] / worth[*s, of(SIMPPROB)] - 1) <= 0.1),
            tolerance="Within 10 %, on either side.",
        ),
        judge(
            "6",
            "SIMPPROB and DIMPPROB generally outperform SIMP",
            measured,
            generally(
                {
                    at: min(worth[*s, of(SIMPPROB)], worth[*s, of(DIMPPROB)]) / worth[*s, SIMP]
                    for at, s, of in every()
                }
            ),
            "They count matches in the other window. Where there are many values, small windows "
            "hold too few of them to count; all rows that came in a lifetime are more.",
            "Generally is taken as: with every memory; or in the mean over all of them, of by how "
            "many times the less of the two outperforms it. (With every memory is more than the "
            "paper says.)",
        ),
        judge(
            "6",
            "all of them significantly outperform RAND-S, with a small memory above all",
            measured,
            tried(
                lambda s, of: all(
                    _by_far(runs, s, of(name), RAND) for name in (SIMP, SIMPPROB, DIMPPROB, DGL)
                )
            )
            | {
                reading(matches=among, values=values).at("above all"): all(
                    worth[values, small, name + suffix * (name in WRITTEN)]
                    / worth[values, small, RAND]
                    > worth[values, more, name + suffix * (name in WRITTEN)]
                    / worth[values, more, RAND]
                    for name in (SIMP, SIMPPROB, DIMPPROB, DGL)
                    for more in scale.online[1:]
                )
                for among, suffix in AMONG.items()
                for values in chosen
            },
            tolerance="Significantly is taken as: on every seed. Above all: by the most times with"
            f" M = {scale.online[0]}.",
        ),
        judge(
            "6",
            "as the memory increases, all converge upon EXACT",
            measured,
            {
                reading(values=values).at(name): share[values, large, name]
                >= max(0.9, share[values, small, name])
                for name in POLICIES
                for values in chosen
            },
            f"Taken as: with M = {large} at least 90 % of the optimum, and no less than with "
            f"{scale.online[0]}.",
        ),
        judge(
            "6",
            "density makes more than all of the paper's policies",
            measured,
            {
                f"{s[0]} values, M = {s[1]}": worth[*s, OURS]
                >= max(worth[*s, n] for n in (RAND, SIMP, SIMPPROB, DIMPPROB, DGL))
                for s in open_ones
            },
            ours=True,
        ),
    ]


def _by_far(runs: list[Row], setting: Setting, better: str, worse: str) -> bool:
    """Whether one policy makes more than another with all data of a setting."""
    made = {
        (row["policy"], row["seed"]): row["importance"]
        for row in runs
        if (row["values"], row["memory"]) == setting
    }
    seeds = {seed for _, seed in made}
    return all(made[better, seed] > made[worse, seed] for seed in seeds)


def churning(scale: Scale, report: Report) -> list[Claim]:
    """What it is worth to drop rows of which all facts have ended (rule 8)."""
    runs: list[Row] = []
    ways: list[tuple[str, Among]] = [(SIMP, "held")]
    ways += [(name, among) for name in WRITTEN for among in ("held", "window")]
    for churn in scale.churn:
        for seed in scale.seeds:
            report.progress(f"facts replaced: {churn:.0%}, seed {seed}")
            work = StarWorkload(tuples=scale.tuples, keys=50, facts=60, churn=churn, seed=seed)
            tables, relation = work.tables(), work.relation()
            for (name, among), leaves in product(ways, (True, False)):
                made = importance_made(
                    tables,
                    relation,
                    WRITTEN.get(name, "simp"),
                    rows=scale.online[0] // 2,
                    lifetime=LIFETIME,
                    among=among,
                    leaves_useless=leaves,
                )
                row = {"churn": churn, "seed": seed, "matches": among, "policy": name}
                runs.append(row | {"rule 8": "on" if leaves else "off", "importance": made})
    report.runs(stem("rule8", "importance-by-churn", memory=scale.online[0]), runs)
    summary = summarise(runs, ["matches", "rule 8", "churn", "policy"], "importance")
    report.chart(summary, "churn", "importance", "policy", ["matches", "rule 8"])
    worth = {
        (r["churn"], r["policy"], r["matches"], r["rule 8"]): r["importance_mean"] for r in summary
    }
    measured = markdown_table(
        ["facts replaced", *(name + AMONG[among] for name, among in ways)],
        [
            [
                f"{churn:.0%}",
                *(
                    f"{worth[churn, *way, 'on']:,.0f} "
                    f"({worth[churn, *way, 'on'] / worth[churn, *way, 'off'] - 1:+.1%})"
                    for way in ways
                ),
            ]
            for churn in scale.churn
        ],
    )
    measured += f"\n\nImportance with M = {scale.online[0]}, and how much more than without rule 8."
    return [
        judge(
            "rule 8",
            "a row whose facts have all been deleted is useless and should be dropped",
            measured,
            {
                reading(matches=among).at(f"{way[0]}, {churn:.0%} replaced"): (
                    worth[churn, *way, "on"] >= worth[churn, *way, "off"]
                )
                for among in AMONG
                for way in ways
                if way[1] == among or way[0] == SIMP
                for churn in scale.churn
                if churn
            },
            "Taken as: no less is made with the rule than without. Who counts the matches of rows "
            "anew sees that such a row has none, and drops it first anyway.",
        )
    ]
