"""The commands `demo` and `cluster`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated

import typer
from rich.table import Table

from streamshed.cli.app import app
from streamshed.errors import SpecError, listed
from streamshed.join import Join
from streamshed.terminal import prepare_spark, print_table, telling

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
