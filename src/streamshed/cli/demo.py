"""The commands `demo` and `cluster`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from streamshed.cli.app import app
from streamshed.cli.archives import check_folders
from streamshed.errors import SpecError, listed
from streamshed.terminal import prepare_spark


@app.command()
def demo(
    policy: Annotated[
        list[str] | None,
        typer.Option(help="The policy that evicts rows. Repeat it with --here to compare several."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            help="The budget in rows. Default: a third of the rows that the exact join holds.",
            min=1,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.", min=0)] = 1,
    here: Annotated[
        bool,
        typer.Option("--here", help="Compare policies in this process, without Spark and Java."),
    ] = False,
    minutes: Annotated[
        int, typer.Option(help="With --here: the length of the streams in minutes.", min=12)
    ] = 36,
    chart: Annotated[
        Path,
        typer.Option(
            help="The chart to write: an HTML page, or a picture if its name ends in .svg."
        ),
    ] = Path("streamshed-demo.html"),
) -> None:
    """Send a burst through Spark's own join and through ours, and compare them.

    A trial of Spark's own join sets the size of the burst. Then Spark's own join, ours without a
    budget and ours with one process the same files, one after the other. --here compares policies
    without Spark.
    """
    from streamshed.policies import by_name

    check_folders(chart=chart)
    for name in policy or []:
        if name != "exact":
            by_name(name)
    if here:
        from streamshed.demo.display import in_process

        in_process(policy or (), seed, rows, minutes, chart)
        return
    if policy is not None and (len(policy) > 1 or policy == ["exact"]):
        raise SpecError(
            f"the demo on Spark takes one policy, and {listed(policy)} were given; give one, or add"
            " --here"
        )
    prepare_spark()
    from streamshed.demo.display import on_spark

    on_spark(seed, rows, (policy or ["density"])[0], chart)


@app.command(context_settings={"allow_interspersed_args": False})
def cluster(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND…]", help="The command to run, with its arguments."),
    ] = None,
    workers: Annotated[int, typer.Option(help="The number of workers.", min=1)] = 2,
    cores: Annotated[int, typer.Option(help="The cores of each worker.", min=1)] = 1,
    memory: Annotated[
        str, typer.Option(help="The memory of each worker for its executors.")
    ] = "1g",
) -> None:
    """Run a command on a local Spark cluster, a master and workers, and stop it at the end.

    The command finds the cluster in the environment variable MASTER. Without a command, the
    cluster runs until it is interrupted.

    Example: streamshed cluster python job.py
    """
    import signal
    import subprocess

    prepare_spark()
    from streamshed.spark.cluster import cluster

    # SIGTERM stops the cluster too.
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
