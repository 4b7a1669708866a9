"""The commands `demo` and `cluster`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from streamshed.cli.app import app
from streamshed.errors import SpecError, listed
from streamshed.terminal import prepare_spark


@app.command()
def demo(
    policy: Annotated[
        list[str] | None,
        typer.Option(help="The policy that evicts rows; several times with --here."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Rows that may be kept; a third of those needed by default.", min=1),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all randomness.", min=0)] = 1,
    here: Annotated[
        bool, typer.Option("--here", help="Without Spark: several policies in this process.")
    ] = False,
    minutes: Annotated[int, typer.Option(help="With --here: minutes of the streams.", min=12)] = 36,
    chart: Annotated[Path, typer.Option(help="The file that the chart is written to.")] = Path(
        "streamshed-demo.html"
    ),
) -> None:
    """Join three live streams that have a burst: on Spark by its own join and by ours.

    Spark's own join, ours without a budget and ours with one take turns on the same files. It takes
    four minutes, and half a minute with --here.
    """
    from streamshed.policies import by_name

    for name in policy or []:
        if name != "exact":
            by_name(name)
    if here:
        from streamshed.demo.display import in_process

        in_process(policy or (), seed, rows, minutes, chart)
        return
    if policy is not None and (len(policy) > 1 or policy == ["exact"]):
        raise SpecError(
            f"the demo on Spark has one policy, and {listed(policy)} were given; give one or --here"
        )
    prepare_spark()
    from streamshed.demo.display import on_spark

    on_spark(seed, rows, (policy or ["density"])[0], chart)


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
