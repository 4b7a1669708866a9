"""The command line.

Arrow and the compiler are imported by the commands that need them: help comes at once. Other
packages add commands by entry points of the group `streamshed.commands`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from streamshed.errors import SpecError, StreamshedError, listed
from streamshed.join import Join, join
from streamshed.spec import too_few
from streamshed.terminal import java_version, prepare_spark, print_table, telling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamshed.ledger import Ledger

ERROR = 2
"""The exit code of what Streamshed refuses to do, as of wrong options."""
PLUGINS = "streamshed.commands"
"""The group of entry points that name the commands of other packages."""


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


# -- demo, cluster --------------------------------------------------------------------------------

_DEMO_POLICY, _DEMO_ROWS = "output", 50_000
_DEMO_SEEN = """\
Spark's own joins keep every row of the window and every pair on the way; this one keeps {rows:,}.
State is what the join holds in memory, and for Spark's own the files of its store, compressed.
Rows per second are of the time that batches took, but for the first; waiting does not count."""


@app.command()
def demo(
    policy: Annotated[
        list[str] | None,
        typer.Option(help="The policy that evicts rows; several times with --here."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Rows that may be kept: in all, or with --here of each stream.", min=1),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all randomness.", min=0)] = 1,
    here: Annotated[
        bool,
        typer.Option("--here", help="Without Spark: five streams under several policies."),
    ] = False,
    arrivals: Annotated[
        int, typer.Option(help="With --here: rows that arrive in each stream.", min=2_000)
    ] = 40_000,
    orders: Annotated[
        int,
        typer.Option(
            help="With --here: orders in which keys pass through the streams.", min=1, max=325
        ),
    ] = 10,
) -> None:
    """Join three live streams on Spark, with a budget too small for them, beside Spark's own join.

    Spark runs here, on all cores, or where the variable MASTER says.
    """
    if here:
        from streamshed.demo.here import POLICIES, run

        with telling() as tell:
            table, seen = run(policy or POLICIES, rows or 300, arrivals, orders, seed, tell)
        print_table(table, seen)
        return
    if policy is not None and len(policy) > 1:
        raise SpecError(
            f"the demo on Spark has one policy, and {listed(policy)} were given; give one or --here"
        )
    from streamshed.demo import funnel

    chosen, budget = (policy or [_DEMO_POLICY])[0], rows or _DEMO_ROWS
    _live_demo(funnel().keep(total=budget).shed(chosen).seed(seed), chosen, budget, seed)


def _live_demo(said: Join, policy: str, rows: int, seed: int) -> None:
    prepare_spark()
    from streamshed.demo.live import Batch, Outcome, run
    from streamshed.demo.workloads import FunnelWorkload

    def show(batch: Batch) -> None:
        line = (
            f"batch {batch.number:3d}  {batch.rows:7,d} rows in {batch.seconds:5.1f} s:"
            f" {batch.rows / batch.seconds:7,.0f} rows/s   held {batch.held:7,d}"
            f"   shed {batch.shed:7,d}   results {batch.results:9,d}"
            f"   state {batch.state_bytes / 1e6:5.1f} MB"
        )
        print(line, file=sys.stderr, flush=True)

    with telling() as tell:
        found = run(said, FunnelWorkload(seed=seed), tell, show)
    table = Table("join", title="Impressions, clicks and orders of a session within 10 minutes")
    heads = (
        "rows in",
        "results",
        "of the exact result",
        "as estimated",
        "rows held at most",
        "state",
        "rows/s",
    )
    for head in heads:
        table.add_column(head, justify="right")

    def add(name: str, outcome: Outcome) -> None:
        table.add_row(
            name + (f", {outcome.trouble}" if outcome.trouble else ""),
            f"{outcome.rows:,}",
            f"{outcome.results:,}",
            "" if outcome.trouble else f"{100 * outcome.results / found.exact:.1f} %",
            "" if outcome.recall is None else str(outcome.recall),
            f"{outcome.held:,}",
            f"{outcome.state_bytes / 1e6:.1f} MB",
            f"{outcome.rows_per_second:,.0f}",
        )

    add(f"streamshed, shed by {policy!r}", found.ours)
    add("Spark's own, chained", found.sparks)
    print_table(table, _DEMO_SEEN.format(rows=rows))


@app.command(context_settings={"allow_interspersed_args": False})
def cluster(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND…]", help="What to run, with its arguments."),
    ] = None,
    workers: Annotated[int, typer.Option(help="How many.", min=1)] = 2,
    cores: Annotated[int, typer.Option(help="Of each worker.", min=1)] = 1,
    memory: Annotated[str, typer.Option(help="Of each worker, for its executors.")] = "1g",
) -> None:
    """Run a command on a Spark cluster of this machine: a master and workers, stopped at the end.

    A session that does not say where Spark is finds it by the variable MASTER. Without a command
    the cluster stays until it is interrupted.

    For example: streamshed cluster python job.py
    """
    import signal
    import subprocess

    prepare_spark()
    from streamshed.spark.cluster import cluster

    # Who is told to end stops the cluster too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with cluster(workers, cores, memory) as master:
        print(f"{workers} workers at {master}", file=sys.stderr, flush=True)
        if command:
            here = {**os.environ, "MASTER": master, "SPARK_LOCAL_IP": "127.0.0.1"}
            with subprocess.Popen(command, env=here) as job:
                try:
                    code = job.wait()
                finally:
                    job.terminate()
            raise typer.Exit(code)
        with suppress(KeyboardInterrupt):
            signal.pause()


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
        typer.Option(help="The column that names the streams, for a single input."),
    ] = None,
    keep_rows: Annotated[int | None, typer.Option(help="Rows that each stream may keep.")] = None,
    keep_total: Annotated[int | None, typer.Option(help="Rows that all may keep together.")] = None,
    keep_memory: Annotated[
        str | None, typer.Option(help="Or the memory that all may take, such as '500 MB'.")
    ] = None,
    shed: Annotated[str | None, typer.Option(help="The policy that evicts rows.")] = None,
    shed_column: Annotated[
        str | None, typer.Option(help="Or the column whose lowest values are evicted first.")
    ] = None,
    partial: Annotated[
        int | None, typer.Option(help="The least number of members of a partial result.")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(help="STREAM.COLUMN, or STREAM, to have in results; several times for more."),
    ] = None,
    estimate: Annotated[
        float | None, typer.Option(help="The part of keys to follow, to estimate what is missed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A Parquet file for the results.")] = None,
) -> None:
    """Join Parquet files by a key that all streams share, and print what became of every row.

    Files are read as they stand: sort them by time, or give --late. For equalities between pairs,
    conditions, relations, queues, throttles, spilling and aggregates use Python.

    For example: streamshed replay a=a.parquet b=b.parquet --on k --within "10 minutes" --time ts
    """
    inputs = _named(streams, "a stream", "clicks=clicks.parquet")
    if by is None and len(inputs) < 2:
        raise too_few(tuple(inputs))
    said = join(by=by) if by is not None else join(*inputs)
    said = _keyed(said, on, inputs).seed(seed)
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
    if keep_rows is not None or keep_total is not None or keep_memory is not None:
        said = said.keep(rows=keep_rows, total=keep_total, memory=keep_memory)
    if shed is not None or shed_column is not None:
        said = said.shed(shed, column=shed_column)
    if partial is not None:
        said = said.partial(at_least=partial)
    if estimate is not None:
        said = said.estimate(rate=estimate)
    if select:
        said = said.select(*select)
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


def _keyed(said: Join, columns: Sequence[str], streams: Collection[str]) -> Join:
    if not any("=" in column for column in columns):
        return said.on(*columns)
    by_stream: dict[str, list[str]] = {}
    for text in columns:
        stream = text.partition("=")[0]
        if stream not in streams and ("." in stream or stream != stream.strip()):
            raise SpecError(
                f"--on {text!r}: this command joins by key columns only; give --on COLUMN, or --on "
                f"STREAM=COLUMN for every stream. In Python it is .on({text!r})"
            )
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


# -- compile, savepoint, doctor -------------------------------------------------------------------


@app.command("compile")
def compile_(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Joins: common, key, equalities or distance, alone or with a policy: key:density."
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Copy the kernels to this folder, to be shipped.")
    ] = None,
    archive: Annotated[
        Path | None, typer.Option(help="Pack the kernels into this zip file.")
    ] = None,
) -> None:
    """Compile the kernels of joins ahead of time.

    Without --to and --archive they go to this machine's cache. Elsewhere, name the folder or the
    archive in the variable STREAMSHED_KERNELS: nothing that is there is compiled again.
    """
    from streamshed.kernels.cache import writable_folder
    from streamshed.precompile import Compiled, compile_ahead, write

    def tell(compiled: Compiled) -> None:
        typer.echo(f"{compiled.name}: {compiled.seconds:.1f} s", err=True)

    compile_ahead(what or ["common"], tell)
    number = write(to, archive)
    places = [str(place) for place in (to, archive) if place is not None]
    where = " and ".join(places) or str(
        writable_folder() or "memory only, as no folder is writable"
    )
    typer.echo(f"{number} kernels in {where}")


@app.command()
def savepoint(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint of a query that is stopped.")],
    to: Annotated[str, typer.Argument(help="The folder to write to: a path, or a URI.")],
    operator: Annotated[
        int | None,
        typer.Option(help="Which stateful operator is the join, if the query has several."),
    ] = None,
) -> None:
    """Write the rows that a stopped query holds to a folder, to go on with other shards.

    joined.stream(…, resume=TO) starts a query that begins with them. It needs a checkpoint of its
    own, and sources that begin where those of the old one stood: savepoint.json says where.
    """
    with _spark("savepoint") as session:
        from streamshed.spark.savepoint import write_savepoint

        held = write_savepoint(session, checkpoint, to, operator)
    typer.echo(f"{sum(held.rows.values()):,} rows of {held.shards} shards in {to}")


@app.command()
def doctor(
    on_executors: Annotated[
        bool,
        typer.Option("--on-executors", help="Ask the executors of Spark what they lack, too."),
    ] = False,
) -> None:
    """Show what is installed and what is compiled.

    With --on-executors a small job runs where Spark is (spark-submit's settings, or the variable
    MASTER), and shows what its executors have; the exit code is 1 if one of them lacks something.
    """
    table = Table("what", "found")
    table.add_row("python", sys.version.split()[0])
    for package in ("streamshed", "numpy", "numba", "pyarrow", "duckdb", "pyspark"):
        table.add_row(package, _version(package))
    table.add_row("java", java_version()[1])
    table.add_row("kernels", _kernels())
    print_table(table)
    if on_executors and not _examine_executors():
        raise typer.Exit(1)


def _examine_executors() -> bool:
    """Show what the executors have; returns whether they lack nothing."""
    with _spark("doctor") as session:
        from streamshed.spark.doctor import examine, examined, problems

        driver, workers = json.loads(examine()), examined(session)
    table = Table("executor", "user", "python", "kernels are written to", "shared memory", "lacks")
    lacking = False
    for worker in workers:
        lacks = problems(worker, driver)
        lacking |= bool(lacks)
        shared = worker.get("shared")
        table.add_row(
            worker["host"],
            str(worker["user"]),
            worker["python"],
            worker.get("cache") or "",
            "none" if shared is None else f"{shared / 1e6:,.0f} MB",
            "\n".join(lacks) or "nothing",
        )
    print_table(table)
    return not lacking


@contextmanager
def _spark(purpose: str) -> Iterator[SparkSession]:
    """Spark where it is said to be, or else here; nothing is left of it at the end."""
    prepare_spark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"streamshed {purpose}")
    if "MASTER" in os.environ:
        builder = builder.master(os.environ["MASTER"])
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    session = builder.config("spark.log.level", "ERROR").getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        if package == "streamshed":  # run from its sources
            return str(importlib.import_module(package).__version__)
        return "not installed"


def _kernels() -> str:
    from streamshed.engine.loop import run
    from streamshed.kernels.compiling import compiled_for
    from streamshed.policies import NAMED, ByColumn, Exact, Importance, Policy

    policies: dict[str, type[Policy]] = {"exact": Exact, **NAMED, "by column": ByColumn}
    del policies[Importance.name]  # which has no part in joins on a shared key
    ready = [name for name, policy in policies.items() if compiled_for(run, policy.state)]
    missing = [name for name in policies if name not in ready]
    if not missing:
        return "joins on a shared key: compiled and cached for every policy"
    return (
        f"joins on a shared key: cached for {', '.join(ready) or 'no policy'}; compiled when used: "
        f"{', '.join(missing)}"
    )


# -- commands of other packages -------------------------------------------------------------------


def _add(entry: EntryPoint) -> None:
    """Add the command of an entry point; if it cannot be loaded, it says so when it is used."""
    try:
        app.command(entry.name)(entry.load())
    except ImportError as error:
        reason = f"the command {entry.name!r} is not installed ({error})"

        def unavailable() -> None:
            raise StreamshedError(f"{reason}; get it with pip install 'streamshed[lab]'")

        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(entry.name, context_settings=anything, hidden=True)(unavailable)


for _entry in sorted(entry_points(group=PLUGINS), key=lambda entry: entry.name):
    _add(_entry)


if __name__ == "__main__":
    main()
