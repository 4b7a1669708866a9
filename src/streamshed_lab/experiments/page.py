"""The report: verdicts and figures of all papers as one HTML file, and the verdicts as data.

Both are made of the records that figures leave (`streamshed_lab.experiments.report`), so that
papers and figures can be run one by one, and again.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import altair as alt

from streamshed.charts import Markup, Part, write_html
from streamshed_lab.experiments.report import Paper, Record, markdown_table
from streamshed_lab.experiments.verdicts import Claim, Tally, tally

STORED = Path(__file__).parents[1] / "verdicts.json"
"""The verdicts that are kept, in the repository."""
COUNTS = (
    *("paper", "claims", "hold as first read", "hold under the best single reading"),
    *("hold under some reading", "cells", "run"),
)
"""The columns of how many claims of each paper hold."""
COLUMNS = 3
"""Panels of a chart side by side."""
TICKS = 8
"""Places along the bottom of a chart, of which each has its own tick."""
CROWDED = 8.0
"""By how many times more the exact result is than all others, from which on y is logarithmic."""

_STYLE = """<style>
.verdicts { width: 100%; }
.counts td:nth-child(6) { white-space: nowrap; }
.verdicts td, .verdicts thead th { text-align: left; vertical-align: top; white-space: normal; }
.claims { table-layout: fixed; } .claims .scroll { font-size: .85rem; }
.claims th:nth-child(1) { width: 26%; } .claims th:nth-child(2) { width: 18%; }
.claims .verdicts { width: auto; } .claims .verdicts th { width: auto; }
.claims .verdicts td { white-space: nowrap; }
.about, .verdicts p, .verdicts ul { font-size: .9rem; } .verdicts ul { padding-left: 1.25rem; }
pre { white-space: pre-wrap; }
.yes { color: light-dark(#17692b, #6fd48a); } .no { color: light-dark(#9b1c1c, #ff9a9a); }
.some { color: light-dark(#7a5200, #f0c060); } .verdicts p { margin: .25rem 0; }
details { margin: .25rem 0; } h3 { margin-top: 2.5rem; } .about { color: light-dark(#666, #999); }
@media print {
  body { font-size: 10pt; margin: 0; max-width: none; }
  details > * { display: block; } details::details-content { content-visibility: visible; }
  details > summary { list-style: none; } figure { break-inside: avoid; }
  figure svg { max-width: 100%; height: auto; }
  h2, h3 { break-after: avoid; } .scroll { overflow: visible; }
  .claims .scroll { font-size: 6.5pt; } .claims .verdicts td { white-space: normal; }
  .claims .verdicts td, .claims .verdicts th { padding: 1pt 2pt; overflow-wrap: anywhere; }
}
</style>"""


def read_records(folder: Path, papers: Mapping[str, Paper[Any]]) -> dict[str, list[Record]]:
    """The records in the folders of papers, in the order of their figures."""
    found: dict[str, list[Record]] = {}
    for name, paper in papers.items():
        for figure in paper.figures:
            path = folder / name / f"figure_{figure}.json"
            if path.exists():
                record = json.loads(path.read_text(encoding="utf-8"))
                found.setdefault(name, []).append(record)
    return found


def verdicts(records: Mapping[str, Sequence[Record]], papers: Mapping[str, Paper[Any]]) -> Record:
    """The claims of all papers and what became of them, with how many hold."""
    told = {}
    for name, figures in records.items():
        tried = [{key: value for key, value in one.items() if key != "charts"} for one in figures]
        told[name] = {
            "title": papers[name].title,
            "figures_of_paper": len(papers[name].figures),
            "tally": asdict(_tally(figures, papers[name])),
            "figures": tried,
        }
    return told


def write_verdicts(path: Path, told: Record) -> Path:
    """Write the verdicts as JSON."""
    path.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def stored_verdicts() -> Record:
    """The verdicts that are kept."""
    found: Record = json.loads(STORED.read_text(encoding="utf-8"))
    return found


def _claims(figures: Iterable[Record]) -> list[Claim]:
    return [Claim.from_json(claim) for figure in figures for claim in figure["claims"]]


def _tally(figures: Sequence[Record], paper: Paper[Any]) -> Tally:
    return tally(_claims(figures), paper.plain)


def tallies(
    records: Mapping[str, Sequence[Record]], papers: Mapping[str, Paper[Any]]
) -> dict[str, Tally]:
    """How many claims of each paper hold."""
    return {name: _tally(figures, papers[name]) for name, figures in records.items()}


def verdicts_markdown(told: Record) -> str:
    """The verdicts in Markdown: how many hold of each paper, and each claim with its outcome."""
    counts = []
    for paper in told.values():
        held = Tally(**paper["tally"])
        best = ", ".join(f"{name} {answer}" for name, answer in held.reading.items())
        counts.append(
            [
                paper["title"],
                str(held.claims),
                str(held.plain),
                f"{held.best} ({best})" if best else str(held.best),
                str(held.sometimes),
                f"{held.cells[0]} of {held.cells[1]}",
                _made_at(paper["figures"], paper["figures_of_paper"]),
            ]
        )
    parts = [markdown_table(COUNTS, counts)]
    for paper in told.values():
        rows = [
            [_figure_name(claim.figure), _one_line(claim.says), _one_line(_verdict(claim) + busy)]
            for figure in paper["figures"]
            for busy in [" (times of a busy machine)" if figure.get("busy") else ""]
            for claim in _claims([figure])
        ]
        parts += ["", f"## {paper['title']}", "", markdown_table(["figure", "claim", "here"], rows)]
    return "\n".join(parts) + "\n"


def _verdict(claim: Claim) -> str:
    """How much of a claim holds, and under which readings."""
    ours = " (ours, not the paper's)" if claim.ours else ""
    return "; ".join(filter(None, (claim.outcome, claim.readings))) + ours


def _made_at(figures: Sequence[Record], all_of_them: int) -> str:
    """Commits, dates and extent of some runs, in a line."""
    commits = ", ".join(dict.fromkeys(figure["commit"] for figure in figures))
    dates = sorted(figure["date"][:10] for figure in figures)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    quick = sum(figure["quick"] for figure in figures)
    extent = f"{len(figures)} of {all_of_them} figures" + (f", {quick} quick" if quick else "")
    return f"{extent}; {span}, {commits}"


def write_page(
    path: Path, records: Mapping[str, Sequence[Record]], papers: Mapping[str, Paper[Any]]
) -> Path:
    """Write the report as one HTML file that loads nothing."""
    parts: list[Part] = [Markup(_STYLE)]
    parts.append(
        "What five papers claim, how they were read, and what was measured. A claim holds under a "
        "reading if it holds in all cells of the paper's figure; numbers agree within the "
        "tolerance that is said, on both sides."
    )
    counts = []
    for name, figures in records.items():
        held = _tally(figures, papers[name])
        link = f'<a href="#{name}">{html.escape(papers[name].title)}</a>'
        best = ", ".join(f"{question} {answer}" for question, answer in held.reading.items())
        under = f"<details><summary>{held.best}</summary><p>{html.escape(best)}</p></details>"
        counts.append(
            [
                link,
                str(held.claims),
                str(held.plain),
                under if best else str(held.best),
                str(held.sometimes),
                f"{held.cells[0]} of {held.cells[1]}",
                html.escape(_made_at(figures, len(papers[name].figures))),
            ]
        )
    parts.append(_table(COUNTS, counts, "verdicts counts"))
    for name, figures in records.items():
        parts.append(Markup(f'<h2 id="{name}">{html.escape(papers[name].title)}</h2>'))
        if docs := papers[name].about:
            folded = f"<details><summary>What was decided</summary><pre>{html.escape(docs)}</pre>"
            parts.append(Markup(folded + "</details>"))
        for figure in figures:
            parts += _figure_parts(figure)
    return write_html(path, "Streamshed: the papers reproduced", *parts)


def _figure_parts(figure: Record) -> list[Part]:
    title = f"{_figure_name(figure['figure'])}. {figure['about']}"
    parts: list[Part] = [Markup(f"<h3>{html.escape(title)}</h3>")]
    parts += [chart(title, one) for one in figure["charts"]]
    rows, last = [], ""
    for told in figure["claims"]:
        claim = Claim.from_json(told)
        some = any(outcome.holds for outcome in claim.outcomes)
        shade = "yes" if claim.holds else "some" if some else "no"
        measured = "" if claim.measured == last else _markdown(claim.measured)
        last = claim.measured
        readings = "".join(_outcome_line(one) for one in told["outcomes"])
        said = "".join(
            f"<p>{html.escape(text)}</p>" for text in (claim.tolerance, claim.why) if text
        )
        ours = " (ours, not the paper's)" if claim.ours else ""
        rows.append(
            [
                html.escape(claim.says + ours),
                f'<span class="{shade}">{html.escape(claim.outcome)}</span>'
                + (f"<p>{html.escape(claim.readings)}</p>" if claim.readings else ""),
                f"{said}<details><summary>readings and cells</summary><ul>{readings}</ul></details>"
                + (f"<details><summary>measured</summary>{measured}</details>" if measured else ""),
            ]
        )
    parts.append(_table(["claim", "here", "how"], rows, "verdicts claims"))
    scale = ", ".join(f"{name} {_short(value)}" for name, value in figure["scale"].items())
    ran = f"{figure['date']}, commit {figure['commit']}, {figure['seconds']:g} s"
    ran += f" ({figure['processor']:g} s of processor time)"
    ran += f", {figure['machine']}{', quick' if figure['quick'] else ''}"
    ran += f"{', on a busy machine: take times as leads' if figure.get('busy') else ''}. {scale}"
    parts.append(Markup(f'<p class="about">{html.escape(ran)}</p>'))
    return parts


def _outcome_line(outcome: Mapping[str, Any]) -> str:
    """A reading, and the cells in which a claim holds or not, with their numbers."""
    how = ", ".join(f"{name} {answer}" for name, answer in outcome["reading"].items())
    cells = []
    for cell in outcome["cells"]:
        number = ""
        if "value" in cell:
            low, high = (_limit(cell.get(end)) for end in ("low", "high"))
            number = f": {cell['value']:.3g} (to be {low} to {high})"
        mark = "yes" if cell["holds"] else "no"
        name = html.escape(cell["name"] + number) or ("holds" if cell["holds"] else "fails")
        cells.append(f'<span class="{mark}">{name}</span>')
    return f"<li>{html.escape(how) + ': ' if how else ''}{'; '.join(cells)}</li>"


def _limit(limit: float | None) -> str:
    return "any" if limit is None else f"{limit:.3g}"


def chart(title: str, drawing: Mapping[str, Any]) -> alt.TopLevelMixin:
    """Draw lines with error bars, the exact result dashed, the paper's numbers as crosses."""
    rows, scale = drawing["rows"], _scale(drawing)
    lines = list(dict.fromkeys(row["line"] for row in rows))
    chosen = alt.selection_point(fields=["line"], bind="legend")
    color = alt.Color("line:N", title=None, scale=_colors(lines), legend=_LEGEND)
    faded = alt.when(chosen).then(alt.value(1)).otherwise(alt.value(0.12))
    base = alt.Chart().encode(x=_x(drawing), color=color, opacity=faded)
    picture = _in_panels(alt.layer(*_layers(base, drawing, lines, scale)), rows)
    heading = alt.Title(title, subtitle=_subtitle(rows, scale))
    described = f"{title} {drawing['y']} by {drawing['x']}: {', '.join(lines)}."
    picture = picture.add_params(chosen).properties(title=heading, description=described)
    shown: alt.TopLevelMixin = picture.configure_axis(gridOpacity=0.3)
    return shown


def _kind(rows: Sequence[Mapping[str, Any]]) -> Literal["quantitative", "ordinal"]:
    """Whether the bottom of a chart has numbers or names."""
    numbers = all(isinstance(row["x"], int | float) for row in rows)
    return "quantitative" if numbers else "ordinal"


def _x(drawing: Mapping[str, Any]) -> alt.X:
    """The bottom of a chart, with a tick at each place if there are few."""
    rows = drawing["rows"]
    kind = _kind(rows)
    x = alt.X("x", type=kind, title=drawing["x"])
    if kind == "ordinal":
        return x.axis(labelAngle=0).sort(None)
    places = sorted({row["x"] for row in rows})
    ticks: dict[str, Any] = {"values": places} if len(places) <= TICKS else {"tickCount": 5}
    return x.axis(**ticks, format=",.4~r", labelOverlap=True).scale(zero=False)


def _layers(
    base: alt.Chart, drawing: Mapping[str, Any], lines: Sequence[str], scale: alt.Scale
) -> list[alt.Chart]:
    """The lines of a chart, its error bars and its crosses."""
    rows = drawing["rows"]
    large = max(row["y"] for row in rows) >= 1e6
    axis = alt.Axis(format="~s") if large else alt.Axis()  # in millions, as 250M
    y = alt.Y("y:Q", title=drawing["y"], scale=scale, axis=axis)
    told = [alt.Tooltip("line:N"), alt.Tooltip("x", type=_kind(rows), title=drawing["x"])]
    told += [alt.Tooltip("y:Q", title=drawing["y"], format=",.4~g"), alt.Tooltip("deviation:Q")]
    drawn = base.transform_filter("datum.kind != 'paper'")
    dash = alt.StrokeDash(
        "kind:N", legend=None, scale=alt.Scale(domain=["measured", "exact"], range=[[1, 0], [6, 4]])
    )
    # Of lines that coincide the later ones are thinner, so that all of them are seen.
    widths = alt.Scale(domain=sorted(lines, key=lambda line: line == "exact"), range=[3.2, 1.6])
    width = alt.StrokeWidth("line:N", legend=None, scale=widths)
    layers = [
        drawn.mark_line(point=True).encode(y=y, strokeDash=dash, strokeWidth=width, tooltip=told)
    ]
    if any(row["deviation"] > 0 for row in rows):
        # Where a logarithm is drawn, a bar that goes below 0 ends at a hundredth of its value.
        end = "datum.y - datum.deviation"
        end = f"max({end}, datum.y / 100)" if _is_logarithmic(scale) else end
        spread = drawn.transform_filter("datum.deviation > 0").transform_calculate(
            low=end, high="datum.y + datum.deviation"
        )
        low = alt.Y("low:Q", title=drawing["y"], scale=scale, axis=axis)
        layers.append(spread.mark_rule().encode(y=low, y2="high:Q"))
    if any(row["kind"] == "paper" for row in rows):
        said = base.transform_filter("datum.kind == 'paper'")
        crosses = said.mark_point(shape="cross", size=160, filled=True)
        layers.append(crosses.encode(y=y, tooltip=told))
    return layers


def _in_panels(layered: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """A chart, or small multiples of it, each with a y of its own, and an x if places differ."""
    data = alt.InlineData(list(rows))
    panels = list(dict.fromkeys(row["panel"] for row in rows if row["panel"]))
    if not panels:
        return layered.properties(width=480, height=200, data=data)
    words = alt.Header(labelExpr="split(datum.value, ', ')", labelLimit=0, labelLineHeight=12)
    facet = alt.Facet("panel:N", title=None, sort=panels, header=words)
    small = layered.properties(width=220, height=200)
    picture = small.facet(facet=facet, columns=COLUMNS, data=data)
    places = {frozenset(row["x"] for row in rows if row["panel"] == one) for one in panels}
    own: Literal["independent", "shared"] = "independent" if len(places) > 1 else "shared"
    return picture.resolve_scale(x=own, y="independent").resolve_axis(x="independent")


def _scale(drawing: Mapping[str, Any]) -> alt.Scale:
    """The scale of y.

    It is logarithmic if that was asked for, or if the exact result would leave no room for all
    others. Otherwise it begins with 0, unless all values are far from it.
    """
    rows = drawing["rows"]
    values = [row["y"] for row in rows]
    by_panel: dict[str, dict[bool, float]] = {}
    for row in rows:
        most = by_panel.setdefault(row["panel"], {True: 0.0, False: 0.0})
        is_exact = row["kind"] == "exact"
        most[is_exact] = max(most[is_exact], row["y"])
    crowded = any(most[True] > CROWDED * most[False] for most in by_panel.values())
    if drawing["log"] or crowded:
        return alt.Scale(type="log" if min(values) > 0 else "symlog")
    return alt.Scale(zero=min(values) < max(values) / 2)


def _is_logarithmic(scale: alt.Scale) -> bool:
    return "type" in scale.to_dict()


def _subtitle(rows: Sequence[Mapping[str, Any]], scale: alt.Scale) -> str:
    """How a chart is read."""
    kinds = {row["kind"] for row in rows}
    told = ["Click a name to see its line alone."]
    told += ["Dashed: the exact result."] if "exact" in kinds else []
    told += ["Crosses: the paper's numbers."] if "paper" in kinds else []
    told += ["Logarithmic."] if _is_logarithmic(scale) else []
    told += ["Bars: standard deviation."] if any(row["deviation"] > 0 for row in rows) else []
    return " ".join(told)


_LEGEND = alt.Legend(orient="top", columns=4, labelLimit=0, symbolStrokeWidth=3)
_EXACT = "#888888"
"""The colour of the exact result: that of no policy."""
_COLORS = (
    *("#4c78a8", "#f58518", "#e45756", "#72b7b2", "#54a24b", "#eeca3b", "#b279a2", "#ff9da6"),
    *("#9d755d", "#1b9e9e", "#8c6bb1", "#c0ca33", "#d81b60", "#6d8fd6"),
)


def _colors(lines: Sequence[str]) -> alt.Scale:
    """A colour for each line, by its place."""
    others = [line for line in lines if line != "exact"]
    place = {line: _COLORS[number % len(_COLORS)] for number, line in enumerate(others)}
    return alt.Scale(domain=list(lines), range=[place.get(line, _EXACT) for line in lines])


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "verdicts") -> Markup:
    """A table of cells that are HTML, of a kind that the style knows."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return Markup(
        f'<div class="scroll" tabindex="0"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _markdown(text: str) -> str:
    """Paragraphs and tables of Markdown as HTML."""
    found = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if len(lines) > 1 and re.fullmatch(r"[|\- ]+", lines[1]):
            cells = [
                [html.escape(cell.strip()) for cell in row.strip("|").split("|")] for row in lines
            ]
            found.append(_table([html.unescape(cell) for cell in cells[0]], cells[2:]).text)
        else:
            found.append(f"<p>{html.escape(block)}</p>")
    return "".join(found)


def _figure_name(figure: str) -> str:
    if figure[0].isdigit():
        return f"Figure {figure}"
    return f"Table {figure}" if figure == "II" else figure.capitalize()


def _one_line(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 200 else text[:200] + "…"
