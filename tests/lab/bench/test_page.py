"""The page of what was measured: made from runs, and the only place figures come from."""

from __future__ import annotations

import re

from streamshed_lab.bench import Measurement
from streamshed_lab.bench.page import (
    DOCS,
    PAGE,
    RUNS,
    Header,
    headlines,
    main,
    page_of,
    read_runs,
)

README = DOCS.parent / "README.md"
HEADER = Header("star", True, "0123456789", "2026-01-02 03:04 UTC", "a machine")
MEASURED = [
    Measurement("speed", 1234567.0, "rows/s", bar=10.0),
    Measurement("memory", 12.5, "bytes", bar=10.0, at_most=True, cell="a far spread"),
]
FIGURE = re.compile(
    r"([\d][\d,.]*)(?: to [\d,.]+)?\s*"
    r"(%|times|million|billion|rows/s|rows a second|ns\b|ms\b|seconds\b|bytes\b|[KMG]B\b)"
)


def written(header: Header) -> str:
    return "\n".join([header.to_json(), *(one.to_json() for one in MEASURED)]) + "\n"


def test_a_run_becomes_a_table_that_says_where_it_comes_from(tmp_path):
    (tmp_path / "run.jsonl").write_text(written(HEADER), encoding="utf-8")
    main([str(tmp_path / "run.jsonl")], tmp_path)
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "`streamshed bench star --quick --json`, commit 0123456789, 2026-01-02" in page
    assert "| speed | 1,234,567 | rows/s | ≥ 10 | yes |" in page
    assert "| memory (worst: a far spread) | 12.5 | bytes | ≤ 10 | **no** |" in page
    assert "Not measured yet; run `streamshed bench keyed --json`." in page


def test_a_later_run_takes_the_place_of_an_earlier_one(tmp_path):
    later = Header("star", False, "later", "2026-01-03 00:00 UTC", "a machine")
    for number, header in enumerate((HEADER, later)):
        file = tmp_path / f"{number}.jsonl"
        file.write_text(written(header), encoding="utf-8")
        main([str(file)], tmp_path)
    (run,) = read_runs((tmp_path / RUNS).read_text(encoding="utf-8").splitlines())
    assert run.header == later
    assert len(run.measured) == len(MEASURED)


def test_the_page_is_what_its_runs_say():
    runs = read_runs((DOCS / RUNS).read_text(encoding="utf-8").splitlines())
    assert (DOCS / PAGE).read_text(encoding="utf-8") == page_of(runs)


def test_the_headlines_of_the_readme_are_what_the_runs_say():
    runs = read_runs((DOCS / RUNS).read_text(encoding="utf-8").splitlines())
    text = README.read_text(encoding="utf-8")
    assert f"<!-- headlines -->\n{headlines(runs)}\n<!-- end -->" in text


def test_a_run_goes_to_the_readme_and_to_the_page_of_scale(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    marks = "before\n<!-- {} -->\nold\n<!-- end -->\nafter\n"
    (tmp_path / "README.md").write_text(marks.format("headlines"), encoding="utf-8")
    parts = marks.format("measured") + marks.format("derived")
    (docs / "scale.md").write_text(parts, encoding="utf-8")
    few = {1: 0.5, 2: 0.6, 4: 0.8}
    measured = [Measurement("one shard, 3 streams, 300,000 rows held", 2e6, "rows/s")]
    for shards, seconds in few.items():
        here = f"{shards} shard{'s' if shards > 1 else ''} on 2 cores"
        measured += [
            Measurement(f"{here}, a batch of 3 × 1,000 rows", seconds, "s"),
            Measurement(f"{here}, beyond what a batch costs", 200_000.0, "rows/s"),
        ]
    header = Header("scale", False, "later", "2026-01-03 00:00 UTC", "a machine")
    lines = [header.to_json(), *(one.to_json() for one in measured)]
    (tmp_path / "run.jsonl").write_text("\n".join(lines), encoding="utf-8")
    main([str(tmp_path / "run.jsonl")], docs)
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "rows held | 2,000,000 rows/s | `streamshed bench scale --json` |" in readme
    page = (docs / "scale.md").read_text(encoding="utf-8")
    assert "\nold\n" not in page + readme
    assert page.count("after") == 2
    # 0.4 s for a batch and 0.1 s for a shard, so 0.2 s of a core; 100,000 rows a second and core.
    assert "A batch costs 0.40 s, and 100 ms more for each shard" in page
    assert "| 10 | 940,000 | 860,000 |" in page
    assert "| 1,000 | 94,000,000 | 0 |" in page


def test_every_figure_in_the_readme_was_measured():
    """Examples print what they print, and 95 % is what an interval promises."""
    prose = re.sub(r"```.*?```", "", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    measured = (DOCS / PAGE).read_text(encoding="utf-8")
    figures = [found.group(1) for found in FIGURE.finditer(prose) if found.group(0) != "95 %"]
    unknown = [figure for figure in figures if not re.search(rf"\| {re.escape(figure)} ", measured)]
    assert not unknown, f"README quotes {unknown}, which docs/measured.md does not have"
