"""Charts as one HTML file that loads nothing from the network, or as SVG."""

from __future__ import annotations

import html
import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from streamshed.errors import StreamshedError

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Grid:
    """A table: the heads of its columns, and its rows. The first column names the row."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True)
class Markup:
    """A piece of HTML as it is; its text must have been escaped."""

    text: str


Part: TypeAlias = "str | Grid | Markup | alt.TopLevelMixin"
"""What a page is made of: a paragraph, a table, a piece of HTML, or an Altair chart."""

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; }}
main {{ padding: 0 1rem; }}
figure, figure.vega-embed {{ display: block; margin: 1.5rem 0; overflow-x: auto; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
@media print {{ .vega-embed summary {{ display: none; }} }}
caption {{ text-align: left; padding-bottom: .5rem; }}
th, td {{ padding: .25rem .75rem; border-bottom: 1px solid #8886; }}
td, thead th + th {{ text-align: right; }} th {{ text-align: left; }} td {{ white-space: nowrap; }}
</style></head><body><main>
<h1>{title}</h1>
{parts}
</main>
{script}</body></html>
"""

# Words and axes have the colour of the page's text, so that charts follow the reader's colours, and
# those of paper, without being drawn anew.
_DRAW = """
const ink = "currentColor", faint = "#8884";
const words = {labelColor: ink, titleColor: ink};
const config = {
  background: "transparent", view: {stroke: faint}, title: {color: ink, subtitleColor: ink},
  axis: {...words, tickColor: ink, domainColor: ink, gridColor: faint},
  legend: words, header: words,
};
CHARTS.forEach((spec, i) => vegaEmbed("#chart" + i, spec, {config, renderer: "svg"}));
"""


def write_html(path: str | Path, title: str, *parts: Part) -> Path:
    """Write a page of paragraphs, tables and Altair charts that loads nothing from elsewhere.

    The page follows the reader's light or dark colours. The `description` of a chart is read out
    in its place by a screen reader.

    Args:
        path: the file to write; its folder must exist.
        title: of the page.
        parts: paragraphs, tables (`Grid`) and charts, from top to bottom.

    Returns:
        The path of the file.
    """
    charts: list[str] = []
    written = [_part(part, charts) for part in parts]
    script = f'<script type="module">{_bundled(charts)}</script>\n' if charts else ""
    page = _PAGE.format(title=html.escape(title), parts="\n".join(written), script=script)
    return _write(path, page)


def write_svg(path: str | Path, chart: alt.TopLevelMixin) -> Path:
    """Write an Altair chart as an SVG file, and return its path."""
    return _write(path, str(imported("vl_convert").vegalite_to_svg(chart.to_dict())))


def _write(path: str | Path, text: str) -> Path:
    file = Path(path)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StreamshedError(f"{str(file)!r} cannot be written: {error.strerror}") from error
    return file


def _part(part: Part, charts: list[str]) -> str:
    if isinstance(part, str):
        return f"<p>{html.escape(part)}</p>"
    if isinstance(part, Markup):
        return part.text
    if isinstance(part, Grid):
        return _grid(part)
    spec = part.to_dict()
    label = html.escape(str(spec.get("description") or spec.get("title") or "chart"), quote=True)
    charts.append(json.dumps(spec))
    return f'<figure id="chart{len(charts) - 1}" role="img" aria-label="{label}"></figure>'


def _grid(grid: Grid) -> str:
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in grid.head)
    body = "\n".join(
        f'<tr><th scope="row">{html.escape(row[0])}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in grid.rows
    )
    caption = f"<caption>{html.escape(grid.caption)}</caption>" if grid.caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _bundled(charts: Sequence[str]) -> str:
    """Vega, and what draws the charts, as one script."""
    # The charts are put in afterwards, so that the bundler need not read their data.
    data = f"[{','.join(charts)}]".replace("</", "<\\/")
    return str(imported("vl_convert").javascript_bundle(_DRAW)).replace("CHARTS", data, 1)


def imported(name: str) -> Any:
    """A package that draws charts."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise StreamshedError(
            f"{name} is not installed; charts need pip install 'streamshed[charts]'"
        ) from None
