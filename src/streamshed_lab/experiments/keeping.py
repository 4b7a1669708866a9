"""Keep a run: `python -m streamshed_lab.experiments.keeping results/verdicts.json`.

Figures of the run take the place of those that were kept before; figures that were not run stay as
they are, with their own commits and dates. A quick run takes the place of a full one only if it has
claims, or readings of them, that the full one has not. Then docs/papers.md is written from what is
kept, and the tables of docs/network.md; `python -m streamshed_lab.bench.page` writes the README.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from streamshed_lab.experiments.page import STORED, verdicts_markdown, write_verdicts
from streamshed_lab.experiments.report import Record
from streamshed_lab.experiments.verdicts import Claim, tally
from streamshed_lab.marks import put
from streamshed_lab.modules import PAPERS, lab_module

DOCS = Path(__file__).parents[3] / "docs"

_HEAD = """# The papers' claims

What the five papers say, and what became of it here. A *reading* answers what a paper leaves open
(how far apart a key's rows are, which rows a statistic counts, what a queue ranks by); a claim
holds under a reading if it holds in every cell of the paper's figure. Numbers agree within a
tolerance on both sides: "up to 65 %" is not confirmed by 561 %. Significantly, much and by far ask
for more than a fifth, within which results count as alike. The best single reading is the one
under which most claims of a paper hold at once; *as first read* is how we read the paper before
others were tried. A claim that holds under some readings only says which answers it needs, and one
that holds under none which were tried.

`streamshed reproduce` measures anew, and writes `results/verdicts.json` and `results/report.html`.
To keep a run: `python -m streamshed_lab.experiments.keeping results/verdicts.json` puts it into
`src/streamshed_lab/verdicts.json`, which has each claim with its readings, cells, numbers,
tolerances and reasons, and writes this page; `streamshed reproduce --stored` prints the tables
below. The last column says how many figures were run, and how many of these quickly: with fewer
seeds and settings. Take the verdicts of quick runs as leads, and also those that judge times of a
machine on which other processes ran, which are marked.

"""


def kept_with(kept: Record, run: Record) -> Record:
    """What is kept once a run is put into it."""
    found: Record = {}
    for name, module in PAPERS.items():
        if name not in kept and name not in run:
            continue
        paper = lab_module(module).PAPER
        by_figure = {one["figure"]: one for one in kept.get(name, {}).get("figures", [])}
        for one in run.get(name, {}).get("figures", []):
            before = by_figure.get(one["figure"])
            spent = (_spent(before) if before else {}) | _spent(one)
            chosen = before if before and not _replaces(one, before) else one
            by_figure[one["figure"]] = chosen | {"spent": spent}
        figures = [by_figure[figure] for figure in paper.figures if figure in by_figure]
        claims = [Claim.from_json(claim) for figure in figures for claim in figure["claims"]]
        found[name] = {
            "title": paper.title,
            "figures_of_paper": len(paper.figures),
            "tally": asdict(tally(claims, paper.plain)),
            "figures": figures,
        }
    return found


def _spent(figure: Record) -> dict[str, float]:
    """The processor time of the last quick run of a figure, and of the last one in full."""
    way = "quick" if figure["quick"] else "full"
    found: dict[str, float] = figure.get("spent", {way: figure["processor"]})
    return found


def _replaces(one: Record, other: Record) -> bool:
    """Whether a figure takes the place of another: not if it is quick, and the other is as new."""
    if not one["quick"] or other["quick"]:
        return True
    return not _asked(one) <= _asked(other)


def _asked(figure: Record) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """The claims of a figure, each with a reading that was tried."""
    return {
        (claim["says"], frozenset(outcome["reading"].items()))
        for claim in figure["claims"]
        for outcome in claim["outcomes"]
    }


def page_of(kept: Record) -> str:
    """The page of docs."""
    return _HEAD + _times(kept) + verdicts_markdown(kept)


def _times(kept: Record) -> str:
    """How much processor time figures took, quickly and in full, and both ways."""
    spent = [_spent(figure) for paper in kept.values() for figure in paper["figures"]]
    both = [times for times in spent if {"quick", "full"} <= times.keys()]

    def total(way: str, figures: list[dict[str, float]]) -> str:
        times = [times[way] for times in figures if way in times]
        return f"{sum(times):,.0f} s ({len(times)} of {len(figures)} figures)"

    return (
        f"Processor time of the last runs: quick {total('quick', spent)}, in full"
        f" {total('full', spent)}. Figures that were run both ways: quick {total('quick', both)},"
        f" in full {total('full', both)}. Figures run side by side, one per processor.\n\n"
    )


def network_of(kept: Record) -> dict[str, str]:
    """What docs/network.md quotes: what was measured for figures 8 and 9 of SNJoin."""
    found = {}
    for figure in kept["snjoin"]["figures"]:
        if figure["figure"] in ("8", "9"):
            seeds = len(figure["scale"]["field"]["seeds"])
            quick = ", quickly" if figure["quick"] else ""
            by = f"Commit {figure['commit']}, {figure['date']}{quick}; seeds: {seeds}."
            table = figure["claims"][0]["measured"].strip()
            found[f"figure {figure['figure']}"] = f"{by}\n\n{table}"
    return found


def main(runs: list[str], stored: Path = STORED, docs: Path = DOCS) -> None:
    """Put runs into what is kept, and write the pages."""
    kept: Record = {}
    if stored.exists():
        kept = json.loads(stored.read_text(encoding="utf-8"))
    for run in runs:
        kept = kept_with(kept, json.loads(Path(run).read_text(encoding="utf-8")))
    write_verdicts(stored, kept)
    (docs / "papers.md").write_text(page_of(kept), encoding="utf-8")
    if "snjoin" in kept:
        put(docs / "network.md", network_of(kept))


if __name__ == "__main__":
    main(sys.argv[1:])
