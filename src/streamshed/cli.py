"""The command line.

Arrow and the compiler are imported by the commands that need them: help comes at once.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from streamshed.errors import SpecError, StreamshedError, listed, suggestion
from streamshed.join import Join, join

if TYPE_CHECKING:
    from streamshed.ledger import Ledger

ERROR = 2
"""The exit code of what Streamshed refuses to do, as of wrong options."""


class _Commands(TyperGroup):
    """Says in one line what Streamshed refuses, without the way there."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except StreamshedError as error:
            typer.echo(f"error: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(ERROR) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Window joins of many event streams that shed what they cannot hold, and say so.",
)


def main() -> None:
    """Run the command line."""
    app()


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """A way to say what is being done: a line that changes on a terminal, else line by line."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    with console.status("starting") as status:
        yield status.update


def _print(table: Table, *lines: str) -> None:
    # Away from a terminal there is no width to keep to.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(table)
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


# -- demo -----------------------------------------------------------------------------------------

_DEMO_POLICIES = ("exact", "random", "oldest", "frequency", "existence")
_DEMO_SEEN = """\
An exact join holds {needed:,} rows of each stream; the others here may keep {rows:,}.
A result needs five rows, and random shedding drops each on its own: few results stay whole.
Keys pass through the streams in {orders} orders only, so that the streams which have seen a key say
what is still to come: 'existence' learns this, and keeps the rows that will complete results."""
_DEMO_ALL = """\
An exact join holds {needed:,} rows of each stream; the others here may keep {rows:,}.
Keys pass through the streams in any order: the streams which have seen a key say little about what
is still to come, and 'oldest' does better than 'existence', which learns from just that."""


@app.command()
def demo(
    rows: Annotated[int, typer.Option(help="Rows that each stream may keep.", min=1)] = 300,
    tuples: Annotated[int, typer.Option(help="Rows of each stream.", min=2_000)] = 40_000,
    orders: Annotated[
        int, typer.Option(help="Orders in which keys pass through the streams.", min=1, max=325)
    ] = 10,
    policy: Annotated[
        list[str] | None, typer.Option(help="A policy to run; may be given several times.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all randomness.", min=0)] = 1,
) -> None:
    """Join five generated streams with a third of the memory needed, under several policies."""
    from streamshed.workloads import ExistenceWorkload

    chosen = list(dict.fromkeys(policy or _DEMO_POLICIES))
    joins = {name: _demo_join(name, rows, seed) for name in chosen}
    table = Table("policy", title="Five streams, 10 rows/s each, windows of 100 seconds")
    heads = (
        "rows in",
        "results kept",
        "of the exact result",
        "as estimated",
        "shed",
        "state bytes/row",
        "rows/s",
    )
    for head in heads:
        table.add_column(head, justify="right")
    with _telling() as tell:
        tell("generating the streams")
        workload = ExistenceWorkload(
            tuples=tuples, spread=50.0, repertoire=None if orders == 325 else orders, seed=seed
        )
        tables = workload.tables()
        exact = workload.exact_results(100.0)
        _compile_together(joins, tell)
        for name, said in joins.items():
            tell(f"replaying with {name}")
            said.replay({stream: part.slice(0, 100) for stream, part in tables.items()})
            start = time.perf_counter()
            ledger = said.replay(tables).ledger
            table.add_row(name, *_demo_row(ledger, exact, time.perf_counter() - start))
    seen = _DEMO_ALL if orders == 325 else _DEMO_SEEN
    _print(table, seen.format(needed=1_000, rows=rows, orders=orders))


def _demo_join(policy: str, rows: int, seed: int) -> Join:
    said = join("s1", "s2", "s3", "s4", "s5").on("key").seed(seed)
    said = said.within("100 seconds", time="time", clock="max")
    return said if policy == "exact" else said.keep(rows=rows).shed(policy)


def _demo_row(ledger: Ledger, exact: int, seconds: float) -> list[str]:
    streams = ledger.streams.values()
    arrived, stored, shed = (
        sum(getattr(stream, fate) for stream in streams) for fate in ("arrived", "stored", "shed")
    )
    return [
        f"{arrived:,}",
        f"{ledger.results:,}",
        f"{ledger.results / exact:.1%}" if exact else "",
        f"{ledger.recall:.1%}",
        f"{shed / arrived:.0%}",
        f"{ledger.state_bytes / stored:.0f}",
        f"{arrived / seconds:,.0f}",
    ]


def _compile_together(joins: dict[str, Join], tell: Callable[[str], None]) -> None:
    """Compile for several policies at once, each in a process of its own, into the cache."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    from streamshed.kernels.compiling import compiled_for
    from streamshed.operators.keyed_loop import run
    from streamshed.policies import Exact

    missing = {
        name: said
        for name, said in joins.items()
        if not compiled_for(run, type(said.policy or Exact()).state)
    }
    if not missing:
        return
    tell(f"compiling for {', '.join(missing)}: once, it is cached")
    workers = min(len(missing), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        # The last ones are the longest to compile: they go first, so that none is waited for alone.
        waiting = {pool.submit(_compile, missing[name]): name for name in reversed(missing)}
        for done in as_completed(waiting):
            done.result()
            tell(f"compiled for {waiting[done]}")


def _compile(said: Join) -> None:
    import pyarrow as pa

    kinds = {"key": pa.int64(), "time": pa.timestamp("us", "UTC")}
    nothing = pa.table({name: pa.array([0], pa.int64()).cast(kind) for name, kind in kinds.items()})
    said.replay(dict.fromkeys(said.streams, nothing))


# -- replay ---------------------------------------------------------------------------------------


@app.command()
def replay(
    streams: Annotated[
        list[str],
        typer.Argument(metavar="NAME=PATH…", help="The streams: names and Parquet files."),
    ],
    on: Annotated[
        list[str],
        typer.Option(help="A key column, or STREAM=COLUMN; several make one key."),
    ],
    within: Annotated[
        str | None,
        typer.Option(help="The time window: '10 minutes', or a number for integer times."),
    ] = None,
    last: Annotated[int | None, typer.Option(help="Or a window of the last rows.")] = None,
    time: Annotated[
        list[str] | None, typer.Option(help="The time column, or STREAM=COLUMN for each.")
    ] = None,
    late: Annotated[str, typer.Option(help="How late rows may come.")] = "0",
    clock: Annotated[str, typer.Option(help="Who sets the clock: min or max.")] = "min",
    by: Annotated[
        str | None,
        typer.Option(help="The column that tells streams apart, for a single input."),
    ] = None,
    keep_rows: Annotated[int | None, typer.Option(help="Rows that each stream may keep.")] = None,
    keep_total: Annotated[int | None, typer.Option(help="Rows that all may keep together.")] = None,
    shed: Annotated[str | None, typer.Option(help="The policy that says who leaves.")] = None,
    shed_by: Annotated[
        str | None, typer.Option(help="Or the column whose lowest values leave.")
    ] = None,
    partial: Annotated[
        int | None, typer.Option(help="The least number of members of a partial result.")
    ] = None,
    estimate: Annotated[
        float | None, typer.Option(help="The part of keys to follow, to estimate what is missed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A Parquet file for the results.")] = None,
) -> None:
    """Join Parquet files, and print what became of every row.

    For example: streamshed replay a=a.parquet b=b.parquet --on k --within "10 minutes" --time ts
    """
    inputs = _named(streams, "a stream", "clicks=clicks.parquet")
    said = join(by=by) if by is not None else join(*inputs)
    said = _keyed(said, on).seed(seed)
    if within is not None:
        if not time:
            raise SpecError("--within needs the time column; give --time COLUMN")
        said = said.within(
            _number_or_text(within),
            time=_one_or_each(time),
            late=_number_or_text(late),
            clock=clock,  # type: ignore[arg-type]
        )
    if last is not None:
        said = said.last(last, time=_one_or_each(time) if time and within is None else None)
    if keep_rows is not None or keep_total is not None:
        said = said.keep(rows=keep_rows, total=keep_total)
    if shed is not None or shed_by is not None:
        said = said.shed(shed, by=shed_by)
    if partial is not None:
        said = said.partial(at_least=partial)
    if estimate is not None:
        said = said.estimate(rate=estimate)
    typer.echo(_replayed(said, inputs, out))


def _replayed(said: Join, inputs: dict[str, str], out: Path | None) -> Ledger:
    """Run the join, write the results if there is a file for them, and give back the ledger."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        ledger = said.count(inputs) if out is None else _written(said, inputs, out)
    for note in noted:
        typer.echo(f"note: {note.message}", err=True)
    return ledger


def _written(said: Join, inputs: dict[str, str], out: Path) -> Ledger:
    import pyarrow.parquet as pq

    batches = said.replay_batches(inputs)
    # Under another name until it is whole: a run that fails leaves an earlier result alone.
    unfinished = out.with_name(f".{out.name}.part")
    try:
        with pq.ParquetWriter(unfinished, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        unfinished.replace(out)
    except OSError as error:
        raise StreamshedError(f"the results cannot be written to {str(out)!r}: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return batches.ledger


def _named(said: Iterable[str], what: str, example: str) -> dict[str, str]:
    """Read NAME=VALUE, each name once."""
    found: dict[str, str] = {}
    for text in said:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise SpecError(f"{text!r} is not {what}; write it as {example}")
        if name in found:
            raise SpecError(f"{what} named {name!r} was given twice; give every one its own name")
        found[name] = value
    return found


def _keyed(said: Join, columns: Sequence[str]) -> Join:
    if not any("=" in column for column in columns):
        return said.on(*columns)
    by_stream: dict[str, list[str]] = {}
    for text in columns:
        for stream, column in _named([text], "a key column", "--on clicks=ad_id").items():
            by_stream.setdefault(stream, []).append(column)
    return said.on(**by_stream)


def _one_or_each(columns: Sequence[str]) -> str | dict[str, str]:
    if len(columns) == 1 and "=" not in columns[0]:
        return columns[0]
    return _named(columns, "a time column", "--time clicks=ts")


def _number_or_text(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


# -- reproduce, bench -----------------------------------------------------------------------------

_PAPERS = {"existence": "streamshed.experiments.existence"}


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help=f"One of: {', '.join(_PAPERS)}.")],
    out: Annotated[
        Path | None, typer.Option(help="A folder for tables and charts; results/PAPER if not said.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds and settings.")] = False,
    figure: Annotated[
        list[str] | None, typer.Option(help="A figure to run; may be given several times.")
    ] = None,
) -> None:
    """Run the experiments of a paper, and say which of its claims hold."""
    if paper not in _PAPERS:
        raise StreamshedError(
            f"there are no experiments of {paper!r}; there are those of {listed(_PAPERS)}."
            f"{suggestion(paper, _PAPERS)}"
        )
    folder = out or Path("results") / paper
    with _telling() as tell:
        run = importlib.import_module(_PAPERS[paper]).run
        claims = run(folder, quick=quick, figures=figure or None, progress=tell)
    table = Table("figure", "the paper says", "holds")
    for claim in claims:
        table.add_row(claim.figure, claim.paper_says, _outcome(claim))
    held = sum(claim.holds for claim in claims)
    _print(table, f"{held} of {len(claims)} claims hold in every setting tried; see {folder}")


def _outcome(claim: Any) -> str:
    if claim.holds or not claim.holds_for:
        return "yes" if claim.holds else "no"
    return f"in {len(claim.holds_for)} of {len(claim.holds_for) + len(claim.fails_for)} settings"


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="Which benchmark: keyed.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, as they are measured.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Measure less.")] = False,
) -> None:
    """Measure speed and memory, beside the bars that are to be reached."""
    from streamshed.bench import run, shown

    table = Table("what")
    table.add_column("measured", justify="right")
    for head in ("unit", "bar", "holds"):
        table.add_column(head)
    with _telling() as tell:
        for measured in run(name, quick, tell):
            if as_json:
                typer.echo(measured.to_json())
            holds = {None: "", True: "yes", False: "no"}[measured.holds]
            table.add_row(
                measured.name, shown(measured.value), measured.unit, measured.wanted, holds
            )
    if not as_json:
        _print(table)


# -- doctor ---------------------------------------------------------------------------------------


@app.command()
def doctor() -> None:
    """Show what is installed, what is compiled, and where the data is."""
    table = Table("what", "found")
    table.add_row("python", sys.version.split()[0])
    for package in ("streamshed", "numpy", "numba", "pyarrow", "duckdb", "pyspark"):
        table.add_row(package, _version(package))
    table.add_row("java", _java())
    table.add_row("kernels", _kernels())
    table.add_row("data", _data())
    _print(table)


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        if package == "streamshed":  # run from its sources
            return str(importlib.import_module(package).__version__)
        return "not installed"


def _java() -> str:
    import subprocess

    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "not found; Spark needs Java 17 or later"
    return told.stderr.splitlines()[0]


def _kernels() -> str:
    from streamshed.kernels.compiling import compiled_for
    from streamshed.operators.keyed_loop import run
    from streamshed.policies import NAMED, ByColumn, Exact, Policy

    policies: dict[str, type[Policy]] = {"exact": Exact, **NAMED, "by column": ByColumn}
    ready = [name for name, policy in policies.items() if compiled_for(run, policy.state)]
    missing = [name for name in policies if name not in ready]
    if not missing:
        return "compiled and cached for every policy"
    return f"cached for {', '.join(ready) or 'no policy'}; compiled when used: {', '.join(missing)}"


def _data() -> str:
    from streamshed.workloads.traces import FOLDER_VARIABLE, data_folder

    try:
        return str(data_folder().resolve())
    except StreamshedError:
        return f"no folder of traces; set {FOLDER_VARIABLE} to reproduce what needs real data"


if __name__ == "__main__":
    main()
