"""The page of what was measured, docs/measured.md, made from the runs in docs/measured.jsonl.

A run is what `streamshed bench NAME --json` prints: a line that says which commit was measured,
when and on which machine, then one line for each measurement. `python -m streamshed_lab.bench.page
RUN.jsonl` puts it in the place of the last run of that benchmark, and writes the page anew.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamshed_lab.bench import BENCHMARKS, Measurement, shown
from streamshed_lab.marks import put
from streamshed_lab.modules import lab_module

DOCS = Path(__file__).parents[3] / "docs"
RUNS, PAGE, SCALE, README = "measured.jsonl", "measured.md", "scale.md", "README.md"
HEADLINES = {
    r"^streamshed over Spark's own join on RocksDB, exact, 3 × 100,000 .*, windows of a batch": (
        "speed against Spark's own join on RocksDB, exact, three streams"
    ),
    r"^streamshed over Spark's own join in memory, exact, 3 × 100,000 .*, windows of a batch": (
        "speed against Spark's own join with its state in memory, exact, three streams"
    ),
    r"^memory, .* exact, 3 × 100,000 .*, windows of a batch: streamshed over Spark's own join$": (
        "memory of the state against that of Spark's own join, the same run"
    ),
    r"^end to end, existence, 5 streams, 20,000 rows$": (
        "replay on one core, Arrow in and out, five streams, a budget of 20,000 rows"
    ),
    r"^streamshed over Spark's own on RocksDB, left outer join": (
        "speed of a left outer join against Spark's own on RocksDB"
    ),
    r"^first results over all results, honeypots": (
        "speed of making only first results (`first`) against all, attackers of nine honeypots"
    ),
    r"^mean share of the clairvoyant bound, density": (
        "results of `density` against an upper bound for any policy, mean over workloads"
    ),
    r"^results of density against those of the best policy of the papers": (
        "results of `density` against the best policy of the papers, on the worst workload"
    ),
    r"^intervals of the results missed that hold the truth, of \d+ runs$": (
        "95 % intervals that contain the true number of missed results"
    ),
    r"^one shard, 3 streams, 300,000 rows held$": "one shard, three streams, 300,000 rows held",
    r"^first replay in a new process, kernels cached, exact$": (
        "time of the first join in a new process, kernels cached"
    ),
}
"""Names of measurements that the README quotes, in its order, and what it calls them."""

_HEAD = """# What was measured

<!-- Written by `python -m streamshed_lab.bench.page` from measured.jsonl; do not edit. -->

Each table is one run of a benchmark, by the command above it. Bars were set before the run; *holds*
says whether a figure reaches its bar. Speeds are per core unless stated; yours will differ.
"""


@dataclass(frozen=True)
class Header:
    """What was run, when and where."""

    benchmark: str
    quick: bool
    commit: str
    date: str
    machine: str

    @property
    def command(self) -> str:
        """How to run it again."""
        return f"streamshed bench {self.benchmark}{' --quick' if self.quick else ''} --json"

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True)
class Run:
    """A run: its header, and the measurements as they were printed."""

    header: Header
    measured: tuple[dict[str, Any], ...]


def header_of(name: str, quick: bool) -> Header:
    """The header of a run that begins now."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    commit = found.stdout.strip() or "unknown"
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Header(name, quick, commit, date, _machine())


def _machine() -> str:
    """The processor, its cores, the system and the Python."""
    model = platform.machine()
    cores = 0
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text(encoding="utf-8").splitlines()
        named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        cores, model = len(named), next(iter(named), model)
    return f"{model}, {cores} cores, {platform.system()}, Python {platform.python_version()}"


def read_runs(lines: Iterable[str]) -> list[Run]:
    """The runs in lines of JSON."""
    headers: list[Header] = []
    measured: list[list[dict[str, Any]]] = []
    for line in filter(str.strip, lines):
        said = json.loads(line)
        if "benchmark" in said:
            headers.append(Header(**said))
            measured.append([])
        else:
            measured[-1].append(said)
    return [Run(head, tuple(of)) for head, of in zip(headers, measured, strict=True)]


def page_of(runs: Iterable[Run]) -> str:
    """The page."""
    by_name = {run.header.benchmark: run for run in runs}
    parts = [_HEAD]
    for name in BENCHMARKS:
        parts.append(f"\n## `{name}`\n\n")
        parts.append(_section(by_name[name]) if name in by_name else _unmeasured(name))
    return "".join(parts)


def _unmeasured(name: str) -> str:
    return f"Not measured yet; run `streamshed bench {name} --json`.\n"


def _section(run: Run) -> str:
    head = run.header
    lines = [
        f"`{head.command}`, commit {head.commit}, {head.date}, on {head.machine}.",
        "",
        "| what | measured | unit | bar | holds |",
        "|---|---|---|---|---|",
    ]
    for said in run.measured:
        one = Measurement(
            said["name"],
            said["value"],
            said["unit"],
            said.get("bar"),
            said.get("at_most", False),
            said.get("cell"),
        )
        holds = {None: "", True: "yes", False: "**no**"}[one.holds]
        where = f" (worst: {one.cell})" if one.cell is not None else ""
        cells = (one.name + where, shown(one.value), one.unit, one.wanted, holds)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def main(files: Iterable[str], docs: Path = DOCS) -> None:
    """Put runs in the place of those of the same benchmarks, and write the page."""
    kept = docs / RUNS
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    for file in files:
        lines += Path(file).read_text(encoding="utf-8").splitlines()
    last = {run.header.benchmark: run for run in read_runs(lines)}
    runs = [last[name] for name in BENCHMARKS if name in last]
    with kept.open("w", encoding="utf-8") as out:
        for run in runs:
            said = [json.dumps(one, ensure_ascii=False) for one in run.measured]
            out.write("\n".join([run.header.to_json(), *said]) + "\n")
    (docs / PAGE).write_text(page_of(runs), encoding="utf-8")
    readme = docs.parent / README
    if readme.exists():
        put(readme, {"headlines": headlines(runs)})
    if "scale" in last:
        _derive(docs / SCALE, last["scale"])


def headlines(runs: Iterable[Run]) -> str:
    """The figures that the README quotes, with the commands that measured them."""
    said = [(one, run.header) for run in runs for one in run.measured]
    lines = [
        f"| {words} | {shown(one['value'])} {one['unit']} | `{head.command}` |"
        for pattern, words in HEADLINES.items()
        for one, head in said
        if re.search(pattern, one["name"])
    ]
    if not lines:
        return "The runs that this table quotes are not stored yet."
    return "\n".join(["| what | measured | by |", "|---|---|---|", *lines, _claims()])


def _claims() -> str:
    """How many claims of the papers hold, as a line of the same table."""
    page = lab_module("streamshed_lab.experiments.page")
    found = [page.Tally(**paper["tally"]) for paper in page.stored_verdicts().values()]
    claims, plain, best = (sum(getattr(t, n) for t in found) for n in ("claims", "plain", "best"))
    return (
        "| claims of five papers reproduced: as first read, and in the best reading of each "
        f"| {plain} and {best} of {claims} | `streamshed reproduce --stored` |"
    )


def _derive(page: Path, run: Run) -> None:
    """Put a run of the benchmark `scale`, and what follows from it, into its page."""
    scale = lab_module("streamshed_lab.bench.scale")
    values = {one["name"]: one["value"] for one in run.measured}
    units = {one["name"]: one["unit"] for one in run.measured}
    head = run.header
    by = f"`{head.command}`, commit {head.commit}, {head.date}, on {head.machine}."
    parts = {"measured": scale.table(values, units), "derived": scale.derived(values)}
    put(page, {name: f"{by}\n\n{part}" for name, part in parts.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
